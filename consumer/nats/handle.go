package nats

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
)

var errLost = errors.New("connection lost before the stream had answered")

// Handle publishes f once and waits for the stream's word.
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
	waiting, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	h.mu.Lock()
	defer context.AfterFunc(h.unbroken, func() { cut(errLost) })()
	h.mu.Unlock()

	id := messageID(h.cfg.Subject, f.Delivery)
	ack, err := h.stream.PublishMsg(waiting, msg, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	if err != nil {
		if context.Cause(waiting) == errLost {
			err = errLost
		}
		return h.judge(ctx, msg, err)
	}
	answer := fmt.Sprintf("stream %s, sequence %d", ack.Stream, ack.Sequence)
	if ack.Duplicate {
		answer += ", which it had already"
	}
	f.Report.Answer = []byte(answer)
	return nil
}

// Errors of a stream that its message is the reason for.
const (
	messageTooLarge jetstream.ErrorCode = 10054
	headersTooLarge jetstream.ErrorCode = 10097
)

// judge says what becomes of a message that nobody has taken. What a change of the
// cluster or of the stream cures is tried again: blocked forwards would have to be
// replayed by hand.
func (h *Handler) judge(ctx context.Context, msg *natsgo.Msg, err error) error {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return &consumer.AttemptError{Permanent: true,
			Err: fmt.Errorf("publish %d bytes: the server takes %d with the headers", len(msg.Data), h.conn.MaxPayload())}
	case errors.As(err, &refused):
		return &consumer.AttemptError{
			Permanent: refused.ErrorCode == messageTooLarge || refused.ErrorCode == headersTooLarge,
			Err:       fmt.Errorf("stream refused: %w", refused),
		}
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return &consumer.AttemptError{Err: fmt.Errorf("no stream takes subject %s, or it has no leader at present", msg.Subject)}
	case errors.Is(err, errLost):
		return &consumer.AttemptError{Class: "network", Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = errors.New("sent, no answer in time")
		if last := h.conn.LastError(); last != nil {
			err = fmt.Errorf("%w; the connection's last trouble: %w", err, last)
		}
		return &consumer.AttemptError{Class: "timeout", Err: err}
	case ctx.Err() != nil:
		return &consumer.AttemptError{Err: err} // cut off: the consumer knows why
	case h.conn.IsConnected():
		return &consumer.AttemptError{Err: fmt.Errorf("publish: %w", err)}
	default:
		return &consumer.AttemptError{Class: "network", Err: h.notConnected()}
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
