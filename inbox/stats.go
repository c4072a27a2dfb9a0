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
	// InFlight is how many of the pending and retry_wait ones are leased now, among the
	// thousand of each tenant that have been due longest: those are claimed first.
	InFlight int
	// OldestNew and OldestRetry are how long the oldest forward has been due that
	// was never tried, and that was. 0: none is due.
	OldestNew, OldestRetry time.Duration
	// OldestDead is how long the oldest dead letter has been one. 0: there is none.
	OldestDead time.Duration
	Paused     bool
}

// statsSQL reads the partial indexes of the open states. Leases are in none of them, so
// that a claim rewrites no index; they are looked for at the fronts.
const statsSQL = `
WITH RECURSIVE alone AS (
	(SELECT destination, tenant FROM hooklatch.outbox WHERE ` + loneDue + ` ORDER BY destination, tenant LIMIT 1)
	UNION ALL
	SELECT n.destination, n.tenant FROM alone a CROSS JOIN LATERAL (
		SELECT destination, tenant FROM hooklatch.outbox WHERE (destination, tenant) > (a.destination, a.tenant) AND ` + loneDue + `
		ORDER BY destination, tenant LIMIT 1) n),
ordered AS (
	(SELECT destination, tenant FROM hooklatch.outbox WHERE ` + inLaneDue + ` ORDER BY destination, tenant LIMIT 1)
	UNION ALL
	SELECT n.destination, n.tenant FROM ordered a CROSS JOIN LATERAL (
		SELECT destination, tenant FROM hooklatch.outbox WHERE (destination, tenant) > (a.destination, a.tenant) AND ` + inLaneDue + `
		ORDER BY destination, tenant LIMIT 1) n),
fronts AS (
	SELECT a.destination, o.lease_until FROM alone a CROSS JOIN (VALUES ('pending'), ('retry_wait')) AS s(state) CROSS JOIN LATERAL (
		SELECT lease_until FROM hooklatch.outbox WHERE destination = a.destination AND tenant = a.tenant AND state = s.state AND ` + loneDue + `
		ORDER BY next_attempt_at, id LIMIT 1000) o
	UNION ALL
	SELECT a.destination, o.lease_until FROM ordered a CROSS JOIN (VALUES ('pending'), ('retry_wait')) AS s(state) CROSS JOIN LATERAL (
		SELECT lease_until FROM hooklatch.outbox WHERE destination = a.destination AND tenant = a.tenant AND state = s.state AND ` + inLaneDue + `
		ORDER BY next_attempt_at, id LIMIT 1000) o),
leased AS (
	SELECT destination, count(*) AS n FROM fronts WHERE lease_until > clock_timestamp() GROUP BY destination),
open AS (
	SELECT destination, state, count(*) AS n, min(next_attempt_at) AS oldest
	FROM hooklatch.outbox WHERE state IN ('pending', 'retry_wait') AND lane IS NULL GROUP BY destination, state
	UNION ALL
	SELECT destination, state, count(*), min(next_attempt_at) FILTER (WHERE NOT waiting)
	FROM hooklatch.outbox WHERE lane IS NOT NULL AND revision IS NOT NULL AND (state IN ('pending', 'retry_wait', 'held') OR state = 'blocked' AND ordering = 'strict')
		AND state IN ('pending', 'retry_wait') GROUP BY destination, state
	UNION ALL
	SELECT destination, state, count(*), min(settled_at)
	FROM hooklatch.outbox WHERE state IN ('held', 'blocked') GROUP BY destination, state)
SELECT d.name, d.paused_at IS NOT NULL, coalesce((SELECT n FROM leased WHERE leased.destination = d.name), 0), coalesce(o.state, ''), coalesce(o.n, 0),
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
	var n, inFlight int
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&name, &paused, &inFlight, &state, &n, &age}, func() error {
		if len(stats) == 0 || stats[len(stats)-1].Destination != name {
			stats = append(stats, DestinationStats{Destination: name, Paused: paused, Open: make(map[State]int), InFlight: inFlight})
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
		case Blocked:
			d.OldestDead = max(d.OldestDead, oldest)
		}
		return nil
	})
	return stats, err
}
