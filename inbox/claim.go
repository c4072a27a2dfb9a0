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

// claimSQL leases what is due and stands in no lane: of each tenant and state the
// oldest, as many as were chosen. It steps over what another claim has locked. A row
// whose lease has expired leaves an attempt of unknown end behind; one that has no
// attempts or no time left is blocked in place of being handed out. The payload is
// looked for by a scalar query: of NOT EXISTS the planner makes a hash of the whole
// table, at each claim; and of a join with what was taken perhaps a scan, so that the
// keys come as an array. Bodies beyond $6 bytes are left for the next round, but for the first.
// $10 more are looked at for what is to be blocked.
const claimSQL = `
WITH t AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
due AS (
	SELECT o.*, q.state, q.most FROM unnest($7::text[], $8::text[], $9::int4[]) AS q(tenant, state, most)
	CROSS JOIN LATERAL (
		SELECT id, tenant, attempts, lease_until, next_attempt_at, replayed_by,
			(SELECT i.body_size FROM hooklatch.inbox i WHERE i.id = outbox.inbox_id) AS size,
			CASE WHEN expires_at <= (SELECT now FROM t) THEN '` + ReasonDeadlinePassed + `'
			     WHEN CASE WHEN attempts_max IS NOT NULL THEN attempts >= attempts_max
				  ELSE $2::int4 > 0 AND attempts - attempts_free >= $2 END THEN '` + ReasonAttemptsExhausted + `'
			     WHEN (SELECT p.inbox_id FROM hooklatch.payload p WHERE p.inbox_id = outbox.inbox_id AND variant = 0) IS NULL
			     THEN '` + ReasonBodyPruned + `' END AS spent
		FROM hooklatch.outbox
		WHERE destination = $3 AND tenant = q.tenant AND state = q.state AND ` + loneDue + ` AND next_attempt_at <= (SELECT now FROM t)
			AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t))
			AND NOT EXISTS (SELECT FROM hooklatch.destination WHERE name = $3 AND paused_at IS NOT NULL)
		ORDER BY next_attempt_at, id LIMIT q.most + $10::int4 FOR UPDATE SKIP LOCKED) o),
wanted AS (
	SELECT *, count(*) FILTER (WHERE spent IS NULL) OVER (PARTITION BY tenant, state ORDER BY next_attempt_at, id ROWS UNBOUNDED PRECEDING) AS n FROM due),
summed AS (
	SELECT *, sum(size) FILTER (WHERE spent IS NULL) OVER w AS total FROM wanted WHERE spent IS NOT NULL OR n <= most
	WINDOW w AS (ORDER BY next_attempt_at, id ROWS UNBOUNDED PRECEDING)),
taken AS (SELECT * FROM summed WHERE spent IS NOT NULL OR total <= $6 OR total = size),
lost AS (
	INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class, error, replayed_by, config_revision)
	SELECT id, attempts, tenant, (SELECT now FROM t), 'unknown', 'the lease ran out before the attempt was settled', replayed_by, nullif($5::int8, 0)
	FROM taken WHERE lease_until IS NOT NULL
	ON CONFLICT DO NOTHING),
k AS (
	UPDATE hooklatch.outbox o SET
		state = CASE WHEN o.id = ANY (x.spent) THEN 'blocked' ELSE o.state END,
		blocked_reason = CASE WHEN o.id = ANY (x.spent) THEN (SELECT spent FROM taken WHERE taken.id = o.id) END,
		settled_at = CASE WHEN o.id = ANY (x.spent) THEN (SELECT now FROM t) ELSE o.settled_at END,
		attempts = o.attempts + (o.id <> ALL (x.spent))::int4,
		lease_token = o.lease_token + 1,
		lease_until = CASE WHEN o.id <> ALL (x.spent) THEN (SELECT now FROM t) + $4::interval END
	FROM (SELECT ARRAY(SELECT id FROM taken) AS ids, ARRAY(SELECT id FROM taken WHERE spent IS NOT NULL) AS spent) x
	WHERE o.id = ANY (x.ids)
	RETURNING o.id, o.state, o.inbox_id, o.attempts, o.attempts_free, o.lease_token, coalesce(o.lease_until, 'epoch') AS lease_until,
		o.next_attempt_at, o.expires_at, ` + lastAttempt + `)
SELECT k.*, (SELECT count(*) FROM summed), ` + handedOver

// handedOver reads what to hand over for each row of k, each by its key and never by a
// join, which the planner might turn into a scan.
const handedOver = `i.tenant, i.source, i.delivery_id, i.body_hash, i.body_size, i.received_at, i.key_id, i.event_id, i.event_type,
	i.resource_type, i.resource_id, i.revision, i.deleted, p.inbox_id IS NOT NULL, coalesce(p.method, ''), p.raw_query, p.headers, p.body
FROM k
CROSS JOIN LATERAL (
	SELECT tenant, source, delivery_id, body_hash, body_size, received_at, coalesce(key_id, '') AS key_id,
		coalesce(event_id, '') AS event_id, coalesce(event_type, '') AS event_type,
		coalesce(resource_type, '') AS resource_type, coalesce(resource_id, '') AS resource_id, revision, deleted
	FROM hooklatch.inbox WHERE id = k.inbox_id OFFSET 0) i
LEFT JOIN LATERAL (
	SELECT inbox_id, method, raw_query, headers, body FROM hooklatch.payload WHERE inbox_id = k.inbox_id AND variant = 0 OFFSET 0) p ON true`

const claimedSQL = `
WITH k AS MATERIALIZED (SELECT * FROM unnest($1::int8[]) WITH ORDINALITY AS u(inbox_id, n))
SELECT k.n, ` + handedOver

// handed is where a row of handedOver is read into.
type handed struct {
	Delivery
	hash, query, headers, body []byte
	kept                       bool
}

func (h *handed) dest() []any {
	d := &h.Delivery
	return []any{&d.Tenant, &d.Source, &d.DeliveryID, &h.hash, &d.BodySize, &d.ReceivedAt, &d.KeyID, &d.EventID, &d.EventType,
		&d.ResourceType, &d.ResourceID, &d.Revision, &d.Deleted, &h.kept, &d.Method, &h.query, &h.headers, &h.body}
}

func (h *handed) delivery(id int64) (Delivery, error) {
	if !h.kept {
		return Delivery{}, fmt.Errorf("the claimed forward of delivery %d has no payload", id)
	}
	d := h.Delivery
	d.ID, d.BodyHash, d.RawQuery, d.Header, d.Body = id, [32]byte(h.hash), string(h.query), decodeHeader(h.headers), h.body
	h.Revision = nil // each delivery has its own
	return d, nil
}

// laneRounds is how many transactions of one Claim look at lanes, and how many block what
// has no attempts or no time left while something that was claimed waits to be sent.
const laneRounds = 16

// spentChunk is how many forwards are looked at beyond those that are wanted where some
// were blocked: after a long pause most of a backlog may have no time left.
const spentChunk = 500

// Claim leases forwards of one destination that are due, at most r.Limit, and returns
// them with what to hand over. Who goes first is said at ClaimRequest; no place stays
// empty while something that may take it is due. Attempts are counted here, so that one
// which kills its process is counted too. A paused destination has nothing due.
//
// What a claim reads does not grow with the number that waits: of each tenant no more
// than there are places, and as many that were tried before.
func (s *Store) Claim(ctx context.Context, r ClaimRequest) ([]Forward, error) {
	if r.Limit <= 0 || r.Lease <= 0 || r.Destination == "" {
		return nil, errors.New("claim: destination, limit and lease are demanded")
	}
	var all []Forward
	if r.Tenants == nil {
		var err error
		if r.Tenants, err = s.waitingTenants(ctx, r.Destination); err != nil {
			return nil, storeError("claim", classify(err, false), err)
		}
	}
	r.Tenants = slices.Compact(slices.Sorted(slices.Values(r.Tenants)))
	free := newPlaces(r)
	lanes, blocked := true, false
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
			c = &claiming{ClaimRequest: r, places: free.clone(), maxBytes: s.cfg.MaxBatchBytes, window: window, wide: wide(r.Limit, round), spent: blocked, gap: s.looked.last(r.Destination)}
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
		// is due that it may take.
		all = append(all, c.claimed...)
		free, lanes, blocked = c.places, c.moreLanes, c.blocked
		if blocked && len(all) > 0 && round >= laneRounds {
			return all, nil
		}
		stuck := window == 0 && c.due == 0
		if free.left == 0 || stuck || !c.more && !lanes {
			return all, nil
		}
	}
}

// claiming is one transaction of a Claim.
type claiming struct {
	ClaimRequest
	places   *places // those that are free
	maxBytes int
	window   int   // how much that is due in lanes is looked at; 0: none
	wide     int   // how much of all tenants together
	spent    bool  // some were blocked just before
	gap      int64 // the open gap that was looked at last

	claimed   []Forward
	due       int // outside lanes: what was locked
	blocked   bool
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
	var due []candidate
	lanes := newDueLanes()
	batch := &pgx.Batch{}
	alone := c.places.looks(c.Tenants, 0, c.wide, Pending, RetryWait)
	batch.Queue(dueSQL, alone.args(now, c.Destination)...).Query(func(rows pgx.Rows) (err error) {
		due, err = readDue(rows)
		return err
	})
	if c.window > 0 {
		each := max(c.window/max(len(c.Tenants), 1), c.places.left)
		lanes.looks = c.places.looks(c.Tenants, each, max(c.wide, c.window), Pending, Held, RetryWait)
		batch.Queue(laneDueSQL, lanes.looks.args(now, c.Destination)...).Query(lanes.read)
		batch.Queue(laneArrivedSQL, now, c.Destination, c.gap, gapsLooked).Query(func(rows pgx.Rows) (err error) {
			c.gap, err = lanes.readArrived(rows)
			return err
		})
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	_, narrow := alone.cut(countKinds(due))
	chosen, left := c.places.clone().choose(append(due, lanes.heads()...))
	lanes.arrange(chosen)
	if err := c.claimAlone(ctx, tx, now, chosen); err != nil {
		return err
	}
	if n := len(c.claimed); len(lanes.lanes) > 0 && c.places.left > 0 {
		if err := c.claimLanes(ctx, tx, lanes); err != nil {
			return err
		}
		if err := readClaimed(ctx, tx, c.claimed[n:]); err != nil {
			return err
		}
	}
	c.moreLanes = c.moreLanes || lanes.narrow
	c.more = c.more || narrow || slices.ContainsFunc(left, func(d candidate) bool { return d.lane == "" && c.places.room(d.tenant, d.retry) > 0 })
	slices.SortFunc(c.claimed, func(a, b Forward) int {
		return cmp.Or(cmp.Compare(turnOf(a.State), turnOf(b.State)), a.NextAttemptAt.Compare(b.NextAttemptAt), cmp.Compare(a.ID, b.ID))
	})
	return nil
}

// claimAlone leases as many of those that stand in no lane as were chosen.
func (c *claiming) claimAlone(ctx context.Context, tx pgx.Tx, now *time.Time, chosen []candidate) error {
	wanted := looksFor(chosen)
	if len(wanted.tenants) == 0 {
		return nil
	}
	spare := 0
	if c.spent {
		spare = spentChunk
	}
	rows, err := tx.Query(ctx, claimSQL, now, c.MaxAttempts, c.Destination, c.Lease, c.ConfigRevision, c.maxBytes,
		wanted.tenants, wanted.states, wanted.most, spare)
	if err != nil {
		return err
	}
	f := Forward{Destination: c.Destination}
	var h handed
	_, err = pgx.ForEachRow(rows, append([]any{&f.ID, &f.State, &f.Delivery.ID, &f.Attempt, &f.AttemptsFree, &f.Token, &f.LeaseUntil,
		&f.NextAttemptAt, &f.ExpiresAt, &f.Last, &f.ReplayedBy, &c.due}, h.dest()...), func() (err error) {
		one := f
		if f.State == Blocked {
			c.blocked = true
			return nil
		}
		if one.Delivery, err = h.delivery(f.Delivery.ID); err != nil {
			return err
		}
		c.claimed = append(c.claimed, one)
		c.places.take(h.Tenant, f.State == RetryWait)
		c.bytes += h.BodySize
		return nil
	})
	c.more = len(c.claimed) < c.due
	return err
}

// claimLanes gives each lane that nobody else has locked its turn.
func (c *claiming) claimLanes(ctx context.Context, tx pgx.Tx, due *dueLanes) error {
	locked, err := lockLanes(ctx, tx, c.Destination, due, c.places.left+4)
	if err != nil || len(locked) == 0 {
		return err
	}
	full := false
	w := &turns{now: due.now, configRevision: c.ConfigRevision}
	for _, f := range locked {
		w.add(f, f.decide(due.now, c.MaxAttempts, func(q *queued) bool {
			fits := c.bytes == 0 || c.bytes+q.size <= c.maxBytes
			if c.places.left == 0 || !fits {
				full = true
				return false
			}
			if c.places.room(f.tenant, q.state == RetryWait) == 0 {
				return false
			}
			c.places.take(f.tenant, q.state == RetryWait)
			c.bytes += q.size
			return true
		}))
	}
	// What is left alone is left alone the next time, too, but for lack of room.
	progress := len(w.leases) > 0 || len(w.moves) > 0 || w.again
	c.moreLanes = full || progress && (w.again || due.cut || len(locked) < len(due.lanes))
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
	var n int
	var h handed
	_, err = pgx.ForEachRow(rows, append([]any{&n}, h.dest()...), func() (err error) {
		f := &claimed[n-1]
		f.Delivery, err = h.delivery(f.Delivery.ID)
		return err
	})
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
