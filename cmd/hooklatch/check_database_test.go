package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// Roles belong to a whole server, so each fault is made on one of our own, and undone.
func TestCheckRolesFindsWhatBelongsToTheServer(t *testing.T) {
	t.Parallel()
	cluster := inboxtest.NewCluster(t)
	pool := cluster.Pool()
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ fault, undo, want string }{
		{`ALTER ROLE hooklatch_consumer SUPERUSER`, `ALTER ROLE hooklatch_consumer NOSUPERUSER`, "roles are superusers or bypass row-level security: hooklatch_consumer"},
		{`ALTER ROLE hooklatch_ingest BYPASSRLS`, `ALTER ROLE hooklatch_ingest NOBYPASSRLS`, "roles are superusers or bypass row-level security: hooklatch_ingest"},
		{`GRANT hooklatch_owner TO hooklatch_admin`, `REVOKE hooklatch_owner FROM hooklatch_admin`, "roles are members of the owner or of one another, and may more than they should: hooklatch_admin"},
		{`GRANT hooklatch_consumer TO hooklatch_ingest`, `REVOKE hooklatch_consumer FROM hooklatch_ingest`, "roles are members of the owner or of one another, and may more than they should: hooklatch_ingest"},
		{`ALTER ROLE hooklatch_read RENAME TO renamed`, `ALTER ROLE renamed RENAME TO hooklatch_read`, "roles are missing: hooklatch_read"},
	} {
		execute(t, cluster.URL(), c.fault)
		found, err := checkRoles(t.Context(), &checkedDatabase{pool: pool, store: store})
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, f := range found {
			if f.level == wrong {
				said = append(said, f.what)
			}
		}
		if strings.Join(said, "; ") != c.want {
			t.Errorf("%s: %q, want %q", c.fault, said, c.want)
		}
		execute(t, cluster.URL(), c.undo)
	}
}

// A standby takes no writes, and says so before anything is received.
func TestServeRefusesAStandby(t *testing.T) {
	t.Parallel()
	cluster := inboxtest.NewCluster(t)
	var folder string
	if err := cluster.Pool().QueryRow(t.Context(), `SHOW data_directory`).Scan(&folder); err != nil {
		t.Fatal(err)
	}
	cluster.Stop()
	if err := os.WriteFile(filepath.Join(folder, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cluster.Start()
	s := newSite(t)
	s.config("http://127.0.0.1:1")
	refused(t, s, cluster.URL(), exitUnreachable, "it is a standby (in recovery): use the primary")
}

// withClock is a database whose clock is so far ahead of ours.
func withClock(t *testing.T, ahead string) *checkedDatabase {
	t.Helper()
	database := inboxtest.URL(t)
	execute(t, database, `CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '`+ahead+`' $$`,
		`DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || quote_ident(current_database()) || ' SET search_path = public, pg_catalog'; END $$`)
	pool := openPoolOf(t, database)
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &checkedDatabase{url: database, pool: pool, store: store}
}

// A database whose clock is another one decides wrongly what is due.
func TestCheckClockFindsAnotherTime(t *testing.T) {
	t.Parallel()
	found, err := checkClock(t.Context(), withClock(t, "-7 seconds"))
	if err != nil || len(found) != 1 || found[0].level != doubtful || !strings.Contains(found[0].what, "behind this machine: a server does not call itself ready beyond 30s") {
		t.Errorf("%+v, %v", found, err)
	}
}

// A transaction of six minutes is worth a warning, with the statement that ends it.
func TestCheckTransactionsWarnsOfALongOne(t *testing.T) {
	t.Parallel()
	db := withClock(t, "6 minutes")
	open, err := openPoolOf(t, db.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Rollback(t.Context())
	found, err := checkTransactions(t.Context(), db)
	end := fmt.Sprintf("SELECT pg_terminate_backend(%d)", open.Conn().PgConn().PID())
	if err != nil || len(found) != 1 || found[0].level != doubtful || !strings.Contains(found[0].what, "open for 6 min") || !strings.HasSuffix(found[0].fix, end) {
		t.Errorf("%+v, %v", found, err)
	}
}
