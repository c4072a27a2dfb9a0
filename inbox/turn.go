package inbox

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// lostSQL writes the attempts down whose leases have run out.
const lostSQL = `
INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class, error, replayed_by, config_revision)
SELECT id, attempts, tenant, coalesce($2::timestamptz, clock_timestamp()), 'unknown', 'the lease ran out before the attempt was settled', replayed_by, nullif($3::int8, 0)
FROM hooklatch.outbox WHERE id = ANY($1::int8[]) ON CONFLICT DO NOTHING`

const moveSQL = `
UPDATE hooklatch.outbox o SET
	state = CASE WHEN m.destined = 'waiting' THEN o.state ELSE m.destined END,
	waiting = m.destined = 'waiting' OR m.destined = 'held' AND m.behind,
	hold_reason = CASE m.destined WHEN 'waiting' THEN o.hold_reason WHEN 'held' THEN 'gap' END,
	blocked_reason = nullif(m.reason, ''),
	next_attempt_at = CASE WHEN m.destined = 'held' THEN coalesce(m.until, 'infinity') ELSE o.next_attempt_at END,
	settled_at = CASE WHEN m.destined IN ('superseded', 'blocked') THEN $6::timestamptz END,
	lease_token = o.lease_token + m.fence::int4,
	lease_until = NULL
FROM unnest($1::int8[], $2::text[], $3::text[], $4::timestamptz[], $5::bool[], $7::bool[]) AS m(id, destined, reason, until, behind, fence)
WHERE o.id = m.id`

const leaseLanesSQL = `
UPDATE hooklatch.outbox o SET
	state = CASE WHEN state = 'held' THEN CASE WHEN attempts = 0 THEN 'pending' ELSE 'retry_wait' END ELSE state END,
	hold_reason = NULL, waiting = false, next_attempt_at = least(next_attempt_at, $2),
	expires_at = CASE WHEN attempts = 0 AND (waiting OR state = 'held') THEN greatest(expires_at, $2::timestamptz + (expires_at
		- (SELECT received_at FROM hooklatch.inbox i WHERE i.id = inbox_id))) ELSE expires_at END,
	attempts = attempts + 1, lease_token = lease_token + 1, lease_until = $2::timestamptz + $3::interval
WHERE id = ANY($1::int8[])
RETURNING id, state, ordering, inbox_id, attempts, attempts_free, lease_token, lease_until, next_attempt_at, expires_at, ` + lastAttempt

const turnLanesSQL = `
UPDATE hooklatch.resource r SET in_flight = coalesce(m.in_flight, r.in_flight), passed = coalesce(m.passed, r.passed)
FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS m(id, in_flight, passed) WHERE r.id = m.id`

// rouseSQL makes the first of each lane one that the next claim looks at. That is the
// first above what is passed, beside it the newest where that one is coalesced, and what
// is still to be superseded. While its gap is open the first stays held.
const rouseSQL = `
UPDATE hooklatch.outbox o SET waiting = false,
	expires_at = CASE WHEN o.attempts = 0 THEN greatest(o.expires_at, coalesce($2::timestamptz, clock_timestamp()) + (o.expires_at
		- (SELECT received_at FROM hooklatch.inbox i WHERE i.id = o.inbox_id))) ELSE o.expires_at END,
	hold_reason = CASE WHEN r.gap THEN o.hold_reason END,
	state = CASE WHEN o.state <> 'held' OR r.gap THEN o.state WHEN o.attempts = 0 THEN 'pending' ELSE 'retry_wait' END,
	next_attempt_at = CASE WHEN o.state = 'held' THEN coalesce($2::timestamptz, clock_timestamp()) ELSE o.next_attempt_at END
FROM unnest($1::int8[]) AS k(id)
CROSS JOIN LATERAL (
	SELECT destination, lane, coalesce(passed, -1) AS passed,
		EXISTS (SELECT FROM hooklatch.gap WHERE resource = k.id AND closed_at IS NULL) AS gap
	FROM hooklatch.resource WHERE id = k.id OFFSET 0) r
CROSS JOIN LATERAL (
	(SELECT id FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane AND ` + movesInLane + `
		AND revision <= r.passed ORDER BY revision, id LIMIT 1)
	UNION
	SELECT h.id FROM (
		SELECT id, ordering FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane AND ` + standsInLane + `
			AND revision > r.passed ORDER BY revision, id LIMIT 1) f
	CROSS JOIN LATERAL (
		SELECT f.id
		UNION
		(SELECT id FROM hooklatch.outbox WHERE f.ordering = 'coalesce' AND destination = r.destination AND lane = r.lane
			AND ` + standsInLane + ` AND state IN ('pending', 'retry_wait') AND ordering = 'coalesce' AND revision > r.passed
			ORDER BY revision DESC, id DESC LIMIT 1)) h) first
WHERE o.id = first.id AND (o.waiting OR o.state = 'held' AND o.hold_reason = 'gap')`

// turns is what a claim writes down about the lanes that it has locked.
type turns struct {
	now            time.Time
	configRevision int64

	leases, lost, roused, superseded []int64
	moves                            []move
	changed                          []int64  // the lanes
	inFlight, passed                 []*int64 // of each of them; nil: stays
	gaps                             []func(*pgx.Batch)
	again                            bool
}

func (w *turns) add(f *laneFacts, t turn) {
	var inFlight *int64
	if t.lease != nil {
		inFlight = &t.lease.id
		w.leases = append(w.leases, t.lease.id)
		if f.fences(t.lease.id) {
			w.lost = append(w.lost, t.lease.id)
		}
	}
	for _, m := range t.moves {
		if m.fence {
			w.lost = append(w.lost, m.id)
		}
		if m.to == toSuperseded {
			w.superseded = append(w.superseded, m.id)
		}
	}
	w.moves = append(w.moves, t.moves...)
	if gap := t.opens; gap != nil {
		w.gaps = append(w.gaps, func(b *pgx.Batch) { b.Queue(openNewGapSQL, f.resource, gap.first, gap.last, gap.openedAt) })
	}
	if t.closes != "" {
		w.gaps = append(w.gaps, func(b *pgx.Batch) { b.Queue(closeGapSQL, f.resource, w.now, t.closes) })
	}
	if t.rouse {
		w.roused = append(w.roused, f.resource)
	}
	if t.lease != nil || len(t.moves) > 0 || t.passed != nil || t.opens != nil || t.closes != "" || t.rouse {
		w.changed, w.inFlight, w.passed = append(w.changed, f.resource), append(w.inFlight, inFlight), append(w.passed, t.passed)
	}
	w.again = w.again || t.again
}

// write does it all in one round trip, and adds what was leased to c.
func (w *turns) write(ctx context.Context, tx pgx.Tx, c *claiming) error {
	if len(w.changed) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	if len(w.lost) > 0 {
		batch.Queue(lostSQL, w.lost, w.now, w.configRevision)
	}
	if len(w.moves) > 0 {
		batch.Queue(moveSQL, w.moveArgs()...)
	}
	if len(w.leases) > 0 {
		batch.Queue(leaseLanesSQL, w.leases, w.now, c.Lease).Query(c.readLeased)
	}
	for _, queue := range w.gaps {
		queue(batch)
	}
	batch.Queue(turnLanesSQL, w.changed, w.inFlight, w.passed)
	if len(w.roused) > 0 {
		batch.Queue(rouseSQL, w.roused, w.now)
	}
	if len(w.superseded) > 0 {
		batch.Queue(revisionConflictSQL, w.superseded, w.now).Query(c.readConflicts)
	}
	return tx.SendBatch(ctx, batch).Close()
}

// moveArgs turns the moves into one array for each column, in the order of their ids.
func (w *turns) moveArgs() []any {
	slices.SortFunc(w.moves, func(a, b move) int { return cmp.Compare(a.id, b.id) })
	n := len(w.moves)
	ids, destined, reasons := make([]int64, n), make([]string, n), make([]string, n)
	untils, behind, fence := make([]*time.Time, n), make([]bool, n), make([]bool, n)
	for i := range w.moves {
		m := &w.moves[i]
		ids[i], destined[i], reasons[i], behind[i], fence[i] = m.id, string(m.to), m.reason, m.behind, m.fence
		if !m.until.IsZero() {
			untils[i] = &m.until
		}
	}
	return []any{ids, destined, reasons, untils, behind, w.now, fence}
}
