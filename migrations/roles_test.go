package migrations_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/migrations"
)

func texts(t *testing.T, conn *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Whoever adds a table decides whose it is and who sees which rows.
func TestT04_EveryTableOfTenantsIsBehindTheWall(t *testing.T) {
	conn := connect(t, inboxtest.URL(t))
	if open := texts(t, conn, `SELECT relname FROM pg_class c WHERE relnamespace = 'hooklatch'::regnamespace AND relkind IN ('r', 'p')
		AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'tenant' AND NOT attisdropped)
		AND NOT (relrowsecurity AND relforcerowsecurity)`); len(open) > 0 {
		t.Errorf("without forced row security: %v", open)
	}
	if other := texts(t, conn, `SELECT relname FROM pg_class c WHERE relnamespace = 'hooklatch'::regnamespace AND relkind IN ('r', 'p')
		AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'tenant' AND attnotnull) ORDER BY 1`); strings.Join(other, " ") != "config_revision destination destination_event schema_version" {
		t.Errorf("tables without a tenant: %v", other)
	}
	if odd := texts(t, conn, `SELECT tablename FROM pg_policies WHERE schemaname = 'hooklatch'
		GROUP BY tablename HAVING string_agg(format('%s %s %s %s using %s check %s', policyname, permissive, roles, cmd, qual, with_check), '; ' ORDER BY policyname)
		<> 'every_tenant PERMISSIVE {hooklatch_admin,hooklatch_owner,hooklatch_read} ALL'
		|| ' using ( SELECT (current_setting(''hooklatch.tenants''::text, true) = ''{*}''::text)) check ( SELECT (current_setting(''hooklatch.tenants''::text, true) = ''{*}''::text)); '
		|| 'tenants PERMISSIVE {public} ALL'
		|| ' using (tenant = ANY ((( SELECT NULLIF(current_setting(''hooklatch.tenants''::text, true), ''''::text) AS "nullif"))::text[]))'
		|| ' check (tenant = ANY ((( SELECT NULLIF(current_setting(''hooklatch.tenants''::text, true), ''''::text) AS "nullif"))::text[]))'`); len(odd) > 0 {
		t.Errorf("other policies: %v\n%s", odd, strings.Join(texts(t, conn, `SELECT DISTINCT format('%s %s %s %s using %s check %s', policyname, permissive, roles, cmd, qual, with_check) FROM pg_policies`), "\n"))
	}
	if n := len(texts(t, conn, `SELECT policyname FROM pg_policies WHERE schemaname = 'hooklatch'`)); n != 2*11 {
		t.Errorf("%d policies, want two for each of 11 tables", n)
	}
}

func TestEverythingIsTheOwners(t *testing.T) {
	conn := connect(t, inboxtest.URL(t))
	if others := texts(t, conn, `SELECT relkind::text || ' ' || relname FROM pg_class WHERE relnamespace = 'hooklatch'::regnamespace AND relowner <> 'hooklatch_owner'::regrole
		UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'hooklatch'::regnamespace AND proowner <> 'hooklatch_owner'::regrole
		UNION ALL SELECT 'schema' FROM pg_namespace WHERE nspname = 'hooklatch' AND nspowner <> 'hooklatch_owner'::regrole`); len(others) > 0 {
		t.Errorf("somebody else's: %v", others)
	}
	// What runs with the rights of the owner looks nothing up on a path of the caller's.
	functions := texts(t, conn, `SELECT proname || CASE WHEN prosecdef THEN ', definer' ELSE '' END || coalesce(', ' || (SELECT s FROM unnest(proconfig) s WHERE s LIKE 'search_path=%'), '')
			|| ', ' || (SELECT string_agg(grantee::regrole::text, ' ') FROM aclexplode(proacl) WHERE grantee <> proowner)
		FROM pg_proc WHERE pronamespace = 'hooklatch'::regnamespace ORDER BY proname`)
	if strings.Join(functions, "\n") != "prune, definer, search_path=pg_catalog, pg_temp, hooklatch_admin\n"+
		"trim_breaker_events, definer, search_path=pg_catalog, pg_temp, hooklatch_consumer" {
		t.Errorf("functions: %v", functions)
	}
	if special := texts(t, conn, `SELECT rolname FROM pg_roles WHERE rolname LIKE 'hooklatch\_%' AND rolname <> '`+inboxtest.Login+`'
		AND (rolcanlogin OR rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR EXISTS (SELECT FROM pg_auth_members WHERE member = pg_roles.oid))`); len(special) > 0 {
		t.Errorf("roles that may more than their grants say: %v", special)
	}
}

// A migration that ran as somebody else would make tables that nobody has rights to.
func TestLaterMigrationsRunAsTheOwner(t *testing.T) {
	asOwner := regexp.MustCompile(`(?s)-- \+goose (Up|Down)\n(--[^\n]*\n|\s)*SET LOCAL ROLE hooklatch_owner;`)
	for version := int64(7); version <= newest(t); version++ {
		names := must(migrations.FS.ReadDir("."))
		for _, name := range names {
			if !strings.HasPrefix(name.Name(), fmt.Sprintf("%05d_", version)) {
				continue
			}
			if n := len(asOwner.FindAll(must(migrations.FS.ReadFile(name.Name())), -1)); n != 2 {
				t.Errorf("%s: %d of its two steps begin with SET LOCAL ROLE hooklatch_owner", name.Name(), n)
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// withoutRoles is a server whose roles of hooklatch are gone.
func withoutRoles(t *testing.T) (address string, conn *pgx.Conn) {
	t.Helper()
	address = inboxtest.NewCluster(t).URL()
	if _, err := migrations.Down(t.Context(), address, 0); err != nil {
		t.Fatal(err)
	}
	conn = connect(t, address)
	for _, role := range texts(t, conn, `SELECT rolname FROM pg_roles WHERE rolname LIKE 'hooklatch\_%' ORDER BY rolname DESC`) {
		run(t, conn, `DROP ROLE `+role)
	}
	return address, conn
}

func ofDatabase(t *testing.T, address, user, database string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User, u.Path = url.User(user), "/"+database
	return u.String()
}

// Roles belong to all databases of a server: migrators of several meet there.
func TestMigratorsOfSeveralDatabasesMakeTheRolesOnce(t *testing.T) {
	address, conn := withoutRoles(t)
	run(t, conn, `CREATE ROLE mia LOGIN CREATEROLE`)
	var running sync.WaitGroup
	for n := range 6 {
		database := fmt.Sprint("d", n)
		run(t, conn, `CREATE DATABASE `+database+` OWNER mia`)
		running.Go(func() {
			if _, err := migrations.Up(t.Context(), ofDatabase(t, address, "mia", database)); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if roles := texts(t, conn, `SELECT rolname FROM pg_roles WHERE rolname LIKE 'hooklatch\_%' ORDER BY 1`); len(roles) != 6 {
		t.Errorf("roles %v", roles)
	}
}

// One login that may make roles is enough to begin with, and it need not inherit any.
func TestOneLoginMigratesAndRuns(t *testing.T) {
	address, conn := withoutRoles(t)
	run(t, conn, `CREATE ROLE mia LOGIN CREATEROLE NOINHERIT`)
	run(t, conn, `CREATE DATABASE d OWNER mia`)
	mine := ofDatabase(t, address, "mia", "d")
	for _, want := range []int{int(newest(t)), 0} {
		if done, err := migrations.Up(t.Context(), mine); err != nil || len(done) != want {
			t.Fatal(done, err)
		}
	}
	me := connect(t, mine)
	if err := migrations.Check(t.Context(), me); err != nil {
		t.Error(err)
	}
	if _, err := me.Exec(t.Context(), `SELECT count(*) FROM hooklatch.inbox`); err == nil {
		t.Error("a login that inherits nothing reads without a role")
	}
	for _, role := range []string{"hooklatch_owner", "hooklatch_ingest", "hooklatch_consumer", "hooklatch_admin", "hooklatch_read"} {
		run(t, me, `SET ROLE `+role)
		run(t, me, `RESET ROLE`)
	}
	if _, err := me.Exec(t.Context(), `SET ROLE hooklatch_tls`); err == nil {
		t.Error("the role of the certificates was handed out")
	}
	// A second login of the cluster has the roles, and another database.
	run(t, conn, `CREATE ROLE other LOGIN NOINHERIT`)
	run(t, conn, `GRANT hooklatch_owner TO other`)
	run(t, conn, `CREATE DATABASE e OWNER other`)
	if _, err := migrations.Up(t.Context(), ofDatabase(t, address, "other", "e")); err != nil {
		t.Error(err)
	}
}

// A login that may not make roles is told, once, what somebody else has to run.
func TestMigratorWithoutRightsNamesTheStatements(t *testing.T) {
	address, conn := withoutRoles(t)
	run(t, conn, `CREATE ROLE mia LOGIN`)
	run(t, conn, `CREATE DATABASE d OWNER mia`)
	mine := ofDatabase(t, address, "mia", "d")
	statements := regexp.MustCompile(`must run[^:]*: (.*?) \(SQLSTATE`)
	done, err := migrations.Up(t.Context(), mine)
	if err == nil {
		t.Fatal("it made roles without the right to")
	}
	told := statements.FindStringSubmatch(err.Error())
	if len(told) == 0 || len(done) != 5 {
		t.Fatalf("%d migrations, then %v", len(done), err)
	}
	run(t, conn, told[1])
	if _, err := migrations.Up(t.Context(), mine); err != nil {
		t.Fatalf("although they were run: %s: %v", told[1], err)
	}

	run(t, conn, `CREATE ROLE other LOGIN`)
	run(t, conn, `CREATE DATABASE e OWNER other`)
	theirs := ofDatabase(t, address, "other", "e")
	if _, err = migrations.Up(t.Context(), theirs); err == nil {
		t.Fatal("it gave tables to a role that it is no member of")
	}
	if told = statements.FindStringSubmatch(err.Error()); len(told) == 0 {
		t.Fatal(err)
	}
	run(t, conn, told[1])
	if _, err := migrations.Up(t.Context(), theirs); err != nil {
		t.Error(err)
	}
}
