package consumer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"
)

// ForwarderConfig is what a Forwarder is told. Only URL is demanded.
type ForwarderConfig struct {
	// URL is where deliveries go, used exactly as written, its query included:
	// http or https, no user, no password. The query of the sender's request is
	// not carried, because nobody signed it.
	URL string
	// Timeout bounds an attempt, from the connection to the end of the answer.
	// Defaults to 10 seconds.
	Timeout time.Duration
	// Connections is how many idle ones are kept. Defaults to 16; the
	// destination's concurrency is the right number.
	Connections int
	// TLS is how https destinations are checked. Defaults to the system's roots.
	TLS *tls.Config
	// Now is the clock against which a Retry-After date is read. Defaults to
	// time.Now.
	Now func() time.Time
}

// Forwarder hands forwards to an app over HTTP/1.1: the received method, the
// same bytes, the provider's headers and ours. Each Handle is at most one
// request: redirects are not followed, nothing is sent a second time in
// secret, environment proxies are ignored. It never connects to link-local,
// multicast or cloud metadata addresses.
//
// 2xx is accepted. 408, 425, 429, 5xx, no answer and a broken connection are
// tried again. Any other 4xx, and 3xx, are permanent.
type Forwarder struct {
	url     *url.URL
	timeout time.Duration
	now     func() time.Time

	// A reused connection is where net/http sends again by itself what it takes
	// for repeatable. It does not with a body that it cannot rewind. An empty body
	// is always repeatable to it, so that goes over a connection of its own.
	reusing, fresh *http.Transport
}

const (
	connectTimeout = 5 * time.Second
	idleTimeout    = 4 * time.Second // many apps close at 5 seconds
	readAnswer     = 64 << 10        // of an answer, so that its connection can be used again
	longestHeader  = 64 << 10        // of an answer
)

// NewForwarder makes a Forwarder. Close it when it is no longer used.
func NewForwarder(cfg ForwarderConfig) (*Forwarder, error) {
	u, err := parseDestination(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout < 0 || cfg.Connections < 0 {
		return nil, errors.New("consumer: Timeout or Connections of the forwarder is negative")
	}
	orDefault(&cfg.Timeout, 10*time.Second)
	orDefault(&cfg.Connections, 16)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Forwarder{
		url: u, timeout: cfg.Timeout, now: cfg.Now,
		reusing: newTransport(cfg, false),
		fresh:   newTransport(cfg, true),
	}, nil
}

// parseDestination does not show the URL in its errors: it may hold a password.
func parseDestination(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("consumer: URL of the destination does not parse")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("consumer: URL of the destination is neither http nor https")
	case u.User != nil:
		return nil, errors.New("consumer: URL of the destination holds a user or password")
	case u.Hostname() == "":
		return nil, errors.New("consumer: URL of the destination has no host")
	}
	// A name is judged when it is connected to; an address need not wait for that.
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := allowed(a); err != nil {
			return nil, fmt.Errorf("consumer: URL of the destination: %w", err)
		}
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

func newTransport(cfg ForwarderConfig, fresh bool) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, Control: refuseForbidden}
	t := &http.Transport{
		Proxy:                  nil, // the environment has no say
		DialContext:            dialer.DialContext,
		TLSClientConfig:        cfg.TLS.Clone(),
		TLSHandshakeTimeout:    connectTimeout,
		DisableCompression:     true, // an answer is kept as it came, never inflated
		DisableKeepAlives:      fresh,
		MaxIdleConnsPerHost:    cfg.Connections,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: longestHeader,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// Close closes idle connections.
func (w *Forwarder) Close() {
	w.reusing.CloseIdleConnections()
	w.fresh.CloseIdleConnections()
}

// Handle sends f once.
func (w *Forwarder) Handle(ctx context.Context, f Forward) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	})

	transport, req := w.request(ctx, f)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		if sent.Load() && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &AttemptError{Class: "timeout", Err: fmt.Errorf("sent, no answer in time: %w", err)}
		}
		return &AttemptError{Class: "network", Err: fmt.Errorf("send: %w", err)}
	}
	defer resp.Body.Close()

	f.Report.Status = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// Its body is the bare connection: a read of that obeys no context.
		return &AttemptError{Class: "network", Err: errors.New("answered 101, which was not asked for")}
	}
	// The status has decided; an answer that breaks off later changes nothing.
	f.Report.Answer, _ = io.ReadAll(io.LimitReader(resp.Body, keptAnswer))
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, readAnswer-keptAnswer))
	return w.judge(resp)
}

func (w *Forwarder) request(ctx context.Context, f Forward) (*http.Transport, *http.Request) {
	d := f.Delivery
	h := Header(f.Forward)
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // else net/http would put its own name there
	}
	req := (&http.Request{
		Method:        d.Method,
		URL:           w.url,
		Header:        h,
		ContentLength: int64(len(d.Body)),
	}).WithContext(ctx)
	if req.Method == "" {
		req.Method = http.MethodPost
	}
	if len(d.Body) == 0 {
		req.Body = http.NoBody
		return w.fresh, req
	}
	req.Body = io.NopCloser(bytes.NewReader(d.Body)) // and no GetBody
	return w.reusing, req
}

// judge turns a status into nil or what becomes of the forward.
func (w *Forwarder) judge(resp *http.Response) error {
	status := resp.StatusCode
	failed := &AttemptError{Status: status, Err: fmt.Errorf("answered %d", status)}
	switch {
	case status >= 200 && status <= 299:
		return nil
	case status == 429 || status == 503:
		failed.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), w.now())
	case status == 408 || status == 425 || status >= 500:
	case status >= 300 && status <= 399:
		failed.Permanent = true
		if to, err := resp.Location(); err == nil {
			failed.Err = fmt.Errorf("answered %d, a redirect to %s that is not followed", status, to.Host)
		}
	default:
		failed.Permanent = true
	}
	return failed
}
