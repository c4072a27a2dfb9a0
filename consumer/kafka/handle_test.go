package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/hooklatch/hooklatch/consumer"
)

func TestARecordHasTheBytesTheHeadersAndTheKeyOfTheDelivery(t *testing.T) {
	c := start(t)
	h := newHandler(t, c, nil)
	f := forward("evt_1")
	f.Delivery.Body = []byte{0, 0xff, '\n', '{'}
	f.Delivery.ResourceType, f.Delivery.ResourceID = "order", "4/711"
	f.Delivery.Header = map[string][]string{
		"Content-Type": {"application/json"}, "__TypeId__": {"com.example.Gadget"}, "Connection": {"x-hop"}, "X-Hop": {"1"},
		"Hooklatch-Tenant": {"forged"},
	}
	if err := handle(t, h, f); err != nil {
		t.Fatal(err)
	}
	empty := forward("evt_2")
	empty.Delivery.Body = nil
	if err := handle(t, h, empty); err != nil {
		t.Fatal(err)
	}
	for _, r := range records(t, c, "hooks") {
		if header(r, "Hooklatch-Delivery-Id") == "evt_2" {
			if string(r.Key) != "acme/shop/evt_2" || r.Value == nil {
				t.Errorf("record %q %v", r.Key, r.Value)
			}
			continue
		}
		if want := fmt.Sprintf("topic hooks, partition %d, offset %d", r.Partition, r.Offset); string(f.Report.Answer) != want {
			t.Errorf("the ledger says %q, want %q", f.Report.Answer, want)
		}
		if string(r.Key) != "acme/shop/order/4%2F711" || !bytes.Equal(r.Value, f.Delivery.Body) {
			t.Errorf("record %q %q", r.Key, r.Value)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Hooklatch-Tenant": "acme", "Hooklatch-Event-Type": "invoice.paid", "Hooklatch-Attempt": "1",
			"X-Hop": "", "Connection": "", "__TypeId__": "", "__typeid__": "",
		} {
			if got := header(r, name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

// Connections break before a broker has written, answers that say that it may have are
// repeated, leaders move: every record stands in the log once, those of one resource in
// their order.
func TestWhatTheClientSendsAgainStandsInTheLogOnce(t *testing.T) {
	c := start(t)
	h := newHandler(t, c, func(cfg *Config) { cfg.Timeout = 15 * time.Second })
	var asked atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		switch asked.Add(1) % 20 {
		case 7:
			return nil, errors.New("the connection breaks"), true
		case 13:
			go c.ShufflePartitionLeaders()
		}
		return nil, nil, false
	})
	// Written, and not said so.
	unsaid := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "hooks", Err: kerr.RequestTimedOut, Count: 5,
		When: func(kmsg.Request) bool { return asked.Load()%10 == 3 }})
	const resources, revisions = 12, 12
	var lanes sync.WaitGroup
	for n := range resources {
		lanes.Go(func() {
			for revision := range revisions {
				f := forward(fmt.Sprintf("%d %d", n, revision))
				f.Delivery.ResourceType, f.Delivery.ResourceID = "order", fmt.Sprint(n)
				if err := handle(t, h, f); err != nil {
					t.Errorf("resource %d, revision %d: %v", n, revision, err)
				}
			}
		})
	}
	lanes.Wait()
	if asked.Load() < 20 || unsaid.Hits() == 0 {
		t.Fatalf("void: %d requests, %d of them with an answer in doubt", asked.Load(), unsaid.Hits())
	}
	all := records(t, c, "hooks")
	next := map[int]int{}
	for _, r := range all {
		var n, revision int
		if _, err := fmt.Sscan(header(r, "Hooklatch-Delivery-Id"), &n, &revision); err != nil {
			t.Fatal(err)
		}
		if revision != next[n] {
			t.Errorf("resource %d: revision %d where %d belongs", n, revision, next[n])
		}
		next[n] = revision + 1
	}
	if len(all) != resources*revisions {
		t.Errorf("%d records in the log, want %d", len(all), resources*revisions)
	}
}

// A record whose attempt is over does not come later, behind those of another process.
func TestARecordIsGivenUpWithItsAttempt(t *testing.T) {
	c := start(t)
	h := newHandler(t, c, func(cfg *Config) { cfg.Timeout = time.Second })
	if err := handle(t, h, forward("0")); err != nil {
		t.Fatal(err)
	}
	var silent atomic.Bool
	silent.Store(true)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, nil, silent.Load()
	})
	var failed *consumer.AttemptError
	if err := handle(t, h, forward("1")); !errors.As(err, &failed) || failed.Class != "timeout" || failed.Permanent {
		t.Fatalf("%+v %v", failed, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Handle(ctx, forward("2")); err == nil {
		t.Error("accepted after its end")
	}
	silent.Store(false)
	for handle(t, h, forward("3")) != nil {
	}
	var got []string
	for _, r := range records(t, c, "hooks") {
		got = append(got, header(r, "Hooklatch-Delivery-Id"))
	}
	if text := strings.Join(got, " "); text != "0 3" && text != "3 0" {
		t.Errorf("records %s", text)
	}
}

func TestWhatBecomesOfARecordThatIsNotTaken(t *testing.T) {
	c := start(t)
	if err := c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "2000"}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, tc := range []struct {
		name      string
		change    func(*Config)
		size      int
		permanent bool
		class     string
		says      string
	}{
		{"larger than the topic takes", func(cfg *Config) { cfg.Topic = "small" }, 2000, true, "", "topic small takes 2000"},
		{"no such topic", func(cfg *Config) { cfg.Topic = "nowhere" }, 1, false, "", "no topic nowhere"},
		{"nobody listens", func(cfg *Config) { cfg.Brokers, cfg.Timeout = []string{l.Addr().String()}, time.Second }, 1, false, "network", "refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHandler(t, c, tc.change)
			f := forward("1")
			f.Delivery.Body = make([]byte, tc.size)
			var failed *consumer.AttemptError
			if err := handle(t, h, f); !errors.As(err, &failed) || failed.Permanent != tc.permanent || failed.Class != tc.class || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%+v %v", failed, err)
			}
			if _, err := h.Look(t.Context()); (err == nil) != tc.permanent {
				t.Errorf("a look says %v", err)
			}
		})
	}
}

// Records that fit alone are not refused because they came together.
func TestManySmallRecordsFitATopicThatTakesLittle(t *testing.T) {
	c := start(t)
	if err := c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "2000"}); err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, c, func(cfg *Config) { cfg.Topic = "small" })
	var together sync.WaitGroup
	for i := range 50 {
		together.Go(func() {
			f := forward(fmt.Sprint(i))
			f.Delivery.Body = fmt.Appendf(nil, "%0900d", i*7919)
			if err := handle(t, h, f); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	if n := len(records(t, c, "small")); n != 50 {
		t.Errorf("%d records", n)
	}
}

func TestAPasswordThatIsMendedIsFound(t *testing.T) {
	c := start(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "hooklatch", "right"))
	var password atomic.Value
	password.Store("wrong")
	h := newHandler(t, c, func(cfg *Config) {
		cfg.User, cfg.Timeout = "hooklatch", time.Second
		cfg.Secret = func(context.Context) ([]byte, error) { return []byte(password.Load().(string)), nil }
	})
	if err := handle(t, h, forward("1")); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Fatalf("%v", err)
	}
	password.Store("right")
	for deadline := time.Now().Add(10 * time.Second); handle(t, h, forward("1")) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("no record within 10s")
		}
	}
	login := kgo.SASL(scram.Auth{User: "hooklatch", Pass: "right"}.AsSha512Mechanism())
	if n := len(records(t, c, "hooks", login)); n != 1 {
		t.Errorf("%d records", n)
	}
}

func TestT14_ForbiddenAddressesAreNotConnectedTo(t *testing.T) {
	ok := Config{Brokers: []string{"127.0.0.1:9092"}, Topic: "hooks"}
	for _, broker := range []string{"169.254.169.254:9092", "[::ffff:169.254.169.254]:9092", "224.0.0.1:9092"} {
		cfg := ok
		cfg.Brokers = []string{broker}
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: taken", broker)
		}
	}
	// A broker that names such an address.
	c := start(t)
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		answer := r.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = 0, "169.254.169.254", 9092
		answer.Brokers = append(answer.Brokers, b)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr("hooks")
		topic.Partitions = []kmsg.MetadataResponseTopicPartition{kmsg.NewMetadataResponseTopicPartition()}
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	h := newHandler(t, c, func(cfg *Config) { cfg.Timeout = 2 * time.Second })
	if err := handle(t, h, forward("1")); err == nil || !strings.Contains(err.Error(), "metadata service") {
		t.Errorf("%v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	secret := func(context.Context) ([]byte, error) { return nil, nil }
	ok := Config{Brokers: []string{"127.0.0.1:9092"}, Topic: "hooks.eu", User: "u", Secret: secret}
	h, err := New(ok)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	for name, change := range map[string]func(*Config){
		"no broker":              func(c *Config) { c.Brokers = nil },
		"a broker without port":  func(c *Config) { c.Brokers = []string{"localhost"} },
		"no topic":               func(c *Config) { c.Topic = "" },
		"a topic with a slash":   func(c *Config) { c.Topic = "a/b" },
		"a topic of Kafka":       func(c *Config) { c.Topic = "__consumer_offsets" },
		"an endless topic":       func(c *Config) { c.Topic = strings.Repeat("a", 250) },
		"a user without secret":  func(c *Config) { c.Secret = nil },
		"a secret without user":  func(c *Config) { c.User = "" },
		"an unknown mechanism":   func(c *Config) { c.Mechanism = "scram-md5" },
		"a negative timeout":     func(c *Config) { c.Timeout = -1 },
		"a broken address range": func(c *Config) { c.Addresses = []netip.Prefix{{}} },
	} {
		cfg := ok
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
