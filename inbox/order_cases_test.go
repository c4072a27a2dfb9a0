package inbox

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// wantApplied checks how far destination app has come with resource r of source src1.
func wantApplied(t *testing.T, s *Store, name string, revision int64, deleted bool) {
	t.Helper()
	all := resources(t, s, ResourceFilter{Name: name, Source: "src1", Destination: "app"})
	if len(all) != 1 || all[0].Applied == nil || *all[0].Applied != revision || all[0].Deleted != deleted {
		t.Errorf("%+v, want revision %d deleted %v", all, revision, deleted)
	}
}

// withoutBodies removes all bodies that nobody needs, and keeps the identities.
func withoutBodies(t *testing.T, s *Store, pool *pgxpool.Pool) {
	t.Helper()
	for _, err := range s.Prune(t.Context(), Retention{Bodies: time.Now().Add(time.Hour)}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.payload`); n != 0 {
		t.Fatalf("%d bodies are left", n)
	}
}

// D6: a delete, a late update from before it, and a legal creation anew.
func TestCaseD6_EveryOrderOfArrival(t *testing.T) {
	t.Parallel()
	story := map[int64]string{5: "deleted", 4: "updated", 6: "created"}
	for _, order := range [][]int64{{5, 4, 6}, {5, 6, 4}, {4, 5, 6}, {4, 6, 5}, {6, 5, 4}, {6, 4, 5}} {
		for _, way := range []string{"bodies are pruned between", "all at once"} {
			t.Run(fmt.Sprint(order, " ", way), func(t *testing.T) {
				t.Parallel()
				s, pool := newStore(t)
				var sent, want []string
				applied := int64(0)
				for _, n := range order {
					d := ofResource(OrderLatest, "r", n)
					d.EventType, d.Deleted = "report."+story[n], n == 5
					accept(t, s, d)
					if n > applied {
						applied, want = n, append(want, d.DeliveryID)
					}
					if way == "all at once" {
						continue
					}
					sent = append(sent, drain(t, s)...)
					wantApplied(t, s, "invoice/r", applied, applied == 5)
					withoutBodies(t, s, pool)
				}
				if way == "all at once" {
					sent, want = drain(t, s), []string{"r-4", "r-5", "r-6"}
				}
				if !slices.Equal(sent, want) {
					t.Errorf("sent %v, want %v", sent, want)
				}
				wantApplied(t, s, "invoice/r", 6, false)
				if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'superseded'`); n != 3-len(want) {
					t.Errorf("%d superseded, want %d", n, 3-len(want))
				}
			})
		}
	}
}

// E11: what always fails, and is due again at once, does not keep what is good from
// being sent: it is in the next round, or in the one after it where it came late.
func TestCaseE11_PoisonDoesNotHoldTheQueue(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for n := range 10 {
		accept(t, s, delivery(fmt.Sprint("poison_", n), "x"))
	}
	round := func(n int) (ids []string) {
		t.Helper()
		got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 10, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got {
			ids = append(ids, f.Delivery.DeliveryID)
			outcome := OutcomeRetry
			if strings.HasPrefix(f.Delivery.DeliveryID, "good") {
				outcome = OutcomeAccepted
			}
			if len(ids) == 1 {
				accept(t, s, delivery(fmt.Sprint("good_", n), "x")) // while these are tried
			}
			settle1(t, s, f, outcome)
		}
		return ids
	}
	round(0)
	for n := range 5 {
		if ids := round(n + 1); len(ids) != 10 || !slices.Contains(ids, fmt.Sprint("good_", n)) {
			t.Fatalf("round %d took %v", n, ids)
		}
	}
}

// E11: what waits behind a dead letter says so, and goes on once a person has decided.
func TestCaseE11_DeadLetterIsDecidedUpon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		decide func(*Store, int64) error
		sent   []string
	}{
		{"replayed", func(s *Store, id int64) error { return s.Replay(t.Context(), id, ReplayRequest{Act: someone}) }, []string{"r-1", "r-2"}},
		{"cancelled", func(s *Store, id int64) error { return s.Cancel(t.Context(), id, someone) }, []string{"r-2"}},
		{"released", func(s *Store, _ int64) error {
			_, _, err := s.Release(t.Context(), ResourceRef{"t1", "app", "src1", "invoice", "r"}, someone)
			return err
		}, []string{"r-2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := newStore(t)
			arrive(t, s, OrderStrict, 1)
			got, _ := claimAll(t, s, time.Time{})
			arrive(t, s, OrderStrict, 2)
			settle1(t, s, got[0], OutcomeBlocked)
			wantIDs(t, drain(t, s))
			waits := resources(t, s, ResourceFilter{Name: "invoice/r"})[0].Open[1]
			p, err := s.Place(t.Context(), waits.ID)
			if err != nil || p.Ahead == nil || *p.Ahead.Delivery.Revision != 1 || p.Ahead.State != Blocked {
				t.Fatalf("waits behind %+v, %v", p.Ahead, err)
			}
			if err := c.decide(s, got[0].ID); err != nil {
				t.Fatal(err)
			}
			wantIDs(t, drain(t, s), c.sent...)
			wantApplied(t, s, "invoice/r", 2, false)
		})
	}
}

// E11: a replay has one attempt, under the same ids, behind what was due before it.
func TestCaseE11_ReplayJoinsAtTheBack(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	claim := func(limit int) []Forward {
		t.Helper()
		got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: limit, Lease: time.Minute, MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	accept(t, s, delivery("dead", "x"))
	dead := claim(1)[0]
	settle1(t, s, dead, OutcomeBlocked)
	accept(t, s, delivery("before", "x"))
	if err := s.Replay(t.Context(), dead.ID, ReplayRequest{Act: someone}); err != nil {
		t.Fatal(err)
	}
	got := claim(2)
	if len(got) != 2 || got[0].Delivery.DeliveryID != "before" || got[1].ID != dead.ID || got[1].Attempt != 2 || got[1].Delivery.DeliveryID != "dead" {
		t.Fatalf("claimed %+v", got)
	}
	settle1(t, s, got[1], OutcomeRetry)
	if again := claim(2); len(again) != 0 {
		t.Errorf("a replay had a second attempt: %+v", again)
	}
	if f := forwardOf(t, s, got[1].Delivery.ID); f.State != Blocked || f.BlockedReason != ReasonAttemptsExhausted {
		t.Errorf("%+v", f)
	}
}

// What waits for others, or for what is missing, has not had its time. A weekend passes:
// what follows is tried all the same, and what was tried before is not.
func TestDeadlineBeginsWhenTheTurnComes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		waits   func(*testing.T, *Store)
		goes    func(*testing.T, *Store)
		sent    []string
		expired int
	}{
		{"for a gap that closes", func(t *testing.T, s *Store) {
			arrive(t, s, OrderStrict, 1)
			drain(t, s)
			arrive(t, s, OrderStrict, 3, 4)
			drain(t, s)
		},
			func(t *testing.T, s *Store) { arrive(t, s, OrderStrict, 2) }, []string{"r-2", "r-3", "r-4"}, 0},
		{"for a release", func(t *testing.T, s *Store) {
			arrive(t, s, OrderStrict, 1)
			drain(t, s)
			arrive(t, s, OrderStrict, 3, 4)
			drain(t, s)
		},
			func(t *testing.T, s *Store) {
				if _, _, err := s.Release(t.Context(), ResourceRef{"t1", "app", "src1", "invoice", "r"}, someone); err != nil {
					t.Fatal(err)
				}
			}, []string{"r-3", "r-4"}, 0},
		{"behind what is tried too long", func(t *testing.T, s *Store) {
			arrive(t, s, OrderLatest, 1)
			all, _ := claimAll(t, s, time.Time{})
			arrive(t, s, OrderLatest, 2, 3)
			claimAll(t, s, time.Time{}) // they wait now
			settle1(t, s, all[0], OutcomeRetry)
		}, func(*testing.T, *Store) {}, []string{"r-2", "r-3"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			c.waits(t, s)
			for _, sql := range []string{`UPDATE hooklatch.inbox SET received_at = received_at - interval '60 hours'`,
				`UPDATE hooklatch.outbox SET expires_at = expires_at - interval '60 hours'`} {
				exec(t, pool, sql)
			}
			c.goes(t, s)
			wantIDs(t, drain(t, s), c.sent...)
			if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE blocked_reason = $1`, ReasonDeadlinePassed); n != c.expired {
				t.Errorf("the time of %d has passed, want %d", n, c.expired)
			}
		})
	}
}

// Many sources may have a resource of the same type and id: each has its own lane.
func TestManySourcesHaveTheSameResource(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	exec(t, pool, `INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, resource_type, resource_id, revision)
		SELECT 't1', 'src' || n, 'r-' || v, sha256('x'), 1, 'invoice', 'r', v FROM generate_series(2, 1500) n, generate_series(2, 3) v`)
	arrive(t, s, OrderStrict, 1, 2, 3, 4)
	twin := ofResource(OrderStrict, "r", 2)
	twin.DeliveryID, twin.Body = "twin", []byte("another body")
	twin.BodyHash = sha256.Sum256(twin.Body)
	accept(t, s, twin)
	if err := s.Cancel(t.Context(), resources(t, s, ResourceFilter{Name: "invoice/r", Source: "src1"})[0].Open[3].ID, someone); err != nil { // revision 3
		t.Fatal(err)
	}
	wantIDs(t, drain(t, s), "r-1", "r-2", "r-4")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.revision_conflict`); n != 1 {
		t.Errorf("%d conflicts of revisions, want 1", n)
	}
	if all := resources(t, s, ResourceFilter{Name: "invoice/r", Source: "src1"}); len(all) != 1 || *all[0].Applied != 4 {
		t.Errorf("%+v", all)
	}
}
