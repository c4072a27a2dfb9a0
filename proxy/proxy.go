package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// Inbox is what the proxy needs of the store.
type Inbox interface {
	// Accept commits d and its forwards, once. After nil the delivery survives a
	// crash; after an error the caller must not answer 2xx, whatever the error is.
	// The errors that get an answer of their own are *inbox.ConflictError and
	// inbox.ErrUnavailable, ErrOutcomeUnknown, ErrBusy and ErrFull.
	//
	// Accept changes nothing that d points to, and keeps none of it after it has
	// returned nil: the memory of the body serves the next request.
	Accept(ctx context.Context, d inbox.Delivery) (inbox.Receipt, error)
}

// Config says what a Proxy receives and how much of it at once.
type Config struct {
	// Sources are the trusted senders. At least one is demanded.
	Sources []Source
	// Hosts are the served host names, without port, beside those that sources
	// name. A request for another host is refused. No host here and at no source:
	// every host is served. With an Upstream, those of sources do not close the others.
	Hosts []string

	// Upstream gets what is for no source: everything but the exact paths of Sources.
	// Nil: that is answered 404.
	Upstream *Upstream
	// TrustedProxies are in front of this server. In a request from one of them the
	// address of the client is the rightmost of X-Forwarded-For that is not one. Nobody
	// else's X-Forwarded headers are believed or handed on.
	TrustedProxies []netip.Prefix

	// InFlight is the most requests whose bodies are being read, checked or
	// committed. Defaults to 256; at most 16,384.
	InFlight int
	// BodyBytes is the most bytes of all bodies in flight: declared lengths, or the
	// source's cap where none is declared. Defaults to 64 MiB; at most 8 GiB.
	BodyBytes int64

	// ConfigRevision is recorded with each delivery. Defaults to 0: unknown.
	ConfigRevision int64

	// OnResult is called once for each request, also when the sender has gone, just
	// before the answer leaves; with OutcomePassed, when it has ended. It should not
	// block.
	OnResult func(context.Context, Result)
	// OnExplain is told why the MAC of a request failed: of at most one request a
	// second of each source, by Run, after OnResult with the same Result. The request
	// has long been answered then; nothing here changes an answer. Nil: nothing is
	// explained.
	OnExplain func(context.Context, Explained)
}

const (
	defaultInFlight  = 256
	maxInFlight      = 16_384
	defaultBodyBytes = 64 << 20
	maxBodyBytes     = 8 << 30
)

// Proxy is the receiving side. It is safe for concurrent use.
type Proxy struct {
	inbox    Inbox
	cfg      Config
	routes   routes
	budget   *budget
	buffers  buffers
	lines    lines
	draining atomic.Bool

	proxies     proxies
	passthrough *passthrough // nil: no upstream

	explainer explainer
	causes    func(*evidence) ([]verify.Cause, error)

	exchanges sync.Pool // of *exchange
}

// New checks cfg and returns a Proxy that accepts into in.
func New(in Inbox, cfg Config) (*Proxy, error) {
	if in == nil {
		return nil, errors.New("proxy: no inbox")
	}
	if cfg.InFlight == 0 {
		cfg.InFlight = defaultInFlight
	}
	if cfg.InFlight < 0 || cfg.InFlight > maxInFlight {
		return nil, fmt.Errorf("proxy: InFlight %d is not between 1 and %d", cfg.InFlight, maxInFlight)
	}
	if cfg.BodyBytes == 0 {
		cfg.BodyBytes = defaultBodyBytes
	}
	if cfg.BodyBytes < 0 || cfg.BodyBytes > maxBodyBytes {
		return nil, fmt.Errorf("proxy: BodyBytes %d is not between 1 and %d", cfg.BodyBytes, int64(maxBodyBytes))
	}
	r, err := newRoutes(cfg)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	trusted := newProxies(cfg.TrustedProxies)
	pt, err := newPassthrough(cfg.Upstream, trusted)
	if err != nil {
		return nil, fmt.Errorf("proxy: Upstream: %w", err)
	}
	return &Proxy{
		inbox:   in,
		cfg:     cfg,
		routes:  r,
		budget:  &budget{requests: cfg.InFlight, bytes: cfg.BodyBytes},
		buffers: newBuffers(),
		lines:   newLines(),

		proxies:     trusted,
		passthrough: pt,

		explainer: newExplainer(),
		causes:    (*evidence).causes,
	}, nil
}

// Drain makes every later request answer 503 shutting_down and close its
// connection; those in flight end as usual. Call it when the grace time of a
// stop begins, just before [http.Server.Shutdown], and [Proxy.Finish] with it.
func (p *Proxy) Drain() { p.draining.Store(true) }

// ServeHTTP answers one request. Paths are compared as they came on the wire, by
// r.RequestURI, so middleware that rewrites r.URL has no effect.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := p.begin(w, r)
	defer x.end()
	if err := x.handle(); err != nil {
		x.refuse(err)
	}
}
