package main

import (
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
