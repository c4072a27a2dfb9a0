package inbox

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The cap and "the first" are exact over two processes, whatever the database's
// default isolation is.
func TestX28_CapOfConflictsHoldsUnderAnyDefaultIsolation(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	exec(t, pool, fmt.Sprintf(`ALTER DATABASE %s SET default_transaction_isolation = 'repeatable read'`,
		pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()))
	s.pool.Reset()
	other, err := New(s.pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	accept(t, s, delivery("dlv_1", "one"))
	var mu sync.Mutex
	firsts := 0
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			_, err := []*Store{s, other}[i%2].Accept(t.Context(), delivery("dlv_1", fmt.Sprint("other ", i/2%10)))
			var conflict *ConflictError
			if !errors.As(err, &conflict) || conflict.Unrecorded != nil {
				t.Errorf("%v, unrecorded: %v", err, conflict.Unrecorded)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if conflict.First {
				firsts++
			}
		})
	}
	wg.Wait()
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.conflict`); n != 8 || firsts != 1 {
		t.Errorf("%d conflicts kept, %d of them the first; want %d and 1", n, firsts, 8)
	}
}

// A flood of conflicts under one id waits in this process, not on connections that
// other deliveries need.
func TestConflictsDoNotUseUpThePool(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	accept(t, s, delivery("dlv_1", "one"))
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), lockConflictSQL, "t1", "src1", "dlv_1"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := s.Accept(t.Context(), delivery("dlv_1", fmt.Sprint("other ", i)))
			var conflict *ConflictError
			if !errors.As(err, &conflict) || conflict.Unrecorded == nil {
				t.Errorf("%v, want a conflict that could not be recorded", err)
			}
		})
	}
	if most := mostWaiting(t, tx, &wg); most < 1 || most > 2 {
		t.Errorf("%d connections waited at once, want 1", most)
	}
}

// X31: retries that differ in a counter are one delivery, also when the first body is
// gone; the hash of the whole body goes on to count.
func TestX31_CompareHashDecidesBesideTheBodyHash(t *testing.T) {
	s, pool := newStore(t)
	comparing := func(body, compared string) Delivery {
		d := delivery("dlv_1", body)
		d.CompareHash = sha256.Sum256([]byte(compared))
		return d
	}
	accept(t, s, comparing("attempt 1", "attempt"))
	for _, pruned := range []bool{false, true} {
		if pruned {
			exec(t, pool, `DELETE FROM hooklatch.payload`)
		}
		for _, d := range []Delivery{comparing("attempt 2", "attempt"), comparing("attempt 1", "of other pointers"), delivery("dlv_1", "attempt 1")} {
			if r := accept(t, s, d); !r.Duplicate || r.Conflict != nil {
				t.Errorf("pruned %v, %s: %+v, want a plain duplicate", pruned, d.Body, r)
			}
		}
		for _, d := range []Delivery{comparing("other", "other"), delivery("dlv_1", "attempt 2")} {
			var conflict *ConflictError
			if _, err := s.Accept(t.Context(), d); !errors.As(err, &conflict) {
				t.Errorf("pruned %v, %s: %v, want a conflict", pruned, d.Body, err)
			}
		}
	}
	// Two without a compare hash are not alike for that.
	accept(t, s, delivery("dlv_2", "one"))
	var conflict *ConflictError
	if _, err := s.Accept(t.Context(), delivery("dlv_2", "two")); !errors.As(err, &conflict) {
		t.Errorf("%v, want a conflict", err)
	}
}

// X31: the sender hears of a duplicate, the evidence is kept all the same.
func TestX31_AcceptFirstKeepsTheEvidence(t *testing.T) {
	s, pool := newStore(t)
	first := accept(t, s, delivery("dlv_1", "one"))
	exec(t, pool, `DELETE FROM hooklatch.payload`)
	for i := range 20 {
		d := delivery("dlv_1", fmt.Sprint("other ", i%10))
		d.AcceptFirst = true
		r := accept(t, s, d)
		if !r.Duplicate || r.ID != first.ID || !r.ReceivedAt.Equal(first.ReceivedAt) || r.DeliveryID != "dlv_1" ||
			r.Conflict == nil || r.Conflict.First != (i == 0) || r.Conflict.Unrecorded != nil {
			t.Errorf("delivery %d: %+v (%+v)", i, r, r.Conflict)
		}
	}
	if n := count(t, pool, `SELECT count(*) * 100 + sum(seen) FROM hooklatch.conflict`); n != 816 {
		t.Errorf("%d, want 8 bodies kept and each counted twice", n)
	}
	// Who is not asked to keep the first refuses, and gives no second alarm.
	var conflict *ConflictError
	if _, err := s.Accept(t.Context(), delivery("dlv_1", "last")); !errors.As(err, &conflict) || conflict.First {
		t.Errorf("%v (%+v), want a conflict that is not the first", err, conflict)
	}
}

// Retention takes the body of the evidence away, and nothing else.
func TestConflictWithoutItsBody(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, delivery("dlv_1", "one"))
	s.Accept(t.Context(), delivery("dlv_1", ""))
	exec(t, pool, `INSERT INTO hooklatch.conflict (tenant, source, delivery_id, body_hash, headers, body)
		VALUES ('t1', 'src1', 'dlv_1', sha256('two'), '', NULL)`)
	var conflict *ConflictError
	if _, err := s.Accept(t.Context(), delivery("dlv_1", "two")); !errors.As(err, &conflict) || conflict.First || conflict.Unrecorded != nil {
		t.Errorf("%v (%+v), want a conflict that is known", err, conflict)
	}
	conflicts, err := s.Conflicts(t.Context(), "t1", "src1", "dlv_1")
	if err != nil || len(conflicts) != 2 {
		t.Fatalf("%+v, %v", conflicts, err)
	}
	if c := conflicts[0]; c.Pruned || len(c.Body) != 0 {
		t.Errorf("an empty body: %+v", c)
	}
	if c := conflicts[1]; !c.Pruned || c.Seen != 2 || c.BodyHash != sha256.Sum256([]byte("two")) {
		t.Errorf("a pruned body: %+v", c)
	}
}
