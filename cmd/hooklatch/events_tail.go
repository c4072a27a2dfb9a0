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

func eventsTailCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "tail",
		Usage: "follow what is received, as it is committed",
		Description: example("Print each delivery once it is committed, oldest first, also one that was begun earlier and\n"+
			"committed later than others. --outcome refused prints what is refused instead, counted by\n"+
			"kind as the server writes it down, every few seconds; both may be given. It goes on while\n"+
			"the database is away. Ctrl-C ends it and names the command that goes on: that one may show\n"+
			"again what was shown last, and leaves nothing out.\n\n"+databaseHelp,
			"hooklatch events tail --source acme-stripe",
			"hooklatch events tail --outcome refused --json"),
		Flags: append(databaseFlags(),
			&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"},
			&cli.StringFlag{Name: "tenant", Usage: "only of this tenant `NAME`"},
			&cli.StringFlag{Name: "type", Usage: "only of this event `TYPE`; refusals have none"},
			&cli.StringFlag{Name: "destination", Usage: "only with a forward to this destination `NAME`; refusals have none"},
			&cli.BoolFlag{Name: "unrouted", Usage: "only those without any forward; refusals have none"},
			&cli.StringSliceFlag{Name: "outcome", Usage: "`OUTCOME` to show, accepted or refused; may be given twice. Defaults to accepted"},
			&cli.StringFlag{Name: "after", Usage: "go on behind this `CURSOR` of an earlier command"},
		),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			o := tailOptions{which: readWhichDatabase(c), outcomes: c.StringSlice("outcome"), json: c.Bool("json"),
				filter: inbox.Filter{Source: c.String("source"), Tenant: c.String("tenant"), EventType: c.String("type"),
					Destination: c.String("destination"), Unrouted: c.Bool("unrouted"), After: c.String("after")}}
			return eventsTail(c.Context, s, o)
		},
	}
}

// The outcomes of requests that a tail can show.
const (
	outcomeAccepted = "accepted"
	outcomeRefused  = "refused"
)

type tailOptions struct {
	which    whichDatabase
	filter   inbox.Filter
	outcomes []string // empty: accepted
	json     bool
}

func (o *tailOptions) shows(outcome string) bool { return slices.Contains(o.outcomes, outcome) }

// read checks what was typed.
func (o *tailOptions) read() error {
	if len(o.outcomes) == 0 {
		o.outcomes = []string{outcomeAccepted}
	}
	for _, outcome := range o.outcomes {
		if outcome != outcomeAccepted && outcome != outcomeRefused {
			return usagef("--outcome refused", "events tail: unknown outcome %q: accepted and refused are known", outcome)
		}
	}
	if !o.shows(outcomeAccepted) && (o.filter.EventType != "" || o.filter.Destination != "" || o.filter.Unrouted || o.filter.After != "") {
		return usagef("--outcome accepted too, or leave out what is about deliveries", "events tail: refused requests have no type, destination or cursor")
	}
	if o.filter.Unrouted && o.filter.Destination != "" {
		return usagef("leave --unrouted out", "events tail: a delivery without forwards goes to no destination")
	}
	return nil
}

// tailEvery is the time between two looks.
const tailEvery = time.Second

func eventsTail(ctx context.Context, s *stdio, o tailOptions) error {
	if err := o.read(); err != nil {
		return err
	}
	return o.which.withStore(ctx, func(store *inbox.Store) error {
		follower, err := store.Follow(o.filter)
		if err != nil {
			return badCursor("events tail", o.filter.After, err)
		}
		t := &tail{s: s, o: o, store: store, follower: follower, terminal: isTerminal(s.out)}
		if o.shows(outcomeRefused) {
			t.refusals = store.FollowRefusals(inbox.RefusalFilter{Source: o.filter.Source, Tenant: o.filter.Tenant})
		}
		if err := t.look(ctx); err != nil {
			return err // nothing was promised yet
		}
		s.note("following; Ctrl-C ends it")
		tick := time.NewTicker(tailEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return fail(exitInterrupted, errors.New("events tail: interrupted"), o.next(follower.Cursor()))
			case <-tick.C:
				if err := t.tell(ctx, t.look(ctx)); err != nil {
					return err
				}
			}
		}
	})
}

// next is the command that goes on.
func (o tailOptions) next(cursor string) string {
	words := []string{programName(), "events", "tail"}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, shellQuote(value))
		}
	}
	add("-c", o.which.config)
	add("--source", o.filter.Source)
	add("--tenant", o.filter.Tenant)
	add("--type", o.filter.EventType)
	add("--destination", o.filter.Destination)
	if o.filter.Unrouted {
		words = append(words, "--unrouted")
	}
	if !slices.Equal(o.outcomes, []string{outcomeAccepted}) {
		for _, outcome := range o.outcomes {
			add("--outcome", outcome)
		}
	}
	if o.json {
		words = append(words, "--json")
	}
	if o.shows(outcomeAccepted) {
		add("--after", cursor)
	}
	return strings.Join(words, " ")
}

// tail prints what two followers see.
type tail struct {
	s        *stdio
	o        tailOptions
	store    *inbox.Store
	follower *inbox.Follower
	refusals *inbox.RefusalFollower // nil: not shown
	terminal bool
	lost     bool // what was said last of the database
	cut      bool
}

func (t *tail) look(ctx context.Context) error {
	if t.o.shows(outcomeAccepted) {
		found, err := t.follower.Next(ctx)
		if err != nil {
			return err
		}
		for i := range found {
			if err := t.delivery(ctx, &found[i]); err != nil {
				return err
			}
		}
	}
	if t.refusals == nil {
		return nil
	}
	found, err := t.refusals.Next(ctx)
	for i := range found {
		if err := t.refusal(&found[i]); err != nil {
			return err
		}
	}
	return err
}

// tell says what became of a look, and returns what ends the tail.
func (t *tail) tell(ctx context.Context, err error) error {
	now := time.Now().UTC().Format(time.RFC3339)
	switch {
	case ctx.Err() != nil:
		return nil // the end is seen at once
	case errors.Is(err, inbox.ErrUnavailable), errors.Is(err, inbox.ErrBusy):
		if !t.lost {
			t.s.note("%s   the database does not answer; trying on: %v", now, err)
		}
		t.lost = true
		return nil
	case err != nil:
		return err
	}
	if t.lost {
		t.s.note("%s   the database answers again", now)
	}
	if cut := t.follower.Cut(); cut && !t.cut {
		t.s.note("%s   a transaction has been open for long: what it commits may not be shown (hooklatch events list has it)", now)
	}
	t.lost, t.cut = false, t.follower.Cut()
	return nil
}

func (t *tail) delivery(ctx context.Context, d *inbox.Delivery) error {
	forwards, err := t.store.Forwards(ctx, d.ID)
	if err != nil && ctx.Err() == nil {
		t.s.note("the forwards of %s are not known: %v", cell(d.DeliveryID, isTerminal(t.s.err)), err)
	}
	if t.o.json {
		line := describeDelivery(d, forwards)
		line.Outcome = outcomeAccepted
		return printJSON(t.s.out, line)
	}
	text := fmt.Sprintf("%s  →  %s  %s  %s  %s  %s", d.ReceivedAt.UTC().Format("15:04:05.000"), d.Source, d.DeliveryID, orDash(d.EventType),
		size(d.BodySize), forwardStates(forwards))
	_, err = fmt.Fprintln(t.s.out, cell(text, t.terminal))
	return err
}

func (t *tail) refusal(r *inbox.Refusal) error {
	line := describeRefusal(r)
	if t.o.json {
		line.Outcome = outcomeRefused
		return printJSON(t.s.out, line)
	}
	text := fmt.Sprintf("%s  ✗  %s  %s", line.LastAt.Format("15:04:05.000"), orDash(line.Source), line.Code)
	if line.Reason != line.Code {
		text += "  " + line.Reason
	}
	if line.KeyID != "" {
		text += "  key " + line.KeyID
	}
	if len(line.Causes) > 0 {
		text += "  " + strings.Join(line.Causes, ", ")
	}
	text += "  " + line.Sample.text()
	if line.Count > 1 {
		text += fmt.Sprintf("  ×%d", line.Count)
	}
	_, err := fmt.Fprintln(t.s.out, cell(text, t.terminal))
	return err
}
