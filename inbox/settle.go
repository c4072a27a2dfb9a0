package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// settling is a settlement on its way.
type settling struct {
	Settlement
	held    bool // its lease was still held
	ordered bool // its forward stands in a lane, and was moved
}

// Settle ends a lease: it moves the forward as s.Outcome says and appends the
// attempt to the ledger, in one transaction that concurrent calls share. A
// worker whose lease was lost changes nothing but the ledger, where its attempt
// is marked late, and gets ErrLeaseLost. Settling a lease twice is harmless: the
// second call returns nil.
func (s *Store) Settle(ctx context.Context, st Settlement) error {
	if err := st.check(); err != nil {
		return err
	}
	work := &settling{Settlement: st}
	err := s.settles.submit(ctx, work, len(st.Answer)+len(st.Error))
	if errors.Is(err, errWaited) {
		return fmt.Errorf("settle forward %d: %w: %w", st.ForwardID, ErrUnavailable, err)
	}
	if errors.Is(err, errUndecided) {
		return fmt.Errorf("settle forward %d: %w: %w", st.ForwardID, ErrOutcomeUnknown, err)
	}
	if err != nil {
		return fmt.Errorf("settle forward %d: %w", st.ForwardID, err)
	}
	return work.verdict()
}

// SettleTx is Settle inside the caller's transaction, so that business rows and
// "done" commit together. Its own part runs with the role hooklatch_consumer, which
// the login must be a member of; afterwards the transaction has the role that it had
// before. After an error the caller must roll back.
func (s *Store) SettleTx(ctx context.Context, tx pgx.Tx, st Settlement) error {
	if err := st.check(); err != nil {
		return err
	}
	work := &settling{Settlement: st}
	err := within(ctx, tx, roleConsumer, []string{st.Tenant}, func() error { return settle(ctx, tx, []*settling{work}) })
	if err != nil {
		return storeError(fmt.Sprintf("settle forward %d", st.ForwardID), classify(err, false), err)
	}
	return work.verdict()
}

func (st Settlement) check() error {
	switch {
	case st.Outcome < OutcomeAccepted || st.Outcome > OutcomeReleased:
		return fmt.Errorf("settle forward %d: unknown outcome %d", st.ForwardID, st.Outcome)
	case st.Tenant == "":
		return fmt.Errorf("settle forward %d: it has no tenant", st.ForwardID)
	case st.Outcome != OutcomeReleased && st.Class == "":
		return fmt.Errorf("settle forward %d: the attempt has no class", st.ForwardID)
	}
	return nil
}

func (w *settling) verdict() error {
	if !w.held {
		return fmt.Errorf("settle forward %d: %w", w.ForwardID, ErrLeaseLost)
	}
	return nil
}

// settleBatch decides every member of one shared settlement.
func (s *Store) settleBatch(batch []*member[*settling]) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTime)
	defer cancel()
	work := make([]*settling, len(batch))
	for i, m := range batch {
		work[i] = m.work
	}
	err := s.settleAll(ctx, work)
	if err != nil && len(batch) > 1 && mayShareBlame(err) {
		for _, m := range batch {
			m.err = s.settleAll(ctx, []*settling{m.work})
		}
		return
	}
	for _, m := range batch {
		m.err = err
	}
}

func (s *Store) settleAll(ctx context.Context, work []*settling) error {
	tenants := make([]string, len(work))
	for i, w := range work {
		tenants[i] = w.Tenant
	}
	for try := 1; ; try++ {
		err := s.asOf(ctx, roleConsumer, tenants, func(tx pgx.Tx) error {
			return settle(ctx, tx, work)
		})
		if err == nil {
			return nil
		}
		// Settling twice is harmless, so an unknown outcome may be tried again.
		c := classify(err, false)
		if (c == classNotCommitted || c == classStale || c == classRetry) && try < 3 && ctx.Err() == nil && pause(ctx, c) {
			continue
		}
		switch c {
		case classData, classRolledBack:
			err = fmt.Errorf("%w: %w", errRefused, err)
		case classBlocked:
			err = fmt.Errorf("%w: %w", errBlocked, err)
		}
		return fmt.Errorf("%w: %w", c.public(), err)
	}
}

// settleSQL moves the forwards whose lease is still held, and appends every
// attempt that was sent. The token alone guards: a second lease has the same
// state as the first. A forward that this very lease has settled before has the
// token and no lease: that is the repeat of a settlement whose answer was lost. The
// last attempt of a replay leaves a dead letter, or what was accepted. Who wanted a late
// attempt stands beside its number already: the forward may have been replayed since.
const settleSQL = `
WITH s AS MATERIALIZED (
	SELECT *, coalesce(at, clock_timestamp()) AS now
	FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::text[], $5::int8[], $6::bool[], $7::text[], $8::bool[],
		$9::text[], $10::int4[], $11::text[], $12::bytea[], $13::int8[], $14::text[], $15::int8[], $16::timestamptz[]) WITH ORDINALITY
	AS u(id, token, number, state, delay_us, free, reason, released,
		class, status, error, answer, duration_us, worker, config_revision, at, n)),
l AS MATERIALIZED (
	SELECT s.n, o.tenant, o.lane IS NOT NULL AS ordered, o.lease_token = s.token AS held,
		o.lease_token = s.token AND o.lease_until IS NOT NULL AS live, o.replayed_by,
		s.state = 'retry_wait' AND coalesce(o.attempts >= o.attempts_max, false) AS last
	FROM s CROSS JOIN LATERAL (
		SELECT tenant, lane, lease_token, lease_until, replayed_by, attempts, attempts_max FROM hooklatch.outbox WHERE id = s.id FOR UPDATE) o),
u AS (
	UPDATE hooklatch.outbox o SET
		state = CASE WHEN s.released THEN o.state WHEN l.last THEN 'blocked' ELSE s.state END,
		next_attempt_at = CASE WHEN s.released THEN o.next_attempt_at ELSE s.now + make_interval(secs => s.delay_us / 1e6) END,
		attempts = o.attempts - s.released::int4,
		attempts_free = o.attempts_free + s.free::int4,
		blocked_reason = CASE WHEN l.last THEN '` + ReasonAttemptsExhausted + `' ELSE nullif(s.reason, '') END,
		settled_at = CASE WHEN l.last OR s.state IN ('accepted', 'blocked') AND NOT s.released THEN s.now END,
		lease_until = NULL
	FROM s JOIN l USING (n) WHERE o.id = s.id AND l.live),
a AS (
	INSERT INTO hooklatch.attempt (outbox_id, number, late, tenant, ended_at, duration, class, status, error, answer, worker, replayed_by, config_revision)
	SELECT s.id, s.number, NOT l.held, l.tenant, s.now, make_interval(secs => s.duration_us / 1e6), s.class, nullif(s.status, 0),
		nullif(s.error, ''), s.answer, nullif(s.worker, ''),
		CASE WHEN l.held THEN l.replayed_by ELSE (SELECT replayed_by FROM hooklatch.attempt WHERE outbox_id = s.id AND number = s.number AND NOT late) END,
		nullif(s.config_revision, 0)
	FROM s JOIN l USING (n) WHERE NOT s.released AND (l.live OR NOT l.held)
	ON CONFLICT DO NOTHING)
SELECT n, held, live AND ordered FROM l`

// lockSettledSQL locks the lanes of the forwards that are settled, before anything of
// them is read.
const lockSettledSQL = `
SELECT id FROM hooklatch.resource WHERE id IN (
	SELECT (SELECT r.id FROM hooklatch.resource r WHERE r.destination = o.destination AND r.lane = o.lane)
	FROM unnest($1::int8[]) AS k(id)
	CROSS JOIN LATERAL (SELECT destination, lane FROM hooklatch.outbox WHERE id = k.id AND lane IS NOT NULL OFFSET 0) o)
ORDER BY id FOR UPDATE`

// appliedSQL moves lanes on to what their destinations have accepted. A delete stays as
// a tombstone: what is older is never sent after it.
const appliedSQL = `
UPDATE hooklatch.resource r SET
	applied = greatest(r.applied, x.revision), passed = greatest(r.passed, x.revision),
	deleted = CASE WHEN x.revision >= coalesce(r.applied, 0) THEN x.deleted ELSE r.deleted END,
	applied_at = x.settled_at, touched_at = x.settled_at
FROM (
	SELECT (SELECT l.id FROM hooklatch.resource l WHERE l.destination = o.destination AND l.lane = o.lane) AS id,
		o.revision, o.settled_at, i.deleted
	FROM unnest($1::int8[]) AS k(id)
	CROSS JOIN LATERAL (SELECT * FROM hooklatch.outbox WHERE id = k.id AND state = 'accepted' OFFSET 0) o
	CROSS JOIN LATERAL (SELECT deleted FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i) x
WHERE r.id = x.id`

// settle runs the work in the order of the forwards' ids, so that two batches
// never wait for each other in a circle. Then it lets the lanes go on.
func settle(ctx context.Context, tx pgx.Tx, work []*settling) error {
	slices.SortFunc(work, func(a, b *settling) int { return cmp.Compare(a.ForwardID, b.ForwardID) })
	ids := make([]int64, len(work))
	for i, w := range work {
		w.held, w.ordered, ids[i] = false, false, w.ForwardID
	}
	var lanes, moved []int64
	batch := &pgx.Batch{}
	batch.Queue(lockSettledSQL, ids).Query(func(rows pgx.Rows) (err error) {
		lanes, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	batch.Queue(settleSQL, settleArgs(work)...).Query(func(rows pgx.Rows) error {
		var n int
		var held, ordered bool
		_, err := pgx.ForEachRow(rows, []any{&n, &held, &ordered}, func() error {
			work[n-1].held, work[n-1].ordered = held, ordered
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	for _, w := range work {
		if w.ordered {
			moved = append(moved, w.ForwardID)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	batch = &pgx.Batch{}
	batch.Queue(appliedSQL, moved)
	batch.Queue(rouseSQL, lanes, nil)
	return tx.SendBatch(ctx, batch).Close()
}

var stateOf = map[Outcome]State{
	OutcomeAccepted: Accepted,
	OutcomeRetry:    RetryWait,
	OutcomeBlocked:  Blocked,
	OutcomeReleased: Pending, // not used: a released forward keeps its state
}

// settleArgs turns the settlements into one array for each column.
func settleArgs(work []*settling) []any {
	n := len(work)
	var (
		ids, tokens, delays, durations, configs = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		numbers, statuses                       = make([]int32, n), make([]int32, n)
		states, reasons, classes, texts         = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		workers                                 = make([]string, n)
		free, released                          = make([]bool, n), make([]bool, n)
		answers                                 = make([][]byte, n)
		at                                      = make([]*time.Time, n)
	)
	for i, w := range work {
		ids[i], tokens[i], numbers[i] = w.ForwardID, w.Token, int32(w.Attempt)
		states[i], reasons[i] = string(stateOf[w.Outcome]), toText(w.Reason)
		if w.Outcome == OutcomeRetry {
			delays[i] = w.Delay.Microseconds()
		}
		free[i], released[i] = w.Free, w.Outcome == OutcomeReleased
		classes[i], statuses[i], texts[i], answers[i] = toText(w.Class), int32(w.Status), toText(w.Error), w.Answer
		durations[i], workers[i], configs[i] = w.Duration.Microseconds(), toText(w.Worker), w.ConfigRevision
		if !w.Now.IsZero() {
			at[i] = &w.Now
		}
	}
	return []any{ids, tokens, numbers, states, delays, free, reasons, released,
		classes, statuses, texts, answers, durations, workers, configs, at}
}

// toText makes foreign text fit for the database: an app's answer must not be
// able to spoil its own settlement.
func toText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "�"), "�")
}
