package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

// manyOptions say which dead letters are replayed, and how carefully.
type manyOptions struct {
	filter     inbox.DeadFilter
	allSources bool
	first      int
	stopAt     int // percent of failures
	rate       pace
	yes        bool
}

func readManyOptions(c *cli.Context) (o manyOptions, err error) {
	if state := c.String("state"); state != string(inbox.Blocked) {
		return o, usagef("--state blocked", "replay: only what is blocked can be replayed by a filter, not what is %q", state)
	}
	if err := checkScope(c); err != nil {
		return o, err
	}
	if o.filter, err = readDeadFilter(c, time.Now()); err != nil {
		return o, err
	}
	o.filter.Owner = c.String("owner")
	o.allSources, o.first, o.yes = c.Bool("all-sources"), c.Int("first"), c.Bool("yes")
	if o.first < 1 {
		return o, usagef("--first 10", "replay: --first must be at least 1")
	}
	share := c.String("stop-if-errors")
	o.stopAt, err = strconv.Atoi(strings.TrimSuffix(share, "%"))
	if err != nil || o.stopAt < 1 || o.stopAt > 100 {
		return o, usagef("--stop-if-errors 20%", "replay: --stop-if-errors %q is no share from 1%% to 100%%", share)
	}
	if err := o.rate.UnmarshalText([]byte(c.String("rate"))); err != nil {
		return o, usagef("--rate 5/s", "replay: --rate %w", err)
	}
	if o.rate.perSecond() > maxReplayRate {
		return o, usagef("--rate 1000/s", "replay: --rate %s is more than %d/s", o.rate, maxReplayRate)
	}
	return o, nil
}

// maxReplayRate is how many dead letters one run replays in a second at most.
const maxReplayRate = 1000

// Why a dead letter is left alone, in the JSON.
const (
	leftPruned     = "pruned"             // its body is gone
	leftSuperseded = "superseded"         // a later revision was applied
	leftSource     = "source_gone"        // its source is not configured any more
	leftGone       = "destination_gone"   // nor its destination
	leftPaused     = "destination_paused" // nothing would be tried
	leftChanged    = "changed"            // somebody else moved it meanwhile
	leftBusy       = "busy"               // somebody else had it locked
)

var leftTexts = map[string]string{
	leftPruned: "whose bodies are gone", leftSuperseded: "superseded by a later revision", leftSource: "whose source is not configured any more",
	leftGone: "whose destination is not configured any more", leftPaused: "whose destination is paused", leftChanged: "moved by somebody else meanwhile",
	leftBusy: "locked by somebody else",
}

// manyReplayed is the JSON of replay --state blocked.
type manyReplayed struct {
	V        int            `json:"v"`
	DryRun   bool           `json:"dry_run,omitempty"`
	Letters  int            `json:"dead_letters"` // that fit
	Oldest   *time.Time     `json:"oldest,omitempty"`
	Until    time.Time      `json:"until"`    // only what was dead before
	Replayed int            `json:"replayed"` // of a dry run: would be
	Accepted int            `json:"accepted"`
	Failed   int            `json:"failed"`  // the first attempt after the replay was not accepted
	Waiting  int            `json:"waiting"` // not tried yet
	Ended    int            `json:"ended"`   // superseded or cancelled before they were tried
	Left     map[string]int `json:"left"`    // by reason
	Types    []manyType     `json:"types"`
	Stopped  string         `json:"stopped,omitempty"` // errors, interrupted, stalled: there is more to do
	Next     string         `json:"next,omitempty"`    // the command that does it
}

type manyType struct {
	EventType string `json:"event_type"`
	Letters   int    `json:"dead_letters"`
}

// many replays every dead letter that fits.
func (r *replayer) many(ctx context.Context, o manyOptions) error {
	if r.reason == "" && !r.dryRun && !r.s.asks() { // before the database is looked at
		_, err := r.s.reason(ctx, "replay", "")
		return err
	}
	return r.open(ctx, func(store *inbox.Store) error {
		if err := until(ctx, store, &o.filter); err != nil {
			return err
		}
		m := &manyReplay{replayer: r, store: store, o: o, paused: map[string]bool{}, watched: map[int64]int{}}
		pauses, err := store.Pauses(ctx)
		if err != nil {
			return err
		}
		for _, p := range pauses {
			m.paused[p.Destination] = true
		}
		plan, err := m.plan(ctx)
		if err != nil {
			return err
		}
		if plan.Letters == 0 {
			if err := r.known(o.filter); err != nil {
				return err
			}
		}
		if r.dryRun || plan.Replayed == 0 {
			plan.DryRun = r.dryRun
			return plan.end(r.s, r.json)
		}
		if !o.yes {
			plan.tell(r.s)
		}
		if err := r.s.confirm(ctx, "replay", m.question(plan.Replayed), o.yes); err != nil {
			return err
		}
		if err := r.decide(ctx); err != nil {
			return err
		}
		m.total = plan.Replayed
		m.done = manyReplayed{V: 1, Letters: plan.Letters, Oldest: plan.Oldest, Until: plan.Until, Left: map[string]int{}, Types: plan.Types}
		return m.run(ctx)
	})
}

// known refuses names that nothing has: a misspelt one fits nothing, either.
func (r *replayer) known(f inbox.DeadFilter) error {
	if f.Destination != "" && r.cfg.Destinations[f.Destination] == nil {
		return usagef("--destination NAME", "replay: unknown destination %q: %s", f.Destination, configured(slices.Sorted(maps.Keys(r.cfg.Destinations))))
	}
	if f.Source != "" && r.cfg.Sources[f.Source] == nil {
		return usagef("--source NAME", "replay: unknown source %q: %s", f.Source, configured(slices.Sorted(maps.Keys(r.cfg.Sources))))
	}
	return nil
}

func (m *manyReplay) question(n int) string {
	how := "one attempt each"
	if m.withRetries {
		how = "with all their attempts"
	}
	return fmt.Sprintf("replay %s, %s, at %s after the first %d?", counted(n, "dead letter"), how, m.o.rate, min(m.o.first, n))
}

// leave says why a dead letter is left alone; empty: it is not.
func (m *manyReplay) leave(d *inbox.DeadLetter) string {
	switch {
	case m.cfg.Destinations[d.Destination] == nil:
		return leftGone
	case m.sourceGone(d.Delivery.Source, d.Delivery.Tenant) != "":
		return leftSource
	case m.paused[d.Destination]:
		return leftPaused
	case d.Pruned:
		return leftPruned
	case d.Superseded && !m.force:
		return leftSuperseded
	}
	return ""
}

// plan looks at all that fits, and changes nothing.
func (m *manyReplay) plan(ctx context.Context) (*manyReplayed, error) {
	plan, types := &manyReplayed{V: 1, Until: m.o.filter.Until.UTC(), Left: map[string]int{}, Types: []manyType{}}, map[string]int{}
	for d, err := range m.store.DeadLetters(ctx, m.o.filter) {
		if err != nil {
			return nil, err
		}
		plan.Letters++
		if plan.Oldest == nil || d.SettledAt.Before(*plan.Oldest) {
			plan.Oldest = moment(d.SettledAt)
		}
		if why := m.leave(&d); why != "" {
			plan.Left[why]++
			continue
		}
		plan.Replayed++
		if _, known := types[d.Delivery.EventType]; known || len(types) < maxReplayTypes {
			types[d.Delivery.EventType]++
		}
	}
	for name, n := range types {
		plan.Types = append(plan.Types, manyType{name, n})
	}
	slices.SortFunc(plan.Types, func(a, b manyType) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.EventType, b.EventType))
	})
	return plan, nil
}

// tell says what a person is about to agree to.
func (d *manyReplayed) tell(s *stdio) {
	for _, t := range d.Types[:min(len(d.Types), 20)] {
		s.note("%s   %s", counted(t.Letters, "dead letter"), cell(orDash(t.EventType), isTerminal(s.err)))
	}
	for _, line := range d.text() {
		s.note("%s", line)
	}
}

// text is the run in a few lines.
func (d *manyReplayed) text() (lines []string) {
	if d.Letters == 0 {
		return []string{"no dead letter fits"}
	}
	oldest := "the oldest dead for " + age(time.Since(*d.Oldest))
	if d.Accepted+d.Failed+d.Waiting+d.Ended == 0 {
		lines = append(lines, fmt.Sprintf("%s to replay, %s", counted(d.Replayed, "dead letter"), oldest))
	} else {
		lines = append(lines, fmt.Sprintf("%d of %s replayed: %s", d.Replayed, counted(d.Letters, "dead letter"), d.outcomes()))
	}
	for _, why := range []string{leftPruned, leftSuperseded, leftSource, leftGone, leftPaused, leftChanged, leftBusy} {
		if n := d.Left[why]; n > 0 {
			lines = append(lines, fmt.Sprintf("%d left alone, %s", n, leftTexts[why]))
		}
	}
	return lines
}

// outcomes is what became of the replays so far.
func (d *manyReplayed) outcomes() string {
	text := fmt.Sprintf("%d accepted, %d failed", d.Accepted, d.Failed)
	if d.Ended > 0 {
		text += fmt.Sprintf(", %d superseded or cancelled", d.Ended)
	}
	if d.Waiting > 0 {
		text += fmt.Sprintf(", %d not tried yet", d.Waiting)
	}
	return text
}

// end prints the run and says its exit code.
func (d *manyReplayed) end(s *stdio, asJSON bool) error {
	if asJSON {
		if err := printJSON(s.out, d); err != nil {
			return err
		}
	} else {
		if d.DryRun {
			var rows [][]string
			for _, t := range d.Types {
				rows = append(rows, []string{orDash(t.EventType), fmt.Sprint(t.Letters)})
			}
			if len(rows) > 0 {
				s.printTable([]string{"type", "dead letters"}, rows)
			}
		}
		for _, line := range d.text() {
			fmt.Fprintln(s.out, line)
		}
		if d.Next != "" {
			fmt.Fprintln(s.out, printable("next   "+d.Next, isTerminal(s.out)))
		}
	}
	switch {
	case d.Replayed == 0 && d.Stopped == "":
		return answerNo()
	case d.DryRun:
		return nil
	case d.Stopped == stoppedInterrupted:
		return fail(exitInterrupted, errors.New("replay: interrupted"), "")
	case d.Accepted < d.Letters || d.Stopped != "":
		return fail(exitPartly, nil, "")
	}
	return nil
}

// goOn is the command that does the rest: what has failed again is dead since later
// than Until, and is not replayed twice.
func (m *manyReplay) goOn() string {
	words := []string{programName(), "replay", "-c", shellQuote(m.config), "--state", string(inbox.Blocked)}
	words = append(words, deadWords(m.o.filter)...)
	if m.o.filter.Owner != "" {
		words = append(words, "--owner", shellQuote(m.o.filter.Owner))
	}
	for _, w := range []struct {
		flag string
		set  bool
	}{{"--all-sources", m.o.allSources}, {"--with-retries", m.withRetries}, {"--force", m.force}} {
		if w.set {
			words = append(words, w.flag)
		}
	}
	words = append(words, "--first", fmt.Sprint(m.o.first), "--stop-if-errors", fmt.Sprintf("%d%%", m.o.stopAt), "--rate", m.o.rate.String(),
		"--reason", shellQuote(m.act.Reason))
	if m.o.yes {
		words = append(words, "--yes")
	}
	return strings.Join(words, " ")
}
