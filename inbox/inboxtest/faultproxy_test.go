package inboxtest_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// through returns a pool that bypasses a proxy and one that does not. There is a
// table row(n).
func through(t *testing.T) (direct, proxied *pgxpool.Pool, p *inboxtest.FaultProxy) {
	t.Helper()
	target := inboxtest.URL(t)
	p = inboxtest.NewFaultProxy(t, target)
	var pools [2]*pgxpool.Pool
	for i, url := range []string{target, p.URL()} {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		pools[i] = pool
	}
	if _, err := pools[0].Exec(t.Context(), `CREATE TABLE row (n int)`); err != nil {
		t.Fatal(err)
	}
	return pools[0], pools[1], p
}

func rows(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM row`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// ways are the ways in which a client can insert a row and commit.
var ways = map[string]func(ctx context.Context, conn *pgx.Conn) error{
	"simple query": func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO row VALUES ($1)`, 1); err != nil {
			return err
		}
		return tx.Commit(ctx)
	},
	"many statements in a simple query": func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.PgConn().Exec(ctx, `BEGIN; INSERT INTO row VALUES (1); COMMIT; `).ReadAll()
		return err
	},
	"batch of prepared statements": func(ctx context.Context, conn *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(`BEGIN`)
		b.Queue(`INSERT INTO row VALUES ($1)`, 1)
		b.Queue(`COMMIT`)
		return conn.SendBatch(ctx, b).Close()
	},
	"statement prepared by name": func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Prepare(ctx, "c1", `commit`); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, `BEGIN`); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, `INSERT INTO row VALUES (1)`); err != nil {
			return err
		}
		return conn.PgConn().ExecPrepared(ctx, "c1", nil, nil, nil).Read().Err
	},
	"extended query without a name": func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, `BEGIN`); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, `INSERT INTO row VALUES ($1)`, pgx.QueryExecModeExec, 1); err != nil {
			return err
		}
		return conn.PgConn().ExecParams(ctx, `commit`, nil, nil, nil, nil).Read().Err
	},
	"pipeline with syncs before": func(ctx context.Context, conn *pgx.Conn) error {
		pipeline := conn.PgConn().StartPipeline(ctx)
		for _, sql := range []string{`BEGIN`, `INSERT INTO row VALUES (1)`, `COMMIT`} {
			pipeline.SendQueryParams(sql, nil, nil, nil, nil)
			if err := pipeline.Sync(); err != nil {
				return err
			}
		}
		return pipeline.Close()
	},
}

func TestFaultsAtCommit(t *testing.T) {
	direct, proxied, p := through(t)
	run := func(t *testing.T, way func(context.Context, *pgx.Conn) error) error {
		conn, err := proxied.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		return way(t.Context(), conn.Conn())
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			before, counted := rows(t, direct), p.Counts()

			if err := run(t, way); err != nil || rows(t, direct) != before+1 {
				t.Fatalf("without a fault: %v", err)
			}
			p.AtCommit(inboxtest.CutBeforeCommit, 1)
			if err := run(t, way); err == nil || rows(t, direct) != before+1 || p.Counts().CutBefore != counted.CutBefore+1 {
				t.Errorf("cut before: %v, %d rows more, %+v", err, rows(t, direct)-before, p.Counts())
			}
			p.AtCommit(inboxtest.CutAfterCommit, 1)
			if err := run(t, way); err == nil || rows(t, direct) != before+2 || p.Counts().CutAfter != counted.CutAfter+1 {
				t.Errorf("cut after: %v, %d rows more, %+v", err, rows(t, direct)-before, p.Counts())
			}
			p.AtCommit(inboxtest.HoldCommit, 1)
			done := make(chan error)
			go func() { done <- run(t, way) }()
			p.Await(func(c inboxtest.Counts) bool { return c.Held == 1 })
			if rows(t, direct) != before+2 {
				t.Error("hold: the row is there")
			}
			p.Release()
			if err := <-done; err != nil || rows(t, direct) != before+3 || p.Counts().Released != counted.Released+1 {
				t.Errorf("release: %v, %d rows more, %+v", err, rows(t, direct)-before, p.Counts())
			}
			if commits := p.Counts().Commits - counted.Commits; commits != 4 {
				t.Errorf("%d COMMITs", commits)
			}
		})
	}
}

// Only the transaction that was asked for, and not one that was rolled back before it.
func TestFaultAtTheCommitOfOneTransaction(t *testing.T) {
	direct, proxied, p := through(t)
	conn, err := proxied.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	run := func(last, sql string) error {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), sql, 1); err != nil {
			t.Fatal(err)
		}
		if last == "rollback" {
			return tx.Rollback(t.Context())
		}
		return tx.Commit(t.Context())
	}
	const insert = `INSERT INTO row VALUES ($1)`
	p.AtCommitOf("INTO row", inboxtest.CutBeforeCommit, 1)
	if err := errors.Join(run("commit", `SELECT $1::int`), run("rollback", insert), run("commit", `SELECT $1::int`)); err != nil {
		t.Errorf("another transaction was met: %v", err)
	}
	if err := run("commit", insert); err == nil || p.Counts().CutBefore != 1 || rows(t, direct) != 0 {
		t.Errorf("%v, %+v, %d rows; want it cut", err, p.Counts(), rows(t, direct))
	}
}

func TestFailedTransactionIsNoCommit(t *testing.T) {
	_, proxied, p := through(t)
	tx, err := proxied.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1/0`); err == nil {
		t.Fatal("void")
	}
	p.AtCommit(inboxtest.CutAfterCommit, 1)
	if err := tx.Commit(t.Context()); err == nil || p.Counts().CutAfter != 0 {
		t.Errorf("%v %+v", err, p.Counts())
	}
}

func TestOtherStatementsAreNoCommit(t *testing.T) {
	_, proxied, p := through(t)
	for _, sql := range []string{`SELECT 'commit'`, `-- commit`, `BEGIN; ROLLBACK`, `SELECT 1 AS commit`, ``} {
		if _, err := proxied.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.Counts().Commits; n != 0 {
		t.Errorf("%d COMMITs", n)
	}
}

// brief is a context for what is expected to hang.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestModes(t *testing.T) {
	direct, proxied, p := through(t)
	ask := func(ctx context.Context) error {
		var n int
		return proxied.QueryRow(ctx, `SELECT 1`).Scan(&n)
	}
	heal := func(t *testing.T) {
		t.Helper()
		p.Set(inboxtest.Pass)
		proxied.Reset() // it may hold a connection that it does not know to be dead
		if err := ask(t.Context()); err != nil {
			t.Errorf("after the fault: %v", err)
		}
	}
	t.Run("up is cut", func(t *testing.T) {
		heal(t)
		before, counted := rows(t, direct), p.Counts()
		p.Set(inboxtest.CutUp)
		if _, err := proxied.Exec(brief(t), `INSERT INTO row VALUES (1)`); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if rows(t, direct) != before || p.Counts().Stalled == counted.Stalled {
			t.Errorf("it got through: %+v", p.Counts())
		}
		heal(t)
	})
	t.Run("down is cut", func(t *testing.T) {
		heal(t)
		before, counted := rows(t, direct), p.Counts()
		p.Set(inboxtest.CutDown)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := proxied.Exec(ctx, `INSERT INTO row VALUES (1)`)
			done <- err
		}()
		p.Await(func(c inboxtest.Counts) bool { return c.Stalled > counted.Stalled })
		cancel()
		if err := <-done; err == nil || rows(t, direct) != before+1 {
			t.Errorf("%v, %d rows more", err, rows(t, direct)-before)
		}
		heal(t)
	})
	t.Run("half-open", func(t *testing.T) {
		heal(t)
		p.Set(inboxtest.HalfOpen)
		if conn, err := pgx.Connect(brief(t), p.URL()); err == nil {
			conn.Close(t.Context())
			t.Error("it answered")
		}
		if err := ask(brief(t)); err == nil {
			t.Error("a standing connection answered")
		}
		heal(t)
	})
	t.Run("reset", func(t *testing.T) {
		heal(t)
		conn, err := pgx.Connect(t.Context(), p.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		counted := p.Counts()
		p.Set(inboxtest.Reset)
		if err := conn.Ping(t.Context()); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("standing connection: %v", err)
		}
		if _, err := pgx.Connect(t.Context(), p.URL()); err == nil {
			t.Error("a new connection was taken")
		}
		if p.Counts().Reset < counted.Reset+2 {
			t.Errorf("%+v", p.Counts())
		}
		heal(t)
	})
	t.Run("slow", func(t *testing.T) {
		heal(t)
		p.Latency = 30 * time.Millisecond
		p.Set(inboxtest.Slow)
		began := time.Now()
		if err := ask(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 60*time.Millisecond || p.Counts().Slow < 2 {
			t.Errorf("%s, %+v", took, p.Counts())
		}
		heal(t)
	})
	t.Run("sliced", func(t *testing.T) {
		heal(t)
		p.Set(inboxtest.Slice)
		long := strings.Repeat("0123456789", 5000)
		var back string
		if err := proxied.QueryRow(t.Context(), `SELECT $1::text`, long).Scan(&back); err != nil || back != long || p.Counts().Sliced == 0 {
			t.Errorf("%v, %d bytes, %+v", err, len(back), p.Counts())
		}
		heal(t)
	})
}

func TestCancelPassesTheProxy(t *testing.T) {
	_, proxied, _ := through(t)
	conn, err := proxied.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	done := make(chan error)
	go func() {
		_, err := conn.Exec(t.Context(), `SELECT pg_sleep(60)`)
		done <- err
	}()
	for {
		if err := conn.Conn().PgConn().CancelRequest(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "57014") {
				t.Error(err)
			}
			return
		case <-time.After(20 * time.Millisecond): // it may not have begun
		}
	}
}

func TestClusterComesBack(t *testing.T) {
	c := inboxtest.NewCluster(t)
	pool := c.Pool()
	insert := func() error {
		_, err := pool.Exec(t.Context(), `INSERT INTO hooklatch.config_revision (hash, redacted) VALUES (sha256(gen_random_uuid()::text::bytea), '')`)
		return err
	}
	if err := insert(); err != nil {
		t.Fatal(err)
	}
	if n := c.Terminate(); n != 1 {
		t.Errorf("terminated %d connections", n)
	}
	for name, end := range map[string]func(){"stopped": c.Stop, "killed": c.Kill} {
		end()
		if err := insert(); err == nil {
			t.Errorf("%s: void, it still answers", name)
		}
		c.Start()
		pool.Reset()
		if err := insert(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM hooklatch.config_revision`).Scan(&n); err != nil || n != 3 {
		t.Errorf("%d rows, %v", n, err)
	}
}
