package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// The reasons with which Claim blocks a forward.
const (
	ReasonAttemptsExhausted = "attempts_exhausted"
	ReasonDeadlinePassed    = "deadline_passed"
	ReasonBodyPruned        = "body_pruned"
)

// lastAttempt reads of a forward that is claimed whether no other attempt follows, and
// who wanted this one.
const lastAttempt = `coalesce(o.attempts >= o.attempts_max, false), coalesce(o.replayed_by, '')`

// claimSQL leases what is due and stands in no lane, oldest first. A row whose lease has
// expired leaves an attempt of unknown end behind; one that has no attempts or no time
// left is blocked in place of being handed out. The payload is looked for by a scalar
// query: of NOT EXISTS the planner makes a hash of the whole table, at each claim.
// Bodies beyond $7 bytes are left for the next claim, but for the first. What is due in
// lanes, and is older, keeps its places: at most $8.
const claimSQL = `
WITH t AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
due AS (
	SELECT id, tenant, attempts, lease_until, next_attempt_at, replayed_by,
		(SELECT i.body_size FROM hooklatch.inbox i WHERE i.id = outbox.inbox_id) AS size,
		CASE WHEN expires_at <= (SELECT now FROM t) THEN '` + ReasonDeadlinePassed + `'
		     WHEN CASE WHEN attempts_max IS NOT NULL THEN attempts >= attempts_max
			  ELSE $2::int4 > 0 AND attempts - attempts_free >= $2 END THEN '` + ReasonAttemptsExhausted + `'
		     WHEN (SELECT p.inbox_id FROM hooklatch.payload p WHERE p.inbox_id = outbox.inbox_id AND variant = 0) IS NULL
		     THEN '` + ReasonBodyPruned + `' END AS spent
	FROM hooklatch.outbox
	WHERE destination = $3 AND state IN ('pending', 'retry_wait') AND lane IS NULL AND next_attempt_at <= (SELECT now FROM t)
		AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t))
		AND NOT EXISTS (SELECT FROM hooklatch.destination WHERE name = $3 AND paused_at IS NOT NULL)
	ORDER BY next_attempt_at, id LIMIT $4 FOR UPDATE SKIP LOCKED),
lanes AS (
	SELECT id, next_attempt_at FROM hooklatch.outbox
	WHERE destination = $3 AND ` + inLaneDue + ` AND next_attempt_at <= (SELECT now FROM t)
		AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t))
	ORDER BY next_attempt_at, id LIMIT $8),
summed AS (
	SELECT *, sum(size) FILTER (WHERE spent IS NULL) OVER w AS total, row_number() OVER w AS place
	FROM (
		SELECT id, tenant, attempts, lease_until, next_attempt_at, replayed_by, size, spent, false AS ordered FROM due
		UNION ALL
		SELECT id, NULL, NULL, NULL, next_attempt_at, NULL, NULL, NULL, true FROM lanes) both_kinds
	WINDOW w AS (ORDER BY next_attempt_at, id ROWS UNBOUNDED PRECEDING)),
taken AS (SELECT * FROM summed WHERE NOT ordered AND place <= $4 AND (spent IS NOT NULL OR total <= $7 OR total = size)),
lost AS (
	INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class, error, replayed_by, config_revision)
	SELECT id, attempts, tenant, (SELECT now FROM t), 'unknown', 'the lease ran out before the attempt was settled', replayed_by, nullif($6::int8, 0)
	FROM taken WHERE lease_until IS NOT NULL
	ON CONFLICT DO NOTHING)
UPDATE hooklatch.outbox o SET
	state = CASE WHEN spent IS NULL THEN o.state ELSE 'blocked' END,
	blocked_reason = spent,
	settled_at = CASE WHEN spent IS NULL THEN o.settled_at ELSE (SELECT now FROM t) END,
	attempts = o.attempts + (spent IS NULL)::int4,
	lease_token = o.lease_token + 1,
	lease_until = CASE WHEN spent IS NULL THEN (SELECT now FROM t) + $5::interval END
FROM taken WHERE o.id = taken.id
RETURNING (SELECT count(*) FROM due), taken.size, o.id, o.state, o.inbox_id, o.attempts, o.attempts_free, o.lease_token, o.lease_until,
	o.next_attempt_at, o.expires_at, ` + lastAttempt

// claimedSQL reads what to hand over, each by its key and never by a join, which
// the planner might turn into a scan.
const claimedSQL = `
SELECT k.n, i.tenant, i.source, i.delivery_id, i.body_hash, i.body_size, i.received_at, i.key_id, i.event_id, i.event_type,
	i.resource_type, i.resource_id, i.revision, i.deleted, p.method, p.raw_query, p.headers, p.body
FROM unnest($1::int8[]) WITH ORDINALITY AS k(id, n)
CROSS JOIN LATERAL (
	SELECT tenant, source, delivery_id, body_hash, body_size, received_at, coalesce(key_id, '') AS key_id,
		coalesce(event_id, '') AS event_id, coalesce(event_type, '') AS event_type,
		coalesce(resource_type, '') AS resource_type, coalesce(resource_id, '') AS resource_id, revision, deleted
	FROM hooklatch.inbox WHERE id = k.id OFFSET 0) i
CROSS JOIN LATERAL (
	SELECT method, raw_query, headers, body FROM hooklatch.payload WHERE inbox_id = k.id AND variant = 0 OFFSET 0) p`

// dueTenantsSQL finds the tenants of what is due first, and of the gaps that are to be
// looked at. Others follow when that is leased.
const dueTenantsSQL = `
WITH t AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT DISTINCT tenant FROM (
	(SELECT tenant FROM hooklatch.outbox WHERE destination = $2 AND state IN ('pending', 'retry_wait') AND lane IS NULL
		AND next_attempt_at <= (SELECT now FROM t) AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t))
	ORDER BY next_attempt_at, id LIMIT 1000)
	UNION ALL
	(SELECT tenant FROM hooklatch.outbox WHERE destination = $2 AND ` + inLaneDue + `
		AND next_attempt_at <= (SELECT now FROM t) AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t))
	ORDER BY next_attempt_at, id LIMIT 1000)
	UNION ALL
	(SELECT tenant FROM hooklatch.gap WHERE closed_at IS NULL AND resource > $3 ORDER BY resource LIMIT $4)) due`

func (s *Store) dueTenants(ctx context.Context, r ClaimRequest) ([]string, error) {
	var now *time.Time
	if !r.Now.IsZero() {
		now = &r.Now
	}
	return collect(ctx, s, roleRead, pgx.RowTo[string], dueTenantsSQL, now, r.Destination, s.looked.last(r.Destination), gapsLooked)
}

// laneRounds is how many transactions of one Claim look at lanes.
const laneRounds = 16

// Claim leases forwards of one destination that are due, oldest first, at most
// r.Limit, and returns them with what to hand over. Attempts are counted here,
// so that one which kills its process is counted too. A paused destination has
// nothing due.
func (s *Store) Claim(ctx context.Context, r ClaimRequest) ([]Forward, error) {
	if r.Limit <= 0 || r.Lease <= 0 || r.Destination == "" {
		return nil, errors.New("claim: destination, limit and lease are demanded")
	}
	var all []Forward
	if r.Tenants == nil {
		var err error
		if r.Tenants, err = s.dueTenants(ctx, r); err != nil {
			return nil, storeError("claim", classify(err, false), err)
		}
	}
	lanes := true
	for round := 1; ; round++ {
		window := 0
		if lanes && round <= laneRounds {
			window = laneChunk
			if round == 1 {
				window = min(max(4*r.Limit, 64), laneChunk)
			}
		}
		var c *claiming
		err := s.asOf(ctx, roleConsumer, r.Tenants, func(tx pgx.Tx) error {
			c = &claiming{ClaimRequest: r, maxBytes: s.cfg.MaxBatchBytes, window: window, gap: s.looked.last(r.Destination)}
			return c.run(ctx, tx)
		})
		if err != nil && len(all) > 0 {
			return all, nil // these are leased
		}
		if err != nil {
			return nil, storeError("claim", classify(err, false), err)
		}
		if len(c.claimed) > 0 {
			failpoint("after_claim")
		}
		s.looked.set(r.Destination, c.gap)
		s.tellOrder(c)
		// A claim that comes back with fewer than asked for means that nothing more
		// is due.
		all = append(all, c.claimed...)
		r.Limit -= len(c.claimed)
		lanes = c.moreLanes
		if r.Limit == 0 || !c.more && !lanes {
			return all, nil
		}
	}
}

// claiming is one transaction of a Claim.
type claiming struct {
	ClaimRequest
	maxBytes int
	window   int   // how much that is due in lanes is looked at; 0: none
	gap      int64 // the open gap that was looked at last

	claimed   []Forward
	due       int // outside lanes
	bytes     int
	more      bool // there may be more that is due outside lanes: these have been blocked, or were too large
	moreLanes bool // and in lanes

	superseded int
	conflicts  []RevisionConflict
}

func (c *claiming) run(ctx context.Context, tx pgx.Tx) error {
	var now *time.Time
	if !c.Now.IsZero() {
		now = &c.Now
	}
	lanes := dueLanes{met: map[string][]int64{}, made: map[string]bool{}}
	batch := &pgx.Batch{}
	if c.window > 0 {
		batch.Queue(laneDueSQL, now, c.Destination, c.window).Query(lanes.read)
		batch.Queue(laneArrivedSQL, now, c.Destination, c.gap, gapsLooked).Query(func(rows pgx.Rows) (err error) {
			c.gap, err = lanes.readArrived(rows)
			return err
		})
	}
	batch.Queue(claimSQL, now, c.MaxAttempts, c.Destination, c.Limit, c.Lease, c.ConfigRevision, c.maxBytes, min(c.window, c.Limit)).Query(c.read)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	// Where lanes kept all places, nothing tells whether more is due outside them.
	c.more = len(c.claimed) < c.due || c.due == 0 && lanes.found >= c.Limit
	if len(lanes.lanes) > 0 && len(c.claimed) < c.Limit {
		if err := c.claimLanes(ctx, tx, &lanes); err != nil {
			return err
		}
	}
	slices.SortFunc(c.claimed, func(a, b Forward) int {
		return cmp.Or(a.NextAttemptAt.Compare(b.NextAttemptAt), cmp.Compare(a.ID, b.ID))
	})
	return readClaimed(ctx, tx, c.claimed)
}

func (c *claiming) read(rows pgx.Rows) error {
	f := Forward{Destination: c.Destination}
	var size int
	var lease *time.Time
	_, err := pgx.ForEachRow(rows, []any{&c.due, &size, &f.ID, &f.State, &f.Delivery.ID, &f.Attempt, &f.AttemptsFree, &f.Token, &lease,
		&f.NextAttemptAt, &f.ExpiresAt, &f.Last, &f.ReplayedBy}, func() error {
		if f.State == Blocked {
			return nil
		}
		f.LeaseUntil = *lease
		c.claimed = append(c.claimed, f)
		c.bytes += size
		return nil
	})
	return err
}

// claimLanes gives each lane that nobody else has locked its turn.
func (c *claiming) claimLanes(ctx context.Context, tx pgx.Tx, due *dueLanes) error {
	locked, err := lockLanes(ctx, tx, c.Destination, due, c.Limit-len(c.claimed)+4)
	if err != nil || len(locked) == 0 {
		return err
	}
	left, full := c.Limit-len(c.claimed), false
	hasRoom := func(q *queued) bool {
		fits := c.bytes == 0 || c.bytes+q.size <= c.maxBytes
		if left == 0 || !fits {
			full = true
			return false
		}
		left--
		c.bytes += q.size
		return true
	}
	w := &turns{now: due.now, configRevision: c.ConfigRevision}
	for _, f := range locked {
		w.add(f, f.decide(due.now, c.MaxAttempts, hasRoom))
	}
	// What is left alone is left alone the next time, too, but for lack of room.
	progress := len(w.leases) > 0 || len(w.moves) > 0 || w.again
	c.moreLanes = full || progress && (w.again || due.found == c.window || len(locked) < len(due.lanes))
	c.superseded = len(w.superseded)
	return w.write(ctx, tx, c)
}

func (c *claiming) readLeased(rows pgx.Rows) error {
	f := Forward{Destination: c.Destination}
	_, err := pgx.ForEachRow(rows, []any{&f.ID, &f.State, &f.Ordering, &f.Delivery.ID, &f.Attempt, &f.AttemptsFree, &f.Token, &f.LeaseUntil,
		&f.NextAttemptAt, &f.ExpiresAt, &f.Last, &f.ReplayedBy}, func() error {
		c.claimed = append(c.claimed, f)
		return nil
	})
	return err
}

func readClaimed(ctx context.Context, tx pgx.Tx, claimed []Forward) error {
	if len(claimed) == 0 {
		return nil
	}
	ids := make([]int64, len(claimed))
	for i, f := range claimed {
		ids[i] = f.Delivery.ID
	}
	rows, err := tx.Query(ctx, claimedSQL, ids)
	if err != nil {
		return err
	}
	var d Delivery
	var n, read int
	var hash, query, headers, body []byte
	_, err = pgx.ForEachRow(rows, []any{&n, &d.Tenant, &d.Source, &d.DeliveryID, &hash, &d.BodySize, &d.ReceivedAt, &d.KeyID, &d.EventID, &d.EventType,
		&d.ResourceType, &d.ResourceID, &d.Revision, &d.Deleted, &d.Method, &query, &headers, &body}, func() error {
		f := &claimed[n-1]
		d.ID = f.Delivery.ID
		d.BodyHash, d.RawQuery, d.Header, d.Body = [32]byte(hash), string(query), decodeHeader(headers), body
		f.Delivery = d
		d.Revision = nil
		read++
		return nil
	})
	if err == nil && read != len(claimed) {
		err = fmt.Errorf("%d of %d claimed forwards have no payload", len(claimed)-read, len(claimed))
	}
	return err
}

const renewSQL = `
UPDATE hooklatch.outbox SET lease_until = clock_timestamp() + $3::interval
WHERE id = $1 AND lease_token = $2 AND lease_until IS NOT NULL RETURNING lease_until`

// Renew prolongs the lease of a claimed forward to the given time from now and
// returns its new end.
// After ErrLeaseLost the worker must stop: somebody else may have the forward.
func (s *Store) Renew(ctx context.Context, f Forward, lease time.Duration) (time.Time, error) {
	var until time.Time
	err := s.asOf(ctx, roleConsumer, []string{f.Delivery.Tenant}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, renewSQL, f.ID, f.Token, lease).Scan(&until)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return until, fmt.Errorf("renew forward %d: %w", f.ID, ErrLeaseLost)
	}
	if err != nil {
		return until, storeError(fmt.Sprintf("renew forward %d", f.ID), classify(err, false), err)
	}
	return until, nil
}
