package inbox

import (
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
	exec(t, pool, fmt.Sprintf(`ALTER DATABASE %s SET default_transaction_isolation = 'repeatable read'`,
		pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()))
	pool.Reset()
	other, err := New(pool, Config{})
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
