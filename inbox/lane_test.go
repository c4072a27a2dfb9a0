package inbox

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	if err := s.Settle(t.Context(), settlement(f, outcome, "2xx")); err != nil {
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
