package inbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// standings are the forwards at a destination: delivery, state, and why.
func standings(t testing.TB, pool *pgxpool.Pool, destination string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT concat_ws(' ', i.delivery_id, o.state, o.hold_reason, o.blocked_reason)
		FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id WHERE o.destination = $1 ORDER BY i.id`, destination)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// clearAll clears app in small transactions until nothing is done any more.
func clearAll(t testing.TB, s *Store, to string) (all Cleared) {
	t.Helper()
	for {
		done, err := s.ClearDestination(t.Context(), Clearing{Act: me, Destination: "app", To: to, Limit: 3})
		if err != nil {
			t.Fatal(err)
		}
		if done == (Cleared{}) {
			return all
		}
		all.Moved, all.Cancelled = all.Moved+done.Moved, all.Cancelled+done.Cancelled
	}
}

// everyState puts a forward of each open state to app, and returns the one in flight.
func everyState(t testing.TB, s *Store, pool *pgxpool.Pool) (inFlight Forward) {
	t.Helper()
	accept(t, s, delivery("accepted", "x"))
	drain(t, s)
	deadLetter(t, s, delivery("dead", "x"))
	accept(t, s, delivery("retry", "x"))
	settle1(t, s, claimOne(t, s, time.Time{}), OutcomeRetry)
	exec(t, pool, `UPDATE hooklatch.outbox SET next_attempt_at = now() + interval '1 hour' WHERE state = 'retry_wait'`)
	accept(t, s, delivery("flying", "x"))
	inFlight = claimOne(t, s, time.Time{})
	person := delivery("person", "x")
	person.Forwards[0].Hold = true
	accept(t, s, person)
	arrive(t, s, OrderStrict, 1)
	claimed, _ := claimAll(t, s, time.Time{})
	settle1(t, s, claimed[0], OutcomeAccepted)
	arrive(t, s, OrderStrict, 3, 4)
	if all, _ := claimAll(t, s, time.Time{}); len(all) != 0 {
		t.Fatalf("void: %d claimed", len(all))
	}
	for n := range 5 {
		accept(t, s, delivery(fmt.Sprint("new-", n), "x"))
	}
	return inFlight
}

// X48: what is cancelled with its destination has a line of audit each; what is being
// tried is left to end by itself.
func TestX48_ClearingCancelsWhatNobodyIsTrying(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	saveDestinations(t, s, 0, Destination{Name: "app", URL: "http://app"})
	flying := everyState(t, s, pool)
	if done := clearAll(t, s, ""); done != (Cleared{Cancelled: 10}) {
		t.Errorf("done %+v", done)
	}
	wantLines(t, standings(t, pool, "app"), "accepted accepted", "dead cancelled", "retry cancelled", "flying pending", "person cancelled", "r-1 accepted",
		"r-3 cancelled", "r-4 cancelled", "new-0 cancelled", "new-1 cancelled", "new-2 cancelled", "new-3 cancelled", "new-4 cancelled")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE action = 'cancel' AND outbox_id IS NOT NULL AND actor = $1`, me.Actor); n != 10 {
		t.Errorf("%d lines of audit", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE detail = 'it was held, gap at app'`); n != 2 {
		t.Errorf("%d lines of audit say what held them", n)
	}
	if err := s.RemoveDestination(t.Context(), "app", me, ""); !errors.Is(err, ErrState) {
		t.Errorf("remove while one is in flight: %v", err)
	}
	settle1(t, s, flying, OutcomeRetry)
	if done := clearAll(t, s, ""); done != (Cleared{Cancelled: 1}) {
		t.Errorf("then done %+v", done)
	}
	if open, err := s.OpenDestinations(t.Context(), nil); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
	if err := s.RemoveDestination(t.Context(), "app", me, "11 forwards cancelled"); err != nil {
		t.Fatal(err)
	}
	if d := destinationOf(t, s, "app"); d.RemovedAt.IsZero() {
		t.Error("it is not removed")
	}
	lines := history(t, s, EventFilter{})
	if last := lines[len(lines)-1]; last != "removed "+me.Actor+" "+me.Reason+" 11 forwards cancelled" {
		t.Errorf("history ends with %q", last)
	}
	arrive(t, s, OrderStrict, 5) // of what is missing before it, 3 and 4 were cancelled
	if sent := drain(t, s); len(sent) != 0 {
		t.Errorf("sent %v", sent)
	}
	arrive(t, s, OrderStrict, 2)
	wantLines(t, drain(t, s), "r-2", "r-5")
}

// A moved forward begins anew at the other destination; a dead letter stays one; what is
// there already is not made twice.
func TestX48_ClearingMoves(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	both := delivery("both", "x")
	both.Forwards = append(both.Forwards, NewForward{Destination: "other"})
	everyState(t, s, pool)
	accept(t, s, both)
	told := map[string]int{}
	s.cfg.OnForwards = func(destination string) { told[destination]++ }
	if done := clearAll(t, s, "other"); done != (Cleared{Moved: 10, Cancelled: 1}) {
		t.Errorf("done %+v", done)
	}
	if told["other"] == 0 || told["app"] != 0 {
		t.Errorf("told %v", told)
	}
	wantLines(t, standings(t, pool, "other"), "dead blocked moved", "retry pending", "person held person", "r-3 pending", "r-4 pending",
		"new-0 pending", "new-1 pending", "new-2 pending", "new-3 pending", "new-4 pending", "both pending")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE action = 'move' AND detail LIKE '%, moved to other'`); n != 11 {
		t.Errorf("%d lines of audit", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE destination = 'other' AND (attempts > 0 OR expires_at < now() + interval '23 hours')`); n != 0 {
		t.Errorf("%d of them do not begin anew", n)
	}
	ids := drainAt(t, s, "other")
	slices.Sort(ids)
	wantLines(t, ids, "both", "new-0", "new-1", "new-2", "new-3", "new-4", "retry") // 3 and 4 wait for 2 there, too
	second := ofResource(OrderStrict, "r", 2)
	second.Forwards[0].Destination = "other"
	accept(t, s, second)
	wantLines(t, drainAt(t, s, "other"), "r-2", "r-3", "r-4")
}

// drainAt sends what is due at a destination, and returns it in its order.
func drainAt(t testing.TB, s *Store, destination string) (ids []string) {
	t.Helper()
	for {
		all, err := s.Claim(t.Context(), ClaimRequest{Destination: destination, Limit: 50, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			return ids
		}
		for _, f := range all {
			ids = append(ids, f.Delivery.DeliveryID)
			settle1(t, s, f, OutcomeAccepted)
		}
	}
}

// What waits behind a revision that is being tried is moved with it, or after it: the
// other destination gets all of them, in order.
func TestClearingMovesALaneWhenNothingOfItIsTried(t *testing.T) {
	for _, ordering := range []Ordering{OrderLatest, OrderStrict} {
		s, _ := newStore(t)
		wholeAtEnd(t, s.pool)
		arrive(t, s, ordering, 1, 2, 3)
		first := claimOne(t, s, time.Time{})
		accept(t, s, delivery("alone", "x"))
		if done := clearAll(t, s, "other"); done != (Cleared{Moved: 1}) {
			t.Errorf("%s: %+v while the first is tried, want the one that is alone", ordering, done)
		}
		settle1(t, s, first, OutcomeRetry)
		if done := clearAll(t, s, "other"); done != (Cleared{Moved: 3}) {
			t.Errorf("%s: %+v", ordering, done)
		}
		wantLines(t, drainAt(t, s, "other"), "alone", "r-1", "r-2", "r-3")
	}
}

// A lane of which a part was taken away goes on with the rest.
func TestClearingLetsLanesGoOn(t *testing.T) {
	for _, ordering := range []Ordering{OrderLatest, OrderStrict} {
		s, _ := newStore(t)
		wholeAtEnd(t, s.pool)
		arrive(t, s, ordering, 1, 2, 3, 4, 5)
		all, _ := claimAll(t, s, time.Time{})
		settle1(t, s, all[0], OutcomeReleased) // the others wait behind it
		done, err := s.ClearDestination(t.Context(), Clearing{Act: me, Destination: "app", Limit: 1})
		if err != nil || done.Cancelled != 1 {
			t.Fatalf("%s: %+v, %v", ordering, done, err)
		}
		if sent := drain(t, s); len(sent) == 0 || sent[len(sent)-1] != "r-5" {
			t.Errorf("%s: sent %v", ordering, sent)
		}
	}
}

func TestClearingRefuses(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, delivery("dlv_1", "x"))
	for name, c := range map[string]Clearing{
		"no actor":  {Act: Act{Reason: "x"}, Destination: "app"},
		"no reason": {Act: Act{Actor: "x"}, Destination: "app"},
		"to itself": {Act: me, Destination: "app", To: "app"},
	} {
		if _, err := s.ClearDestination(t.Context(), c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	wantLines(t, standings(t, pool, "app"), "dlv_1 pending")
	if err := s.RemoveDestination(t.Context(), "app", me, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("remove the unknown: %v", err)
	}
}

func TestOpenDestinationsFindsEveryOpenState(t *testing.T) {
	s, pool := newStore(t)
	saveDestinations(t, s, 0, Destination{Name: "app", URL: "http://app"}, Destination{Name: "idle", URL: "http://idle"})
	accept(t, s, delivery("dlv_1", "x"))
	arrive(t, s, OrderLatest, 1)
	for _, c := range []struct {
		set  string
		open bool
	}{
		{`state = 'accepted'`, false}, {`state = 'superseded'`, false}, {`state = 'cancelled'`, false},
		{`state = CASE WHEN lane IS NULL THEN 'pending' ELSE 'accepted' END`, true}, {`state = CASE WHEN lane IS NOT NULL THEN 'pending' ELSE 'accepted' END, waiting = true`, true},
		{`state = CASE WHEN lane IS NULL THEN 'held' ELSE 'accepted' END`, true}, {`state = CASE WHEN lane IS NULL THEN 'blocked' ELSE 'accepted' END`, true},
		{`state = CASE WHEN lane IS NOT NULL THEN 'blocked' ELSE 'accepted' END`, true}, {`state = CASE WHEN lane IS NOT NULL THEN 'held' ELSE 'accepted' END`, true},
		{`state = CASE WHEN lane IS NULL THEN 'retry_wait' ELSE 'accepted' END, lease_until = now() + interval '1 hour'`, true},
	} {
		exec(t, pool, `UPDATE hooklatch.outbox SET `+c.set)
		drains := strings.Contains(c.set, "pending") || strings.Contains(c.set, "retry_wait")
		if got, err := s.Drains(t.Context(), "app"); err != nil || got != drains {
			t.Errorf("%s: drains %v, %v", c.set, got, err)
		}
		open, err := s.OpenDestinations(t.Context(), nil)
		if err != nil || (len(open) == 1 && open[0] == "app") != c.open || len(open) > 1 {
			t.Errorf("%s: %v, %v", c.set, open, err)
		}
		if open, err := s.OpenDestinations(t.Context(), []string{"app", "new"}); err != nil || len(open) != 0 {
			t.Errorf("%s: %v, %v of those that are not configured", c.set, open, err)
		}
		if err := s.RemoveDestination(t.Context(), "app", me, ""); errors.Is(err, ErrState) != c.open {
			t.Errorf("%s: remove: %v", c.set, err)
		}
	}
}

// While workers claim, settle and lose leases at both destinations, each delivery ends
// once at one of them, and no lane goes backwards.
func TestX48_MovingAmongWorkers(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	orderings := []Ordering{OrderNone, OrderLatest, OrderStrict}
	const resources, revisions = 9, 12
	for revision := range int64(revisions) {
		for r := range resources {
			d := ofResource(orderings[r%3], fmt.Sprint("r", r), revision+1)
			accept(t, s, d)
		}
	}
	var mu sync.Mutex
	taken := map[string]int64{} // by destination and resource: the revision taken last
	var workers sync.WaitGroup
	moved := make(chan struct{})
	for w := range 4 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			destination := []string{"app", "other"}[w%2]
			for idle := 0; idle < 3; {
				all, err := s.Claim(t.Context(), ClaimRequest{Destination: destination, Limit: 4, Lease: time.Minute})
				if err != nil && !errors.Is(err, ErrBusy) {
					t.Error(err)
					return
				}
				select {
				case <-moved:
					if len(all) == 0 {
						idle++
					}
				default:
				}
				for _, f := range all {
					outcome := []Outcome{OutcomeAccepted, OutcomeAccepted, OutcomeRetry, OutcomeReleased}[random.IntN(4)]
					if outcome == OutcomeAccepted && f.Ordering != OrderNone {
						mu.Lock()
						lane := destination + " " + f.Delivery.ResourceID
						if *f.Delivery.Revision < taken[lane] {
							t.Errorf("%s went back from %d to %d", lane, taken[lane], *f.Delivery.Revision)
						}
						taken[lane] = *f.Delivery.Revision
						mu.Unlock()
					}
					if err := s.Settle(t.Context(), settlement(f, outcome, classFor[outcome])); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	var done Cleared
	for deadline := time.Now().Add(30 * time.Second); ; {
		some, err := s.ClearDestination(t.Context(), Clearing{Act: me, Destination: "app", To: "other", Limit: 5})
		if err != nil && !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		done.Moved, done.Cancelled = done.Moved+some.Moved, done.Cancelled+some.Cancelled
		if some == (Cleared{}) && count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE destination = 'app' AND state IN ('pending', 'retry_wait', 'held', 'blocked')`) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still open: %s", strings.Join(standings(t, pool, "app"), ", "))
		}
	}
	close(moved)
	workers.Wait()
	t.Logf("%+v", done)
	if done.Moved == 0 || done.Cancelled != 0 {
		t.Errorf("void: %+v", done)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state NOT IN ('accepted', 'superseded', 'cancelled')`); n != 0 {
		t.Errorf("%d forwards are open in the end: %s", n, strings.Join(standings(t, pool, "other"), ", "))
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox i WHERE 1 <> (SELECT count(*) FROM hooklatch.outbox o WHERE o.inbox_id = i.id AND state IN ('accepted', 'superseded'))`); n != 0 {
		t.Errorf("%d deliveries did not end once", n)
	}
}

// What is asked about a destination reads what is open there, and none of what is done.
func TestDestinationsAreLookedAtWithoutTheirHistory(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	saveDestinations(t, s, 0, Destination{Name: "app", URL: "http://app"}, Destination{Name: "idle", URL: "http://idle"})
	fill(t, pool, 1, 20_000)
	deadLetter(t, s, delivery("dead", "x"))
	accept(t, s, delivery("dlv_1", "x"))
	arrive(t, s, OrderLatest, 1, 2, 3)
	forgetReads(t, s, pool)
	if open, err := s.OpenDestinations(t.Context(), nil); err != nil || len(open) != 1 {
		t.Errorf("open %v, %v", open, err)
	}
	if drains, err := s.Drains(t.Context(), "app"); err != nil || !drains {
		t.Errorf("drains %v, %v", drains, err)
	}
	if waiting, err := s.WaitingByRevision(t.Context(), "app"); err != nil || len(waiting) != 1 || waiting[0].Forwards == 0 {
		t.Errorf("waiting %v, %v", waiting, err)
	}
	if done, err := s.ClearDestination(t.Context(), Clearing{Act: me, Destination: "app", To: "idle"}); err != nil || done.Moved == 0 {
		t.Errorf("done %+v, %v", done, err)
	}
	tellReads(t, s)
	if n := rowsRead(t, s, pool); n > 500 {
		t.Errorf("%d rows were read", n)
	}
}

// What is in flight does not wait, alone or in a lane: the parts would exceed the whole.
func TestWaitingLeavesOutWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	saveDestinations(t, s, 0, Destination{Name: "app", URL: "http://app"})
	waits := func(want int) {
		t.Helper()
		waiting, err := s.WaitingByRevision(t.Context(), "app")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, w := range waiting {
			n += w.Forwards
		}
		if n != want {
			t.Errorf("%d wait, want %d", n, want)
		}
	}
	accept(t, s, delivery("dlv_1", "x"))
	arrive(t, s, OrderStrict, 1, 2)
	waits(3)
	leased, _ := claimAll(t, s, time.Now())
	if len(leased) != 2 {
		t.Fatalf("%d leased, want the lone one and the head of the lane", len(leased))
	}
	waits(1)
}
