package inbox

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func TestPausedDestinationHasNothingDueInLanes(t *testing.T) {
	s, pool := newStore(t)
	if err := s.SaveDestinations(t.Context(), 0, []Destination{{Name: "app", URL: "http://app"}}); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE hooklatch.destination SET paused_at = now(), paused_by = 'me', pause_reason = 'deploy'`)
	arrive(t, s, OrderStrict, 1, 3)
	wantIDs(t, drain(t, s))
	wantStates(t, pool, "1 pending, 3 pending")
	exec(t, pool, `UPDATE hooklatch.destination SET paused_at = NULL`)
	wantIDs(t, drain(t, s), "r-1")
}

// Bodies of lanes and others share what one transaction may hold; the first goes
// whatever its size.
func TestClaimOfLargeBodiesInLanes(t *testing.T) {
	s, _, proxy := faulty(t)
	s.cfg.MaxBatchBytes = 100
	for n, size := range []int{60, 40, 300, 60, 41} {
		d := ofResource(OrderLatest, fmt.Sprint("r", n), 1)
		if n%2 == 1 {
			d = delivery(fmt.Sprint("plain", n), "")
		}
		d.Body = []byte(strings.Repeat("x", size))
		d.BodyHash = sha256.Sum256(d.Body)
		accept(t, s, d)
	}
	commits := proxy.Counts().Commits
	all, _ := claimAll(t, s, time.Time{})
	if len(all) != 5 {
		t.Errorf("%d claimed, want 5", len(all))
	}
	if n := proxy.Counts().Commits - commits; n < 4 { // no two of 60 and 41, or 300 and another, fit
		t.Errorf("%d transactions", n)
	}
}

// Neither what is ordered nor what is not starves the other, also with one free slot.
func TestOrderedAndUnorderedShareTheLimit(t *testing.T) {
	for _, limit := range []int{1, 3, 10} {
		s, _ := newStore(t)
		wholeAtEnd(t, s.pool)
		var want []string
		for n := range 10 {
			accept(t, s, ofResource(OrderLatest, fmt.Sprint("o", n), 1))
			accept(t, s, delivery(fmt.Sprint("u", n), "x"))
			want = append(want, fmt.Sprint("o", n, "-1"), fmt.Sprint("u", n))
		}
		var sent []string
		for range 20 / limit {
			got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: limit, Lease: time.Minute})
			if err != nil || len(got) != limit {
				t.Fatalf("%d claimed, %v; want %d", len(got), err, limit)
			}
			for _, f := range got {
				sent = append(sent, f.Delivery.DeliveryID)
			}
		}
		wantIDs(t, sent, want[:len(sent)]...)
	}
}

// A flood of one resource does not keep a claim from the others behind it.
func TestFloodOfOneLaneDoesNotHideTheOthers(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, ofResource(OrderLatest, "long", 1))
	claimAll(t, s, time.Time{})
	crowd(t, pool, OrderLatest, 10_000, `waiting = false`)
	accept(t, s, ofResource(OrderLatest, "short", 1))
	accept(t, s, delivery("plain", "x"))
	_, ids := claimAll(t, s, time.Time{})
	slices.Sort(ids)
	wantIDs(t, ids, "plain", "short-1")
}

// Ten thousand revisions wait; the newest is sent, the others are superseded by and by.
func TestCoalesceSupersedesAnyNumber(t *testing.T) {
	var superseded int
	pool := inboxtest.New(t)
	s, err := New(pool, Config{OnSuperseded: func(destination string, n int) { superseded += n }})
	if err != nil {
		t.Fatal(err)
	}
	crowd(t, pool, OrderCoalesce, 10_000, `waiting = false`)
	wantIDs(t, drain(t, s), "long-11000")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'superseded'`); n != 9999 || superseded != n {
		t.Errorf("%d are superseded, the hook was told of %d", n, superseded)
	}
}
