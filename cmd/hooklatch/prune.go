package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func pruneCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "prune",
		Usage: "remove what is older than it is kept, now and by hand",
		Description: example("Remove at once what running servers remove little by little: bodies, attempts, deliveries\n"+
			"and refusals older than retention and refusals of the configuration say. With --before,\n"+
			"bodies and attempts from before that time go, whatever the configuration says. Ids are\n"+
			"never forgotten earlier than it says: a late repeat stays a duplicate. What an open\n"+
			"forward needs stays. It works while servers run and while the disk is full, in small\n"+
			"transactions: Ctrl-C loses nothing of what was done.",
			"hooklatch prune --dry-run",
			"hooklatch prune --source acme-stripe --before 2026-08-01 --reason 'asked by acme'"),
		Flags: append(append(databaseFlags(),
			&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"},
			&cli.StringFlag{Name: "before", Usage: "bodies and attempts from before this `DATE`, as 2026-08-01, an age or RFC 3339"}), actFlags()...),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			o := pruneOptions{config: configFile(c), source: c.String("source"), before: c.String("before"),
				reason: c.String("reason"), dryRun: c.Bool("dry-run"), yes: c.Bool("yes"), json: c.Bool("json")}
			return prune(c.Context, s, o)
		},
	}
}

type pruneOptions struct {
	config, source, before, reason string
	dryRun, yes, json              bool
}

// pruneLine is the JSON of what went. What was not looked for has no time.
type pruneLine struct {
	V                int            `json:"v"`
	DryRun           bool           `json:"dry_run"`
	Complete         bool           `json:"complete"` // false: there may be more
	Source           string         `json:"source,omitempty"`
	BodiesBefore     time.Time      `json:"bodies_before"`
	AttemptsBefore   time.Time      `json:"attempts_before"`
	IdentitiesBefore time.Time      `json:"identities_before"`
	RefusalsBefore   time.Time      `json:"refusals_before"`
	Rows             map[string]int `json:"rows"`
}

func prune(ctx context.Context, s *stdio, o pruneOptions) error {
	now := time.Now()
	before, err := parseDate("--before", o.before, now)
	if err != nil {
		return err
	}
	cfg, err := readConfig(o.config)
	if err != nil {
		return err
	}
	r := cfg.retention(now)
	r.KeyUses = time.Time{} // a server's work
	r.Source, r.DryRun = o.source, o.dryRun
	if !before.IsZero() {
		r.Bodies, r.Attempts = before, before
		r.Identities, r.Refusals = earlier(r.Identities, before), earlier(r.Refusals, before)
		r.MaxRefusals = 0
	}
	var act inbox.Act
	if !before.IsZero() && !o.dryRun {
		what := "bodies and attempts from before " + before.UTC().Format(time.RFC3339)
		if o.source != "" {
			what += " of source " + o.source
		}
		if act.Reason, err = s.reason(ctx, "prune", o.reason); err != nil {
			return err
		}
		act.Actor = actor()
		if err := s.confirm(ctx, "prune", "remove "+what+"? Nothing brings them back.", o.yes); err != nil {
			return err
		}
	}
	return whichDatabase{config: o.config}.withStore(ctx, func(store *inbox.Store) error {
		if act.Reason != "" {
			if err := recordPrune(ctx, store, cfg, r, act); err != nil {
				return err
			}
		}
		return pruneNow(ctx, s, store, r, o)
	})
}

// parseDate is parseMoment that also knows days, which begin at midnight UTC. What
// lies ahead is refused.
func parseDate(flag, text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		at, err = parseMoment(flag, text, now)
	}
	if err != nil {
		return time.Time{}, usagef(flag+" 2026-08-01", "%s %q is no day such as 2026-08-01, age such as 30d or time such as 2026-08-01T00:00:00Z", flag, text)
	}
	if at.After(now) {
		return time.Time{}, usagef(flag+" "+now.AddDate(0, 0, -7).Format(time.DateOnly), "%s %s lies ahead", flag, text)
	}
	return at, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// recordPrune writes into the audit of each tenant that is concerned.
func recordPrune(ctx context.Context, store *inbox.Store, cfg *config, r inbox.Retention, act inbox.Act) error {
	tenants := map[string]bool{}
	for name, source := range cfg.Sources {
		if r.Source == "" || r.Source == name {
			tenants[source.Tenant] = true
		}
	}
	if len(tenants) == 0 { // a source that is no longer configured
		for d, err := range store.Find(ctx, inbox.Filter{Source: r.Source, Limit: 1}) {
			if err != nil {
				return err
			}
			tenants[d.Tenant] = true
		}
	}
	return store.RecordPrune(ctx, slices.Sorted(maps.Keys(tenants)), r, act)
}

const pruneTells = 10 * time.Second

// pruneNow prunes to the end, or as far as it comes.
func pruneNow(ctx context.Context, s *stdio, store *inbox.Store, r inbox.Retention, o pruneOptions) error {
	line := pruneLine{V: 1, DryRun: r.DryRun, Source: r.Source, BodiesBefore: r.Bodies.UTC(), AttemptsBefore: r.Attempts.UTC(),
		IdentitiesBefore: r.Identities.UTC(), RefusalsBefore: r.Refusals.UTC(), Rows: map[string]int{}}
	last := time.Now()
	var failed error
	for batch, err := range store.Prune(ctx, r) {
		if err != nil {
			failed = err
			break
		}
		line.Rows[batch.Kind] += batch.Rows
		if now := time.Now(); now.Sub(last) >= pruneTells {
			s.note("%s: %d, come to %s", pruneKindNames[batch.Kind], line.Rows[batch.Kind], batch.Until.UTC().Format(time.RFC3339))
			last = now
		}
	}
	line.Complete = failed == nil
	if err := line.print(s, o.json); err != nil {
		return err
	}
	again := "the same command: it goes on where this one ended"
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		return fail(exitInterrupted, errors.New("prune: interrupted; what is counted was done"), again)
	case len(line.Rows) > 0 && !r.DryRun:
		return fail(exitPartly, fmt.Errorf("%w; what is counted was done", failed), again)
	}
	return failed
}

// pruneKindNames are for people.
var pruneKindNames = map[string]string{
	inbox.PruneBodies: "bodies", inbox.PruneConflicts: "bodies of conflicts", inbox.PruneAttempts: "attempts",
	inbox.PruneIdentities: "deliveries", inbox.PruneResources: "resources", inbox.PruneRefusals: "rows of refusals",
}

func (l pruneLine) print(s *stdio, asJSON bool) error {
	for _, kind := range slices.Sorted(maps.Keys(pruneKindNames)) {
		l.Rows[kind] += 0 // a kind of which nothing went is 0, not missing
	}
	if asJSON {
		return printJSON(s.out, l)
	}
	header := "removed"
	if l.DryRun {
		header = "would be removed"
	}
	before := map[string]time.Time{inbox.PruneBodies: l.BodiesBefore, inbox.PruneConflicts: l.BodiesBefore, inbox.PruneAttempts: l.AttemptsBefore,
		inbox.PruneIdentities: l.IdentitiesBefore, inbox.PruneResources: l.IdentitiesBefore, inbox.PruneRefusals: l.RefusalsBefore}
	var rows [][]string
	for _, kind := range inbox.PruneKinds() {
		if name := pruneKindNames[kind]; name != "" {
			rows = append(rows, []string{name, fmt.Sprint(l.Rows[kind]), before[kind].Format(time.RFC3339)})
		}
	}
	s.printTable([]string{"", header, "from before"}, rows)
	return nil
}
