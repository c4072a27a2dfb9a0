package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

// scopeFlags say how much a command may change at once. None of them is assumed.
func scopeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "delivery", Usage: "the delivery of this `ID`"},
		&cli.BoolFlag{Name: "all-sources", Usage: "those of every source"},
	}
}

// checkScope demands that it was said how much is meant.
func checkScope(c *cli.Context) error {
	if c.Bool("all-sources") && c.String("source") != "" {
		return usagef("leave --all-sources out", "%s: --all-sources does not go with --source", shortName(c))
	}
	if c.Bool("all-sources") || c.String("source") != "" || c.String("destination") != "" {
		return nil
	}
	return usagef("--destination NAME, --source NAME or --all-sources", "%s: which dead letters are meant? None are assumed", shortName(c))
}

func deadAssignCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "assign",
		Usage: "say who looks after dead letters",
		Description: example("Give dead letters that are there to somebody; those to come have the owner of their\n"+
			"destination. --owner '' gives them back to it. What is done stands in the audit, with your\n"+
			"login name and the reason. Exit code 1: none fits; 5: some have gone meanwhile.\n\n"+databaseHelp,
			"hooklatch dead assign --destination shop --owner payments --reason 'their release broke it'"),
		Flags: append(append(append(databaseFlags(), actFlags()...), append(deadFlags(), scopeFlags()...)...),
			&cli.StringFlag{Name: "owner", Usage: "`NAME` of who looks after them from now on"}),
		Action: func(c *cli.Context) error {
			if !c.IsSet("owner") {
				return usagef("--owner NAME", "dead assign: to whom?")
			}
			owner := c.String("owner")
			to := owner
			if to == "" {
				to = "the owner of its destination"
			}
			r := &deadRun{s: s, command: "dead assign", did: "assigned", question: func(what string) string { return "give " + what + " to " + to + "?" },
				do: func(ctx context.Context, store *inbox.Store, d *inbox.DeadLetter, act inbox.Act) error {
					if owner != "" && d.Owner == owner {
						return errAlready
					}
					return store.AssignDead(ctx, d.ID, owner, act)
				}}
			return r.run(c)
		},
	}
}

func deadDropCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "drop",
		Usage: "decide that dead letters are not sent",
		Description: example("Cancel dead letters: they are never sent, and retention removes them like others. Where a\n"+
			"resource with ordering strict waits behind one, it goes on. What is done stands in the\n"+
			"audit, with your login name and the reason. Exit code 1: none fits; 5: some have gone or\n"+
			"were tried meanwhile, and are left alone.\n\n"+databaseHelp,
			"hooklatch dead drop --delivery dlv_8821 --destination shop --reason 'the order was cancelled'",
			"hooklatch dead drop --source acme-stripe --class 4xx --until 30d --dry-run"),
		Flags: append(append(append(databaseFlags(), actFlags()...), append(deadFlags(), scopeFlags()...)...), ownerFlag()),
		Action: func(c *cli.Context) error {
			r := &deadRun{s: s, command: "dead drop", did: "dropped", owner: c.String("owner"),
				question: func(what string) string { return "drop " + what + "? They are never sent." },
				do: func(ctx context.Context, store *inbox.Store, d *inbox.DeadLetter, act inbox.Act) error {
					return store.DropDead(ctx, d.ID, d.Token, act)
				}}
			return r.run(c)
		},
	}
}

// deadRun does one thing to every dead letter that fits.
type deadRun struct {
	s        *stdio
	command  string
	did      string // assigned, dropped
	question func(what string) string
	owner    string // only those that this one looks after
	do       func(context.Context, *inbox.Store, *inbox.DeadLetter, inbox.Act) error

	filter       inbox.DeadFilter
	dryRun, json bool
	act          inbox.Act
	line         deadRunLine
}

// errAlready: nothing is to be done for a dead letter, as after a run that was
// interrupted.
var errAlready = errors.New("it is so already")

// deadRunLine is the JSON of what was done to dead letters.
type deadRunLine struct {
	V       int        `json:"v"`
	DryRun  bool       `json:"dry_run,omitempty"`
	Did     string     `json:"did"`
	Letters int        `json:"dead_letters"` // to which it was done; of a dry run: would be
	Already int        `json:"already,omitempty"`
	Changed int        `json:"changed"` // have gone or were tried meanwhile
	Oldest  *time.Time `json:"oldest,omitempty"`
}

func (r *deadRun) run(c *cli.Context) (err error) {
	if _, err := arguments(c); err != nil {
		return err
	}
	if r.filter, err = readDeadFilter(c, time.Now()); err != nil {
		return err
	}
	r.filter.Owner, r.dryRun, r.json = r.owner, c.Bool("dry-run"), c.Bool("json")
	r.line = deadRunLine{V: 1, DryRun: r.dryRun, Did: r.did}
	if c.String("delivery") == "" {
		if err := checkScope(c); err != nil {
			return err
		}
	} else if c.Bool("all-sources") {
		return usagef("leave --all-sources out", "%s: --all-sources does not go with --delivery", r.command)
	}
	if c.String("reason") == "" && !r.dryRun && !r.s.asks() { // before the database is looked at
		_, err := r.s.reason(c.Context, r.command, "")
		return err
	}
	return readWhichDatabase(c).withStore(c.Context, func(store *inbox.Store) error {
		return r.with(c.Context, store, c.String("delivery"), c.String("reason"), c.Bool("yes"))
	})
}

func (r *deadRun) with(ctx context.Context, store *inbox.Store, delivery, reason string, yes bool) error {
	if delivery != "" {
		d, err := findOne(ctx, r.s, store, delivery, r.filter.Source)
		if errors.Is(err, errNoSuch) {
			return failNotFound(r.s, delivery, r.json)
		}
		if err != nil {
			return err
		}
		r.filter.Delivery = d.ID
	}
	if err := until(ctx, store, &r.filter); err != nil {
		return err
	}
	groups, more, err := store.DeadGroups(ctx, r.filter)
	if err != nil {
		return err
	}
	n := 0
	for _, g := range groups {
		n += g.Letters
		if r.line.Oldest == nil || g.Oldest.Before(*r.line.Oldest) {
			r.line.Oldest = moment(g.Oldest)
		}
	}
	if r.dryRun {
		r.line.Letters = n
	}
	if r.dryRun || n == 0 {
		return r.end(nil, deadTotals(groups, more, time.Now()))
	}
	if !yes {
		r.s.note("%s", deadTotals(groups, more, time.Now()))
	}
	what := counted(n, "dead letter")
	if more {
		what += " or more"
	}
	if err := r.s.confirm(ctx, r.command, r.question(what), yes); err != nil {
		return err
	}
	if r.act.Reason, err = r.s.reason(ctx, r.command, reason); err != nil {
		return err
	}
	r.act.Actor = actor()
	return r.end(r.each(ctx, store, n), "")
}

// until ends the filter now, by the database's clock: what becomes a dead letter from
// here on was not seen.
func until(ctx context.Context, store *inbox.Store, f *inbox.DeadFilter) error {
	offset, err := store.Ready(ctx)
	if err != nil {
		return err
	}
	if now := time.Now().Add(offset).Truncate(time.Microsecond); f.Until.IsZero() || f.Until.After(now) {
		f.Until = now
	}
	return nil
}

func (r *deadRun) each(ctx context.Context, store *inbox.Store, n int) error {
	p := r.s.progress(r.command, n)
	defer p.end()
	for d, err := range store.DeadLetters(ctx, r.filter) {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		// One that was begun is counted.
		switch err := r.do(context.WithoutCancel(ctx), store, &d, r.act); {
		case err == nil:
			r.line.Letters++
		case errors.Is(err, errAlready):
			r.line.Already++
		case errors.Is(err, inbox.ErrState), errors.Is(err, inbox.ErrNotFound), errors.Is(err, inbox.ErrInFlight), errors.Is(err, inbox.ErrBusy):
			r.line.Changed++
		default:
			return err
		}
		p.at(r.line.Letters+r.line.Already+r.line.Changed, fmt.Sprintf("%d %s", r.line.Letters, r.did))
	}
	return nil
}

// end prints what was done, also before trouble came.
func (r *deadRun) end(failed error, totals string) error {
	if failed != nil && r.line.Letters == 0 {
		return failed
	}
	if r.json {
		if err := printJSON(r.s.out, r.line); err != nil {
			return err
		}
	} else if totals != "" {
		fmt.Fprintln(r.s.out, printable(totals, isTerminal(r.s.out)))
	} else {
		text := counted(r.line.Letters, "dead letter") + " " + r.did
		if r.line.Already > 0 {
			text += fmt.Sprintf(", %d before", r.line.Already)
		}
		if r.line.Changed > 0 {
			text += fmt.Sprintf(", %d left alone: gone or tried meanwhile", r.line.Changed)
		}
		fmt.Fprintln(r.s.out, text)
	}
	switch {
	case failed != nil:
		code := exitPartly
		if errors.Is(failed, context.Canceled) {
			code = exitInterrupted
		}
		return fail(code, fmt.Errorf("%s: %s; what is counted was done", r.command, strings.TrimPrefix(failed.Error(), r.command+": ")), "the same command: it goes on where this one ended")
	case r.line.Letters+r.line.Already == 0:
		return answerNo()
	case r.line.Changed > 0:
		return fail(exitPartly, nil, "")
	}
	return nil
}
