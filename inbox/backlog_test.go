package inbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// backlog puts n forwards of t1 to app behind the back of the store, with what set makes
// of them. The statistics stay those of empty tables.
func backlog(t testing.TB, pool *pgxpool.Pool, n int, set string) {
	t.Helper()
	for _, table := range []string{"inbox", "outbox", "payload", "resource"} {
		exec(t, pool, `ALTER TABLE hooklatch.`+table+` SET (autovacuum_enabled = off)`)
	}
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err = conn.Exec(t.Context(), `WITH i AS (
		INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, resource_type, resource_id, revision)
		SELECT 't1', 'src1', 'waits-' || n, sha256(n::text::bytea), 1, 'invoice', 'waits-' || n, 1 FROM generate_series(1, $1::int) n RETURNING id),
	p AS (INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body) SELECT id, 't1', 'POST', '', '', 'x' FROM i)
	INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, next_attempt_at, expires_at)
	SELECT id, 't1', 'app', now() - interval '1 hour', now() + interval '1 day' FROM i`, n); err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Exec(t.Context(), `UPDATE hooklatch.outbox SET `+set+` WHERE next_attempt_at < now() - interval '10 minutes'`); err != nil {
		t.Fatal(err)
	}
}

// A claim reads no more for what waits, whoever's it is, whether it was tried before,
// whether its time has come, in lanes and outside; nor for what is settled.
func TestBacklogCostsNoClaimAnything(t *testing.T) {
	t.Parallel()
	const inLanes = `, ordering = 'latest', revision = 1, lane = sha256(id::text::bytea)`
	for name, set := range map[string]string{
		"new":              `state = 'pending'`,
		"tried":            `state = 'retry_wait'`,
		"not due":          `state = 'retry_wait', next_attempt_at = now() + interval '1 hour'`,
		"settled":          `state = 'accepted', settled_at = now()`,
		"dead letters":     `state = 'blocked', settled_at = now(), blocked_reason = 'refused'`,
		"new in lanes":     `state = 'pending'` + inLanes,
		"tried in lanes":   `state = 'retry_wait'` + inLanes,
		"not due in lanes": `state = 'retry_wait', next_attempt_at = now() + interval '1 hour'` + inLanes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			tenants := []string{"t1", "t2"}
			claim := func(round int) {
				for _, ordering := range []Ordering{OrderNone, OrderLatest} {
					dueOf(t, s, "t2", fmt.Sprint(round, ordering, "-"), ordering, 2)
				}
				all, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Tenants: tenants, Limit: 8, ForRetries: 2, Lease: time.Minute,
					Shares: map[string]Share{"t1": {Weight: 1, Most: 6}, "t2": {Weight: 1, Most: 6}}})
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, f := range all {
					if f.Delivery.Tenant == "t2" {
						n++
					}
					settle1(t, s, f, OutcomeAccepted)
				}
				if n != 4 {
					t.Errorf("round %d: %d of the four forwards of t2 were claimed", round, n)
				}
			}
			for round := range 7 {
				claim(round)
			}
			backlog(t, pool, 5_000, set)
			tellReads(t, s)
			forgetReads(t, s, pool)
			claim(7)
			if n := rowsRead(t, s, pool); n > 1300 {
				t.Errorf("four deliveries, a claim and its settlements read %d rows", n)
			}
		})
	}
}

// A claim of many tenants reads of each what the places need, and not as much as there
// are places: it still fills all of them, also from one tenant, and by the weights.
func TestClaimOfManyTenantsReadsLittleOfEach(t *testing.T) {
	t.Parallel()
	const many = 100
	for name, set := range map[string]string{
		"outside lanes": `state = state`,
		"in lanes":      `ordering = 'latest', revision = 1, lane = sha256(id::text::bytea)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			r := ClaimRequest{Destination: "app", Limit: 8, Lease: time.Minute, Shares: map[string]Share{"t1": {Weight: many, Most: 8}}}
			for n := range many {
				r.Tenants = append(r.Tenants, fmt.Sprint("t", n+1))
			}
			claim := func() (of map[string]int) {
				all, err := s.Claim(t.Context(), r)
				if err != nil || len(all) != r.Limit {
					t.Fatalf("%d of %d places are taken, %v", len(all), r.Limit, err)
				}
				of = map[string]int{}
				for _, f := range all {
					of[f.Delivery.Tenant]++
				}
				return of
			}
			backlog(t, pool, many*8, set)
			if n := claim()["t1"]; n != 8 {
				t.Errorf("the only tenant with something due has %d of 8 places", n)
			}
			for _, table := range []string{"inbox", "payload", "outbox"} {
				key := "inbox_id"
				if table == "inbox" {
					key = "id"
				}
				exec(t, pool, fmt.Sprintf(`UPDATE hooklatch.%s SET tenant = 't' || %s %% %d + 1`, table, key, many))
			}
			exec(t, pool, `UPDATE hooklatch.outbox SET lease_until = NULL`)
			tellReads(t, s)
			forgetReads(t, s, pool)
			if n := claim()["t1"]; n != 8 {
				t.Errorf("a tenant whose turn it is by its weight has %d of 8 places", n)
			}
			if n := rowsRead(t, s, pool); n > 600 {
				t.Errorf("to fill 8 places from %d tenants read %d rows", many, n)
			}
		})
	}
}

// What has no time left is blocked in bulk, and keeps nobody else's forwards waiting for
// the claim to come back.
func TestBacklogWithoutTimeHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	dueOf(t, s, "t1", "in time", OrderNone, 8)
	backlog(t, pool, 20_000, `expires_at = now() - interval '1 minute'`)
	dueOf(t, s, "t2", "in time", OrderNone, 8)
	r := ClaimRequest{Destination: "app", Tenants: []string{"t1", "t2"}, Limit: 16, Lease: time.Minute,
		Shares: map[string]Share{"t1": {Weight: 1, Most: 12}, "t2": {Weight: 1, Most: 12}}}
	of := map[string]int{}
	for claims := 1; of["t1"]+of["t2"] < 16; claims++ {
		all, err := s.Claim(t.Context(), r)
		if err != nil || claims > 6 {
			t.Fatalf("after %d claims %v, %v", claims, of, err)
		}
		for _, f := range all {
			of[f.Delivery.Tenant]++
		}
		if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'blocked'`); claims == 1 && (of["t2"] != 8 || n < 1000 || n > 10_000) {
			t.Errorf("the first claim brought %v and blocked %d", of, n)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'blocked'`); n != 20_000 {
		t.Errorf("%d are blocked", n)
	}
}

// Nor do other looks at the tenants of a destination.
func TestTenantsAreFoundWithoutReadingTheirBacklog(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	dueOf(t, s, "t2", "", OrderNone, 1)
	backlog(t, pool, 5_000, `state = 'pending'`)
	forgetReads(t, s, pool)
	tenants, err := s.waitingTenants(t.Context(), "app")
	if err != nil || len(tenants) != 2 {
		t.Fatalf("%v, %v", tenants, err)
	}
	if n := rowsRead(t, s, pool); n > 50 {
		t.Errorf("to find two tenants read %d rows", n)
	}
}
