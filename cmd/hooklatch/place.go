package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// aheadLine is the JSON of the forward behind which another one of its lane waits.
type aheadLine struct {
	Revision      int64       `json:"revision"`
	DeliveryID    string      `json:"delivery_id"`
	State         inbox.State `json:"state"`
	BlockedReason string      `json:"blocked_reason,omitempty"`
	LeaseUntil    *time.Time  `json:"lease_until,omitempty"`
}

func describeAhead(f *inbox.Forward) *aheadLine {
	if f == nil {
		return nil
	}
	return &aheadLine{Revision: *f.Delivery.Revision, DeliveryID: f.Delivery.DeliveryID, State: f.State,
		BlockedReason: f.BlockedReason, LeaseUntil: moment(f.LeaseUntil)}
}

// text is the forward as the end of "behind".
func (a aheadLine) text(now time.Time) string {
	text := fmt.Sprintf("revision %d (%s), ", a.Revision, a.DeliveryID)
	switch {
	case a.LeaseUntil != nil && a.LeaseUntil.After(now):
		return text + "which is being tried"
	case a.BlockedReason != "":
		return fmt.Sprintf("%swhich is %s (%s)", text, a.State, a.BlockedReason)
	}
	return text + "which is " + string(a.State)
}

// gapLine is the JSON of a gap.
type gapLine struct {
	FirstMissing int64      `json:"first_missing"`
	LastMissing  int64      `json:"last_missing"`
	OpenedAt     time.Time  `json:"opened_at"`
	ClosedAt     *time.Time `json:"closed_at,omitempty"`
	ClosedBy     string     `json:"closed_by,omitempty"`
	GivenUpAt    *time.Time `json:"given_up_at,omitempty"` // of an open one: by gap_timeout
	Waits        *aheadLine `json:"waits,omitempty"`       // the first behind an open one
}

func describeGap(g *inbox.Gap) *gapLine {
	if g == nil {
		return nil
	}
	line := &gapLine{FirstMissing: g.FirstMissing, LastMissing: g.LastMissing, OpenedAt: g.OpenedAt.UTC(),
		ClosedAt: moment(g.ClosedAt), ClosedBy: g.ClosedBy, Waits: describeAhead(g.Waits)}
	if g.Waits != nil && g.ClosedAt.IsZero() {
		line.GivenUpAt = moment(g.Waits.NextAttemptAt)
	}
	return line
}

// missing names the revisions.
func (g gapLine) missing() string { return revisions(g.FirstMissing, g.LastMissing) }

func revisions(from, to int64) string {
	if from == to {
		return fmt.Sprint("revision ", from)
	}
	return fmt.Sprintf("revisions %d to %d", from, to)
}

// text is the gap as a sentence.
func (g gapLine) text(now time.Time) string {
	verb := "are"
	if g.FirstMissing == g.LastMissing {
		verb = "is"
	}
	text := fmt.Sprintf("%s %s missing since %s", g.missing(), verb, g.OpenedAt.Format(time.RFC3339))
	switch {
	case g.GivenUpAt == nil:
		return text + ", waited for until a person releases the resource"
	case !g.GivenUpAt.After(now):
		return text + ", given up now: a running server goes on"
	}
	return text + ", given up in " + shortDuration(g.GivenUpAt.Sub(now))
}

// addPlaces says of each open forward what it waits for in its lane.
func addPlaces(ctx context.Context, store *inbox.Store, forwards []inbox.Forward, lines []forwardLine) error {
	for i, f := range forwards {
		if f.Ordering == inbox.OrderNone || !open(f) && f.State != inbox.Held {
			continue
		}
		p, err := store.Place(ctx, f.ID)
		if err != nil {
			return err
		}
		lines[i].Behind, lines[i].Gap = describeAhead(p.Ahead), describeGap(p.Gap)
		lines[i].unhold(p.Gap)
	}
	return nil
}

// unhold takes away a reason that has gone: a forward that was held for a gap stays held
// behind others until its turn.
func (f *forwardLine) unhold(gap *inbox.Gap) {
	if gap == nil && f.HoldReason == inbox.HoldGap {
		f.HoldReason = ""
	}
}

// place says what the forward waits for beside time; empty: nothing.
func (f forwardLine) place(now time.Time) string {
	switch f.HoldReason {
	case inbox.HoldPerson:
		return "until a person decides"
	case inbox.HoldBackfill:
		return "until its backfill releases it"
	case inbox.HoldUnverified:
		return "nobody has signed its body"
	}
	switch {
	case f.Gap != nil && f.Behind != nil:
		return f.Gap.text(now) + "; behind " + f.Behind.text(now)
	case f.Gap != nil:
		return f.Gap.text(now)
	case f.Behind != nil:
		return "behind " + f.Behind.text(now)
	}
	return ""
}
