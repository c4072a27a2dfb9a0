package inbox

import (
	"errors"
	"fmt"
)

var (
	// ErrUnavailable: the database could not be reached or refused the work as a
	// whole. Accept stored nothing. Of Claim, Renew and Settle the answer may have
	// been lost: a lease ends by itself, and settling again is harmless.
	ErrUnavailable = errors.New("inbox: store unavailable")
	// ErrOutcomeUnknown: COMMIT was sent and its answer was lost. The delivery is
	// stored or it is not; the sender's retry finds out.
	ErrOutcomeUnknown = errors.New("inbox: commit outcome unknown")
	// ErrBusy: locks, deadlocks or the statement timeout stood in the way for too
	// long. Nothing was stored.
	ErrBusy = errors.New("inbox: store busy")
	// ErrFull: the database's disk is full. Nothing was stored.
	ErrFull = errors.New("inbox: store full")
	// ErrInternal: a fault that waiting does not cure: a missing table or right, a
	// value that the database refuses. Nothing was stored. Always worth an alarm.
	ErrInternal = errors.New("inbox: internal fault")
	// ErrLeaseLost: Settle or Renew found a newer token, or no such lease. The
	// forward was left alone.
	ErrLeaseLost = errors.New("inbox: lease lost")
	// ErrNotFound: no such delivery, forward or lane.
	ErrNotFound = errors.New("inbox: not found")
	// ErrPruned: the delivery is known, its body was removed by retention.
	ErrPruned = errors.New("inbox: body pruned")
	// ErrSuperseded: what is at the forward's revision is not sent any more: it or a later
	// one was applied, or it was given up.
	ErrSuperseded = errors.New("inbox: superseded")
	// ErrInFlight: the forward is being tried right now.
	ErrInFlight = errors.New("inbox: in flight")
	// ErrState: the forward, or the lane, is not in a state for this.
	ErrState = errors.New("inbox: wrong state")
	// ErrReplaying: a person has replayed the forward, and it was not tried yet. It is an
	// ErrState.
	ErrReplaying = fmt.Errorf("%w: a replay is in progress", ErrState)
	// ErrRemoved: the forward's destination was removed.
	ErrRemoved = errors.New("inbox: destination removed")
)

// ConflictError: the delivery id is stored with other bytes. The stored row is
// untouched, the new bytes are kept as evidence.
type ConflictError struct {
	Tenant, Source, DeliveryID string
	// First: no conflict was seen before under this id. One alarm an id is enough.
	First bool
	// Unrecorded is why the evidence could not be kept; nil when it was, or when
	// there was enough of it. The verdict holds either way.
	Unrecorded error
}

func (e *ConflictError) Error() string {
	return "inbox: conflict: delivery " + e.DeliveryID + " of source " + e.Source + " is stored with other bytes"
}
