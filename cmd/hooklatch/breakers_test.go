package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// A breaker that has opened is seen everywhere, and a person's probe closes it long
// before its time.
func TestBreakerIsSeenAndProbed(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	fails.Store(true)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer app.Close()
	s := newSite(t)
	file := s.config(app.URL)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.write("hooklatch.yaml", strings.Replace(string(text), "retry: {base: 50ms}", "retry: {base: 50ms, cap: 200ms, max_attempts: 100}, rate: 1000/s, breaker: {failures: 5, open_for: 10m}", 1))
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	pool := openPoolOf(t, database)
	sv := startServe(t, s, database)
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", `{}`)); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	sv.entry(`"msg":"breaker"`, `"from":"closed","to":"open","failures":5`, `"error":"`)
	eventually(t, "it is recorded", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.destination WHERE breaker = 'open'`) == 1
	})
	if text := get(t, sv.admin+"/metrics").body; !strings.Contains(text, `hooklatch_breaker_state{destination="app",state="open"} 1`) ||
		!strings.Contains(text, `hooklatch_breaker_state{destination="app",state="closed"} 0`) {
		t.Errorf("the metrics do not say that it is open")
	}
	command(t, database, exitOK, []string{"trace", "dlv_1", "-c", file}, "breaker opened after 5 failures in a row, probe at 20", "; the breaker of app is open since 20", "next", "destinations probe app")
	command(t, database, exitOK, []string{"destinations", "list"}, "breaker open, probe at")
	command(t, database, exitOK, []string{"doctor", "-c", file}, "! breaker       that of app is open since 20", "answered 500")

	fails.Store(false)
	command(t, database, exitOK, []string{"destinations", "probe", "app", "-c", file}, "✓ app answers", "breaker   open since")
	eventually(t, "it is accepted", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted'`) == 1
	})
	eventually(t, "it is closed", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.destination WHERE breaker = 'closed'`) == 1
	})
	command(t, database, exitOK, []string{"destinations", "show", "app"}, "breaker opened after 5 failures", "breaker closed", "asked to be tried by")
	command(t, database, exitOK, []string{"doctor", "-c", file}, "✓ breaker       none is open")
	sv.end()
}

// fakeBreakers is a store of breakers that may be away.
type fakeBreakers struct {
	mu           sync.Mutex
	away         bool
	recorded     []string
	destinations []inbox.Destination
}

func (f *fakeBreakers) RecordBreaker(_ context.Context, destination string, c inbox.BreakerChange) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return errors.New("away")
	}
	f.recorded = append(f.recorded, fmt.Sprintf("%s %s to %s %s", destination, c.From, c.To, c.Error))
	return nil
}

func (f *fakeBreakers) Destinations(context.Context) ([]inbox.Destination, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.destinations), nil
}

// noQueue has nothing due.
type noQueue struct{ consumer.Queue }

func runBreakers(t *testing.T, do func(*breakers, *fakeBreakers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := consumer.New(noQueue{}, consumer.HandlerFunc(func(context.Context, consumer.Forward) error { return nil }), consumer.Config{Destination: "app"})
		if err != nil {
			t.Fatal(err)
		}
		store := &fakeBreakers{destinations: []inbox.Destination{{Name: "app", Breaker: inbox.Breaker{State: inbox.BreakerClosed}}, {Name: "other"}}}
		b := &breakers{store: store, log: slog.New(slog.DiscardHandler), metrics: newMetrics(), worker: "host:1", consumers: map[string]*consumer.Consumer{"app": c},
			changed: make(chan struct{}, 1), accepted: map[string]time.Time{}}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		synctest.Wait()
		do(b, store)
		stop()
		running.Wait()
	})
}

// What a breaker did while the database was away is written in its order when that is back.
func TestBreakersWaitForTheDatabase(t *testing.T) {
	runBreakers(t, func(b *breakers, store *fakeBreakers) {
		store.away = true
		b.change("app", consumer.BreakerChange{From: consumer.BreakerClosed, To: consumer.BreakerOpen, Err: "refused"})
		b.change("app", consumer.BreakerChange{From: consumer.BreakerOpen, To: consumer.BreakerHalfOpen, Err: "refused"})
		synctest.Wait()
		store.away = false
		b.change("app", consumer.BreakerChange{From: consumer.BreakerHalfOpen, To: consumer.BreakerClosed, Err: "refused"})
		synctest.Wait()
		if want := "app closed to open refused, app open to half_open , app half_open to closed "; strings.Join(store.recorded, ", ") != want {
			t.Errorf("recorded %q", store.recorded)
		}
	})
}

// A process that has ended leaves an open breaker behind. One that sees the destination
// work puts it right; one that knows nothing does not.
func TestBreakerOfAProcessThatHasEnded(t *testing.T) {
	runBreakers(t, func(b *breakers, store *fakeBreakers) {
		opened := time.Now()
		store.destinations[0].Breaker = inbox.Breaker{State: inbox.BreakerOpen, At: opened, Until: opened.Add(30 * time.Second)}
		accept := func() {
			b.attempt(&consumer.AttemptResult{Forward: inbox.Forward{Destination: "app"}, Settlement: inbox.Settlement{Outcome: inbox.OutcomeAccepted}})
		}
		accept() // before the other one's probe was due
		<-time.After(5 * time.Minute)
		synctest.Wait()
		if len(store.recorded) != 0 {
			t.Fatalf("recorded %q without having seen it work", store.recorded)
		}
		accept()
		<-time.After(2 * breakersLook)
		synctest.Wait()
		if len(store.recorded) == 0 || store.recorded[0] != "app open to closed another process finds that it works" {
			t.Errorf("recorded %q", store.recorded)
		}
	})
}
