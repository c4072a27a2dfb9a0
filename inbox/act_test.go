package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// deadLetter accepts one forward and lets it end blocked.
func deadLetter(t testing.TB, s *Store, d Delivery) Forward {
	t.Helper()
	r := accept(t, s, d)
	all, _ := claimAll(t, s, time.Time{})
	if len(all) != 1 {
		t.Fatalf("%d claimed", len(all))
	}
	settle1(t, s, all[0], OutcomeBlocked)
	f := forwardOf(t, s, r.ID)
	f.Delivery = all[0].Delivery
	return f
}

func actsOf(t testing.TB, s *Store) (lines []string) {
	t.Helper()
	for a, err := range s.Acts(t.Context(), ActFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if a.Actor != me.Actor || a.Reason != me.Reason || a.Tenant != "t1" {
			t.Errorf("audit %+v", a)
		}
		lines = append(lines, fmt.Sprintf("%s delivery %d forward %d resource %d: %s", a.Action, a.DeliveryID, a.ForwardID, a.ResourceID, a.Detail))
	}
	return lines
}

// E12: the replayed forward keeps its ids, gets one attempt more and new time.
func TestCaseE12_ReplayTriesOnceMore(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	told := 0
	s.cfg.OnForwards = func(string) { told++ }
	d := delivery("dlv_1", "x")
	accept(t, s, d)
	var f Forward
	for n := range 3 { // its budget
		f = claimOne(t, s, time.Now().Add(time.Duration(n)*time.Hour))
		settle1(t, s, f, OutcomeRetry)
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET next_attempt_at = now(), expires_at = expires_at - interval '1 day'`)
	exec(t, pool, `UPDATE hooklatch.inbox SET received_at = received_at - interval '1 day'`)
	claimAll(t, s, time.Time{})
	if got := forwardOf(t, s, f.Delivery.ID); got.State != Blocked {
		t.Fatalf("void: %+v", got)
	}
	told = 0
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me}); err != nil {
		t.Fatal(err)
	}
	if told != 1 {
		t.Errorf("the consumer was told %d times", told)
	}
	all, _ := claimAll(t, s, time.Time{})
	if len(all) != 1 || all[0].ID != f.ID || all[0].Attempt != 4 || time.Until(all[0].ExpiresAt) < 23*time.Hour {
		t.Fatalf("claimed %+v", all)
	}
	settle1(t, s, all[0], OutcomeRetry)
	if all, _ := claimAll(t, s, time.Time{}); len(all) != 0 {
		t.Error("the replay gave more than one attempt")
	}
	if got := forwardOf(t, s, f.Delivery.ID); got.BlockedReason != ReasonAttemptsExhausted {
		t.Errorf("%+v", got)
	}
	wantIDs(t, actsOf(t, s), fmt.Sprintf("replay delivery %d forward %d resource 0: ", f.Delivery.ID, f.ID))
}

// E12: a replay that cannot do anything says why, and leaves everything as it is.
func TestCaseE12_ReplayRefuses(t *testing.T) {
	s, pool := newStore(t)
	old := deadLetter(t, s, ofResource(OrderLatest, "r", 1))
	arrive(t, s, OrderLatest, 2, 1_000_000)
	drain(t, s)
	pruned := deadLetter(t, s, delivery("pruned", "x"))
	exec(t, pool, `DELETE FROM hooklatch.payload WHERE inbox_id = $1`, pruned.Delivery.ID)
	accept(t, s, delivery("open", "x"))
	open := claimOne(t, s, time.Time{})
	accepted := accept(t, s, delivery("accepted", "x"))
	drain(t, s)
	superseded := accept(t, s, ofResource(OrderLatest, "r", 3))
	drain(t, s)
	for name, c := range map[string]struct {
		id   int64
		want error
	}{
		"a later one was applied": {old.ID, ErrSuperseded},
		"superseded":              {forwardOf(t, s, superseded.ID).ID, ErrSuperseded},
		"pruned":                  {pruned.ID, ErrPruned},
		"in flight":               {open.ID, ErrInFlight},
		"accepted":                {forwardOf(t, s, accepted.ID).ID, ErrState},
		"unknown":                 {1 << 40, ErrNotFound},
	} {
		before := tables(t, pool)
		if err := s.Replay(t.Context(), c.id, ReplayRequest{Act: me}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if after := tables(t, pool); after != before {
			t.Errorf("%s: %s became %s", name, before, after)
		}
	}
	for _, act := range []Act{{}, {Actor: "me"}, {Reason: "why"}} {
		if err := s.Replay(t.Context(), pruned.ID, ReplayRequest{Act: act}); err == nil {
			t.Errorf("%+v was enough", act)
		}
	}
	if acts := actsOf(t, s); len(acts) != 0 {
		t.Errorf("audit %v", acts)
	}
}

// X47: two people replay one dead letter at once. The one who comes second finds it
// replayed: there is one attempt more, and one line in the audit.
func TestX47_ReplayTwiceAtOnceIsOneAttempt(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	f := deadLetter(t, s, delivery("dlv_1", "x"))
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), `SELECT FROM hooklatch.outbox FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	const people = 3
	errs := make(chan error, people)
	for range people {
		go func() { errs <- s.Replay(context.Background(), f.ID, ReplayRequest{Act: me}) }()
	}
	untilBlocked(t, pool, people)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := 0
	for range people {
		err := <-errs
		if err == nil {
			done++
		} else if !errors.Is(err, ErrState) {
			t.Errorf("%v, want ErrState", err)
		}
	}
	if acts := actsOf(t, s); done != 1 || len(acts) != 1 {
		t.Errorf("%d replays were done, audit %v", done, acts)
	}
	if n := count(t, pool, `SELECT attempts_free FROM hooklatch.outbox`); n != 1 {
		t.Errorf("%d attempts more, want 1", n)
	}
	wantIDs(t, drain(t, s), "dlv_1")
}

// tables is everything that stands in the table of forwards, and in that of lanes.
func tables(t testing.TB, pool *pgxpool.Pool) (text string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT concat((SELECT string_agg(o::text, ' ' ORDER BY id) FROM hooklatch.outbox o),
		(SELECT string_agg(r::text, ' ' ORDER BY id) FROM hooklatch.resource r))`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// By force an old revision is sent all the same, and does not move the lane back.
func TestForcedReplayLeavesTheLaneAlone(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	old := deadLetter(t, s, ofResource(OrderLatest, "r", 1))
	arrive(t, s, OrderLatest, 5)
	drain(t, s)
	arrive(t, s, OrderLatest, 6)
	busy, _ := claimAll(t, s, time.Time{})
	if err := s.Replay(t.Context(), old.ID, ReplayRequest{Act: me, Force: true}); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, drain(t, s), "r-1")
	settle1(t, s, busy[0], OutcomeAccepted)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.resource WHERE applied = 6 AND passed = 6`); n != 1 {
		t.Error("the lane is not at revision 6")
	}
	if acts := actsOf(t, s); len(acts) != 1 || !strings.HasSuffix(acts[0], "forced: revision 1 is passed") {
		t.Errorf("audit %v", acts)
	}
	if err := s.Replay(t.Context(), old.ID, ReplayRequest{Act: me, Force: true}); !errors.Is(err, ErrState) {
		t.Errorf("once more: %v", err)
	}
}

// What was forced once, and failed again, is still older than what was applied.
func TestForceIsAskedForEachTime(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	old := deadLetter(t, s, ofResource(OrderLatest, "r", 1))
	arrive(t, s, OrderLatest, 5)
	drain(t, s)
	if err := s.Replay(t.Context(), old.ID, ReplayRequest{Act: me, Force: true}); err != nil {
		t.Fatal(err)
	}
	settle1(t, s, claimOne(t, s, time.Time{}), OutcomeBlocked)
	for d, err := range s.DeadLetters(t.Context(), DeadFilter{Destination: "app"}) {
		if err != nil || !d.Superseded {
			t.Errorf("dead letter %+v, %v: want it superseded", d, err)
		}
	}
	if err := s.Replay(t.Context(), old.ID, ReplayRequest{Act: me}); !errors.Is(err, ErrSuperseded) {
		t.Errorf("without force: %v", err)
	}
	if err := s.Replay(t.Context(), old.ID, ReplayRequest{Act: me, Force: true}); err != nil {
		t.Errorf("with force: %v", err)
	}
	wantIDs(t, drain(t, s), "r-1")
}

// Force does not let a revision out of its lane that the lane still waits for.
func TestForceIsForWhatIsPassed(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	f := deadLetter(t, s, ofResource(OrderStrict, "r", 1))
	arrive(t, s, OrderStrict, 2)
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me, Force: true}); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, drain(t, s), "r-1", "r-2")
}

func TestCancelLetsTheLaneGoOn(t *testing.T) {
	for _, c := range []struct {
		name     string
		ordering Ordering
		set      func(*Store)
		cancel   int64 // the revision
		sent     []string
		states   string
	}{
		{"dead letter at the head", OrderStrict, func(s *Store) {
			deadLetter(t, s, ofResource(OrderStrict, "r", 1))
			arrive(t, s, OrderStrict, 2)
			claimAll(t, s, time.Time{})
		}, 1, []string{"r-2"}, "1 cancelled, 2 accepted"},
		{"one in the middle", OrderStrict, func(s *Store) {
			deadLetter(t, s, ofResource(OrderStrict, "r", 1))
			arrive(t, s, OrderStrict, 2, 3)
			claimAll(t, s, time.Time{})
		}, 2, nil, "1 blocked, 2 cancelled, 3 pending waiting"},
		{"due head", OrderLatest, func(s *Store) { arrive(t, s, OrderLatest, 1, 2) }, 1, []string{"r-2"}, "1 cancelled, 2 accepted"},
		{"retry at the head", OrderLatest, func(s *Store) {
			arrive(t, s, OrderLatest, 1, 2)
			all, _ := claimAll(t, s, time.Time{})
			st := settlement(all[0], OutcomeRetry, "5xx")
			st.Delay = time.Hour
			if err := s.Settle(t.Context(), st); err != nil {
				t.Fatal(err)
			}
		}, 1, []string{"r-2"}, "1 cancelled, 2 accepted"},
		{"newest", OrderCoalesce, func(s *Store) { arrive(t, s, OrderCoalesce, 1, 2) }, 2, []string{"r-1"}, "1 accepted, 2 cancelled"},
		{"the one that waits for a gap", OrderStrict, func(s *Store) {
			arrive(t, s, OrderStrict, 1)
			drain(t, s)
			arrive(t, s, OrderStrict, 3, 4)
			claimAll(t, s, time.Time{})
		}, 3, nil, "1 accepted, 3 cancelled, 4 held gap"},
		{"the only one that waits for a gap", OrderStrict, func(s *Store) {
			arrive(t, s, OrderStrict, 1)
			drain(t, s)
			arrive(t, s, OrderStrict, 3)
			claimAll(t, s, time.Time{})
		}, 3, nil, "1 accepted, 3 cancelled"},
		{"one of two of a revision", OrderStrict, func(s *Store) {
			deadLetter(t, s, ofResource(OrderStrict, "r", 1))
			twin := ofResource(OrderStrict, "r", 1)
			twin.DeliveryID = "twin"
			accept(t, s, twin)
		}, 1, []string{"twin"}, "1 cancelled, 1 accepted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, pool := newStore(t)
			wholeAtEnd(t, s.pool)
			c.set(s)
			id := int64(count(t, pool, `SELECT min(id) FROM hooklatch.outbox WHERE revision = $1`, c.cancel))
			if err := s.Cancel(t.Context(), id, me); err != nil {
				t.Fatal(err)
			}
			clean(t, s)
			wantIDs(t, drain(t, s), c.sent...)
			wantStates(t, pool, c.states)
			clean(t, s)
			if acts := actsOf(t, s); len(acts) != 1 || !strings.Contains(acts[0], "cancel delivery ") {
				t.Errorf("audit %v", acts)
			}
			if err := s.Cancel(t.Context(), id, me); !errors.Is(err, ErrState) {
				t.Errorf("cancelled twice: %v", err)
			}
		})
	}
}

// What was cancelled behind the head is no gap when its turn would have come.
func TestCancelledRevisionIsNoGap(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	first := deadLetter(t, s, ofResource(OrderStrict, "r", 1))
	arrive(t, s, OrderStrict, 2, 3, 4)
	claimAll(t, s, time.Time{})
	for _, revision := range []int{3, 2} {
		if err := s.Cancel(t.Context(), int64(count(t, pool, `SELECT id FROM hooklatch.outbox WHERE revision = $1`, revision)), me); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Replay(t.Context(), first.ID, ReplayRequest{Act: me}); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, drain(t, s), "r-1", "r-4")
	wantGaps(t, pool, "")
}

func TestCancelOfWhatIsInFlight(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	r := accept(t, s, delivery("dlv_1", "x"))
	f := claimOne(t, s, time.Time{})
	if err := s.Cancel(t.Context(), f.ID, me); !errors.Is(err, ErrInFlight) {
		t.Errorf("%v, want ErrInFlight", err)
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET lease_until = now()`)
	if err := s.Cancel(t.Context(), f.ID, me); err != nil {
		t.Fatal(err)
	}
	if got := forwardOf(t, s, r.ID); got.State != Cancelled || got.Token != f.Token+1 || !got.LeaseUntil.IsZero() {
		t.Errorf("%+v", got)
	}
	if l := ledger(t, s, f.ID); !slices.Equal(l, []string{"1 unknown"}) {
		t.Errorf("ledger %v", l)
	}
}

func ref(resource string) ResourceRef {
	return ResourceRef{Tenant: "t1", Destination: "app", Source: "src1", ResourceType: "invoice", ResourceID: resource}
}

func TestReleaseGivesUpWhatIsMissing(t *testing.T) {
	for _, met := range []bool{true, false} { // a claim has met the gap
		s, pool := newStore(t)
		wholeAtEnd(t, s.pool)
		begun(t, s)
		arrive(t, s, OrderStrict, 4, 5)
		if met {
			claimAll(t, s, time.Time{})
		}
		first, last, err := s.Release(t.Context(), ref("r"), me)
		if err != nil || first != 2 || last != 3 {
			t.Errorf("released %d to %d, %v", first, last, err)
		}
		wantGaps(t, pool, "2-3 release")
		clean(t, s)
		wantIDs(t, drain(t, s), "r-4", "r-5")
		arrive(t, s, OrderStrict, 3)
		wantIDs(t, drain(t, s))
		wantStates(t, pool, "1 accepted, 3 superseded, 4 accepted, 5 accepted")
		if acts := actsOf(t, s); len(acts) != 1 || !strings.Contains(acts[0], "release") || !strings.HasSuffix(acts[0], "revisions 2 to 3, missing") {
			t.Errorf("audit %v", acts)
		}
	}
}

func TestReleaseStepsOverADeadLetter(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	f := deadLetter(t, s, ofResource(OrderStrict, "r", 1))
	arrive(t, s, OrderStrict, 2, 4)
	claimAll(t, s, time.Time{})
	first, last, err := s.Release(t.Context(), ref("r"), me)
	if err != nil || first != 1 || last != 1 {
		t.Errorf("released %d to %d, %v", first, last, err)
	}
	wantIDs(t, drain(t, s), "r-2")
	wantStates(t, pool, "1 blocked, 2 accepted, 4 held gap")
	wantGaps(t, pool, "3-3 open")
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me}); !errors.Is(err, ErrSuperseded) {
		t.Errorf("replay of what was given up: %v", err)
	}
	if _, _, err := s.Release(t.Context(), ref("r"), me); err != nil {
		t.Error(err)
	}
	wantIDs(t, drain(t, s), "r-4")
	clean(t, s)
}

func TestReleaseRefuses(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderStrict, 1)
	if _, _, err := s.Release(t.Context(), ref("unknown"), me); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	if _, _, err := s.Release(t.Context(), ref(""), me); !errors.Is(err, ErrNotFound) {
		t.Errorf("no name: %v", err)
	}
	claimAll(t, s, time.Time{})
	accept(t, s, ofResource(OrderLatest, "other", 1))
	deadLetter(t, s, ofResource(OrderLatest, "other", 2))
	before := tables(t, pool)
	for _, resource := range []string{"r", "other"} {
		if _, _, err := s.Release(t.Context(), ref(resource), me); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v, want ErrState", resource, err)
		}
	}
	if tables(t, pool) != before || len(actsOf(t, s)) > 0 {
		t.Error("a refused release changed something")
	}
}
