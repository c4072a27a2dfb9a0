package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"
)

var someone = Act{Actor: "someone", Reason: "the model"}

// replay makes a dead letter, or what was held for a person, due again.
func (m *orderModel) replay(t *rapid.T) {
	if id, ok := m.anyone(t, func(r orderRow) bool { return r.state == Blocked || r.state == Held && r.hold == HoldPerson }); ok {
		m.replayOf(t, m.rows[id])
	}
}

// anyone draws a delivery whose forward fits.
func (m *orderModel) anyone(t *rapid.T, fits func(orderRow) bool) (string, bool) {
	var ids []string
	for id, r := range m.rows {
		if fits(r) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return "", false
	}
	slices.Sort(ids)
	return rapid.SampledFrom(ids).Draw(t, "delivery"), true
}

// replayOf demands that a replay is refused exactly where it would go back.
func (m *orderModel) replayOf(t *rapid.T, r orderRow) error {
	err := m.s.Replay(t.Context(), r.id, ReplayRequest{Act: someone})
	if r.leaseUntil.After(time.Now()) { // people have the clock of the database
		if !errors.Is(err, ErrInFlight) {
			t.Fatalf("replay %v: %v", r, err)
		}
		return err
	}
	passed := m.lanes[r.lane].passed
	late := r.ordering != OrderNone && passed != nil && *r.revision <= *passed
	if late != errors.Is(err, ErrSuperseded) || !late && err != nil {
		t.Fatalf("replay %v with passed %s: %v", r, said(passed), err)
	}
	return err
}

// cancel decides that something is never sent.
func (m *orderModel) cancel(t *rapid.T) {
	id, ok := m.anyone(t, func(r orderRow) bool {
		return r.state != Accepted && r.state != Superseded && r.state != Cancelled && !r.leaseUntil.After(m.now)
	})
	if ok {
		m.cancelOf(t, m.rows[id])
	}
}

func (m *orderModel) cancelOf(t *rapid.T, r orderRow) {
	err := m.s.Cancel(t.Context(), r.id, someone)
	if r.leaseUntil.After(time.Now()) {
		if !errors.Is(err, ErrInFlight) {
			t.Fatalf("cancel %v: %v", r, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("cancel %v: %v", r, err)
	}
	a := m.byID[r.deliveryID]
	a.disturbed, a.gone = true, true
	if r.ordering != OrderNone {
		m.cancelled(r)
	}
}

// cancelled takes the revision out of what is waited for, unless another delivery of it
// is still to be sent.
func (m *orderModel) cancelled(r orderRow) {
	for _, other := range m.rows {
		if other.lane == r.lane && other.id != r.id && other.revision != nil && *other.revision == *r.revision &&
			other.state != Cancelled && other.state != Superseded {
			return
		}
	}
	m.truthOf(r.lane).done[*r.revision] = true
}

// release lets a strict lane go on without what it waits for.
func (m *orderModel) release(t *rapid.T) {
	if len(m.lanes) == 0 {
		t.Skip("no lane yet")
	}
	lanes := make([]orderLane, 0, len(m.lanes))
	for l := range m.lanes {
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, func(a, b orderLane) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.resource, b.resource))
	})
	m.releaseOf(t, rapid.SampledFrom(lanes).Draw(t, "lane"))
}

// releaseOf demands that a release gives up the gap, or the dead letter at the head, and
// nothing else.
func (m *orderModel) releaseOf(t *rapid.T, l orderLane) error {
	first, last, err := m.s.Release(t.Context(), ResourceRef{Tenant: "t1", Destination: m.destination, Source: l.source, ResourceType: "report", ResourceID: l.resource}, someone)
	before := m.lanes[l].passed
	m.read(t)
	after := m.lanes[l].passed
	if err != nil {
		if !equalRevisions(before, after) {
			t.Fatalf("a release that failed moved %v from %s to %s: %v", l, said(before), said(after), err)
		}
		return err
	}
	if last != orBefore(after) || before != nil && first != *before+1 {
		t.Fatalf("a release of revisions %d to %d moved %v from %s to %s", first, last, l, said(before), said(after))
	}
	for n := first; n <= last; n++ {
		dead, open := false, ""
		for _, r := range m.rows {
			if r.lane == l && r.revision != nil && *r.revision == n {
				dead = dead || r.state == Blocked // and its twins go with it
				if r.state == Pending || r.state == RetryWait {
					open = r.String()
				}
			}
		}
		if open != "" && !dead {
			t.Fatalf("a release gave up %s, which was to be sent", open)
		}
		m.truthOf(l).done[n] = true
	}
	return nil
}

// settleDown lets all that is left come in, has the app take everything, and a person
// look after the rest, until nothing is left to do.
func (m *orderModel) settleDown(t *rapid.T) {
	for len(m.waiting) > 0 {
		m.accept(t, m.waiting[0])
		m.waiting = m.waiting[1:]
	}
	for range 400 {
		m.check(t)
		got := m.claim(t, 50)
		for _, f := range got {
			m.settleAs(t, f, OutcomeAccepted)
			m.check(t)
		}
		m.check(t)
		if len(got) > 0 {
			continue
		}
		if m.lookAfter(t) {
			continue
		}
		open := 0
		for _, r := range m.rows {
			if r.state == Pending || r.state == RetryWait || r.state == Held {
				open++
			}
		}
		if open == 0 {
			return
		}
		m.now = m.now.Add(10 * time.Minute)
	}
	for _, r := range m.rows {
		if r.state == Pending || r.state == RetryWait || r.state == Held {
			t.Errorf("%v is left, in %v", r, m.lanes[r.lane])
		}
	}
	t.FailNow()
}

// lookAfter is a person who finds what only people move; false: there is nothing.
func (m *orderModel) lookAfter(t *rapid.T) (did bool) {
	for _, a := range m.all {
		r, arrived := m.rows[a.d.DeliveryID]
		switch {
		case !arrived:
			continue
		case r.state == Blocked && r.reason == ReasonDeadlinePassed && !m.byID[r.deliveryID].gone:
			m.cancelOf(t, r) // it can never be sent again
		case r.state == Blocked && m.byID[r.deliveryID].gone:
			continue
		case r.state == Blocked && m.replayOf(t, r) != nil:
			m.byID[r.deliveryID].gone = true // something later was applied
		case r.state == Held && r.hold == HoldPerson && m.replayOf(t, r) != nil:
			m.cancelOf(t, r)
		case r.state != Blocked && (r.state != Held || r.hold != HoldPerson):
			continue
		}
		m.check(t)
		return true
	}
	for l := range m.lanes {
		for g, err := range m.s.Gaps(t.Context(), GapFilter{Destination: m.destination, Source: l.source}) {
			if err != nil {
				t.Fatal(err)
			}
			if g.ResourceID != l.resource {
				continue
			}
			if err := m.releaseOf(t, l); err != nil {
				t.Fatalf("release of %v: %v", g, err)
			}
			m.check(t)
			return true
		}
	}
	return false
}

// wantInOrderEnd compares what the app has with what it would have if everything had
// come once and in order.
func (m *orderModel) wantInOrderEnd(t *rapid.T) {
	type end struct {
		last  *orderArrival
		clean bool // nothing has disturbed the deliveries of the last revision
		gone  bool // a person has cancelled one of them: others went in its place, or none
	}
	ends := map[orderLane]end{}
	for _, a := range m.arrivalsInOrder() {
		l := orderLane{a.d.Source, a.d.ResourceID}
		// Under latest what a person cancels leaves no trace.
		if a.d.Revision == nil || a.gone && strings.HasSuffix(l.source, string(OrderLatest)) {
			continue
		}
		e, known := ends[l]
		switch {
		case !known || *a.d.Revision > *e.last.d.Revision:
			ends[l] = end{a, !a.disturbed, a.gone}
		case *a.d.Revision == *e.last.d.Revision:
			ends[l] = end{e.last, e.clean && !a.disturbed, e.gone || a.gone}
		}
	}
	for l, e := range ends {
		if e.gone {
			continue
		}
		truth, s := m.truthOf(l), m.lanes[l]
		if truth.applied == nil || *truth.applied != *e.last.d.Revision || !equalRevisions(s.applied, truth.applied) {
			t.Errorf("lane %v ended with revision %s, in order it is %d", l, said(truth.applied), *e.last.d.Revision)
		}
		if e.clean && (truth.body != string(e.last.d.Body) || truth.deleted != e.last.d.Deleted) {
			t.Errorf("lane %v ended with %q, deleted %v; in order it is %q, %v", l, truth.body, truth.deleted, e.last.d.Body, e.last.d.Deleted)
		}
	}
	m.wantConflicts(t)
	for id, r := range m.rows {
		if r.ordering == OrderNone && r.state != Accepted && !m.byID[id].gone {
			t.Errorf("%v has no order, and was not sent", r)
		}
	}
}

// wantConflicts demands a line for each delivery that was not sent and says of its
// revision something else than the first, and for no other revision.
func (m *orderModel) wantConflicts(t *rapid.T) {
	rows, err := m.pool.Query(t.Context(), `SELECT i.delivery_id FROM hooklatch.revision_conflict c JOIN hooklatch.inbox i ON i.id = c.inbox_id
		JOIN hooklatch.outbox o ON o.inbox_id = i.id WHERE o.destination = $1`, m.destination)
	if err != nil {
		t.Fatal(err)
	}
	told, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]*orderArrival{}
	for _, a := range m.arrivalsInOrder() {
		if a.d.Revision == nil {
			continue
		}
		key := fmt.Sprint(a.d.Source, a.d.ResourceID, " ", *a.d.Revision)
		if first[key] == nil {
			first[key] = a
		}
		differs, id := string(first[key].d.Body) != string(a.d.Body), a.d.DeliveryID
		if was := slices.Contains(told, id); was && !differs || differs && !was && m.rows[id].state == Superseded {
			t.Errorf("%v differs from the first of its revision: %v, told: %v\nthe first: %v", m.rows[id], differs, was, m.rows[first[key].d.DeliveryID])
		}
	}
}

// arrivalsInOrder are the deliveries as they were committed: of one revision the first
// counts.
func (m *orderModel) arrivalsInOrder() []*orderArrival {
	all := slices.Clone(m.all)
	slices.SortFunc(all, func(a, b *orderArrival) int { return cmp.Compare(m.rows[a.d.DeliveryID].id, m.rows[b.d.DeliveryID].id) })
	return all
}

// Whatever comes in whatever order, however often, and whatever becomes of workers and
// attempts: nothing goes backwards, strict leaves nothing out, and in the end the app has
// what it would have if all had come once and in order.
func TestP09_EveryHistoryEndsAsInOrder(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &orderModel{s: s, pool: pool, destination: fmt.Sprint("d", run), now: time.Now().Add(time.Hour),
			byID: map[string]*orderArrival{}, truth: map[orderLane]*orderTruth{}, settled: map[string]bool{}}
		m.history(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"arrive":  m.arrive,
			"claim":   func(t *rapid.T) { m.claim(t, rapid.IntRange(1, 5).Draw(t, "limit")) },
			"settle":  m.settle,
			"work":    m.work,
			"wait":    m.wait,
			"replay":  m.replay,
			"cancel":  m.cancel,
			"release": m.release,
			"":        m.check,
		})
		m.settleDown(rt)
		m.wantInOrderEnd(rt)
	})
}
