package inbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A duplicate, or another body, meets the pruning of its identity in every order of
// their steps. The verdict is that of the moment before or of the moment after, and
// what was answered as new is stored whole.
func TestPruneAndAcceptOfOneKeyInEveryOrder(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"mine", "other"} {
		for _, order := range []string{
			"prune, accept", "accept, prune",
			"lock, accept, delete", "delete, accept waits, commit", "delete, accept waits, rollback",
			"insert, prune, compare",
		} {
			t.Run(body+"/"+order, func(t *testing.T) {
				t.Parallel()
				s, pool := newStore(t)
				settled(t, s, pool, delivery("dlv_1", "mine"), Accepted, 100*day)
				prune := beginPrune(t, pool)
				p := pruningsOf(Retention{Identities: time.Now().Add(-90 * day)})[0]
				remove := func() {
					if err := p.batch(t.Context(), prune); err != nil || p.Rows != 1 {
						t.Fatalf("%d pruned, %v", p.Rows, err)
					}
				}
				done := make(chan error, 1)
				var r Receipt
				accepts := func() {
					var err error
					r, err = s.Accept(context.Background(), delivery("dlv_1", body))
					done <- err
				}
				known := true // at the moment that the verdict speaks of
				switch order {
				case "prune, accept":
					remove()
					prune.Commit(t.Context())
					known = false
					accepts()
				case "accept, prune":
					accepts()
					remove()
					prune.Commit(t.Context())
				case "lock, accept, delete":
					lock(t, prune, "dlv_1") // as the batch does first
					accepts()               // does not wait
					remove()
					prune.Commit(t.Context())
				case "delete, accept waits, commit", "delete, accept waits, rollback":
					remove()
					go accepts()
					untilBlocked(t, pool, 1)
					if known = order == "delete, accept waits, rollback"; known {
						prune.Rollback(t.Context())
					} else {
						prune.Commit(t.Context())
					}
				case "insert, prune, compare":
					remove2 := func() { remove(); prune.Commit(t.Context()) }
					done <- s.acceptAround(t, delivery("dlv_1", body), &r, remove2)
					known = false
				}
				err := <-done
				var conflict *ConflictError
				switch {
				case known && body == "other":
					if !errors.As(err, &conflict) {
						t.Errorf("%+v, %v; want a conflict", r, err)
					}
				case err != nil || r.Duplicate != known:
					t.Errorf("%+v, %v; known: %v", r, err, known)
				case !r.Duplicate:
					if d, err := s.Payload(t.Context(), r.ID); err != nil || string(d.Body) != body {
						t.Errorf("stored %q, %v", d.Body, err)
					}
					if f := forwardOf(t, s, r.ID); f.State != Pending {
						t.Errorf("its forward: %+v", f)
					}
				}
			})
		}
	}
}

// beginPrune opens a session in which a batch can be pruned.
func beginPrune(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), `SELECT set_config('hooklatch.tenants', '{*}', true)`); err != nil {
		t.Fatal(err)
	}
	return tx
}

func lock(t *testing.T, tx pgx.Tx, deliveryID string) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), `SELECT id FROM hooklatch.inbox WHERE delivery_id = $1 FOR UPDATE`, deliveryID); err != nil {
		t.Fatal(err)
	}
}

// acceptAround is Accept with something done after its insert has found the key
// taken, and before it compares.
func (s *Store) acceptAround(t *testing.T, d Delivery, r *Receipt, between func()) error {
	t.Helper()
	a, err := newAcceptance(d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, candidates, byKey := t.Context(), []*acceptance{a}, map[identity]*acceptance{a.key: a}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	opening := &pgx.Batch{}
	opening.Queue(beginSQL)
	opening.Queue(settingsSQL, tenantList([]string{d.Tenant}))
	err = insert(ctx, conn, opening, candidates, byKey)
	between()
	err = errors.Join(err, lookUp(ctx, conn, candidates, byKey))
	_, commit := conn.Exec(ctx, "COMMIT")
	conn.Release()
	if err := errors.Join(err, commit); err != nil || a.id != 0 {
		t.Fatalf("void: found %d, %v", a.id, err)
	}
	s.recheck(ctx, candidates)
	*r = Receipt{ID: a.id, Duplicate: !a.inserted, ReceivedAt: a.receivedAt}
	return a.missing
}

// A new forward needs the identity. The one that comes first wins, and the other takes
// note.
func TestPruneOfAnIdentityAndANewForwardInEveryOrder(t *testing.T) {
	t.Parallel()
	act := Act{"me", "test"}
	unrouted := delivery("dlv_1", "x")
	unrouted.Forwards = nil
	retention := Retention{Identities: time.Now().Add(-90 * day)}
	forwards := []NewForward{{Destination: "app"}}

	s, pool := newStore(t)
	r := settled(t, s, pool, unrouted, "", 100*day)
	tx := begin(t, pool)
	if made, err := route(t.Context(), tx, r.ID, forwards, act); err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	if gone := prune(t, s, retention); len(gone) != 0 {
		t.Errorf("pruned although a forward is being made: %v", gone)
	}
	tx.Commit(t.Context())
	if gone := prune(t, s, retention); len(gone) != 0 {
		t.Errorf("pruned although a forward is open: %v", gone)
	}

	s, pool = newStore(t)
	r = settled(t, s, pool, unrouted, "", 100*day)
	tx, p := beginPrune(t, pool), pruningsOf(retention)[0]
	if err := p.batch(t.Context(), tx); err != nil || p.Rows != 1 {
		t.Fatal(p.Rows, err)
	}
	done := make(chan error)
	go func() {
		_, err := s.Route(context.Background(), r.ID, forwards, act)
		done <- err
	}()
	untilBlocked(t, pool, 1)
	tx.Commit(t.Context())
	if err := <-done; !errors.Is(err, ErrNotFound) {
		t.Errorf("route: %v, want ErrNotFound", err)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox`); n != 0 {
		t.Errorf("%d forwards of what is gone", n)
	}
}

// A forward that was made after the batch was looked for, and before it was locked, is
// seen: the look for open forwards is a statement of its own.
func TestPruneSeesAForwardThatWasMadeMeanwhile(t *testing.T) {
	t.Parallel()
	for table, retention := range map[string]Retention{"payload": {Bodies: time.Now()}, "inbox": {Identities: time.Now()}} {
		s, pool := newStore(t)
		d := delivery("dlv_1", "x")
		d.Forwards = nil
		r := settled(t, s, pool, d, "", 100*day)
		// The look stops at the row for as long as the test holds the lock.
		exec(t, pool, `CREATE FUNCTION stop() RETURNS boolean LANGUAGE plpgsql AS
			$$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN true; END $$`)
		exec(t, pool, `CREATE POLICY stop ON hooklatch.`+table+` AS RESTRICTIVE TO hooklatch_owner USING (public.stop())`)
		holder := begin(t, pool)
		if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(4711)`); err != nil {
			t.Fatal(err)
		}
		gone := make(chan map[string]int)
		go func() { gone <- prune(t, s, retention) }()
		untilBlocked(t, pool, 1)
		if _, err := s.Route(t.Context(), r.ID, []NewForward{{Destination: "app"}}, Act{"me", "test"}); err != nil {
			t.Fatal(err)
		}
		holder.Rollback(t.Context())
		if gone := <-gone; len(gone) > 0 {
			t.Errorf("gone although a forward was made meanwhile: %v", gone)
		}
	}
}
