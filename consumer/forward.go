package consumer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
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
	// TLS is how https destinations are checked, and the certificate that is shown
	// to them. Defaults to the system's roots and no certificate.
	TLS *tls.Config
	// Socket is the file of a unix socket that is connected to in place of the
	// URL's host, which then is a name for the app only.
	Socket string
	// Addresses are the only ones that are connected to, whatever a name leads to.
	// Defaults to all but those that no app has (unspecified, broadcast, reserved,
	// for documentation, for benchmarks) and loopback by another name than
	// localhost. Link-local, multicast and cloud metadata addresses are never
	// connected to, also if they are among these.
	Addresses []netip.Prefix
	// Responses say what a status (404) or a class of them (4xx) means where that
	// is not the usual: OutcomeAccepted, OutcomeRetry or OutcomeBlocked. A status
	// goes before its class.
	Responses map[string]inbox.Outcome
	// Sign are the keys with which each request is signed by Standard Webhooks, so
	// that the app can check that it came from here: every key that is valid then.
	// While none is, attempts fail and nothing is sent. Headers of the sender that
	// begin with webhook- are removed. Empty: not signed.
	Sign []SigningKey
	// Now is the clock of signatures and of Retry-After dates. Defaults to
	// time.Now.
	Now func() time.Time
}

// Forwarder hands forwards to an app over HTTP/1.1: the received method, the
// same bytes, the provider's headers and ours. Each Handle is at most one
// request: redirects are not followed, nothing is sent a second time in
// secret, environment proxies are ignored.
//
// 2xx is accepted. 408, 425, 429, 5xx, no answer and a broken connection are
// tried again. Any other 4xx, and 3xx, are permanent. What the app said is kept
// without the credentials that it was sent.
type Forwarder struct {
	url       *url.URL
	timeout   time.Duration
	now       func() time.Time
	responses map[string]inbox.Outcome
	sign      signer // nil: not signed
	redact    redactor

	// A reused connection is where net/http sends again by itself what it takes
	// for repeatable. It does not with a body that it cannot rewind. An empty body
	// is always repeatable to it, so that goes over a connection of its own.
	reusing, fresh *http.Transport
}

const (
	connectTimeout = 5 * time.Second
	idleTimeout    = 4 * time.Second // many apps close at 5 seconds
)

// NewForwarder makes a Forwarder. Close it when it is no longer used.
func NewForwarder(cfg ForwarderConfig) (*Forwarder, error) {
	u, err := parseDestination(cfg.URL)
	if err != nil {
		return nil, err
	}
	dial, err := newDialer(cfg)
	if err != nil {
		return nil, err
	}
	// A name is judged when it is connected to; an address need not wait for that.
	if err := dial.Check(u.Hostname()); err != nil {
		return nil, fmt.Errorf("consumer: URL of the destination: %w", err)
	}
	if cfg.Timeout < 0 || cfg.Connections < 0 {
		return nil, errors.New("consumer: Timeout or Connections of the forwarder is negative")
	}
	if err := checkResponses(cfg.Responses); err != nil {
		return nil, err
	}
	sign, err := newSigner(cfg.Sign)
	if err != nil {
		return nil, err
	}
	orDefault(&cfg.Timeout, 10*time.Second)
	orDefault(&cfg.Connections, 16)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Forwarder{
		url: u, timeout: cfg.Timeout, now: cfg.Now, responses: maps.Clone(cfg.Responses),
		sign: sign, redact: newRedactor(cfg.Sign, u),
		reusing: newTransport(cfg, dial, false),
		fresh:   newTransport(cfg, dial, true),
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
	u.Fragment, u.RawFragment = "", ""
	if u.RawPath != "" { // else there is one way to write it
		u.RawPath = encodeRest(u.RawPath, "\"<>\\^`{|}")
	}
	u.RawQuery = encodeRest(u.RawQuery, "")
	return u, nil
}

// encodeRest encodes what a request line cannot hold, and what is in also, and leaves
// everything else as it was written. net/url would write a path anew where one byte of
// it is not as it likes, and turn %2F into a slash.
func encodeRest(text, also string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(also, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func newTransport(cfg ForwarderConfig, dial *Dialer, fresh bool) *http.Transport {
	t := &http.Transport{
		Proxy:                  nil, // the environment has no say
		DialContext:            dial.DialContext,
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
	var sent, idle, heard atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(c httptrace.GotConnInfo) { idle.Store(c.Reused) },
		WroteHeaders:         func() { sent.Store(true) },
		GotFirstResponseByte: func() { heard.Store(true) },
	})

	transport, req, err := w.request(ctx, f)
	if err != nil {
		return &AttemptError{Err: silent{err}}
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		err = w.hide(err, req.Header)
		if sent.Load() && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &AttemptError{Class: "timeout", Err: fmt.Errorf("sent, no answer in time: %w", err)}
		}
		err = fmt.Errorf("send: %w", err)
		if idle.Load() && !heard.Load() && ctx.Err() == nil {
			err = silent{err} // most likely the app had closed the connection before
		}
		return &AttemptError{Class: "network", Err: err}
	}
	defer resp.Body.Close()

	f.Report.Status = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// Its body is the bare connection: a read of that obeys no context.
		return &AttemptError{Class: "network", Err: errors.New("answered 101, which was not asked for")}
	}
	f.Report.Answer = w.answer(resp, req.Header)
	return w.judge(resp)
}

func (w *Forwarder) request(ctx context.Context, f Forward) (*http.Transport, *http.Request, error) {
	d := f.Delivery
	h := Header(f.Forward)
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // else net/http would put its own name there
	}
	if w.sign != nil {
		if err := w.sign(h, d.DeliveryID, d.Body, w.now()); err != nil {
			return nil, nil, err
		}
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
		return w.fresh, req, nil
	}
	req.Body = io.NopCloser(bytes.NewReader(d.Body)) // and no GetBody
	return w.reusing, req, nil
}

// hide returns err without the credentials that were sent: an answer that is no HTTP
// stands in the error.
func (w *Forwarder) hide(err error, sent http.Header) error {
	text := err.Error()
	if clean := string(w.redact([]byte(text), sent)); clean != text {
		return errors.New(clean)
	}
	return err
}
