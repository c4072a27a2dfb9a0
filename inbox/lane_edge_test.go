package inbox

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// elsewhere accepts revisions of resource r that no route brings to the destination.
func elsewhere(t testing.TB, s *Store, revisions ...int64) {
	t.Helper()
	for _, revision := range revisions {
		d := ofResource(OrderStrict, "r", revision)
		d.Forwards = nil
		accept(t, s, d)
	}
}

// A forward that is sent outside its lane leaves the lane free: nothing would rouse what
// waits behind it.
func TestForcedReplayKeepsNoLaneBusy(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	old := deadLetter(t, s, ofResource(OrderStrict, "r", 1))
	if _, _, err := s.Release(t.Context(), ref("r"), me); err != nil {
		t.Fatal(err)
	}
	if err := s.Replay(t.Context(), old.ID, ReplayRequest{Act: me, Force: true}); err != nil {
		t.Fatal(err)
	}
	outside, ids := claimAll(t, s, time.Time{})
	wantIDs(t, ids, "r-1")
	arrive(t, s, OrderStrict, 2)
	_, ids = claimAll(t, s, time.Time{})
	wantIDs(t, ids, "r-2")
	settle1(t, s, outside[0], OutcomeAccepted)
	clean(t, s)
}

// However many revisions have gone elsewhere, they are no gap.
func TestAnyNumberOfUnroutedRevisionsIsNoGap(t *testing.T) {
	s, pool := newStore(t)
	begun(t, s)
	elsewhere(t, s, 2)
	const more = `INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, resource_type, resource_id, revision)
		SELECT tenant, $1, $1 || n, body_hash, body_size, resource_type, resource_id, n FROM hooklatch.inbox, generate_series(3, 2500) n WHERE revision = 2`
	for _, source := range []string{"src2", "src1"} { // the same name at another sender, too
		exec(t, pool, more, source)
	}
	arrive(t, s, OrderStrict, 2501)
	wantIDs(t, drain(t, s), "r-2501")
	wantGaps(t, pool, "")
}

// A configuration may make a source strict while its forwards still wait outside lanes.
func TestUnorderedForwardIsNoGap(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	begun(t, s)
	arrive(t, s, OrderNone, 2)
	unordered, ids := claimAll(t, s, time.Time{})
	wantIDs(t, ids, "r-2")
	arrive(t, s, OrderStrict, 3)
	wantIDs(t, drain(t, s), "r-3")
	settle1(t, s, unordered[0], OutcomeAccepted)
	wantGaps(t, pool, "")
}

// A configuration may loosen the order while a gap is open. Once nothing strict stands
// before it, nothing waits for the gap any more.
func TestGapClosesWhereTheOrderIsLoosened(t *testing.T) {
	for _, ordering := range []Ordering{OrderLatest, OrderCoalesce} {
		s, pool := newStore(t)
		begun(t, s)
		r := accept(t, s, ofResource(OrderStrict, "r", 4))
		arrive(t, s, ordering, 5)
		wantIDs(t, drain(t, s))
		wantGaps(t, pool, "2-3 open")
		if err := s.Cancel(t.Context(), forwardOf(t, s, r.ID).ID, me); err != nil {
			t.Fatal(err)
		}
		wantIDs(t, drain(t, s), "r-5")
		wantGaps(t, pool, "2-3 release")
		wantStates(t, pool, "1 accepted, 4 cancelled, 5 accepted")
		clean(t, s)
	}
}

// A newer one that goes in place of what the gap held closes the gap, too.
func TestGapClosesByWhatIsCoalescedOverIt(t *testing.T) {
	s, pool := newStore(t)
	begun(t, s)
	r := accept(t, s, ofResource(OrderStrict, "r", 4))
	arrive(t, s, OrderCoalesce, 5)
	wantIDs(t, drain(t, s))
	if err := s.Cancel(t.Context(), forwardOf(t, s, r.ID).ID, me); err != nil {
		t.Fatal(err)
	}
	arrive(t, s, OrderCoalesce, 6)
	wantIDs(t, drain(t, s), "r-6")
	wantGaps(t, pool, "2-3 release")
	wantStates(t, pool, "1 accepted, 4 cancelled, 5 superseded, 6 accepted")
	clean(t, s)
}

// What was received as strict is left out by no older coalesced one.
func TestCoalescedLaneThatBecomesStrictLeavesNothingOut(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderCoalesce, 1, 2)
	arrive(t, s, OrderStrict, 3, 4)
	wantIDs(t, drain(t, s), "r-2", "r-3", "r-4")
	wantStates(t, pool, "1 superseded, 2 accepted, 3 accepted, 4 accepted")
}

// Under REPEATABLE READ the transaction does not see that what it would rouse is
// cancelled: it must fail, not leave the next one parked.
func TestSettleTxUnderRepeatableReadSeesACancel(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	arrive(t, s, OrderLatest, 1)
	first, _ := claimAll(t, s, time.Time{})
	arrive(t, s, OrderLatest, 3)
	claimAll(t, s, time.Time{}) // parks it
	second := accept(t, s, ofResource(OrderLatest, "r", 2))
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM hooklatch.schema_version LIMIT 1`); err != nil { // the snapshot is taken here
		t.Fatal(err)
	}
	if err := s.Cancel(t.Context(), forwardOf(t, s, second.ID).ID, me); err != nil {
		t.Fatal(err)
	}
	err = s.SettleTx(t.Context(), tx, settlement(first[0], OutcomeAccepted, "2xx"))
	if !errors.Is(err, ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	if err == nil {
		err = tx.Commit(t.Context())
	} else {
		err = tx.Rollback(t.Context())
		settle1(t, s, first[0], OutcomeAccepted)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, drain(t, s), "r-3")
}
