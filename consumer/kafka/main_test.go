package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts brokers that have topic hooks with 4 partitions.
func start(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(4, "hooks")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newHandler(t *testing.T, c *kfake.Cluster, change func(*Config)) *Handler {
	t.Helper()
	cfg := Config{Brokers: c.ListenAddrs(), Topic: "hooks", Timeout: 5 * time.Second}
	if change != nil {
		change(&cfg)
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

func handle(t *testing.T, h *Handler, f consumer.Forward) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return h.Handle(ctx, f)
}

// records reads what a topic holds, each partition in its order.
func records(t *testing.T, c *kfake.Cluster, topic string, options ...kgo.Opt) []*kgo.Record {
	t.Helper()
	want := int64(0)
	for _, p := range c.PartitionInfos(topic) {
		want += p.HighWatermark
	}
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var all []*kgo.Record
	for int64(len(all)) < want {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
