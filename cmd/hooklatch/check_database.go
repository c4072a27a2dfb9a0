package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const serverSQL = `SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding'),
	pg_is_in_recovery(), current_setting('transaction_read_only')::boolean`

// checkServer finds what of the server would keep a hooklatch from working.
func checkServer(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	const check = "server"
	var number int
	var version, encoding string
	var recovery, readOnly bool
	if err := db.pool.QueryRow(ctx, serverSQL).Scan(&number, &version, &encoding, &recovery, &readOnly); err != nil {
		return nil, err
	}
	var found []finding
	if number/10000 < oldestServer {
		found = append(found, finding{check: check, what: fmt.Sprintf("Postgres %d is too old: %d or newer is needed", number/10000, oldestServer)})
	}
	if encoding != "UTF8" {
		found = append(found, finding{check: check, what: "its encoding is " + encoding + ": UTF8 is needed", fix: "createdb --encoding UTF8 --template template0"})
	}
	switch {
	case recovery:
		found = append(found, finding{check: check, what: "it is a standby (in recovery): use the primary"})
	case readOnly:
		found = append(found, finding{check: check, what: "it is read-only: default_transaction_read_only is on"})
	}
	if len(found) == 0 {
		found = append(found, finding{check: check, level: fine, what: fmt.Sprintf("Postgres %s, %s, takes writes", version, encoding)})
	}
	return found, nil
}

// commitSQL is what the accept transaction begins with, as far as durability goes.
const commitSQL = `SELECT set_config('synchronous_commit', 'on', true)`

const durabilitySQL = `SELECT current_setting('fsync')::boolean, current_setting('full_page_writes')::boolean, current_setting('synchronous_commit')`

// checkDurability finds what a crash would take although it was answered 202.
func checkDurability(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	const check = "durability"
	var fsync, fullPages bool
	var commit string
	err := pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, commitSQL); err != nil {
			return err
		}
		return tx.QueryRow(ctx, durabilitySQL).Scan(&fsync, &fullPages, &commit)
	})
	if err != nil {
		return nil, err
	}
	var found []finding
	add := func(what string) { found = append(found, finding{check: check, what: what, durability: true}) }
	if !fsync {
		add("fsync is off: a crash of the machine would lose deliveries that were answered 202")
	}
	if !fullPages {
		add("full_page_writes is off: a crash of the machine could damage the tables")
	}
	if commit != "on" && commit != "remote_apply" {
		add("synchronous_commit reads " + commit + " although it was set to on: a 202 would come before the commit is safe")
	}
	if len(found) == 0 {
		found = append(found, finding{check: check, level: fine, what: "fsync and full_page_writes are on, synchronous_commit reads " + commit + " where deliveries are accepted"})
	}
	return found, nil
}

const unloggedSQL = `SELECT coalesce(string_agg(c.relname, ', ' ORDER BY c.relname), '') FROM pg_class c
	WHERE c.relnamespace = 'hooklatch'::regnamespace AND c.relkind IN ('r', 'p') AND c.relpersistence <> 'p'`

const identitySQL = `SELECT EXISTS (SELECT FROM pg_index i
	WHERE i.indrelid = 'hooklatch.inbox'::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 3
	AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
		WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])) = '{delivery_id,source,tenant}')`

// checkTables finds what of a schema in the right version has been changed by
// hand.
func checkTables(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	const check = "tables"
	var unlogged string
	var identity bool
	if err := db.pool.QueryRow(ctx, unloggedSQL).Scan(&unlogged); err != nil {
		return nil, err
	}
	if err := db.pool.QueryRow(ctx, identitySQL).Scan(&identity); err != nil {
		return nil, err
	}
	var found []finding
	if unlogged != "" {
		found = append(found, finding{check: check, what: "unlogged tables are emptied by a crash: " + unlogged, fix: "ALTER TABLE … SET LOGGED", durability: true})
	}
	if !identity {
		found = append(found, finding{check: check, what: "hooklatch.inbox has no unique key over tenant, source and delivery_id: deliveries would be stored twice"})
	}
	if len(found) == 0 {
		found = append(found, finding{check: check, level: fine, what: "all are logged, and a delivery is unique by tenant, source and delivery id"})
	}
	return found, nil
}

const openTablesSQL = `SELECT c.relname::text FROM pg_class c
	WHERE c.relnamespace = 'hooklatch'::regnamespace AND c.relkind IN ('r', 'p')
	AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped)
	AND NOT (c.relrowsecurity AND c.relforcerowsecurity) ORDER BY 1`

const otherPoliciesSQL = `SELECT format('%s on %s', p.polname, c.relname) FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
	WHERE c.relnamespace = 'hooklatch'::regnamespace AND p.polpermissive AND p.polname NOT IN ('tenants', 'every_tenant') ORDER BY 1`

// checkRowSecurity finds holes in the wall between tenants.
func checkRowSecurity(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	const check = "row security"
	open, err := db.names(ctx, openTablesSQL)
	if err != nil {
		return nil, err
	}
	policies, err := db.names(ctx, otherPoliciesSQL)
	if err != nil {
		return nil, err
	}
	var found []finding
	if len(open) > 0 {
		found = append(found, finding{check: check, what: "row-level security is not enabled and forced: " + strings.Join(open, ", "),
			fix: "ALTER TABLE … ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"})
	}
	if len(policies) > 0 {
		found = append(found, finding{check: check, level: doubtful, what: "policies that are none of hooklatch's let more rows be seen: " + strings.Join(policies, ", ")})
	}
	if len(found) == 0 {
		found = append(found, finding{check: check, level: fine, what: "enabled and forced on every table with a tenant"})
	}
	return found, nil
}

func (db *checkedDatabase) names(ctx context.Context, sql string, args ...any) ([]string, error) {
	rows, err := db.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// runningRoles are those that a server takes on.
func runningRoles() []string {
	return []string{"hooklatch_ingest", "hooklatch_consumer", "hooklatch_admin", "hooklatch_read"}
}

const loginSQL = `SELECT session_user::text, r.rolsuper OR r.rolbypassrls FROM pg_roles r WHERE r.rolname = session_user`

// A role that the login may not take on, one that is no role of a purpose any more, and
// one that lacks what its purpose needs first.
const rolesSQL = `
WITH role AS (SELECT n AS name, to_regrole(n) AS oid FROM unnest($1::text[]) n)
SELECT name, CASE
	WHEN oid IS NULL THEN 'missing'
	WHEN NOT pg_has_role(session_user, oid, CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN 'closed'
	WHEN (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE pg_roles.oid = role.oid) THEN 'special'
	WHEN pg_has_role(oid, to_regrole('hooklatch_owner'), 'MEMBER') OR EXISTS (SELECT FROM role other WHERE other.oid <> role.oid AND pg_has_role(role.oid, other.oid, 'MEMBER')) THEN 'member'
	WHEN EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'hooklatch'::regnamespace AND c.relkind IN ('r', 'p')
		AND (pg_has_role(role.oid, c.relowner, 'MEMBER') OR has_table_privilege(role.oid, c.oid, 'DELETE, TRUNCATE'))) THEN 'power'
	WHEN NOT CASE name
		WHEN 'hooklatch_ingest' THEN has_table_privilege(oid, 'hooklatch.inbox', 'INSERT') AND has_table_privilege(oid, 'hooklatch.payload', 'INSERT')
			AND has_table_privilege(oid, 'hooklatch.outbox', 'INSERT') AND has_column_privilege(oid, 'hooklatch.inbox', 'body_hash', 'SELECT')
		WHEN 'hooklatch_consumer' THEN has_table_privilege(oid, 'hooklatch.payload', 'SELECT') AND has_column_privilege(oid, 'hooklatch.outbox', 'lease_token', 'UPDATE')
			AND has_table_privilege(oid, 'hooklatch.attempt', 'INSERT')
		WHEN 'hooklatch_admin' THEN has_table_privilege(oid, 'hooklatch.audit', 'INSERT')
			AND has_function_privilege(oid, (SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'hooklatch'::regnamespace AND p.proname = 'prune'), 'EXECUTE')
		ELSE has_table_privilege(oid, 'hooklatch.inbox', 'SELECT') END THEN 'rights'
	ELSE '' END
FROM role ORDER BY name`

// checkRoles finds what keeps the login from taking on the roles of its transactions,
// and roles that may more or less than their purpose needs.
func checkRoles(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	const check = "roles"
	var login string
	var special bool
	if err := db.pool.QueryRow(ctx, loginSQL).Scan(&login, &special); err != nil {
		return nil, err
	}
	rows, err := db.pool.Query(ctx, rolesSQL, runningRoles())
	if err != nil {
		return nil, err
	}
	faults := map[string][]string{}
	var role, fault string
	if _, err := pgx.ForEachRow(rows, []any{&role, &fault}, func() error {
		faults[fault] = append(faults[fault], role)
		return nil
	}); err != nil {
		return nil, err
	}
	quoted := pgx.Identifier{login}.Sanitize()
	var found []finding
	for _, f := range []struct{ fault, what, fix string }{
		{"missing", "roles are missing", "hooklatch migrate sql   prints the statements that make them"},
		{"closed", "the login " + login + " may not take on roles", "GRANT " + strings.Join(faults["closed"], ", ") + " TO " + quoted},
		{"special", "roles are superusers or bypass row-level security", "ALTER ROLE … NOSUPERUSER NOBYPASSRLS"},
		{"member", "roles are members of the owner or of one another, and may more than they should", "REVOKE … FROM …"},
		{"power", "roles own tables, or may delete from them, which only retention may", "ALTER TABLE … OWNER TO hooklatch_owner; REVOKE DELETE, TRUNCATE ON … FROM …"},
		{"rights", "roles have lost rights that the migrations gave them", "hooklatch migrate sql   prints the grants"},
	} {
		if roles := faults[f.fault]; len(roles) > 0 {
			found = append(found, finding{check: check, what: f.what + ": " + strings.Join(roles, ", "), fix: f.fix})
		}
	}
	if special {
		found = append(found, finding{check: check, level: doubtful, what: "the login " + login + " is a superuser or bypasses row-level security: what is run outside hooklatch's transactions may do everything",
			fix: "CREATE ROLE app LOGIN NOINHERIT PASSWORD …; GRANT " + strings.Join(runningRoles(), ", ") + " TO app"})
	}
	if len(found) == 0 {
		found = append(found, finding{check: check, level: fine, what: "the login " + login + " takes on " + strings.Join(slices.Sorted(slices.Values(runningRoles())), ", ")})
	}
	return found, nil
}

// checkClock compares the clocks of both machines.
func checkClock(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	offset, err := db.store.Ready(ctx)
	if err != nil {
		return nil, err
	}
	side := "ahead of"
	if offset < 0 {
		side = "behind"
	}
	f := finding{check: "clock", level: fine, what: fmt.Sprintf("the database is %s %s this machine", offset.Abs().Round(time.Millisecond), side)}
	if offset.Abs() > clockWarning {
		f.level, f.fix = doubtful, "set both clocks by NTP"
		f.what += fmt.Sprintf(": a server does not call itself ready beyond %s", clockTolerance)
	}
	return []finding{f}, nil
}
