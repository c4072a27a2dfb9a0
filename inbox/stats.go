package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// DestinationStats counts the open forwards of one destination. Finished ones
// are not counted: their number only grows.
type DestinationStats struct {
	Destination string
	Open        map[State]int // pending, retry_wait, held, blocked
	// OldestNew and OldestRetry are how long the oldest forward has been due that
	// was never tried, and that was. 0: none is due.
	OldestNew, OldestRetry time.Duration
	Paused                 bool
}

// statsSQL reads the partial indexes of the open states.
const statsSQL = `
WITH open AS (
	SELECT destination, state, count(*) AS n, min(next_attempt_at) AS oldest
	FROM hooklatch.outbox WHERE state IN ('pending', 'retry_wait') AND lane IS NULL GROUP BY destination, state
	UNION ALL
	SELECT destination, state, count(*), min(next_attempt_at) FILTER (WHERE NOT waiting)
	FROM hooklatch.outbox WHERE lane IS NOT NULL AND revision IS NOT NULL AND (state IN ('pending', 'retry_wait', 'held') OR state = 'blocked' AND ordering = 'strict')
		AND state IN ('pending', 'retry_wait') GROUP BY destination, state
	UNION ALL
	SELECT destination, state, count(*), NULL
	FROM hooklatch.outbox WHERE state IN ('held', 'blocked') GROUP BY destination, state)
SELECT d.name, d.paused_at IS NOT NULL, coalesce(o.state, ''), coalesce(o.n, 0),
	coalesce(greatest(extract(epoch FROM clock_timestamp() - o.oldest), 0), 0)::float8
FROM (SELECT name, paused_at FROM hooklatch.destination
	UNION ALL SELECT DISTINCT destination, NULL::timestamptz FROM open
		WHERE NOT EXISTS (SELECT FROM hooklatch.destination d WHERE d.name = destination)) d
LEFT JOIN open o ON o.destination = d.name ORDER BY d.name`

// Stats returns one entry for each destination that is configured, or that has
// open forwards.
func (s *Store) Stats(ctx context.Context) ([]DestinationStats, error) {
	var stats []DestinationStats
	err := s.as(ctx, roleRead, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, statsSQL)
		if err != nil {
			return err
		}
		stats, err = collectStats(rows)
		return err
	})
	if err != nil {
		return nil, readError("stats", err)
	}
	return stats, nil
}

// collectStats puts the rows of one destination together, which follow each other.
func collectStats(rows pgx.Rows) (stats []DestinationStats, err error) {
	var name string
	var paused bool
	var state State
	var n int
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&name, &paused, &state, &n, &age}, func() error {
		if len(stats) == 0 || stats[len(stats)-1].Destination != name {
			stats = append(stats, DestinationStats{Destination: name, Paused: paused, Open: make(map[State]int)})
		}
		d := &stats[len(stats)-1]
		if state != "" {
			d.Open[state] += n // one row for those in lanes, one for the others
		}
		oldest := time.Duration(age * float64(time.Second))
		switch state {
		case Pending:
			d.OldestNew = max(d.OldestNew, oldest)
		case RetryWait:
			d.OldestRetry = max(d.OldestRetry, oldest)
		}
		return nil
	})
	return stats, err
}
