package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// grants is what each role may do: to whole tables, or to the columns in brackets.
// Nothing else. The owner, who never runs, may do everything to what is his.
const grants = `
ingest config_revision: select (id hash), insert
ingest conflict: select (id tenant source delivery_id body_hash seen first_seen_at last_seen_at), insert, update (seen last_seen_at)
ingest inbox: select (id tenant source delivery_id body_hash received_at compare_hash), insert
ingest key_use: select, insert, update (accepted retiring last_used)
ingest outbox: select (id inbox_id destination), insert
ingest payload: insert
ingest refusal: select (tenant source minute reason key_id cause count first_at last_at), insert, update (count first_at last_at)
ingest schema_version: select
consumer attempt: select, insert
consumer config_revision: select, insert
consumer destination: select, insert, update (url config_revision owner breaker breaker_at breaker_until breaker_worker breaker_error probe_asked_at removed_at)
consumer destination_event: select, insert
consumer gap: select, insert, update (first_missing last_missing closed_at closed_by)
consumer inbox: select
consumer outbox: select, update (state next_attempt_at expires_at attempts attempts_free lease_token lease_until blocked_reason settled_at waiting hold_reason attempts_max replayed_by)
consumer payload: select
consumer resource: select, insert, update (applied applied_at deleted passed in_flight touched_at)
consumer revision_conflict: select, insert
consumer schema_version: select
admin attempt: select, insert
admin audit: select, insert
admin config_revision: select
admin conflict: select
admin destination: select, insert, update (paused_at paused_by pause_reason owner probe_asked_at removed_at)
admin destination_event: select, insert
admin gap: select, insert, update (first_missing last_missing closed_at closed_by)
admin inbox: select
admin key_use: select
admin outbox: select, insert, update (state next_attempt_at expires_at attempts_free lease_token lease_until blocked_reason settled_at ordering lane revision gap_timeout waiting hold_reason attempts_max replayed_by owner)
admin payload: select
admin refusal: select
admin resource: select, insert, update (passed touched_at)
admin revision_conflict: select
admin schema_version: select
read attempt: select
read audit: select
read config_revision: select
read conflict: select (id tenant source delivery_id body_hash key_id request_id seen first_seen_at last_seen_at)
read destination: select
read destination_event: select
read gap: select
read inbox: select
read key_use: select
read outbox: select
read payload: select (inbox_id variant tenant method)
read refusal: select
read resource: select
read revision_conflict: select
read schema_version: select
tls schema_version: select
nobody_special schema_version: select
`

// roles are those that run, and somebody who is none of them.
var roles = []string{"hooklatch_ingest", "hooklatch_consumer", "hooklatch_admin", "hooklatch_read", "hooklatch_tls", "nobody_special"}

const columnsSQL = `SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_class c
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	WHERE c.relnamespace = 'hooklatch'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY c.relname, a.attnum`

type column struct{ Table, Name, Type string }

// T24, T25: each verb is tried on each column of each table as each role.
func TestT24_EachRoleMayDoWhatItsPurposeNeedsAndNoMore(t *testing.T) {
	conn := connect(t, inboxtest.URL(t))
	run(t, conn, `DO $$ BEGIN CREATE ROLE nobody_special; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	rows, err := conn.Query(t.Context(), columnsSQL)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil || len(columns) == 0 {
		t.Fatal(len(columns), err)
	}
	var got []string
	for _, role := range roles {
		run(t, conn, `SET ROLE `+role)
		for table := range slices.Values(tablesOf(columns)) {
			if may := allowed(t, conn, table, columns); may != "" {
				got = append(got, fmt.Sprintf("%s %s: %s", strings.TrimPrefix(role, "hooklatch_"), table, may))
			}
		}
	}
	want := strings.Split(strings.TrimSpace(grants), "\n")
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("not said: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("not so:   %s", line)
		}
	}
}

// T25: what was tried, and what people did, is written once and for all.
func TestT25_NobodyChangesTheLedgerOrTheAudit(t *testing.T) {
	url := inboxtest.URL(t)
	conn := connect(t, url)
	run(t, conn, `DO $$ BEGIN CREATE ROLE nobody_special; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	run(t, conn, `INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class) VALUES (1, 1, 't1', now() - interval '1 year', '2xx')`)
	run(t, conn, `INSERT INTO hooklatch.audit (tenant, actor, action, reason) VALUES ('t1', 'ann', 'replay', 'test')`)
	run(t, conn, `INSERT INTO hooklatch.destination_event (destination, event) VALUES ('app', 'opened')`)
	const prune = `SELECT hooklatch.prune('attempts', '', now() - interval '1 year 1 day', 0, 1000, false, '-infinity', 0, 0, false)`
	for _, role := range roles {
		run(t, conn, `SET ROLE `+role)
		run(t, conn, `SET hooklatch.tenants = '{*}'`)
		for _, sql := range []string{`UPDATE hooklatch.attempt SET class = 'x'`, `DELETE FROM hooklatch.attempt`, `TRUNCATE hooklatch.attempt`,
			`UPDATE hooklatch.destination_event SET actor = 'bob'`, `DELETE FROM hooklatch.destination_event`, `TRUNCATE hooklatch.destination_event`,
			`UPDATE hooklatch.audit SET actor = 'bob'`, `DELETE FROM hooklatch.audit`, `TRUNCATE hooklatch.audit`} {
			if permitted(t, conn, sql) {
				t.Errorf("%s: %s", role, sql)
			}
		}
		if may := permitted(t, conn, prune); may != (role == "hooklatch_admin") {
			t.Errorf("%s may prune: %v", role, may)
		}
		if may := permitted(t, conn, `SELECT hooklatch.trim_breaker_events('app')`); may != (role == "hooklatch_consumer") {
			t.Errorf("%s may trim what breakers did: %v", role, may)
		}
	}
	run(t, conn, `RESET ROLE`)
	if left := texts(t, conn, `SELECT 'attempt' FROM hooklatch.attempt UNION ALL SELECT 'audit' FROM hooklatch.audit
		UNION ALL SELECT 'event' FROM hooklatch.destination_event`); len(left) != 3 {
		t.Errorf("left: %v", left)
	}
}

func tablesOf(columns []column) (tables []string) {
	for _, c := range columns {
		tables = append(tables, c.Table)
	}
	return slices.Compact(tables)
}

// allowed tries what the role of the session may do to a table.
func allowed(t *testing.T, conn *pgx.Conn, table string, columns []column) string {
	t.Helper()
	var may []string
	for _, verb := range []struct{ name, sql string }{
		{"select", `SELECT %[2]s FROM hooklatch.%[1]s LIMIT 0`},
		{"insert", `INSERT INTO hooklatch.%[1]s (%[2]s) OVERRIDING SYSTEM VALUE SELECT NULL::%[3]s WHERE false`},
		{"update", `UPDATE hooklatch.%[1]s SET %[2]s = DEFAULT WHERE false`},
	} {
		all := true
		var some []string
		for _, c := range columns {
			if c.Table != table {
				continue
			}
			if permitted(t, conn, fmt.Sprintf(verb.sql, table, pgx.Identifier{c.Name}.Sanitize(), c.Type)) {
				some = append(some, c.Name)
			} else {
				all = false
			}
		}
		switch {
		case all:
			may = append(may, verb.name)
		case len(some) > 0:
			may = append(may, verb.name+" ("+strings.Join(some, " ")+")")
		}
	}
	for _, verb := range []struct{ name, sql string }{
		{"delete", `DELETE FROM hooklatch.%s WHERE false`},
		{"truncate", `BEGIN; TRUNCATE hooklatch.%s CASCADE; ROLLBACK`},
		{"trigger", `BEGIN; CREATE TRIGGER t BEFORE INSERT ON hooklatch.%s EXECUTE FUNCTION suppress_redundant_updates_trigger(); ROLLBACK`},
		{"alter", `BEGIN; ALTER TABLE hooklatch.%s SET (autovacuum_enabled = off); ROLLBACK`},
		{"disable row security", `BEGIN; ALTER TABLE hooklatch.%s NO FORCE ROW LEVEL SECURITY; ROLLBACK`},
	} {
		if permitted(t, conn, fmt.Sprintf(verb.sql, table)) {
			may = append(may, verb.name)
		}
	}
	return strings.Join(may, ", ")
}

// permitted says whether a statement gets past the check of rights.
func permitted(t *testing.T, conn *pgx.Conn, sql string) bool {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	if conn.PgConn().TxStatus() != 'I' {
		run(t, conn, `ROLLBACK`)
	}
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return true
	case errors.As(err, &pg) && pg.Code == "42501":
		return false
	}
	t.Fatalf("%s: %v", sql, err)
	return false
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
