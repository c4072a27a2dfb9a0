package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"
)

const (
	confirmWaiting  = 16 // URLs that wait to be called
	confirmRemember = 1024
	confirmTimeout  = 5 * time.Second
	confirmRead     = 64 << 10
)

// confirmer calls URLs by which senders want to be told that a hook is ours, each
// once. Which may be called at all is package verify's to say.
type confirmer struct {
	log    *slog.Logger
	client *http.Client
	queue  chan confirmation

	mu   sync.Mutex
	seen map[[32]byte]bool
	ring [confirmRemember][32]byte // what is in seen, oldest at next
	next int
}

type confirmation struct{ source, url string }

func newConfirmer(log *slog.Logger) *confirmer {
	return &confirmer{
		log: log,
		client: &http.Client{
			Timeout: confirmTimeout,
			Transport: &http.Transport{
				Proxy:                  nil,                                                                      // the environment has no say
				DialContext:            (&net.Dialer{Timeout: confirmTimeout, Control: refuseLocal}).DialContext, // it outlives the request
				TLSHandshakeTimeout:    confirmTimeout,
				DisableKeepAlives:      true,
				ForceAttemptHTTP2:      true,
				MaxResponseHeaderBytes: 16 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		queue: make(chan confirmation, confirmWaiting),
		seen:  map[[32]byte]bool{},
	}
}

// refuseLocal judges the address that is connected to, whatever the resolver says.
// Private ones pass: a sender in the cloud may have an address in the own network.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().Unmap().IsGlobalUnicast() {
		return fmt.Errorf("address %s is loopback, link-local or multicast", address)
	}
	return nil
}

var errConfirmFull = errors.New("too many URLs wait to be called")

// take queues a URL that was not taken before.
func (c *confirmer) take(source, url string) error {
	hash := sha256.Sum256([]byte(source + " " + url))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[hash] {
		return nil
	}
	select {
	case c.queue <- confirmation{source, url}:
	default:
		return errConfirmFull
	}
	delete(c.seen, c.ring[c.next])
	c.seen[hash], c.ring[c.next] = true, hash
	c.next = (c.next + 1) % len(c.ring)
	return nil
}

// Run calls what is queued, one URL at a time, until ctx is done.
func (c *confirmer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			for {
				select {
				case q := <-c.queue:
					c.log.Warn("confirm: stopped before the URL was called: have the sender ask again", "source", q.source)
				default:
					return nil
				}
			}
		case q := <-c.queue:
			c.confirm(ctx, q)
		}
	}
}

// confirm logs what became of it, and of the URL the host alone: the rest is as
// good as a password.
func (c *confirmer) confirm(ctx context.Context, q confirmation) {
	host := ""
	if u, err := url.Parse(q.url); err == nil {
		host = u.Host
	}
	status, err := c.call(ctx, q.url)
	a := attributes{}
	a.text("source", q.source)
	a.text("host", host)
	if err != nil {
		a.text("error", err.Error())
		c.log.LogAttrs(ctx, slog.LevelWarn, "confirm: the sender was not reached: have it ask again", a...)
		return
	}
	a.add(slog.Int("status", status))
	if status < 200 || status > 299 {
		c.log.LogAttrs(ctx, slog.LevelWarn, "confirm: the sender did not take it: have it ask again", a...)
		return
	}
	c.log.LogAttrs(ctx, slog.LevelInfo, "confirmed", a...)
}

func (c *confirmer) call(ctx context.Context, target string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, errors.New("the URL cannot be read")
	}
	res, err := c.client.Do(r)
	if err != nil {
		return 0, withoutURL(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, confirmRead)); err != nil {
		return 0, withoutURL(err)
	}
	return res.StatusCode, nil
}

// withoutURL cuts from an error of net/http the URL, which holds a token.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return fmt.Errorf("read the answer: %w", err)
}

// confirm is what the proxy tells a URL of the source to.
func (s *server) confirm(name string) func(context.Context, string) error {
	if s.cfg.Sources[name].Handshake.Confirm == "manual" {
		return func(ctx context.Context, url string) error {
			// Here the URL is the message: only who calls it confirms.
			s.log.LogAttrs(ctx, slog.LevelWarn, "confirm: call this URL to confirm the hook", slog.String("source", name), slog.String("url", url))
			return nil
		}
	}
	return func(_ context.Context, url string) error { return s.confirmer.take(name, url) }
}
