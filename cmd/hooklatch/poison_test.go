package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// E10, X44: a delivery at which its process dies, each time. Attempts are counted when
// they begin, so that it ends as a dead letter, with one attempt as with several, and
// holds up nobody meanwhile.
func TestCaseE10_X44_DeliveryThatKillsItsProcess(t *testing.T) {
	for _, most := range []int{1, 3} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			s, pool := newSite(t), inboxtest.New(t)
			database := pool.Config().ConnString()
			wholeAtEnd(t, database)
			var victim atomic.Pointer[process]
			var good atomic.Int32
			backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if r.Header.Get("Hooklatch-Delivery-Id") != "deadly" {
					good.Add(1)
					return
				}
				eventually(t, "what is claimed beside it is settled", func() bool {
					return number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted'`) == 3
				})
				kill(victim.Load())
			}))
			t.Cleanup(backend.Close)
			config := s.config(backend.URL)
			text, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}
			s.write("hooklatch.yaml", strings.Replace(string(text), "base: 50ms", fmt.Sprintf("base: 50ms, max_attempts: %d", most), 1))
			_, url := s.serve(config, database, "--role", "receive")
			for _, id := range []string{"deadly", "good_1", "good_2", "good_3"} {
				if a := post(t, s, url, id, "{}"); a.status != 202 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			for n := range most {
				p := start(t, []string{"DATABASE_URL=" + database}, "serve", "-c", config, "--role", "forward")
				victim.Store(p)
				if code := p.wait(); code != -1 {
					t.Fatalf("void: process %d ended with %d and was not killed", n, code)
				}
				if tag, err := pool.Exec(t.Context(), `UPDATE hooklatch.outbox SET lease_until = now() WHERE lease_until > now()`); err != nil || tag.RowsAffected() != 1 { // in place of waiting for it
					t.Fatalf("process %d left %d leases, %v", n, tag.RowsAffected(), err)
				}
			}
			s.serve(config, database, "--role", "forward")
			eventually(t, "it is a dead letter", func() bool {
				return number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'blocked' AND blocked_reason = 'attempts_exhausted' AND lease_until IS NULL`) == 1
			})
			if n := number(t, pool, `SELECT count(*) FROM hooklatch.attempt WHERE class = 'unknown'`); n != most {
				t.Errorf("%d attempts of unknown end in the ledger, want %d", n, most)
			}
			if n := good.Load(); n != 3 {
				t.Errorf("the app got the others %d times, want 3", n)
			}
		})
	}
}
