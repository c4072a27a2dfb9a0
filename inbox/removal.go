package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ReasonMoved is why a forward is blocked that was a dead letter at another destination.
const ReasonMoved = "moved"

const actMove = "move"

// Clearing takes open forwards away from a destination.
type Clearing struct {
	Act
	Destination string
	To          string // where they go on; empty: they are cancelled
	Limit       int    // of one transaction. Defaults to 200
}

// Cleared is what one transaction of a clearing did.
type Cleared struct {
	Moved, Cancelled int
}

// laneIsFree is false of what waits in a lane, and is to be moved ($3), while another one
// of the lane is being tried: moved, it would be sent before that one, which may follow.
const laneIsFree = `(NOT $3::bool OR ((SELECT (SELECT lease_until FROM hooklatch.outbox WHERE id = r.in_flight AND lane IS NOT NULL)
	FROM hooklatch.resource r WHERE r.destination = outbox.destination AND r.lane = outbox.lane) > clock_timestamp()) IS NOT TRUE)`

// clearableSQL finds open forwards that nobody is trying. Of lanes those that come
// first.
const clearableSQL = `
(SELECT id, lane FROM hooklatch.outbox WHERE destination = $1 AND state IN ('pending', 'retry_wait') AND lane IS NULL
	AND (lease_until IS NULL OR lease_until <= clock_timestamp()) LIMIT $2)
UNION ALL
(SELECT id, lane FROM hooklatch.outbox WHERE destination = $1 AND ` + standsInLane + `
	AND (lease_until IS NULL OR lease_until <= clock_timestamp()) AND ` + laneIsFree + ` ORDER BY lane, revision, id LIMIT $2)
UNION ALL
(SELECT id, lane FROM hooklatch.outbox WHERE destination = $1 AND state IN ('held', 'blocked')
	AND (lane IS NULL OR state = 'blocked' AND ordering <> 'strict') LIMIT $2)
LIMIT $2`

const (
	// lockClearedLanesSQL also writes the rows: a SettleTx under REPEATABLE READ that does
	// not see the act must fail.
	lockClearedLanesSQL = `
UPDATE hooklatch.resource SET touched_at = clock_timestamp()
WHERE id IN (SELECT id FROM hooklatch.resource WHERE destination = $1 AND lane = ANY($2::bytea[]) ORDER BY id FOR UPDATE) RETURNING id`

	// lockClearedSQL leaves out what was leased or settled while the locks were waited for.
	// The lanes are locked by now, and nothing of them is leased any more.
	lockClearedSQL = `
SELECT id, lease_until IS NOT NULL FROM hooklatch.outbox
WHERE id = ANY($1::int8[]) AND destination = $2 AND state IN ('pending', 'retry_wait', 'held', 'blocked')
	AND (lease_until IS NULL OR lease_until <= clock_timestamp()) AND ` + laneIsFree + ` ORDER BY id FOR UPDATE`

	// carryLanesSQL lets the other destination go on where this one was, unless it has
	// had something of the resource: what is missing is waited for there, too, and what
	// is passed is not sent.
	carryLanesSQL = `
INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane, passed)
SELECT r.tenant, $2, r.source, r.resource_type, r.resource_id, r.lane, r.passed
FROM hooklatch.resource r WHERE r.id = ANY($3::int8[]) AND r.passed IS NOT NULL
	AND r.lane = ANY (ARRAY(SELECT lane FROM hooklatch.outbox WHERE id = ANY($1::int8[]) AND lane IS NOT NULL))
	AND (SELECT id FROM hooklatch.outbox WHERE destination = $2 AND lane = r.lane AND ` + standsInLane + ` LIMIT 1) IS NULL
ORDER BY r.lane
ON CONFLICT (destination, lane) DO NOTHING`

	// moveForwardsSQL makes the forwards at the other destination. They arrive there as
	// new ones do, and so need no lock on their lanes: a claim puts them into their places.
	// A dead letter stays one. What is there already is not made twice.
	moveForwardsSQL = `
INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, next_attempt_at, expires_at, ordering, lane, revision, gap_timeout,
	state, hold_reason, blocked_reason, settled_at, owner)
SELECT o.inbox_id, o.tenant, $2, clock_timestamp(), clock_timestamp() + (o.expires_at - i.received_at), o.ordering, o.lane, o.revision, o.gap_timeout,
	CASE WHEN o.state = 'blocked' THEN 'blocked' WHEN o.state = 'held' AND o.hold_reason <> 'gap' THEN 'held' ELSE 'pending' END,
	CASE WHEN o.state = 'held' THEN nullif(o.hold_reason, 'gap') END,
	CASE WHEN o.state = 'blocked' THEN '` + ReasonMoved + `' END, CASE WHEN o.state = 'blocked' THEN clock_timestamp() END, o.owner
FROM hooklatch.outbox o CROSS JOIN LATERAL (SELECT received_at FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i
WHERE o.id = ANY($1::int8[]) ORDER BY o.inbox_id
ON CONFLICT (inbox_id, destination) DO NOTHING`

	auditClearedSQL = `
INSERT INTO hooklatch.audit (tenant, actor, action, reason, inbox_id, outbox_id, detail)
SELECT tenant, $2, $3, $4, inbox_id, id, 'it was ' || state || coalesce(', ' || hold_reason, '') || ' at ' || destination || $5
FROM hooklatch.outbox WHERE id = ANY($1::int8[])`

	cancelClearedSQL = `
UPDATE hooklatch.outbox SET state = 'cancelled', settled_at = clock_timestamp(), lease_until = NULL,
	lease_token = lease_token + (lease_until IS NOT NULL)::int4, waiting = false, hold_reason = NULL, blocked_reason = NULL
WHERE id = ANY($1::int8[])`

	closeEmptyGapsSQL = `
UPDATE hooklatch.gap SET closed_at = clock_timestamp(), closed_by = 'release' FROM hooklatch.resource r
WHERE gap.resource = ANY($1::int8[]) AND gap.closed_at IS NULL AND r.id = gap.resource
	AND (SELECT id FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane AND ` + standsInLane + `
		AND state = 'held' AND hold_reason = 'gap' LIMIT 1) IS NULL`
)

// ClearDestination cancels or moves open forwards of a destination in one transaction,
// each with its line in the audit. Nothing done: all that is left, if anything, is being
// tried. Lanes go on without what was taken out of them. A moved forward keeps its
// delivery and its place in its lane, which is moved when nothing of it is being tried;
// its attempts stay with the cancelled one, and it
// begins anew at the other destination. Where the delivery has a forward there already,
// no other is made.
func (s *Store) ClearDestination(ctx context.Context, c Clearing) (done Cleared, err error) {
	op := "clear destination " + c.Destination
	switch err := c.check(); {
	case err != nil:
		return done, fmt.Errorf("%s: %w", op, err)
	case c.To == c.Destination:
		return done, fmt.Errorf("%s: forwards cannot be moved to where they are", op)
	}
	if c.Limit == 0 {
		c.Limit = 200
	}
	err = s.as(ctx, roleAdmin, func(tx pgx.Tx) error {
		done, err = clearSome(ctx, tx, c)
		return err
	})
	if err != nil {
		return Cleared{}, storeError(op, classify(err, false), err)
	}
	if s.cfg.OnForwards != nil && done.Moved > 0 {
		s.cfg.OnForwards(c.To)
	}
	return done, nil
}

func clearSome(ctx context.Context, tx pgx.Tx, c Clearing) (done Cleared, err error) {
	ids, lost, lanes, err := lockCleared(ctx, tx, c)
	if err != nil || len(ids) == 0 {
		return done, err
	}
	batch := &pgx.Batch{}
	if len(lost) > 0 {
		batch.Queue(lostSQL, lost, nil, 0)
	}
	action, detail := actCancel, ""
	if c.To != "" {
		action, detail = actMove, ", moved to "+c.To
		if len(lanes) > 0 {
			batch.Queue(carryLanesSQL, ids, c.To, lanes)
		}
		moving := batch.Queue(moveForwardsSQL, ids, c.To)
		moving.Exec(func(tag pgconn.CommandTag) error {
			done.Moved = int(tag.RowsAffected())
			return nil
		})
	}
	batch.Queue(auditClearedSQL, ids, c.Actor, action, c.Reason, detail)
	batch.Queue(cancelClearedSQL, ids)
	if len(lanes) > 0 {
		batch.Queue(closeEmptyGapsSQL, lanes)
		batch.Queue(rouseSQL, lanes, nil)
	}
	err = tx.SendBatch(ctx, batch).Close()
	done.Cancelled = len(ids) - done.Moved
	return done, err
}

// lockCleared locks lanes and then forwards, and returns those that may be taken away;
// of lost ones a lease has run out.
func lockCleared(ctx context.Context, tx pgx.Tx, c Clearing) (ids, lost, lanes []int64, err error) {
	rows, err := tx.Query(ctx, clearableSQL, c.Destination, c.Limit, c.To != "")
	if err != nil {
		return nil, nil, nil, err
	}
	var found, firsts []int64
	var names [][]byte
	var id int64
	var lane []byte
	met := map[string]bool{}
	_, err = pgx.ForEachRow(rows, []any{&id, &lane}, func() error {
		if found = append(found, id); lane != nil && !met[string(lane)] {
			met[string(lane)] = true
			names, firsts = append(names, []byte(string(lane))), append(firsts, id)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return nil, nil, nil, err
	}
	if len(names) > 0 {
		if _, err := tx.Exec(ctx, makeLanesSQL, c.Destination, names, firsts); err != nil {
			return nil, nil, nil, err
		}
		rows, err := tx.Query(ctx, lockClearedLanesSQL, c.Destination, names)
		if err != nil {
			return nil, nil, nil, err
		}
		if lanes, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
			return nil, nil, nil, err
		}
	}
	rows, err = tx.Query(ctx, lockClearedSQL, found, c.Destination, c.To != "")
	if err != nil {
		return nil, nil, nil, err
	}
	var expired bool
	_, err = pgx.ForEachRow(rows, []any{&id, &expired}, func() error {
		if ids = append(ids, id); expired {
			lost = append(lost, id)
		}
		return nil
	})
	return ids, lost, lanes, err
}

// hasOpen is true of a destination d to which a forward is open, dead letters among them.
const hasOpen = `(
	(SELECT id FROM hooklatch.outbox WHERE destination = d.name AND state IN ('pending', 'retry_wait') AND lane IS NULL LIMIT 1) IS NOT NULL
	OR (SELECT id FROM hooklatch.outbox WHERE destination = d.name AND ` + standsInLane + ` LIMIT 1) IS NOT NULL
	OR (SELECT id FROM hooklatch.outbox WHERE destination = d.name AND state IN ('held', 'blocked') LIMIT 1) IS NOT NULL)`

const openDestinationsSQL = `SELECT name FROM hooklatch.destination d WHERE name <> ALL ($1::text[]) AND ` + hasOpen + ` ORDER BY name`

// OpenDestinations returns the names of the destinations with open forwards, but for
// those in except. Dead letters are open: they wait for a person.
func (s *Store) OpenDestinations(ctx context.Context, except []string) ([]string, error) {
	if except == nil {
		except = []string{}
	}
	names, err := collect(ctx, s, roleRead, pgx.RowTo[string], openDestinationsSQL, except)
	if err != nil {
		return nil, readError("open destinations", err)
	}
	return names, nil
}

const removeDestinationSQL = `UPDATE hooklatch.destination d SET removed_at = clock_timestamp() WHERE name = $1 AND NOT ` + hasOpen

// RemoveDestination marks a destination as removed, until a configuration has it again.
// detail says what became of its forwards. ErrState: some are open. ErrNotFound: there is
// none of that name.
func (s *Store) RemoveDestination(ctx context.Context, name string, act Act, detail string) error {
	if err := act.check(); err != nil {
		return fmt.Errorf("remove destination %s: %w", name, err)
	}
	return s.decideDestination(ctx, name, "remove", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, removeDestinationSQL, name)
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: forwards to it are open", ErrState)
		}
		return errors.Join(err, addEvent(ctx, tx, DestinationEvent{Destination: name, Event: EventRemoved, Actor: act.Actor, Reason: act.Reason, Detail: detail}))
	})
}

const drainsSQL = `SELECT
	(SELECT id FROM hooklatch.outbox WHERE destination = $1 AND state IN ('pending', 'retry_wait') AND lane IS NULL LIMIT 1) IS NOT NULL
	OR (SELECT id FROM hooklatch.outbox WHERE destination = $1 AND ` + movesInLane + ` LIMIT 1) IS NOT NULL`

// Drains says whether something is open at a destination that need not wait for a
// person: it is neither a dead letter nor held for one.
func (s *Store) Drains(ctx context.Context, destination string) (bool, error) {
	answer, err := collect(ctx, s, roleRead, pgx.RowTo[bool], drainsSQL, destination)
	if err != nil {
		return false, readError("drains", err)
	}
	return answer[0], nil
}
