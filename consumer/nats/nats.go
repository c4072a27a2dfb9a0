// Package nats hands forwards to a stream of NATS JetStream. It is a
// consumer.Handler; the stream belongs to its operator and must exist.
//
// # What the stream gets
//
// The body as it was received, with the headers that an app gets by HTTP, but none
// that NATS itself obeys: a sender must not be able to roll a stream up. The subject
// is
//
//	PREFIX.SOURCE.TYPE       hooks.acme-stripe.invoice.paid
//
// so hooks.acme-stripe.invoice.> are the invoices. A dot in the type divides tokens; in
// the name of the source it is written %2E. Bytes that a subject cannot hold, or that
// mean something in it, are written as in URLs: "*" is %2A. A type that would leave a
// token empty keeps no dot. A delivery without a type has "_".
//
// # What is promised, and where it stops
//
// A forward is accepted after the stream has said that it keeps it, with as many
// replicas as the stream has. An answer that was lost on its way is the usual case of
// trouble. The message is sent again then, within the attempt or with the next one; the
// Nats-Msg-Id
//
//	PREFIX/TENANT/SOURCE/DELIVERY-ID
//
// (each part as in URLs) stays the same, so that the stream drops it within its
// duplicate window. That is 2 minutes unless the stream says otherwise. After it, the
// stream holds a message twice.
package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/hooklatch/hooklatch/consumer"
)

// Config is what a Handler is told. Servers and Subject are demanded.
type Config struct {
	// Servers are host:port of some servers of the cluster; it names the others.
	Servers []string
	// Subject is what the subjects begin with: one token or several.
	Subject string
	// Timeout bounds an attempt. Defaults to 10 seconds.
	Timeout time.Duration
	// TLS is how the servers are checked. nil: without TLS, unless a server wants it.
	TLS *tls.Config
	// User is who logs in with a password. Empty: Secret is the text of a credentials
	// file, as nsc makes them.
	User string
	// Secret fetches the secret at each connect. nil: nobody logs in.
	Secret func(ctx context.Context) ([]byte, error)
	// Addresses are the only ones that are connected to. Empty: all but those that no
	// server has, as with consumer.Forwarder.
	Addresses []netip.Prefix
	// OnError is told of trouble with the connection, which comes back by itself.
	OnError func(error)
}

const (
	connectTimeout = 5 * time.Second
	pingEvery      = 10 * time.Second // a server that is silent for two of them is left
	reconnectWait  = 250 * time.Millisecond
)

// Handler hands forwards to a stream over one connection, which it makes at the first
// use and again whenever it is lost.
type Handler struct {
	cfg    Config
	dialer *consumer.Dialer

	life    context.Context // until Close
	end     context.CancelFunc
	connect sync.Once
	ready   chan struct{} // closed once conn and stream are set, or life is over
	conn    *natsgo.Conn
	stream  jetstream.JetStream

	mu       sync.Mutex
	unbroken context.Context // until the connection is lost
	lose     context.CancelFunc
	wire     net.Conn // the latest
	trouble  error    // why there is no connection; nil: nobody has said
}

// New makes a Handler. Close it when it is no longer used.
func New(cfg Config) (*Handler, error) {
	if len(cfg.Servers) == 0 {
		return nil, errors.New("nats: Servers are demanded")
	}
	if err := checkPrefix(cfg.Subject); err != nil {
		return nil, err
	}
	if cfg.User != "" && cfg.Secret == nil {
		return nil, errors.New("nats: User is set, and no Secret")
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("nats: Timeout %v is negative", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.OnError == nil {
		cfg.OnError = func(error) {}
	}
	dialer, err := consumer.NewDialer(cfg.Addresses)
	if err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg, dialer: dialer, ready: make(chan struct{})}
	h.life, h.end = context.WithCancel(context.Background())
	h.unbroken, h.lose = context.WithCancel(h.life)
	for _, server := range cfg.Servers {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			return nil, fmt.Errorf("nats: server %q is no host:port", server)
		}
		if err := dialer.Check(host); err != nil {
			return nil, fmt.Errorf("nats: server %s: %w", server, err)
		}
	}
	return h, nil
}

// Close ends the connection. Handlers that run return.
func (h *Handler) Close() {
	h.end()
	h.connect.Do(func() { close(h.ready) }) // else the connecting has begun
	h.mu.Lock()
	if h.wire != nil {
		h.wire.Close() // a server that says nothing would hold us up
	}
	h.mu.Unlock()
	<-h.ready
	if h.conn != nil {
		h.conn.Close()
	}
}

// dial connects. There is a connection also where no server could be reached: that one
// goes on trying by itself.
func (h *Handler) dial() {
	defer close(h.ready)
	options := []natsgo.Option{
		natsgo.Name("hooklatch"),
		natsgo.SetCustomDialer(connector{h}),
		natsgo.SkipHostLookup(), // the dialer judges the name too
		natsgo.Timeout(connectTimeout),
		natsgo.RetryOnFailedConnect(true), natsgo.MaxReconnects(-1), natsgo.IgnoreAuthErrorAbort(),
		natsgo.ReconnectWait(reconnectWait), natsgo.ReconnectJitter(reconnectWait, reconnectWait),
		natsgo.ReconnectBufSize(-1), // what is kept for later would be sent after its lease
		natsgo.PingInterval(pingEvery), natsgo.MaxPingsOutstanding(2),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { h.cfg.OnError(err) }),
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) { h.onLost(err) }),
		natsgo.ReconnectErrHandler(func(_ *natsgo.Conn, err error) { h.note(err) }),
		natsgo.ReconnectHandler(func(*natsgo.Conn) { h.note(nil) }), // and after the first connect that failed
	}
	if h.cfg.TLS != nil {
		options = append(options, natsgo.Secure(h.cfg.TLS.Clone()))
	}
	options = append(options, h.login()...)
	for h.life.Err() == nil {
		conn, err := natsgo.Connect("nats://"+strings.Join(h.cfg.Servers, ",nats://"), options...)
		if err == nil {
			if h.stream, err = jetstream.New(conn); err == nil {
				h.conn = conn
				return
			}
			conn.Close()
		}
		h.note(err) // a secret that could not be fetched
		select {
		case <-time.After(reconnectWait):
		case <-h.life.Done():
		}
	}
}

// connector makes the connections to the servers.
type connector struct{ h *Handler }

// Dial implements nats.CustomDialer.
func (c connector) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.h.life, connectTimeout)
	defer cancel()
	conn, err := c.h.dialer.DialContext(ctx, network, address)
	if err != nil {
		c.h.note(err)
		return nil, err
	}
	c.h.mu.Lock()
	c.h.wire = conn
	c.h.mu.Unlock()
	return conn, nil
}

// onLost ends the attempts whose answers would have come over the connection: they
// would wait for them in vain.
func (h *Handler) onLost(err error) {
	h.mu.Lock()
	h.lose()
	h.unbroken, h.lose = context.WithCancel(h.life)
	h.trouble = err
	h.mu.Unlock()
	if err != nil {
		h.cfg.OnError(fmt.Errorf("connection lost: %w", err))
	}
}

// login says who we are. The secret is fetched each time, so that a new one is found.
func (h *Handler) login() []natsgo.Option {
	if h.cfg.Secret == nil {
		return nil
	}
	secret := func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(h.life, connectTimeout)
		defer cancel()
		return h.cfg.Secret(ctx)
	}
	if h.cfg.User != "" {
		return []natsgo.Option{natsgo.UserInfoHandler(func() (string, string) {
			password, err := secret()
			if err != nil {
				h.cfg.OnError(err) // the server refuses what follows, and we try again
			}
			return h.cfg.User, string(password)
		})}
	}
	jwt := func() (string, error) {
		text, err := secret()
		if err != nil {
			return "", err
		}
		return nkeys.ParseDecoratedJWT(text)
	}
	sign := func(nonce []byte) ([]byte, error) {
		text, err := secret()
		if err != nil {
			return nil, err
		}
		key, err := nkeys.ParseDecoratedUserNKey(text)
		if err != nil {
			return nil, err
		}
		defer key.Wipe()
		return key.Sign(nonce)
	}
	return []natsgo.Option{natsgo.UserJWT(jwt, sign)}
}

// connected waits until there is a connection, or was one: that one comes back.
func (h *Handler) connected(ctx context.Context) error {
	h.connect.Do(func() { go h.dial() }) // Close waits for it
	select {
	case <-h.ready:
		if h.life.Err() != nil {
			return natsgo.ErrConnectionClosed
		}
		return nil
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		return cmp.Or(h.trouble, ctx.Err())
	}
}

// Look finds out whether the servers answer and a stream takes the subjects. NATS has
// no clock to show.
func (h *Handler) Look(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	if err := h.connected(ctx); err != nil {
		return time.Time{}, err
	}
	if !h.conn.IsConnected() {
		return time.Time{}, h.notConnected()
	}
	_, err := h.stream.StreamNameBySubject(ctx, h.cfg.Subject+".>")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return time.Time{}, fmt.Errorf("no stream takes %s.>", h.cfg.Subject)
	}
	return time.Time{}, nil // who may publish may not always ask about streams
}

// note keeps why there is no connection, for the errors of attempts.
func (h *Handler) note(err error) {
	h.mu.Lock()
	h.trouble = err
	h.mu.Unlock()
}

// notConnected says why.
func (h *Handler) notConnected() error {
	err := h.conn.LastError() // of a login; of a dial it says nothing
	if err == nil {
		h.mu.Lock()
		err = h.trouble
		h.mu.Unlock()
	}
	if err == nil {
		return errors.New("not connected")
	}
	return fmt.Errorf("not connected: %w", err)
}
