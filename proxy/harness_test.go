package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// The set-up of the cases: one source, one key, one destination, the clock at t0.
const (
	t0       = 1760000000
	secretK1 = "hooklatch-test-secret-0123456789abcdef"
	secretK2 = "hooklatch-test-secret-k2-fedcba9876543210"
)

func clock(unix int64) func() time.Time { return func() time.Time { return time.Unix(unix, 0) } }

func key(t testing.TB, id, secret string) verify.Key {
	t.Helper()
	k, err := verify.NewKey(id, []byte(secret), verify.SecretSpec{Encoding: "utf8"})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func verifier(t testing.TB, scheme string, keys ...verify.Key) *verify.Verifier {
	t.Helper()
	s, ok := verify.Preset(scheme)
	if !ok {
		t.Fatalf("no preset %s", scheme)
	}
	set, err := verify.NewKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return &verify.Verifier{Scheme: s, Keys: set, Now: clock(t0)}
}

func field(t testing.TB, s string) verify.Field {
	t.Helper()
	f, err := verify.ParseField(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func src1(t testing.TB) Source {
	return Source{
		Name: "src1", Tenant: "t1", Path: "/in/src1",
		Verifier: verifier(t, "zhisou-v1", key(t, "k1", secretK1)),
		Forwards: []Route{{Destination: "app"}},
	}
}

// recorder is an inbox that stores nothing and counts what reaches it.
type recorder struct {
	mu     sync.Mutex
	got    []inbox.Delivery
	accept func(context.Context, inbox.Delivery) (inbox.Receipt, error) // nil: a new row
}

func (r *recorder) Accept(ctx context.Context, d inbox.Delivery) (inbox.Receipt, error) {
	kept := d
	kept.Body = bytes.Clone(d.Body)
	r.mu.Lock()
	r.got = append(r.got, kept)
	r.mu.Unlock()
	if r.accept != nil {
		return r.accept(ctx, d)
	}
	return inbox.Receipt{ID: 1, ReceivedAt: time.Unix(t0, 123456000)}, nil
}

func (r *recorder) deliveries() []inbox.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// rig is a running proxy over real connections.
type rig struct {
	t      testing.TB
	proxy  *Proxy
	server *httptest.Server
	addr   string

	mu      sync.Mutex
	results []Result
}

type setup struct {
	inbox Inbox // nil: a recorder that nobody asks
	cfg   Config
	tls   bool
	tune  func(*http.Server)
}

func start(t testing.TB, s setup) *rig {
	t.Helper()
	g := &rig{t: t}
	if s.inbox == nil {
		s.inbox = &recorder{}
	}
	if s.cfg.Sources == nil {
		s.cfg.Sources = []Source{src1(t)}
	}
	s.cfg.OnResult = func(_ context.Context, r Result) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.results = append(g.results, r)
	}
	p, err := New(s.inbox, s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.proxy = p
	g.server = httptest.NewUnstartedServer(nil)
	g.server.Config = NewServer(p)
	g.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if s.tune != nil {
		s.tune(g.server.Config)
	}
	if s.tls {
		g.server.EnableHTTP2 = true
		g.server.StartTLS()
	} else {
		g.server.Start()
	}
	t.Cleanup(g.server.Close)
	g.addr = g.server.Listener.Addr().String()
	return g
}

// result waits for the n-th report, from 0: a sender may have its answer before
// the test can look.
func (g *rig) result(n int) Result {
	g.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		g.mu.Lock()
		if len(g.results) > n {
			defer g.mu.Unlock()
			return g.results[n]
		}
		g.mu.Unlock()
		runtime.Gosched()
	}
	g.t.Fatalf("no report %d", n)
	return Result{}
}

// message is a signed request that a test can spoil before it is sent.
type message struct {
	method, target string
	header         [][2]string
	body           []byte
}

func signed(id string, body string) *message { return signedAt(t0, "k1", secretK1, id, body) }

func signedAt(ts int64, keyID, secret, id, body string) *message {
	m := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(m, "v1.%d.%s.%s", ts, id, body)
	return &message{
		method: "POST", target: "/in/src1", body: []byte(body),
		header: [][2]string{
			{"X-Webhook-Key-Id", keyID},
			{"X-Webhook-Timestamp", strconv.FormatInt(ts, 10)},
			{"X-Webhook-Delivery-Id", id},
			{"X-Webhook-Signature", hex.EncodeToString(m.Sum(nil))},
		},
	}
}

func (m *message) clone() *message {
	c := *m
	c.header = slices.Clone(m.header)
	return &c
}

// set replaces the lines of a header; an absent value takes it out.
func (m *message) set(name string, values ...string) *message {
	c := m.clone()
	c.header = slices.DeleteFunc(c.header, func(h [2]string) bool { return strings.EqualFold(h[0], name) })
	for _, v := range values {
		c.header = append(c.header, [2]string{name, v})
	}
	return c
}

func (m *message) add(name, value string) *message {
	c := m.clone()
	c.header = append(c.header, [2]string{name, value})
	return c
}

func (m *message) get(name string) string {
	for _, h := range m.header {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

func (m *message) to(method, target string) *message {
	c := m.clone()
	c.method, c.target = method, target
	return c
}

// head is the request up to the body, with the framing that is given.
func (m *message) head(framing ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", m.method, m.target)
	if m.get("Host") == "" {
		b.WriteString("Host: hooks.example.com\r\n")
	}
	for _, h := range m.header {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	for _, f := range framing {
		b.WriteString(f + "\r\n")
	}
	return b.String() + "\r\n"
}

func (m *message) wire() string {
	return m.head("Content-Length: "+strconv.Itoa(len(m.body))) + string(m.body)
}

func (m *message) chunked(size int) string {
	var b strings.Builder
	b.WriteString(m.head("Transfer-Encoding: chunked"))
	for c := range slices.Chunk(m.body, size) {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(c), c)
	}
	return b.String() + "0\r\n\r\n"
}

// answer is a response with its body read.
type answer struct {
	status int
	close  bool // the server will close the connection
	header http.Header
	body   []byte
}

// problem is the body of a refusal.
type problemBody struct {
	Type, Title, Detail, Instance, Code string
	Status                              int
	Retryable                           bool
	RetryAfterS                         int    `json:"retry_after_s"`
	Header                              string `json:"header"`
	MaxBytes                            int64  `json:"max_bytes"`
	ServerTime                          int64  `json:"server_time"`
	ToleranceS                          int    `json:"tolerance_s"`
	DeliveryID                          string `json:"delivery_id"`
}

func (a answer) problem(t testing.TB) problemBody {
	t.Helper()
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json; charset=utf-8" {
		t.Fatalf("status %d with Content-Type %q: %s", a.status, ct, a.body)
	}
	var p problemBody
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return p
}

type receipt struct {
	Status     string
	DeliveryID string `json:"delivery_id"`
	Duplicate  bool
	ReceivedAt time.Time `json:"received_at"`
}

func (a answer) receipt(t testing.TB) receipt {
	t.Helper()
	var r receipt
	if err := json.Unmarshal(a.body, &r); err != nil || r.Status != "accepted" {
		t.Fatalf("status %d, %v: %s", a.status, err, a.body)
	}
	return r
}

// wants fails unless the answer is this status and, for a refusal, this code.
func (a answer) wants(t testing.TB, status int, code string) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if code != "" {
		if got := a.problem(t).Code; got != code {
			t.Fatalf("code %q, want %q", got, code)
		}
	}
}

func (g *rig) dial() net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// raw sends bytes over a connection of their own and returns the first answer.
func (g *rig) raw(wire string) answer {
	g.t.Helper()
	c := g.dial()
	defer c.Close()
	go io.WriteString(c, wire) // the server may answer and close before all is sent
	return g.read(bufio.NewReader(c))
}

func (g *rig) send(m *message) answer {
	g.t.Helper()
	return g.raw(m.wire())
}

func (g *rig) read(r *bufio.Reader) answer { return g.readTo(r, "POST") }

// readTo reads the answer to a method; one to HEAD has no body.
func (g *rig) readTo(r *bufio.Reader, method string) answer {
	g.t.Helper()
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		g.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatalf("answer cut short: %v", err)
	}
	return answer{res.StatusCode, res.Close, res.Header, body}
}

// all sends bytes and returns every answer until the server closes.
func (g *rig) all(wire string) (answers []answer) {
	g.t.Helper()
	c := g.dial()
	defer c.Close()
	io.WriteString(c, wire)
	c.(*net.TCPConn).CloseWrite()
	r := bufio.NewReader(c)
	for {
		if _, err := r.Peek(1); err != nil {
			return answers
		}
		answers = append(answers, g.read(r))
	}
}

// http2 sends the message over HTTP/2.
func (g *rig) http2(m *message, body io.Reader) answer {
	g.t.Helper()
	req, err := http.NewRequest(m.method, g.server.URL+m.target, body)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, h := range m.header {
		req.Header[h[0]] = append(req.Header[h[0]], h[1])
	}
	res, err := g.server.Client().Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		g.t.Fatalf("protocol %s", res.Proto)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Close, res.Header, b}
}

// tlsConn is a connection for frames written by hand.
func (g *rig) tlsConn() *tls.Conn {
	g.t.Helper()
	cfg := g.server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	cfg.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", g.addr, cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

func macOf(secret, text string) string {
	m := hmac.New(sha256.New, []byte(secret))
	io.WriteString(m, text)
	return hex.EncodeToString(m.Sum(nil))
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// pipeListener serves connections in memory, for tests with a clock of their own.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// collect is an OnResult for a proxy that one goroutine uses.
func collect(results *[]Result) func(context.Context, Result) {
	return func(_ context.Context, r Result) { *results = append(*results, r) }
}
