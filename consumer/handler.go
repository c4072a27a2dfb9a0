package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// Handler takes over what a destination gets.
type Handler interface {
	// Handle hands f over and returns nil once it was taken. An [AttemptError]
	// says what becomes of the forward; any other error means: try again. A panic
	// fails this attempt and nothing else.
	//
	// The same forward may come again, also after nil, so Handle must be
	// idempotent by f.Delivery.DeliveryID. It must return soon after ctx is done,
	// and must not change the delivery's body or headers.
	Handle(ctx context.Context, f Forward) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, f Forward) error

// Handle calls h.
func (h HandlerFunc) Handle(ctx context.Context, f Forward) error { return h(ctx, f) }

// Forward is one attempt of a claimed forward.
type Forward struct {
	inbox.Forward

	// Report is what the ledger keeps beside the outcome. A Handler may fill it;
	// it is never nil.
	Report *Report
}

// Report is what a destination said.
type Report struct {
	Status int    // HTTP status; 0: none
	Answer []byte // the start of the answer's body; the first 4 KiB are kept
}

// AttemptError is a failed attempt whose Handler knows more than that.
type AttemptError struct {
	// Class is the kind of the attempt's end: 3xx, 4xx, 429, 5xx, timeout,
	// network, error. Defaults to the class of Status, or to error.
	Class string
	// Status is the HTTP status of the answer; 0: none.
	Status int
	// RetryAfter is how long the destination wants to be left alone; 0: it did
	// not say. With status 429 or 503 the attempt then uses up no budget.
	RetryAfter time.Duration
	// Permanent: trying again is pointless. The forward is blocked until a person
	// has looked.
	Permanent bool
	// Err is the cause, for people.
	Err error
}

// Error is the cause's text, or the status where there is no cause.
func (e *AttemptError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("answered %d", e.Status)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *AttemptError) Unwrap() error { return e.Err }

// AttemptResult is what OnAttempt is told of an attempt that ended.
type AttemptResult struct {
	// Forward is the forward as it was claimed, without the delivery's Body.
	Forward inbox.Forward
	// Settlement is what the consumer decided.
	Settlement inbox.Settlement
	// LeaseLost: another worker holds the forward, or its lease was ended
	// elsewhere. The forward was left alone; the ledger keeps the attempt as late.
	LeaseLost bool
	// Err is why the decision was not stored; nil when it was. The forward is due
	// again when its lease ends. OnError has been told.
	Err error
}
