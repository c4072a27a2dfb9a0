package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// brokenApp refuses deliveries until it is mended, and some for ever.
type brokenApp struct {
	mu     sync.Mutex
	mended bool
	never  []string // ids
	hits   map[string]int
}

func startBrokenApp(t *testing.T, never ...string) (*brokenApp, string) {
	t.Helper()
	a := &brokenApp{never: never, hits: map[string]int{}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return a, server.URL
}

func (a *brokenApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := r.Header.Get("Hooklatch-Delivery-Id")
	a.hits[id]++
	if !a.mended || slices.Contains(a.never, id) {
		w.WriteHeader(404)
	}
}

func (a *brokenApp) mend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mended = true
}

// hit is how often the app was called, for all ids or for one.
func (a *brokenApp) hit(id string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for got, times := range a.hits {
		if id == "" || id == got {
			n += times
		}
	}
	return n
}

func storeOf(t *testing.T, pool *pgxpool.Pool) *inbox.Store {
	t.Helper()
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("dlv_", i))
	}
	return all
}

// replayMany runs replay as a process of its own.
func replayMany(t *testing.T, database, file string, code int, args ...string) manyReplayed {
	t.Helper()
	p := start(t, []string{"DATABASE_URL=" + database}, append([]string{"replay", "-c", file, "--state", "blocked", "--reason", "app mended", "--json"}, args...)...)
	if got := p.wait(); got != code {
		t.Errorf("exit code %d, want %d\n%s", got, code, p.output())
	}
	var done manyReplayed
	if err := json.Unmarshal([]byte(p.line(`{"v":1`)), &done); err != nil {
		t.Fatalf("%v in\n%s", err, p.output())
	}
	return done
}

// E11: each is tried once more with the number of its attempt going on, marked with who
// wanted it; what fails again is a dead letter as before.
func TestCaseE11_ReplayOfManyIsOneAttemptEach(t *testing.T) {
	t.Parallel()
	const all = 25
	a, url := startBrokenApp(t, "dlv_20", "dlv_21")
	a.mend()
	s := newSite(t)
	file := s.config(url)
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	dieOf(t, storeOf(t, pool), "billing", "4xx", 404, ids(all)...)
	startServe(t, s, database)

	plan := replayMany(t, database, file, exitOK, "--destination", "app", "--dry-run")
	if !plan.DryRun || plan.Letters != all || plan.Replayed != all || plan.Oldest == nil || len(plan.Types) != 1 || plan.Types[0] != (manyType{"type_4xx", all}) {
		t.Errorf("dry run %+v", plan)
	}
	if n := a.hit(""); n != 0 {
		t.Fatalf("a dry run sent %d", n)
	}
	done := replayMany(t, database, file, exitPartly, "--destination", "app", "--first", "5", "--rate", "1000/s", "--stop-if-errors", "50%", "--yes")
	if done.Replayed != all || done.Accepted != all-2 || done.Failed != 2 || done.Waiting != 0 || done.Stopped != "" {
		t.Errorf("%+v", done)
	}
	for _, id := range ids(all) {
		if n := a.hit(id); n != 1 {
			t.Errorf("the app got %s %d times, want once", id, n)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox o WHERE attempts = 2 AND state = CASE WHEN inbox_id IN
		(SELECT id FROM hooklatch.inbox WHERE delivery_id IN ('dlv_20', 'dlv_21')) THEN 'blocked' ELSE 'accepted' END`); n != all {
		t.Errorf("%d forwards are as they should be, want %d", n, all)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.attempt t JOIN hooklatch.audit a USING (outbox_id)
		WHERE t.number = 2 AND t.replayed_by = a.actor AND a.action = 'replay' AND a.reason = 'app mended'`); n != all {
		t.Errorf("%d attempts are marked with who wanted them, want %d", n, all)
	}
}

// With the app still broken the first ones tell, and the others are left alone.
func TestReplayStopsAtTheFirstOnes(t *testing.T) {
	t.Parallel()
	a, url := startBrokenApp(t)
	s := newSite(t)
	file := s.config(url)
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	dieOf(t, storeOf(t, pool), "billing", "4xx", 404, ids(30)...)
	startServe(t, s, database)
	done := replayMany(t, database, file, exitPartly, "--source", "billing", "--first", "4", "--rate", "1000/s", "--yes")
	if done.Replayed != 4 || done.Failed != 4 || done.Accepted != 0 || done.Stopped != stoppedErrors || !strings.Contains(done.Next, " --until ") {
		t.Errorf("%+v", done)
	}
	if n := a.hit(""); n != 4 {
		t.Errorf("the app was called %d times, want 4", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit`); n != 4 {
		t.Errorf("%d rows of audit, want 4", n)
	}
}

// Ctrl-C keeps what was done and says how to go on. That command does the rest, and what
// failed once more is not replayed twice.
func TestReplayOfManyInterruptedGoesOn(t *testing.T) {
	t.Parallel()
	const all, first = 20, 5
	a, url := startBrokenApp(t, "dlv_1")
	a.mend()
	s := newSite(t)
	file := s.config(url)
	database := inboxtest.URL(t)
	pool := openPoolOf(t, database)
	dieOf(t, storeOf(t, pool), "billing", "4xx", 404, ids(all)...)
	env := []string{"DATABASE_URL=" + database}
	replays := `SELECT count(*) FROM hooklatch.audit WHERE action = 'replay'`
	// No server runs: the first ones are never tried.
	p := start(t, env, "replay", "-c", file, "--state", "blocked", "--all-sources", "--first", fmt.Sprint(first), "--rate", "1000/s", "--stop-if-errors", "60%", "--reason", "mended", "--yes")
	eventually(t, "the first ones are replayed", func() bool { return count(t, pool, replays) == first })
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitInterrupted || !strings.Contains(p.output(), fmt.Sprintf("%d of %d dead letters replayed: 0 accepted, 0 failed, %d not tried yet", first, all, first)) {
		t.Fatalf("exit code %d\n%s", code, p.output())
	}
	_, next, ok := strings.Cut(p.line("next   "), "hooklatch ")
	if !ok {
		t.Fatalf("no next command in\n%s", p.output())
	}
	if n := count(t, pool, replays); n != first {
		t.Fatalf("%d replays, want %d", n, first)
	}
	startServe(t, s, database)
	eventually(t, "the first ones are tried", func() bool { return a.hit("") == first })
	eventually(t, "one is dead again", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'blocked' AND attempts = 2`) == 1
	})
	if p = start(t, env, strings.Fields(next)...); p.wait() != exitOK || !strings.Contains(p.output(), fmt.Sprintf("%d accepted, 0 failed", all-first)) {
		t.Errorf("exit code %d\n%s", p.code, p.output())
	}
	for _, id := range ids(all) {
		if n := a.hit(id); n != 1 {
			t.Errorf("the app got %s %d times, want once", id, n)
		}
	}
}

// E12: what cannot be replayed is counted by its reason, and left as it is.
func TestCaseE12_ReplayOfManyLeavesAlone(t *testing.T) {
	store, database := openInbox(t)
	s := newSite(t)
	file := s.config("http://127.0.0.1:1")
	dieOf(t, store, "billing", "4xx", 404, "pruned", "superseded", "good")
	dieOf(t, store, "gone", "4xx", 404, "of another source")
	pool := openPoolOf(t, database)
	execute(t, database,
		`DELETE FROM hooklatch.payload WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = 'pruned')`,
		`UPDATE hooklatch.outbox SET lane = sha256('l'), revision = 1, ordering = 'latest' WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = 'superseded')`,
		`UPDATE hooklatch.inbox SET resource_type = 'r', resource_id = '1', revision = 1 WHERE delivery_id = 'superseded'`,
		`INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane, passed) VALUES ('acme', 'app', 'billing', 'r', '1', sha256('l'), 2)`)
	args := []string{"replay", "-c", file, "--state", "blocked", "--all-sources", "--dry-run"}
	out := says(t, exitOK, args, "1 dead letter to replay", "1 left alone, whose bodies are gone", "1 left alone, superseded by a later revision",
		"1 left alone, whose source is not configured any more", "type_4xx")
	if strings.Contains(out, "next ") {
		t.Errorf("a dry run has nothing to go on with:\n%s", out)
	}
	says(t, exitOK, append(args, "--force"), "2 dead letters to replay")
	execute(t, database, `INSERT INTO hooklatch.destination (name, url, paused_at) VALUES ('app', 'http://app', now()) ON CONFLICT (name) DO UPDATE SET paused_at = now()`)
	says(t, exitNo, args, "3 left alone, whose destination is paused")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit`) + count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state <> 'blocked'`); n != 0 {
		t.Errorf("a dry run changed %d rows", n)
	}
}

func TestReplayOfManyNeedsAScope(t *testing.T) {
	_, _ = openInbox(t)
	file := newSite(t).config("http://127.0.0.1:1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--state", "blocked"}, "which dead letters are meant?"},
		{[]string{"--state", "blocked", "--class", "5xx"}, "which dead letters are meant?"},
		{[]string{"--state", "pending", "--destination", "app"}, "only what is blocked"},
		{[]string{"--state", "blocked", "--destination", "app", "--rate", "0/s"}, `--rate "0/s" is no rate`},
		{[]string{"--state", "blocked", "--destination", "app", "--rate", "5000/s"}, "more than 1000/s"},
		{[]string{"--state", "blocked", "--destination", "app", "--stop-if-errors", "0%"}, "no share"},
		{[]string{"--state", "blocked", "--destination", "app", "--first", "0"}, "--first must be at least 1"},
		{[]string{"--state", "blocked", "--delivery", "dlv_1"}, "what is to be replayed?"},
		{[]string{"--destination", "app"}, "what is to be replayed?"},
		{[]string{"--delivery", "dlv_1", "--rate", "5/s"}, "--rate does not go with --delivery"},
		{[]string{"--unrouted", "--source", "billing", "--with-retries"}, "--with-retries does not go with --unrouted"},
		{[]string{"--state", "blocked", "--destination", "ap", "--dry-run"}, `unknown destination "ap"`},
		{[]string{"--state", "blocked", "--source", "bill", "--dry-run"}, `unknown source "bill"`},
	} {
		args := append([]string{"replay", "-c", file}, c.args...)
		if !slices.Contains(c.args, "--dry-run") {
			args = append(args, "--reason", "mended", "--yes")
		}
		says(t, exitUsage, args, c.want, "Try: ")
	}
	says(t, exitUsage, []string{"replay", "-c", file, "--state", "blocked", "--destination", "app", "--yes"}, "a reason is demanded")
}

func TestTooManyReplaysFail(t *testing.T) {
	outcomes := func(failed, accepted int) []bool {
		return append(slices.Repeat([]bool{true}, failed), slices.Repeat([]bool{false}, accepted)...)
	}
	for _, c := range []struct {
		name                 string
		first, total, stopAt int
		failed, accepted     int
		want                 bool
	}{
		{"none failed", 10, 1000, 20, 0, 10, false},
		{"one of the first ten", 10, 1000, 20, 1, 0, false},
		{"two of the first ten, before the others have ended", 10, 1000, 20, 2, 0, true},
		{"a fifth of few", 10, 5, 20, 1, 0, true},
		{"less than a fifth of many", 10, 1000, 20, 19, 81, false},
		{"a fifth of many", 10, 1000, 20, 20, 80, true},
		{"all", 10, 1000, 100, 10, 0, true},
		{"all but one", 10, 1000, 100, 9, 1, false},
	} {
		m := &manyReplay{o: manyOptions{first: c.first, stopAt: c.stopAt}, total: c.total, recent: outcomes(c.failed, c.accepted)}
		if got := m.tooManyFail(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Where nothing is tried for long, the run gives up and says how to go on.
func TestReplayOfManyGivesUpWaiting(t *testing.T) {
	var messages strings.Builder
	m := &manyReplay{replayer: &replayer{s: &stdio{err: &messages}}, watched: map[int64]int{1: 1}, moved: time.Now().Add(-watchHint - time.Second)}
	m.hint()
	m.hint()
	if got := messages.String(); strings.Count(got, "1 replay not tried yet: does a server run") != 1 || m.done.Stopped != "" {
		t.Errorf("%q, stopped %q", got, m.done.Stopped)
	}
	m.moved = time.Now().Add(-watchPatience - time.Second)
	if m.hint(); m.done.Stopped != stoppedStalled {
		t.Errorf("stopped %q", m.done.Stopped)
	}
}
