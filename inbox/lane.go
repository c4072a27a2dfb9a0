package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Locks. Whoever changes the forwards of a lane locks the lane's resource row first, in
// a statement of its own, and only a later statement reads the lane: one statement would
// read a snapshot older than its lock. Resource rows come before outbox rows, both in
// the order of their ids. Settle and the acts of people wait for a lane; a claim never
// does, but for another claim that makes the row of the same new lane at that moment. It
// skips what is locked: who holds the lock leaves the lane with a first that is due, and
// the next claim finds it. Accept takes no lock: what it inserts is not waiting, and so
// is found by a claim. A claim or an act that changes a lane also writes its resource
// row, so that a SettleTx under REPEATABLE READ fails instead of not seeing it. Renew
// locks one forward and nothing else; a claim locks the lease that it declares lost.

// laneOf names the lane of a delivery: what stands in it is ordered, at each
// destination, by revision. nil: the delivery has no resource or no revision, and
// is never ordered. A hash keeps the row of a forward small however long the
// resource's id is; the lengths keep two resources apart whose names run together.
func laneOf(d *Delivery) []byte {
	if d.ResourceID == "" || d.Revision == nil {
		return nil
	}
	var text []byte
	for _, part := range []string{d.Tenant, d.Source, d.ResourceType, d.ResourceID} {
		text = binary.AppendUvarint(text, uint64(len(part)))
		text = append(text, part...)
	}
	lane := sha256.Sum256(text)
	return lane[:]
}

// laneChunk is how many forwards a claim looks at in lanes at once, and how many of
// one lane it supersedes at once.
const laneChunk = 1000

// Conditions of partial indexes, repeated word for word.
const (
	// loneDue is the condition of outbox_due: what stands in no lane.
	loneDue = `lane IS NULL AND state IN ('pending', 'retry_wait')`
	// inLaneDue is the condition of outbox_lane_due: what a claim must look at.
	inLaneDue = `lane IS NOT NULL AND NOT waiting AND (state IN ('pending', 'retry_wait') OR state = 'held' AND hold_reason = 'gap')`
	// standsInLane is the condition of outbox_lane.
	standsInLane = `lane IS NOT NULL AND revision IS NOT NULL AND (state IN ('pending', 'retry_wait', 'held') OR state = 'blocked' AND ordering = 'strict')`
	// movesInLane are those of them that order alone decides about.
	movesInLane = standsInLane + ` AND (state IN ('pending', 'retry_wait') OR state = 'held' AND hold_reason = 'gap')`
)

// laneDueSQL finds what is due in lanes, of each tenant and state the oldest: their
// heads, and what has arrived and was not put into its place yet. Those that wait behind
// another one are not read.
const laneDueSQL = `
WITH t AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT o.id, o.tenant, o.state, o.ordering, o.revision, o.next_attempt_at, o.lane,
	(SELECT r.id FROM hooklatch.resource r WHERE r.destination = $2 AND r.lane = o.lane), (SELECT now FROM t)
FROM unnest($3::text[], $4::text[], $5::int4[]) AS q(tenant, state, most)
CROSS JOIN LATERAL (
	SELECT id, tenant, state, ordering, revision, next_attempt_at, lane FROM hooklatch.outbox
	WHERE destination = $2 AND tenant = q.tenant AND state = q.state AND ` + inLaneDue + ` AND next_attempt_at <= (SELECT now FROM t)
		AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t))
		AND NOT EXISTS (SELECT FROM hooklatch.destination WHERE name = $2 AND paused_at IS NOT NULL)
	ORDER BY next_attempt_at, id LIMIT q.most) o
ORDER BY o.next_attempt_at, o.id`

// dueLanes are the lanes in which something is due, the oldest first.
type dueLanes struct {
	now    time.Time
	lanes  [][]byte
	met    map[string][]int64 // by lane: the forwards that are due
	made   map[string]bool    // by lane: it has a resource row
	tenant map[string]string  // by lane
	first  map[string]laneDue // by lane: the one of them that is likely to be sent
	looks  *looks             // how many were looked at
	cut    bool               // and there may be more
	narrow bool               // and fewer than wanted
}

// laneDue is a forward that is due in a lane.
type laneDue struct {
	candidate
	state    State
	ordering Ordering
	revision int64
}

func newDueLanes() *dueLanes {
	return &dueLanes{met: map[string][]int64{}, made: map[string]bool{}, tenant: map[string]string{}, first: map[string]laneDue{}}
}

func (d *dueLanes) read(rows pgx.Rows) error {
	var o laneDue
	var lane []byte
	var resource *int64
	found := map[kind]int{}
	_, err := pgx.ForEachRow(rows, []any{&o.id, &o.tenant, &o.state, &o.ordering, &o.revision, &o.at, &lane, &resource, &d.now}, func() error {
		o.lane, o.retry = string(lane), o.state == RetryWait
		if d.met[o.lane] == nil {
			d.lanes = append(d.lanes, []byte(o.lane))
			d.made[o.lane], d.tenant[o.lane], d.first[o.lane] = resource != nil, o.tenant, o
		}
		d.met[o.lane] = append(d.met[o.lane], o.id)
		first := d.first[o.lane]
		if goesBefore := o.revision < first.revision; goesBefore != (o.ordering == OrderCoalesce) {
			first.state, first.revision, first.retry = o.state, o.revision, o.retry
			d.first[o.lane] = first
		}
		found[kind{o.tenant, string(o.state)}]++
		return nil
	})
	d.cut, d.narrow = d.looks.cut(found)
	return err
}

// heads is one candidate for each lane, due since its oldest.
func (d *dueLanes) heads() (all []candidate) {
	for _, lane := range d.lanes {
		if first, ok := d.first[string(lane)]; ok {
			all = append(all, first.candidate)
		}
	}
	return all
}

// arrange puts the lanes that were chosen before the others.
func (d *dueLanes) arrange(chosen []candidate) {
	place := make(map[string]int, len(chosen))
	for n, c := range chosen {
		if c.lane != "" {
			place[c.lane] = n - len(chosen)
		}
	}
	slices.SortStableFunc(d.lanes, func(a, b []byte) int { return cmp.Compare(place[string(a)], place[string(b)]) })
}

// makeLanesSQL makes the rows of lanes that no claim has met before. All claims do it
// in one order, so that no two of them wait for each other.
const makeLanesSQL = `
INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane)
SELECT i.tenant, $1, i.source, coalesce(i.resource_type, ''), i.resource_id, k.lane
FROM unnest($2::bytea[], $3::int8[]) AS k(lane, id)
CROSS JOIN LATERAL (SELECT inbox_id FROM hooklatch.outbox WHERE id = k.id OFFSET 0) o
CROSS JOIN LATERAL (SELECT tenant, source, resource_type, resource_id FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i
ORDER BY k.lane
ON CONFLICT (destination, lane) DO NOTHING`

// lockLanesSQL locks the first lanes that nobody else has locked.
const lockLanesSQL = `
SELECT r.id, r.lane, r.passed, r.in_flight FROM unnest($2::bytea[]) AS k(lane)
CROSS JOIN LATERAL (
	SELECT id, lane, passed, in_flight FROM hooklatch.resource WHERE destination = $1 AND lane = k.lane FOR UPDATE SKIP LOCKED) r
LIMIT $3`

// lockLanes locks at most n of the lanes and returns what a claim must know of each.
func lockLanes(ctx context.Context, tx pgx.Tx, destination string, due *dueLanes, n int) (locked []*laneFacts, err error) {
	var missing [][]byte
	var ids []int64
	for _, lane := range due.lanes {
		if !due.made[string(lane)] {
			missing, ids = append(missing, lane), append(ids, due.met[string(lane)][0])
		}
	}
	batch := &pgx.Batch{}
	if len(missing) > 0 {
		batch.Queue(makeLanesSQL, destination, missing, ids)
	}
	batch.Queue(lockLanesSQL, destination, due.lanes, n).Query(func(rows pgx.Rows) error {
		locked, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*laneFacts, error) {
			f := &laneFacts{}
			var lane []byte
			err := row.Scan(&f.resource, &lane, &f.passed, &f.inFlight)
			f.due, f.tenant = due.met[string(lane)], due.tenant[string(lane)]
			return f, err
		})
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil || len(locked) == 0 {
		return nil, err
	}
	return locked, readLanes(ctx, tx, due.now, locked)
}

// leaseSQL says how the lease ended that each lane gave out last, and locks those that
// have run out, so that nobody can renew them any more. A row that is gone was settled;
// one that a person sends outside its lane is no matter of the lane.
const leaseSQL = `
SELECT k.resource, plain.leased, lost.id IS NOT NULL
FROM unnest($1::int8[], $2::int8[]) AS k(resource, id)
CROSS JOIN LATERAL (SELECT (SELECT lease_until IS NOT NULL FROM hooklatch.outbox WHERE id = k.id AND lane IS NOT NULL) IS TRUE AS leased) plain
LEFT JOIN LATERAL (
	SELECT id FROM hooklatch.outbox WHERE id = k.id AND lane IS NOT NULL AND lease_until <= $3 FOR UPDATE SKIP LOCKED) lost ON true`

// metSQL reads once more, under the lock, what was found due.
const metSQL = `
SELECT o.id, o.revision FROM unnest($1::int8[]) AS k(id)
CROSS JOIN LATERAL (SELECT id, revision FROM hooklatch.outbox WHERE id = k.id AND ` + inLaneDue + ` OFFSET 0) o`

// frontsSQL reads the first forward of each lane above what is passed. Where that one
// is coalesced it reads the newest of that kind, too, which goes in its place: a strict
// one leaves nothing out. What has waited for its
// turn, and was never tried, has all its time before it: others took it, or what was
// missing did.
const frontsSQL = `
SELECT k.id, h.newest, o.id, o.ordering, o.revision, o.state, coalesce(o.hold_reason, ''), o.next_attempt_at <= $2, o.waiting,
	o.attempts - o.attempts_free, o.attempts_max - o.attempts,
	CASE WHEN o.attempts = 0 AND (o.waiting OR o.state = 'held') THEN greatest(o.expires_at, $2 + (o.expires_at - i.received_at)) ELSE o.expires_at END,
	coalesce(extract(epoch FROM o.gap_timeout) * 1e6, 0)::int8, i.received_at, i.body_size,
	(SELECT p.inbox_id FROM hooklatch.payload p WHERE p.inbox_id = o.inbox_id AND variant = 0) IS NULL
FROM unnest($1::int8[]) AS k(id)
CROSS JOIN LATERAL (
	SELECT destination, lane, coalesce(passed, -1) AS passed FROM hooklatch.resource WHERE id = k.id OFFSET 0) r
CROSS JOIN LATERAL (
	SELECT id, ordering FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane AND ` + standsInLane + `
		AND revision > r.passed ORDER BY revision, id LIMIT 1) f
CROSS JOIN LATERAL (
	SELECT f.id, false AS newest
	UNION ALL
	SELECT n.id, true FROM (
		SELECT revision FROM hooklatch.outbox WHERE f.ordering = 'coalesce' AND destination = r.destination AND lane = r.lane
			AND ` + standsInLane + ` AND state IN ('pending', 'retry_wait') AND ordering = 'coalesce' AND revision > r.passed
		ORDER BY revision DESC, id DESC LIMIT 1) m
	CROSS JOIN LATERAL (
		SELECT id FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane
			AND ` + standsInLane + ` AND state IN ('pending', 'retry_wait') AND ordering = 'coalesce' AND revision = m.revision
		ORDER BY id LIMIT 1) n) h
CROSS JOIN LATERAL (SELECT * FROM hooklatch.outbox WHERE id = h.id OFFSET 0) o
CROSS JOIN LATERAL (SELECT received_at, body_size FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i`

// betweenSQL reads what stands in each lane above one revision and up to another.
const betweenSQL = `
SELECT k.id, o.id, o.revision FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS k(id, above, upto)
CROSS JOIN LATERAL (SELECT destination, lane FROM hooklatch.resource WHERE id = k.id OFFSET 0) r
CROSS JOIN LATERAL (
	SELECT id, revision FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane AND ` + movesInLane + `
		AND revision > k.above AND revision <= k.upto ORDER BY revision, id LIMIT $4) o`

// span asks betweenSQL for the places of several lanes.
type span struct{ lanes, above, upto []int64 }

func (s *span) add(lane, above, upto int64) {
	s.lanes, s.above, s.upto = append(s.lanes, lane), append(s.above, above), append(s.upto, upto)
}

func (s *span) queue(batch *pgx.Batch, limit int, found func(lane int64, p place)) {
	if len(s.lanes) == 0 {
		return
	}
	batch.Queue(betweenSQL, s.lanes, s.above, s.upto, limit).Query(func(rows pgx.Rows) error {
		var lane int64
		var p place
		_, err := pgx.ForEachRow(rows, []any{&lane, &p.id, &p.revision}, func() error {
			found(lane, p)
			return nil
		})
		return err
	})
}

// readLanes fills in the facts. The first round trip brings what every lane needs, the
// second what only some do.
func readLanes(ctx context.Context, tx pgx.Tx, now time.Time, locked []*laneFacts) error {
	byID := make(map[int64]*laneFacts, len(locked))
	byForward := make(map[int64]*laneFacts)
	var all, leasedIn, inFlight, due []int64
	var stale span
	for _, f := range locked {
		byID[f.resource], all = f, append(all, f.resource)
		f.chunk = laneChunk/len(locked) + 1
		if f.inFlight != nil {
			leasedIn, inFlight = append(leasedIn, f.resource), append(inFlight, *f.inFlight)
		}
		if f.passed != nil {
			stale.add(f.resource, -1, *f.passed)
		}
		for _, id := range f.due {
			byForward[id], due = f, append(due, id)
		}
	}
	batch := &pgx.Batch{}
	if len(inFlight) > 0 {
		batch.Queue(leaseSQL, leasedIn, inFlight, now).Query(func(rows pgx.Rows) error {
			var resource int64
			var leased, lost bool
			_, err := pgx.ForEachRow(rows, []any{&resource, &leased, &lost}, func() error {
				byID[resource].busy, byID[resource].lost = leased && !lost, lost
				return nil
			})
			return err
		})
	}
	batch.Queue(metSQL, due).Query(func(rows pgx.Rows) error {
		var p place
		_, err := pgx.ForEachRow(rows, []any{&p.id, &p.revision}, func() error {
			f := byForward[p.id]
			f.met = append(f.met, p)
			return nil
		})
		return err
	})
	batch.Queue(frontsSQL, all, now).Query(func(rows pgx.Rows) error { return readFronts(rows, byID) })
	stale.queue(batch, locked[0].chunk+1, func(lane int64, p place) { byID[lane].stale = append(byID[lane].stale, p) })
	batch.Queue(laneGapsSQL, all).Query(func(rows pgx.Rows) error { return readLaneGaps(rows, byID) })
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	return readMore(ctx, tx, locked, byID)
}

// readMore reads what is older than the newest of coalesced lanes, and what has arrived
// of the revisions that strict ones seem to miss.
func readMore(ctx context.Context, tx pgx.Tx, locked []*laneFacts, byID map[int64]*laneFacts) error {
	var older span
	var jumps, jumped []int64
	for _, f := range locked {
		switch {
		case f.busy || f.front == nil:
		case f.front.ordering == OrderCoalesce && f.newest != nil:
			older.add(f.resource, f.front.revision-1, f.newest.revision)
		case f.front.ordering == OrderStrict && f.passed != nil && f.front.revision-1 > *f.passed:
			jumps, jumped = append(jumps, f.resource), append(jumped, f.front.revision)
		}
	}
	batch := &pgx.Batch{}
	older.queue(batch, locked[0].chunk+1, func(lane int64, p place) { byID[lane].older = append(byID[lane].older, p) })
	if len(jumps) > 0 {
		batch.Queue(arrivedSQL, jumps, jumped, laneChunk).Query(func(rows pgx.Rows) error {
			var resource, revision int64
			_, err := pgx.ForEachRow(rows, []any{&resource, &revision}, func() error {
				byID[resource].arrived = append(byID[resource].arrived, revision)
				return nil
			})
			return err
		})
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}

func readFronts(rows pgx.Rows, byID map[int64]*laneFacts) error {
	var resource, gapTimeout int64
	var newest bool
	var q queued
	_, err := pgx.ForEachRow(rows, []any{&resource, &newest, &q.id, &q.ordering, &q.revision, &q.state, &q.hold, &q.due, &q.waiting,
		&q.attempts, &q.left, &q.expiresAt, &gapTimeout, &q.receivedAt, &q.size, &q.pruned}, func() error {
		one := q
		one.gapTimeout = time.Duration(gapTimeout) * time.Microsecond
		if newest {
			byID[resource].newest = &one
		} else {
			byID[resource].front = &one
		}
		return nil
	})
	return err
}
