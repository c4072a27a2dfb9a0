package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func destinationsRemoveCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "remove",
		Usage:     "take a destination away, and decide about what is open there",
		ArgsUsage: "NAME",
		Description: example("Before a destination leaves the configuration, or a server that misses it refuses to start,\n"+
			"somebody decides about its open forwards. --drain waits until the servers have handed them\n"+
			"on: leave the destination in the configuration and take it out of every forward list, so\n"+
			"that nothing new comes. Dead letters do not drain. --cancel decides that none of them is\n"+
			"sent. --move-to makes them forwards of another destination, where they begin anew; dead\n"+
			"letters stay dead letters, and what the other one has already is not sent twice. Attempts\n"+
			"under way are waited for. Each forward that is cancelled or moved stands in the audit.\n"+
			"Ctrl-C stops after the transaction under way; the same command goes on. Exit code 5:\n"+
			"something is still open.\n\n"+databaseHelp,
			"hooklatch destinations remove shop --drain --reason 'replaced by store'",
			"hooklatch destinations remove shop --move-to store --dry-run"),
		Flags: append(append(databaseFlags(),
			&cli.BoolFlag{Name: "drain", Usage: "wait until everything has been handed on"},
			&cli.BoolFlag{Name: "cancel", Usage: "send none of it"},
			&cli.StringFlag{Name: "move-to", Usage: "hand it to this destination `NAME`"}), actFlags()...),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "NAME")
			if err != nil {
				return err
			}
			r := &remover{s: s, which: readWhichDatabase(c), name: args[0], drain: c.Bool("drain"), cancel: c.Bool("cancel"), to: c.String("move-to"),
				dryRun: c.Bool("dry-run"), yes: c.Bool("yes"), json: c.Bool("json"), reason: c.String("reason")}
			if err := r.check(c.IsSet("move-to")); err != nil {
				return err
			}
			return r.which.withStore(c.Context, func(store *inbox.Store) error { return r.run(c.Context, store) })
		},
	}
}

// remover is one run of remove.
type remover struct {
	s             *stdio
	which         whichDatabase
	name          string
	drain, cancel bool
	to            string // where it is moved; empty: nowhere
	dryRun, yes   bool
	json          bool
	reason        string

	cfg  *config // nil: none is at hand
	act  inbox.Act
	done removed
}

// removed is the JSON of remove.
type removed struct {
	V           int    `json:"v"`
	DryRun      bool   `json:"dry_run,omitempty"`
	Destination string `json:"destination"`
	Choice      string `json:"choice,omitempty"` // drain, cancel, move
	To          string `json:"to,omitempty"`
	Open        int    `json:"open_at_start"`
	Cancelled   int    `json:"cancelled"`
	Moved       int    `json:"moved"`
	Left        int    `json:"open"` // in the end
	DeadLetters int    `json:"dead_letters"`
	Removed     bool   `json:"removed"`
}

// removePause is between two looks at what is waited for.
const removePause = time.Second

func (r *remover) check(toIsSet bool) error {
	const command = "destinations remove"
	choices := 0
	for _, chosen := range []bool{r.drain, r.cancel, toIsSet} {
		if chosen {
			choices++
		}
	}
	switch {
	case choices > 1:
		return usagef("one of --drain, --cancel and --move-to OTHER", "%s: they exclude one another", command)
	case toIsSet && r.to == "":
		return usagef("--move-to OTHER", "%s: --move-to names no destination", command)
	case toIsSet && r.to == r.name:
		return usagef("--move-to OTHER", "%s: %s is where they are", command, r.name)
	}
	if r.reason == "" && !r.dryRun && !r.s.asks() { // before the database is looked at
		_, err := r.s.reason(context.Background(), command, r.reason)
		return err
	}
	return nil
}

func (r *remover) run(ctx context.Context, store *inbox.Store) error {
	const command = "destinations remove"
	r.cfg = r.which.known()
	d, all, err := findDestination(ctx, store, r.name)
	if err != nil {
		return err
	}
	if d == nil {
		return unknownDestination(command, r.name, all)
	}
	if err := r.checkRoutes(ctx, store, all); err != nil {
		return err
	}
	stats, err := statsOf(ctx, store, r.name)
	if err != nil {
		return err
	}
	r.done = removed{V: 1, DryRun: r.dryRun, Destination: r.name, To: r.to, Open: openIn(stats), Left: openIn(stats), DeadLetters: stats.Open[inbox.Blocked]}
	switch {
	case r.drain:
		r.done.Choice = "drain"
	case r.cancel:
		r.done.Choice = "cancel"
	case r.to != "":
		r.done.Choice = "move"
	case r.done.Open > 0:
		return usagef("--drain, --cancel or --move-to OTHER", "%s: forwards to %s are open (%s): what becomes of them?", command, r.name, openText(stats))
	}
	if r.dryRun {
		return r.print()
	}
	if err := r.decide(ctx, command, stats); err != nil {
		return err
	}
	return r.remove(ctx, store, d)
}

func openIn(st inbox.DestinationStats) (n int) {
	for _, of := range st.Open {
		n += of
	}
	return n
}

// checkRoutes refuses what would not come to an end, or strand what is moved.
func (r *remover) checkRoutes(ctx context.Context, store *inbox.Store, all []inbox.Destination) error {
	known := func(name string) bool {
		return r.cfg != nil && r.cfg.Destinations[name] != nil ||
			slices.ContainsFunc(all, func(d inbox.Destination) bool { return d.Name == name && d.RemovedAt.IsZero() })
	}
	if r.to != "" && !known(r.to) {
		return usagef("--move-to OTHER", "destinations remove: unknown destination %q: it is in no configuration", r.to)
	}
	if r.cfg == nil {
		return nil
	}
	for _, source := range sortedKeys(r.cfg.Sources) {
		for _, route := range r.cfg.Sources[source].Forward {
			if route.To == r.name {
				return fail(exitConfig, fmt.Errorf("destinations remove: source %s still forwards to %s: new forwards would come", source, r.name),
					fmt.Sprintf("take %s out of forward of source %s in %s, restart the servers, then remove it", r.name, source, r.cfg.file))
			}
		}
	}
	if r.to == "" || r.cfg.Destinations[r.to] == nil {
		return nil
	}
	stranded, err := store.Stranded(ctx, r.name, r.cfg.tenantsOf(r.to))
	if err != nil || len(stranded) == 0 {
		return err
	}
	var tenants []string
	for _, b := range stranded {
		tenants = append(tenants, b.Tenant)
	}
	return fail(exitConfig, fmt.Errorf("destinations remove: no source of tenant %s forwards to %s: nobody would send there what is moved", strings.Join(tenants, ", "), r.to),
		"give the tenant a source that forwards to "+r.to)
}

func (r *remover) decide(ctx context.Context, command string, stats inbox.DestinationStats) error {
	var question string
	switch {
	case r.cancel && r.done.Open > 0:
		question = fmt.Sprintf("cancel all that is open at %s (%s)? None of it is sent.", r.name, openText(stats))
	case r.to != "" && r.done.Open > 0:
		question = fmt.Sprintf("move all that is open at %s (%s) to %s?", r.name, openText(stats), r.to)
	}
	if question != "" {
		if err := r.s.confirm(ctx, command, question, r.yes); err != nil {
			return err
		}
	}
	reason, err := r.s.reason(ctx, command, r.reason)
	r.act = inbox.Act{Actor: actor(), Reason: reason}
	return err
}

// remove works until nothing is open that it could do something about.
func (r *remover) remove(ctx context.Context, store *inbox.Store, d *inbox.Destination) error {
	if r.drain && d.Pause != nil {
		r.s.note("%s is %s: nothing drains until it is resumed", r.name, describePause(d.Pause).text())
	}
	err := r.empty(ctx, store)
	if err == nil && r.done.Left == 0 {
		err = store.RemoveDestination(ctx, r.name, r.act, r.did())
		r.done.Removed = err == nil
		if errors.Is(err, inbox.ErrState) {
			err, r.done.Left = nil, 1 // something has come in this moment
		}
	}
	if printed := r.print(); printed != nil && err == nil {
		err = printed
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(exitInterrupted, errors.New("destinations remove: interrupted; what is counted was done"), r.again())
	case err != nil:
		return err
	case !r.done.Removed && r.drain:
		return fail(exitPartly, fmt.Errorf("destinations remove: what is left at %s is moved by persons alone", r.name),
			fmt.Sprintf("%s replay --destination %s; or remove with --cancel or --move-to", programName(), shellQuote(r.name)))
	case !r.done.Removed:
		return fail(exitPartly, fmt.Errorf("destinations remove: forwards have come to %s meanwhile", r.name), r.again())
	}
	return nil
}

// empty returns when nothing is open any more, or of a drain when nothing drains.
func (r *remover) empty(ctx context.Context, store *inbox.Store) error {
	if r.done.Open == 0 {
		return nil
	}
	tell := r.s.progress(r.name, r.done.Open)
	defer tell.end()
	for {
		cleared, err := r.clear(ctx, store)
		if err != nil {
			return err
		}
		if cleared {
			r.done.Left = max(r.done.Open-r.done.Cancelled-r.done.Moved, 0) // enough for people
		} else if wait, err := r.look(ctx, store); err != nil || !wait {
			return err
		}
		tell.at(max(r.done.Open-r.done.Left, 0), r.progress())
		if cleared {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(removePause):
		}
	}
}

// clear does one transaction. It is false where nothing was to be done.
func (r *remover) clear(ctx context.Context, store *inbox.Store) (bool, error) {
	if r.drain || r.done.Choice == "" {
		return false, nil
	}
	done, err := store.ClearDestination(ctx, inbox.Clearing{Act: r.act, Destination: r.name, To: r.to})
	if errors.Is(err, inbox.ErrBusy) { // a worker is settling one of them
		return false, nil
	}
	r.done.Cancelled, r.done.Moved = r.done.Cancelled+done.Cancelled, r.done.Moved+done.Moved
	return done != inbox.Cleared{}, err
}

// look counts what is open, and says whether to wait for it.
func (r *remover) look(ctx context.Context, store *inbox.Store) (wait bool, err error) {
	stats, err := statsOf(ctx, store, r.name)
	if err != nil {
		return false, err
	}
	r.done.Left, r.done.DeadLetters = openIn(stats), stats.Open[inbox.Blocked]
	if r.done.Left == 0 || !r.drain {
		return r.done.Left > 0, nil
	}
	return store.Drains(ctx, r.name)
}

func (r *remover) did() string {
	var parts []string
	if r.done.Cancelled > 0 {
		parts = append(parts, counted(r.done.Cancelled, "forward")+" cancelled")
	}
	if r.done.Moved > 0 {
		parts = append(parts, counted(r.done.Moved, "forward")+" moved to "+r.to)
	}
	if r.drain {
		parts = append(parts, "drained")
	}
	return strings.Join(parts, ", ")
}

func (r *remover) progress() string {
	text := fmt.Sprintf("%d open", r.done.Left)
	if r.done.DeadLetters > 0 {
		text += ", " + counted(r.done.DeadLetters, "dead letter") + " among them"
	}
	if did := r.did(); did != "" && !r.drain {
		text += "; " + did
	}
	return text
}

// again is the command that goes on.
func (r *remover) again() string {
	words := []string{programName(), "destinations", "remove", shellQuote(r.name)}
	if r.which.config != "" {
		words = append(words, "-c", shellQuote(r.which.config))
	}
	switch {
	case r.drain:
		words = append(words, "--drain")
	case r.cancel:
		words = append(words, "--cancel")
	case r.to != "":
		words = append(words, "--move-to", shellQuote(r.to))
	}
	return strings.Join(append(words, "--reason", shellQuote(r.act.Reason), "--yes"), " ")
}

func (r *remover) print() error {
	if r.json {
		return printJSON(r.s.out, r.done)
	}
	d := r.done
	var text string
	switch {
	case r.dryRun && d.Open == 0:
		text = "would be removed: nothing is open there"
	case r.dryRun:
		text = fmt.Sprintf("%s open, %s among them: would be %s, and then removed", counted(d.Open, "forward"), counted(d.DeadLetters, "dead letter"),
			map[string]string{"drain": "waited for", "cancel": "cancelled", "move": "moved to " + d.To}[d.Choice])
	case d.Removed:
		text = "removed: nothing is open there"
		if did := r.did(); did != "" {
			text = "removed: " + did
		}
		text += ". It may leave the configuration."
	default:
		text = "not removed: " + r.progress()
	}
	_, err := fmt.Fprintf(r.s.out, "%s %s\n", r.name, text)
	return err
}
