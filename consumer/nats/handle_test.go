package nats

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hooklatch/hooklatch/consumer"
)

func TestAMessageHasTheBytesAndTheHeadersOfTheDelivery(t *testing.T) {
	s := start(t, nil)
	hooks := stream(t, s, jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>"}})
	h := newHandler(t, Config{Servers: []string{address(s)}, Subject: "hooks"})
	f := forward("evt_1")
	f.Delivery.Body = []byte{0, 0xff, '\n', '{'}
	f.Delivery.Header = map[string][]string{
		"Content-Type": {"application/json"}, "X-Twice": {"a", "b"}, "Authorization": {"Bearer t"},
		"Connection": {"x-hop"}, "X-Hop": {"1"}, "Hooklatch-Tenant": {"forged"},
	}
	if err := handle(t, h, f); err != nil {
		t.Fatal(err)
	}
	if got := string(f.Report.Answer); got != "stream HOOKS, sequence 1" {
		t.Errorf("the ledger says %q", got)
	}
	m := messages(t, hooks)[0]
	if m.Subject != "hooks.shop.invoice.paid" || !bytes.Equal(m.Data, f.Delivery.Body) {
		t.Errorf("message %s %q", m.Subject, m.Data)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Twice": "a,b", "Hooklatch-Tenant": "acme", "Hooklatch-Delivery-Id": "evt_1",
		"Hooklatch-Event-Type": "invoice.paid", "Hooklatch-Attempt": "1", "Nats-Msg-Id": "hooks/acme/shop/evt_1",
		"Connection": "", "X-Hop": "",
	} {
		if got := strings.Join(m.Header[name], ","); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A header of the sender's that NATS obeys would delete what is in the stream, or have
// every message refused.
func TestASenderCannotGiveOrdersToTheStream(t *testing.T) {
	s := start(t, nil)
	hooks := stream(t, s, jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>"}, AllowRollup: true, AllowMsgTTL: true})
	h := newHandler(t, Config{Servers: []string{address(s)}, Subject: "hooks"})
	if err := handle(t, h, forward("1")); err != nil {
		t.Fatal(err)
	}
	f := forward("2")
	f.Delivery.Header = map[string][]string{
		"Nats-Rollup": {"all"}, "nats-ttl": {"1s"}, "NATS-EXPECTED-STREAM": {"other"}, "Nats-Msg-Id": {"hooks/acme/shop/1"},
	}
	if err := handle(t, h, f); err != nil {
		t.Fatal(err)
	}
	if all := messages(t, hooks); len(all) != 2 || len(all[1].Header["Nats-Rollup"])+len(all[1].Header["Nats-Ttl"]) > 0 {
		t.Errorf("%d messages, the last with %v", len(all), all[len(all)-1].Header)
	}
}

func TestAForwardThatComesAgainStandsInTheStreamOnce(t *testing.T) {
	s := start(t, nil)
	hooks := stream(t, s, jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>", "other.>"}})
	h := newHandler(t, Config{Servers: []string{address(s)}, Subject: "hooks"})
	again := forward("1")
	for _, f := range []consumer.Forward{forward("1"), again} {
		if err := handle(t, h, f); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(again.Report.Answer); !strings.Contains(got, "had already") {
		t.Errorf("the ledger says %q", got)
	}
	// The same id of another tenant, of another source and for another destination is
	// another message.
	for _, change := range []func(*consumer.Forward){
		func(f *consumer.Forward) { f.Delivery.Tenant = "globex" },
		func(f *consumer.Forward) { f.Delivery.Source = "billing" },
		func(f *consumer.Forward) { f.Delivery.Tenant, f.Delivery.DeliveryID = "acme/shop", "shop/1" },
	} {
		f := forward("1")
		change(&f)
		if err := handle(t, h, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := handle(t, newHandler(t, Config{Servers: []string{address(s)}, Subject: "other"}), forward("1")); err != nil {
		t.Fatal(err)
	}
	if n := len(messages(t, hooks)); n != 5 {
		t.Errorf("%d messages, want 5", n)
	}
}

func TestWhatBecomesOfAMessageThatIsNotTaken(t *testing.T) {
	s := start(t, func(o *server.Options) { o.MaxPayload = 4096 })
	stream(t, s, jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small.>"}, MaxMsgSize: 1024})
	stream(t, s, jetstream.StreamConfig{Name: "FULL", Subjects: []string{"full.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	for _, c := range []struct {
		name, subject string
		size          int
		permanent     bool
		says          string
	}{
		{"larger than the server takes", "small", 4096, true, "the server takes 4096"},
		{"larger than the stream takes", "small", 2000, true, "message size exceeds maximum"},
		{"a stream that is full", "full", 1, false, "maximum messages exceeded"},
		{"a subject without a stream", "nowhere", 1, false, "no stream takes subject nowhere.shop.invoice.paid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHandler(t, Config{Servers: []string{address(s)}, Subject: c.subject})
			if c.subject == "full" {
				if err := handle(t, h, forward("first")); err != nil {
					t.Fatal(err)
				}
			}
			f := forward("1")
			f.Delivery.Body = make([]byte, c.size)
			var failed *consumer.AttemptError
			if err := handle(t, h, f); !errors.As(err, &failed) || failed.Permanent != c.permanent || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v %v", failed, err)
			}
			if err := handle(t, h, forward("2")); c.permanent && err != nil {
				t.Errorf("the next one: %v", err)
			}
		})
	}
}

// Nobody listens, and then somebody does: the handler finds the server by itself, and
// nothing that failed before is sent then.
func TestAServerThatComesLaterIsFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	h := newHandler(t, Config{Servers: []string{l.Addr().String()}, Subject: "hooks"})
	var failed *consumer.AttemptError
	if err := handle(t, h, forward("1")); !errors.As(err, &failed) || failed.Class != "network" || failed.Permanent {
		t.Fatalf("%+v %v", failed, err)
	}
	if _, err := h.Look(t.Context()); err == nil {
		t.Error("a look finds a server where none is")
	}
	s := start(t, func(o *server.Options) { o.Port = l.Addr().(*net.TCPAddr).Port })
	if _, err := h.Look(t.Context()); err == nil {
		eventually(t, "a look that misses the stream", func() bool { _, err := h.Look(t.Context()); return err != nil })
	}
	hooks := stream(t, s, jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>"}})
	eventually(t, "a message", func() bool { return handle(t, h, forward("2")) == nil })
	if _, err := h.Look(t.Context()); err != nil {
		t.Error(err)
	}
	if all := messages(t, hooks); len(all) != 1 {
		t.Errorf("%d messages, want the one that was accepted", len(all))
	}
}

// Somebody listens who is no stream, and answers only when he is asked to.
func TestNoAnswerIsATimeoutAndALostConnectionIsNot(t *testing.T) {
	s := start(t, nil)
	swallow, err := natsgo.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer swallow.Close()
	got := make(chan *natsgo.Msg, 100)
	if _, err := swallow.Subscribe("hooks.>", func(m *natsgo.Msg) { got <- m }); err != nil {
		t.Fatal(err)
	}
	if err := swallow.Flush(); err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, Config{Servers: []string{address(s)}, Subject: "hooks", Timeout: 300 * time.Millisecond})
	var failed *consumer.AttemptError
	if err := handle(t, h, forward("1")); !errors.As(err, &failed) || failed.Class != "timeout" {
		t.Errorf("%+v %v", failed, err)
	}
	for len(got) > 0 {
		<-got
	}

	h = newHandler(t, Config{Servers: []string{address(s)}, Subject: "hooks", Timeout: 3 * time.Second})
	ended := make(chan error, 1)
	attempt := func() { ended <- h.Handle(context.Background(), forward("1")) }
	go attempt()
	first, again := <-got, <-got
	if first.Header.Get("Nats-Msg-Id") != again.Header.Get("Nats-Msg-Id") {
		t.Error("what is sent again within an attempt has another id")
	}
	if err := again.Respond([]byte(`{"stream":"HOOKS","seq":7}`)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("answered the second time: %v", err)
	}

	// What was sent before may be there, whatever is said of it the second time.
	go attempt()
	<-got
	if err := (<-got).Respond([]byte(`{"error":{"code":503,"err_code":10008,"description":"not now"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.As(err, &failed) || failed.Class != "timeout" || !strings.Contains(failed.Error(), "not now") {
		t.Errorf("%+v %v", failed, err)
	}

	go attempt()
	<-got
	stop(s)
	if err := <-ended; !errors.As(err, &failed) || failed.Class != "network" {
		t.Errorf("%+v %v", failed, err)
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	came := make(chan net.Conn, 1)
	go func() {
		if c, err := silent.Accept(); err == nil {
			came <- c
		}
	}()
	h, err := New(Config{Servers: []string{silent.Addr().String()}, Subject: "hooks", Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := handle(t, h, forward("1")); err == nil {
		t.Error("accepted by nobody")
	}
	c := <-came
	go func() { _, _ = io.Copy(io.Discard, c); c.Close() }()
	h.Close()
	h.Close()
	if err := handle(t, h, forward("1")); err == nil {
		t.Error("accepted after Close")
	}
}

// What is connected to is judged, also where the cluster names it.
func TestT14_ForbiddenAddressesAreNotConnectedTo(t *testing.T) {
	for _, server := range []string{"169.254.169.254:4222", "[::ffff:169.254.169.254]:4222", "224.0.0.1:4222"} {
		if _, err := New(Config{Servers: []string{server}, Subject: "hooks"}); err == nil {
			t.Errorf("%s: taken", server)
		}
	}
	s := start(t, func(o *server.Options) { o.ClientAdvertise = "169.254.169.254:4222" })
	h := newHandler(t, Config{Servers: []string{address(s)}, Subject: "hooks", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	_ = handle(t, h, forward("1"))
	if _, err := (connector{h}).Dial("tcp", "169.254.169.254:4222"); err == nil || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("%v", err)
	}
}

func TestSubjectsAndIDsOfNamesThatMeanSomethingInNATS(t *testing.T) {
	for _, c := range []struct{ source, eventType, want string }{
		{"shop", "invoice.paid", "p.shop.invoice.paid"},
		{"shop", "", "p.shop._"},
		{"shop.eu", "a", "p.shop%2Eeu.a"},
		{"shop", "*", "p.shop.%2A"},
		{"shop", ">", "p.shop.%3E"},
		{"shop", "a.>", "p.shop.a.%3E"},
		{"shop", "a b\r\nPUB x", "p.shop.a%20b%0D%0APUB%20x"},
		{"shop", "a..b", "p.shop.a%2E%2Eb"},
		{"shop", ".", "p.shop.%2E"},
		{"shop", "100%", "p.shop.100%25"},
		{"shop", "bezahlt.grün", "p.shop.bezahlt.gr%C3%BCn"},
	} {
		if got := subject("p", c.source, c.eventType); got != c.want {
			t.Errorf("%q %q: %q, want %q", c.source, c.eventType, got, c.want)
		}
	}
	a, b := forward("3").Delivery, forward("b/3").Delivery
	a.Source, b.Source = "a/b", "a"
	if messageID("p", a) == messageID("p", b) {
		t.Error("two deliveries have one id")
	}
}

func TestNewRefuses(t *testing.T) {
	ok := Config{Servers: []string{"127.0.0.1:4222"}, Subject: "hooks.eu"}
	h, err := New(ok)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	for name, change := range map[string]func(*Config){
		"no server":              func(c *Config) { c.Servers = nil },
		"a server without port":  func(c *Config) { c.Servers = []string{"localhost"} },
		"no subject":             func(c *Config) { c.Subject = "" },
		"a wildcard":             func(c *Config) { c.Subject = "hooks.*" },
		"an empty token":         func(c *Config) { c.Subject = "hooks." },
		"a subject of NATS":      func(c *Config) { c.Subject = "$JS.API" },
		"a user without secret":  func(c *Config) { c.User = "u" },
		"a negative timeout":     func(c *Config) { c.Timeout = -1 },
		"an endless subject":     func(c *Config) { c.Subject = strings.Repeat("a", 200) },
		"a broken address range": func(c *Config) { c.Addresses = []netip.Prefix{{}} },
	} {
		cfg := ok
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
