package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// command runs a command of the program on a database and demands its exit code and
// texts in its output.
func command(t *testing.T, database string, code int, args []string, texts ...string) string {
	t.Helper()
	p := start(t, []string{"DATABASE_URL=" + database}, args...)
	got := p.wait()
	out := p.output()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("hooklatch %s: no %q in\n%s", strings.Join(args, " "), text, out)
		}
	}
	if got != code {
		t.Errorf("hooklatch %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

// X48: while a destination is paused senders get their 202, what they sent waits, and
// everybody can see who wanted that and why.
func TestX48_PausedDestinationKeepsWhatComes(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s := newSite(t)
	file := s.config(appURL)
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	pool := openPoolOf(t, database)
	sv := startServe(t, s, database)

	command(t, database, exitUsage, []string{"destinations", "pause", "app"}, "a reason is demanded")
	command(t, database, exitNo, []string{"destinations", "pause", "ap", "--reason", "x"}, `no destination "ap": there is app`)
	command(t, database, exitNo, []string{"destinations", "resume", "app", "--reason", "x"}, "app is not paused")
	command(t, database, exitOK, []string{"destinations", "pause", "app", "--dry-run"}, "app would be paused: 0 forwards")
	command(t, database, exitOK, []string{"destinations", "pause", "app", "--reason", "deploy"}, "app paused")
	command(t, database, exitNo, []string{"destinations", "pause", "app", "--reason", "x"}, "already, and stays so", `"deploy"`)
	for n := range 3 {
		if a := do(t, http.DefaultClient, s.request(sv.url, fmt.Sprint("dlv_", n), `{}`)); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	command(t, database, exitOK, []string{"trace", "dlv_0"}, "pending: app is paused since", `: "deploy"`)
	command(t, database, exitOK, []string{"destinations", "list", "-c", file}, "paused for", " 3 ")
	if got := app.requests(); len(got) != 0 {
		t.Errorf("the app got %d requests while it was paused", len(got))
	}
	var line destinationLine
	out := command(t, database, exitOK, []string{"destinations", "show", "app", "--json", "-c", file})
	if err := json.Unmarshal([]byte(out), &line); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if line.Waiting != 3 || line.Pause == nil || line.Pause.Reason != "deploy" || line.Pause.By == "" || line.Configured == nil || !*line.Configured ||
		len(line.Revisions) != 1 || line.Revisions[0].ConfigRevision != line.ConfigRevision || line.Revisions[0].Forwards != 3 || len(line.History) != 2 {
		t.Errorf("show says %s", out)
	}
	command(t, database, exitOK, []string{"destinations", "resume", "app", "--reason", "deployed"}, "app resumed")
	eventually(t, "the app has all", func() bool { return len(app.requests()) == 3 })
	eventually(t, "all are settled", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted'`) == 3
	})
	command(t, database, exitOK, []string{"destinations", "show", "app"}, "paused by", `"deploy"`, "resumed by", `"deployed", after`, "configured "+appURL)
	sv.end()
}

// What was tried under one configuration and waits is told apart from what came under
// another one.
func TestDestinationsListSaysUnderWhichConfigurationForwardsWait(t *testing.T) {
	t.Parallel()
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		revision := int64(1)
		if n == 4 {
			revision = 2
		}
		_, err := store.Accept(t.Context(), inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: fmt.Sprint("dlv_", n), Method: "POST", ConfigRevision: revision,
			Forwards: []inbox.NewForward{{Destination: "app"}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	execute(t, database, `INSERT INTO hooklatch.destination (name, url, config_revision) VALUES ('app', 'http://app', 3)`,
		`INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class, config_revision) SELECT id, n, 'acme', now(), '5xx', n FROM hooklatch.outbox, generate_series(1, 3) n
			WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = 'dlv_0')`)
	command(t, database, exitOK, []string{"destinations", "list"}, "1: 3, 2: 1, 3: 1")
}

func TestProbeSaysWhatItFindsAndAsksServers(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	file := s.config(appURL)
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	command(t, database, exitOK, []string{"destinations", "probe", "app", "-c", file}, "✓ app answers in", "none has run with it yet")
	command(t, database, exitUsage, []string{"destinations", "probe", "ap", "-c", file}, `unknown destination "ap": app is configured`)
	sv := startServe(t, s, database)
	command(t, database, exitOK, []string{"destinations", "probe", "app", "-c", file}, "breaker   closed", "asked to try one forward now")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.destination WHERE probe_asked_at IS NOT NULL`); n != 1 {
		t.Error("no server would know of the probe")
	}
	s.config("http://127.0.0.1:1")
	command(t, database, exitNo, []string{"destinations", "probe", "app", "-c", file, "--json"}, `"answers":false`, "refused", `"asked":true`)
	sv.end()
}
