package nats

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
)

// tries is how many times the longest wait for an answer fits into an attempt, and
// pauseBetween how long nothing is sent after a failure.
const (
	tries        = 3
	pauseBetween = 100 * time.Millisecond
)

var (
	errLost   = errors.New("connection lost before the stream had answered")
	errSilent = errors.New("sent, no answer in time")
)

// Handle publishes f and waits for the stream's word. What a change of leader or a new
// connection cures is sent again within the attempt, as the stream drops what it has:
// else one server that goes would fail all that is in flight, and open the breaker.
func (h *Handler) Handle(ctx context.Context, f consumer.Forward) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	if err := h.connected(ctx); err != nil {
		return &consumer.AttemptError{Class: "network", Err: fmt.Errorf("connect: %w", err)}
	}
	msg := &natsgo.Msg{
		Subject: subject(h.cfg.Subject, f.Delivery.Source, f.Delivery.EventType),
		Header:  header(f.Forward), Data: f.Delivery.Body,
	}
	if len(msg.Subject) > longestSubject {
		return &consumer.AttemptError{Permanent: true, Err: fmt.Errorf("subject has %d bytes, more than %d", len(msg.Subject), longestSubject)}
	}
	id := messageID(h.cfg.Subject, f.Delivery)
	for silent := false; ; {
		ack, err := h.publish(ctx, msg, id)
		if err == nil {
			f.Report.Answer = answer(ack)
			return nil
		}
		failed, passes := h.judge(msg, err)
		if silent = silent || errors.Is(err, errSilent); silent && failed.Class != "timeout" {
			// Whatever is said now: what was sent before may be there.
			failed = &consumer.AttemptError{Class: "timeout", Err: fmt.Errorf("%w; and then: %w", errSilent, failed.Err)}
		}
		if passes {
			select {
			case <-time.After(pauseBetween):
				continue
			case <-ctx.Done():
			}
		}
		return failed
	}
}

// publish sends msg once.
func (h *Handler) publish(ctx context.Context, msg *natsgo.Msg, id string) (*jetstream.PubAck, error) {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	silent := time.AfterFunc(h.cfg.Timeout/tries, func() { cut(errSilent) })
	defer silent.Stop()
	h.mu.Lock()
	defer context.AfterFunc(h.unbroken, func() { cut(errLost) })()
	h.mu.Unlock()
	ack, err := h.stream.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	if err != nil && ctx.Err() != nil {
		if err = context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) {
			err = errSilent
		}
	}
	return ack, err
}

// answer is what the ledger keeps.
func answer(ack *jetstream.PubAck) []byte {
	text := fmt.Sprintf("stream %s, sequence %d", ack.Stream, ack.Sequence)
	if ack.Duplicate {
		text += ", which it had already"
	}
	return []byte(text)
}

// Errors of a stream.
const (
	messageTooLarge jetstream.ErrorCode = 10054
	headersTooLarge jetstream.ErrorCode = 10097
	idInProcess     jetstream.ErrorCode = 10158
)

// judge says what becomes of a message that nobody has taken, and whether sending it
// again soon may help. What a change of the cluster or of the stream cures is never
// permanent: blocked forwards would have to be replayed by hand.
func (h *Handler) judge(msg *natsgo.Msg, err error) (failed *consumer.AttemptError, passes bool) {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return &consumer.AttemptError{Permanent: true,
			Err: fmt.Errorf("publish %d bytes: the server takes %d with the headers", len(msg.Data), h.conn.MaxPayload())}, false
	case errors.As(err, &refused):
		return &consumer.AttemptError{
			Permanent: refused.ErrorCode == messageTooLarge || refused.ErrorCode == headersTooLarge,
			Err:       fmt.Errorf("stream refused: %w", refused),
		}, refused.ErrorCode == idInProcess
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return &consumer.AttemptError{Err: fmt.Errorf("no stream takes subject %s, or it has no leader at present", msg.Subject)}, true
	case errors.Is(err, errSilent):
		return &consumer.AttemptError{Class: "timeout", Err: err}, true
	case errors.Is(err, errLost):
		return &consumer.AttemptError{Class: "network", Err: err}, true
	case errors.Is(err, context.Canceled):
		return &consumer.AttemptError{Err: err}, false // cut off: the consumer knows why
	case h.conn.IsConnected():
		return &consumer.AttemptError{Err: fmt.Errorf("publish: %w", err)}, true
	default:
		return &consumer.AttemptError{Class: "network", Err: h.notConnected()}, true
	}
}

// header is what an app gets by HTTP, without what NATS takes for orders.
func header(f inbox.Forward) natsgo.Header {
	h := consumer.Header(f)
	for name := range h {
		if strings.HasPrefix(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "nats-") {
			delete(h, name)
		}
	}
	return natsgo.Header(http.Header(h))
}
