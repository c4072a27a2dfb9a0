package main

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/migrations"
)

// refused runs serve, which must not get as far as ready.
func refused(t *testing.T, s *site, database string, code int, texts ...string) {
	t.Helper()
	p := start(t, []string{"DATABASE_URL=" + database}, "serve", "-c", s.dir+"/hooklatch.yaml")
	if got := p.wait(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	for _, text := range append(texts, "hooklatch: ") {
		if !strings.Contains(p.output(), text) {
			t.Errorf("no word of %q in\n%s", text, p.output())
		}
	}
	if strings.Contains(p.output(), `"msg":"ready"`) {
		t.Error("it said that it was ready")
	}
}

func execute(t *testing.T, database string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also after the test
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func TestServeSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	const app = "http://127.0.0.1:1"
	t.Run("bad configuration", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app, "lissten: {}")
		refused(t, s, inboxtest.URL(t), exitConfig, `unknown field "lissten"`, "Try: ")
	})
	t.Run("no key file", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app)
		os.Remove(s.dir + "/k1")
		refused(t, s, inboxtest.URL(t), exitConfig, "key k1: open ")
	})
	t.Run("nobody listens where the database should be", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app)
		refused(t, s, "postgres://u:s3cret@127.0.0.1:1/x", exitUnreachable, "database: failed to connect", "Try: check that Postgres runs there", "127.0.0.1:1/x")
		p := start(t, []string{"DATABASE_URL=postgres://u:s3cret@127.0.0.1:1/x"}, "events", "list")
		if p.wait(); strings.Count(p.output(), "connection refused") != 1 {
			t.Errorf("each attempt to connect is told:\n%s", p.output())
		}
	})
	t.Run("no such database", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app)
		refused(t, s, named(t, inboxtest.URL(t), "nowhere"), exitUnreachable, `database "nowhere" does not exist`, "Try: createdb nowhere")
	})
	t.Run("address in use", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := newSite(t)
		s.config(app, `listen: {http: "`+l.Addr().String()+`", admin: "127.0.0.1:0"}`)
		// Before the database is touched: that one is not even there.
		refused(t, s, "postgres://127.0.0.1:1/x", exitNo, "listen.http: listen tcp "+l.Addr().String(), "address already in use", "Try: another address")
	})
	t.Run("no address of this machine", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app, `listen: {http: "192.0.2.1:0", admin: "127.0.0.1:0"}`)
		refused(t, s, inboxtest.URL(t), exitConfig, "listen.http: listen tcp 192.0.2.1:0", "Try: an address of this machine")
	})
	t.Run("wrong role", func(t *testing.T) {
		t.Parallel()
		if p := start(t, nil, "serve", "--role", "both"); p.wait() != exitUsage || !strings.Contains(p.output(), `unknown role "both"`) {
			t.Errorf("exit code %d: %s", p.code, p.output())
		}
	})
}

// named is the address of another database of the same server.
func named(t *testing.T, address, database string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	return u.String()
}

// sibling makes an empty database on the server of address, for this test.
func sibling(t *testing.T, address, options string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := u.Path[1:] + "_x"
	execute(t, address, `CREATE DATABASE `+name+` TEMPLATE template0 `+options)
	t.Cleanup(func() { execute(t, address, `DROP DATABASE `+name+` WITH (FORCE)`) })
	return named(t, address, name)
}

func TestServeDemandsItsSchema(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	empty := sibling(t, inboxtest.URL(t), "")
	s.config("http://127.0.0.1:1")
	refused(t, s, empty, exitUnreachable, "schema is version 0", "hooklatch migrate up", "Try: database.migrate: auto")
	s.config("http://127.0.0.1:1", "database: {migrate: auto}")
	sv := startMigrating(t, s, empty)
	sv.line(`"msg":"migrated"`)
	sv.end()
	s.config("http://127.0.0.1:1")
	startServe(t, s, empty).end()
}

func TestServeRefusesADatabaseThatWouldBreakAPromise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ defect, sql, want string }{
		{"unlogged table", `ALTER TABLE hooklatch.attempt SET UNLOGGED`, "unlogged tables are emptied by a crash: attempt"},
		{"no unique key", `ALTER TABLE hooklatch.inbox DROP CONSTRAINT inbox_identity`, "no unique key over tenant, source and delivery_id"},
		{"a unique key that spans less", `ALTER TABLE hooklatch.inbox DROP CONSTRAINT inbox_identity;
			CREATE UNIQUE INDEX ON hooklatch.inbox (delivery_id, source, tenant) WHERE body_size > 0;
			CREATE UNIQUE INDEX ON hooklatch.inbox (delivery_id, source) INCLUDE (tenant)`, "no unique key over tenant, source and delivery_id"},
		{"read-only by default", `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || quote_ident(current_database()) || ' SET default_transaction_read_only = on'; END $$`,
			"it is read-only"},
	} {
		t.Run(c.defect, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.config("http://127.0.0.1:1")
			database := inboxtest.URL(t)
			execute(t, database, c.sql)
			refused(t, s, database, exitUnreachable, "database: ", c.want)
		})
	}
	t.Run("another encoding", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config("http://127.0.0.1:1")
		refused(t, s, sibling(t, inboxtest.URL(t), `ENCODING 'LATIN1'`), exitUnreachable, "its encoding is LATIN1")
	})
	t.Run("a database that sets synchronous_commit off is put right by the accept transaction", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config("http://127.0.0.1:1")
		database := inboxtest.URL(t)
		execute(t, database, `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || quote_ident(current_database()) || ' SET synchronous_commit = off'; END $$`)
		startServe(t, s, database).end()
	})
}

func TestServeRefusesWhatDevOnlyWarnsOf(t *testing.T) {
	t.Parallel()
	server, err := devdb.Start(t.Context(), devdb.Config{Settings: map[string]string{"fsync": "off", "full_page_writes": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	database := server.URL("postgres")
	if _, err := migrations.Up(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.config("http://127.0.0.1:1")
	refused(t, s, database, exitUnreachable, "database: fsync is off", "\ndatabase: full_page_writes is off")

	p := start(t, []string{"DATABASE_URL=" + database, "XDG_RUNTIME_DIR=" + t.TempDir()}, "dev")
	p.line("!  database: fsync is off")
	p.line("  ready  ")
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("dev: exit code %d", code)
	}
}

func TestSignalDuringStartUpIsACleanEnd(t *testing.T) {
	t.Parallel()
	// A server that takes connections and never says a word.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connected := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			connected <- c
		}
	}()
	s := newSite(t)
	s.config("http://127.0.0.1:1")
	p := start(t, []string{"DATABASE_URL=postgres://u@" + l.Addr().String() + "/x?sslmode=disable"}, "serve", "-c", s.dir+"/hooklatch.yaml")
	defer (<-connected).Close()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	p.line("stopped before it was ready")
}

// A login that may not do what a server does is told what it lacks, before anything is
// received; one that may do more is warned of.
func TestServeSaysWhatItsLoginLacks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ defect, sql, want string }{
		{"no member of two roles", `DO $$ BEGIN CREATE ROLE lacking_two LOGIN NOINHERIT; GRANT hooklatch_ingest, hooklatch_read TO lacking_two;
			EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`,
			"the login lacking_two may not take on roles: hooklatch_admin, hooklatch_consumer (GRANT hooklatch_admin, hooklatch_consumer TO \"lacking_two\")"},
		{"a table that a role owns", `ALTER TABLE hooklatch.gap OWNER TO hooklatch_admin`, "roles own tables, or may delete from them, which only retention may: hooklatch_admin"},
		{"a role that may delete", `GRANT DELETE ON hooklatch.attempt TO hooklatch_consumer`, "roles own tables, or may delete from them, which only retention may: hooklatch_consumer"},
		{"a right that is gone", `REVOKE INSERT ON hooklatch.outbox FROM hooklatch_ingest`, "roles have lost rights that the migrations gave them: hooklatch_ingest"},
		{"an open table", `ALTER TABLE hooklatch.attempt NO FORCE ROW LEVEL SECURITY`, "row-level security is not enabled and forced: attempt"},
	} {
		t.Run(c.defect, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.config("http://127.0.0.1:1")
			database := inboxtest.URL(t)
			execute(t, database, c.sql)
			if strings.Contains(c.sql, "lacking_two") {
				if os.Getenv("HOOKLATCH_TEST_DATABASE_URL") != "" {
					t.Skip("nobody knows a password for it there")
				}
				database = asUser(t, database, "lacking_two")
			}
			refused(t, s, database, exitUnreachable, "database: ", c.want)
		})
	}
	t.Run("a superuser", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config("http://127.0.0.1:1")
		sv := startMigrating(t, s, inboxtest.URL(t))
		sv.line("is a superuser or bypasses row-level security")
		sv.end()
	})
	t.Run("a policy that somebody added", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config("http://127.0.0.1:1")
		database := inboxtest.URL(t)
		execute(t, database, `CREATE POLICY all_of_it ON hooklatch.inbox USING (true)`)
		sv := startServe(t, s, database)
		sv.line("let more rows be seen: all_of_it on inbox")
		sv.end()
	})
}

func asUser(t *testing.T, address, user string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	return u.String()
}

// What a tenant has left behind is said loudly: no consumer will ever claim it.
func TestServeNamesTheForwardsOfForgottenTenants(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.config("http://127.0.0.1:1")
	database := inboxtest.URL(t)
	store, err := inbox.New(openPoolOf(t, database), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	forgotten := inbox.Delivery{Tenant: "forgotten", Source: "billing", DeliveryID: "dlv_1", Forwards: []inbox.NewForward{{Destination: "app"}}}
	if _, err := store.Accept(t.Context(), forgotten); err != nil {
		t.Fatal(err)
	}
	sv := startServe(t, s, database)
	sv.line(`"level":"ERROR"`, "1 forward of tenant forgotten wait for destination app since ")
	sv.end()
	for f, err := range store.Find(t.Context(), inbox.Filter{ID: "dlv_1"}) {
		if err != nil || f.Tenant != "forgotten" {
			t.Error(f.Tenant, err)
		}
	}
}
