package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// doctorOf runs doctor as a process of its own and returns what it said.
func doctorOf(t *testing.T, s *site, database string, args ...string) (code int, out string) {
	t.Helper()
	p := start(t, []string{"DATABASE_URL=" + database}, append([]string{"doctor", "-c", s.dir + "/hooklatch.yaml"}, args...)...)
	code = p.wait()
	return code, p.output()
}

// A site on which nothing is wrong: each check says so, in one line.
func TestDoctorFindsAHealthySiteHealthy(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOOKLATCH_TEST_DATABASE_URL") != "" {
		t.Skip("its login is a superuser, which is worth a look")
	}
	_, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL, "upstream: "+webApp(t))
	database := inboxtest.LoginURL(t, inboxtest.URL(t))
	code, out := doctorOf(t, s, database)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "✓ ") {
			t.Error(line)
		}
	}
	for _, check := range []string{"configuration", "retention", "key ", "transport", "latency", "pooler", "server", "durability", "schema", "tables",
		"row security", "roles", "clock", "transactions", "disk", "tenants", "destination", "upstream"} {
		if strings.Count(out, "✓ "+check) != 1 {
			t.Errorf("not one line of %s in\n%s", check, out)
		}
	}
	if !strings.Contains(out, "k1 of billing: 64 bytes, valid for ever") || !strings.Contains(out, "the login "+inboxtest.Login+" takes on") {
		t.Error(out)
	}
	code, out = doctorOf(t, s, database, "--json")
	var said struct {
		V      int
		OK     bool
		Checks []struct{ Check, Level, What string }
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != 0 || said.V != 1 || !said.OK || len(said.Checks) < 17 || said.Checks[0].Level != "ok" {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
}

func TestDoctorNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	for _, c := range []struct {
		defect string
		sql    string
		site   func(*testing.T, *site)
		url    string // instead of the database's
		code   int
		want   string
	}{
		{defect: "unlogged table", sql: `ALTER TABLE hooklatch.attempt SET UNLOGGED`, code: exitNo, want: "✗ tables        unlogged tables are emptied by a crash: attempt   fix: ALTER TABLE … SET LOGGED"},
		{defect: "no unique key", sql: `ALTER TABLE hooklatch.inbox DROP CONSTRAINT inbox_identity`, code: exitNo, want: "✗ tables        hooklatch.inbox has no unique key"},
		{defect: "open table", sql: `ALTER TABLE hooklatch.outbox DISABLE ROW LEVEL SECURITY`, code: exitNo, want: "✗ row security  row-level security is not enabled and forced: outbox"},
		{defect: "lost right", sql: `REVOKE SELECT ON hooklatch.inbox FROM hooklatch_read`, code: exitNo, want: "✗ roles         roles have lost rights that the migrations gave them: hooklatch_read"},
		{defect: "no schema", sql: `DROP SCHEMA hooklatch CASCADE`, code: exitNo, want: "✗ schema        schema is version 0"},
		{defect: "newer schema", sql: `INSERT INTO hooklatch.schema_version (version_id, is_applied) VALUES (999, true); COMMENT ON TABLE hooklatch.schema_version IS 'serves 999'`,
			code: exitNo, want: "✗ schema        schema is version 999 and serves binaries of version 999"},
		{defect: "nobody listens", url: "postgres://u:s3cret@127.0.0.1:1/x", code: exitUnreachable, want: "✗ database      failed to connect"},
		{defect: "another machine", url: "postgres://u:s3cret@192.0.2.1:1/x?connect_timeout=1", code: exitUnreachable, want: "! transport     192.0.2.1:1/x is another machine"},
		{defect: "bad configuration", site: func(_ *testing.T, s *site) { s.config(appURL, "lissten: {}") }, code: exitNo, want: "✗ configuration "},
		{defect: "no key file", site: func(_ *testing.T, s *site) { os.Remove(s.dir + "/k1") }, code: exitNo, want: "key k1: open "},
		{defect: "key that everybody may read", site: func(t *testing.T, s *site) {
			if err := os.Chmod(s.dir+"/k1", 0o644); err != nil {
				t.Fatal(err)
			}
		}, want: "! key           k1 of billing: 64 bytes, valid for ever; everybody on this machine may read its file   fix: chmod o-r "},
		{defect: "line end", site: func(_ *testing.T, s *site) { s.write("k1", strings.Repeat("0123456789abcdef", 4)+"\n") },
			want: "✓ key           k1 of billing: 64 bytes, valid for ever; the line end of its file is no part of it"},
		{defect: "dead destination", site: func(_ *testing.T, s *site) { s.config("http://127.0.0.1:1") }, code: exitNo, want: "✗ destination   app: dial tcp 127.0.0.1:1"},
		{defect: "dead letter", sql: `WITH i AS (INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size) VALUES ('acme', 'billing', 'd', sha256('x'), 1) RETURNING id)
			INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at, state) SELECT id, 'acme', 'app', now(), 'blocked' FROM i`,
			want: "! waiting       app: nothing is due, 1 dead letter   fix: hooklatch events list --destination app --state blocked"},
		{defect: "nobody forwards", sql: `WITH i AS (INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size) VALUES ('acme', 'billing', 'd', sha256('x'), 1) RETURNING id)
			INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at, next_attempt_at) SELECT id, 'acme', 'app', now() + interval '1 day', now() - interval '2 hours' FROM i`,
			want: "! waiting       app: 1 forward, the oldest has been due for 2 h"},
		{defect: "forgotten tenant", sql: `WITH i AS (INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size) VALUES ('gone', 'billing', 'd', sha256('x'), 1) RETURNING id)
			INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at) SELECT id, 'gone', 'app', now() + interval '1 day' FROM i`,
			code: exitNo, want: "✗ tenants       1 forward of tenant gone wait for destination app since "},
		{defect: "forgotten destination", sql: `WITH i AS (INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size) VALUES ('acme', 'billing', 'd', sha256('x'), 1) RETURNING id)
			INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at) SELECT id, 'acme', 'gone', now() + interval '1 day' FROM i`,
			code: exitNo, want: "✗ destinations  destination gone is not in the configuration, and forwards to it are open (1 waiting, 0 dead letters)"},
	} {
		t.Run(c.defect, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.config(appURL)
			if c.site != nil {
				c.site(t, s)
			}
			database := c.url
			if database == "" {
				address := inboxtest.URL(t)
				if c.sql != "" {
					execute(t, address, c.sql)
				}
				database = inboxtest.LoginURL(t, address)
			}
			code, out := doctorOf(t, s, database)
			if code != c.code || !strings.Contains(out, c.want) || strings.Contains(out, "s3cret") {
				t.Errorf("exit code %d, want %d and %q in\n%s", code, c.code, c.want, out)
			}
		})
	}
}

// One transaction that is left open makes everybody else slower.
func TestDoctorSeesATransactionThatWasLeftOpen(t *testing.T) {
	t.Parallel()
	pool := openPoolOf(t, inboxtest.URL(t))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	other := openPoolOf(t, pool.Config().ConnString())
	store, err := inbox.New(other, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := checkTransactions(t.Context(), &checkedDatabase{pool: other, store: store})
	if err != nil || len(found) != 1 || found[0].level != fine || !strings.HasPrefix(found[0].what, "the oldest has been open for 0 s") {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestDoctorComparesTheClockOfADestination(t *testing.T) {
	ahead := time.Hour
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
	}))
	defer app.Close()
	c := &config{Destinations: map[string]*destinationConfig{"app": {URL: app.URL}}}
	if f := checkDestination(t.Context(), c, "app"); f.level != doubtful || !strings.Contains(f.what, "and its clock is ") {
		t.Errorf("%+v", f)
	}
	ahead = 0
	if f := checkDestination(t.Context(), c, "app"); f.level != fine {
		t.Errorf("%+v", f)
	}
}

// One secret in two places of a tenant lets a captured request be sent to the other.
func TestDoctorFindsOneSecretInTwoPlaces(t *testing.T) {
	s := newSite(t)
	file := s.config("http://127.0.0.1:1")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.write("hooklatch.yaml", strings.Replace(string(text), "sources:\n", `sources:
  again:
    tenant: acme
    path: /in/again
    scheme: zhisou-v1
    keys: [{id: k9, secret: {file: k1}}]
`, 1))
	c, err := readConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, f := range checkKeys(t.Context(), c) {
		if f.level == doubtful {
			said = append(said, f.what)
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "k9 of again and k1 of billing are one secret") {
		t.Errorf("%q", said)
	}
}

func TestTransportIsVerified(t *testing.T) {
	for url, want := range map[string]level{
		"postgres://u@/x?host=/tmp":                         fine,
		"postgres://u@localhost/x":                          fine,
		"postgres://u@127.0.0.1/x?sslmode=disable":          fine,
		"postgres://u@db.example.com/x":                     doubtful, // prefer: falls back to none
		"postgres://u@db.example.com/x?sslmode=disable":     doubtful,
		"postgres://u@db.example.com/x?sslmode=require":     doubtful,
		"postgres://u@db.example.com/x?sslmode=verify-full": fine,
		"host=db.example.com sslmode=verify-full":           fine,
	} {
		if f := checkTransport(url); f.level != want {
			t.Errorf("%s: %+v", url, f)
		}
	}
}
