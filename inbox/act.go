package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Act is who decided something about a delivery, and why. Both are demanded: they
// stand in the audit beside what was done.
type Act struct{ Actor, Reason string }

func (a Act) check() error {
	if a.Actor == "" || a.Reason == "" || !isText(a.Actor) || !isText(a.Reason) {
		return errors.New("actor and reason are demanded, as text")
	}
	return nil
}

// The actions in the audit.
const (
	actRoute   = "route"
	actReplay  = "replay"
	actCancel  = "cancel"
	actRelease = "release"
	actAssign  = "assign"
)

const auditActSQL = `
INSERT INTO hooklatch.audit (tenant, actor, action, reason, inbox_id, outbox_id, resource, detail)
VALUES ($1, $2, $3, $4, nullif($5::int8, 0), nullif($6::int8, 0), nullif($7::int8, 0), nullif($8, ''))`

// target is a forward that a person acts on, locked, and its lane.
type target struct {
	id, deliveryID      int64
	tenant, destination string
	state               State
	hold                HoldReason
	ordering            Ordering // OrderNone: there is no lane
	leased, lost        bool     // its lease lives; has run out
	token               int64
	replayed            bool // a person has decided about the attempts to come
	revision            int64
	resource            int64
	passed              *int64
}

// superseded says that the lane has gone past it.
func (f *target) superseded() bool {
	return f.state == Superseded || f.passed != nil && f.revision <= *f.passed
}

// passedSQL is how far the destination is with the resource of a delivery, also for a
// forward that stands in no lane: it was forced once, or ordering came later.
const passedSQL = `(SELECT r.passed FROM hooklatch.resource r WHERE r.resource_id = i.resource_id AND r.resource_type = coalesce(i.resource_type, '')
	AND r.destination = o.destination AND r.source || '' = i.source AND r.tenant || '' = i.tenant)`

const passedOutsideSQL = `
SELECT i.revision, ` + passedSQL + ` FROM (SELECT inbox_id, destination FROM hooklatch.outbox WHERE id = $1 OFFSET 0) o
CROSS JOIN LATERAL (SELECT * FROM hooklatch.inbox WHERE id = o.inbox_id AND revision IS NOT NULL OFFSET 0) i`

const (
	targetSQL = `SELECT destination, lane FROM hooklatch.outbox WHERE id = $1`

	// lockLaneSQL also writes the row: a SettleTx under REPEATABLE READ that does not see
	// the act must fail.
	lockLaneSQL = `UPDATE hooklatch.resource SET touched_at = clock_timestamp() WHERE destination = $1 AND lane = $2 RETURNING id, passed`

	lockForwardSQL = `
SELECT id, inbox_id, tenant, destination, state, coalesce(hold_reason, ''), coalesce(ordering, ''), coalesce(revision, 0),
	coalesce(lease_until > clock_timestamp(), false), coalesce(lease_until <= clock_timestamp(), false), lease_token, replayed_by IS NOT NULL
FROM hooklatch.outbox WHERE id = $1 FOR UPDATE`
)

// lockTarget locks a forward, and its lane before it. It makes the lane's row where no
// claim has met it yet: without it, a claim that does so now would not see the lock.
func lockTarget(ctx context.Context, tx pgx.Tx, forwardID int64) (*target, error) {
	f := &target{}
	var lane []byte
	if err := tx.QueryRow(ctx, targetSQL, forwardID).Scan(&f.destination, &lane); err != nil {
		return nil, err
	}
	if lane != nil {
		if _, err := tx.Exec(ctx, makeLanesSQL, f.destination, [][]byte{lane}, []int64{forwardID}); err != nil {
			return nil, err
		}
		if err := tx.QueryRow(ctx, lockLaneSQL, f.destination, lane).Scan(&f.resource, &f.passed); err != nil {
			return nil, err
		}
	}
	return f, tx.QueryRow(ctx, lockForwardSQL, forwardID).Scan(&f.id, &f.deliveryID, &f.tenant, &f.destination, &f.state, &f.hold, &f.ordering,
		&f.revision, &f.leased, &f.lost, &f.token, &f.replayed)
}

// act runs do on a locked forward, in one transaction with its line in the audit.
func (s *Store) act(ctx context.Context, forwardID int64, act Act, action string, do func(pgx.Tx, *target) (detail string, err error)) error {
	op := fmt.Sprintf("%s forward %d", action, forwardID)
	if err := act.check(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	var f *target
	err := s.as(ctx, roleAdmin, func(tx pgx.Tx) (err error) {
		if f, err = lockTarget(ctx, tx, forwardID); err != nil {
			return err
		}
		detail, err := do(tx, f)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, auditActSQL, f.tenant, act.Actor, action, act.Reason, f.deliveryID, f.id, f.resource, detail)
		return err
	})
	return s.acted(op, f.name(), err)
}

func (f *target) name() string {
	if f == nil {
		return ""
	}
	return f.destination
}

// acted names what came of an act, and says that something may be due.
func (s *Store) acted(op, destination string, err error) error {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%s: %w", op, ErrNotFound)
	case errors.Is(err, ErrSuperseded), errors.Is(err, ErrInFlight), errors.Is(err, ErrState), errors.Is(err, ErrPruned), errors.Is(err, ErrRemoved):
		return fmt.Errorf("%s: %w", op, err)
	case err != nil:
		return storeError(op, classify(err, false), err)
	}
	if s.cfg.OnForwards != nil {
		s.cfg.OnForwards(destination)
	}
	return nil
}

// ReplayRequest says how a forward is replayed.
type ReplayRequest struct {
	Act
	// Force sends it although its lane has gone past its revision: outside its lane and
	// without a word to it, so that the destination goes back to that revision.
	Force bool
	// WithRetries gives it the whole budget of attempts once more, in place of one.
	WithRetries bool
	// Seen is the Token of the forward when the person saw it: who decides about
	// something else than what is there now is refused. nil: whatever is there now.
	Seen *int64
}

// replaySQL makes a forward due, with as much time as it had at its receipt, and one
// attempt; $3: with the budget of a new one. What waited for a person was not tried yet,
// and has its budget. What lies before uses up none, however small the budget has
// become. $2 takes it out of its lane.
const replaySQL = `
UPDATE hooklatch.outbox o SET
	state = CASE WHEN o.attempts = 0 THEN 'pending' ELSE 'retry_wait' END,
	next_attempt_at = clock_timestamp(),
	expires_at = clock_timestamp() + (o.expires_at - (SELECT received_at FROM hooklatch.inbox WHERE id = o.inbox_id)),
	attempts_free = o.attempts,
	attempts_max = CASE WHEN NOT $3 AND o.state <> 'held' THEN o.attempts + 1 END,
	replayed_by = $4,
	blocked_reason = NULL, hold_reason = NULL, settled_at = NULL, waiting = false,
	ordering = CASE WHEN NOT $2 THEN o.ordering END, lane = CASE WHEN NOT $2 THEN o.lane END,
	revision = CASE WHEN NOT $2 THEN o.revision END, gap_timeout = CASE WHEN NOT $2 THEN o.gap_timeout END
WHERE o.id = $1`

const removedSQL = `SELECT EXISTS (SELECT FROM hooklatch.destination WHERE name = $1 AND removed_at IS NOT NULL)`

// Replay makes a forward due again that is blocked, or held for a person. It keeps its
// ids and its place in its lane, gets one attempt more, and its deadline begins anew.
//
// ErrSuperseded: its lane has gone past its revision. ErrPruned: its body is gone.
// ErrRemoved: its destination is gone. ErrInFlight: it is being tried. ErrReplaying:
// somebody else was faster. ErrState: it is in another state, or it was tried since it
// was seen. ErrNotFound: there is no such forward.
func (s *Store) Replay(ctx context.Context, forwardID int64, r ReplayRequest) error {
	return s.act(ctx, forwardID, r.Act, actReplay, func(tx pgx.Tx, f *target) (string, error) {
		if f.ordering == OrderNone {
			err := tx.QueryRow(ctx, passedOutsideSQL, f.id).Scan(&f.revision, &f.passed)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return "", err
			}
		}
		superseded := f.superseded()
		switch {
		case f.leased:
			return "", ErrInFlight
		case f.replayed && (f.state == Pending || f.state == RetryWait):
			return "", ErrReplaying
		case f.state != Blocked && f.state != Superseded && (f.state != Held || f.hold != HoldPerson):
			return "", fmt.Errorf("%w: it is %s", ErrState, f.state)
		case r.Seen != nil && *r.Seen != f.token:
			return "", fmt.Errorf("%w: it was tried since it was seen", ErrState)
		case superseded && !r.Force:
			return "", ErrSuperseded
		}
		var kept, removed bool
		batch := &pgx.Batch{}
		batch.Queue(bodySQL, f.deliveryID).QueryRow(func(row pgx.Row) error { return row.Scan(&kept) })
		batch.Queue(removedSQL, f.destination).QueryRow(func(row pgx.Row) error { return row.Scan(&removed) })
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return "", err
		}
		switch {
		case !kept:
			return "", ErrPruned
		case removed:
			return "", ErrRemoved
		}
		var detail []string
		if superseded {
			detail = append(detail, fmt.Sprintf("forced: revision %d is passed", f.revision))
		}
		if r.WithRetries {
			detail = append(detail, "with retries")
		}
		_, err := tx.Exec(ctx, replaySQL, f.id, superseded, r.WithRetries, r.Actor)
		return strings.Join(detail, ", "), err
	})
}

const (
	cancelSQL = `
UPDATE hooklatch.outbox SET state = 'cancelled', settled_at = clock_timestamp(), lease_until = NULL, lease_token = lease_token + $2::bool::int4,
	waiting = false, hold_reason = NULL, blocked_reason = NULL
WHERE id = $1`

	// passCancelledSQL lets a strict lane go past what was cancelled at its front, unless
	// another delivery has brought the same revision.
	passCancelledSQL = `
UPDATE hooklatch.resource r SET passed = $2 WHERE r.id = $1 AND r.passed = $2 - 1
	AND (SELECT id FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane AND ` + standsInLane + `
		AND revision = $2 LIMIT 1) IS NULL`

	// closeEmptyGapSQL closes a gap for which nothing is held any more.
	closeEmptyGapSQL = `
UPDATE hooklatch.gap SET closed_at = clock_timestamp(), closed_by = 'release' FROM hooklatch.resource r
WHERE gap.resource = $1 AND gap.closed_at IS NULL AND r.id = $1
	AND (SELECT id FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane AND ` + standsInLane + `
		AND state = 'held' AND hold_reason = 'gap' LIMIT 1) IS NULL`
)

// Cancel decides that a forward is not sent, whatever open state it is in. Its lane
// goes on without it. ErrInFlight: it is being tried. ErrState: it is settled.
// ErrNotFound: there is no such forward.
func (s *Store) Cancel(ctx context.Context, forwardID int64, act Act) error {
	return s.cancel(ctx, forwardID, act, func(f *target) error {
		if f.state == Accepted || f.state == Superseded || f.state == Cancelled {
			return fmt.Errorf("%w: it is %s", ErrState, f.state)
		}
		return nil
	})
}

func (s *Store) cancel(ctx context.Context, forwardID int64, act Act, check func(*target) error) error {
	return s.act(ctx, forwardID, act, actCancel, func(tx pgx.Tx, f *target) (string, error) {
		if f.leased {
			return "", ErrInFlight
		}
		if err := check(f); err != nil {
			return "", err
		}
		detail := string(f.state)
		if f.hold != "" {
			detail += ", " + string(f.hold)
		}
		batch := &pgx.Batch{}
		if f.lost {
			batch.Queue(lostSQL, []int64{f.id}, nil, 0)
		}
		batch.Queue(cancelSQL, f.id, f.lost)
		if f.ordering == OrderStrict {
			batch.Queue(passCancelledSQL, f.resource, f.revision)
		}
		if f.ordering != OrderNone {
			batch.Queue(closeEmptyGapSQL, f.resource)
			batch.Queue(rouseSQL, []int64{f.resource}, nil)
		}
		return "it was " + detail, tx.SendBatch(ctx, batch).Close()
	})
}

// ResourceRef names a lane: one resource at one destination.
type ResourceRef struct {
	Tenant, Destination, Source string
	ResourceType, ResourceID    string
}

const (
	// frontSQL reads the first of a lane above what is passed.
	frontSQL = `
SELECT o.id, o.inbox_id, o.ordering, o.revision, o.state, i.received_at
FROM (SELECT * FROM hooklatch.resource WHERE id = $1 OFFSET 0) r
CROSS JOIN LATERAL (
	SELECT * FROM hooklatch.outbox WHERE destination = r.destination AND lane = r.lane AND ` + standsInLane + `
		AND revision > coalesce(r.passed, -1) ORDER BY revision, id LIMIT 1) o
CROSS JOIN LATERAL (SELECT received_at FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i`

	passSQL = `UPDATE hooklatch.resource SET passed = $2 WHERE id = $1`
)

// Release lets a strict lane go on. Where revisions are missing, they are given up;
// else the dead letter at the front is stepped over, and stays one. It returns the first
// and the last revision that the lane no longer waits for. ErrState: the lane waits for
// neither. ErrNotFound: no forward of it was due yet.
func (s *Store) Release(ctx context.Context, ref ResourceRef, act Act) (first, last int64, err error) {
	op := fmt.Sprintf("release %s/%s at %s", ref.ResourceType, ref.ResourceID, ref.Destination)
	if err := act.check(); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", op, err)
	}
	err = s.as(ctx, roleAdmin, func(tx pgx.Tx) error {
		first, last, err = release(ctx, tx, ref, act)
		return err
	})
	return first, last, s.acted(op, ref.Destination, err)
}

func release(ctx context.Context, tx pgx.Tx, ref ResourceRef, act Act) (first, last int64, err error) {
	var f target
	lane := laneOf(&Delivery{Tenant: ref.Tenant, Source: ref.Source, ResourceType: ref.ResourceType, ResourceID: ref.ResourceID, Revision: new(int64)})
	if err := tx.QueryRow(ctx, lockLaneSQL, ref.Destination, lane).Scan(&f.resource, &f.passed); err != nil {
		return 0, 0, err
	}
	var q queued
	err = tx.QueryRow(ctx, frontSQL, f.resource).Scan(&f.id, &f.deliveryID, &q.ordering, &q.revision, &q.state, &q.receivedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, fmt.Errorf("%w: nothing stands in it", ErrState)
	}
	if err != nil {
		return 0, 0, err
	}
	batch := &pgx.Batch{}
	detail := ""
	switch {
	case q.ordering != OrderStrict:
		return 0, 0, fmt.Errorf("%w: its order is %s", ErrState, q.ordering)
	case f.passed != nil && q.revision-1 > *f.passed:
		first, last, detail = *f.passed+1, q.revision-1, "missing"
		batch.Queue(openNewGapSQL, f.resource, first, last, q.receivedAt) // no claim may have met it yet
		batch.Queue(closeGapSQL, f.resource, nil, closedByRelease)
	case q.state == Blocked:
		first, last, detail = q.revision, q.revision, "blocked"
	default:
		return 0, 0, fmt.Errorf("%w: its front is %s", ErrState, q.state)
	}
	batch.Queue(passSQL, f.resource, last)
	batch.Queue(rouseSQL, []int64{f.resource}, nil)
	batch.Queue(auditActSQL, ref.Tenant, act.Actor, actRelease, act.Reason, 0, 0, f.resource,
		fmt.Sprintf("revisions %d to %d, %s", first, last, detail))
	return first, last, tx.SendBatch(ctx, batch).Close()
}
