package inbox

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// DestinationEvent is one line of the history of a destination: what came by itself, and
// what a person did. It is only ever appended to.
type DestinationEvent struct {
	ID          int64
	At          time.Time
	Destination string
	Event       string // EventConfigured and the others
	Actor       string // empty: nobody, it came by itself
	Reason      string
	Worker      string // the process that it happened in
	Detail      string

	ConfigRevision int64
}

// The events of a destination.
const (
	EventConfigured = "configured" // it is new, or its URL has changed: Detail is the URL
	EventPaused     = "paused"
	EventResumed    = "resumed"
	EventOpened     = "opened" // the breaker
	EventClosed     = "closed" // the breaker
	EventProbe      = "probe"
	EventRemoved    = "removed"
)

const addEventSQL = `
INSERT INTO hooklatch.destination_event (destination, event, actor, reason, worker, config_revision, detail)
VALUES ($1, $2, nullif($3, ''), nullif($4, ''), nullif($5, ''), nullif($6::int8, 0), nullif($7, ''))`

func addEvent(ctx context.Context, tx pgx.Tx, e DestinationEvent) error {
	_, err := tx.Exec(ctx, addEventSQL, e.Destination, e.Event, e.Actor, e.Reason, e.Worker, e.ConfigRevision, toText(e.Detail))
	return err
}

// EventFilter says which events of a destination to list, the first one first.
type EventFilter struct {
	Destination  string    // demanded
	Since, Until time.Time // Until is excluded; zero: no bound
	// After goes on behind this event.
	After DestinationEvent
	// Limit ends the list. Defaults to no limit.
	Limit int
	// Newest lists the last ones, the newest first.
	Newest bool
}

const (
	eventColumns = `id, at, destination, event, coalesce(actor, ''), coalesce(reason, ''), coalesce(worker, ''), coalesce(detail, ''), coalesce(config_revision, 0)`

	eventsSQL = `
SELECT ` + eventColumns + ` FROM hooklatch.destination_event
WHERE destination = $1 AND at >= $2 AND at < $3 AND (at, id) > ($4, $5) ORDER BY at, id LIMIT $6`

	newestEventsSQL = `
SELECT ` + eventColumns + ` FROM hooklatch.destination_event
WHERE destination = $1 AND at >= $2 AND at < $3 AND (at, id) < ($4, $5) ORDER BY at DESC, id DESC LIMIT $6`
)

// eventPage is how many events one round trip brings.
const eventPage = 200

// DestinationEvents lists what happened to a destination. It reads page by page as far
// as the caller goes on.
func (s *Store) DestinationEvents(ctx context.Context, f EventFilter) iter.Seq2[DestinationEvent, error] {
	return func(yield func(DestinationEvent, error) bool) {
		if f.Until.IsZero() {
			f.Until = time.Now().AddDate(100, 0, 0)
		}
		sql, last := eventsSQL, f.After
		if f.Newest {
			if sql = newestEventsSQL; last.ID == 0 {
				last.At = f.Until
			}
		}
		for left := f.Limit; ; left -= eventPage {
			size := eventPage
			if f.Limit > 0 && left < size {
				size = left
			}
			page, err := collect(ctx, s, roleRead, scanEvent, sql, f.Destination, f.Since, f.Until, last.At, last.ID, size)
			if err != nil {
				yield(DestinationEvent{}, readError("destination events", err))
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				last = e
			}
			if len(page) < size || f.Limit > 0 && left <= eventPage {
				return
			}
		}
	}
}

func scanEvent(row pgx.CollectableRow) (e DestinationEvent, err error) {
	err = row.Scan(&e.ID, &e.At, &e.Destination, &e.Event, &e.Actor, &e.Reason, &e.Worker, &e.Detail, &e.ConfigRevision)
	return e, err
}
