package inbox

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// fill adds finished deliveries of src1 behind the back of the store. Its own reads,
// for foreign keys, are counted when its connection is gone.
func fill(t *testing.T, pool *pgxpool.Pool, from, to int) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	pid := conn.PgConn().PID()
	_, err = conn.Exec(t.Context(), `WITH i AS (
		INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size)
		SELECT 't1', 'src1', 'old_' || n, sha256('x'), 1 FROM generate_series($1::int, $2) n RETURNING id),
	p AS (INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body) SELECT id, 't1', 'POST', '', '', 'x' FROM i)
	INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at, state)
	SELECT id, 't1', 'app', now() + interval '1 day', 'accepted' FROM i`, from, to)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid) > 0 {
	}
}

// forgetReads begins to count anew, once all connections have told of what they read.
func forgetReads(t *testing.T, s *Store, pool *pgxpool.Pool) {
	t.Helper()
	s.pool.Reset()
	pool.Reset()
	for count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()`) > 1 {
	}
	exec(t, pool, `SELECT pg_stat_reset()`)
}

// tellReads lets the connections of the store tell what they have read, and keep their
// plans. A connection tells at the end of a statement, at most once a second.
func tellReads(t *testing.T, s *Store) {
	t.Helper()
	var telling sync.WaitGroup
	for _, conn := range s.pool.AcquireAllIdle(t.Context()) {
		telling.Go(func() {
			defer conn.Release()
			if _, err := conn.Exec(t.Context(), `SELECT pg_sleep(1.1)`); err != nil {
				t.Error(err)
			}
		})
	}
	telling.Wait()
}

// rowsRead is how many rows of the tables were read since pg_stat_reset, by scans and
// through indexes. A connection tells at the latest when it is closed.
func rowsRead(t *testing.T, s *Store, pool *pgxpool.Pool) (n int) {
	t.Helper()
	s.pool.Reset()
	pool.Reset()
	deadline := time.Now().Add(20 * time.Second)
	for n == 0 {
		if time.Now().After(deadline) {
			t.Fatal("void: the server has not counted anything")
		}
		n = count(t, pool, `SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_user_tables
			WHERE schemaname = 'hooklatch' AND (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) = 1`)
	}
	return n
}

// A connection keeps the plan that it made when the tables were small. Neither that
// nor missing statistics may make the work grow with the history.
func TestPlansOfSmallTablesServeLargeOnes(t *testing.T) {
	t.Parallel()
	for _, small := range []int{0, 600} {
		t.Run(fmt.Sprint(small), func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			for _, table := range []string{"inbox", "outbox", "payload"} {
				exec(t, pool, `ALTER TABLE hooklatch.`+table+` SET (autovacuum_enabled = off)`)
			}
			fill(t, pool, 1, small)
			work := func(round int) {
				var members []*member[*acceptance]
				for n := range 32 { // half of them duplicates
					a, err := newAcceptance(delivery(fmt.Sprint("dlv_", round*16+n), "x"))
					if err != nil {
						t.Fatal(err)
					}
					members = append(members, &member[*acceptance]{work: a})
				}
				s.acceptBatch(members)
				for _, m := range members {
					if m.err != nil {
						t.Fatal(m.err)
					}
				}
				forwards, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 32, Lease: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				var settles []*member[*settling]
				for _, f := range forwards {
					settles = append(settles, &member[*settling]{work: &settling{Settlement: settlement(f, OutcomeAccepted, "2xx")}})
				}
				s.settleBatch(settles)
				for _, m := range settles {
					if m.err != nil || !m.work.held {
						t.Fatalf("held %v, %v", m.work.held, m.err)
					}
				}
			}
			for round := range 8 { // from the sixth on a plan is kept
				work(round)
			}
			fill(t, pool, small+1, 20_000)
			exec(t, pool, `SELECT pg_stat_reset()`)
			work(8)
			if n := rowsRead(t, s, pool); n > 5000 {
				t.Errorf("32 deliveries and their forwards read %d rows", n)
			}
		})
	}
}

// Where the planner has nothing but a scan, which is forbidden, it thinks the statement
// dear; a server that compiles dear ones would take a second for each.
func TestNothingIsCompiled(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	for _, r := range []role{roleIngest, roleConsumer, roleAdmin, roleRead} {
		jit, err := collect(t.Context(), s, r, pgx.RowTo[string], `SHOW jit`)
		if err != nil || jit[0] != "off" {
			t.Errorf("%s: jit is %v, %v", r, jit, err)
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	var jit string
	if _, err = tx.Exec(t.Context(), settingsSQL, "{t1}"); err == nil {
		err = tx.QueryRow(t.Context(), `SHOW jit`).Scan(&jit)
	}
	if err != nil || jit != "off" {
		t.Errorf("accept: jit is %q, %v", jit, err)
	}
}
