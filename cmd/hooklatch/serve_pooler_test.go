package main

import (
	"fmt"
	"net/http"
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
	sv := startServe(t, s, inboxtest.Pooler(t, sibling(t, inboxtest.URL(t), ""), 2))
	sv.line(`"msg":"migrated"`)

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
		pooler := inboxtest.Pooler(t, database, 4)
		refused(t, s, pooler, exitUnreachable, "it is behind a pooler", "set database.pooler: pgbouncer")
		s.config(app, "database: {pooler: pgbouncer}")
		startServe(t, s, pooler).end()
	})
	t.Run("a connection for each client", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app)
		sv := startServe(t, s, inboxtest.Pooler(t, database, 30, "pool_mode = session"))
		sv.line(`"level":"WARN"`, "a pooler stands before the database: set database.pooler: pgbouncer unless")
		sv.end()
	})
	t.Run("statements", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app, "database: {pooler: pgbouncer}")
		refused(t, s, inboxtest.Pooler(t, database, 4, "pool_mode = statement"), exitUnreachable, "pool_mode = transaction is needed")
	})
	t.Run("one connection", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.config(app, "database: {pooler: pgbouncer}")
		refused(t, s, inboxtest.Pooler(t, database, 1), exitUnreachable, "did not lend a second connection", "default_pool_size")
	})
	t.Run("no pooler", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		for _, setting := range []string{"none", "pgbouncer"} {
			s.config(app, "database: {pooler: "+setting+"}")
			sv := startServe(t, s, database)
			sv.end()
			if strings.Contains(sv.output(), `"level":"WARN"`) {
				t.Errorf("database.pooler %s: a warning of a pooler that is not there", setting)
			}
		}
	})
}
