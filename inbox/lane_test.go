package inbox

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ofResource is a delivery of one revision of a resource, whose id is "resource-revision".
func ofResource(ordering Ordering, resource string, revision int64) Delivery {
	d := delivery(fmt.Sprint(resource, "-", revision), fmt.Sprint("body ", revision))
	d.ResourceType, d.ResourceID, d.Revision = "invoice", resource, &revision
	d.Forwards = []NewForward{{Destination: "app", Ordering: ordering}}
	return d
}

// arrive accepts revisions of resource r in this order.
func arrive(t testing.TB, s *Store, ordering Ordering, revisions ...int64) {
	t.Helper()
	for _, revision := range revisions {
		accept(t, s, ofResource(ordering, "r", revision))
	}
}

// claimAll claims what there is and returns it with the ids of the deliveries.
func claimAll(t testing.TB, s *Store, now time.Time) (all []Forward, ids []string) {
	t.Helper()
	all, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 50, Lease: time.Minute, MaxAttempts: 3, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		ids = append(ids, f.Delivery.DeliveryID)
	}
	return all, ids
}

func settle1(t testing.TB, s *Store, f Forward, outcome Outcome) {
	t.Helper()
	if err := s.Settle(t.Context(), settlement(f, outcome, classFor[outcome])); err != nil {
		t.Fatal(err)
	}
}

// drain works until nothing is due and returns what was sent, in order.
func drain(t testing.TB, s *Store) (sent []string) {
	t.Helper()
	for {
		all, ids := claimAll(t, s, time.Time{})
		if len(all) == 0 {
			return sent
		}
		sent = append(sent, ids...)
		for _, f := range all {
			settle1(t, s, f, OutcomeAccepted)
		}
	}
}

// states is the state of each forward of resource r, by revision.
func states(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT revision || ' ' || state || CASE WHEN waiting THEN ' waiting' ELSE '' END
		|| coalesce(' ' || hold_reason, '') || CASE WHEN lease_until IS NULL THEN '' ELSE ' leased' END
		FROM hooklatch.outbox WHERE lane IS NOT NULL ORDER BY revision, id`)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

func wantStates(t testing.TB, pool *pgxpool.Pool, want string) {
	t.Helper()
	if got := states(t, pool); got != want {
		t.Errorf("states %q\nwant   %q", got, want)
	}
}

func wantIDs(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

// E8: SKIP LOCKED on forwards alone would hand revision 2 to the second worker.
func TestCaseE8_OneInFlightOfAResource(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderLatest, 1, 2)
	first, ids := claimAll(t, s, time.Time{})
	wantIDs(t, ids, "r-1")
	_, ids = claimAll(t, s, time.Time{})
	wantIDs(t, ids)
	wantStates(t, pool, "1 pending leased, 2 pending waiting")
	settle1(t, s, first[0], OutcomeAccepted)
	wantStates(t, pool, "1 accepted, 2 pending")
	_, ids = claimAll(t, s, time.Time{})
	wantIDs(t, ids, "r-2")
}

// E8: twenty resources with ten revisions each, and workers that claim at once.
func TestCaseE8_WorkersKeepTheOrderOfEachResource(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	const resources, revisions = 20, 10
	for revision := range revisions {
		for r := range resources {
			accept(t, s, ofResource(OrderLatest, fmt.Sprint("r", r), int64(revision)))
		}
	}
	var mu sync.Mutex
	sent, open := map[string][]int64{}, map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 7, Lease: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, f := range got {
					if open[f.Delivery.ResourceID] {
						t.Errorf("two of %s in flight", f.Delivery.ResourceID)
					}
					open[f.Delivery.ResourceID] = true
					sent[f.Delivery.ResourceID] = append(sent[f.Delivery.ResourceID], *f.Delivery.Revision)
				}
				left := resources * revisions
				for _, of := range sent {
					left -= len(of)
				}
				mu.Unlock()
				for _, f := range got {
					mu.Lock()
					open[f.Delivery.ResourceID] = false // from here on another may have the next
					mu.Unlock()
					if err := s.Settle(t.Context(), settlement(f, OutcomeAccepted, "2xx")); err != nil {
						t.Error(err)
					}
				}
				if left == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	for r, of := range sent {
		if !slices.IsSorted(of) || len(of) != revisions {
			t.Errorf("%s was sent as %v", r, of)
		}
	}
}

func TestCoalesceSendsTheNewestOfThoseThatWait(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderCoalesce, 1)
	first, _ := claimAll(t, s, time.Time{})
	arrive(t, s, OrderCoalesce, 2, 4, 3)
	_, ids := claimAll(t, s, time.Time{})
	wantIDs(t, ids)
	settle1(t, s, first[0], OutcomeAccepted)
	wantIDs(t, drain(t, s), "r-4")
	wantStates(t, pool, "1 accepted, 2 superseded, 3 superseded, 4 accepted")
}

func TestStrictWaitsForWhatIsMissing(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderStrict, 3)
	wantIDs(t, drain(t, s), "r-3")
	arrive(t, s, OrderStrict, 7, 6)
	wantIDs(t, drain(t, s))
	wantStates(t, pool, "3 accepted, 6 held gap, 7 held waiting gap")
	arrive(t, s, OrderStrict, 5)
	wantIDs(t, drain(t, s))
	arrive(t, s, OrderStrict, 4)
	wantIDs(t, drain(t, s), "r-4", "r-5", "r-6", "r-7")
}

// D6: the tombstone of a deleted resource stays, also when its body is gone.
func TestCaseD6_LateUpdateDoesNotBringAResourceBack(t *testing.T) {
	events := map[int64]bool{4: false, 5: true, 6: false} // deleted, by revision
	for _, order := range [][]int64{{4, 5, 6}, {4, 6, 5}, {5, 4, 6}, {5, 6, 4}, {6, 4, 5}, {6, 5, 4}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			var applied []string
			for _, revision := range order {
				d := ofResource(OrderLatest, "r", revision)
				d.Deleted = events[revision]
				accept(t, s, d)
				applied = append(applied, drain(t, s)...)
				exec(t, pool, `DELETE FROM hooklatch.payload`)
				if revision == 5 && slices.Index(order, 6) > slices.Index(order, 5) {
					if n := count(t, pool, `SELECT count(*) FROM hooklatch.resource WHERE applied = 5 AND deleted`); n != 1 {
						t.Error("there is no tombstone")
					}
				}
			}
			if n := count(t, pool, `SELECT count(*) FROM hooklatch.resource WHERE applied = 6 AND passed = 6 AND NOT deleted`); n != 1 {
				t.Error("revision 6 is not applied at the end")
			}
			if !slices.IsSorted(applied) || applied[len(applied)-1] != "r-6" {
				t.Errorf("sent %v", applied)
			}
		})
	}
}

// D7: revisions are numbers, up to the largest.
func TestCaseD7_RevisionsAreNumbers(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderLatest, 10, 9)
	accept(t, s, ofResource(OrderStrict, "max", math.MaxInt64))
	accept(t, s, ofResource(OrderStrict, "zero", 0))
	wantIDs(t, drain(t, s), "r-9", "max-9223372036854775807", "zero-0", "r-10")
	invalid := ofResource(OrderLatest, "r", 0)
	invalid.DeliveryID, invalid.Revision, invalid.MetaError = "r-invalid", nil, "the revision is no number"
	accept(t, s, invalid)
	wantIDs(t, drain(t, s), "r-invalid")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.resource WHERE resource_id = 'r' AND applied = 10`); n != 1 {
		t.Error("an invalid revision moved the lane")
	}
}

// E9: the late finisher of a lane is fenced, whatever the lane has done since.
func TestCaseE9_LateFinisherOfALaneIsFenced(t *testing.T) {
	for name, next := range map[string]func(*testing.T, *Store, *pgxpool.Pool){
		"it was claimed again": func(t *testing.T, s *Store, pool *pgxpool.Pool) { claimAll(t, s, later()) },
		"an earlier one came": func(t *testing.T, s *Store, pool *pgxpool.Pool) {
			arrive(t, s, OrderLatest, 4)
			claimAll(t, s, later())
		},
		"it was cancelled": func(t *testing.T, s *Store, pool *pgxpool.Pool) {
			exec(t, pool, `UPDATE hooklatch.outbox SET lease_until = now()`)
			if err := s.Cancel(t.Context(), 1, me); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			wholeAtEnd(t, s.pool)
			arrive(t, s, OrderLatest, 5)
			late, _ := claimAll(t, s, time.Time{})
			next(t, s, pool)
			before := states(t, pool)
			if err := s.Settle(t.Context(), settlement(late[0], OutcomeAccepted, "2xx")); !errors.Is(err, ErrLeaseLost) {
				t.Errorf("settle: %v, want ErrLeaseLost", err)
			}
			if _, err := s.Renew(t.Context(), late[0], time.Hour); !errors.Is(err, ErrLeaseLost) {
				t.Errorf("renew: %v, want ErrLeaseLost", err)
			}
			wantStates(t, pool, before)
			if n := count(t, pool, `SELECT count(*) FROM hooklatch.resource WHERE applied IS NOT NULL OR passed IS NOT NULL`); n != 0 {
				t.Error("the late finisher moved the lane")
			}
			if l := ledger(t, s, late[0].ID); !slices.Equal(l, []string{"1 unknown", "1 2xx late"}) {
				t.Errorf("ledger %v", l)
			}
		})
	}
}

// A lease that ran out is parked behind an earlier revision, and its turn comes again.
func TestLostLeaseWaitsBehindAnEarlierRevision(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderLatest, 5)
	claimAll(t, s, time.Time{})
	arrive(t, s, OrderLatest, 4)
	all, ids := claimAll(t, s, later())
	wantIDs(t, ids, "r-4")
	wantStates(t, pool, "4 pending leased, 5 pending waiting")
	settle1(t, s, all[0], OutcomeAccepted)
	_, ids = claimAll(t, s, later())
	wantIDs(t, ids, "r-5")
}

// E11: a dead letter holds its lane under strict alone, visibly.
func TestCaseE11_DeadLetterAtTheHead(t *testing.T) {
	for _, c := range []struct {
		ordering Ordering
		sent     []string
		states   string
	}{
		{OrderLatest, []string{"r-2", "r-3"}, "1 blocked, 2 accepted, 3 accepted"},
		{OrderCoalesce, []string{"r-3"}, "1 blocked, 2 superseded, 3 accepted"},
		{OrderStrict, nil, "1 blocked, 2 pending waiting, 3 pending waiting"},
	} {
		t.Run(string(c.ordering), func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			arrive(t, s, c.ordering, 1)
			first, _ := claimAll(t, s, time.Time{})
			arrive(t, s, c.ordering, 2, 3)
			settle1(t, s, first[0], OutcomeBlocked)
			accept(t, s, ofResource(c.ordering, "other", 1))
			wantIDs(t, slices.DeleteFunc(drain(t, s), func(id string) bool { return id == "other-1" }), c.sent...)
			exec(t, pool, `DELETE FROM hooklatch.outbox WHERE inbox_id IN (SELECT id FROM hooklatch.inbox WHERE resource_id = 'other')`)
			wantStates(t, pool, c.states)
			if c.ordering != OrderStrict {
				return
			}
			if err := s.Replay(t.Context(), first[0].ID, ReplayRequest{Act: me}); err != nil {
				t.Fatal(err)
			}
			wantIDs(t, drain(t, s), "r-1", "r-2", "r-3")
		})
	}
}

// E11: what always fails does not hide what is behind it.
func TestCaseE11_PoisonDoesNotHideTheGoodOne(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	for n := range 10 {
		accept(t, s, ofResource(OrderLatest, fmt.Sprint("bad", n), 1))
	}
	accept(t, s, ofResource(OrderLatest, "good", 1))
	var sent []string
	for range 2 {
		got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 10, Lease: time.Minute, MaxAttempts: 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got {
			sent = append(sent, f.Delivery.DeliveryID)
			st := settlement(f, OutcomeRetry, "5xx")
			st.Delay = time.Minute
			if err := s.Settle(t.Context(), st); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Contains(sent, "good-1") {
		t.Errorf("sent %v", sent)
	}
}

// A retry keeps the head in its place; under coalesce a newer one takes over.
func TestRetryKeepsTheHeadInItsPlace(t *testing.T) {
	for _, c := range []struct {
		ordering Ordering
		soon     []string // before the retry is due
		states   string
	}{
		{OrderLatest, nil, "1 retry_wait, 2 pending waiting, 3 pending waiting"},
		{OrderStrict, nil, "1 retry_wait, 2 pending waiting, 3 pending waiting"},
		{OrderCoalesce, []string{"r-3"}, "1 superseded, 2 superseded, 3 accepted"},
	} {
		t.Run(string(c.ordering), func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			wholeAtEnd(t, s.pool)
			arrive(t, s, c.ordering, 1)
			first, _ := claimAll(t, s, time.Time{})
			arrive(t, s, c.ordering, 2, 3)
			claimAll(t, s, time.Time{}) // they wait now
			st := settlement(first[0], OutcomeRetry, "5xx")
			st.Delay = time.Minute
			if err := s.Settle(t.Context(), st); err != nil {
				t.Fatal(err)
			}
			wantIDs(t, drain(t, s), c.soon...)
			wantStates(t, pool, c.states)
			if c.ordering != OrderCoalesce {
				_, ids := claimAll(t, s, later())
				wantIDs(t, ids, "r-1")
			}
		})
	}
}

// A forward that was given back unsent is still the first of its lane.
func TestReleasedForwardStaysTheFirstOfItsLane(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderStrict, 1, 2)
	first, _ := claimAll(t, s, time.Time{})
	settle1(t, s, first[0], OutcomeReleased)
	wantIDs(t, drain(t, s), "r-1", "r-2")
}

// The handler's transaction moves the lane with it, or not at all.
func TestSettleTxMovesTheLaneWithItsTransaction(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderStrict, 1, 2)
	first, _ := claimAll(t, s, time.Time{})
	for _, commit := range []bool{false, true} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SettleTx(t.Context(), tx, settlement(first[0], OutcomeAccepted, "2xx")); err != nil {
			t.Fatal(err)
		}
		if commit {
			err = tx.Commit(t.Context())
		} else {
			_, ids := claimAll(t, s, time.Time{}) // never waits for it
			wantIDs(t, ids)
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if !commit {
			wantStates(t, pool, "1 pending leased, 2 pending waiting")
		}
	}
	wantStates(t, pool, "1 accepted, 2 pending")
}

// Under REPEATABLE READ the transaction does not see what a claim has parked since: it
// must fail, not leave it parked.
func TestSettleTxUnderRepeatableReadLosesNoPromotion(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderLatest, 1)
	first, _ := claimAll(t, s, time.Time{})
	settleTx := func(between func()) error {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil { // the snapshot is taken here
			t.Fatal(err)
		}
		between()
		if err := s.SettleTx(t.Context(), tx, settlement(first[0], OutcomeAccepted, "2xx")); err != nil {
			return err
		}
		return tx.Commit(t.Context())
	}
	err := settleTx(func() {
		arrive(t, s, OrderLatest, 2)
		claimAll(t, s, time.Time{})
	})
	if !errors.Is(err, ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	if err := settleTx(func() {}); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, drain(t, s), "r-2")
}

// What came late while a later revision was in flight waits, and is superseded when
// that one is accepted, though nothing else ever comes.
func TestLateArrivalBesideALaterOneInFlight(t *testing.T) {
	for _, ordering := range []Ordering{OrderLatest, OrderCoalesce, OrderStrict} {
		s, pool := newStore(t)
		arrive(t, s, ordering, 5)
		first, _ := claimAll(t, s, time.Time{})
		arrive(t, s, ordering, 3, 4)
		claimAll(t, s, time.Time{})
		wantStates(t, pool, "3 pending waiting, 4 pending waiting, 5 pending leased")
		settle1(t, s, first[0], OutcomeAccepted)
		wantIDs(t, drain(t, s))
		wantStates(t, pool, "3 superseded, 4 superseded, 5 accepted")
	}
}
