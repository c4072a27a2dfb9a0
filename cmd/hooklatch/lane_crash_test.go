package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// ordered is the configuration whose source is ordered by revision.
func (s *site) ordered(app, ordering string) (file string) {
	s.t.Helper()
	file = s.config(app, `database: {url: {env: DATABASE_URL}}`)
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	const before = "    forward: [app]"
	if !strings.Contains(string(text), before) {
		s.t.Fatal("void: nowhere to put it")
	}
	return s.write("hooklatch.yaml", strings.Replace(string(text), before,
		"    resource: {type: /kind, id: /of, revision: /revision}\n    ordering: "+ordering+"\n"+before, 1))
}

func revisionOf(n int) string { return fmt.Sprintf(`{"kind":"thing","of":"r","revision":%d}`, n) }

// revisions are what the app got, in its order.
func (a *app) revisions() (all []string) {
	for _, r := range a.requests() {
		_, n, _ := strings.Cut(string(r.body), `"revision":`)
		all = append(all, strings.TrimSuffix(n, "}"))
	}
	return all
}

// X43, P09: a worker that is stopped beyond its lease with the first of a strict lane in
// hand. Another one sends that revision again, and those after it; the late settlement
// neither moves the lane nor lets anything be sent out of order.
func TestX43_StoppedBeyondItsLeaseInAStrictLane(t *testing.T) {
	s, received := newSite(t), &app{hold: make(chan struct{})}
	stalled := received.hold
	backend := httptest.NewServer(received)
	t.Cleanup(backend.Close)
	pool := inboxtest.New(t)
	database := pool.Config().ConnString()
	wholeAtEnd(t, database)
	config := s.ordered(backend.URL, "strict")
	_, url := s.serve(config, database, "--role", "receive")
	for n := range 3 {
		if a := post(t, s, url, fmt.Sprint("dlv_", n+1), revisionOf(n+1)); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	late, _ := s.serve(config, database, "--role", "forward")
	eventually(t, "the first worker has sent the first", func() bool { return len(received.requests()) == 1 })
	late.signal(syscall.SIGSTOP)
	received.mu.Lock()
	received.hold = nil // the next requests are answered at once
	received.mu.Unlock()
	if _, err := pool.Exec(t.Context(), `UPDATE hooklatch.outbox SET lease_until = now() WHERE lease_until IS NOT NULL`); err != nil { // in place of waiting for it
		t.Fatal(err)
	}
	s.serve(config, database, "--role", "forward")
	applied := func() int { return number(t, pool, `SELECT coalesce(min(applied), 0) FROM hooklatch.resource`) }
	eventually(t, "the second worker has sent all", func() bool { return applied() == 3 })
	close(stalled)
	late.signal(syscall.SIGCONT)
	late.line(`"lease_lost":true`)
	eventually(t, "the late attempt is in the ledger", func() bool {
		return number(t, pool, `SELECT count(*) FROM hooklatch.attempt WHERE number = 1 AND late`) == 1
	})
	if got := strings.Join(received.revisions(), " "); got != "1 1 2 3" {
		t.Errorf("the app got revisions %s, want 1 1 2 3", got)
	}
	if n := number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted' AND lease_until IS NULL`); n != 3 || applied() != 3 {
		t.Errorf("%d accepted, applied %d", n, applied())
	}
}

// P01, P04, P09: the real program kills itself at each step of a delivery's way, and is
// started again. What its sender has a 202 for is stored and reaches the app, at least
// once and in order.
func TestP04_KilledAtEveryStepWithAStrictLane(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "hooklatch")
	if out, err := exec.Command("go", "build", "-tags", "failpoint", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, point := range []string{"before_accept", "after_insert", "before_commit", "after_commit", "after_claim", "after_handler", "before_settle"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s, received := newSite(t), &app{}
			backend := httptest.NewServer(received)
			t.Cleanup(backend.Close)
			pool := inboxtest.New(t)
			database := pool.Config().ConnString()
			wholeAtEnd(t, database)
			config := s.ordered(backend.URL, "strict")
			var url atomic.Value
			run := func(env ...string) *process {
				p := startProgram(t, exe, append(env, "DATABASE_URL="+database), "serve", "-c", config)
				url.Store("http://" + p.entry(`"msg":"ready"`)["http"].(string) + "/in/billing")
				return p
			}
			first := run("HOOKLATCH_FAILPOINT=" + point)
			sent := make(chan bool)
			go func() { // a sender, who tries until it has its 202
				defer close(sent)
				client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				for n := range 3 {
					eventually(t, "it is taken", func() bool {
						a, err := try(client, s.request(url.Load().(string), fmt.Sprint("dlv_", n+1), revisionOf(n+1)))
						return err == nil && a.status == 202
					})
				}
			}()
			if code := first.wait(); code != -1 {
				t.Fatalf("void: it ended with %d and was not killed", code)
			}
			if _, err := pool.Exec(t.Context(), `UPDATE hooklatch.outbox SET lease_until = now() WHERE lease_until IS NOT NULL`); err != nil { // in place of waiting for it
				t.Fatal(err)
			}
			run()
			<-sent
			eventually(t, "every forward is accepted", func() bool {
				return number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted' AND lease_until IS NULL`) == 3
			})
			got := received.revisions()
			if !slices.IsSorted(got) || !slices.Equal(slices.Compact(slices.Clone(got)), []string{"1", "2", "3"}) || len(got) > 4 {
				t.Errorf("the app got revisions %v", got)
			}
		})
	}
}
