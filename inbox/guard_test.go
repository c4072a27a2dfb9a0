package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func guarded(id, body string) Delivery {
	d := delivery(id, body)
	d.BodyGuard = time.Hour
	return d
}

func members(t *testing.T, deliveries ...Delivery) (all []*member[*acceptance]) {
	t.Helper()
	for _, d := range deliveries {
		work, err := newAcceptance(d)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &member[*acceptance]{work: work})
	}
	return all
}

// A captured request comes again under ids that nobody signed.
func TestBodyGuardKnowsABodyUnderANewID(t *testing.T) {
	s, pool := newStore(t)
	first := accept(t, s, guarded("dlv_1", "x"))
	exec(t, pool, `DELETE FROM hooklatch.payload`) // the hash is enough
	if r := accept(t, s, guarded("dlv_2", "x")); r != (Receipt{ID: first.ID, Duplicate: true, ReceivedAt: first.ReceivedAt, DeliveryID: "dlv_1"}) {
		t.Errorf("under a new id: %+v, want a duplicate of %+v", r, first)
	}
	if n := count(t, pool, `SELECT (SELECT count(*) FROM hooklatch.inbox) * 10 + (SELECT count(*) FROM hooklatch.outbox)`); n != 11 {
		t.Errorf("rows %d, want one delivery with one forward", n)
	}
	if r := accept(t, s, guarded("dlv_1", "x")); !r.Duplicate || r.DeliveryID != "dlv_1" {
		t.Errorf("under its own id: %+v", r)
	}
	if r := accept(t, s, guarded("dlv_2", "y")); r.Duplicate {
		t.Errorf("the id of the replay is taken: %+v", r)
	}
	var conflict *ConflictError
	if _, err := s.Accept(t.Context(), guarded("dlv_2", "x")); !errors.As(err, &conflict) {
		t.Errorf("a known id with the guarded body: %v, want a conflict", err)
	}
	for i, change := range []func(*Delivery){
		func(d *Delivery) { d.Source = "src2" },
		func(d *Delivery) { d.Tenant = "t2" },
		func(d *Delivery) { d.BodyGuard = 0 },
		func(d *Delivery) { d.BodyGuard = -1 },
	} {
		d := guarded(fmt.Sprint("other_", i), "x")
		if change(&d); accept(t, s, d).Duplicate {
			t.Errorf("case %d: a duplicate of another source's, or without a guard", i)
		}
	}
}

// What was taken for a repeat, because it differs in nothing but what its source ignores,
// is known under a new id as well: stored before, in the same commit, and in a process
// that does not ignore anything yet.
func TestBodyGuardKnowsARepeatUnderANewID(t *testing.T) {
	s, pool := newStore(t)
	like := func(id, body string, compare byte) Delivery {
		d := guarded(id, body)
		d.CompareHash[0] = compare
		return d
	}
	accept(t, s, like("dlv_1", "attempt 1", 1))
	accept(t, s, like("dlv_1", "attempt 2", 1))
	if r := accept(t, s, like("dlv_2", "attempt 2", 1)); !r.Duplicate || r.DeliveryID != "dlv_1" {
		t.Errorf("the repeat under a new id: %+v", r)
	}
	if r := accept(t, s, like("dlv_3", "attempt 1", 0)); !r.Duplicate || r.DeliveryID != "dlv_1" {
		t.Errorf("the first under a new id, compared whole: %+v", r)
	}
	batch := members(t, like("dlv_4", "a", 2), like("dlv_5", "b", 2), like("dlv_6", "b", 3))
	s.acceptBatch(batch)
	for i, want := range []verdict{{inserted: true}, {byBody: true}, {inserted: true}} {
		w := batch[i].work
		if got := (verdict{w.inserted, !w.same(), w.keptAs != w.key.deliveryID}); batch[i].err != nil || got != want {
			t.Errorf("member %d: %+v, %v; want %+v", i, got, batch[i].err, want)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox`); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

// A commit that sees two tenants keeps their bodies apart.
func TestBodyGuardKeepsTenantsApartInOneCommit(t *testing.T) {
	s, _ := newStore(t)
	accept(t, s, guarded("dlv_1", "x"))
	foreign := guarded("dlv_2", "x")
	foreign.Tenant = "t2"
	batch := members(t, foreign, guarded("dlv_3", "x"))
	s.acceptBatch(batch)
	for i, want := range []verdict{{inserted: true}, {byBody: true}} {
		w := batch[i].work
		if got := (verdict{w.inserted, !w.same(), w.keptAs != w.key.deliveryID}); batch[i].err != nil || got != want {
			t.Errorf("member %d: %+v, %v; want %+v", i, got, batch[i].err, want)
		}
	}
}

// The window is judged by the database's time of the first receipt.
func TestBodyGuardEndsWithItsWindow(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, guarded("dlv_1", "x"))
	exec(t, pool, `UPDATE hooklatch.inbox SET received_at = now() - interval '59 minutes'`)
	if r := accept(t, s, guarded("dlv_2", "x")); !r.Duplicate {
		t.Error("forgotten inside the window")
	}
	exec(t, pool, `UPDATE hooklatch.inbox SET received_at = now() - interval '61 minutes'`)
	if r := accept(t, s, guarded("dlv_3", "x")); r.Duplicate {
		t.Error("remembered outside the window")
	}
	if r := accept(t, s, guarded("dlv_4", "x")); r.DeliveryID != "dlv_3" {
		t.Errorf("a duplicate of %s, want the one inside the window", r.DeliveryID)
	}
}

// Two processes, or two batches: whoever comes second waits for the first one's commit
// and then sees it.
func TestBodyGuardWaitsForAnotherProcess(t *testing.T) {
	for _, commits := range []bool{true, false} {
		s, pool := newStore(t)
		d := guarded("dlv_2", "x")
		work := members(t, d)[0].work
		tx := begin(t, pool)
		if _, err := tx.Exec(t.Context(), lockBodiesSQL, []int64{work.guardedBodies()[0].lockKey()}); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), playWinnerSQL, d.BodyHash[:]); err != nil {
			t.Fatal(err)
		}
		result := make(chan Receipt)
		go func() {
			r, err := s.Accept(context.Background(), d)
			if err != nil {
				t.Error(err)
			}
			result <- r
		}()
		untilBlocked(t, pool, 1)
		if r := accept(t, s, delivery("dlv_3", "x")); r.Duplicate {
			t.Error("unguarded: a duplicate")
		}
		end := tx.Rollback
		if commits {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Without the winner, dlv_3 has brought the body since.
		if r := <-result; !r.Duplicate || commits && r.DeliveryID != "dlv_1" || !commits && r.DeliveryID != "dlv_3" {
			t.Errorf("winner commits %v: %+v", commits, r)
		}
	}
}

// A lock that another process does not let go costs a 503, not a row.
func TestBodyGuardDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	batch := members(t, guarded("dlv_1", "x"), guarded("dlv_2", "y"))
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), lockBodiesSQL, []int64{batch[0].work.guardedBodies()[0].lockKey()}); err != nil {
		t.Fatal(err)
	}
	s.acceptBatch(batch)
	if !errors.Is(batch[0].err, ErrBusy) || batch[1].err != nil {
		t.Errorf("%v, %v; want ErrBusy and nil", batch[0].err, batch[1].err)
	}
}

// The locks of a batch are taken in one order by all, whatever the order of arrival.
func TestBodyGuardLocksInOrder(t *testing.T) {
	s, pool := newStore(t)
	batch := members(t, guarded("dlv_1", "x"), guarded("dlv_2", "y"))
	slices.SortFunc(batch, func(a, b *member[*acceptance]) int { // the highest first
		return int(min(max(b.work.guardedBodies()[0].lockKey()>>1-a.work.guardedBodies()[0].lockKey()>>1, -1), 1))
	})
	low, high := batch[1].work.guardedBodies()[0].lockKey(), batch[0].work.guardedBodies()[0].lockKey()
	if low > high {
		t.Fatal("void: not sorted")
	}
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), lockBodiesSQL, []int64{low}); err != nil {
		t.Fatal(err)
	}
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		s.acceptBatch(batch)
	}()
	untilBlocked(t, pool, 1)
	if n := count(t, pool, `SELECT pg_try_advisory_xact_lock($1)::int`, high); n != 1 {
		t.Error("the batch holds the second lock while it waits for the first")
	}
	tx.Rollback(t.Context())
	<-decided
	for i, m := range batch {
		if m.err != nil || !m.work.inserted {
			t.Errorf("member %d: inserted %v, %v", i, m.work.inserted, m.err)
		}
	}
}

// Two of one body share a commit, and the first turns out to be no new delivery at all:
// its id was taken at that moment. The body of the second must not be lost with it.
func TestBodyGuardOfABatchWhoseFirstLosesItsID(t *testing.T) {
	s, pool := newStore(t)
	other := delivery("dlv_1", "other")
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), playWinnerSQL, other.BodyHash[:]); err != nil {
		t.Fatal(err)
	}
	batch := members(t, guarded("dlv_1", "x"), guarded("dlv_2", "x"), guarded("dlv_3", "x"), guarded("dlv_2", "y"))
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		s.acceptBatch(batch)
	}()
	untilBlocked(t, pool, 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-decided
	// dlv_2 brought both bodies; in the end one of them has the id.
	for i, want := range []verdict{{conflict: true}, {conflict: true}, {inserted: true}, {inserted: true}} {
		w := batch[i].work
		if got := (verdict{w.inserted, !w.same(), w.keptAs != w.key.deliveryID}); batch[i].err != nil || got != want {
			t.Errorf("member %d: %+v, %v; want %+v", i, got, batch[i].err, want)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE delivery_id = 'dlv_3' AND body_hash = sha256('x')`); n != 1 {
		t.Error("the body is in no row")
	}
}

// 100 ids for one body at once, over two processes: one row.
func TestBodyGuardHoldsUnderLoad(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	other, err := New(pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	kept, news := map[string]int{}, 0
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			r, err := []*Store{s, other}[i%2].Accept(t.Context(), guarded(fmt.Sprint("dlv_", i), "x"))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			kept[r.DeliveryID]++
			if !r.Duplicate {
				news++
			}
		})
	}
	wg.Wait()
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox`); n != 1 || news != 1 || len(kept) != 1 {
		t.Errorf("%d rows, %d new, kept as %v; want one", n, news, kept)
	}
}

// The look-up reads neither the history of the source nor the history of the body.
func TestBodyGuardReadsFewRows(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	exec(t, pool, `ALTER TABLE hooklatch.inbox SET (autovacuum_enabled = off)`)
	work := func(round int) {
		var batch []Delivery
		for n := range 16 {
			batch = append(batch, guarded(fmt.Sprint("dlv_", round*16+n), fmt.Sprint("body ", round*16+n)), guarded(fmt.Sprint("twin_", round*16+n), "x"))
		}
		all := members(t, batch...)
		s.acceptBatch(all)
		for i, m := range all {
			if twin := i%2 == 1; m.err != nil || m.work.inserted == twin && (round > 0 || i > 1) {
				t.Fatalf("member %d: inserted %v, %v", i, m.work.inserted, m.err)
			}
		}
	}
	for round := range 8 { // from the sixth on a plan is kept
		work(round)
	}
	fill(t, pool, 1, 20_000)
	exec(t, pool, `SELECT pg_stat_reset()`)
	work(8)
	if n := rowsRead(t, s, pool); n > 5000 {
		t.Errorf("32 guarded deliveries read %d rows", n)
	}
}

// A pooler that prepares nothing, as database.pooler: pgbouncer asks for.
func TestBodyGuardWithoutPreparedStatements(t *testing.T) {
	cfg := inboxtest.New(t).Config()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := New(pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	accept(t, s, guarded("dlv_1", "x"))
	if r := accept(t, s, guarded("dlv_2", "x")); r.DeliveryID != "dlv_1" {
		t.Errorf("kept as %s", r.DeliveryID)
	}
	d := guarded("dlv_1", "y")
	d.AcceptFirst = true
	if r := accept(t, s, d); r.Conflict == nil || r.Conflict.Unrecorded != nil {
		t.Errorf("%+v (%+v)", r, r.Conflict)
	}
}
