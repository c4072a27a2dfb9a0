package inboxtest

import (
	"bufio"
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Mode is what a FaultProxy does to what passes, on connections that stand as well
// as on new ones.
type Mode int

// The modes. What a cut holds back is not lost: it goes on when the mode is Pass
// again, as TCP sends again what a broken line has swallowed.
const (
	Pass     Mode = iota
	CutUp         // nothing reaches the server; its answers come through
	CutDown       // the server gets everything; no answer comes back
	HalfOpen      // both; new connections are accepted and never answered
	Reset         // connections end with a TCP reset, standing and new ones
	Slow          // every write waits for FaultProxy.Latency
	Slice         // every byte is a write of its own
)

// Counts say what a FaultProxy has done. A test of a fault looks at them first: a
// fault that did not happen proves nothing.
type Counts struct {
	Connections int // accepted
	Open        int // of them, still there
	Commits     int // COMMITs that clients sent

	Stalled int // writes that a cut held back
	Reset   int // connections
	Slow    int // writes
	Sliced  int // writes

	CutBefore int // COMMITs that the server never saw
	CutAfter  int // COMMITs that the server had answered
	Held      int // COMMITs that are being held now
	Released  int // COMMITs that were held and went on
}

// FaultProxy stands between Postgres clients and a server, and breaks their
// connections in the way that Set and AtCommit ask for. It listens on a free port
// of 127.0.0.1, without TLS.
type FaultProxy struct {
	// Latency of mode Slow. Defaults to 50 milliseconds. To be set before the mode.
	Latency time.Duration

	t                testing.TB
	address          string
	network, backend string
	listener         net.Listener
	running          sync.WaitGroup

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change of what follows
	mode     Mode
	commit   CommitFault
	commitOf string // commit is for transactions with this text
	left     int    // COMMITs that commit is still for
	counts   Counts
	links    map[*link]struct{}
	closed   bool
}

// NewFaultProxy starts a proxy in mode Pass in front of the server of the address
// target. It ends with the test.
func NewFaultProxy(t testing.TB, target string) *FaultProxy {
	t.Helper()
	cfg, err := pgconn.ParseConfig(target)
	if err != nil {
		t.Fatalf("inboxtest: fault proxy: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("inboxtest: fault proxy: %v", err)
	}
	address := url.URL{Scheme: "postgres", Host: listener.Addr().String(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	address.User = url.UserPassword(cfg.User, cfg.Password)
	p := &FaultProxy{
		Latency:  50 * time.Millisecond,
		t:        t,
		address:  address.String(),
		listener: listener,
		changed:  make(chan struct{}),
		links:    map[*link]struct{}{},
	}
	p.network, p.backend = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.change(func() { p.closed = true })
		p.cutAll(false)
		p.running.Wait()
	})
	return p
}

// URL is the address of the target's database through the proxy.
func (p *FaultProxy) URL() string { return p.address }

// Set changes the mode.
func (p *FaultProxy) Set(m Mode) {
	p.change(func() { p.mode = m })
	if m == Reset {
		p.cutAll(true)
	}
}

// Counts returns what happened so far.
func (p *FaultProxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Await waits until ok says yes to the counts, and ends the test if it has not
// after ten seconds.
func (p *FaultProxy) Await(ok func(Counts) bool) Counts {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if !p.until(ctx.Done(), func() bool { return ok(p.counts) }) {
		p.t.Fatalf("inboxtest: fault proxy: not within 10s; so far %+v", p.Counts())
	}
	return p.Counts()
}

// change changes the state under its lock and wakes those who wait for it.
func (p *FaultProxy) change(how func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how()
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits for a state. It asks ok under the lock, and gives up with done.
func (p *FaultProxy) until(done <-chan struct{}, ok func() bool) bool {
	for {
		p.mu.Lock()
		yes, changed := ok(), p.changed
		p.mu.Unlock()
		if yes {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}

func (p *FaultProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		l := &link{p: p, client: client, done: make(chan struct{})}
		var closed, reset bool
		p.change(func() {
			closed, reset = p.closed, p.mode == Reset
			p.links[l] = struct{}{}
			p.counts.Connections++
			p.counts.Open++
		})
		if closed || reset {
			l.cut(reset)
			continue
		}
		p.running.Go(l.run)
	}
}

func (p *FaultProxy) cutAll(reset bool) {
	p.mu.Lock()
	var all []*link
	for l := range p.links {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		l.cut(reset)
	}
}

// link is one client and its connection to the server.
type link struct {
	p      *FaultProxy
	client net.Conn
	server net.Conn // nil until dialled
	done   chan struct{}
	once   sync.Once
}

// cut ends both connections.
func (l *link) cut(reset bool) {
	l.once.Do(func() {
		l.p.change(func() {
			close(l.done)
			delete(l.p.links, l)
			l.p.counts.Open--
			if reset {
				l.p.counts.Reset++
			}
			if l.server != nil {
				l.server.Close()
			}
		})
		if tcp, ok := l.client.(*net.TCPConn); ok && reset {
			tcp.SetLinger(0)
		}
		l.client.Close()
	})
}

func (l *link) run() {
	defer l.cut(false)
	// A half-open line is accepted by the kernel; nobody is behind it.
	if !l.p.until(l.done, func() bool { return l.p.mode != HalfOpen }) {
		return
	}
	server, err := net.Dial(l.p.network, l.p.backend)
	if err != nil {
		return
	}
	alive := false
	l.p.change(func() {
		select {
		case <-l.done:
		default:
			l.server, alive = server, true
		}
	})
	if !alive {
		server.Close()
		return
	}
	answers := &answers{link: l, from: bufio.NewReader(server)}
	l.p.running.Go(answers.relay)
	requests := &requests{link: l, from: bufio.NewReader(l.client), answers: answers}
	requests.relay()
}

// write sends bytes on in the way of the mode.
func (l *link) write(to net.Conn, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	var mode Mode
	flows := func() bool {
		mode = l.p.mode
		return mode != HalfOpen && (mode != CutUp || to != l.server) && (mode != CutDown || to != l.client)
	}
	stalled := false
	l.p.change(func() {
		if stalled = !flows(); stalled {
			l.p.counts.Stalled++
		}
	})
	if stalled && !l.p.until(l.done, flows) {
		return false
	}
	step := len(b)
	switch mode {
	case Slow:
		l.p.change(func() { l.p.counts.Slow++ })
		select {
		case <-time.After(l.p.Latency):
		case <-l.done:
			return false
		}
	case Slice:
		l.p.change(func() { l.p.counts.Sliced++ })
		step = 1
	}
	for ; len(b) > 0; b = b[min(step, len(b)):] {
		if _, err := to.Write(b[:min(step, len(b))]); err != nil {
			return false
		}
	}
	return true
}
