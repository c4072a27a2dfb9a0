package nats

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
)

func TestMain(m *testing.M) {
	// The embedded server leaves some of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"))
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20s: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// start starts a server with JetStream on free ports.
func start(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { stop(s) })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("void: the server did not start")
	}
	return s
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// cluster starts three servers that replicate.
func cluster(t *testing.T) []*server.Server {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var all []*server.Server
	for i, port := range ports {
		all = append(all, start(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("n%d", i)
			o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}
			o.Routes = routes
		}))
	}
	eventually(t, "a leader of the cluster", func() bool {
		leaders := 0
		for _, s := range all {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(all) {
				leaders++
			}
		}
		return leaders == 1
	})
	return all
}

// stream makes one, as its operator would.
func stream(t *testing.T, s *server.Server, cfg jetstream.StreamConfig, options ...natsgo.Option) jetstream.Stream {
	t.Helper()
	made, err := operator(t, s, options...).CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func operator(t *testing.T, s *server.Server, options ...natsgo.Option) jetstream.JetStream {
	t.Helper()
	conn, err := natsgo.Connect(s.ClientURL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func address(s *server.Server) string { return s.Addr().String() }

func newHandler(t *testing.T, cfg Config) *Handler {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func forward(id string) consumer.Forward {
	return consumer.Forward{
		Forward: inbox.Forward{ID: 1, Attempt: 1, Delivery: inbox.Delivery{
			Tenant: "acme", Source: "shop", DeliveryID: id, EventType: "invoice.paid",
			Body: []byte(`{"id":"` + id + `"}`), Header: map[string][]string{},
		}},
		Report: &consumer.Report{},
	}
}

// messages reads a stream from its beginning.
func messages(t *testing.T, s jetstream.Stream) []*jetstream.RawStreamMsg {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq != 0 && seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func handle(t *testing.T, h *Handler, f consumer.Forward) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return h.Handle(ctx, f)
}
