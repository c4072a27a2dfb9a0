package main

import (
	"fmt"
	"os"
	"strings"
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
