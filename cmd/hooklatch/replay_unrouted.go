package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
)

type unroutedOptions struct {
	filter       inbox.UnroutedFilter
	since, until string
	yes          bool
}

// routedType is the JSON of what becomes of the unrouted deliveries of one type.
type routedType struct {
	EventType    string   `json:"event_type"`
	Deliveries   int      `json:"deliveries"`
	Destinations []string `json:"destinations"` // none: still no route takes it
	Held         bool     `json:"held,omitempty"`

	forwards []inbox.NewForward
}

// routedSource is the JSON of replay --unrouted.
type routedSource struct {
	V      int           `json:"v"`
	DryRun bool          `json:"dry_run,omitempty"`
	Source string        `json:"source"`
	Routed int           `json:"routed"`   // deliveries that got forwards, or would
	Left   int           `json:"no_route"` // still no route takes them
	Pruned int           `json:"pruned"`   // their bodies are gone
	Gone   int           `json:"gone"`     // removed, or routed by somebody else, meanwhile
	Types  []*routedType `json:"types"`

	byType map[string]*routedType
	source proxy.Source
	last   time.Time // receipt of the last one that was looked at
	told   time.Time
}

// unrouted routes the deliveries of a source that have no forward.
func (r *replayer) unrouted(ctx context.Context, o unroutedOptions) (err error) {
	now := time.Now()
	if o.filter.Since, err = parseMoment("--since", o.since, now); err != nil {
		return err
	}
	if o.filter.Until, err = parseMoment("--until", o.until, now); err != nil {
		return err
	}
	if o.filter.Until.IsZero() {
		o.filter.Until = now.Add(time.Minute) // what comes in from now on has its route
	}
	return r.open(ctx, func(store *inbox.Store) error {
		if _, ok := r.cfg.Sources[o.filter.Source]; !ok {
			return usagef("--source NAME", "replay: unknown source %q: %s", o.filter.Source, configured(slices.Sorted(maps.Keys(r.cfg.Sources))))
		}
		if r.dryRun || !o.yes {
			plan := r.begin(o, true)
			if err := plan.each(ctx, r.s, store, o.filter, func(*inbox.Delivery, []inbox.NewForward) error { return nil }); err != nil {
				return err
			}
			if r.dryRun {
				return plan.print(r.s, r.json)
			}
			if plan.Routed > 0 {
				plan.tellTypes(r.s)
				question := fmt.Sprintf("route %s of source %s?", deliveries(plan.Routed), plan.Source)
				if err := r.s.confirm(ctx, "replay", question, false); err != nil {
					return err
				}
			}
		}
		done := r.begin(o, false)
		err := done.each(ctx, r.s, store, o.filter, func(d *inbox.Delivery, forwards []inbox.NewForward) error {
			if r.act.Reason == "" { // asked for once there is something to do
				if err := r.decide(ctx); err != nil {
					return err
				}
			}
			return r.routeOne(ctx, store, d, forwards)
		})
		if err != nil {
			done.stopped(r.s, r.goOn(o, done.last))
			return err
		}
		if err := done.print(r.s, r.json); err != nil {
			return err
		}
		return done.verdict()
	})
}

// routeTries is how often a delivery is tried that somebody else holds.
const routeTries = 20

func (r *replayer) routeOne(ctx context.Context, store *inbox.Store, d *inbox.Delivery, forwards []inbox.NewForward) error {
	for try := 1; ; try++ {
		made, err := store.Route(ctx, d.ID, forwards, r.act)
		switch {
		case err == nil && len(made) == 0:
			return errRoutedMeanwhile
		case errors.Is(err, inbox.ErrBusy) && try < routeTries && ctx.Err() == nil:
			continue // after the second that it has waited
		}
		return err
	}
}

// errRoutedMeanwhile: somebody else was faster.
var errRoutedMeanwhile = errors.New("it has been routed meanwhile")

func (r *replayer) begin(o unroutedOptions, dryRun bool) *routedSource {
	t := &routedSource{V: 1, DryRun: dryRun, Source: o.filter.Source, Types: []*routedType{}, byType: map[string]*routedType{}, told: time.Now()}
	t.source, _ = r.source(o.filter.Source, r.cfg.Sources[o.filter.Source].Tenant)
	return t
}

// replayTells is how often a run says how far it is.
const replayTells = 5 * time.Second

// each does something for every unrouted delivery that has a route now, and counts.
func (t *routedSource) each(ctx context.Context, s *stdio, store *inbox.Store, f inbox.UnroutedFilter, do func(*inbox.Delivery, []inbox.NewForward) error) error {
	for d, err := range store.Unrouted(ctx, f) {
		if err != nil {
			return err
		}
		rt, err := t.ofType(&d)
		if err != nil {
			return err
		}
		if len(rt.forwards) == 0 {
			t.Left++
		} else if err := do(&d, rt.forwards); err == nil {
			t.Routed++
		} else if errors.Is(err, inbox.ErrPruned) {
			t.Pruned++
		} else if errors.Is(err, inbox.ErrNotFound) || errors.Is(err, errRoutedMeanwhile) {
			t.Gone++
		} else {
			return err
		}
		rt.Deliveries++
		t.last = d.ReceivedAt
		if now := time.Now(); now.Sub(t.told) >= replayTells {
			t.told = now
			s.note("%s, received until %s", t.counts(), t.last.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// maxReplayTypes bounds what is remembered of types; the others are one.
const maxReplayTypes = 1000

func (t *routedSource) ofType(d *inbox.Delivery) (*routedType, error) {
	if rt := t.byType[d.EventType]; rt != nil && d.Tenant == t.source.Tenant {
		return rt, nil
	}
	rt := &routedType{EventType: d.EventType, Destinations: []string{}}
	if d.Tenant != t.source.Tenant { // of a source that had this name
		return rt, nil
	}
	var err error
	if rt.forwards, err = t.source.Route(d.EventType); err != nil {
		return nil, err
	}
	for _, f := range rt.forwards {
		rt.Destinations = append(rt.Destinations, f.Destination)
		rt.Held = f.Hold
	}
	if len(t.Types) < maxReplayTypes {
		t.byType[d.EventType] = rt
		t.Types = append(t.Types, rt)
	}
	return rt, nil
}

func deliveries(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}

// counts is what was done so far, on one line.
func (t *routedSource) counts() string {
	text := deliveries(t.Routed) + " routed"
	if t.DryRun {
		text = deliveries(t.Routed) + " to route"
	}
	for _, c := range []struct {
		n    int
		what string
	}{{t.Left, "that still no route takes"}, {t.Pruned, "whose bodies are pruned"}, {t.Gone, "routed or removed meanwhile"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}

func (rt *routedType) to() string {
	switch {
	case len(rt.Destinations) == 0:
		return "no route takes it"
	case rt.Held:
		return strings.Join(rt.Destinations, ", ") + ", held: its type is not allowed"
	}
	return strings.Join(rt.Destinations, ", ")
}

func (t *routedSource) sortTypes() {
	slices.SortFunc(t.Types, func(a, b *routedType) int {
		return cmp.Or(cmp.Compare(b.Deliveries, a.Deliveries), cmp.Compare(a.EventType, b.EventType))
	})
}

// tellTypes says what a person is about to agree to.
func (t *routedSource) tellTypes(s *stdio) {
	t.sortTypes()
	for _, rt := range t.Types[:min(len(t.Types), 20)] {
		s.note("%s   %s   %s", deliveries(rt.Deliveries), cell(orDash(rt.EventType), isTerminal(s.err)), rt.to())
	}
}

func (t *routedSource) print(s *stdio, asJSON bool) error {
	t.sortTypes()
	if asJSON {
		return printJSON(s.out, t)
	}
	var rows [][]string
	for _, rt := range t.Types {
		rows = append(rows, []string{orDash(rt.EventType), fmt.Sprint(rt.Deliveries), rt.to()})
	}
	if len(rows) > 0 {
		s.printTable([]string{"type", "deliveries", "to"}, rows)
		s.note("%s", t.counts())
	} else {
		s.note("no unrouted delivery fits")
	}
	return nil
}

// verdict is the exit code: what was asked for was done, in part, or not at all.
func (t *routedSource) verdict() error {
	switch refused := t.Left + t.Pruned; {
	case refused == 0:
		return nil
	case t.Routed > 0:
		return &failure{code: exitPartly}
	}
	return answerNo()
}

// stopped says what was done before the end came, and how to go on.
func (t *routedSource) stopped(s *stdio, next string) {
	s.note("stopped: %s", t.counts())
	s.note("next   %s", next)
}

// goOn is the command that goes on where this one has stopped. What is routed is
// unrouted no more: to begin a little earlier does no harm.
func (r *replayer) goOn(o unroutedOptions, last time.Time) string {
	words := []string{programName(), "replay", "-c", shellQuote(r.config), "--unrouted", "--source", shellQuote(o.filter.Source)}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, shellQuote(value))
		}
	}
	add("--type", o.filter.EventType)
	if last.IsZero() {
		last = o.filter.Since
	}
	if !last.IsZero() {
		add("--since", last.UTC().Format(time.RFC3339Nano))
	}
	if o.until != "" {
		add("--until", o.filter.Until.UTC().Format(time.RFC3339))
	}
	add("--reason", cmp.Or(r.act.Reason, r.reason))
	if o.yes {
		words = append(words, "--yes")
	}
	return strings.Join(words, " ")
}
