package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// BreakerState is what a breaker lets through.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // everything
	BreakerHalfOpen BreakerState = "half_open" // one, whose end decides
	BreakerOpen     BreakerState = "open"      // nothing
)

// Breaker is the last change of a breaker of a destination. Each process has one of its
// own; Worker says whose this was.
type Breaker struct {
	State  BreakerState
	At     time.Time // of the change; zero: there was none
	Until  time.Time // of an open one: the next probe
	Worker string
	Error  string // the failure that opened it
}

// BreakerChange is what a process has to tell of its breaker.
type BreakerChange struct {
	From, To BreakerState
	Until    time.Time // of an open one: the next probe
	Failures int       // in a row, that opened it
	Error    string    // that opened it; of a closed one: how that is known, where it is no attempt
	Worker   string

	ConfigRevision int64
}

const recordBreakerSQL = `
UPDATE hooklatch.destination SET breaker = $2, breaker_at = clock_timestamp(), breaker_until = $3, breaker_worker = nullif($4, ''), breaker_error = nullif($5, '')
WHERE name = $1`

const trimEventsSQL = `SELECT hooklatch.trim_breaker_events($1)`

// RecordBreaker keeps a change of a breaker for people to see. A destination that stays
// down is probed again and again: only its first opening and its closing are history.
// The history of breakers is bounded; what people did stays.
func (s *Store) RecordBreaker(ctx context.Context, destination string, c BreakerChange) error {
	var until *time.Time
	if !c.Until.IsZero() {
		until = &c.Until
	}
	e := DestinationEvent{Destination: destination, Worker: toText(c.Worker), ConfigRevision: c.ConfigRevision}
	switch {
	case c.To == BreakerOpen && c.From == BreakerClosed:
		e.Event = EventOpened
		e.Detail = fmt.Sprintf("after %d failures in a row", c.Failures)
		if c.Failures == 1 {
			e.Detail = "after 1 failure"
		}
		if until != nil {
			e.Detail += ", probe at " + until.UTC().Format(time.RFC3339)
		}
		if c.Error != "" {
			e.Detail += ": " + c.Error
		}
	case c.To == BreakerClosed:
		e.Event = EventClosed
		e.Detail, c.Error = c.Error, ""
	}
	err := s.as(ctx, roleConsumer, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, recordBreakerSQL, destination, c.To, until, toText(c.Worker), toText(c.Error)); err != nil || e.Event == "" {
			return err
		}
		if err := addEvent(ctx, tx, e); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, trimEventsSQL, destination)
		return err
	})
	if err != nil {
		return storeError("record breaker of "+destination, classify(err, false), err)
	}
	return nil
}
