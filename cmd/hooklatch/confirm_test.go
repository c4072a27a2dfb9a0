package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// confirmed is the other side of a confirmation: a TLS server that every name leads
// to. Nothing of what may be called is widened for it.
type confirmed struct {
	server *httptest.Server
	mu     sync.Mutex
	calls  []string
}

func newConfirmed(t *testing.T, answer http.HandlerFunc) (*confirmed, *confirmer, *bytes.Buffer) {
	t.Helper()
	s := &confirmed{}
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, r.Method+" "+r.Host+r.URL.RequestURI())
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.server.Close)
	log := &bytes.Buffer{}
	c := newConfirmer(slog.New(slog.NewTextHandler(log, nil)))
	transport := c.client.Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.server.Listener.Addr().String())
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: s.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"}
	return s, c, log
}

// run runs c until all that is queued has been called.
func (s *confirmed) run(t *testing.T, c *confirmer) []string {
	t.Helper()
	for len(c.queue) > 0 {
		c.confirm(t.Context(), <-c.queue)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

const subscribe = "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&Token=t0ken"

func TestConfirmCallsOnce(t *testing.T) {
	s, c, log := newConfirmed(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write(bytes.Repeat([]byte("x"), 1<<20)) // of which little is read
	})
	for range 3 {
		if err := c.take("sns", subscribe); err != nil {
			t.Fatal(err)
		}
	}
	if calls := s.run(t, c); len(calls) != 1 || calls[0] != "GET sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&Token=t0ken" {
		t.Errorf("called %q", calls)
	}
	if err := c.take("sns", subscribe); err != nil || len(s.run(t, c)) != 1 {
		t.Errorf("called again: %v", err)
	}
	if err := c.take("other", subscribe); err != nil || len(s.run(t, c)) != 2 {
		t.Errorf("another source's is not called: %v", err)
	}
	if text := log.String(); !strings.Contains(text, "confirmed") || !strings.Contains(text, "host=sns.us-west-2.amazonaws.com") || strings.Contains(text, "t0ken") {
		t.Errorf("log: %s", text)
	}
}

func TestConfirmFollowsNoRedirect(t *testing.T) {
	s, c, log := newConfirmed(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://169.254.169.254/latest", http.StatusFound)
	})
	c.take("sns", subscribe)
	if calls := s.run(t, c); len(calls) != 1 {
		t.Errorf("called %q", calls)
	}
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "status=302") {
		t.Errorf("log: %s", text)
	}
}

func TestConfirmChecksTheCertificate(t *testing.T) {
	s, c, log := newConfirmed(t, func(http.ResponseWriter, *http.Request) {})
	c.client.Transport.(*http.Transport).TLSClientConfig.ServerName = "" // that of the URL, as in production
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	c.take("sns", subscribe)
	if calls := s.run(t, c); len(calls) != 0 {
		t.Errorf("called %q", calls)
	}
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "certificate") || strings.Contains(text, "t0ken") {
		t.Errorf("log: %s", text)
	}
}

// The name is the sender's; where a resolver leads is another matter.
func TestConfirmConnectsToNothingLocal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := newConfirmer(slog.New(slog.DiscardHandler)).client.Transport.(*http.Transport).DialContext
	if newConfirmer(slog.New(slog.DiscardHandler)).client.Transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy of the environment would connect for us")
	}
	if c, err := dial(t.Context(), "tcp", l.Addr().String()); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("connected to %v: %v", c, err)
	}
	for address, want := range map[string]bool{
		"169.254.169.254:443": false, "[::1]:443": false, "[::ffff:127.0.0.1]:443": false, "[fe80::1%eth0]:443": false,
		"0.0.0.0:443": false, "224.0.0.1:443": false, "10.0.0.7:443": true, "203.0.113.9:443": true, "[2001:db8::1]:443": true,
	} {
		if err := refuseLocal("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// answering is a transport with one answer.
type answering struct{ body io.Reader }

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(a.body), Request: r}, nil
}

func TestConfirmReadsLittle(t *testing.T) {
	c := newConfirmer(slog.New(slog.DiscardHandler))
	body := strings.NewReader(strings.Repeat("x", 1<<20))
	c.client.Transport = answering{body}
	if status, err := c.call(t.Context(), subscribe); status != 200 || err != nil {
		t.Errorf("%d %v", status, err)
	}
	if read := 1<<20 - body.Len(); read != confirmRead {
		t.Errorf("%d bytes were read, want %d", read, confirmRead)
	}
	s, c, log := newConfirmed(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 64<<10))
	})
	c.take("sns", subscribe)
	if s.run(t, c); !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("a header of 64 KiB was read: %s", log)
	}
}

func TestConfirmWaitsFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		c := newConfirmer(slog.New(slog.NewTextHandler(log, nil)))
		end := make(chan struct{})
		c.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			<-end
			return nil, net.ErrClosed
		}
		begun := time.Now()
		c.confirm(t.Context(), confirmation{"sns", subscribe})
		if took := time.Since(begun); took != confirmTimeout {
			t.Errorf("gave up after %s", took)
		}
		close(end)
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "level=WARN") || strings.Contains(text, "t0ken") {
			t.Errorf("log: %s", text)
		}
	})
}

func TestConfirmIsBounded(t *testing.T) {
	c := newConfirmer(slog.New(slog.DiscardHandler))
	for i := range confirmWaiting {
		if err := c.take("sns", fmt.Sprint(subscribe, i)); err != nil {
			t.Fatal(err)
		}
	}
	full := fmt.Sprint(subscribe, confirmWaiting)
	if err := c.take("sns", full); err == nil {
		t.Error("one more was taken")
	}
	<-c.queue
	if err := c.take("sns", full); err != nil || len(c.queue) != confirmWaiting {
		t.Errorf("what was turned away counts as taken: %v, %d wait", err, len(c.queue))
	}
	for i := range 3 * confirmRemember {
		<-c.queue
		c.take("sns", fmt.Sprint(subscribe, "x", i))
	}
	if len(c.seen) > confirmRemember {
		t.Errorf("%d are remembered", len(c.seen))
	}
}

func TestConfirmEndsWithTheServer(t *testing.T) {
	log := &bytes.Buffer{}
	c := newConfirmer(slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.take("sns", subscribe)
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "source=sns") {
		t.Errorf("what was not called is not in the log: %s", log)
	}
}

func TestConfirmByHandIsLogged(t *testing.T) {
	log := &bytes.Buffer{}
	c, err := parseConfig("f", []byte(asking("scheme: aws-sns", "params: {topic_arn: a}", "handshake: {confirm: manual}")), configNow)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{cfg: c, log: slog.New(slog.NewTextHandler(log, nil)), confirmer: newConfirmer(slog.New(slog.DiscardHandler))}
	if err := s.confirm("billing")(t.Context(), subscribe); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), subscribe) || len(s.confirmer.queue) != 0 {
		t.Errorf("%d wait to be called; log: %s", len(s.confirmer.queue), log)
	}
}
