package inbox

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// leasing is what workers do with leases, seen from beside the store.
type leasing struct {
	t *testing.T
	s *Store

	mu      sync.Mutex
	newest  map[int64]int64 // by forward: the token that was given out last
	won     map[int64]int   // by forward: settlements that were taken
	refused int             // settlements of leases that another had by then
	taken   int             // of such: must be none
}

// claim is empty where a connection was killed, too.
func (l *leasing) claim(now time.Time) (got []Forward, done bool) {
	got, err := l.s.Claim(l.t.Context(), ClaimRequest{Destination: "app", Limit: 7, Lease: 30 * time.Second, Now: now})
	if err != nil && !errors.Is(err, ErrUnavailable) {
		l.t.Error(err)
		return nil, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range got {
		l.newest[f.ID] = max(l.newest[f.ID], f.Token)
	}
	return got, err == nil && len(got) == 0
}

func (l *leasing) settle(f Forward) {
	l.mu.Lock()
	stale := l.newest[f.ID] > f.Token
	l.mu.Unlock()
	err := l.s.Settle(l.t.Context(), settlement(f, OutcomeAccepted, "2xx"))
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.won[f.ID]++
		if stale {
			l.taken++
		}
	case errors.Is(err, ErrLeaseLost):
		if stale {
			l.refused++
		}
	case !errors.Is(err, ErrUnavailable):
		l.t.Error(err)
	}
}

// Twelve workers, leases that run out while they work, and backends that are killed: each
// forward ends once. Who has stalled settles all the same, when another has taken over,
// and is refused each time.
func TestP05_StallingWorkersSettleOnce(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	for i := range 300 {
		accept(t, s, delivery(fmt.Sprint(i), "x"))
	}
	l := &leasing{t: t, s: s, newest: map[int64]int64{}, won: map[int64]int{}}
	now := time.Now()
	var wg sync.WaitGroup
	for w := range 12 {
		wg.Go(func() {
			var stalled []Forward
			for round := 0; ; round++ {
				// Each round is a minute later: leases of 30 s of the round before are over.
				got, done := l.claim(now.Add(time.Duration(round) * time.Minute))
				if done && round > 20 {
					break
				}
				for _, f := range got {
					if round < 3 && (int(f.ID)+w)%3 == 0 {
						stalled = append(stalled, f)
						continue
					}
					l.settle(f)
				}
				if w == 0 && round%2 == 0 {
					killBackends(t, pool)
				}
			}
			for _, f := range stalled {
				l.settle(f)
			}
		})
	}
	wg.Wait()
	for id, times := range l.won {
		if times != 1 {
			t.Errorf("forward %d was settled %d times", id, times)
		}
	}
	if l.taken > 0 {
		t.Errorf("%d stale settlements were taken", l.taken)
	}
	if l.refused == 0 {
		t.Error("void: no stale settlement was tried")
	}
	if open := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state <> 'accepted'`); open != 0 {
		t.Errorf("%d forwards are not accepted", open)
	}
	t.Logf("%d stale settlements were refused", l.refused)
}

func killBackends(t testing.TB, pool *pgxpool.Pool) {
	pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%hooklatch.outbox%'`)
}
