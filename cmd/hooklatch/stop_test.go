package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func TestP12_NoAcceptedRequestIsCutByAStop(t *testing.T) {
	t.Parallel()
	t.Run("HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		stopUnderLoad(t, newSite(t), `listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}`, func() *http.Transport {
			return &http.Transport{MaxConnsPerHost: 1}
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.certificate("a", "a.example.com")
		stopUnderLoad(t, s, tlsListen+"\ntls: {mode: files, certificates: [{cert: a.crt, key: a.key}]}", func() *http.Transport {
			return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		})
	})
}

// stopUnderLoad stops a server on which clients of their own transports send
// without a pause.
func stopUnderLoad(t *testing.T, s *site, top string, newTransport func() *http.Transport) {
	app, appURL := startApp(t)
	s.config(appURL, top, "stop: {lame_duck: 1s, shutdown: 10s, attempts: 10s, total: 20s}")
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	sv := startServe(t, s, database)

	var mu sync.Mutex
	statuses := map[int]int{}
	accepted := map[string]bool{}
	var untouched []string
	enough := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 12 {
		clients.Go(func() {
			transport := newTransport()
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			for n := 0; ; n++ {
				id := fmt.Sprintf("dlv_%d_%d", c, n)
				reused := false
				r := s.request(sv.url, id, `{"id":"`+id+`"}`)
				r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
					GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
				}))
				r.GetBody = nil // no hidden second send
				a, err := try(client, r)
				if err != nil && (strings.Contains(err.Error(), "graceful shutdown GOAWAY") || strings.Contains(err.Error(), "cannot rewind body")) {
					// HTTP/2's word for: not looked at, send it elsewhere. The second is the
					// client's, where it would do so by itself if it still had the body.
					mu.Lock()
					defer mu.Unlock()
					untouched = append(untouched, id)
					return
				}
				if err != nil {
					// The listener is closed: refused, or thrown out of its queue.
					if reused || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("%s, connection used before: %v: %v", id, reused, err)
					}
					return
				}
				mu.Lock()
				statuses[a.status]++
				if a.status == 202 {
					accepted[id] = true
				}
				if statuses[202] == 300 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	idle := newTransport()
	defer idle.CloseIdleConnections()
	if a := do(t, &http.Client{Transport: idle}, s.request(sv.url, "dlv_idle", "{}")); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
	sv.signal(syscall.SIGTERM)
	eventually(t, "not ready during the lame duck", func() bool {
		r, err := http.Get(sv.admin + "/readyz")
		if err != nil {
			t.Fatalf("the private listener is gone before the public one: %v", err)
		}
		r.Body.Close()
		return r.StatusCode == 503
	})
	// Still taken, but the next request is to come over another connection.
	duck := newTransport()
	defer duck.CloseIdleConnections()
	if resp, err := (&http.Client{Transport: duck}).Do(s.request(sv.url, "dlv_duck", "{}")); err != nil {
		t.Errorf("during the lame duck: %v", err)
	} else {
		resp.Body.Close()
		if resp.StatusCode != 202 || !resp.Close && resp.ProtoMajor == 1 {
			t.Errorf("during the lame duck: %d, connection to be closed: %v", resp.StatusCode, resp.Close)
		}
	}
	if code := sv.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	clients.Wait()
	if strings.Contains(sv.output(), "requests were cut") {
		t.Error("a connection without any request held up the stop")
	}
	for status := range statuses {
		if status != 202 && status != 503 {
			t.Errorf("%d answers of status %d", statuses[status], status)
		}
	}

	pool := openPoolOf(t, database)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox`); n < len(accepted) {
		t.Errorf("%d rows of %d accepted deliveries", n, len(accepted))
	}
	for id := range accepted {
		if count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE delivery_id = '`+id+`'`) != 1 {
			t.Errorf("%s was answered 202 and is not there", id)
		}
	}
	for _, id := range untouched {
		if count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE delivery_id = '`+id+`'`) != 0 {
			t.Errorf("%s is there, though the server said that it was not looked at", id)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE lease_until IS NOT NULL`); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.attempt WHERE class <> '2xx'`); n != 0 {
		t.Errorf("%d attempts were cut", n)
	}
	t.Logf("answers %v, %d handed on", statuses, len(app.requests()))
}

func TestP12_AnAttemptThatDoesNotEndLeavesNoLease(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	app.hold = make(chan struct{})
	defer close(app.hold)
	s := newSite(t)
	s.config(appURL, "stop: {lame_duck: 1ms, attempts: 300ms}")
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	sv := startServe(t, s, database)
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", "{}")); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	eventually(t, "the attempt has begun", func() bool { return len(app.requests()) == 1 })
	begun := time.Now()
	sv.end()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the stop took %s", took)
	}
	pool := openPoolOf(t, database)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'retry_wait' AND lease_until IS NULL`); n != 1 {
		t.Errorf("%d forwards that wait to be tried again, want 1", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.attempt WHERE class = 'unknown'`); n != 1 {
		t.Errorf("%d attempts of class unknown, want 1", n)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	app.hold = make(chan struct{})
	defer close(app.hold)
	s := newSite(t)
	s.config(appURL, "stop: {lame_duck: 20s}")
	sv := startServe(t, s, inboxtest.URL(t))
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", "{}")); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	sv.signal(syscall.SIGTERM)
	sv.line(`"msg":"stopping"`)
	<-time.After(sameWish) // from here on it is another wish
	sv.signal(syscall.SIGINT)
	if code := sv.wait(); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
}

// timeout signals a process and then its group, which once ended it at once.
func TestTwoSignalsOfOneWishStopInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.config("http://127.0.0.1:1", "stop: {lame_duck: 500ms}")
	sv := startServe(t, s, inboxtest.URL(t))
	sv.signal(syscall.SIGTERM)
	sv.signal(syscall.SIGINT)
	if code := sv.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
