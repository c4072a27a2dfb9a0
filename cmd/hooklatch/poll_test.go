package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// E1: accepted in one process, forwarded by another, which nobody tells. Polling finds
// it; no connection that listens is needed, so that none can be lost. Neither connections
// that were ended nor such as went silent make it late.
func TestCaseE1_PollFindsWhatAnotherProcessAccepted(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s, pool := newSite(t), inboxtest.New(t)
	database := pool.Config().ConnString()
	wholeAtEnd(t, database)
	fault := inboxtest.NewFaultProxy(t, database)
	config := s.config(appURL, `database: {url: {env: DATABASE_URL}}`)
	_, url := s.serve(config, database, "--role", "receive")
	forward, _ := s.serve(config, fault.URL(), "--role", "forward")
	sent := 0
	send := func() time.Time {
		t.Helper()
		sent++
		if a := post(t, s, url, fmt.Sprint("dlv_", sent), "{}"); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return time.Now()
	}
	arrives := func(since time.Time, within time.Duration) {
		t.Helper()
		eventually(t, "the app has it", func() bool { return len(app.requests()) == sent })
		if took := time.Since(since); took > within {
			t.Errorf("delivery %d was attempted after %s, want %s at most", sent, took, within)
		}
	}
	if n := number(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen%'`); n != 0 {
		t.Errorf("void: %d connections listen, and this test does not end them", n)
	}
	arrives(send(), 5*time.Second)

	fault.Set(inboxtest.Reset) // all that stand, and what is tried meanwhile
	forward.line(`"level":"WARN"`, `"msg":"consumer"`)
	fault.Set(inboxtest.Pass)
	arrives(send(), 5*time.Second)

	fault.Set(inboxtest.HalfOpen) // nothing says that they are dead
	fault.Await(func(c inboxtest.Counts) bool { return c.Stalled > 0 })
	at := send()
	forward.line(`"msg":"consumer"`, "deadline")
	fault.Set(inboxtest.Pass)
	arrives(at, 10*time.Second) // once a claim has been given up
}
