package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// The faults of this file happen to whole processes: the real program, killed at
// an edge that a fault proxy before Postgres holds open.

// run starts serve on a database and returns where it listens.
func (s *site) run(database, app string, args ...string) (p *process, url string) {
	s.t.Helper()
	return s.serve(s.config(app, `database: {url: {env: DATABASE_URL}}`), database, args...)
}

// serve is run with a configuration of the test's.
func (s *site) serve(config, database string, args ...string) (p *process, url string) {
	s.t.Helper()
	p = start(s.t, []string{"DATABASE_URL=" + database}, append([]string{"serve", "-c", config}, args...)...)
	ready := p.entry(`"msg":"ready"`)
	if ready["http"] != nil {
		url = "http://" + ready["http"].(string) + "/in/billing"
	}
	return p, url
}

func kill(p *process) {
	p.cmd.Process.Kill()
	<-p.ended
}

// number runs a query that returns one.
func number(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// wholeAtEnd audits the inbox when the test is over: whatever happened, the tables agree.
func wholeAtEnd(t *testing.T, database string) {
	t.Cleanup(func() {
		pool, err := pgxpool.New(context.Background(), database)
		if err != nil {
			t.Error(err)
			return
		}
		defer pool.Close()
		store, err := inbox.New(pool, inbox.Config{})
		if err != nil {
			t.Error(err)
			return
		}
		for d, err := range store.Audit(context.Background(), inbox.AuditRequest{Bodies: true}) {
			if err != nil {
				t.Error(err)
				return
			}
			t.Errorf("audit: %s", d)
		}
	})
}

func post(t *testing.T, s *site, url, id, body string) answer {
	t.Helper()
	return do(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, s.request(url, id, body))
}

// X34: killed after the commit and before the answer; and before the commit.
func TestX34_KilledBetweenCommitAndAnswer(t *testing.T) {
	for _, c := range []struct {
		name      string
		committed bool
	}{{"after the commit", true}, {"before the commit", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, received := newSite(t), &app{}
			backend := httptest.NewServer(received)
			t.Cleanup(backend.Close)
			pool := inboxtest.New(t)
			wholeAtEnd(t, pool.Config().ConnString())
			fault := inboxtest.NewFaultProxy(t, pool.Config().ConnString())

			p, url := s.run(fault.URL(), backend.URL, "--role", "receive")
			fault.AtCommitOf("INTO hooklatch.inbox", inboxtest.HoldCommit, 1)
			lost := make(chan error)
			go func() {
				_, err := try(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, s.request(url, "dlv_1", "{}"))
				lost <- err
			}()
			fault.Await(func(c inboxtest.Counts) bool { return c.Held == 1 })
			if c.committed {
				fault.Set(inboxtest.CutDown) // COMMIT goes through, its answer does not
				fault.Release()
				eventually(t, "the row is committed", func() bool { return number(t, pool, `SELECT count(*) FROM hooklatch.inbox`) == 1 })
			}
			kill(p)
			fault.Set(inboxtest.Reset) // as the kernel does with a dead process's connections
			if err := <-lost; err == nil {
				t.Fatal("void: the sender got an answer")
			}

			_, url = s.run(pool.Config().ConnString(), backend.URL)
			a := post(t, s, url, "dlv_1", "{}")
			if want := fmt.Sprintf(`"duplicate":%v`, c.committed); a.status != 202 || !strings.Contains(a.body, want) {
				t.Errorf("retry: %d %s, want 202 with %s", a.status, a.body, want)
			}
			eventually(t, "the app has it", func() bool { return len(received.requests()) > 0 })
			eventually(t, "the forward is accepted", func() bool {
				return number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted'`) == 1
			})
			if n := len(received.requests()); n != 1 {
				t.Errorf("the app got it %d times", n)
			}
		})
	}
}

// X42: killed between the app's 200 and the settlement: the app sees the same
// delivery again, as attempt 2, and the forward ends once.
func TestX42_KilledBetweenTheAppsAnswerAndSettle(t *testing.T) {
	s, received := newSite(t), &app{}
	pool := inboxtest.New(t)
	wholeAtEnd(t, pool.Config().ConnString())
	fault := inboxtest.NewFaultProxy(t, pool.Config().ConnString())
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(received.requests()) == 0 {
			fault.AtCommitOf("attempt (outbox_id, number, late", inboxtest.HoldCommit, 1) // the settlement's
		}
		received.ServeHTTP(w, r)
	}))
	t.Cleanup(backend.Close)

	receiver, url := s.run(pool.Config().ConnString(), backend.URL, "--role", "receive")
	if a := post(t, s, url, "dlv_1", "{}"); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	p, _ := s.run(fault.URL(), backend.URL, "--role", "forward")
	fault.Await(func(c inboxtest.Counts) bool { return c.Held == 1 })
	kill(p)
	fault.Set(inboxtest.Reset) // as the kernel does with a dead process's connections
	if n := number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'pending' AND lease_until > now() AND attempts = 1`); n != 1 {
		t.Fatal("void: the forward is not left leased and unsettled")
	}
	if _, err := pool.Exec(t.Context(), `UPDATE hooklatch.outbox SET lease_until = now()`); err != nil { // in place of waiting for it
		t.Fatal(err)
	}
	s.run(pool.Config().ConnString(), backend.URL, "--role", "forward")
	eventually(t, "the forward is accepted", func() bool {
		return number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted' AND attempts = 2`) == 1
	})
	got := received.requests()
	if len(got) != 2 || got[0].id != "dlv_1" || got[1].id != "dlv_1" || got[0].attempt != "1" || got[1].attempt != "2" {
		t.Errorf("the app got %+v, want attempts 1 and 2 of dlv_1", got)
	}
	if n := number(t, pool, `SELECT count(*) FILTER (WHERE number = 1 AND class = 'unknown') * 10 + count(*) FILTER (WHERE number = 2 AND class = '2xx')
		FROM hooklatch.attempt`); n != 11 {
		t.Errorf("ledger sum %d, want one unknown attempt 1 and one accepted attempt 2", n)
	}
	receiver.signal(os.Interrupt)
	if code := receiver.wait(); code != 0 {
		t.Errorf("the receiver ended with %d", code)
	}
}

// X33: a connection that is cut in COMMIT is 503 for the sender, whose retry
// finds out; the process needs no restart.
func TestX33_CutInCommitIs503AndTheRetrySettlesIt(t *testing.T) {
	for _, c := range []struct {
		name      string
		fault     inboxtest.CommitFault
		committed bool
	}{{"after", inboxtest.CutAfterCommit, true}, {"before", inboxtest.CutBeforeCommit, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			pool := inboxtest.New(t)
			wholeAtEnd(t, pool.Config().ConnString())
			fault := inboxtest.NewFaultProxy(t, pool.Config().ConnString())
			_, url := s.run(fault.URL(), "http://127.0.0.1:9", "--role", "receive")
			fault.AtCommitOf("INTO hooklatch.inbox", c.fault, 1)
			a := post(t, s, url, "dlv_1", "{}")
			if a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `"code":"store_outcome_unknown"`) {
				t.Errorf("%d %s, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
			}
			a = post(t, s, url, "dlv_1", "{}")
			if want := fmt.Sprintf(`"duplicate":%v`, c.committed); a.status != 202 || !strings.Contains(a.body, want) {
				t.Errorf("retry: %d %s, want 202 with %s", a.status, a.body, want)
			}
			if n := number(t, pool, `SELECT (SELECT count(*) FROM hooklatch.inbox) * 10 + (SELECT count(*) FROM hooklatch.outbox)`); n != 11 {
				t.Errorf("rows %d, want one delivery and one forward", n)
			}
		})
	}
}

// X27, X28: one hundred at once over two processes on one database.
func TestX27_HundredAtOnceOverTwoProcesses(t *testing.T) {
	s := newSite(t)
	pool := inboxtest.New(t)
	wholeAtEnd(t, pool.Config().ConnString())
	var urls [2]string
	for i := range urls {
		_, urls[i] = s.run(pool.Config().ConnString(), "http://127.0.0.1:9", "--role", "receive")
	}
	// round posts body(i) a hundred times and counts the answers by what they say.
	round := func(id string, body func(i int) string) map[string]int {
		var mu sync.Mutex
		said := map[string]int{}
		var wg sync.WaitGroup
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
		defer client.CloseIdleConnections()
		for i := range 100 {
			r := s.request(urls[i%2], id, body(i/2))
			wg.Go(func() {
				a, err := try(client, r)
				key := fmt.Sprint(a.status)
				switch {
				case err != nil:
					key = err.Error()
				case strings.Contains(a.body, `"duplicate":false`):
					key += " new"
				}
				mu.Lock()
				defer mu.Unlock()
				said[key]++
			})
		}
		wg.Wait()
		return said
	}
	if said := round("same", func(int) string { return "{}" }); said["202 new"] != 1 || said["202"] != 99 {
		t.Errorf("equal bodies: %v, want 1 new and 99 duplicates", said)
	}
	if said := round("two", func(i int) string { return fmt.Sprint(i % 2) }); said["202 new"] != 1 || said["202"] != 49 || said["409"] != 50 {
		t.Errorf("two bodies: %v, want 1 new, 49 duplicates, 50 conflicts", said)
	}
	if n := number(t, pool, `SELECT (SELECT count(*) FROM hooklatch.inbox) * 100 + (SELECT count(*) FROM hooklatch.outbox) * 10 + (SELECT count(*) FROM hooklatch.conflict)`); n != 221 {
		t.Errorf("rows %d, want 2 deliveries, 2 forwards, 1 conflict", n)
	}
}

// X43: a worker that is stopped beyond its lease and then goes on. The other's
// settlement stands; the late one is in the ledger and changes nothing.
func TestX43_StoppedBeyondItsLease(t *testing.T) {
	s, received := newSite(t), &app{hold: make(chan struct{})}
	stalled := received.hold
	backend := httptest.NewServer(received)
	t.Cleanup(backend.Close)
	pool := inboxtest.New(t)
	wholeAtEnd(t, pool.Config().ConnString())
	_, url := s.run(pool.Config().ConnString(), backend.URL, "--role", "receive")
	if a := post(t, s, url, "dlv_1", "{}"); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	late, _ := s.run(pool.Config().ConnString(), backend.URL, "--role", "forward")
	eventually(t, "the first worker has sent it", func() bool { return len(received.requests()) == 1 })
	late.signal(syscall.SIGSTOP)
	received.mu.Lock()
	received.hold = nil // the next request is answered at once
	received.mu.Unlock()
	if _, err := pool.Exec(t.Context(), `UPDATE hooklatch.outbox SET lease_until = now()`); err != nil { // in place of waiting for it
		t.Fatal(err)
	}
	s.run(pool.Config().ConnString(), backend.URL, "--role", "forward")
	settled := func() int {
		return number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted' AND attempts = 2 AND lease_token = 2 AND lease_until IS NULL`)
	}
	eventually(t, "the second worker has settled it", func() bool { return settled() == 1 })
	close(stalled)
	late.signal(syscall.SIGCONT)
	eventually(t, "the late attempt is in the ledger", func() bool {
		return number(t, pool, `SELECT count(*) FROM hooklatch.attempt WHERE number = 1 AND late`) == 1
	})
	if settled() != 1 {
		t.Error("the late settlement changed the forward")
	}
	late.line(`"lease_lost":true`)
	if got := received.requests(); len(got) != 2 || got[0].attempt != "1" || got[1].attempt != "2" {
		t.Errorf("the app got %+v, want attempts 1 and 2", got)
	}
}

// P13: secrets are in no output and no table, bodies only where bodies belong.
func TestP13_SecretsAndBodiesStayWhereTheyBelong(t *testing.T) {
	s := newSite(t)
	secret, err := os.ReadFile(filepath.Join(s.dir, "k1"))
	if err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(backend.Close)
	pool := inboxtest.New(t)
	wholeAtEnd(t, pool.Config().ConnString())
	p, url := s.run(pool.Config().ConnString(), backend.URL)
	const canary = "canary-of-the-body"
	first := s.request(url, "dlv_1", canary+"-1")
	signature := first.Header.Get("X-Webhook-Signature")
	if a := do(t, http.DefaultClient, first); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	post(t, s, url, "dlv_1", canary+"-2") // a conflict
	spoiled := s.request(url, "dlv_2", canary+"-3")
	spoiled.Header.Set("X-Webhook-Signature", strings.Repeat("0", 64))
	do(t, http.DefaultClient, spoiled)
	p.line(`"msg":"attempt"`)
	metrics := get(t, "http://"+p.entry(`"msg":"ready"`)["admin"].(string)+"/metrics")
	for what, text := range map[string]string{"log": p.output(), "metrics": metrics.body} {
		for name, canary := range map[string]string{"secret": string(secret), "body": canary, "signature": signature} {
			if strings.Contains(text, canary) {
				t.Errorf("the %s shows a %s", what, name)
			}
		}
	}

	rows, err := pool.Query(t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = 'hooklatch'`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 8 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	holds := func(table, text string) bool {
		return number(t, pool, fmt.Sprintf(`SELECT count(*) FROM hooklatch.%s t WHERE t::text LIKE '%%%s%%' OR t::text LIKE '%%%x%%'`, table, text, text)) > 0
	}
	for _, table := range tables {
		if holds(table, string(secret)) {
			t.Errorf("table %s holds the secret", table)
		}
		if where := table == "payload" || table == "conflict"; holds(table, canary) != where {
			t.Errorf("table %s holds a body: %v, want %v", table, !where, where)
		}
	}
}
