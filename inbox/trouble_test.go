package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// begin opens a session of its own in which another writer can be played.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// untilBlocked waits until n sessions of this database wait for a lock.
func untilBlocked(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) < n {
		if time.Now().After(deadline) {
			t.Fatalf("never were %d sessions blocked", n)
		}
	}
}

const playWinnerSQL = `INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size) VALUES ('t1', 'src1', 'dlv_1', $1, 1)`

// E6: the loser of the race waits for the winner and then compares with what the
// winner stored, whatever the database's default isolation is.
func TestCaseE6_LoserOfTheRaceWaitsForTheWinner(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		for _, c := range []struct {
			name     string
			body     string // the winner's
			commits  bool
			wantNew  bool
			conflict bool
		}{
			{"same bytes, committed", "mine", true, false, false},
			{"other bytes, committed", "theirs", true, false, true},
			{"other bytes, rolled back", "theirs", false, true, false},
		} {
			t.Run(isolation+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				s, pool := newStore(t)
				exec(t, pool, fmt.Sprintf(`ALTER DATABASE %s SET default_transaction_isolation = '%s'`,
					pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize(), isolation))
				s.pool.Reset()
				winner := delivery("dlv_1", c.body)
				tx := begin(t, pool)
				if _, err := tx.Exec(t.Context(), playWinnerSQL, winner.BodyHash[:]); err != nil {
					t.Fatal(err)
				}
				result := make(chan error)
				var r Receipt
				go func() {
					var err error
					r, err = s.Accept(context.Background(), delivery("dlv_1", "mine"))
					result <- err
				}()
				untilBlocked(t, pool, 1)
				end := tx.Rollback
				if c.commits {
					end = tx.Commit
				}
				if err := end(t.Context()); err != nil {
					t.Fatal(err)
				}
				err := <-result
				var conflict *ConflictError
				if errors.As(err, &conflict) != c.conflict || !c.conflict && (err != nil || r.Duplicate == c.wantNew) {
					t.Errorf("receipt %+v, %v; want new %v, conflict %v", r, err, c.wantNew, c.conflict)
				}
			})
		}
	}
}

// X36, D4: a key that another session holds too long costs only its own delivery,
// and leaves nothing that would make the retry a duplicate.
func TestX36_HeldKeySpoilsNoOtherMember(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	tx := begin(t, pool)
	held := delivery("dlv_1", "held")
	if _, err := tx.Exec(t.Context(), playWinnerSQL, held.BodyHash[:]); err != nil {
		t.Fatal(err)
	}
	var members []*member[*acceptance]
	for _, id := range []string{"dlv_0", "dlv_1", "dlv_2"} {
		work, err := newAcceptance(delivery(id, "held"))
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, &member[*acceptance]{work: work})
	}
	start := time.Now()
	s.acceptBatch(members)
	if took := time.Since(start); took > batchTime {
		t.Errorf("took %v", took)
	}
	for i, want := range []error{nil, ErrBusy, nil} {
		if !errors.Is(members[i].err, want) {
			t.Errorf("member %d: %v, want %v", i, members[i].err, want)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := accept(t, s, held); r.Duplicate {
		t.Error("the retry is a duplicate, but nothing was stored")
	}
}

// X36: what Postgres ends for the sake of another transaction is tried again, and the
// sender hears of nothing.
func TestX36_EndedForAnotherIsTriedAgain(t *testing.T) {
	for _, code := range []string{"40001", "40P01"} {
		s, pool := newStore(t)
		wholeAtEnd(t, s.pool)
		exec(t, pool, `CREATE SEQUENCE hooklatch.tries`) // what it has counted is not rolled back
		exec(t, pool, `GRANT ALL ON SEQUENCE hooklatch.tries TO PUBLIC`)
		exec(t, pool, `CREATE FUNCTION hooklatch.give_way() RETURNS trigger LANGUAGE plpgsql AS
			$$BEGIN IF nextval('hooklatch.tries') = 1 THEN RAISE 'another goes first' USING ERRCODE = '`+code+`'; END IF; RETURN NEW; END$$`)
		exec(t, pool, `CREATE TRIGGER give_way BEFORE INSERT ON hooklatch.inbox FOR EACH ROW EXECUTE FUNCTION hooklatch.give_way()`)
		if r := accept(t, s, delivery("dlv_1", "x")); r.Duplicate {
			t.Errorf("%s: the only delivery is a duplicate", code)
		}
		if n := count(t, pool, `SELECT last_value FROM hooklatch.tries`); n != 2 {
			t.Errorf("%s: %d tries, want 2", code, n)
		}
	}
}

// X37: a member that the database refuses fails alone, and its retries go alone.
func TestX37_RefusedMemberFailsAlone(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	exec(t, pool, `CREATE FUNCTION hooklatch.refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN IF NEW.delivery_id = 'poison' THEN RAISE 'refused' USING ERRCODE = '22003'; END IF; RETURN NEW; END$$`)
	exec(t, pool, `CREATE TRIGGER refuse BEFORE INSERT ON hooklatch.inbox FOR EACH ROW EXECUTE FUNCTION hooklatch.refuse()`)
	var members []*member[*acceptance]
	for _, id := range []string{"a", "poison", "b"} {
		work, err := newAcceptance(delivery(id, "x"))
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, &member[*acceptance]{work: work})
	}
	s.acceptBatch(members)
	for i, want := range []error{nil, ErrInternal, nil} {
		if !errors.Is(members[i].err, want) {
			t.Errorf("member %d: %v, want %v", i, members[i].err, want)
		}
	}
	if !s.refused.has(members[1].work.key) {
		t.Error("the poisoned id is not set apart")
	}
	if _, err := s.Accept(t.Context(), delivery("poison", "x")); !errors.Is(err, ErrInternal) {
		t.Errorf("alone: %v, want ErrInternal", err)
	}
	exec(t, pool, `DROP TRIGGER refuse ON hooklatch.inbox`)
	if r := accept(t, s, delivery("poison", "x")); r.Duplicate {
		t.Error("a duplicate of what was refused")
	}
}

// A refused delivery that comes many times at once must not use up the pool.
func TestRefusedDeliveriesUseOneConnection(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	d := delivery("dlv_1", "x")
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), playWinnerSQL, d.BodyHash[:]); err != nil {
		t.Fatal(err)
	}
	s.refused.add(identity{d.Tenant, d.Source, d.DeliveryID})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.Accept(t.Context(), d); err == nil {
				t.Error("accepted against a held key")
			}
		})
	}
	// One that gave up may still be waiting on the server when the next begins.
	if most := mostWaiting(t, tx, &wg); most < 1 || most > 2 {
		t.Errorf("%d connections waited at once, want 1", most)
	}
}

// mostWaiting says how many sessions at most waited for tx until wg was done.
func mostWaiting(t *testing.T, tx pgx.Tx, wg *sync.WaitGroup) (most int) {
	t.Helper()
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for {
		var n int
		if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
			WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
		select {
		case <-ended:
			return most
		default:
		}
	}
}

// The row that a delivery is compared with may be pruned at that moment. Its member
// runs once more, and costs the others nothing.
func TestVanishedRowIsTriedOnceMoreAndFailsAlone(t *testing.T) {
	s, pool := newStore(t)
	exec(t, pool, `CREATE SEQUENCE hooklatch.tries`)
	exec(t, pool, `GRANT ALL ON SEQUENCE hooklatch.tries TO PUBLIC`)
	exec(t, pool, `CREATE FUNCTION hooklatch.vanish() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN IF NEW.delivery_id = 'gone' OR NEW.delivery_id = 'once' AND nextval('hooklatch.tries') = 1 THEN RETURN NULL; END IF; RETURN NEW; END$$`)
	exec(t, pool, `CREATE TRIGGER vanish BEFORE INSERT ON hooklatch.inbox FOR EACH ROW EXECUTE FUNCTION hooklatch.vanish()`)
	if r := accept(t, s, delivery("once", "x")); r.Duplicate {
		t.Error("the only delivery is a duplicate")
	}
	exec(t, pool, `SELECT setval('hooklatch.tries', 1, false)`)
	exec(t, pool, `UPDATE hooklatch.inbox SET delivery_id = 'before'`)
	var members []*member[*acceptance]
	for _, id := range []string{"a", "gone", "once", "gone", "b"} {
		work, err := newAcceptance(delivery(id, "x"))
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, &member[*acceptance]{work: work})
	}
	s.acceptBatch(members)
	for i, want := range []error{nil, ErrUnavailable, nil, ErrUnavailable, nil} {
		if m := members[i]; !errors.Is(m.err, want) || m.work.inserted != (want == nil) {
			t.Errorf("member %d: inserted %v, %v; want %v", i, m.work.inserted, m.err, want)
		}
	}
}

// E4: two writers with the same keys. Ours come in the opposite order; since each
// batch inserts in the order of the keys, it waits for the other writer's first key
// without holding its second, and there is no circle.
func TestCaseE4_OppositeOrdersDoNotDeadlock(t *testing.T) {
	s, pool := newStore(t)
	other := begin(t, pool)
	insert := func(id string) error {
		hash := delivery(id, "x").BodyHash
		_, err := other.Exec(t.Context(), `INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size) VALUES ('t1', 'src1', $1, $2, 1)`, id, hash[:])
		return err
	}
	if err := insert("a"); err != nil {
		t.Fatal(err)
	}
	var members []*member[*acceptance]
	for _, id := range []string{"b", "a"} {
		work, err := newAcceptance(delivery(id, "x"))
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, &member[*acceptance]{work: work})
	}
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		s.acceptBatch(members)
	}()
	untilBlocked(t, pool, 1)
	if _, err := other.Exec(t.Context(), `SET LOCAL lock_timeout = '100ms'`); err != nil {
		t.Fatal(err)
	}
	if err := insert("b"); err != nil {
		t.Errorf("the batch holds b while it waits for a: %v", err)
	}
	other.Commit(t.Context()) // a rollback after that error; the batch goes on either way
	<-decided
	for i, m := range members {
		if m.err != nil {
			t.Errorf("member %d: %v", i, m.err)
		}
	}
}

// X32: a database that takes no writes.
func TestX32_ReadOnlyDatabaseIsUnavailableAndComesBack(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	accept(t, s, delivery("dlv_1", "x"))
	if _, err := s.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
	name := pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()
	exec(t, pool, `ALTER DATABASE `+name+` SET default_transaction_read_only = on`)
	s.pool.Reset()
	if _, err := s.Accept(t.Context(), delivery("dlv_2", "x")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("read-only: %v, want ErrUnavailable", err)
	}
	if _, err := s.Ready(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("ready on a read-only database: %v, want ErrUnavailable", err)
	}
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), `SET TRANSACTION READ WRITE`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `ALTER DATABASE `+name+` RESET default_transaction_read_only`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Each connection from before would refuse for as long as it lives.
	if _, err := s.Accept(t.Context(), delivery("dlv_2", "x")); err != nil && !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	accept(t, s, delivery("dlv_2", "x"))
}

// The database's defaults must not decide what 202 means, nor whether the loser of
// a race sees the winner.
func TestAcceptPinsItsTransactionWhateverTheDefaults(t *testing.T) {
	s, pool := newStore(t)
	for _, setting := range []string{`synchronous_commit = off`, `default_transaction_isolation = 'repeatable read'`} {
		exec(t, pool, `ALTER DATABASE `+pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()+` SET `+setting)
	}
	exec(t, pool, `CREATE TABLE seen (setting text)`)
	exec(t, pool, `GRANT INSERT ON seen TO PUBLIC`)
	exec(t, pool, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit') || ', ' || current_setting('transaction_isolation')); RETURN NEW; END$$`)
	exec(t, pool, `CREATE TRIGGER see BEFORE INSERT ON hooklatch.inbox FOR EACH ROW EXECUTE FUNCTION see()`)
	s.pool.Reset()
	pool.Reset()
	if n := count(t, pool, `SELECT (current_setting('synchronous_commit') = 'off' AND current_setting('transaction_isolation') = 'repeatable read')::int`); n != 1 {
		t.Fatal("void: the defaults are not what they were set to")
	}
	accept(t, s, delivery("dlv_1", "x"))
	if n := count(t, pool, `SELECT count(*) FROM seen WHERE setting = 'on, read committed'`); n != 1 {
		t.Error("the accept transaction ran with the database's defaults")
	}
}

func TestX40_MissingTableIsInternal(t *testing.T) {
	s, pool := newStore(t)
	exec(t, pool, `DROP TABLE hooklatch.conflict, hooklatch.payload CASCADE`)
	if _, err := s.Accept(t.Context(), delivery("dlv_1", "x")); !errors.Is(err, ErrInternal) {
		t.Errorf("%v, want ErrInternal", err)
	}
}

// E3: what connections have prepared is gone. The second try must not take another
// one of them.
func TestCaseE3_StalePreparedStatementIsTriedOnceMore(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	find := func() error {
		for _, err := range s.Find(t.Context(), Filter{}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	claim := func() error {
		_, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute})
		return err
	}
	n := 0
	receive := func() error {
		n++
		_, err := s.Accept(t.Context(), delivery(fmt.Sprint("dlv_", n), "x"))
		return err
	}
	for name, op := range map[string]func() error{"accept": receive, "claim": claim, "find": find} {
		s.pool.Reset()
		const connections = 3
		var held []*pgxpool.Conn
		for range connections { // each round finds the connections of those before in use
			if err := errors.Join(receive(), claim(), find()); err != nil {
				t.Fatal(err)
			}
			held = append(held, s.pool.AcquireAllIdle(t.Context())...)
		}
		if len(held) != connections {
			t.Fatalf("void: %d connections have prepared statements, want %d", len(held), connections)
		}
		for _, c := range held {
			if _, err := c.Exec(t.Context(), `DEALLOCATE ALL`); err != nil {
				t.Fatal(err)
			}
			c.Release()
		}
		if err := op(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClassify(t *testing.T) {
	lost := errors.New("unexpected EOF")
	for _, c := range []struct {
		name       string
		err        error
		committing bool
		want       error
	}{
		{"lost before COMMIT", lost, false, ErrUnavailable},
		{"lost in COMMIT", lost, true, ErrOutcomeUnknown},
		{"deadline in COMMIT", context.DeadlineExceeded, true, ErrOutcomeUnknown},
		{"too many connections", &pgconn.PgError{Code: "53300"}, false, ErrUnavailable},
		{"shutdown before COMMIT", &pgconn.PgError{Code: "57P01"}, false, ErrUnavailable},
		{"shutdown in COMMIT", &pgconn.PgError{Code: "57P01"}, true, ErrOutcomeUnknown},
		{"connection failure in COMMIT", &pgconn.PgError{Code: "08006"}, true, ErrOutcomeUnknown},
		{"connection failure before COMMIT", &pgconn.PgError{Code: "08006"}, false, ErrUnavailable},
		{"standby", &pgconn.PgError{Code: "25006"}, false, ErrUnavailable},
		{"deadlock", &pgconn.PgError{Code: "40P01"}, false, ErrBusy},
		{"serialization in COMMIT", &pgconn.PgError{Code: "40001"}, true, ErrBusy},
		{"lock timeout", &pgconn.PgError{Code: "55P03"}, false, ErrBusy},
		{"statement timeout", &pgconn.PgError{Code: "57014"}, false, ErrBusy},
		{"disk full", &pgconn.PgError{Code: "53100"}, false, ErrFull},
		{"out of memory", &pgconn.PgError{Code: "53200"}, false, ErrUnavailable},
		{"cached plan", &pgconn.PgError{Code: "0A000", Message: "cached plan must not change result type"}, false, ErrUnavailable},
		{"feature", &pgconn.PgError{Code: "0A000", Message: "no such thing"}, false, ErrInternal},
		{"value", &pgconn.PgError{Code: "22021"}, false, ErrInternal},
		{"program limit", &pgconn.PgError{Code: "54000"}, false, ErrInternal},
		{"right", &pgconn.PgError{Code: "42501"}, false, ErrInternal},
		{"schema", &pgconn.PgError{Code: "3F000"}, false, ErrInternal},
		{"corruption", &pgconn.PgError{Code: "XX001"}, false, ErrInternal},
		{"no code", &pgconn.PgError{}, false, ErrInternal},
		{"answered ROLLBACK", pgx.ErrTxCommitRollback, true, ErrInternal},
	} {
		if got := classify(c.err, c.committing).public(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// E10: a process that vanishes in the middle of a transaction, without closing
// its connection, frees its rows.
func TestCaseE10_VanishedProcessFreesItsRows(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(s *Store) error{
		"accept": func(s *Store) error {
			_, err := s.Accept(context.Background(), delivery("dlv_2", "x"))
			return err
		},
		"claim": func(s *Store) error {
			_, err := s.Claim(context.Background(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, direct, proxy := faulty(t)
			accept(t, s, delivery("dlv_1", "x"))
			proxy.AtCommit(inboxtest.HoldCommit, 1)
			ended := make(chan error)
			go func() { ended <- hold(s) }()
			proxy.Await(func(c inboxtest.Counts) bool { return c.Held == 1 })
			deadline := time.Now().Add(20 * time.Second)
			for count(t, direct, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`) > 0 {
				if time.Now().After(deadline) {
					t.Fatal("the transaction is still open")
				}
			}
			proxy.Set(inboxtest.Reset)
			if err := <-ended; err == nil {
				t.Error("void: it was not held")
			}
		})
	}
}
