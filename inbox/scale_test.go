package inbox

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// crowd puts forwards of resource "long" to app into the state that set makes, behind
// the back of the store, one for each revision from 1001 on. The statistics stay those
// of empty tables.
func crowd(t testing.TB, pool *pgxpool.Pool, ordering Ordering, n int, set string) {
	t.Helper()
	for _, table := range []string{"inbox", "outbox", "payload", "resource"} {
		exec(t, pool, `ALTER TABLE hooklatch.`+table+` SET (autovacuum_enabled = off)`)
	}
	d := ofResource(ordering, "long", 0)
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), `WITH i AS (
		INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, resource_type, resource_id, revision)
		SELECT 't1', 'src1', 'long-' || n, sha256(n::text::bytea), 1, 'invoice', 'long', n FROM generate_series(1001, 1000 + $1::int) n RETURNING id, revision),
	p AS (INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body) SELECT id, 't1', 'POST', '', '', 'x' FROM i)
	INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at, ordering, lane, revision)
	SELECT id, 't1', 'app', now() + interval '1 day', $2, $3, revision FROM i`, n, string(ordering), laneOf(&d))
	_, updateErr := conn.Exec(t.Context(), `UPDATE hooklatch.outbox SET `+set+` WHERE revision > 1000`)
	if err := errors.Join(err, updateErr, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// What waits in one lane costs nobody anything: not the claims of other lanes, nor
// those without a lane, nor the claims and settlements of the lane itself.
func TestLongLaneCostsNobodyAnything(t *testing.T) {
	t.Parallel()
	const waiting = `waiting = true`
	for _, c := range []struct {
		name     string
		ordering Ordering
		set      string
	}{
		{"latest", OrderLatest, waiting},
		{"coalesce", OrderCoalesce, waiting},
		{"strict", OrderStrict, waiting},
		{"held for a gap", OrderStrict, `waiting = revision > 1001, state = 'held', hold_reason = 'gap', next_attempt_at = 'infinity'`},
		{"held for a person", OrderLatest, `state = 'held', hold_reason = 'person'`},
		{"dead letters", OrderLatest, `state = 'blocked', blocked_reason = 'refused'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			work := func(resource string, revision int64) {
				d := ofResource(c.ordering, resource, revision)
				if resource == "" {
					d = delivery(fmt.Sprint("plain-", revision), "x")
				}
				accept(t, s, d)
				all, _ := claimAll(t, s, time.Time{})
				for _, f := range all {
					settle1(t, s, f, OutcomeAccepted)
				}
				if len(all) == 0 {
					t.Errorf("revision %d of %q was not claimed", revision, resource)
				}
			}
			work("long", 1)
			for n := range int64(7) { // plans are kept from the sixth time on
				work("", n)
				work("short", n)
			}
			crowd(t, pool, c.ordering, 10_000, c.set)
			for _, resource := range []string{"", "short", "long"} {
				if resource == "long" && c.ordering == OrderCoalesce {
					continue // it supersedes them
				}
				tellReads(t, s)
				forgetReads(t, s, pool)
				work(resource, map[string]int64{"": 7, "short": 7, "long": 2}[resource])
				if n := rowsRead(t, s, pool); n > 100 {
					t.Errorf("a delivery of %q, its claim and its settlement read %d rows", resource, n)
				}
			}
		})
	}
}
