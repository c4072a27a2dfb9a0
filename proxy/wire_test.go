package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNetHTTP is the golden table of what net/http hands to the handler and what
// the proxy makes of it. A new Go version that changes a line fails here.
func TestNetHTTP(t *testing.T) {
	t.Parallel()
	m := signed("dlv_wire", "abc")
	length := func(m *message) string { return m.head("Content-Length: 3") + "abc" }
	lines := func(old, new string) string { return strings.Replace(length(m), old, new, 1) }
	const ts = "X-Webhook-Timestamp: 1760000000\r\n"
	for _, c := range []struct {
		name, wire string
		status     int    // 0: closed without an answer
		code       string // empty: written by net/http, or a success
		handled    int    // requests that reach the handler
	}{
		{"right", length(m), 202, "", 1},
		{"two equal Content-Length", lines("Content-Length: 3\r\n", "Content-Length: 3\r\nContent-Length: 3\r\n"), 202, "", 1},
		{"two different Content-Length", lines("Content-Length: 3\r\n", "Content-Length: 3\r\nContent-Length: 4\r\n"), 400, "", 0},
		{"Content-Length with a plus", lines("Content-Length: 3", "Content-Length: +3"), 400, "", 0},
		{"Content-Length below zero", lines("Content-Length: 3", "Content-Length: -1"), 400, "", 0},
		{"bare LF as line end", lines(ts, "X-Webhook-Timestamp: 1760000000\n"), 202, "", 1},
		{"folded header", lines(ts, "X-Webhook-Timestamp: 17600\r\n 00000\r\n"), 400, "timestamp_malformed", 1},
		{"bare CR in a header", lines(ts, ts+"X-A: a\rb\r\n"), 400, "", 0},
		{"NUL in a header", lines(ts, ts+"X-A: a\x00b\r\n"), 400, "", 0},
		{"space before the colon", lines(ts, ts+"X-A : b\r\n"), 400, "", 0},
		{"UTF-8 in a header", lines(ts, ts+"X-A: \xc3\xa9\r\n"), 202, "", 1},
		{"no Host", lines("Host: hooks.example.com\r\n", ""), 400, "", 0},
		{"two Hosts", lines("Host: hooks.example.com\r\n", "Host: a\r\nHost: b\r\n"), 400, "", 0},
		{"HTTP/1.0 without Host", strings.Replace(lines("Host: hooks.example.com\r\n", ""), "HTTP/1.1", "HTTP/1.0", 1), 202, "", 1},
		{"gzip, chunked", m.head("Transfer-Encoding: gzip, chunked") + "3\r\nabc\r\n0\r\n\r\n", 501, "", 0},
		{"chunked twice", m.head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "3\r\nabc\r\n0\r\n\r\n", 501, "", 0},
		{"another expectation", m.head("Content-Length: 3", "Expect: foo") + "abc", 417, "", 0},
		{"dot segments", length(m.to("POST", "/in/../in/src1")), 404, "source_unknown", 1},
		{"encoded dot segments", length(m.to("POST", "/in/%2e%2e/in/src1")), 404, "source_unknown", 1},
		{"double slash", length(m.to("POST", "//in/src1")), 404, "source_unknown", 1},
		{"asterisk", length(m.to("POST", "*")), 404, "source_unknown", 1},
		{"absolute form", length(m.to("POST", "http://other.example.com/in/src1")), 202, "", 1},
		{"path with a broken escape", length(m.to("POST", "/in/%zz")), 400, "", 0},
		{"HTTP/2 preface in clear", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, "source_unknown", 1},
		{"another version", strings.Replace(length(m), "HTTP/1.1", "HTTP/3.0", 1), 505, "", 0},
		{"header of 21 KiB", lines(ts, ts+"X-A: "+strings.Repeat("a", 21<<10)+"\r\n"), 431, "", 0},
		{"target of 32 KiB", length(m.to("POST", "/in/src1?"+strings.Repeat("a", 32<<10))), 431, "", 0},
		{"header of 15 KiB", lines(ts, ts+"X-A: "+strings.Repeat("a", 15<<10)+"\r\n"), 202, "", 1},
		{"TLS to a plain port", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", 400, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := start(t, setup{})
			answers := g.all(c.wire)
			if c.status == 0 {
				if len(answers) != 0 {
					t.Fatalf("answers %v", answers)
				}
				return
			}
			if len(answers) != 1 {
				t.Fatalf("%d answers", len(answers))
			}
			answers[0].wants(t, c.status, c.code)
			g.mu.Lock()
			defer g.mu.Unlock()
			if len(g.results) != c.handled {
				t.Errorf("%d requests reached the handler, want %d", len(g.results), c.handled)
			}
		})
	}
}

func TestX21_SmuggledRequest(t *testing.T) {
	t.Parallel()
	in := &recorder{}
	g := start(t, setup{inbox: in})
	smuggled := signed("dlv_smuggled", "abc").wire()
	for _, framing := range [][]string{{"Content-Length: 2", "Transfer-Encoding: chunked"}, {"Transfer-Encoding: chunked"}} {
		answers := g.all(signed("dlv_outer", "abc").head(framing...) + "3\r\nabc\r\n0\r\n\r\n" + smuggled)
		if len(answers) != 1 || answers[0].status != 202 || !answers[0].close {
			t.Errorf("%v: answers %+v", framing, answers)
		}
	}
	for _, d := range in.deliveries() {
		if d.DeliveryID != "dlv_outer" {
			t.Errorf("stored %s", d.DeliveryID)
		}
	}
	// Without chunks, pipelined requests are both honest.
	if answers := g.all(signed("dlv_a", "abc").wire() + signed("dlv_b", "abc").wire()); len(answers) != 2 {
		t.Errorf("%d answers to two requests", len(answers))
	}
}

func TestRefusedBodyClosesTheConnection(t *testing.T) {
	g := start(t, setup{})
	bad := signed("dlv_bad", "abc").set("X-Webhook-Signature")
	answers := g.all(bad.wire() + signed("dlv_next", "abc").wire())
	if len(answers) != 1 || !answers[0].close {
		t.Errorf("answers %+v", answers)
	}
	// Where the body was read, or there is none, the connection serves on.
	wrong := signed("dlv_bad", "abc").set("X-Webhook-Signature", strings.Repeat("0", 64))
	if answers := g.all(wrong.wire() + bad.head() + signed("dlv_next", "abc").wire()); len(answers) != 3 {
		t.Errorf("%d answers, want 3", len(answers))
	}
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	g := start(t, setup{})
	converse := func(m *message, length int) (statuses []int) {
		c := g.dial()
		defer c.Close()
		io.WriteString(c, m.head(fmt.Sprintf("Content-Length: %d", length), "Expect: 100-continue"))
		r := bufio.NewReader(c)
		for {
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if statuses = append(statuses, res.StatusCode); res.StatusCode != 100 {
				return statuses
			}
			c.Write(m.body)
		}
	}
	m := signed("dlv_expect", "abc")
	for _, c := range []struct {
		name   string
		m      *message
		length int
		want   []int
	}{
		{"too large", m, 20 << 20, []int{413}},
		{"no signature", m.set("X-Webhook-Signature"), 3, []int{401}},
		{"old timestamp", signedAt(t0-301, "k1", secretK1, "dlv_old", "abc"), 3, []int{401}},
		{"good", m, 3, []int{100, 202}},
	} {
		if got := converse(c.m, c.length); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: answers %v, want %v", c.name, got, c.want)
		}
	}
}

func TestX23_StalledHeader(t *testing.T) {
	t.Parallel()
	g := start(t, setup{tune: func(s *http.Server) { s.ReadHeaderTimeout = 50 * time.Millisecond }})
	c := g.dial()
	io.WriteString(c, "POST /in/src1 HTTP/1.1\r\nHost: hooks.example.com\r\n")
	rest, err := io.ReadAll(c)
	if err != nil || strings.Contains(string(rest), "202") {
		t.Errorf("%q %v", rest, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.results) != 0 {
		t.Error("half a header reached the handler")
	}
	if s := NewServer(nil); s.ReadHeaderTimeout != 5*time.Second || s.IdleTimeout != time.Minute || s.MaxHeaderBytes != 16<<10 {
		t.Errorf("timeouts of the server: %+v", s)
	}
}

// Clocks of a bubble are not real, so slow senders cost the test no time.
func TestX23_SlowBody(t *testing.T) {
	for _, c := range []struct {
		name     string
		length   int
		step     int // bytes a time
		every    time.Duration
		from, to time.Duration // when the answer comes
		status   int
	}{
		{"stalled", 3, 0, time.Second, 2 * time.Second, 3 * time.Second, 408},
		{"a byte a second", 262144, 1, time.Second, 2 * time.Second, 4 * time.Second, 408},
		{"just fast enough", 100_000, 20_000, time.Second, 4 * time.Second, 6 * time.Second, 202},
		{"just too slow", 262_144, 8_000, time.Second, 2 * time.Second, 6 * time.Second, 408},
		{"never done", 262_144, 17_000, time.Second, 10 * time.Second, 11 * time.Second, 408},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipeListener()
				var results []Result
				p := newProxy(t, &recorder{}, &results)
				server := NewServer(p)
				go server.Serve(l)
				defer server.Close()
				conn := l.dial()
				defer conn.Close()
				m := signed("dlv_slow", strings.Repeat("x", c.length))
				begin := time.Now()
				stop := make(chan struct{})
				go func() {
					io.WriteString(conn, m.head(fmt.Sprintf("Content-Length: %d", c.length)))
					for body := string(m.body); body != "" && c.step > 0; {
						n := min(c.step, len(body))
						if _, err := io.WriteString(conn, body[:n]); err != nil {
							return
						}
						body = body[n:]
						select {
						case <-time.After(c.every):
						case <-stop:
							return
						}
					}
				}()
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(begin)
				res.Body.Close()
				close(stop)
				if res.StatusCode != c.status || took < c.from || took > c.to {
					t.Errorf("status %d after %s", res.StatusCode, took)
				}
				conn.Close()
				synctest.Wait()
				if len(results) != 1 || results[0].Status != c.status || results[0].Disconnected {
					t.Errorf("reports %+v", results)
				}
			})
		})
	}
}

func TestX23_SlowBodyOverHTTP2(t *testing.T) {
	t.Parallel()
	g := start(t, setup{tls: true})
	c := newFramer(g.tlsConn())
	begin := time.Now()
	c.headers(1, signed("dlv_slow", "abc"), false, "content-length", "3")
	c.data(1, "a", false)
	if status, _ := c.answer(1); status != "408" || time.Since(begin) < slowGrace {
		t.Errorf("status %q after %s", status, time.Since(begin))
	}
	if r := g.result(0); r.Code != "body_timeout" || r.Disconnected {
		t.Errorf("report %+v", r)
	}
}

func TestX23_RapidReset(t *testing.T) {
	t.Parallel()
	g := start(t, setup{tls: true})
	conn := g.tlsConn()
	c := newFramer(conn)
	m := signed("dlv_reset", "abc")
	var burst bytes.Buffer // in one piece: the attack lives from its speed
	attack := framer{rw: &burst}
	for i := range uint32(5000) {
		attack.headers(2*i+1, m, false)
		attack.reset(2*i + 1)
	}
	go conn.Write(burst.Bytes())
	goneAway := false
	for {
		f, err := c.next()
		if err != nil {
			break
		}
		goneAway = goneAway || f.kind == frameGoAway
	}
	if !goneAway {
		t.Error("no GOAWAY")
	}
	g.http2(signed("dlv_healthy", body1), strings.NewReader(body1)).wants(t, 202, "")
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.results); n > 100 {
		t.Errorf("%d handlers were started", n)
	}
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	in := &recorder{}
	g := start(t, setup{inbox: in, tls: true})
	m := signed("dlv_h2", body1)
	a := g.http2(m, strings.NewReader(body1))
	a.wants(t, 202, "")
	g.http2(m.set("X-Webhook-Signature"), strings.NewReader(body1)).wants(t, 401, "signature_invalid")
	g.http2(signed("dlv_big", strings.Repeat("x", 20<<20)), strings.NewReader(strings.Repeat("x", 20<<20))).wants(t, 413, "body_too_large")

	c := newFramer(g.tlsConn())
	for _, row := range []struct {
		name, status string
		more         []string
	}{
		{"two different content-length", "202", []string{"content-length", "3", "content-length", "7"}},
		{"host beside the authority", "202", []string{"host", "evil.example.com", "content-length", "3"}},
		{"upper-case name", "", []string{"X-A", "a"}},
		{"connection header", "400", []string{"connection", "close"}},
		{"transfer-encoding", "400", []string{"transfer-encoding", "chunked"}},
		{"CR LF in a value", "", []string{"x-a", "a\r\nb"}},
	} {
		f := newFramer(g.tlsConn())
		f.headers(1, signed("dlv_h2_raw", "abc"), false, row.more...)
		f.data(1, "abc", true)
		if status, _ := f.answer(1); status != row.status {
			t.Errorf("%s: status %q, want %q", row.name, status, row.status)
		}
	}
	// A refusal must not take the connection from the other streams.
	for i := range uint32(3) {
		c.headers(2*i+1, m.set("X-Webhook-Signature"), false)
		if status, _ := c.answer(2*i + 1); status != "401" {
			t.Errorf("stream %d: status %q", 2*i+1, status)
		}
	}
}
