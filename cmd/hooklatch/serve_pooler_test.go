package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// Two connections for everything that a server does at once, many times over.
func TestCaseE3_EverythingPassesThroughAPooler(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL, "database: {pooler: pgbouncer, migrate: auto}")
	database := sibling(t, inboxtest.URL(t), "")
	wholeAtEnd(t, database)
	sv := startMigrating(t, s, inboxtest.Pooler(t, database, 2))
	sv.line(`"msg":"migrated"`)
	sv.end()
	sv = startServe(t, s, inboxtest.Pooler(t, inboxtest.LoginURL(t, database), 2))

	const clients, each = 8, 40
	var sending sync.WaitGroup
	for c := range clients {
		sending.Go(func() {
			for n := range each {
				id := fmt.Sprintf("dlv_%d_%d", c, n)
				want := `"duplicate":false`
				if c%4 == 3 { // some twice, so that the look-up of what is there runs too
					id, want = fmt.Sprintf("dlv_%d_%d", c-1, n), `"duplicate":`
				}
				a, err := try(http.DefaultClient, s.request(sv.url, id, `{"id":"x"}`))
				if err != nil || a.status != 202 || c%4 < 2 && !strings.Contains(a.body, want) {
					t.Errorf("%d %s %v", a.status, a.body, err)
				}
			}
		})
	}
	sending.Wait()
	eventually(t, "all handed on", func() bool { return len(app.requests()) >= 6*each })
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_0_0", "other")); a.status != 409 {
		t.Errorf("conflict: %d %s", a.status, a.body)
	}
	// The app has its request before the settlement is through.
	eventually(t, "/metrics tells that nothing waits", func() bool {
		return strings.Contains(get(t, sv.admin+"/metrics").body, `hooklatch_forwards{destination="app",state="pending"} 0`)
	})
	if n := len(app.requests()); n != 6*each {
		t.Errorf("the app got %d requests, want %d", n, 6*each)
	}
	sv.end()
	if out := sv.output(); strings.Count(out, `"level":"WARN"`) != 1 || strings.Contains(out, `"level":"ERROR"`) {
		t.Error("more than the conflict is worth a warning")
	}
}

// Without the setting it would work until two transactions meet.
func TestX49_PoolerThatTheConfigurationDoesNotName(t *testing.T) {
	t.Parallel()
	const app = "http://127.0.0.1:1"
	database := inboxtest.URL(t)
	t.Run("transactions", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app)
		pooler := inboxtest.Pooler(t, inboxtest.LoginURL(t, database), 4)
		refused(t, s, pooler, exitUnreachable, "it is behind a pooler", "set database.pooler: pgbouncer")
		s.config(app, "database: {pooler: pgbouncer}")
		startServe(t, s, pooler).end()
	})
	t.Run("a connection for each client", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app)
		sv := startServe(t, s, inboxtest.Pooler(t, inboxtest.LoginURL(t, database), 30, "pool_mode = session"))
		sv.line(`"level":"WARN"`, "a pooler stands before the database: set database.pooler: pgbouncer unless")
		sv.end()
	})
	t.Run("statements", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app, "database: {pooler: pgbouncer}")
		refused(t, s, inboxtest.Pooler(t, inboxtest.LoginURL(t, database), 4, "pool_mode = statement"), exitUnreachable, "pool_mode = transaction is needed")
	})
	t.Run("one connection", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app, "database: {pooler: pgbouncer}")
		refused(t, s, inboxtest.Pooler(t, inboxtest.LoginURL(t, database), 1), exitUnreachable, "did not lend a second connection", "default_pool_size")
	})
	t.Run("no pooler", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		for _, setting := range []string{"none", "pgbouncer"} {
			s.config(app, "database: {pooler: "+setting+"}")
			sv := startServe(t, s, database)
			sv.end()
			if strings.Contains(sv.output(), "a pooler stands before the database") {
				t.Errorf("database.pooler %s: a warning of a pooler that is not there", setting)
			}
		}
	})
}

// Order, retention, what people decide and what they ask: nothing of it may lean on a
// connection of its own, and a command that nobody has told of the pooler neither.
func TestOrderAndCommandsPassThroughAPooler(t *testing.T) {
	t.Parallel()
	app := newFickleApp(t)
	s := newSite(t)
	file := s.write("hooklatch.yaml", `version: 1
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}
database: {pooler: pgbouncer}
stop: {lame_duck: 0s}
sources:
  billing:
    tenant: acme
    path: /in/billing
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k1}}]
    event: {id: /id, type: /type}
    resource: {type: /kind, id: /resource, revision: /revision}
    ordering: strict
    forward: [{to: app, types: [a, lost]}]
destinations:
  app: {url: "`+app.url+`"}
`)
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	pooler := inboxtest.Pooler(t, inboxtest.LoginURL(t, database), 3)
	sv := startServe(t, s, pooler)
	post := func(id, eventType string, revision int) {
		t.Helper()
		body := fmt.Sprintf(`{"id":"evt_%s","type":%q,"kind":"report","resource":"R-1","revision":%d}`, id, eventType, revision)
		if a := do(t, http.DefaultClient, s.request(sv.url, id, body)); a.status != 202 {
			t.Fatalf("%s: %d %s", id, a.status, a.body)
		}
	}
	command := func(code int, want string, args ...string) {
		t.Helper()
		for _, named := range []bool{true, false} {
			all := args
			if named {
				all = append(all[:len(all):len(all)], "-c", file)
			}
			p := start(t, []string{"DATABASE_URL=" + pooler}, all...)
			if got := p.wait(); got != code || !strings.Contains(p.output(), want) {
				t.Errorf("%v: exit code %d, want %d and %q in\n%s", all, got, code, want, p.output())
			}
			if args[0] == "replay" || args[0] == "prune" || slices.Contains(args, "release") {
				return // once is enough, and the routes are in the file
			}
		}
	}
	app.answer("d2", 404)
	post("d1", "a", 1)
	eventually(t, "1 is applied", func() bool { return app.got("d1") == 1 })
	post("d2", "a", 2) // blocked
	post("d3", "a", 3) // waits for it
	eventually(t, "2 has failed", func() bool { return app.got("d2") == 1 })
	post("d5", "a", 5)     // held: 4 is missing
	post("u1", "other", 9) // of no route
	command(exitOK, "blocked", "events", "list", "--state", "blocked")
	command(exitOK, "behind revision 2", "trace", "d3")
	command(exitOK, "revision 1 at ", "resources", "show", "report/R-1")
	app.answer("d2", 200)
	command(exitOK, "due again", "replay", "--delivery", "d2", "--reason", "mended")
	eventually(t, "2 and 3 are applied", func() bool { return app.got("d2") == 2 && app.got("d3") == 1 })
	eventually(t, "the gap is seen", func() bool { return strings.Contains(sv.printed(pooler, "resources", "gaps"), "report/R-1") })
	command(exitOK, "report/R-1", "resources", "gaps")
	command(exitOK, "revision 4", "resources", "release", "report/R-1", "--destination", "app", "--reason", "it never comes", "--yes")
	eventually(t, "5 is applied", func() bool { return app.got("d5") == 1 })
	command(exitNo, "no route of source billing takes", "replay", "--delivery", "u1", "--reason", "why")
	command(exitNo, "that still no route takes", "replay", "--unrouted", "--source", "billing", "--reason", "why", "--yes")
	command(exitOK, "u1", "events", "list", "--unrouted", "--since", "1h", "--type", "other")
	command(exitOK, "revision 5", "events", "show", "d5")
	command(exitOK, `"revision":5`, "events", "body", "d5")
	command(exitOK, "", "refusals", "--since", "1h")
	command(exitOK, "k1", "keys", "list", "-c", file)
	command(exitOK, "00001_inbox.sql", "migrate", "status")
	command(exitOK, "nothing to do", "migrate", "up")
	command(exitOK, "no difference", "audit")
	command(exitOK, "", "prune", "--before", "1s", "--reason", "a test", "--yes")
	command(exitOK, "removed by a person", "events", "show", "d5")
	command(exitNo, "left alone: the destination has accepted it", "replay", "--delivery", "d5", "--reason", "once more")
	post("d6", "a", 6)
	eventually(t, "6 is applied", func() bool { return app.got("d6") == 1 })
	command(exitOK, "no difference", "audit")
	sv.end()
	if strings.Contains(sv.output(), `"level":"ERROR"`) {
		t.Error("an error in the log")
	}
}

// printed is what a command prints.
func (sv *serving) printed(database string, args ...string) string {
	p := start(sv.t, []string{"DATABASE_URL=" + database}, args...)
	p.wait()
	return p.output()
}

// fickleApp answers each delivery with the status that was set for it, else 200.
type fickleApp struct {
	url string

	mu     sync.Mutex
	status map[string]int
	hits   map[string]int
}

func newFickleApp(t *testing.T) *fickleApp {
	a := &fickleApp{status: map[string]int{}, hits: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Hooklatch-Delivery-Id")
		a.mu.Lock()
		defer a.mu.Unlock()
		a.hits[id]++
		if status := a.status[id]; status != 0 {
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

func (a *fickleApp) answer(id string, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status[id] = status
}

func (a *fickleApp) got(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hits[id]
}
