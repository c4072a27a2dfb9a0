package inbox

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// describe writes a turn for comparison.
func (t turn) describe() string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if t.lease != nil {
		add("lease %d", t.lease.id)
	}
	for _, m := range t.moves {
		word := fmt.Sprintf("%d %s", m.id, m.to)
		if m.reason != "" {
			word += " " + m.reason
		}
		if !m.until.IsZero() {
			word += " until " + m.until.UTC().Format("15:04")
		}
		if m.behind {
			word += " behind"
		}
		if m.fence {
			word += " fenced"
		}
		add("%s", word)
	}
	if t.passed != nil {
		add("pass %d", *t.passed)
	}
	if t.opens != nil {
		add("gap %d-%d", t.opens.first, t.opens.last)
	}
	if t.closes != "" {
		add("closed by %s", t.closes)
	}
	if t.rouse {
		add("rouse")
	}
	if t.again {
		add("again")
	}
	return strings.Join(words, ", ")
}

// What a claim does with a lane follows from what it has read, and from nothing else.
func TestTurnOfALane(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	number := func(n int64) *int64 { return &n }
	// one is the forward with the id of its revision, due and not tried yet.
	one := func(ordering Ordering, revision int64, change ...func(*queued)) *queued {
		q := &queued{id: revision, ordering: ordering, revision: revision, state: Pending, due: true,
			expiresAt: now.Add(time.Hour), receivedAt: now.Add(-time.Hour)}
		for _, c := range change {
			c(q)
		}
		return q
	}
	at := func(revisions ...int64) (places []place) {
		for _, revision := range revisions {
			places = append(places, place{revision, revision})
		}
		return places
	}
	later := func(q *queued) { q.due = false }
	waiting := func(q *queued) { q.waiting = true }
	gapHeld := func(q *queued) { q.state, q.hold, q.due = Held, HoldGap, false }
	personHeld := func(q *queued) { q.state, q.hold = Held, HoldPerson }
	blocked := func(q *queued) { q.state = Blocked }
	patience := func(d time.Duration) func(*queued) { return func(q *queued) { q.gapTimeout = d } }
	latest, coalesce, strict := OrderLatest, OrderCoalesce, OrderStrict

	for _, c := range []struct {
		name  string
		facts laneFacts
		full  bool // the claim has no room left
		want  string
	}{
		{"nothing", laneFacts{}, false, ""},
		{"first of a lane", laneFacts{front: one(latest, 1), met: at(1)}, false, "lease 1"},
		{"the others wait", laneFacts{front: one(latest, 1), met: at(1, 2, 3)}, false, "lease 1, 2 waiting, 3 waiting"},
		{"one that waits is leased when it is the first", laneFacts{front: one(latest, 2, waiting), met: at(3)}, false, "lease 2, 3 waiting"},
		{"no room", laneFacts{front: one(latest, 1), met: at(1, 2)}, true, "2 waiting"},
		{"no room for one that waits", laneFacts{front: one(latest, 1, waiting), met: at(2)}, true, "2 waiting, rouse"},
		{"busy", laneFacts{busy: true, inFlight: number(1), passed: number(0), front: one(latest, 1), met: at(1, 2, -1)}, false, "2 waiting, -1 waiting"},
		{"not due yet", laneFacts{front: one(latest, 1, later), met: at(2)}, false, "2 waiting"},
		{"waits and is not due yet", laneFacts{front: one(latest, 1, later, waiting), met: at(2)}, false, "2 waiting, rouse"},
		{"passed", laneFacts{passed: number(5), stale: at(3, 5), front: one(latest, 6), met: at(3, 5, 6)}, false, "lease 6, 3 superseded, 5 superseded"},
		{"too many passed for once", laneFacts{passed: number(5), chunk: 2, stale: at(1, 2, 3), front: one(latest, 6), met: at(1, 6)}, false,
			"1 superseded, 2 superseded, rouse, again"},
		{"lost lease of the first", laneFacts{inFlight: number(1), lost: true, front: one(latest, 1), met: at(1, 2)}, false, "lease 1, 2 waiting"},
		{"lost lease of another", laneFacts{inFlight: number(2), lost: true, front: one(latest, 1), met: at(1, 2)}, false, "lease 1, 2 waiting fenced"},
		{"lost lease that was not met", laneFacts{inFlight: number(9), lost: true, front: one(latest, 1), met: at(1)}, false, "lease 1, 9 waiting fenced"},
		{"lost lease that is passed", laneFacts{inFlight: number(2), lost: true, passed: number(3), stale: at(2), met: at(2)}, false, "2 superseded fenced"},
		{"no time left", laneFacts{front: one(latest, 1, func(q *queued) { q.expiresAt = now }), met: at(1, 2)}, false,
			"1 blocked deadline_passed, 2 waiting, rouse, again"},
		{"no attempts left", laneFacts{front: one(latest, 1, func(q *queued) { q.attempts = 3 }), met: at(1)}, false,
			"1 blocked attempts_exhausted, rouse, again"},
		{"no body left", laneFacts{front: one(latest, 1, func(q *queued) { q.pruned = true }), met: at(1)}, false,
			"1 blocked body_pruned, rouse, again"},
		{"no time left, and the lease is lost", laneFacts{inFlight: number(1), lost: true, front: one(latest, 1, func(q *queued) { q.expiresAt = now }), met: at(1)}, false,
			"1 blocked deadline_passed fenced, rouse, again"},
		{"no time left, and not due", laneFacts{front: one(latest, 1, later, func(q *queued) { q.expiresAt = now }), met: at(2)}, false, "2 waiting"},
		{"held for a person", laneFacts{front: one(latest, 1, personHeld), met: at(2)}, false, "2 waiting"},

		{"newest", laneFacts{front: one(coalesce, 1), newest: one(coalesce, 3), older: at(1, 2, 3), met: at(1, 2, 3)}, false, "lease 3, 1 superseded, 2 superseded"},
		{"newest of two of a revision", laneFacts{front: one(coalesce, 1), newest: one(coalesce, 3), older: []place{{1, 1}, {3, 3}, {4, 3}}, met: at(1, 3)}, false,
			"lease 3, 1 superseded, 4 superseded"},
		{"newest is not due yet", laneFacts{front: one(coalesce, 1), newest: one(coalesce, 3, later), older: at(1, 3), met: at(1)}, false, "1 superseded"},
		{"too many older for once", laneFacts{chunk: 2, front: one(coalesce, 1), newest: one(coalesce, 9), older: at(1, 2, 3), met: at(1)}, false,
			"1 superseded, 2 superseded, rouse, again"},
		{"coalesced and all held for a person", laneFacts{front: one(coalesce, 1, personHeld)}, false, ""},

		{"base of a strict lane", laneFacts{front: one(strict, 7), met: at(7, 9)}, false, "lease 7, 9 waiting, pass 6"},
		{"base of the least revision", laneFacts{front: one(strict, 0), met: at(0)}, false, "lease 0, pass -1"},
		{"no base where nothing is leased", laneFacts{front: one(strict, 7), met: at(7)}, true, ""},
		{"next", laneFacts{passed: number(3), front: one(strict, 4), met: at(4)}, false, "lease 4"},
		{"largest", laneFacts{passed: number(math.MaxInt64 - 1), front: one(strict, math.MaxInt64)}, false, fmt.Sprint("lease ", int64(math.MaxInt64))},
		{"dead letter in front", laneFacts{passed: number(3), front: one(strict, 4, blocked), met: at(5)}, false, "5 waiting"},
		{"jump", laneFacts{passed: number(3), front: one(strict, 6), met: at(6, 8)}, false, "8 held behind, 6 held, gap 4-5"},
		{"jump over all there is", laneFacts{passed: number(-1), front: one(strict, math.MaxInt64), met: at(math.MaxInt64)}, false,
			fmt.Sprintf("%d held, gap 0-%d", int64(math.MaxInt64), int64(math.MaxInt64-1))},
		{"jump with patience", laneFacts{passed: number(3), front: one(strict, 6, patience(2*time.Hour)), met: at(6)}, false, "6 held until 13:00, gap 4-5"},
		{"patience counts from what opened the gap", laneFacts{passed: number(3), gap: &missing{4, 7, now.Add(-90 * time.Minute)},
			front: one(strict, 6, patience(2*time.Hour)), met: at(6)}, false, "6 held until 12:30, gap 4-5"},
		{"patience is over", laneFacts{passed: number(3), gap: &missing{4, 5, now.Add(-2 * time.Hour)}, front: one(strict, 6, gapHeld, patience(2*time.Hour)), met: at(6, 7)}, false,
			"lease 6, 7 waiting, pass 5, closed by timeout"},
		{"patience is over, and no room", laneFacts{passed: number(3), gap: &missing{4, 5, now.Add(-2 * time.Hour)}, front: one(strict, 6, gapHeld, patience(2*time.Hour)), met: at(6)}, true,
			"pass 5, closed by timeout, rouse"},
		{"patience was over before any claim", laneFacts{passed: number(3), front: one(strict, 6, patience(time.Hour)), met: at(6)}, false,
			"lease 6, pass 5, gap 4-5, closed by timeout"},
		{"known gap", laneFacts{passed: number(3), gap: &missing{4, 5, now}, front: one(strict, 6, gapHeld), met: at(7)}, false, "7 held behind"},
		{"gap before one that waits", laneFacts{passed: number(3), gap: &missing{4, 5, now}, front: one(strict, 6, gapHeld, waiting)}, false, "6 held"},
		{"gap before a dead letter", laneFacts{passed: number(3), front: one(strict, 6, blocked), met: at(7)}, false, "7 held behind, gap 4-5"},
		{"gap before one that is held for a person", laneFacts{passed: number(3), front: one(strict, 6, personHeld, patience(1)), met: at(7)}, false, "7 held behind, gap 4-5"},
		{"gap closes by arrival", laneFacts{passed: number(3), gap: &missing{4, 5, now}, front: one(strict, 4), met: at(4)}, false, "lease 4, closed by arrival"},
		{"gap closes, and the first was held for it", laneFacts{passed: number(3), gap: &missing{4, 4, now}, arrived: []int64{4}, front: one(strict, 5, gapHeld), met: at(6)}, false,
			"lease 5, 6 waiting, pass 4, closed by arrival"},
		{"what has arrived is not missing", laneFacts{passed: number(3), arrived: []int64{4, 4, 5, 7}, front: one(strict, 9), met: at(9)}, false, "9 held, pass 5, gap 6-8"},
		{"what has arrived behind something missing", laneFacts{passed: number(3), arrived: []int64{5}, front: one(strict, 6), met: at(6)}, false, "6 held, gap 4-5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.facts.chunk == 0 {
				c.facts.chunk = 1000
			}
			if got := c.facts.decide(now, 3, func(*queued) bool { return !c.full }).describe(); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
