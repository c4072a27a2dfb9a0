package main

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func traceCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "trace",
		Usage:     "say where an event went",
		ArgsUsage: "ANY-ID",
		Description: example("Show the way of one delivery in the order of time: its receipt, every attempt, conflicts,\n"+
			"refusals under its id, what people did, and what it waits for now. The id may be a\n"+
			"delivery id, an event id, a request id, TYPE/ID of a resource, or 8 hex digits or more of\n"+
			"the hash of a body; of what was refused and of conflicts too. Exit code 1: it is not in\n"+
			"the inbox, with what speaks for it or against it; 2: the id fits several deliveries, of\n"+
			"which --source picks.\n\n"+databaseHelp,
			"hooklatch trace evt_1PqX",
			"hooklatch trace 9c1e4b07"),
		Flags: append(databaseFlags(), sourceFlag()),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "ANY-ID")
			if err != nil {
				return err
			}
			return trace(c.Context, s, readWhichDatabase(c), args[0], c.String("source"), c.Bool("json"))
		},
	}
}

// These bound what is read of one delivery.
const (
	maxTracedAttempts = 1000 // of one forward
	maxTracedRefusals = 20
	maxTracedActs     = 200
	maxTracedEvents   = 50 // of one destination, the last ones

	// tracedAfterwards is how long after a forward is settled its breaker may be said to
	// have closed by it.
	tracedAfterwards = time.Second
)

// attemptLine is the JSON of an attempt.
type attemptLine struct {
	Number  int       `json:"number"`
	EndedAt time.Time `json:"ended_at"`
	Took    float64   `json:"took_ms"`
	Class   string    `json:"class"`
	Status  int       `json:"status,omitempty"`
	Error   string    `json:"error,omitempty"`
	Answer  []byte    `json:"answer_base64,omitempty"`
	Late    bool      `json:"late,omitempty"`
	Worker  string    `json:"worker,omitempty"`
	Manual  string    `json:"replayed_by,omitempty"` // who wanted it

	duration time.Duration
}

func describeAttempt(a inbox.Attempt) attemptLine {
	return attemptLine{Number: a.Number, EndedAt: a.EndedAt.UTC(), Took: float64(a.Duration.Microseconds()) / 1000, Class: a.Class,
		Status: a.Status, Error: a.Error, Answer: a.Answer, Late: a.Late, Worker: a.Worker, Manual: a.ReplayedBy, duration: a.Duration}
}

// traced is the JSON of trace.
type traced struct {
	V         int            `json:"v"`
	ID        string         `json:"id"`
	Found     bool           `json:"found"`
	Delivery  deliveryLine   `json:"delivery"`
	Conflicts []conflictLine `json:"conflicts"`
	Gone      string         `json:"body_gone,omitempty"` // since when, for people

	// What its destinations went through before they were done with it.
	Events []tracedEvent `json:"destination_events"`

	RevisionConflicts []revisionConflictLine `json:"revision_conflicts"`
	Refusals          []*refusalLine         `json:"refusals"` // under its ids; nobody has signed them
	Acts              []actLine              `json:"acts"`     // of people

	receivedAt time.Time // by our clock, from the request id
}

// revisionConflictLine is the JSON of another body that came with the same revision.
type revisionConflictLine struct {
	Revision        int64     `json:"revision"`
	DeliveryID      string    `json:"delivery_id"` // the later one
	FirstDeliveryID string    `json:"first_delivery_id"`
	NoticedAt       time.Time `json:"noticed_at"`
}

// actLine is the JSON of what a person did.
type actLine struct {
	At          time.Time `json:"at"`
	Actor       string    `json:"actor"`
	Action      string    `json:"action"`
	Reason      string    `json:"reason"`
	Detail      string    `json:"detail,omitempty"`
	Destination string    `json:"destination,omitempty"`
}

// tracedEvent is the JSON of what happened to a destination.
type tracedEvent struct {
	Destination string `json:"destination"`
	destinationEventLine
}

// pauseLine is the JSON of a pause.
type pauseLine struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

func trace(ctx context.Context, s *stdio, which whichDatabase, id, source string, asJSON bool) error {
	return which.withStore(ctx, func(store *inbox.Store) error {
		d, err := findOne(ctx, s, store, id, source)
		if errors.Is(err, errNoSuch) {
			m, err := readMissing(ctx, store, which.kept(), id, source, time.Now())
			if err != nil {
				return err
			}
			return m.print(s, asJSON)
		}
		if err != nil {
			return err
		}
		t, err := readTrace(ctx, store, &d)
		if err != nil {
			return err
		}
		t.ID = id
		kept, err := store.Kept(ctx, d.ID)
		if err != nil {
			return err
		}
		if cfg := which.known(); cfg != nil {
			t.addRates(cfg)
		}
		if !kept {
			t.Gone = which.kept().goneText(d.ReceivedAt, time.Now())
		}
		if asJSON {
			return printJSON(s.out, t)
		}
		return t.print(s.out, isTerminal(s.out), time.Now())
	})
}

func readTrace(ctx context.Context, store *inbox.Store, d *inbox.Delivery) (traced, error) {
	forwards, err := store.Forwards(ctx, d.ID)
	if err != nil {
		return traced{}, err
	}
	conflicts, err := store.Conflicts(ctx, d.Tenant, d.Source, d.DeliveryID)
	if err != nil {
		return traced{}, err
	}
	t := traced{V: 1, Found: true, Delivery: describeDelivery(d, forwards), Conflicts: describeConflicts(conflicts),
		RevisionConflicts: []revisionConflictLine{}, Refusals: []*refusalLine{}, Acts: []actLine{}, Events: []tracedEvent{}, receivedAt: receivedAt(d)}
	for _, add := range []func(context.Context, *inbox.Store, *inbox.Delivery, []inbox.Forward) error{
		t.addWaits, t.addRevisions, t.addRefusals, t.addActs, t.addEvents,
	} {
		if err := add(ctx, store, d, forwards); err != nil {
			return traced{}, err
		}
	}
	for i, f := range forwards {
		for a, err := range store.Attempts(ctx, inbox.AttemptFilter{ForwardID: f.ID, Limit: maxTracedAttempts}) {
			if err != nil {
				return traced{}, err
			}
			t.Delivery.Forwards[i].Ledger = append(t.Delivery.Forwards[i].Ledger, describeAttempt(a))
		}
	}
	return t, nil
}

// addWaits says what open forwards wait for, and what overtook superseded ones.
func (t *traced) addWaits(ctx context.Context, store *inbox.Store, d *inbox.Delivery, forwards []inbox.Forward) error {
	if err := addPlaces(ctx, store, forwards, t.Delivery.Forwards); err != nil {
		return err
	}
	destinations, err := store.Destinations(ctx)
	if err != nil {
		return err
	}
	for i, f := range forwards {
		line := &t.Delivery.Forwards[i]
		for _, at := range destinations {
			if at.Name == f.Destination && (open(f) || f.State == inbox.Held) {
				line.Paused = describePause(at.Pause)
				if at.Breaker.State != inbox.BreakerClosed {
					breaker := describeBreaker(&at.Breaker)
					line.Breaker = &breaker
				}
			}
		}
		if f.State != inbox.Superseded {
			continue
		}
		filter := inbox.ResourceFilter{Name: d.ResourceType + "/" + d.ResourceID, Tenant: d.Tenant, Source: d.Source, Destination: f.Destination, Most: 1}
		for r, err := range store.Resources(ctx, filter) {
			if err != nil {
				return err
			}
			line.Applied, line.Passed = r.Applied, r.Passed
		}
	}
	return nil
}

func (t *traced) addRevisions(ctx context.Context, store *inbox.Store, d *inbox.Delivery, _ []inbox.Forward) error {
	conflicts, err := store.RevisionConflicts(ctx, d.ID)
	for _, c := range conflicts {
		t.RevisionConflicts = append(t.RevisionConflicts, revisionConflictLine{c.Revision, c.DeliveryID, c.FirstDeliveryID, c.NoticedAt.UTC()})
	}
	return err
}

func (t *traced) addRefusals(ctx context.Context, store *inbox.Store, d *inbox.Delivery, _ []inbox.Forward) error {
	for r, err := range store.Refusals(ctx, inbox.RefusalFilter{ID: d.DeliveryID, Limit: maxTracedRefusals}) {
		if err != nil {
			return err
		}
		if r.Source == d.Source {
			t.Refusals = append(t.Refusals, describeRefusal(&r))
		}
	}
	return nil
}

func (t *traced) addActs(ctx context.Context, store *inbox.Store, d *inbox.Delivery, forwards []inbox.Forward) error {
	for a, err := range store.Acts(ctx, inbox.ActFilter{Delivery: d.ID, Limit: maxTracedActs}) {
		if err != nil {
			return err
		}
		line := actLine{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason, Detail: a.Detail}
		for _, f := range forwards {
			if f.ID == a.ForwardID {
				line.Destination = f.Destination
			}
		}
		t.Acts = append(t.Acts, line)
	}
	return nil
}

// addRates says how fast what is due is handed on.
func (t *traced) addRates(c *config) {
	for i := range t.Delivery.Forwards {
		f := &t.Delivery.Forwards[i]
		if at := c.Destinations[f.Destination]; at != nil && f.NextAttemptAt != nil {
			f.Rate = at.Rate.String()
		}
	}
}

// addEvents adds what kept destinations from being asked, as long as it had to do with
// the delivery.
func (t *traced) addEvents(ctx context.Context, store *inbox.Store, d *inbox.Delivery, forwards []inbox.Forward) error {
	for _, f := range forwards {
		until := f.SettledAt
		if !until.IsZero() {
			until = until.Add(tracedAfterwards)
		}
		filter := inbox.EventFilter{Destination: f.Destination, Since: d.ReceivedAt, Until: until, Limit: maxTracedEvents, Newest: true}
		for e, err := range store.DestinationEvents(ctx, filter) {
			if err != nil {
				return err
			}
			switch e.Event {
			case inbox.EventOpened, inbox.EventClosed, inbox.EventPaused, inbox.EventResumed, inbox.EventProbe:
				t.Events = append(t.Events, tracedEvent{f.Destination, describeEvent(e)})
			}
		}
	}
	return nil
}

// receivedAt is when the request came in: its id holds the time. The commit can
// only be later.
func receivedAt(d *inbox.Delivery) time.Time {
	if d.RequestID == uuid.Nil || d.RequestID.Version() != 7 {
		return d.ReceivedAt
	}
	at := time.Unix(d.RequestID.Time().UnixTime()).UTC()
	if at.After(d.ReceivedAt) || d.ReceivedAt.Sub(at) > time.Minute {
		return d.ReceivedAt // the clocks differ
	}
	return at
}
