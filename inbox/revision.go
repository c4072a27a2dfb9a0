package inbox

import (
	"math"
	"slices"
	"time"
)

// queued is a forward that stands in a lane, as a claim sees it.
type queued struct {
	id         int64
	ordering   Ordering
	revision   int64
	state      State
	hold       HoldReason
	due        bool // its time has come
	waiting    bool
	attempts   int  // that count
	left       *int // attempts of its replay; nil: the destination's budget decides
	expiresAt  time.Time
	gapTimeout time.Duration
	receivedAt time.Time
	size       int
	pruned     bool // its body is gone
}

// forPerson says that only a person moves it.
func (q *queued) forPerson() bool {
	return q.state == Blocked || q.state == Held && q.hold != HoldGap
}

// spent says that it may have no attempt more.
func (q *queued) spent(maxAttempts int) bool {
	if q.left != nil {
		return *q.left <= 0
	}
	return maxAttempts > 0 && q.attempts >= maxAttempts
}

// place is where a forward stands in its lane.
type place struct{ id, revision int64 }

// laneFacts is what a claim knows of a lane whose resource it has locked.
type laneFacts struct {
	resource int64
	tenant   string
	due      []int64 // the forwards that led here
	passed   *int64
	inFlight *int64 // the forward that was leased last
	busy     bool   // and still is
	lost     bool   // its lease has run out, unsettled

	met     []place  // of due, what still is after the lock
	front   *queued  // the first above passed; nil: none
	newest  *queued  // the one to be sent of a coalesced lane
	stale   []place  // at or below passed, at most chunk+1
	older   []place  // up to the newest of a coalesced lane, with it, at most chunk+1
	arrived []int64  // revisions before the front of a strict lane that are here and not to be sent
	gap     *missing // the open one
	chunk   int
}

// turn is what a claim does with a lane.
type turn struct {
	lease  *queued
	moves  []move
	passed *int64   // moves on to here
	opens  *missing // the gap that its front waits for
	closes string   // who closes the open gap
	rouse  bool     // the first is to be looked at once more
	again  bool     // by this very claim
}

// move puts one forward into its place.
type move struct {
	id     int64
	to     moveTo
	reason string    // toBlocked
	until  time.Time // toHeld: the end of the gap's patience; zero: none
	behind bool      // toHeld: behind the one that waits for the gap
	fence  bool      // its lease is lost
}

type moveTo string

const (
	toWaiting    moveTo = "waiting"
	toHeld       moveTo = "held"
	toSuperseded moveTo = "superseded"
	toBlocked    moveTo = "blocked"
)

// decide says what is to be done with a lane now. hasRoom says whether the claim can
// take one more.
//
// The ordering of the front rules the lane, should a configuration have changed it
// meanwhile.
func (f *laneFacts) decide(now time.Time, maxAttempts int, hasRoom func(*queued) bool) (t turn) {
	if f.busy {
		f.park(&t, nil)
		return t
	}
	if len(f.stale) > 0 {
		f.supersede(&t, f.stale, nil)
		if t.again = len(f.stale) > f.chunk; t.again {
			t.rouse = true
			return t
		}
	}
	head := f.front
	switch {
	case head == nil:
		return t
	case head.ordering == OrderCoalesce && f.newest == nil:
		// The front waits for a person, or for the gap of a stricter configuration.
		t.rouse = f.loosen(&t, head)
		t.again = t.rouse
		f.park(&t, head)
		return t
	case head.ordering == OrderCoalesce:
		head = f.newest
		f.supersede(&t, f.older, head)
		if t.again = len(f.older) > f.chunk; t.again {
			t.rouse = true
			return t
		}
		f.loosen(&t, head)
	case head.ordering == OrderLatest:
		f.loosen(&t, head)
	case head.ordering == OrderStrict:
		if !f.follows(&t, now, head) {
			return t
		}
	}
	f.attempt(&t, now, maxAttempts, hasRoom, head)
	f.park(&t, head)
	return t
}

// loosen closes the gap that a stricter configuration has left: the head does not wait
// for it.
func (f *laneFacts) loosen(t *turn, head *queued) bool {
	if f.gap == nil || head.forPerson() {
		return false
	}
	t.closes = closedByRelease
	if head.revision <= f.gap.last {
		t.closes = closedByArrival
	}
	return true
}

// follows says whether the front of a strict lane is the next one. If it is not, what
// is missing makes a gap, for which it is held, and all behind it.
func (f *laneFacts) follows(t *turn, now time.Time, front *queued) bool {
	if f.passed == nil {
		base := front.revision - 1
		t.passed = &base // where the front is leased
		return true
	}
	passed := *f.passed
	for _, revision := range f.arrived {
		if revision == passed+1 {
			passed = revision
		}
	}
	if passed > *f.passed {
		t.passed = &passed
	}
	if front.revision-1 == passed {
		if f.gap != nil {
			t.closes = closedByArrival
		}
		return true
	}
	if passed > *f.passed && len(f.arrived) >= laneChunk { // more may have arrived
		t.rouse, t.again = true, true
		return false
	}
	gap := missing{first: passed + 1, last: front.revision - 1, openedAt: front.receivedAt}
	if f.gap != nil {
		gap.openedAt = f.gap.openedAt
	}
	moves := !front.forPerson()
	var until time.Time
	if front.gapTimeout > 0 {
		until = gap.openedAt.Add(front.gapTimeout)
	}
	if moves && !until.IsZero() && !until.After(now) {
		t.closes, t.passed = closedByTimeout, &gap.last
		t.opens = f.recordGap(&gap) // so that it is known afterwards, too
		return true
	}
	t.opens = f.recordGap(&gap)
	for _, m := range f.met {
		if m.id != front.id && m.revision > passed {
			t.moves = append(t.moves, move{id: m.id, to: toHeld, behind: true, fence: f.fences(m.id)})
		}
	}
	if moves && (front.state != Held || front.waiting || front.due) {
		t.moves = append(t.moves, move{id: front.id, to: toHeld, until: until, fence: f.fences(front.id)})
	}
	return false
}

// recordGap is the gap where it differs from what is recorded.
func (f *laneFacts) recordGap(gap *missing) *missing {
	if f.gap != nil && f.gap.first == gap.first && f.gap.last == gap.last {
		return nil
	}
	return gap
}

// attempt leases the head, if its time has come.
func (f *laneFacts) attempt(t *turn, now time.Time, maxAttempts int, hasRoom func(*queued) bool, head *queued) {
	base := t.passed
	if f.passed == nil {
		t.passed = nil
	}
	held := head.state == Held && head.hold == HoldGap // and the gap is closed
	switch {
	case head.forPerson():
		return // and so do later ones
	case !head.due && !held:
		t.rouse = head.waiting
		return
	}
	reason := ""
	switch {
	case !head.expiresAt.After(now):
		reason = ReasonDeadlinePassed
	case head.spent(maxAttempts):
		reason = ReasonAttemptsExhausted
	case head.pruned:
		reason = ReasonBodyPruned
	}
	switch {
	case reason != "":
		t.moves = append(t.moves, move{id: head.id, to: toBlocked, reason: reason, fence: f.fences(head.id)})
		t.rouse, t.again = true, true
	case hasRoom(head):
		t.lease, t.passed = head, base
	default:
		t.rouse = head.waiting || held
	}
}

// supersede takes out what is not to be sent any more, at most chunk of them: all but
// what is kept.
func (f *laneFacts) supersede(t *turn, all []place, kept *queued) {
	for _, p := range all[:min(len(all), f.chunk)] {
		if kept == nil || p.id != kept.id {
			t.moves = append(t.moves, move{id: p.id, to: toSuperseded, fence: f.fences(p.id)})
		}
	}
}

// park makes what was met wait behind the head. nil: behind the one that is leased.
func (f *laneFacts) park(t *turn, head *queued) {
	passed := int64(math.MinInt64)
	if !f.busy && f.passed != nil {
		passed = *f.passed
	}
	met := f.met
	if f.lost && !slices.ContainsFunc(met, func(p place) bool { return p.id == *f.inFlight }) {
		met = append(met, place{*f.inFlight, math.MaxInt64})
	}
	for _, p := range met {
		moved := slices.ContainsFunc(t.moves, func(m move) bool { return m.id == p.id })
		if moved || p.revision <= passed || head != nil && p.id == head.id || f.busy && p.id == *f.inFlight {
			continue
		}
		t.moves = append(t.moves, move{id: p.id, to: toWaiting, fence: f.fences(p.id)})
	}
}

// fences says that a forward has a lease that is lost.
func (f *laneFacts) fences(id int64) bool { return f.lost && id == *f.inFlight }
