package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
)

// business is a table of the app's own, in the database of the inbox.
func business(t *testing.T, pool *pgxpool.Pool) (rows func() int) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "CREATE TABLE paid (delivery_id text PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM paid").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

func pay(ctx context.Context, tx pgx.Tx, f Forward) error {
	_, err := tx.Exec(ctx, "INSERT INTO paid VALUES ($1)", f.Delivery.DeliveryID)
	return err
}

func startedTx(t *testing.T, q TxQueue, pool *pgxpool.Pool, h TxHandlerFunc, cfg Config) (<-chan AttemptResult, func()) {
	t.Helper()
	results := make(chan AttemptResult, 1000)
	cfg.Destination, cfg.Poll = "app", 20*time.Millisecond
	cfg.OnAttempt = func(_ context.Context, r AttemptResult) { results <- r }
	c, err := NewTx(q, h, TxConfig{DB: pool, Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	end := launch(t, c)
	stop := func() {
		if err := end(); err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return results, stop
}

func TestBusinessAndAcceptedCommitTogether(t *testing.T) {
	store, pool := newStore(t)
	rows := business(t, pool)
	accept(t, store, numbered(50)...)
	results, stop := startedTx(t, store, pool, pay, Config{})
	for range 50 {
		if r := next(t, results); r.Err != nil || r.Settlement.Outcome != inbox.OutcomeAccepted {
			t.Fatalf("%+v", r)
		}
	}
	stop()
	if n := forwards(t, pool, "state = 'accepted' AND lease_until IS NULL AND attempts = 1"); n != 50 || rows() != 50 || attemptsOf(t, pool, "2xx") != 50 {
		t.Errorf("%d accepted, %d business rows", n, rows())
	}
}

func TestFailedBusinessLeavesNoRow(t *testing.T) {
	store, pool := newStore(t)
	rows := business(t, pool)
	accept(t, store, numbered(5)...)
	h := func(ctx context.Context, tx pgx.Tx, f Forward) error {
		if err := pay(ctx, tx, f); err != nil {
			return err
		}
		switch f.Delivery.DeliveryID {
		case "d0":
			return errors.New("no")
		case "d1":
			return &AttemptError{Permanent: true, Err: errors.New("never")}
		case "d2":
			panic("boom")
		case "d3": // an error that was overlooked has spoiled the transaction
			_, _ = tx.Exec(ctx, "SELECT 1/0")
		}
		return nil
	}
	results, stop := startedTx(t, store, pool, h, Config{Retry: Retry{Base: time.Hour, Cap: time.Hour}})
	for range 5 {
		next(t, results)
	}
	stop()
	if rows() != 1 {
		t.Errorf("%d business rows, want that of d4 alone", rows())
	}
	accepted, blocked, waiting := forwards(t, pool, "state = 'accepted'"), forwards(t, pool, "state = 'blocked'"), forwards(t, pool, "state = 'retry_wait'")
	if accepted != 1 || blocked != 1 || waiting != 3 || forwards(t, pool, "lease_until IS NOT NULL") != 0 {
		t.Errorf("%d accepted, %d blocked, %d waiting; want 1, 1, 3 and no lease", accepted, blocked, waiting)
	}
}

func TestStaleTokenRollsTheBusinessBack(t *testing.T) {
	store, pool := newStore(t)
	rows := business(t, pool)
	accept(t, store, "d1")
	began, stalled := make(chan struct{}), make(chan struct{})
	// Stalls before SettleTx, where ctx has been looked at for the last time.
	slowQueue := &stalling{Store: store, began: began, stalled: stalled}
	late, _ := startedTx(t, slowQueue, pool, func(ctx context.Context, tx pgx.Tx, f Forward) error {
		_, err := tx.Exec(ctx, "INSERT INTO paid VALUES ('stale')")
		return err
	}, Config{Concurrency: 1, Timeout: 100 * time.Millisecond, Lease: 200 * time.Millisecond})
	<-began
	results, _ := startedTx(t, store, pool, pay, Config{})
	if r := next(t, results); r.Err != nil || r.Forward.Attempt != 2 {
		t.Errorf("second worker: %+v", r)
	}
	close(stalled)
	r := next(t, late)
	if !r.LeaseLost || r.Settlement.Class != "unknown" {
		t.Errorf("the late worker was told %+v", r)
	}
	var paid string
	if err := pool.QueryRow(t.Context(), "SELECT string_agg(delivery_id, ' ') FROM paid").Scan(&paid); err != nil || paid != "d1" || rows() != 1 {
		t.Errorf("business rows %q, %v; want the newer holder's alone", paid, err)
	}
	wantLedger(t, store, r.Forward.ID, "1 unknown 0", "1 unknown 0 late", "2 2xx 0")
}

type stalling struct {
	*inbox.Store
	began, stalled chan struct{}
}

func (q *stalling) SettleTx(ctx context.Context, tx pgx.Tx, s inbox.Settlement) error {
	close(q.began)
	<-q.stalled
	return q.Store.SettleTx(ctx, tx, s)
}

func TestCommitWhoseAnswerWasLostIsNotUndone(t *testing.T) {
	store, pool := newStore(t)
	rows := business(t, pool)
	accept(t, store, "d1")
	lossy := lossyDB{pool}
	results := make(chan AttemptResult, 1)
	c, err := NewTx(store, TxHandlerFunc(pay), TxConfig{DB: lossy, Config: Config{
		Destination: "app", OnAttempt: func(_ context.Context, r AttemptResult) { results <- r },
	}})
	if err != nil {
		t.Fatal(err)
	}
	stop := launch(t, c)
	next(t, results)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := forwards(t, pool, "state = 'accepted' AND lease_until IS NULL"); n != 1 || rows() != 1 {
		t.Errorf("%d accepted, %d business rows; want 1 and 1", n, rows())
	}
}

// lossyDB commits, and then says that the connection broke.
type lossyDB struct{ *pgxpool.Pool }

func (db lossyDB) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := db.Pool.BeginTx(ctx, o)
	return lossyTx{tx}, err
}

type lossyTx struct{ pgx.Tx }

func (tx lossyTx) Commit(ctx context.Context) error {
	if err := tx.Tx.Commit(ctx); err != nil {
		return err
	}
	return fmt.Errorf("connection reset after COMMIT")
}

// E10: a process that vanishes between the settlement and its COMMIT, its connection
// still open, does not keep the forward.
func TestCaseE10_VanishedTransactionFreesItsForward(t *testing.T) {
	t.Parallel()
	store, pool := newStore(t)
	rows := business(t, pool)
	accept(t, store, "d1")
	vanished := vanishingDB{pool, make(chan struct{}), make(chan struct{})}
	c, err := NewTx(store, TxHandlerFunc(pay), TxConfig{DB: vanished, Config: Config{
		Destination: "app", Concurrency: 1, Timeout: 100 * time.Millisecond, Lease: 200 * time.Millisecond,
	}})
	if err != nil {
		t.Fatal(err)
	}
	stop := launch(t, c)
	<-vanished.began
	results, _ := startedTx(t, store, pool, pay, Config{Retry: Retry{Base: 10 * time.Millisecond, Cap: 10 * time.Millisecond, MaxAttempts: -1}})
	if r := next(t, results); r.Err != nil || r.Settlement.Outcome != inbox.OutcomeAccepted || rows() != 1 {
		t.Errorf("%+v, %d business rows", r, rows())
	}
	close(vanished.back)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if rows() != 1 {
		t.Errorf("%d business rows after the first worker came back", rows())
	}
}

// vanishingDB comes to COMMIT, and no further before it is back.
type vanishingDB struct {
	*pgxpool.Pool
	began, back chan struct{}
}

func (db vanishingDB) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := db.Pool.BeginTx(ctx, o)
	return vanishingTx{tx, db}, err
}

type vanishingTx struct {
	pgx.Tx
	db vanishingDB
}

func (tx vanishingTx) Commit(ctx context.Context) error {
	close(tx.db.began)
	<-tx.db.back
	return tx.Tx.Commit(ctx)
}

// A program with a login of its own: its business has the rights of that login, and the
// settlement those of the consumer, in one transaction.
func TestBusinessHasTheRightsOfItsLogin(t *testing.T) {
	t.Parallel()
	_, owner := newStore(t)
	rows := business(t, owner)
	pool := asLogin(t, owner, "hooklatch_ingest, hooklatch_consumer")
	if _, err := owner.Exec(t.Context(), `ALTER TABLE paid OWNER TO `+pool.Config().ConnConfig.User); err != nil {
		t.Fatal(err)
	}
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for revision := range int64(2) {
		if _, err := store.Accept(t.Context(), ofResource(inbox.OrderStrict, "r", revision)); err != nil {
			t.Fatal(err)
		}
	}
	h := func(ctx context.Context, tx pgx.Tx, f Forward) error {
		var denied *pgconn.PgError
		nested, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := nested.Exec(ctx, `DELETE FROM hooklatch.outbox`); !errors.As(err, &denied) || denied.Code != "42501" {
			t.Errorf("business on the tables of the inbox: %v, want 42501", err)
		}
		if err := nested.Rollback(ctx); err != nil {
			return err
		}
		return pay(ctx, tx, f)
	}
	results, stop := startedTx(t, store, pool, h, Config{Tenants: []string{"t1"}})
	for range 2 {
		if r := next(t, results); r.Err != nil || r.Settlement.Outcome != inbox.OutcomeAccepted {
			t.Errorf("%+v", r)
		}
	}
	stop()
	if rows() != 2 {
		t.Errorf("%d business rows", rows())
	}
}

// asLogin returns a pool of a login that is a member of these roles and inherits nothing.
func asLogin(t *testing.T, owner *pgxpool.Pool, roles string) *pgxpool.Pool {
	t.Helper()
	cfg := owner.Config()
	cfg.ConnConfig.User, cfg.ConnConfig.Password = "app_"+strings.ToLower(rand.Text()), rand.Text()
	name := cfg.ConnConfig.User
	for _, sql := range []string{`CREATE ROLE ` + name + ` LOGIN NOINHERIT PASSWORD '` + cfg.ConnConfig.Password + `'`, `GRANT ` + roles + ` TO ` + name} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		for _, sql := range []string{`DROP OWNED BY ` + name, `DROP ROLE ` + name} {
			if _, err := owner.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	return pool
}

func TestNewTxDemands(t *testing.T) {
	var store *inbox.Store
	if _, err := NewTx(store, TxHandlerFunc(pay), TxConfig{Config: Config{Destination: "app"}}); err == nil {
		t.Error("was taken without DB")
	}
	if _, err := NewTx(store, TxHandlerFunc(pay), TxConfig{DB: lossyDB{}}); err == nil {
		t.Error("was taken without Destination")
	}
}
