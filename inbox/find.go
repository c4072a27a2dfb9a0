package inbox

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Filter says which deliveries to find, newest first. An id makes every other
// condition but After and Limit fall away: who has an id wants that delivery,
// whatever state it is in.
type Filter struct {
	// ID is a delivery id, an event id, a request id, or "type/id" of a resource.
	ID string

	Source      string
	Tenant      string
	EventType   string
	State       State  // some forward of the delivery is in it
	Destination string // some forward goes there; with State: is in it there
	Unrouted    bool   // only deliveries without any forward
	Since       time.Time
	Until       time.Time // excluded

	// After goes on behind a delivery that was found before: its Cursor.
	After string
	// Limit ends the search. Defaults to no limit.
	Limit int
}

// Cursor is where the delivery stands in the order of Find, for Filter.After,
// also in another process.
func (d *Delivery) Cursor() string { return cursorOf(d.ReceivedAt, d.ID) }

func cursorOf(at time.Time, id int64) string {
	var buf [16]byte
	binary.BigEndian.PutUint64(buf[:8], uint64(at.UnixMicro()))
	binary.BigEndian.PutUint64(buf[8:], uint64(id))
	return base64.RawURLEncoding.EncodeToString(buf[:])
}

func parseCursor(s string) (time.Time, int64, error) {
	buf, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(buf) != 16 {
		return time.Time{}, 0, fmt.Errorf("cursor %q was not made by this program", s)
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(buf[:8]))), int64(binary.BigEndian.Uint64(buf[8:])), nil
}

const deliveryColumns = `i.id, i.tenant, i.source, i.delivery_id, i.body_hash, i.body_size, i.received_at,
	i.request_id, coalesce(i.peer, ''), coalesce(i.scheme, ''), coalesce(i.key_id, ''), coalesce(i.event_id, ''), coalesce(i.event_type, ''),
	coalesce(i.resource_type, ''), coalesce(i.resource_id, ''), i.revision, i.deleted, coalesce(i.meta_error, ''), coalesce(i.config_revision, 0)`

// Each way to find has a statement of its own, so that each goes through its
// index. $1 and $2 are the cursor, $3 the page size.
const findEnd = ` AND (i.received_at, i.id) < ($1, $2) ORDER BY i.received_at DESC, i.id DESC LIMIT $3`

const findByIDSQL = `
SELECT ` + deliveryColumns + ` FROM hooklatch.inbox i
WHERE i.id IN (
	SELECT id FROM hooklatch.inbox WHERE delivery_id = $4
	UNION SELECT id FROM hooklatch.inbox WHERE event_id = $4
	UNION SELECT id FROM hooklatch.inbox WHERE request_id = $5
	UNION SELECT id FROM hooklatch.inbox WHERE resource_id = $6 AND resource_type = $7)` + findEnd

// findConditions are the filters that need no index of their own; a page that
// finds little goes on with the next.
const findConditions = `
	($4 = '' OR i.tenant = $4) AND ($5 = '' OR i.event_type = $5)
	AND (NOT $6::bool OR NOT EXISTS (SELECT FROM hooklatch.outbox o WHERE o.inbox_id = i.id))
	AND ($7 = '' AND $8 = '' OR EXISTS (SELECT FROM hooklatch.outbox o WHERE o.inbox_id = i.id
		AND ($7 = '' OR o.destination = $7) AND ($8 = '' OR o.state = $8)))
	AND i.received_at >= $9`

const findRecentSQL = `SELECT ` + deliveryColumns + ` FROM hooklatch.inbox i WHERE ` + findConditions + findEnd

const findSourceSQL = `SELECT ` + deliveryColumns + ` FROM hooklatch.inbox i WHERE i.source = $10 AND ` + findConditions + findEnd

// The forwards in an open state are few: these two start from their partial
// indexes, whose conditions they repeat word for word, and not from the history.
const findDueSQL = `
SELECT ` + deliveryColumns + ` FROM hooklatch.inbox i WHERE ($10 = '' OR i.source = $10)
	AND i.id IN (SELECT o.inbox_id FROM hooklatch.outbox o WHERE o.state IN ('pending', 'retry_wait') AND o.lane IS NULL AND o.state = $8
		UNION ALL SELECT o.inbox_id FROM hooklatch.outbox o
			WHERE o.lane IS NOT NULL AND (o.state IN ('pending', 'retry_wait', 'held') OR o.state = 'blocked' AND o.ordering = 'strict') AND o.state = $8)
	AND ` + findConditions + findEnd

const findStuckSQL = `
SELECT ` + deliveryColumns + ` FROM hooklatch.inbox i WHERE ($10 = '' OR i.source = $10)
	AND i.id IN (SELECT o.inbox_id FROM hooklatch.outbox o WHERE o.state IN ('held', 'blocked') AND o.state = $8)
	AND ` + findConditions + findEnd

// findPage is how many deliveries one round trip brings.
const findPage = 200

// Find lists deliveries, newest first, without their bodies. It reads page by
// page as far as the caller goes on, each page through an index.
func (s *Store) Find(ctx context.Context, f Filter) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		at, id := f.Until, int64(0)
		if f.Until.IsZero() {
			at = time.Now().AddDate(100, 0, 0)
		}
		if f.After != "" {
			var err error
			if at, id, err = parseCursor(f.After); err != nil {
				yield(Delivery{}, fmt.Errorf("find: %w", err))
				return
			}
		}
		for left := f.Limit; ; left -= findPage {
			size := findPage
			if f.Limit > 0 && left < size {
				size = left
			}
			page, err := s.findPage(ctx, f, at, id, size)
			if err != nil {
				yield(Delivery{}, readError("find", err))
				return
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
				at, id = d.ReceivedAt, d.ID
			}
			if len(page) < size || f.Limit > 0 && left <= findPage {
				return
			}
		}
	}
}

func (s *Store) findPage(ctx context.Context, f Filter, at time.Time, id int64, size int) ([]Delivery, error) {
	sql, args := findRecentSQL, []any{at, id, size}
	if f.ID != "" {
		sql = findByIDSQL
		args = append(args, f.idArgs()...)
	} else {
		args = append(args, f.Tenant, f.EventType, f.Unrouted, f.Destination, string(f.State), f.Since)
		switch {
		case f.State == Pending || f.State == RetryWait:
			sql, args = findDueSQL, append(args, f.Source)
		case f.State == Held || f.State == Blocked:
			sql, args = findStuckSQL, append(args, f.Source)
		case f.Source != "":
			sql, args = findSourceSQL, append(args, f.Source)
		}
	}
	return collect(ctx, s, roleRead, scanDelivery, sql, args...)
}

// idArgs are the readings of an id: text, request id, resource.
func (f Filter) idArgs() []any {
	id := toText(f.ID)
	var request *uuid.UUID
	if u, err := uuid.Parse(id); err == nil {
		request = &u
	}
	resourceType, resourceID, _ := strings.Cut(id, "/")
	return []any{id, request, resourceID, resourceType}
}

func scanDelivery(row pgx.CollectableRow) (d Delivery, err error) {
	var hash []byte
	var request *uuid.UUID
	err = row.Scan(&d.ID, &d.Tenant, &d.Source, &d.DeliveryID, &hash, &d.BodySize, &d.ReceivedAt,
		&request, &d.Peer, &d.Scheme, &d.KeyID, &d.EventID, &d.EventType,
		&d.ResourceType, &d.ResourceID, &d.Revision, &d.Deleted, &d.MetaError, &d.ConfigRevision)
	if err != nil {
		return d, err
	}
	if request != nil {
		d.RequestID = *request
	}
	d.BodyHash = [32]byte(hash)
	return d, nil
}

const payloadSQL = `
SELECT ` + deliveryColumns + `, p.method, p.raw_query, p.headers, p.body
FROM hooklatch.inbox i LEFT JOIN hooklatch.payload p ON p.inbox_id = i.id AND p.variant = 0 WHERE i.id = $1`

// Payload returns one delivery whole, with the request as it was received:
// ErrNotFound if there is none, ErrPruned if retention has removed its body.
func (s *Store) Payload(ctx context.Context, id int64) (Delivery, error) {
	var d Delivery
	var method *string
	var query, headers, body []byte
	err := s.as(ctx, roleAdmin, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, payloadSQL, id)
		if err != nil {
			return err
		}
		d, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Delivery, error) {
			return scanDelivery(wider{row, []any{&method, &query, &headers, &body}})
		})
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return d, fmt.Errorf("payload of %d: %w", id, ErrNotFound)
	case err != nil:
		return d, readError("payload", err)
	case method == nil:
		return d, fmt.Errorf("payload of %d: %w", id, ErrPruned)
	}
	d.Method, d.RawQuery, d.Header, d.Body = *method, string(query), decodeHeader(headers), body
	return d, nil
}

// wider lets scanDelivery read a row that has more columns behind its own.
type wider struct {
	pgx.CollectableRow
	more []any
}

func (w wider) Scan(dest ...any) error { return w.CollectableRow.Scan(append(dest, w.more...)...) }

const forwardsSQL = `
SELECT id, destination, state, attempts, attempts_free, lease_token, lease_until, nullif(next_attempt_at, 'infinity'), expires_at,
	coalesce(blocked_reason, ''), coalesce(hold_reason, ''), coalesce(ordering, ''), waiting, settled_at
FROM hooklatch.outbox WHERE inbox_id = $1 ORDER BY destination`

// Forwards returns the forwards of one delivery, by destination.
func (s *Store) Forwards(ctx context.Context, deliveryID int64) ([]Forward, error) {
	forwards, err := collect(ctx, s, roleRead, func(row pgx.CollectableRow) (f Forward, err error) {
		var lease, next, settled *time.Time
		err = row.Scan(&f.ID, &f.Destination, &f.State, &f.Attempt, &f.AttemptsFree, &f.Token, &lease,
			&next, &f.ExpiresAt, &f.BlockedReason, &f.HoldReason, &f.Ordering, &f.Waiting, &settled)
		f.LeaseUntil, f.NextAttemptAt, f.SettledAt = timeOr(lease), timeOr(next), timeOr(settled)
		return f, err
	}, forwardsSQL, deliveryID)
	if err != nil {
		return nil, readError("forwards", err)
	}
	return forwards, nil
}
