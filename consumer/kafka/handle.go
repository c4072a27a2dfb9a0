package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
)

const (
	produceKey    = int16(kmsg.Produce)
	smallestBatch = 512       // that the client allows
	usualBatch    = 1_000_012 // of a topic that says nothing
	largestBatch  = 64 << 20
	recordFrame   = 128 // bytes around a record that is alone in its batch, and a little more
	headerFrame   = 10  // bytes around a header, at most
)

// Handle produces f once and waits until its replicas have it.
func (h *Handler) Handle(ctx context.Context, f consumer.Forward) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	before := h.writes.Load()
	if err := h.prepare(ctx); err != nil {
		return h.judge(ctx, before, err)
	}
	r := record(f.Forward)
	if n, most := size(r), int(h.largest.Load()); n > most {
		return &consumer.AttemptError{Permanent: true,
			Err: fmt.Errorf("record of %d bytes, and topic %s takes %d", n, h.cfg.Topic, most)}
	}
	// The client may keep hold of the record beyond ctx; we do not wait for that.
	produced := make(chan error, 1)
	h.client.Produce(ctx, r, func(_ *kgo.Record, err error) { produced <- err })
	var err error
	select {
	case err = <-produced:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return h.judge(ctx, before, err)
	}
	f.Report.Answer = fmt.Appendf(nil, "topic %s, partition %d, offset %d", r.Topic, r.Partition, r.Offset)
	return nil
}

// judge says what becomes of a record that is not in the log, or that nobody knows of.
// What a change of the cluster or of the topic cures is tried again: blocked forwards
// would have to be replayed by hand.
func (h *Handler) judge(ctx context.Context, before int64, err error) error {
	var answered *kerr.Error
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return &consumer.AttemptError{Err: fmt.Errorf("no topic %s", h.cfg.Topic)}
	case errors.As(err, &answered):
		// Too large may also be the batch, of which this was one record.
		return &consumer.AttemptError{Permanent: answered == kerr.InvalidRecord, Err: fmt.Errorf("broker refused: %w", err)}
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && h.writes.Load() != before:
		return &consumer.AttemptError{Class: "timeout", Err: errors.New("sent, no answer in time")}
	case ctx.Err() == context.Canceled:
		return &consumer.AttemptError{Err: err} // cut off: the consumer knows why
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		err = h.broken
	}
	return &consumer.AttemptError{Class: "network", Err: fmt.Errorf("produce: %w", err)}
}

// prepare finds out, once, whether the topic exists and how much it takes: a client
// that makes larger batches is refused for records that are small.
func (h *Handler) prepare(ctx context.Context) error {
	if h.largest.Load() > 0 {
		return nil
	}
	select {
	case h.preparing <- struct{}{}:
		defer func() { <-h.preparing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if h.largest.Load() > 0 {
		return nil
	}
	about := kmsg.NewDescribeConfigsRequestResource()
	about.ResourceType, about.ResourceName = kmsg.ConfigResourceTypeTopic, h.cfg.Topic
	about.ConfigNames = []string{"max.message.bytes"}
	ask := kmsg.NewPtrDescribeConfigsRequest()
	ask.Resources = append(ask.Resources, about)
	answer, err := ask.RequestWith(ctx, h.client)
	if err != nil {
		return err
	}
	most := usualBatch
	for _, r := range answer.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); errors.Is(err, kerr.UnknownTopicOrPartition) {
			return err
		} // any other: who may write may not always read this
		for _, c := range r.Configs {
			if c.Value == nil || c.Name != "max.message.bytes" {
				continue
			}
			if n, err := strconv.Atoi(*c.Value); err == nil {
				most = min(max(n, smallestBatch), largestBatch)
			}
		}
	}
	h.largest.Store(int32(most))
	return nil
}

// Look finds out whether a broker answers and the topic exists. Kafka has no clock to
// show.
func (h *Handler) Look(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	err := h.client.Ping(ctx)
	if err == nil {
		err = h.prepare(ctx)
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		err = fmt.Errorf("no topic %s", h.cfg.Topic)
	}
	return time.Time{}, err
}

// record is what f is in the log.
func record(f inbox.Forward) *kgo.Record {
	r := &kgo.Record{Key: []byte(key(f.Delivery)), Value: f.Delivery.Body}
	if r.Value == nil {
		r.Value = []byte{} // no value at all deletes the key from a compacted topic
	}
	header := consumer.Header(f)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if strings.Contains(name, "_") {
			continue
		}
		for _, v := range header[name] {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(v)})
		}
	}
	return r
}

// key keeps the records of a resource in one partition. Ids of resources and of
// deliveries are unique by tenant and source only.
func key(d inbox.Delivery) string {
	parts := []string{d.Tenant, d.Source, d.ResourceType, d.ResourceID}
	if d.ResourceID == "" {
		parts = []string{d.Tenant, d.Source, d.DeliveryID}
	}
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

// size is what r takes at most where it is alone in its batch.
func size(r *kgo.Record) int {
	n := recordFrame + len(r.Key) + len(r.Value)
	for _, header := range r.Headers {
		n += headerFrame + len(header.Key) + len(header.Value)
	}
	return n
}
