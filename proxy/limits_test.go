package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// gate is an inbox that holds every delivery until it is opened.
type gate struct {
	recorder
	open    chan struct{}
	holding atomic.Int64
	most    atomic.Int64
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	g.accept = func(context.Context, inbox.Delivery) (inbox.Receipt, error) {
		g.most.Store(max(g.most.Load(), g.holding.Add(1)))
		<-g.open
		g.holding.Add(-1)
		return inbox.Receipt{}, nil
	}
	return g
}

func TestX39_NoSlotFree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  Config
		body string
	}{
		{"requests", Config{InFlight: 4}, "x"},
		{"bytes", Config{BodyBytes: 1 << 20}, strings.Repeat("x", 256<<10)},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newGate()
			g := start(t, setup{inbox: in, cfg: c.cfg})
			first := make(chan answer, 4)
			for range 4 {
				go func() { first <- g.send(signed("dlv_held", c.body)) }()
			}
			waitFor(t, "four requests in flight", func() bool { return in.holding.Load() == 4 })
			begin := time.Now()
			a := g.raw(signed("dlv_late", c.body).head(fmt.Sprintf("Content-Length: %d", len(c.body)), "Expect: 100-continue"))
			a.wants(t, 503, "overloaded")
			if took := time.Since(begin); took < slotWait || took > 5*time.Second {
				t.Errorf("answered after %s", took)
			}
			// One that is let in late is let in.
			last := make(chan answer, 1)
			go func() { last <- g.send(signed("dlv_last", c.body)) }()
			close(in.open)
			for range 4 {
				(<-first).wants(t, 202, "")
			}
			if a := <-last; a.status != 202 && a.status != 503 {
				t.Errorf("status %d", a.status)
			}
			g.send(signed("dlv_after", c.body)).wants(t, 202, "")
			if in.most.Load() > 5 {
				t.Errorf("%d requests in flight at once", in.most.Load())
			}
		})
	}
}

// Without the limit a burst costs its whole size; with it, the budget.
func TestP11_MemoryIsBounded(t *testing.T) {
	in := newGate()
	g := start(t, setup{inbox: in, cfg: Config{BodyBytes: 16 << 20}})
	body := strings.Repeat("x", 256<<10)
	wire := signed("dlv_p11", body).wire()
	var wg sync.WaitGroup
	var accepted, refused atomic.Int64
	for range 300 {
		wg.Go(func() {
			switch a := g.raw(wire); a.status {
			case 202:
				accepted.Add(1)
			case 503:
				refused.Add(1)
			default:
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	waitFor(t, "the end of the burst", func() bool { return refused.Load()+in.holding.Load() == 300 })
	// On a busy machine a few may have given way too late for another.
	if n := in.holding.Load(); n > 64 || n < 32 {
		t.Errorf("%d bodies in flight, want 64", n)
	}
	close(in.open)
	wg.Wait()
}

// A few hundred senders of a byte a second must not be an outage.
func TestCaseF8_SlowSendersGiveWay(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{InFlight: 8}})
	slots := func(n int) func() bool {
		return func() bool {
			g.proxy.budget.mu.Lock()
			defer g.proxy.budget.mu.Unlock()
			return g.proxy.budget.requests == n
		}
	}
	slow := make([]net.Conn, 8)
	for i := range slow {
		slow[i] = g.dial()
		io.WriteString(slow[i], signed("dlv_slow", strings.Repeat("x", 262144)).head("Content-Length: 262144")+"x")
		waitFor(t, "a slow sender behind those before", slots(7-i))
	}
	for i := range 20 {
		g.send(signed(fmt.Sprintf("dlv_%d", i), body1)).wants(t, 202, "")
		waitFor(t, "a slot that comes back after the answer", slots(1))
	}
	shed := 0
	for i := range 21 {
		if r := g.result(i); r.Code == "overloaded" {
			shed++
			if r.Disconnected {
				t.Error("the server stopped reading, and blames the sender")
			}
		}
	}
	if shed != 1 {
		t.Errorf("%d slow senders gave way to one request at a time", shed)
	}
	g.read(newReader(slow[0])).wants(t, 503, "overloaded") // the oldest
}

func TestBudget(t *testing.T) {
	t.Run("waiters are served in order", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &budget{requests: 3, bytes: 10}
			held := &reading{bytes: 8}
			if err := b.take(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			order := make(chan int, 2)
			big, small := &reading{bytes: 9}, &reading{bytes: 2}
			go func() { b.take(t.Context(), big); order <- 9; b.give(big) }()
			synctest.Wait()
			go func() { b.take(t.Context(), small); order <- 2; b.give(small) }()
			synctest.Wait()
			b.give(held)
			if first := <-order; first != 9 {
				t.Error("a small body overtook a large one")
			}
			<-order
			synctest.Wait()
			if b.requests != 3 || b.bytes != 10 {
				t.Errorf("%d requests and %d bytes came back", b.requests, b.bytes)
			}
		})
	})
	t.Run("one that gives up makes way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &budget{requests: 2, bytes: 10}
			held := &reading{bytes: 8}
			b.take(t.Context(), held)
			errs := make(chan error, 2)
			go func() { errs <- b.take(t.Context(), &reading{bytes: 9}) }()
			synctest.Wait()
			go func() {
				<-time.After(slotWait / 2)
				errs <- b.take(t.Context(), &reading{bytes: 2})
			}()
			begin := time.Now()
			if err := <-errs; !errors.Is(err, errOverloaded) || time.Since(begin) != slotWait {
				t.Errorf("%v after %s", err, time.Since(begin))
			}
			if err := <-errs; err != nil {
				t.Errorf("the next in the queue: %v", err)
			}
		})
	})
	t.Run("the sender goes", func(t *testing.T) {
		b := &budget{requests: 0, bytes: 10}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.take(ctx, &reading{bytes: 1}); err == nil || b.waiting.Len() != 0 {
			t.Errorf("%v, %d still wait", err, b.waiting.Len())
		}
	})
	t.Run("nothing is lost under load", func(t *testing.T) {
		b := &budget{requests: 5, bytes: 100}
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				r := &reading{bytes: int64(i % 60)}
				if b.take(t.Context(), r) == nil {
					runtime.Gosched()
					b.done(r)
					b.give(r)
				}
			})
		}
		wg.Wait()
		if b.requests != 5 || b.bytes != 100 || b.waiting.Len() != 0 || b.reading.next != &b.reading {
			t.Errorf("%d requests, %d bytes, %d waiting", b.requests, b.bytes, b.waiting.Len())
		}
	})
}

// The memory of one body must not show in the next.
func TestBuffersAreNotMixedUp(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			body := strings.Repeat(string(rune('a'+i%26)), i*997%200_000)
			m := signed(fmt.Sprintf("dlv_%d", i), body)
			wire := m.wire()
			if i%3 == 0 {
				wire = m.chunked(1 + i*31%5000)
			}
			g.raw(wire).wants(t, 202, "")
		})
	}
	wg.Wait()
	for _, d := range in.deliveries() {
		var i int
		fmt.Sscanf(d.DeliveryID, "dlv_%d", &i)
		if want := strings.Repeat(string(rune('a'+i%26)), i*997%200_000); string(d.Body) != want {
			t.Errorf("%s: %d bytes of another body", d.DeliveryID, len(d.Body))
		}
	}
}

// After an error the inbox may still look at the bytes.
func TestBufferIsNotReusedAfterAnError(t *testing.T) {
	var kept [][]byte
	in := &recorder{}
	in.accept = func(_ context.Context, d inbox.Delivery) (inbox.Receipt, error) {
		if d.DeliveryID == "dlv_fails" {
			kept = append(kept, d.Body)
			return inbox.Receipt{}, inbox.ErrOutcomeUnknown
		}
		return inbox.Receipt{}, nil
	}
	g := start(t, setup{inbox: in})
	for range 20 {
		g.send(signed("dlv_fails", "aaaa")).wants(t, 503, "store_outcome_unknown")
		g.send(signed("dlv_next", "bbbb")).wants(t, 202, "")
	}
	for _, b := range kept {
		if string(b) != "aaaa" {
			t.Fatalf("overwritten with %q", b)
		}
	}
}

func TestLargeBodyAboveThePool(t *testing.T) {
	t.Parallel()
	s := src1(t)
	s.MaxBody = 5 << 20
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
	body := strings.Repeat("0123456789abcdef", 5<<20/16)
	g.send(signed("dlv_large", body)).wants(t, 202, "")
	g.raw(signed("dlv_chunked", body).chunked(100_000)).wants(t, 202, "")
	for _, d := range in.deliveries() {
		if string(d.Body) != body {
			t.Errorf("%s: %d bytes", d.DeliveryID, len(d.Body))
		}
	}
	g.raw(signed("dlv_over", body+"x").chunked(100_000)).wants(t, 413, "body_too_large")
}

// net/http sees to it that a body is as long as it says; a server in between need not.
func TestBodyThatIsShorterThanItSays(t *testing.T) {
	in := &recorder{}
	p, err := New(in, Config{Sources: []Source{src1(t)}})
	if err != nil {
		t.Fatal(err)
	}
	m := signed("dlv_short", body1)
	r := httptest.NewRequest("POST", "/in/src1", strings.NewReader(body1))
	r.ContentLength = int64(len(body1)) + 1
	for _, h := range m.header {
		r.Header.Add(h[0], h[1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	if w.Code != 400 || !strings.Contains(w.Body.String(), `"body_malformed"`) || len(in.deliveries()) != 0 {
		t.Errorf("status %d, %s, %d stored", w.Code, w.Body, len(in.deliveries()))
	}
}

// A refusal can be looked for by what the sender calls the delivery; an id that
// breaks its grammar stays out of the log.
func TestRefusalKeepsItsDeliveryID(t *testing.T) {
	t.Parallel()
	g := start(t, setup{inbox: &recorder{}})
	g.send(signed("dlv_1", body1).set("X-Webhook-Signature", strings.Repeat("0", 64))).wants(t, 401, "signature_invalid")
	g.send(signed("dlv.2", body1)).wants(t, 400, "delivery_id_invalid")
	for n, want := range []string{"dlv_1", ""} {
		if got := g.result(n).DeliveryID; got != want {
			t.Errorf("request %d: delivery id %q, want %q", n, got, want)
		}
	}
}
