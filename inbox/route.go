package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const routedSQL = `
SELECT tenant, source, coalesce(resource_type, ''), coalesce(resource_id, ''), revision FROM hooklatch.inbox WHERE id = $1`

// routeSQL makes the forwards that are missing, all in one order, so that two acts
// cannot wait for each other in a circle. Their foreign key locks the delivery:
// retention, which locks it too before it removes a body, comes before or after.
const routeSQL = `
INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, next_attempt_at, expires_at,
	ordering, lane, revision, gap_timeout, state, hold_reason)
SELECT $1, $2, x.destination, clock_timestamp(), clock_timestamp() + make_interval(secs => x.deadline),
	nullif(x.ordering, ''), CASE WHEN x.ordering <> '' THEN $3::bytea END, CASE WHEN x.ordering <> '' THEN $4::int8 END,
	CASE WHEN x.ordering <> '' THEN make_interval(secs => nullif(x.gap_timeout, 0)) END,
	CASE WHEN x.hold THEN 'held' ELSE 'pending' END, CASE WHEN x.hold THEN 'person' END
FROM unnest($5::text[], $6::float8[], $7::text[], $8::float8[], $9::bool[]) AS x(destination, deadline, ordering, gap_timeout, hold)
ORDER BY x.destination COLLATE "C"
ON CONFLICT (inbox_id, destination) DO NOTHING RETURNING destination`

// bodySQL is a statement of its own: only a later snapshot than that of routeSQL sees
// what was removed while it waited.
const bodySQL = `SELECT EXISTS (SELECT FROM hooklatch.payload WHERE inbox_id = $1 AND variant = 0)`

// Route makes those of the forwards that a kept delivery does not have yet, and
// returns their destinations: none where it has them all, which is no error. They may
// be tried from now on until their deadline, counted from now. Where they are ordered
// they take the place of their revision: one that comes too late is superseded.
// ErrNotFound: there is no such delivery; ErrPruned: its body is gone, and nothing is
// made. What is made is in the audit.
func (s *Store) Route(ctx context.Context, deliveryID int64, forwards []NewForward, act Act) (made []string, err error) {
	op := fmt.Sprintf("route delivery %d", deliveryID)
	if err := errors.Join(act.check(), checkForwards(forwards)); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	err = s.as(ctx, roleAdmin, func(tx pgx.Tx) error {
		made, err = route(ctx, tx, deliveryID, forwards, act)
		return err
	})
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &pg) && pg.Code == "23503": // it went while we looked
		return nil, fmt.Errorf("%s: %w", op, ErrNotFound)
	case errors.Is(err, ErrPruned):
		return nil, fmt.Errorf("%s: %w", op, err)
	case err != nil:
		return nil, storeError(op, classify(err, false), err)
	}
	if s.cfg.OnForwards != nil {
		for _, destination := range made {
			s.cfg.OnForwards(destination)
		}
	}
	return made, nil
}

func route(ctx context.Context, tx pgx.Tx, deliveryID int64, forwards []NewForward, act Act) ([]string, error) {
	var d Delivery
	err := tx.QueryRow(ctx, routedSQL, deliveryID).Scan(&d.Tenant, &d.Source, &d.ResourceType, &d.ResourceID, &d.Revision)
	if err != nil {
		return nil, err
	}
	var (
		lane                    = laneOf(&d)
		destinations, orderings []string
		deadlines, gapTimeouts  []float64
		holds                   []bool
	)
	for _, f := range forwards {
		ordering := string(f.Ordering)
		if lane == nil {
			ordering = ""
		}
		destinations, orderings = append(destinations, f.Destination), append(orderings, ordering)
		deadlines = append(deadlines, cmp.Or(f.Deadline, DefaultDeadline).Seconds())
		gapTimeouts, holds = append(gapTimeouts, f.GapTimeout.Seconds()), append(holds, f.Hold)
	}
	rows, err := tx.Query(ctx, routeSQL, deliveryID, d.Tenant, lane, d.Revision, destinations, deadlines, orderings, gapTimeouts, holds)
	if err != nil {
		return nil, err
	}
	made, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(made) == 0 {
		return nil, err
	}
	var kept bool
	if err := tx.QueryRow(ctx, bodySQL, deliveryID).Scan(&kept); err != nil {
		return nil, err
	}
	if !kept {
		return nil, ErrPruned
	}
	slices.Sort(made)
	_, err = tx.Exec(ctx, auditActSQL, d.Tenant, act.Actor, actRoute, act.Reason, deliveryID, 0, 0, strings.Join(made, ", "))
	return made, err
}

// UnroutedFilter says which deliveries Unrouted lists.
type UnroutedFilter struct {
	Source    string // demanded
	EventType string
	Since     time.Time
	Until     time.Time // excluded
}

// unroutedSQL reads one page along the index of the source. Forwards are looked for by
// a scalar query: of NOT EXISTS the planner makes a hash of the whole table.
const unroutedSQL = `
SELECT ` + deliveryColumns + ` FROM hooklatch.inbox i
WHERE i.source = $1 AND ($2 = '' OR i.event_type = $2) AND (i.received_at, i.id) > ($3, $4) AND i.received_at < $5
	AND (SELECT o.inbox_id FROM hooklatch.outbox o WHERE o.inbox_id = i.id LIMIT 1) IS NULL
ORDER BY i.received_at, i.id LIMIT $6`

// Unrouted lists the deliveries of a source that have no forward, without their
// bodies: oldest first, so that routing them one by one leaves no revision behind. It
// reads page by page as far as the caller goes on; those that get forwards meanwhile
// are no matter.
func (s *Store) Unrouted(ctx context.Context, f UnroutedFilter) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		at, id := f.Since, int64(0)
		if f.Until.IsZero() {
			f.Until = time.Now().AddDate(100, 0, 0)
		}
		for {
			page, err := collect(ctx, s, roleRead, scanDelivery, unroutedSQL, f.Source, f.EventType, at, id, f.Until, findPage)
			if err != nil {
				yield(Delivery{}, readError("find unrouted", err))
				return
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
				at, id = d.ReceivedAt, d.ID
			}
			if len(page) < findPage {
				return
			}
		}
	}
}
