package inbox

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// maxConflicts is how many other bodies are kept for one delivery id. What comes
// beyond is refused all the same, but no longer kept.
const maxConflicts = 8

// Conflict is another body that came under a delivery id that was taken.
type Conflict struct {
	ID       int64
	BodyHash [32]byte
	BodySize int // outlives the body
	Body     []byte
	Pruned   bool // Body was removed by retention
	Header   map[string][]string
	KeyID    string

	RequestID   uuid.UUID // of the first request that brought it
	Seen        int       // how often it came
	FirstSeenAt time.Time
	LastSeenAt  time.Time
}

// lockConflictSQL makes the conflicts of one delivery id wait for one another,
// so that the cap and "the first" are exact.
const lockConflictSQL = `SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || $2 || chr(31) || $3, 7))`

const insertConflictSQL = `
WITH known AS (
	SELECT count(*) AS n, coalesce(bool_or(body_hash = $4), false) AS same FROM hooklatch.conflict
	WHERE tenant = $1 AND source = $2 AND delivery_id = $3)
INSERT INTO hooklatch.conflict (tenant, source, delivery_id, body_hash, headers, body, body_size, key_id, request_id)
SELECT $1, $2, $3, $4, $5, $6, octet_length($6::bytea), nullif($7, ''), $8 FROM known WHERE same OR n < $9
ON CONFLICT (tenant, source, delivery_id, body_hash) DO UPDATE SET seen = conflict.seen + 1, last_seen_at = now()
RETURNING conflict.seen = 1 AND (SELECT n = 0 FROM known)`

// recordConflict keeps the evidence in a transaction of its own, one at a time, so
// that a flood of conflicts leaves the pool to others. Its failure changes nothing of
// the verdict: the stored row stays, these bytes are refused.
func (s *Store) recordConflict(ctx context.Context, a *acceptance, deadline time.Time) *ConflictError {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	ctx, cancelSecond := context.WithTimeout(ctx, time.Second)
	defer cancelSecond()
	conflict := &ConflictError{Tenant: a.key.tenant, Source: a.key.source, DeliveryID: a.key.deliveryID}
	var request *uuid.UUID
	if a.d.RequestID != uuid.Nil {
		request = &a.d.RequestID
	}
	body := a.d.Body
	if body == nil {
		body = []byte{}
	}
	select {
	case s.conflicts <- struct{}{}:
		defer func() { <-s.conflicts }()
	case <-ctx.Done():
		conflict.Unrecorded = ctx.Err()
		return conflict
	}
	conflict.Unrecorded = s.asOf(ctx, roleIngest, []string{a.key.tenant}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockConflictSQL, a.key.tenant, a.key.source, a.key.deliveryID); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, insertConflictSQL, a.key.tenant, a.key.source, a.key.deliveryID,
			a.d.BodyHash[:], a.header, body, a.d.KeyID, request, maxConflicts)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&conflict.First}, func() error { return nil })
		return err
	})
	return conflict
}

const conflictsSQL = `
SELECT id, body_hash, coalesce(body_size, octet_length(body), 0), body, body IS NULL, headers, coalesce(key_id, ''), request_id, seen, first_seen_at, last_seen_at
FROM hooklatch.conflict WHERE tenant = $1 AND source = $2 AND delivery_id = $3 ORDER BY id`

// Conflicts returns the evidence for one delivery id, the first conflict first.
func (s *Store) Conflicts(ctx context.Context, tenant, source, deliveryID string) ([]Conflict, error) {
	conflicts, err := collect(ctx, s, roleAdmin, func(row pgx.CollectableRow) (c Conflict, err error) {
		var hash, headers []byte
		var request *uuid.UUID
		err = row.Scan(&c.ID, &hash, &c.BodySize, &c.Body, &c.Pruned, &headers, &c.KeyID, &request, &c.Seen, &c.FirstSeenAt, &c.LastSeenAt)
		if err != nil {
			return c, err
		}
		if request != nil {
			c.RequestID = *request
		}
		c.BodyHash, c.Header = [32]byte(hash), decodeHeader(headers)
		return c, nil
	}, conflictsSQL, tenant, source, deliveryID)
	if err != nil {
		return nil, readError("conflicts", err)
	}
	return conflicts, nil
}
