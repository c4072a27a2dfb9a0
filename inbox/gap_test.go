package inbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// strictWith is strictly ordered and gives a gap up after some time.
func strictWith(revision int64, timeout time.Duration) Delivery {
	d := ofResource(OrderStrict, "r", revision)
	d.Forwards[0].GapTimeout = timeout
	return d
}

// gaps writes the gaps of the only lane, in the order in which they were opened.
func gaps(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT first_missing || '-' || last_missing || coalesce(' ' || closed_by, ' open') FROM hooklatch.gap ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, ", ")
}

func wantGaps(t testing.TB, pool *pgxpool.Pool, want string) {
	t.Helper()
	if got := gaps(t, pool); got != want {
		t.Errorf("gaps %q, want %q", got, want)
	}
}

// clean asks the audit, and thereby every rule of a lane.
func clean(t testing.TB, s *Store) {
	t.Helper()
	for d, err := range s.Audit(t.Context(), AuditRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Kind != DiffBodyMissing {
			t.Errorf("audit: %+v", d)
		}
	}
}

// begun is a strict lane of which revision 1 is accepted.
func begun(t testing.TB, s *Store) {
	t.Helper()
	arrive(t, s, OrderStrict, 1)
	wantIDs(t, drain(t, s), "r-1")
}

func TestGapClosesByArrival(t *testing.T) {
	s, pool := newStore(t)
	begun(t, s)
	arrive(t, s, OrderStrict, 6)
	drain(t, s)
	wantGaps(t, pool, "2-5 open")
	opened := count(t, pool, `SELECT count(*) FROM hooklatch.gap WHERE opened_at = (SELECT received_at FROM hooklatch.inbox WHERE revision = 6)`)
	if opened != 1 {
		t.Error("the gap does not begin with the receipt of what revealed it")
	}
	arrive(t, s, OrderStrict, 4)
	drain(t, s)
	wantGaps(t, pool, "2-3 open")
	wantStates(t, pool, "1 accepted, 4 held gap, 6 held gap")
	clean(t, s)
	arrive(t, s, OrderStrict, 2)
	wantIDs(t, drain(t, s), "r-2")
	wantGaps(t, pool, "2-3 arrival, 3-3 open")
	clean(t, s)
	arrive(t, s, OrderStrict, 5, 3)
	wantIDs(t, drain(t, s), "r-3", "r-4", "r-5", "r-6")
	wantGaps(t, pool, "2-3 arrival, 3-3 arrival")
	clean(t, s)
	counts, err := s.GapCounts(t.Context())
	if err != nil || len(counts) != 0 {
		t.Errorf("gaps %v, %v", counts, err)
	}
}

func TestGapIsGivenUpAfterItsTime(t *testing.T) {
	s, pool := newStore(t)
	begun(t, s)
	r := accept(t, s, strictWith(4, time.Hour))
	accept(t, s, strictWith(5, time.Hour))
	accept(t, s, strictWith(9, 0))
	drain(t, s)
	wantGaps(t, pool, "2-3 open")
	f := forwardOf(t, s, r.ID)
	if f.State != Held || f.HoldReason != HoldGap || !f.NextAttemptAt.Equal(r.ReceivedAt.Add(time.Hour)) {
		t.Errorf("forward %+v; want held until an hour after its receipt", f)
	}
	if counts, err := s.GapCounts(t.Context()); err != nil || counts["src1"] != 1 {
		t.Errorf("gaps %v, %v", counts, err)
	}
	if _, ids := claimAll(t, s, r.ReceivedAt.Add(time.Hour-time.Millisecond)); len(ids) != 0 {
		t.Errorf("sent %v too early", ids)
	}
	all, ids := claimAll(t, s, r.ReceivedAt.Add(time.Hour))
	wantIDs(t, ids, "r-4")
	wantGaps(t, pool, "2-3 timeout")
	settle1(t, s, all[0], OutcomeAccepted)
	wantIDs(t, drain(t, s), "r-5")
	wantGaps(t, pool, "2-3 timeout, 6-8 open")
	wantStates(t, pool, "1 accepted, 4 accepted, 5 accepted, 9 held gap")
	arrive(t, s, OrderStrict, 3)
	drain(t, s)
	wantStates(t, pool, "1 accepted, 3 superseded, 4 accepted, 5 accepted, 9 held gap")
	clean(t, s)
}

// What arrived and is not to be sent here is not missing: a route may leave it out.
func TestUnroutedRevisionIsNoGap(t *testing.T) {
	for _, resourceType := range []string{"invoice", ""} {
		s, pool := newStore(t)
		for _, revision := range []int64{1, 2, 3, 5} {
			d := ofResource(OrderStrict, "r", revision)
			d.ResourceType = resourceType
			if revision == 2 {
				d.Forwards = nil
			}
			accept(t, s, d)
		}
		other := ofResource(OrderStrict, "r", 4)
		other.Source, other.ResourceType = "src2", resourceType // the same name at another sender
		accept(t, s, other)
		sent := drain(t, s)
		if want := []string{"r-1", "r-4", "r-3"}; fmt.Sprint(sent) != fmt.Sprint(want) {
			t.Errorf("type %q: sent %v, want %v", resourceType, sent, want)
		}
		wantGaps(t, pool, "4-4 open")
	}
}

// It is found to have arrived also when it comes last, and nothing else does: no forward
// leads a claim to the lane.
func TestUnroutedRevisionClosesAGap(t *testing.T) {
	for _, hold := range []bool{false, true} {
		s, pool := newStore(t)
		begun(t, s)
		arrive(t, s, OrderStrict, 3)
		accept(t, s, ofResource(OrderStrict, "other", 1))
		drain(t, s)
		accept(t, s, ofResource(OrderStrict, "other", 3)) // its gap stays
		drain(t, s)
		unrouted := ofResource(OrderStrict, "r", 2)
		if unrouted.Forwards[0].Hold = hold; !hold {
			unrouted.Forwards = nil
		}
		accept(t, s, unrouted)
		if sent := drain(t, s); hold {
			wantIDs(t, sent)
		} else {
			wantIDs(t, sent, "r-3")
		}
		wantGaps(t, pool, "2-2 arrival, 2-2 open")
	}
}

// A claim looks at a few open gaps, in turn, and never at those of all time.
func TestClaimLooksAtAFewGaps(t *testing.T) {
	s, pool := newStore(t)
	const n = 2*gapsLooked + 5
	for i := range n {
		r := fmt.Sprint("r", i)
		accept(t, s, ofResource(OrderStrict, r, 1))
		drain(t, s)
		accept(t, s, ofResource(OrderStrict, r, 3))
		drain(t, s)
	}
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), `INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at, closed_at, closed_by)
		SELECT 't1', id, -9, -9, now(), now(), 'arrival' FROM hooklatch.resource, generate_series(1, 300)`)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	forgetReads(t, s, pool)
	drain(t, s)
	if n := rowsRead(t, s, pool); n > 200 {
		t.Errorf("a claim beside many gaps read %d rows", n)
	}
	d := ofResource(OrderStrict, fmt.Sprint("r", n-1), 2)
	d.Forwards = nil
	accept(t, s, d)
	var sent []string
	for range n/gapsLooked + 1 {
		sent = append(sent, drain(t, s)...)
	}
	wantIDs(t, sent, fmt.Sprint("r", n-1, "-3"))
}

// A forward that a person must decide about has arrived: it is no gap, and the later
// ones wait for it.
func TestHeldForAPersonCountsAsArrived(t *testing.T) {
	for _, ordering := range []Ordering{OrderLatest, OrderStrict} {
		s, pool := newStore(t)
		arrive(t, s, ordering, 1)
		drain(t, s)
		d := ofResource(ordering, "r", 2)
		d.Forwards[0].Hold = true
		r := accept(t, s, d)
		arrive(t, s, ordering, 3)
		wantIDs(t, drain(t, s))
		wantStates(t, pool, "1 accepted, 2 held person, 3 pending waiting")
		wantGaps(t, pool, "")
		clean(t, s)
		if err := s.Replay(t.Context(), forwardOf(t, s, r.ID).ID, ReplayRequest{Act: me}); err != nil {
			t.Fatal(err)
		}
		wantIDs(t, drain(t, s), "r-2", "r-3")
	}
}

// Of those that are coalesced none waits for a person's decision about an older one.
func TestHeldForAPersonIsOvertakenWhenCoalesced(t *testing.T) {
	s, pool := newStore(t)
	d := ofResource(OrderCoalesce, "r", 2)
	d.Forwards[0].Hold = true
	accept(t, s, d)
	arrive(t, s, OrderCoalesce, 1, 3)
	wantIDs(t, drain(t, s), "r-3")
	wantStates(t, pool, "1 superseded, 2 held person, 3 accepted")
}

// The time of a forward begins when its turn comes. When it is over without a try, the
// forward holds a strict lane like any dead letter.
func TestDeadlineIsJudgedAtTheHead(t *testing.T) {
	for _, c := range []struct {
		ordering     Ordering
		then, states string
	}{
		{OrderStrict, "", "1 accepted, 3 held gap, 4 pending waiting"},
		{OrderLatest, "r-4", "1 accepted, 3 blocked, 4 accepted"},
	} {
		s, pool := newStore(t)
		arrive(t, s, c.ordering, 1)
		first, _ := claimAll(t, s, time.Time{})
		for _, revision := range []int64{3, 4} {
			d := ofResource(c.ordering, "r", revision)
			d.Forwards[0].Deadline = time.Duration(revision) * time.Hour
			accept(t, s, d)
		}
		claimAll(t, s, time.Time{})
		settle1(t, s, first[0], OutcomeAccepted)
		late := time.Now().Add(200 * time.Minute) // 3 hours are over, 4 are not
		all, ids := claimAll(t, s, late)
		if got := strings.Join(ids, ", "); got != c.then {
			t.Errorf("%s: sent %q, want %q", c.ordering, got, c.then)
		}
		for _, f := range all {
			settle1(t, s, f, OutcomeAccepted)
		}
		wantStates(t, pool, c.states)
		if c.ordering != OrderStrict {
			continue
		}
		arrive(t, s, OrderStrict, 2)
		all, ids = claimAll(t, s, late)
		wantIDs(t, ids, "r-2")
		settle1(t, s, all[0], OutcomeAccepted)
		_, ids = claimAll(t, s, late)
		wantIDs(t, ids)
		wantStates(t, pool, "1 accepted, 2 accepted, 3 blocked, 4 pending waiting")
		clean(t, s)
	}
}

func TestBodyThatIsGoneHoldsAStrictLane(t *testing.T) {
	s, pool := newStore(t)
	arrive(t, s, OrderStrict, 1, 2)
	exec(t, pool, `DELETE FROM hooklatch.payload WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE revision = 1)`)
	wantIDs(t, drain(t, s))
	wantStates(t, pool, "1 blocked, 2 pending waiting")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE blocked_reason = $1`, ReasonBodyPruned); n != 1 {
		t.Error("the reason is missing")
	}
}

// What waits, is held or is blocked in a lane is counted once, and what waits behind
// another is no sign of a slow destination.
func TestStatsCountLanes(t *testing.T) {
	s, pool := newStore(t)
	deadLetter(t, s, ofResource(OrderStrict, "blocked", 1))
	deadLetter(t, s, delivery("plain", "x"))
	begun(t, s)
	accept(t, s, ofResource(OrderStrict, "blocked", 2))
	arrive(t, s, OrderStrict, 3, 4)
	accept(t, s, ofResource(OrderLatest, "slow", 1))
	accept(t, s, ofResource(OrderLatest, "slow", 2))
	claimAll(t, s, time.Time{})
	if wantStates(t, pool, "1 blocked, 1 accepted, 1 pending leased, 2 pending waiting, 2 pending waiting, 3 held gap, 4 held waiting gap"); t.Failed() {
		return
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET next_attempt_at = now() - interval '1 hour' WHERE waiting AND state = 'pending'`)
	exec(t, pool, `UPDATE hooklatch.outbox SET settled_at = now() - interval '2 hours' WHERE state = 'blocked' AND lane IS NULL`)
	stats, err := s.Stats(t.Context())
	if err != nil || len(stats) != 1 {
		t.Fatalf("%+v, %v", stats, err)
	}
	d := stats[0]
	if d.InFlight != 1 || d.Open[Pending] != 3 || d.Open[Held] != 2 || d.Open[Blocked] != 2 || d.Open[RetryWait] != 0 || d.OldestNew > time.Minute || d.OldestRetry != 0 {
		t.Errorf("%+v", d)
	}
	if d.OldestDead < 2*time.Hour || d.OldestDead > 3*time.Hour {
		t.Errorf("the oldest dead letter is %v old, want 2h", d.OldestDead)
	}
}
