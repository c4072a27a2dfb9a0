package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// Ctrl-C in the middle keeps what was done, and says how to go on; that command does
// the rest.
func TestReplayInterruptedGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := s.config("http://127.0.0.1:1")
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const all, done = 30, 12
	var held int64
	for n := range all {
		r, err := store.Accept(t.Context(), inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: fmt.Sprint("dlv_", n), Method: "POST"})
		if err != nil {
			t.Fatal(err)
		}
		if n == done {
			held = r.ID
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT FROM hooklatch.inbox WHERE id = $1 FOR UPDATE`, held); err != nil {
		t.Fatal(err)
	}
	env := []string{"DATABASE_URL=" + database}
	p := start(t, env, "replay", "-c", file, "--unrouted", "--source", "billing", "--since", "1h", "--reason", "a route", "--yes")
	eventually(t, "it waits for the delivery that is held", func() bool {
		return count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitInterrupted || !strings.Contains(p.output(), fmt.Sprintf("stopped: %d deliveries routed", done)) {
		t.Fatalf("exit code %d\n%s", code, p.output())
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox`); n != done {
		t.Fatalf("%d forwards, want %d", n, done)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, next, ok := strings.Cut(p.line("next   "), "hooklatch ")
	if !ok || !strings.Contains(next, " --reason 'a route' --yes") {
		t.Fatalf("next: %q", next)
	}
	words := strings.Fields(strings.ReplaceAll(next, "'a route'", "again"))
	if p = start(t, env, words...); p.wait() != exitOK || !strings.Contains(p.output(), fmt.Sprintf("%d deliveries routed", all-done)) {
		t.Errorf("exit code %d\n%s", p.code, p.output())
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox`); n != all {
		t.Errorf("%d forwards, want %d", n, all)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE action = 'route' AND actor <> '' AND reason IN ('a route', 'again')`); n != all {
		t.Errorf("%d rows of audit, want %d", n, all)
	}
}

// A replay does what it says, and says of what it does not do why.
func TestCaseE12_ReplayDoesWhatItSays(t *testing.T) {
	t.Parallel()
	// The app is broken until it is mended, and hangs for one delivery.
	var mu sync.Mutex
	mended := false
	got := map[string]int{}
	hang := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Hooklatch-Delivery-Id")
		mu.Lock()
		got[id+" "+r.Header.Get("Hooklatch-Attempt")]++
		broken := !mended && id != "newer"
		mu.Unlock()
		if id == "slow" {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		} else if broken {
			w.WriteHeader(404)
		}
	}))
	defer app.Close()
	defer close(hang)
	s := newSite(t)
	file := s.write("hooklatch.yaml", `version: 1
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}
stop: {lame_duck: 0s, attempts: 1s}
sources:
  billing:
    tenant: acme
    path: /in/billing
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k1}}]
    resource: {id: /resource, revision: /revision}
    ordering: latest
    forward: [app]
destinations:
  app: {url: "`+app.URL+`", timeout: 2m}
`)
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	sv := startServe(t, s, database)
	state := func(id string) string {
		var state string
		err := pool.QueryRow(t.Context(), `SELECT o.state || ' ' || o.attempts || CASE WHEN o.lease_until > clock_timestamp() THEN ' leased' ELSE '' END
			FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id WHERE delivery_id = $1`, id).Scan(&state)
		if err != nil {
			return err.Error()
		}
		return state
	}
	for _, d := range []struct{ id, body, state string }{
		{"lost", `{}`, "blocked 1"}, {"pruned", `{}`, "blocked 1"}, {"slow", `{}`, "pending 1 leased"},
		{"older", `{"resource":"r","revision":1}`, "blocked 1"}, {"newer", `{"resource":"r","revision":2}`, "accepted 1"},
	} {
		if a := do(t, http.DefaultClient, s.request(sv.url, d.id, d.body)); a.status != 202 {
			t.Fatalf("%s: %d %s", d.id, a.status, a.body)
		}
		eventually(t, d.id+" is "+d.state, func() bool { return state(d.id) == d.state })
	}
	execute(t, database, `DELETE FROM hooklatch.payload WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = 'pruned')`)
	mu.Lock()
	mended = true
	mu.Unlock()

	replay := func(id string, code int, text string, more ...string) {
		t.Helper()
		p := start(t, []string{"DATABASE_URL=" + database}, append([]string{"replay", "-c", file, "--delivery", id, "--reason", "mended"}, more...)...)
		if got := p.wait(); got != code || !strings.Contains(p.output(), text) {
			t.Errorf("replay %s: exit code %d, want %d and %q in\n%s", id, got, code, text, p.output())
		}
	}
	replay("older", exitNo, "left alone: superseded: a later revision was applied", "--dry-run")
	replay("pruned", exitNo, "left alone: its body was removed by a person, before 20", "--dry-run")
	replay("lost", exitOK, "app   would be due again\n", "--dry-run")
	execute(t, database, `UPDATE hooklatch.destination SET paused_at = now(), paused_by = 'ann', pause_reason = 'deploy' WHERE name = 'app'`)
	replay("lost", exitOK, "app   would be due again; the destination is paused by ann (deploy): nothing goes out before it is resumed", "--dry-run")
	execute(t, database, `UPDATE hooklatch.destination SET paused_at = NULL, paused_by = NULL, pause_reason = NULL,
		breaker = 'open', breaker_at = now(), breaker_until = now() + interval '1 hour' WHERE name = 'app'`)
	replay("lost", exitOK, "app   would be due again; the breaker is open: nothing goes out before 20", "--dry-run")
	execute(t, database, `UPDATE hooklatch.destination SET breaker = 'closed' WHERE name = 'app'`)
	replay("lost", exitOK, "app   due again, for one attempt")
	eventually(t, "the app has it", func() bool { return state("lost") == "accepted 2" })
	replay("lost", exitNo, "left alone: the destination has accepted it at 20")
	replay("older", exitNo, "left alone: superseded: a later revision was applied")
	replay("pruned", exitNo, "left alone: its body was removed by a person, before 20")
	replay("slow", exitNo, "left alone: in flight: attempt 1 is under way, lease until 20")
	for id, want := range map[string]string{"older": "blocked 1", "pruned": "blocked 1", "slow": "pending 1 leased"} {
		if got := state(id); got != want {
			t.Errorf("%s is %s after a replay that was refused, want %s", id, got, want)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE action = 'replay' AND reason = 'mended' AND actor <> ''`); n != 1 {
		t.Errorf("%d replays in the audit, want the one that was done", n)
	}
	replay("older", exitOK, "due again", "--force")
	eventually(t, "the app goes back", func() bool { return state("older") == "accepted 2" })
	mu.Lock()
	defer mu.Unlock()
	for _, hit := range []string{"lost 1", "lost 2", "older 1", "older 2", "newer 1", "pruned 1", "slow 1"} {
		if got[hit] != 1 {
			t.Errorf("the app got delivery and attempt %s %d times", hit, got[hit])
		}
	}
	if len(got) != 7 {
		t.Errorf("the app got %v", got)
	}
}

// P14: where the destination is gone nothing is made due that nobody would ever send.
func TestP14_ReplayToADestinationThatIsGone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := s.config("http://127.0.0.1:1")
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	execute(t, database, `WITH i AS (INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size) VALUES ('acme', 'billing', 'dlv_1', sha256('x'), 1) RETURNING id),
		p AS (INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body) SELECT id, 'acme', 'POST', '', '', 'x' FROM i)
		INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at, state, blocked_reason, attempts, settled_at) SELECT id, 'acme', 'gone', now(), 'blocked', 'refused', 1, now() FROM i`)
	p := start(t, []string{"DATABASE_URL=" + database}, "replay", "-c", file, "--delivery", "dlv_1", "--destination", "gone", "--reason", "mended")
	if code := p.wait(); code != exitNo || !strings.Contains(p.output(), "destination gone is not in the configuration any more") {
		t.Errorf("exit code %d, want %d:\n%s", code, exitNo, p.output())
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE destination = 'gone' AND state = 'blocked' AND attempts_free = 0`); n != 1 {
		t.Error("the dead letter was moved")
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit`); n != 0 {
		t.Errorf("%d rows of audit", n)
	}
}

// X47, P14: of two people who replay one dead letter at once, one does, and the other is
// told. The app gets it once more.
func TestX47_TwoReplaysAtOnceByCommand(t *testing.T) {
	t.Parallel()
	a, url := startBrokenApp(t)
	a.mend()
	s := newSite(t)
	file := s.config(url)
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	dieOf(t, storeOf(t, pool), "billing", "4xx", 404, "dlv_1")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT FROM hooklatch.outbox FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	var people []*process
	for _, reason := range []string{"mended", "mended too"} {
		people = append(people, start(t, []string{"DATABASE_URL=" + database}, "replay", "-c", file, "--delivery", "dlv_1", "--reason", reason))
	}
	eventually(t, "both wait", func() bool {
		return count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 2
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	codes := map[int]int{}
	for _, p := range people {
		code := p.wait()
		codes[code]++
		if want := map[int]string{exitOK: "due again, for one attempt", exitNo: "a replay is in progress: somebody else was faster"}[code]; !strings.Contains(p.output(), want) {
			t.Errorf("exit code %d without %q\n%s", code, want, p.output())
		}
	}
	if codes[exitOK] != 1 || codes[exitNo] != 1 {
		t.Errorf("exit codes %v, want one of each", codes)
	}
	startServe(t, s, database)
	eventually(t, "it is accepted", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted' AND attempts = 2`) == 1
	})
	if n := a.hit("dlv_1"); n != 1 {
		t.Errorf("the app got it %d times", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE action = 'replay'`); n != 1 {
		t.Errorf("%d replays in the audit", n)
	}
}
