package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is what a health looks at.
type world struct {
	mu           sync.Mutex
	lost, misfit error
	clock        time.Duration
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) health() *health {
	return &health{
		log: slog.New(slog.DiscardHandler), offset: func(time.Duration) {},
		ready: func(context.Context) (time.Duration, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.clock, w.lost
		},
		schema: func(context.Context) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.misfit
		},
	}
}

func readyz(h *health) (status int, body string) {
	w := httptest.NewRecorder()
	h.readyz(w, httptest.NewRequest("GET", "/readyz?verbose", nil))
	return w.Code, w.Body.String()
}

func TestReadyzFollowsWhatItDependsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		h := w.health()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		expect := func(when string, status int, text string) {
			t.Helper()
			synctest.Wait()
			if got, body := readyz(h); got != status || !strings.Contains(body, text) {
				t.Errorf("%s: %d, want %d with %q:\n%s", when, got, status, text, body)
			}
		}
		expect("before the start", 503, "[-] process: starting")
		go h.Run(ctx)
		h.start()
		expect("started", 200, "ready")

		w.set(func() { w.lost = errors.New("connection refused") })
		pass(1900 * time.Millisecond)
		expect("away for less than 2 s", 200, "ready")
		pass(700 * time.Millisecond)
		expect("away for more than 2 s", 503, "[-] database: not writable for 2s: connection refused")
		w.set(func() { w.lost = nil })
		pass(time.Second)
		expect("back", 200, "ready")

		w.set(func() { w.clock = -31 * time.Second })
		pass(time.Second)
		expect("clocks apart", 503, "[-] clock: the database's clock is 31s behind this machine's")
		w.set(func() { w.clock = 29 * time.Second })
		pass(time.Second)
		expect("clocks near", 200, "ready")

		w.set(func() { w.misfit = errors.New("schema is version 9") })
		pass(11 * time.Second)
		expect("another schema", 503, "[-] schema: schema is version 9")
		w.set(func() { w.misfit = nil })
		pass(11 * time.Second)
		expect("the right schema", 200, "ready")

		h.filled()
		expect("disk full", 503, "[-] disk: ")
		h.committed()
		expect("room again", 200, "ready")
		h.filled()
		pass(61 * time.Second)
		expect("full a minute ago, and nobody has tried since", 200, "ready")

		h.stopping.Store(true)
		expect("stopping", 503, "[-] process: stopping")
	})
}

func TestReadyzDoesNotWaitForADatabaseThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := (&world{}).health()
		h.ready = func(ctx context.Context) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h.start()
		go h.Run(ctx)
		pass(2500 * time.Millisecond)
		before := time.Now()
		if status, body := readyz(h); status != 503 || !strings.Contains(body, "[-] database") {
			t.Errorf("%d %s", status, body)
		}
		if waited := time.Since(before); waited > 0 {
			t.Errorf("the probe waited %s", waited)
		}
	})
}

// pass lets the time of a synctest bubble go on.
func pass(d time.Duration) { <-time.After(d) }
