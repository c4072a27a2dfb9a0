// Package kafka hands forwards to a topic of Apache Kafka, or of anything that speaks
// its protocol. It is a consumer.Handler; the topic must exist.
//
// # What the topic gets
//
// The value is the body as it was received. The headers are those that an app gets by
// HTTP, one for each value; those with a "_" in their name are left out, because
// frameworks that read topics take some of them for orders. The key is
//
//	TENANT/SOURCE/TYPE/ID        of the resource, as in acme/geo/order/4711
//	TENANT/SOURCE/DELIVERY-ID    where the delivery names none
//
// each part written as in URLs. One key stays in one partition, and so in order, as
// long as the number of partitions stays the same.
//
// # What is promised, and where it stops
//
// A forward is accepted after all in-sync replicas have the record. The producer is
// idempotent: what it sends again by itself, over a broken connection or to a new
// leader, stands in the log once. An attempt that ends without an answer is another
// matter: its record may stand there, or may come still, and the next attempt is a new
// record to Kafka. Who reads the topic tells them by the header Hooklatch-Delivery-Id.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/hooklatch/hooklatch/consumer"
)

// Config is what a Handler is told. Brokers and Topic are demanded.
type Config struct {
	// Brokers are host:port of some brokers of the cluster; they name the others.
	Brokers []string
	// Topic is where records go.
	Topic string
	// Timeout bounds an attempt. Defaults to 10 seconds.
	Timeout time.Duration
	// TLS is how the brokers are checked. nil: without TLS.
	TLS *tls.Config
	// User is who logs in. Empty: nobody does.
	User string
	// Secret fetches the password at each login. Demanded with User.
	Secret func(ctx context.Context) ([]byte, error)
	// Mechanism is how the password is shown: scram-sha-512, scram-sha-256 or plain.
	// Defaults to scram-sha-512.
	Mechanism string
	// Addresses are the only ones that are connected to, also when a broker names others.
	// Empty: all but those that no broker has, as with consumer.Forwarder.
	Addresses []netip.Prefix
}

const (
	longestTopic = 249
	answerLate   = 5 * time.Second // beyond Timeout, after which a connection is given up
)

// Handler hands forwards to a topic.
type Handler struct {
	cfg    Config
	client *kgo.Client

	preparing chan struct{} // holds one
	largest   atomic.Int32  // bytes of a batch that the topic takes; 0: not known yet

	writes atomic.Int64 // of produce requests
	mu     sync.Mutex
	broken error // of the last connecting; nil: it went well
}

// New makes a Handler. It connects at the first use. Close it when it is no longer
// used.
func New(cfg Config) (*Handler, error) {
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("kafka: Brokers are demanded")
	}
	if err := checkTopic(cfg.Topic); err != nil {
		return nil, err
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("kafka: Timeout %v is negative", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	dialer, err := consumer.NewDialer(cfg.Addresses)
	if err != nil {
		return nil, err
	}
	for _, broker := range cfg.Brokers {
		host, _, err := net.SplitHostPort(broker)
		if err != nil {
			return nil, fmt.Errorf("kafka: broker %q is no host:port", broker)
		}
		if err := dialer.Check(host); err != nil {
			return nil, fmt.Errorf("kafka: broker %s: %w", broker, err)
		}
	}
	dial := dialer.DialContext
	if cfg.TLS != nil {
		dial = dialTLS(dialer, cfg.TLS)
	}
	login, err := cfg.login()
	if err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg, preparing: make(chan struct{}, 1)}
	options := []kgo.Opt{
		kgo.ClientID("hooklatch"), kgo.DisableClientMetrics(),
		kgo.SeedBrokers(cfg.Brokers...), kgo.DefaultProduceTopic(cfg.Topic), kgo.Dialer(dial),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// A record is given up with its attempt. One that stayed behind would come after
		// the later ones that another process has handed over meanwhile.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.ProducerLinger(0), // those that wait for an answer are batch enough
		kgo.ProducerBatchMaxBytesFn(func(string) int32 { return max(h.largest.Load(), smallestBatch) }),
		kgo.ProduceRequestTimeout(max(cfg.Timeout, time.Second)), kgo.RequestTimeoutOverhead(answerLate),
		kgo.WithHooks(hooks{h}),
	}
	if login != nil {
		options = append(options, kgo.SASL(login))
	}
	if h.client, err = kgo.NewClient(options...); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return h, nil
}

// Close ends the connections. Handlers that run return.
func (h *Handler) Close() { h.client.Close() }

func checkTopic(topic string) error {
	switch {
	case topic == "":
		return errors.New("kafka: Topic is demanded")
	case len(topic) > longestTopic:
		return fmt.Errorf("kafka: Topic has %d bytes, more than %d", len(topic), longestTopic)
	case topic == "." || topic == "..", strings.HasPrefix(topic, "__"):
		return fmt.Errorf("kafka: Topic %q is one of Kafka itself", topic)
	}
	for _, c := range []byte(topic) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("kafka: Topic %q is not made of A-Z a-z 0-9 . _ -", topic)
		}
	}
	return nil
}

// dialTLS is what kgo does with a tls.Config, over a connection of ours.
func dialTLS(dialer *consumer.Dialer, cfg *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		named := cfg.Clone()
		if named.ServerName == "" {
			named.ServerName, _, _ = net.SplitHostPort(address)
		}
		conn := tls.Client(plain, named)
		if err := conn.HandshakeContext(ctx); err != nil {
			plain.Close()
			return nil, err
		}
		return conn, nil
	}
}

// login fetches the password each time, so that a new one is found.
func (cfg Config) login() (sasl.Mechanism, error) {
	switch {
	case cfg.User == "" && cfg.Secret == nil && cfg.Mechanism == "":
		return nil, nil
	case cfg.User == "" || cfg.Secret == nil:
		return nil, errors.New("kafka: User and Secret go together")
	}
	user, secret := cfg.User, cfg.Secret
	auth := func(ctx context.Context) (scram.Auth, error) {
		password, err := secret(ctx)
		return scram.Auth{User: user, Pass: string(password)}, err
	}
	switch cfg.Mechanism {
	case "", "scram-sha-512":
		return scram.Sha512(auth), nil
	case "scram-sha-256":
		return scram.Sha256(auth), nil
	case "plain":
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			password, err := secret(ctx)
			return plain.Auth{User: user, Pass: string(password)}, err
		}), nil
	default:
		return nil, fmt.Errorf("kafka: Mechanism %q is none of scram-sha-512, scram-sha-256 and plain", cfg.Mechanism)
	}
}

// hooks watch what the client does by itself.
type hooks struct{ h *Handler }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (w hooks) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	w.h.mu.Lock()
	w.h.broken = err
	w.h.mu.Unlock()
}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (w hooks) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, written int, _, _ time.Duration, _ error) {
	if key == produceKey && written > 0 {
		w.h.writes.Add(1)
	}
}
