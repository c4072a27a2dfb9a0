package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func of(tenant, id string) Delivery {
	d := delivery(id, "x")
	d.Tenant = tenant
	return d
}

// tried runs one statement in a transaction of its own and says whether the database
// has denied it, and else how many rows it was about.
func tried(t *testing.T, pool *pgxpool.Pool, opening, sql string) (rows int64, denied bool) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), opening); err != nil {
		t.Fatal(err)
	}
	tag, err := tx.Exec(t.Context(), sql)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return 0, true
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected(), false
}

// T04: a role neither sees nor writes rows of tenants that the transaction has not
// named, and none at all where it has named nobody.
func TestT04_RowsOfOtherTenantsAreOutOfReach(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, of("t1", "dlv_1"))
	accept(t, s, of("t2", "dlv_1"))
	const (
		nobody = `SELECT 1`
		ended  = `SELECT set_config('hooklatch.tenants', '', true)` // as it reads after a transaction
		t1     = `SELECT set_config('hooklatch.tenants', '{"t1"}', true)`
		both   = `SELECT set_config('hooklatch.tenants', '{"t1","t2"}', true)`
		every  = `SELECT set_config('hooklatch.tenants', '{*}', true)`

		look       = `SELECT id FROM hooklatch.outbox`
		insert     = `INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size) VALUES ('t2', 's', 'new', sha256('x'), 1)`
		insertLane = `INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane) VALUES ('t2', 'app', 's', '', 'r', sha256('x'))`
		insertLine = `INSERT INTO hooklatch.audit (tenant, actor, action, reason) VALUES ('t2', 'me', 'replay', 'test')`
		move       = `UPDATE hooklatch.outbox SET waiting = true`
	)
	const denied = -1
	for _, c := range []struct {
		role                role
		sql                 string
		nobody, t1, t2, all int64 // rows
	}{
		{roleIngest, look, 0, 1, 2, 0},
		{roleConsumer, look, 0, 1, 2, 0},
		{roleAdmin, look, 0, 1, 2, 2},
		{roleRead, look, 0, 1, 2, 2},
		{roleIngest, insert, denied, denied, 1, denied},
		{roleConsumer, insertLane, denied, denied, 1, denied},
		{roleAdmin, insertLine, denied, denied, 1, 1},
		{roleConsumer, move, 0, 1, 2, 0},
		{roleAdmin, move, 0, 1, 2, 2},
	} {
		for _, e := range []struct {
			tenants string
			want    int64
		}{{nobody, c.nobody}, {ended, c.nobody}, {t1, c.t1}, {both, c.t2}, {every, c.all}} {
			rows, no := tried(t, s.pool, `SELECT set_config('role', '`+string(c.role)+`', true); `+e.tenants, c.sql)
			if no {
				rows = denied
			}
			if rows != e.want {
				t.Errorf("%s, %s, %s: %d rows, want %d", c.role, e.tenants, c.sql, rows, e.want)
			}
		}
	}
	// A row cannot be moved to another tenant, even where the column could be written.
	exec(t, pool, `GRANT UPDATE ON hooklatch.outbox TO hooklatch_consumer`)
	if _, no := tried(t, s.pool, `SELECT set_config('role', 'hooklatch_consumer', true); `+t1, `UPDATE hooklatch.outbox SET tenant = 't2'`); !no {
		t.Error("a row was given to another tenant")
	}
	// The login itself has no rights: what runs outside a role fails.
	if _, no := tried(t, s.pool, every, look); !no && s.pool.Config().ConnConfig.User == inboxtest.Login {
		t.Error("a statement without a role is let through")
	}
}

// oddTenants have names that would end, split or change a carelessly written list.
var oddTenants = []string{"t1", "a,b", `a"b`, `a\b`, "{a}", "{*}", "NULL", "", " ", "'; DROP TABLE x; --", "ü 日本", "*", `\`, `"`}

// The list reads back as it was written, by the database that has to read it.
func TestTenantsOfAnyNameAreAList(t *testing.T) {
	s, _ := newStore(t)
	for _, want := range append([][]string{nil, oddTenants}, singles(oddTenants)...) {
		var got []string
		err := s.asOf(t.Context(), roleRead, want, func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), `SELECT nullif(current_setting('hooklatch.tenants', true), '')::text[]`).Scan(&got)
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", want, got, err)
		}
	}
	if got := tenantList([]string{"a", "b", "a"}); got != `{"a","b"}` {
		t.Error(got)
	}
	for _, tenant := range []string{"*", "t1"} { // a tenant of that name is not all of them
		if tenantList([]string{tenant}) == everyTenant {
			t.Errorf("tenant %s stands for every tenant", tenant)
		}
	}
}

func singles(all []string) (each [][]string) {
	for _, one := range all {
		each = append(each, []string{one})
	}
	return each
}

// X13: the tenant of a row is that of its own delivery, whoever shares the batch; and
// each goes its way to the end under any name.
func TestX13_BatchOfSeveralTenantsKeepsThemApart(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (*Store, *pgxpool.Pool){"prepared": func(t *testing.T) (*Store, *pgxpool.Pool) { return newStore(t) }, "pooler": pooled} {
		t.Run(name, func(t *testing.T) {
			s, pool := open(t)
			wholeAtEnd(t, pool)
			tenants := slices.DeleteFunc(slices.Clone(oddTenants), func(name string) bool { return name == "" })
			var members []*member[*acceptance]
			for _, tenant := range tenants {
				for _, id := range []string{"dlv_1", "dlv_1", "dlv_2"} {
					a, err := newAcceptance(of(tenant, id))
					if err != nil {
						t.Fatal(err)
					}
					members = append(members, &member[*acceptance]{work: a})
				}
			}
			s.acceptBatch(members)
			for _, m := range members {
				if m.err != nil {
					t.Fatal(m.err)
				}
			}
			for _, tenant := range tenants {
				if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox JOIN hooklatch.payload p ON p.inbox_id = inbox.id AND p.tenant = inbox.tenant
					JOIN hooklatch.outbox o ON o.inbox_id = inbox.id AND o.tenant = inbox.tenant WHERE inbox.tenant = $1`, tenant); n != 2 {
					t.Errorf("tenant %q has %d deliveries, want 2", tenant, n)
				}
				other := of(tenant, "dlv_1")
				other.Body, other.BodyHash = []byte("other"), [32]byte{1}
				var conflict *ConflictError
				if _, err := s.Accept(t.Context(), other); !errors.As(err, &conflict) || conflict.Tenant != tenant || conflict.Unrecorded != nil {
					t.Errorf("tenant %q: %v", tenant, err)
				}
			}
			forwards, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Tenants: tenants, Limit: 100, Lease: time.Minute})
			if err != nil || len(forwards) != 2*len(tenants) {
				t.Fatalf("%d claimed, %v", len(forwards), err)
			}
			var settles []*member[*settling]
			for _, f := range forwards {
				settles = append(settles, &member[*settling]{work: &settling{Settlement: settlement(f, OutcomeAccepted, "2xx")}})
			}
			s.settleBatch(settles)
			for _, m := range settles {
				if m.err != nil || !m.work.held {
					t.Errorf("tenant %q: held %v, %v", m.work.Tenant, m.work.held, m.err)
				}
			}
		})
	}
}

// pooled is newStore behind a pgbouncer in transaction mode.
func pooled(t *testing.T) (*Store, *pgxpool.Pool) {
	t.Helper()
	pool := inboxtest.New(t)
	address := inboxtest.Pooler(t, inboxtest.LoginURL(t, pool.Config().ConnString()), 2)
	limited, err := pgxpool.New(t.Context(), address+"&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	s, err := New(limited, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s, pool
}

// A claim takes the forwards of the tenants that it names; without a list, of all that
// have something due. What it leaves is nobody's loss.
func TestClaimTakesTheTenantsThatItNames(t *testing.T) {
	s, _ := newStore(t)
	for _, tenant := range []string{"gone", "t1", "t2"} {
		accept(t, s, of(tenant, "dlv_1"))
		ordered := revised(1, OrderStrict)
		ordered.Tenant, ordered.DeliveryID = tenant, "dlv_2"
		accept(t, s, ordered)
	}
	claim := func(limit int, tenants ...string) (got []string) {
		t.Helper()
		forwards, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Tenants: tenants, Limit: limit, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range forwards {
			got = append(got, f.Delivery.Tenant+" "+f.Delivery.DeliveryID)
		}
		slices.Sort(got)
		return got
	}
	if got := claim(10, "t1", "nobody"); !slices.Equal(got, []string{"t1 dlv_1", "t1 dlv_2"}) {
		t.Errorf("of t1: %q", got)
	}
	if got := claim(10); len(got) != 4 {
		t.Errorf("of all: %q", got)
	}
	forwards, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Tenants: []string{}, Limit: 10, Lease: time.Minute, Now: time.Now().Add(time.Hour)})
	if err != nil || len(forwards) > 0 {
		t.Errorf("of nobody: %d, %v", len(forwards), err)
	}
}

// A settlement finds its lease by its tenant. A wrong one finds none, and a missing one
// is a mistake of the program.
func TestSettlementOfAnotherTenantFindsNoLease(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, of("t1", "dlv_1"))
	f := claimOne(t, s, time.Time{})
	st := settlement(f, OutcomeAccepted, "2xx")
	for tenant, lost := range map[string]bool{"": false, "t2": true, "{*}": true, "*": true} {
		st.Tenant = tenant
		if err := s.Settle(t.Context(), st); err == nil || errors.Is(err, ErrLeaseLost) != lost {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	f.Delivery.Tenant = "t2"
	if _, err := s.Renew(t.Context(), f, time.Hour); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("renew: %v", err)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'pending' AND lease_until IS NOT NULL`); n != 1 {
		t.Error("the forward has moved")
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.attempt`); n != 0 {
		t.Errorf("%d attempts were recorded", n)
	}
}

// Neither the role nor the tenants of a transaction reach the next one.
func TestConnectionKeepsNoRoleAndNoTenants(t *testing.T) {
	s, _ := newStore(t)
	accept(t, s, of("t1", "dlv_1"))
	settle1(t, s, claimOne(t, s, time.Time{}), OutcomeAccepted)
	failed := errors.New("given up")
	if err := s.as(t.Context(), roleAdmin, func(pgx.Tx) error { return failed }); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	conns := s.pool.AcquireAllIdle(t.Context())
	if len(conns) == 0 {
		t.Fatal("void: no connection was used")
	}
	for _, c := range conns {
		var user, role, tenants string
		err := c.QueryRow(t.Context(), `SELECT current_user, current_setting('role'), coalesce(current_setting('hooklatch.tenants', true), '')`).Scan(&user, &role, &tenants)
		if err != nil || user != s.pool.Config().ConnConfig.User || role != "none" || tenants != "" {
			t.Errorf("user %s, role %s, tenants %q, %v", user, role, tenants, err)
		}
		c.Release()
	}
}

// A settlement inside the caller's transaction gives back what was there before.
func TestSettleTxGivesTheRoleBack(t *testing.T) {
	s, pool := newStore(t)
	for n, before := range []string{
		`SELECT 1`,
		`SELECT set_config('role', 'hooklatch_read', true), set_config('hooklatch.tenants', '{"x","a,b"}', true)`,
		`SET ROLE hooklatch_ingest`,
	} {
		accept(t, s, of("t1", fmt.Sprint("dlv_", n)))
		conn, err := pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig.Copy())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		stands := func() (line string) {
			t.Helper()
			err := tx.QueryRow(t.Context(), `SELECT format('%s %s %s', current_user, current_setting('role'), current_setting('hooklatch.tenants', true))`).Scan(&line)
			if err != nil {
				t.Fatal(err)
			}
			return line
		}
		want := stands()
		st := settlement(claimOne(t, s, time.Time{}), OutcomeAccepted, "2xx")
		lost := st
		lost.Token--
		if err := s.SettleTx(t.Context(), tx, lost); !errors.Is(err, ErrLeaseLost) || stands() != want {
			t.Errorf("%s: lost: %v, then %s, want %s", before, err, stands(), want)
		}
		savepoint, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		failed := within(t.Context(), savepoint, roleConsumer, []string{"t1"}, func() error {
			_, err := savepoint.Exec(t.Context(), `SELECT 1 / 0`)
			return err
		})
		if err := savepoint.Rollback(t.Context()); failed == nil || err != nil || stands() != want {
			t.Errorf("%s: after an error: %v, %v, then %s, want %s", before, failed, err, stands(), want)
		}
		if err := s.SettleTx(t.Context(), tx, st); err != nil || stands() != want {
			t.Errorf("%s: %v, then %s, want %s", before, err, stands(), want)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted'`); n != 3 {
		t.Errorf("%d are accepted, want 3", n)
	}
}

// A role that is missing, or that the login may not take on, is a fault of the
// installation: it spoils no delivery's name, and is told as such.
func TestMissingRightIsAFaultOfOurs(t *testing.T) {
	pool := inboxtest.New(t)
	exec(t, pool, `DO $$ BEGIN CREATE ROLE nobody_special; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	cfg := pool.Config()
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SET SESSION AUTHORIZATION nobody_special`)
		return err
	}
	limited, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	s, err := New(limited, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Accept(t.Context(), delivery("dlv_1", "x")); !errors.Is(err, ErrInternal) || errors.Is(err, errRefused) {
			t.Errorf("accept: %v, want ErrInternal", err)
		}
	}
	if _, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Tenants: []string{"t1"}, Limit: 1, Lease: time.Minute}); !errors.Is(err, ErrInternal) {
		t.Errorf("claim: %v, want ErrInternal", err)
	}
}
