package inbox

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

var act = Act{Actor: "ann", Reason: "the route was missing"}

// unrouted accepts a delivery that no route has taken, a day ago.
func unrouted(t *testing.T, s *Store, pool *pgxpool.Pool, id string) int64 {
	t.Helper()
	d := delivery(id, "body of "+id)
	d.Forwards = nil
	r := accept(t, s, d)
	exec(t, pool, `UPDATE hooklatch.inbox SET received_at = received_at - interval '1 day' WHERE id = $1`, r.ID)
	return r.ID
}

func TestRouteMakesTheForwardsThatAreMissing(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	var told []string
	s.cfg.OnForwards = func(destination string) { told = append(told, destination) }
	id := unrouted(t, s, pool, "dlv_1")
	other := unrouted(t, s, pool, "dlv_2")
	start := time.Now()
	made, err := s.Route(t.Context(), id, []NewForward{{Destination: "shop", Hold: true}, {Destination: "app", Deadline: time.Hour}}, act)
	if err != nil || !slices.Equal(made, []string{"app", "shop"}) {
		t.Fatalf("made %v, %v", made, err)
	}
	if !slices.Equal(told, made) {
		t.Errorf("told of %v", told)
	}
	forwards, err := s.Forwards(t.Context(), id)
	if err != nil || len(forwards) != 2 || forwards[0].State != Pending || forwards[1].State != Held {
		t.Fatalf("forwards %+v, %v", forwards, err)
	}
	// The delivery is a day old: a deadline counted from its receipt would be over.
	for i, want := range []time.Duration{time.Hour, DefaultDeadline} {
		if got := forwards[i].ExpiresAt.Sub(start); got < want-time.Minute || got > want+time.Minute {
			t.Errorf("%s expires in %s, want %s", forwards[i].Destination, got, want)
		}
	}
	if f := claimOne(t, s, time.Time{}); f.Delivery.DeliveryID != "dlv_1" || string(f.Delivery.Body) != "body of dlv_1" || f.Attempt != 1 {
		t.Errorf("claimed %+v", f)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'held' AND hold_reason = 'person'`); n != 1 {
		t.Errorf("%d held for a person", n)
	}
	var left []int64
	for d, err := range s.Find(t.Context(), Filter{Unrouted: true}) {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, d.ID)
	}
	if !slices.Equal(left, []int64{other}) {
		t.Errorf("unrouted: %v, want %d", left, other)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE action = 'route' AND tenant = 't1' AND actor = 'ann'
		AND reason = 'the route was missing' AND inbox_id = $1 AND detail = 'app, shop'`, id); n != 1 {
		t.Errorf("%d rows of audit", n)
	}
}

func TestRouteAgainMakesNothing(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	id := unrouted(t, s, pool, "dlv_1")
	for i, want := range [][]string{{"app"}, nil, {"shop"}, nil} {
		forwards := []NewForward{{Destination: "app"}}
		if i >= 2 {
			forwards = append(forwards, NewForward{Destination: "shop"})
		}
		made, err := s.Route(t.Context(), id, forwards, act)
		if err != nil || !slices.Equal(made, want) {
			t.Errorf("%d: made %v, %v; want %v", i, made, err, want)
		}
		if i == 0 { // what is settled is not begun again
			if err := s.Settle(t.Context(), settlement(claimOne(t, s, time.Time{}), OutcomeAccepted, "2xx")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit`); n != 2 {
		t.Errorf("%d rows of audit, want one for each act that made something", n)
	}
	if made, err := s.Route(t.Context(), id, nil, act); err != nil || len(made) != 0 {
		t.Errorf("no forwards: %v, %v", made, err)
	}
}

// A routed forward stands in its lane like one that came with the delivery.
func TestRouteOrdersAsAcceptDoes(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	forward := NewForward{Destination: "app", Ordering: OrderStrict, GapTimeout: time.Hour}
	d := revised(7, OrderStrict)
	d.Forwards = []NewForward{forward}
	accept(t, s, d)
	d.DeliveryID, d.Forwards = "late", nil
	r := accept(t, s, d)
	if _, err := s.Route(t.Context(), r.ID, []NewForward{forward, {Destination: "plain", GapTimeout: time.Hour}}, act); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, `SELECT count(DISTINCT (ordering, lane, revision, gap_timeout, waiting, state, hold_reason)) FROM hooklatch.outbox
		WHERE destination = 'app' AND lane IS NOT NULL`); n != 1 {
		t.Errorf("%d kinds of forwards, want 1", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE destination = 'plain' AND lane IS NULL AND gap_timeout IS NULL`); n != 1 {
		t.Error("a forward without ordering stands in a lane")
	}
	id := unrouted(t, s, pool, "without a resource")
	if made, err := s.Route(t.Context(), id, []NewForward{forward}, act); err != nil || len(made) != 1 {
		t.Errorf("%v, %v", made, err)
	}
}

func TestP14_RouteRefusesWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	id := unrouted(t, s, pool, "dlv_1")
	forwards := []NewForward{{Destination: "app"}}
	if _, err := s.Route(t.Context(), id+1, forwards, act); !errors.Is(err, ErrNotFound) {
		t.Errorf("a delivery that is not there: %v", err)
	}
	if _, err := s.Route(t.Context(), id, append(forwards, forwards...), act); err == nil {
		t.Error("one destination twice is taken")
	}
	for _, a := range []Act{{}, {Actor: "ann"}, {Reason: "so"}, {Actor: "ann", Reason: "\x00"}} {
		if _, err := s.Route(t.Context(), id, forwards, a); err == nil {
			t.Errorf("%+v is taken", a)
		}
	}
	exec(t, pool, `DELETE FROM hooklatch.payload`)
	if made, err := s.Route(t.Context(), id, forwards, act); !errors.Is(err, ErrPruned) || made != nil {
		t.Errorf("pruned: %v, %v", made, err)
	}
	if n := count(t, pool, `SELECT (SELECT count(*) FROM hooklatch.outbox) + (SELECT count(*) FROM hooklatch.audit)`); n != 0 {
		t.Errorf("%d rows were left behind", n)
	}
}

func TestX47_RouteManyAtOnceMakesOneForwardEach(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	id := unrouted(t, s, pool, "dlv_1")
	var mu sync.Mutex
	var all []string
	var acts sync.WaitGroup
	for n := range 8 {
		acts.Go(func() {
			forwards := []NewForward{{Destination: "app"}, {Destination: "shop"}}
			if n%2 == 1 {
				slices.Reverse(forwards) // two orders would deadlock
			}
			made, err := s.Route(t.Context(), id, forwards, Act{Actor: fmt.Sprint("a", n), Reason: "all at once"})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, made...)
		})
	}
	acts.Wait()
	slices.Sort(all)
	if !slices.Equal(all, []string{"app", "shop"}) {
		t.Errorf("made %v", all)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit`); n != 1 {
		t.Errorf("%d rows of audit, want 1", n)
	}
}

// Retention locks a delivery before it removes the body. An act that comes meanwhile
// waits, and then sees that the body is gone.
func TestRouteWhileTheBodyIsRemoved(t *testing.T) {
	t.Parallel()
	for _, removed := range []bool{true, false} {
		t.Run(fmt.Sprint("removed ", removed), func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			id := unrouted(t, s, pool, "dlv_1")
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			if _, err := tx.Exec(t.Context(), `SELECT FROM hooklatch.inbox WHERE id = $1 FOR UPDATE`, id); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `DELETE FROM hooklatch.payload WHERE inbox_id = $1`, id); err != nil {
				t.Fatal(err)
			}
			var made []string
			var routed sync.WaitGroup
			routed.Go(func() { made, err = s.Route(t.Context(), id, []NewForward{{Destination: "app"}}, act) })
			for count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
			}
			end := tx.Rollback
			if removed {
				end = tx.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			routed.Wait()
			switch n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox`); {
			case removed && (!errors.Is(err, ErrPruned) || n != 0):
				t.Errorf("made %v, %v; %d forwards", made, err, n)
			case !removed && (err != nil || len(made) != 1 || n != 1):
				t.Errorf("made %v, %v; %d forwards", made, err, n)
			}
		})
	}
}

func TestUnroutedComeOldestFirst(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	accept(t, s, delivery("routed", "x"))
	other := delivery("other", "x")
	other.Source, other.Forwards = "src2", nil
	accept(t, s, other)
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	var want []int64
	for n := range findPage + 3 { // more than a page, and two of them at one time
		d := delivery(fmt.Sprint("dlv_", n), "x")
		d.Forwards, d.EventType = nil, []string{"a", "b"}[n%2]
		id := accept(t, s, d).ID
		exec(t, pool, `UPDATE hooklatch.inbox SET received_at = $2 WHERE id = $1`, id, begin.Add(time.Duration(n/2)*time.Second))
		want = append(want, id)
	}
	list := func(f UnroutedFilter) (ids []int64) {
		for d, err := range s.Unrouted(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, d.ID)
		}
		return ids
	}
	if got := list(UnroutedFilter{Source: "src1"}); !slices.Equal(got, want) {
		t.Errorf("%d deliveries, want %d in the order of their receipt", len(got), len(want))
	}
	if got := list(UnroutedFilter{Source: "src1", EventType: "b", Since: begin.Add(time.Second), Until: begin.Add(3 * time.Second)}); !slices.Equal(got, []int64{want[3], want[5]}) {
		t.Errorf("filtered: %v, want %d and %d", got, want[3], want[5])
	}
	if got := list(UnroutedFilter{Source: "src3"}); len(got) != 0 {
		t.Errorf("of no source: %v", got)
	}
	// Those that get forwards while the list is read do not disturb it.
	n := 0
	for d, err := range s.Unrouted(t.Context(), UnroutedFilter{Source: "src1"}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Route(t.Context(), d.ID, []NewForward{{Destination: "app"}}, act); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if left := list(UnroutedFilter{Source: "src1"}); n != len(want) || len(left) != 0 {
		t.Errorf("%d routed, %d left", n, len(left))
	}
}

// A page costs what it reads, however many deliveries of others have forwards.
func TestUnroutedReadsLittle(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	fill(t, pool, 1, 20_000)
	exec(t, pool, `UPDATE hooklatch.inbox SET source = 'src2'`)
	exec(t, pool, `ANALYZE hooklatch.inbox, hooklatch.outbox`)
	for n := range 50 {
		unrouted(t, s, pool, fmt.Sprint("dlv_", n))
	}
	forgetReads(t, s, pool)
	n := 0
	for _, err := range s.Unrouted(t.Context(), UnroutedFilter{Source: "src1"}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if read := rowsRead(t, s, pool); n != 50 || read > 1000 {
		t.Errorf("%d deliveries, %d rows read", n, read)
	}
}

// Whatever of the two comes first for a delivery, no forward is left without a body.
func TestRouteBesidePrune(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	var ids []int64
	for n := range 60 {
		ids = append(ids, unrouted(t, s, pool, fmt.Sprint("dlv_", n)))
	}
	// Retention comes from the oldest on, and waits for the half of them.
	var routed, pruned int
	half := make(chan struct{})
	var pruning sync.WaitGroup
	pruning.Go(func() {
		<-half
		for p, err := range s.Prune(t.Context(), Retention{Bodies: time.Now()}) {
			if err != nil {
				t.Error(err)
			}
			pruned += p.Rows
		}
	})
	slices.Reverse(ids)
	for n, id := range ids {
		if n == len(ids)/2 {
			close(half)
		}
		switch made, err := s.Route(t.Context(), id, []NewForward{{Destination: "app"}}, act); {
		case err == nil && len(made) == 1:
			routed++
		case !errors.Is(err, ErrPruned):
			t.Errorf("made %v, %v", made, err)
		}
	}
	pruning.Wait()
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox o WHERE NOT EXISTS (SELECT FROM hooklatch.payload p WHERE p.inbox_id = o.inbox_id)`); n != 0 {
		t.Errorf("%d forwards without a body", n)
	}
	if routed+pruned < len(ids) {
		t.Errorf("%d routed and %d pruned of %d", routed, pruned, len(ids))
	}
	t.Logf("%d routed, %d pruned", routed, pruned)
}

// Who is routed after a later revision was applied comes too late, like everybody.
func TestRouteDoesNotGoBackwards(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	late := revised(2, OrderLatest)
	forwards := late.Forwards
	late.Forwards = nil
	id := accept(t, s, late).ID
	accept(t, s, revised(3, OrderLatest))
	if err := s.Settle(t.Context(), settlement(claimOne(t, s, time.Time{}), OutcomeAccepted, "2xx")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Route(t.Context(), id, forwards, act); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 9, Lease: time.Minute}); err != nil || len(got) != 0 {
		t.Errorf("claimed %+v, %v", got, err)
	}
	if f := forwardOf(t, s, id); f.State != Superseded {
		t.Errorf("state %s", f.State)
	}
}
