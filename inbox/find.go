package inbox

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Filter says which deliveries to find, newest first. An id makes every other
// condition but Source, After and Limit fall away: who has an id wants that delivery,
// whatever state it is in.
type Filter struct {
	// ID is a delivery id, an event id, the request id of a delivery or of a conflict of
	// it, "type/id" or the id alone of a resource, or the first 8 hex digits or more of the
	// hash of its body or of a conflict's. At most 1,000 deliveries are found for each
	// reading.
	ID string

	Source      string
	Tenant      string
	EventType   string
	State       State      // some forward of the delivery is in it
	HoldReason  HoldReason // some forward of the delivery is held for it
	Destination string     // some forward goes there; with State or HoldReason: is so there
	Unrouted    bool       // only deliveries without any forward
	Conflict    bool       // only deliveries of whose id other bytes came too
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

// findByIDSQL looks each reading of an id up in an index of its own, and then the
// deliveries by their key: a join may become a scan. $1 and $2 are the cursor, $3 the
// page size.
const findByIDSQL = `
SELECT ` + deliveryColumns + ` FROM (
	(SELECT id FROM hooklatch.inbox WHERE delivery_id = $5 AND ($4 = '' OR source = $4) LIMIT 1000)
	UNION (SELECT id FROM hooklatch.inbox WHERE event_id = $5 AND ($4 = '' OR source = $4) LIMIT 1000)
	UNION (SELECT id FROM hooklatch.inbox WHERE request_id = $6 AND ($4 = '' OR source = $4))
	UNION (SELECT x.id FROM unnest($7::text[], $8::text[]) AS r(resource_type, resource_id) CROSS JOIN LATERAL (
		SELECT id FROM hooklatch.inbox i
		WHERE i.resource_id = r.resource_id AND i.resource_type = r.resource_type AND ($4 = '' OR source = $4)
		ORDER BY revision DESC LIMIT 1000) x)
	UNION (SELECT id FROM hooklatch.inbox WHERE resource_id = $11 AND resource_type IS NULL AND ($4 = '' OR source = $4)
		ORDER BY revision DESC LIMIT 1000)
	UNION (SELECT id FROM hooklatch.inbox WHERE resource_id = $5 AND ($4 = '' OR source = $4) LIMIT 1000)
	UNION (SELECT id FROM hooklatch.inbox WHERE body_hash BETWEEN $9 AND $10 AND ($4 = '' OR source = $4) LIMIT 1000)
	UNION (SELECT d.id FROM (
			(SELECT tenant, source, delivery_id FROM hooklatch.conflict WHERE request_id = $6)
			UNION (SELECT tenant, source, delivery_id FROM hooklatch.conflict WHERE body_hash BETWEEN $9 AND $10 LIMIT 1000)) c
		CROSS JOIN LATERAL (` + ofIdentity + `) d WHERE $4 = '' OR c.source = $4)) k
CROSS JOIN LATERAL (SELECT * FROM hooklatch.inbox WHERE id = k.id OFFSET 0) i
WHERE (i.received_at, i.id) < ($1, $2) ORDER BY i.received_at DESC, i.id DESC LIMIT $3`

// ofIdentity is the delivery that a row c names. Tenant and source are compared in a
// form that no index serves, so that the planner takes the one of the delivery id.
const ofIdentity = `
	SELECT i.id FROM hooklatch.inbox i
	WHERE i.delivery_id = c.delivery_id AND i.source || '' = c.source AND i.tenant || '' = c.tenant OFFSET 0`

// findConditions are the filters that need no index of their own.
const findConditions = `
	($5 = '' OR i.tenant = $5) AND ($6 = '' OR i.event_type = $6)
	AND (NOT $7::bool OR NOT EXISTS (SELECT FROM hooklatch.outbox o WHERE o.inbox_id = i.id))
	AND ($8 = '' AND $9 = '' AND $10 = '' OR EXISTS (SELECT FROM hooklatch.outbox o WHERE o.inbox_id = i.id
		AND ($8 = '' OR o.destination = $8) AND ($9 = '' OR o.state = $9) AND ($10 = '' OR o.hold_reason = $10)))
	AND (NOT $11::bool OR EXISTS (SELECT FROM hooklatch.conflict c
		WHERE c.delivery_id = i.delivery_id AND c.source || '' = i.source AND c.tenant || '' = i.tenant))`

// A scan looks at so many deliveries, whatever it finds, and says where it ended: a
// filter that nothing fits must not make one statement read the whole history.
const (
	scanHead = `WITH scanned AS MATERIALIZED (SELECT * FROM hooklatch.inbox i WHERE `
	scanTail = ` (i.received_at, i.id) < ($1, $2) AND i.received_at >= $4 ORDER BY i.received_at DESC, i.id DESC LIMIT $3),
judged AS MATERIALIZED (SELECT i.*, coalesce(` + findConditions + `, false) AS fits FROM scanned i),
final AS MATERIALIZED (SELECT id FROM scanned ORDER BY received_at, id LIMIT 1)
SELECT ` + deliveryColumns + `, i.fits, (SELECT count(*) = $3 FROM scanned) FROM judged i
WHERE i.fits OR i.id = (SELECT id FROM final) ORDER BY i.received_at DESC, i.id DESC`
	findRecentSQL = scanHead + scanTail
	findSourceSQL = scanHead + ` i.source = $12 AND ` + scanTail
)

// findAmongSQL looks at a few deliveries alone, and has the result of a scan.
const findAmongSQL = `
SELECT ` + deliveryColumns + `, true, count(*) OVER () > $3 FROM unnest($13::int8[]) k
CROSS JOIN LATERAL (SELECT * FROM hooklatch.inbox WHERE id = k OFFSET 0) i
WHERE (i.received_at, i.id) < ($1, $2) AND i.received_at >= $4 AND ($12 = '' OR i.source = $12) AND ` + findConditions + `
ORDER BY i.received_at DESC, i.id DESC LIMIT $3`

// The forwards in an open state are few, and conflicts are: a search for them starts
// from their indexes, unless there are more than a scan of what is recent is worth.
const (
	dueIDsSQL = `
SELECT o.inbox_id FROM hooklatch.outbox o WHERE o.state IN ('pending', 'retry_wait') AND o.lane IS NULL
	AND o.state = $1 AND ($2 = '' OR o.destination = $2)
UNION ALL SELECT o.inbox_id FROM hooklatch.outbox o
	WHERE o.lane IS NOT NULL AND o.revision IS NOT NULL AND (o.state IN ('pending', 'retry_wait', 'held') OR o.state = 'blocked' AND o.ordering = 'strict')
	AND o.state = $1 AND ($2 = '' OR o.destination = $2) LIMIT $3`
	stuckIDsSQL = `
SELECT o.inbox_id FROM hooklatch.outbox o WHERE o.state IN ('held', 'blocked') AND o.state = $1 AND ($2 = '' OR o.destination = $2)
	AND ($4 = '' OR o.hold_reason = $4) LIMIT $3`
	conflictIDsSQL = `
SELECT d.id FROM (SELECT tenant, source, delivery_id FROM hooklatch.conflict LIMIT $1) c CROSS JOIN LATERAL (` + ofIdentity + `) d`
)

// findPage is how many deliveries one round trip brings, findScan how many it looks
// at, findFew how many a search starts from instead.
const (
	findPage = 200
	findScan = 5000
	findFew  = 10_000
)

// Find lists deliveries, newest first, without their bodies. It reads page by
// page as far as the caller goes on, each page through an index.
func (s *Store) Find(ctx context.Context, f Filter) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		p := findPlace{at: f.Until, more: true, size: findPage}
		if f.Until.IsZero() {
			p.at = time.Now().AddDate(100, 0, 0)
		}
		if f.After != "" {
			var err error
			if p.at, p.id, err = parseCursor(f.After); err != nil {
				yield(Delivery{}, fmt.Errorf("find: %w", err))
				return
			}
		}
		if f.HoldReason != "" {
			f.State = Held
		}
		few, err := s.findFew(ctx, f)
		found := 0
		for err == nil && p.more {
			var page []Delivery
			if page, err = s.findPage(ctx, f, few, &p); err != nil {
				break
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
				if found++; found == f.Limit {
					return
				}
			}
		}
		if err != nil {
			yield(Delivery{}, readError("find", err))
		}
	}
}

// findPlace is how far a search went, and how much the next page looks at.
type findPlace struct {
	at   time.Time
	id   int64
	more bool
	size int
}

// findFew returns the deliveries among which those to find are; nil: anywhere.
func (s *Store) findFew(ctx context.Context, f Filter) ([]int64, error) {
	var sql string
	var args []any
	switch {
	case f.ID != "":
		return nil, nil
	case f.State == Pending || f.State == RetryWait:
		sql, args = dueIDsSQL, []any{string(f.State), f.Destination, findFew + 1}
	case f.State == Held || f.State == Blocked:
		sql, args = stuckIDsSQL, []any{string(f.State), f.Destination, findFew + 1, string(f.HoldReason)}
	case f.Conflict:
		sql, args = conflictIDsSQL, []any{findFew + 1}
	default:
		return nil, nil
	}
	ids, err := collect(ctx, s, roleRead, pgx.RowTo[int64], sql, args...)
	if err != nil || len(ids) > findFew {
		return nil, err
	}
	slices.Sort(ids)
	return append([]int64{}, slices.Compact(ids)...), nil
}

func (s *Store) findPage(ctx context.Context, f Filter, few []int64, p *findPlace) (page []Delivery, err error) {
	sql, args := findRecentSQL, []any{p.at, p.id, p.size}
	scan := func(row pgx.CollectableRow) (bool, error) {
		var fits bool
		d, err := scanDelivery(wider{row, []any{&fits, &p.more}})
		if fits {
			page = append(page, d)
		}
		p.at, p.id = d.ReceivedAt, d.ID
		return fits, err
	}
	if f.ID != "" {
		sql, args = findByIDSQL, append(args, f.Source)
		args = append(args, readingsOf(f.ID)...)
		scan = func(row pgx.CollectableRow) (bool, error) {
			d, err := scanDelivery(row)
			page, p.at, p.id = append(page, d), d.ReceivedAt, d.ID
			p.more = len(page) == p.size
			return true, err
		}
	} else {
		args = append(args, f.Since, f.Tenant, f.EventType, f.Unrouted, f.Destination, string(f.State), string(f.HoldReason), f.Conflict)
		switch {
		case few != nil:
			sql, args = findAmongSQL, append(args, f.Source, few)
		case f.Source != "":
			sql, args = findSourceSQL, append(args, f.Source)
		}
	}
	p.more = false
	_, err = collect(ctx, s, roleRead, scan, sql, args...)
	if len(page) < p.size/2 && f.ID == "" && few == nil {
		p.size = min(4*p.size, findScan) // what fits is rare
	}
	return page, err
}

// readingsOf are the readings of an id: text, request id, resource, hash of a body.
func readingsOf(id string) []any {
	id = toText(id)
	var request *uuid.UUID
	if u, err := uuid.Parse(id); err == nil {
		request = &u
	}
	types, ids := resourcesOf(id)
	var untyped *string
	if rest, ok := strings.CutPrefix(id, "/"); ok {
		untyped = &rest
	}
	low, high := hashesOf(id)
	return []any{id, request, types, ids, low, high, untyped}
}

// maxResourceReadings bounds the readings of a text with many slashes.
const maxResourceReadings = 8

// resourcesOf reads "type/id" of a resource: both may have slashes of their own.
func resourcesOf(text string) (types, ids []string) {
	for i := 0; i < len(text) && len(ids) < maxResourceReadings; i++ {
		if text[i] == '/' && i+1 < len(text) {
			types, ids = append(types, text[:i]), append(ids, text[i+1:])
		}
	}
	return types, ids
}

// hashesOf are the first and the last hash that begin with some hex digits, 8 at
// least; nil: it is no beginning of a hash. People copy one with its three dots.
func hashesOf(id string) (low, high []byte) {
	id = strings.TrimSuffix(id, "…")
	if len(id) < 8 || len(id) > 64 {
		return nil, nil
	}
	low, err := hex.DecodeString(id + strings.Repeat("0", 64-len(id)))
	if err != nil {
		return nil, nil
	}
	high, _ = hex.DecodeString(id + strings.Repeat("f", 64-len(id)))
	return low, high
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

const oldestSQL = `SELECT received_at FROM hooklatch.inbox ORDER BY received_at, id LIMIT 1`

// Oldest is when the oldest delivery was received that is there; zero: there is none.
func (s *Store) Oldest(ctx context.Context) (time.Time, error) {
	times, err := collect(ctx, s, roleRead, pgx.RowTo[time.Time], oldestSQL)
	if err != nil {
		return time.Time{}, readError("oldest", err)
	}
	if len(times) == 0 {
		return time.Time{}, nil
	}
	return times[0], nil
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

// Kept says whether the body of a delivery is there: it is not when retention has
// removed it, or when there is no such delivery.
func (s *Store) Kept(ctx context.Context, id int64) (kept bool, err error) {
	err = s.as(ctx, roleRead, func(tx pgx.Tx) error { return tx.QueryRow(ctx, bodySQL, id).Scan(&kept) })
	if err != nil {
		return false, readError("kept", err)
	}
	return kept, nil
}

// wider lets scanDelivery read a row that has more columns behind its own.
type wider struct {
	pgx.CollectableRow
	more []any
}

func (w wider) Scan(dest ...any) error { return w.CollectableRow.Scan(append(dest, w.more...)...) }

const (
	forwardColumns = `id, destination, state, attempts, attempts_free, lease_token, lease_until, nullif(next_attempt_at, 'infinity'), expires_at,
	coalesce(blocked_reason, ''), coalesce(hold_reason, ''), coalesce(ordering, ''), waiting, settled_at,
	coalesce(attempts >= attempts_max, false), coalesce(replayed_by, ''), coalesce(owner, '')`

	forwardsSQL    = `SELECT ` + forwardColumns + ` FROM hooklatch.outbox WHERE inbox_id = $1 ORDER BY destination`
	forwardByIDSQL = `SELECT ` + forwardColumns + ` FROM hooklatch.outbox WHERE id = ANY ($1) ORDER BY id`
)

// Forwards returns the forwards of one delivery, by destination.
func (s *Store) Forwards(ctx context.Context, deliveryID int64) ([]Forward, error) {
	return s.forwards(ctx, forwardsSQL, deliveryID)
}

// ForwardsByID returns those of the forwards that there are.
func (s *Store) ForwardsByID(ctx context.Context, ids []int64) ([]Forward, error) {
	return s.forwards(ctx, forwardByIDSQL, ids)
}

func (s *Store) forwards(ctx context.Context, sql string, arg any) ([]Forward, error) {
	forwards, err := collect(ctx, s, roleRead, func(row pgx.CollectableRow) (f Forward, err error) {
		var lease, next, settled *time.Time
		err = row.Scan(&f.ID, &f.Destination, &f.State, &f.Attempt, &f.AttemptsFree, &f.Token, &lease,
			&next, &f.ExpiresAt, &f.BlockedReason, &f.HoldReason, &f.Ordering, &f.Waiting, &settled,
			&f.Last, &f.ReplayedBy, &f.Owner)
		f.LeaseUntil, f.NextAttemptAt, f.SettledAt = timeOr(lease), timeOr(next), timeOr(settled)
		return f, err
	}, sql, arg)
	if err != nil {
		return nil, readError("forwards", err)
	}
	return forwards, nil
}
