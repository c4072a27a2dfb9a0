package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// explained collects what OnExplain is told.
type explained struct {
	mu  sync.Mutex
	all []Explained
}

func (c *explained) add(_ context.Context, e Explained) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, e)
}

func (c *explained) list() []Explained {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Explained(nil), c.all...)
}

// explaining is a proxy without a server, whose Run is ended by the test's end.
type explaining struct {
	*Proxy
	explained
	results []Result
	ended   chan struct{} // closed when Run has returned
	stop    context.CancelFunc
}

func startExplaining(t *testing.T, cfg Config, causes func(*evidence) ([]verify.Cause, error)) *explaining {
	t.Helper()
	g := &explaining{ended: make(chan struct{})}
	cfg.OnExplain, cfg.OnResult = g.add, collect(&g.results)
	if cfg.Sources == nil {
		cfg.Sources = []Source{src1(t)}
	}
	p, err := New(&recorder{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if g.Proxy = p; causes != nil {
		p.causes = causes
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	go func() {
		defer close(g.ended)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-g.ended })
	for !g.runs() {
		runtime.Gosched()
	}
	return g
}

func (g *explaining) runs() bool {
	g.explainer.mu.Lock()
	defer g.explainer.mu.Unlock()
	return g.explainer.open
}

// post answers one message without a server between.
func (g *explaining) post(m *message) int {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, g.request(m))
	return w.Code
}

func (g *explaining) request(m *message) *http.Request {
	r := httptest.NewRequest(m.method, m.target, bytes.NewReader(m.body))
	r.Host = "hooks.example.com"
	for _, h := range m.header {
		r.Header[http.CanonicalHeaderKey(h[0])] = append(r.Header[http.CanonicalHeaderKey(h[0])], h[1])
	}
	return r
}

func wrong(id string) *message { return signedAt(t0, "k1", secretK2, id, body1) }

var causesX = []verify.Cause{{Code: "x"}}

func constantX(*evidence) ([]verify.Cause, error) { return causesX, nil }

func TestFailureOfAMACIsExplainedAfterItsAnswer(t *testing.T) {
	t.Parallel()
	two := src1(t)
	two.Name, two.Path, two.Verifier = "src2", "/in/src2", verifier(t, "zhisou-v1", key(t, "k1", secretK2))
	second := two
	second.Verifier, second.Second = verifier(t, "zhisou-v1", key(t, "k9", secretK1+"9")), verifier(t, "timestamped-sha256", key(t, "k2", secretK2))
	for _, c := range []struct {
		name   string
		has    Source
		tenant string // of the source that has the key
		cause  string
	}{
		{"key of another source", two, "t1", "key_other_source"},
		{"key of another source's second scheme", second, "t1", "key_other_source"},
		{"key of another tenant", two, "t2", "no_match"},
	} {
		two := c.has
		two.Tenant = c.tenant
		g := startExplaining(t, Config{Sources: []Source{src1(t), two}}, nil)
		m := wrong("dlv_1")
		if status := g.post(m); status != 401 {
			t.Fatalf("status %d", status)
		}
		waitFor(t, "the explanation", func() bool { return len(g.list()) == 1 })
		e := g.list()[0]
		if len(e.Causes) == 0 || e.Causes[0].Code != c.cause || e.Dropped || e.Fault != nil {
			t.Errorf("%s: %+v", c.name, e)
		}
		if want := g.results[0]; e.Result != want || !want.Explaining || want.Unexplained || want.Reason != "signature_mismatch" ||
			want.KeyID != "k1" || want.DeliveryID != "dlv_1" || want.BodyBytes != int64(len(body1)) {
			t.Errorf("%s: result %+v, of the explanation %+v", c.name, want, e.Result)
		}
	}
}

// A key that another source has enrolled since the start is known too.
func TestEnrolledKeysOfOtherSourcesAreTried(t *testing.T) {
	t.Parallel()
	two := src1(t)
	two.Name, two.Path, two.Verifier = "src2", "/in/src2", verifier(t, "zhisou-v1", key(t, "k1", secretK1+"x"))
	g := startExplaining(t, Config{Sources: []Source{src1(t), two}}, nil)
	s, err := g.routes.find("hooks.example.com", two.Path)
	if err != nil {
		t.Fatal(err)
	}
	s.current.Store(verifier(t, "zhisou-v1", key(t, "k1", secretK2)))
	g.post(wrong("dlv_1"))
	waitFor(t, "the explanation", func() bool { return len(g.list()) == 1 })
	if e := g.list()[0]; len(e.Causes) == 0 || e.Causes[0].Code != "key_other_source" {
		t.Errorf("%+v", e)
	}
}

// What is wrong with a request is what was wrong with it when it came.
func TestRequestIsExplainedByTheClockOfItsReceipt(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(t0)
	s := src1(t)
	s.Verifier.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	g := startExplaining(t, Config{Sources: []Source{s}}, func(e *evidence) ([]verify.Cause, error) {
		now.Add(1000)
		return e.causes()
	})
	g.post(wrong("dlv_1"))
	waitFor(t, "the explanation", func() bool { return len(g.list()) == 1 })
	for _, c := range g.list()[0].Causes {
		if c.Code == "ts_window" {
			t.Errorf("it has become late since: %+v", c)
		}
	}
}

// slowly gives nothing for a while.
type slowly struct {
	io.Reader
	wait time.Duration
}

func (s *slowly) Read(b []byte) (int, error) {
	<-time.After(s.wait)
	s.wait = 0
	return s.Reader.Read(b)
}

// What counts is how long a request waits to be explained, not how long it took to come.
func TestRequestThatCameSlowlyIsExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := startExplaining(t, Config{}, constantX)
		r := g.request(wrong("dlv_1"))
		r.Body = io.NopCloser(&slowly{r.Body, 2 * explainEvery})
		g.ServeHTTP(httptest.NewRecorder(), r)
		synctest.Wait()
		if all := g.list(); len(all) != 1 || all[0].Dropped {
			t.Errorf("%+v", all)
		}
		g.stop()
	})
}

func TestOnlyFailuresOfAMACAreExplained(t *testing.T) {
	t.Parallel()
	now := time.Unix(t0, 0)
	old, later := key(t, "old", secretK2), key(t, "later", secretK2+"x")
	old.NotAfter, later.NotBefore = now, now.Add(time.Second)
	s := src1(t)
	s.Verifier = verifier(t, "zhisou-v1", key(t, "k1", secretK1), old, later)
	s.MaxBody = 2 << 20
	big := strings.Repeat("x", explainBody)
	inBody := preset(t, "mailgun", "")
	inBody.Path = "/in/mailgun"
	misspelled := &message{method: "POST", target: inBody.Path, body: []byte(`{"signature":{"timestamp":"1700000000","token":"t","signature":"abc"}}`)}
	for _, c := range []struct {
		name                    string
		m                       *message
		explaining, unexplained bool
	}{
		{"mismatch", wrong("dlv_1"), true, false},
		{"unknown key", signedAt(t0, "nobody", secretK1, "dlv_1", body1), true, false},
		{"expired key", signedAt(t0, "old", secretK2, "dlv_1", body1), true, false},
		{"key not yet valid", signedAt(t0, "later", secretK2+"x", "dlv_1", body1), true, false},
		{"1 MiB", signedAt(t0, "k1", secretK2, "dlv_1", big), true, false},
		{"a byte more", signedAt(t0, "k1", secretK2, "dlv_1", big+"x"), false, true},
		{"accepted", signed("dlv_1", body1), false, false},
		{"no signature", signed("dlv_1", body1).set("X-Webhook-Signature"), false, false},
		{"signature of the wrong spelling", signed("dlv_1", body1).set("X-Webhook-Signature", "abc"), false, false},
		{"signature of the wrong spelling in the body", misspelled, false, false},
		{"too old", signedAt(t0-1000, "k1", secretK1, "dlv_1", body1), false, false},
		{"too large", signedAt(t0, "k1", secretK2, "dlv_1", big+big+"x"), false, false},
		{"no source", wrong("dlv_1").to("POST", "/in/nobody"), false, false},
	} {
		g := startExplaining(t, Config{Sources: []Source{s, inBody}}, constantX)
		g.post(c.m)
		if r := g.results[0]; r.Explaining != c.explaining || r.Unexplained != c.unexplained {
			t.Errorf("%s: explaining %v, unexplained %v", c.name, r.Explaining, r.Unexplained)
		}
		g.stop()
		<-g.ended
		if n := len(g.list()); (n == 1) != c.explaining {
			t.Errorf("%s: told of %d explanations", c.name, n)
		}
		if got := g.budget.free(); got != defaultBodyBytes {
			t.Errorf("%s: %d bytes are still charged", c.name, defaultBodyBytes-got)
		}
	}
}

func TestNothingIsKeptWhereNobodyListens(t *testing.T) {
	t.Parallel()
	var results []Result
	p, err := New(&recorder{}, Config{Sources: []Source{src1(t)}, OnResult: collect(&results)})
	if err != nil {
		t.Fatal(err)
	}
	g := &explaining{Proxy: p}
	g.post(wrong("dlv_1"))
	if r := results[0]; r.Explaining || r.Unexplained || p.budget.free() != defaultBodyBytes {
		t.Errorf("%+v, %d bytes free", r, p.budget.free())
	}
}

func TestASourceIsExplainedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		two := src1(t)
		two.Name, two.Path = "src2", "/in/src2"
		g := startExplaining(t, Config{Sources: []Source{src1(t), two}}, constantX)
		start := time.Now()
		for time.Since(start) < 10*time.Second {
			g.post(wrong("dlv_1"))
			g.post(wrong("dlv_2").to("POST", "/in/src2"))
			<-time.After(90 * time.Millisecond)
		}
		synctest.Wait()
		explained, not := map[string]int{}, 0
		for _, r := range g.results {
			if r.Explaining {
				explained[r.Source]++
			}
			if r.Unexplained {
				not++
			}
		}
		if explained["src1"] != 10 || explained["src2"] != 10 || not != len(g.results)-20 {
			t.Errorf("in 10 seconds: %v explained, %d of %d not", explained, not, len(g.results))
		}
		if n := len(g.list()); n != 20 {
			t.Errorf("told of %d", n)
		}
		g.stop()
	})
}

// While the worker is busy: nothing waits longer than a second, little waits at all,
// and what is dropped is told too.
func TestWhatWaitsTooLongIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sources []Source
		for i := range explainWaiting + 4 {
			s := src1(t)
			s.Name, s.Path = fmt.Sprint("src", i), fmt.Sprint("/in/src", i)
			sources = append(sources, s)
		}
		var busy atomic.Int64
		g := startExplaining(t, Config{Sources: sources}, func(*evidence) ([]verify.Cause, error) {
			busy.Add(1)
			<-time.After(600 * time.Millisecond)
			return causesX, nil
		})
		for _, s := range sources {
			if status := g.post(wrong("dlv_1").to("POST", s.Path)); status != 401 {
				t.Errorf("status %d", status)
			}
			synctest.Wait() // so that the worker has the first one
		}
		// One is in work, eight wait, and three found no room.
		if n := len(g.list()); n != 3 || busy.Load() != 1 {
			t.Errorf("%d dropped at once, %d in work", n, busy.Load())
		}
		if kept := int64(defaultBodyBytes) - g.budget.free(); kept != (explainWaiting+1)*int64(len(body1)) {
			t.Errorf("%d bytes are charged for 9 bodies of %d", kept, len(body1))
		}
		<-time.After(5 * time.Second)
		done, dropped := 0, 0
		for _, e := range g.list() {
			if e.Dropped {
				dropped++
			} else {
				done++
			}
		}
		// The second began after 600 ms; the others would have waited for 1.2 s.
		if done != 2 || dropped != 10 || g.budget.free() != defaultBodyBytes {
			t.Errorf("%d explained, %d dropped, %d bytes free", done, dropped, g.budget.free())
		}
		g.stop()
	})
}

func TestRequestsThatWaitAtTheStopAreDroppedAndTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		two := src1(t)
		two.Name, two.Path = "src2", "/in/src2"
		hold := make(chan struct{})
		g := startExplaining(t, Config{Sources: []Source{src1(t), two}}, func(*evidence) ([]verify.Cause, error) {
			<-hold
			return causesX, nil
		})
		synctest.Wait()
		g.post(wrong("dlv_1"))
		synctest.Wait()
		g.post(wrong("dlv_2").to("POST", "/in/src2"))
		g.stop()
		close(hold)
		<-g.ended
		<-time.After(2 * time.Second)
		g.post(wrong("dlv_3")) // nobody takes it any more
		all := g.list()
		if len(all) != 3 || all[0].Dropped || !all[1].Dropped || !all[2].Dropped || g.budget.free() != defaultBodyBytes {
			t.Errorf("%d bytes free, told of %+v", g.budget.free(), all)
		}
	})
}

// Bytes that an explanation keeps are not there for others.
func TestKeptBytesStayInTheBudget(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	body := strings.Repeat("x", 300<<10)
	s := src1(t)
	s.MaxBody = 512 << 10
	g := startExplaining(t, Config{Sources: []Source{s}, BodyBytes: 512 << 10}, func(*evidence) ([]verify.Cause, error) {
		<-hold
		return nil, nil
	})
	g.post(signedAt(t0, "k1", secretK2, "dlv_1", body))
	if status := g.post(signed("dlv_2", body)); status != 503 {
		t.Errorf("status %d while the bytes are kept, want 503", status)
	}
	close(hold)
	waitFor(t, "the explanation", func() bool { return len(g.list()) == 1 })
	if status := g.post(signed("dlv_2", body)); status != 202 {
		t.Errorf("status %d, want 202", status)
	}
}

// The bytes that are looked into are those of the refused request, also when the
// memory of bodies serves the next ones.
func TestKeptBodyIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var seen []byte
	g := startExplaining(t, Config{}, func(e *evidence) ([]verify.Cause, error) {
		<-hold
		seen = bytes.Clone(e.request.Body)
		return nil, nil
	})
	g.post(wrong("dlv_1"))
	for i := range 20 {
		g.post(signed(fmt.Sprint("dlv_", i), strings.Repeat("y", len(body1))))
	}
	close(hold)
	waitFor(t, "the explanation", func() bool { return len(g.list()) == 1 })
	if string(seen) != body1 {
		t.Errorf("the body has become %.20q", seen)
	}
}

func TestPanicOfAnExplanationEndsNothing(t *testing.T) {
	t.Parallel()
	g := startExplaining(t, Config{}, nil)
	g.Proxy.causes = func(e *evidence) ([]verify.Cause, error) {
		e.source = nil
		return e.causes()
	}
	if status := g.post(wrong("dlv_1")); status != 401 {
		t.Fatalf("status %d", status)
	}
	waitFor(t, "the explanation", func() bool { return len(g.list()) == 1 })
	if e := g.list()[0]; e.Fault == nil || len(e.Causes) > 0 || g.budget.free() != defaultBodyBytes {
		t.Errorf("%+v, %d bytes free", e, g.budget.free())
	}
	if status := g.post(signed("dlv_2", body1)); status != 202 {
		t.Errorf("status %d", status)
	}
}

func TestRunRunsOnce(t *testing.T) {
	t.Parallel()
	g := startExplaining(t, Config{}, nil)
	if err := g.Run(t.Context()); err == nil {
		t.Error("two workers")
	}
}

// free is how many bytes are to be had.
func (b *budget) free() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}
