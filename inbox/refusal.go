package inbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Refusal counts the requests of one minute that were turned away for the same
// reason, with one of them as a sample.
type Refusal struct {
	ID     int64 // set by Refusals
	Tenant string
	Source string    // empty where the requests belonged to none
	Minute time.Time // cut to the minute

	Code   string // what the senders were told
	Reason string // the precise reason
	KeyID  string // the key that was looked at; only ever one of the configuration
	Cause  string // codes of the explanation; empty where these were not explained

	Count           int64
	FirstAt, LastAt time.Time

	// The sample, the first of the minute.
	RequestID  uuid.UUID
	DeliveryID string // as the request said; nobody has signed it
	Peer       string
	BodySize   int64    // read, or declared where it was not read
	BodyHash   [32]byte // zero where no whole body was read
}

// Cursor is where the row stands in the order of Refusals, for
// RefusalFilter.After, also in another process.
func (r *Refusal) Cursor() string { return cursorOf(r.Minute, r.ID) }

// addRefusalsSQL adds in one order, so that no two processes wait for each other in
// a circle.
const addRefusalsSQL = `
INSERT INTO hooklatch.refusal AS r (tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at,
	request_id, delivery_id, peer, body_size, body_hash)
SELECT tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at,
	request_id, nullif(delivery_id, ''), nullif(peer, ''), body_size, body_hash
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int8[], $9::timestamptz[],
	$10::timestamptz[], $11::uuid[], $12::text[], $13::text[], $14::int8[], $15::bytea[])
	AS u(tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at, request_id, delivery_id, peer, body_size, body_hash)
ORDER BY source COLLATE "C", minute, tenant COLLATE "C", reason COLLATE "C", key_id COLLATE "C", cause COLLATE "C"
ON CONFLICT (source, minute, tenant, reason, key_id, cause) DO UPDATE SET count = r.count + excluded.count,
	first_at = least(r.first_at, excluded.first_at), last_at = greatest(r.last_at, excluded.last_at)`

// refusalArgs are the columns of the rows, those of one identity put together: one
// statement cannot add to a row twice.
func refusalArgs(list []Refusal) []any {
	type identity struct {
		tenant, source, reason, keyID, cause string
		minute                               int64
	}
	at := map[identity]int{}
	var rows []Refusal
	for _, r := range list {
		r.Tenant, r.Source, r.Code, r.Reason = clip(r.Tenant, 255), clip(r.Source, 255), clip(r.Code, 64), clip(r.Reason, 64)
		r.KeyID, r.Cause, r.Minute = clip(r.KeyID, 128), clip(r.Cause, 255), r.Minute.Truncate(time.Minute)
		k := identity{r.Tenant, r.Source, r.Reason, r.KeyID, r.Cause, r.Minute.Unix()}
		if i, known := at[k]; known {
			rows[i].Count += r.Count
			if r.FirstAt.Before(rows[i].FirstAt) {
				rows[i].FirstAt = r.FirstAt
			}
			if r.LastAt.After(rows[i].LastAt) {
				rows[i].LastAt = r.LastAt
			}
			continue
		}
		at[k] = len(rows)
		rows = append(rows, r)
	}
	n := len(rows)
	tenants, sources, minutes := make([]string, n), make([]string, n), make([]time.Time, n)
	codes, reasons, keys, causes := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	counts, firsts, lasts := make([]int64, n), make([]time.Time, n), make([]time.Time, n)
	requests := make([]pgtype.UUID, n) // pgx knows its array without a prepared statement too
	deliveries, peers := make([]string, n), make([]string, n)
	sizes, hashes := make([]int64, n), make([][]byte, n)
	for i, r := range rows {
		tenants[i], sources[i], minutes[i] = r.Tenant, r.Source, r.Minute
		codes[i], reasons[i], keys[i], causes[i] = r.Code, r.Reason, r.KeyID, r.Cause
		counts[i], firsts[i], lasts[i] = r.Count, r.FirstAt, r.LastAt
		requests[i] = pgtype.UUID{Bytes: r.RequestID, Valid: r.RequestID != uuid.Nil}
		deliveries[i], peers[i] = clip(r.DeliveryID, 256), clip(r.Peer, 64)
		if sizes[i] = r.BodySize; r.BodyHash != [32]byte{} {
			hashes[i] = rows[i].BodyHash[:]
		}
	}
	return []any{tenants, sources, minutes, codes, reasons, keys, causes, counts, firsts, lasts, requests, deliveries, peers, sizes, hashes}
}

// RefusalFilter says which refusals to list, newest minute first.
type RefusalFilter struct {
	// ID is the delivery id or request id of a sample, or the first 8 hex digits or more
	// of the hash of its body. Every other condition but After and Limit falls away then.
	ID string

	Source string
	Tenant string
	Code   string
	Since  time.Time // the whole of its minute

	// After goes on behind a row that was listed before: its Cursor.
	After string
	// Limit ends the list. Defaults to no limit.
	Limit int
}

const refusalColumns = `id, tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at,
	request_id, coalesce(delivery_id, ''), coalesce(peer, ''), body_size, body_hash`

const (
	refusalConditions = ` minute >= $4 AND ($5 = '' OR tenant = $5) AND ($6 = '' OR code = $6)`
	refusalEnd        = ` AND (minute, id) < ($1, $2) ORDER BY minute DESC, id DESC LIMIT $3`
)

const refusalsSQL = `SELECT ` + refusalColumns + ` FROM hooklatch.refusal WHERE` + refusalConditions + refusalEnd

const refusalsOfSourceSQL = `SELECT ` + refusalColumns + ` FROM hooklatch.refusal WHERE source = $7 AND` + refusalConditions + refusalEnd

const refusalsByIDSQL = `
SELECT ` + refusalColumns + ` FROM hooklatch.refusal WHERE id IN (
	(SELECT id FROM hooklatch.refusal WHERE delivery_id = $4 LIMIT 1000)
	UNION (SELECT id FROM hooklatch.refusal WHERE request_id = $5)
	UNION (SELECT id FROM hooklatch.refusal WHERE body_hash BETWEEN $6 AND $7 LIMIT 1000))` + refusalEnd

// refusalPage is how many rows one round trip brings.
const refusalPage = 500

// Refusals lists what was refused, newest minute first. It reads page by page as far
// as the caller goes on, each page through an index.
func (s *Store) Refusals(ctx context.Context, f RefusalFilter) iter.Seq2[Refusal, error] {
	return func(yield func(Refusal, error) bool) {
		minute, id := time.Now().AddDate(100, 0, 0), int64(0)
		if f.After != "" {
			var err error
			if minute, id, err = parseCursor(f.After); err != nil {
				yield(Refusal{}, fmt.Errorf("refusals: %w", err))
				return
			}
		}
		for left := f.Limit; ; left -= refusalPage {
			size := refusalPage
			if f.Limit > 0 && left < size {
				size = left
			}
			page, err := s.refusalPage(ctx, f, minute, id, size)
			if err != nil {
				yield(Refusal{}, readError("refusals", err))
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				minute, id = r.Minute, r.ID
			}
			if len(page) < size || f.Limit > 0 && left <= refusalPage {
				return
			}
		}
	}
}

func (s *Store) refusalPage(ctx context.Context, f RefusalFilter, minute time.Time, id int64, size int) ([]Refusal, error) {
	sql, args := refusalsSQL, []any{minute, id, size}
	switch {
	case f.ID != "":
		sql = refusalsByIDSQL
		r := readingsOf(f.ID)
		args = append(args, r[0], r[1], r[4], r[5])
	default:
		args = append(args, f.Since.Truncate(time.Minute), f.Tenant, f.Code)
		if f.Source != "" {
			sql, args = refusalsOfSourceSQL, append(args, f.Source)
		}
	}
	return collect(ctx, s, roleRead, scanRefusal, sql, args...)
}

func scanRefusal(row pgx.CollectableRow) (r Refusal, err error) {
	var request *uuid.UUID
	var hash []byte
	err = row.Scan(&r.ID, &r.Tenant, &r.Source, &r.Minute, &r.Code, &r.Reason, &r.KeyID, &r.Cause, &r.Count, &r.FirstAt, &r.LastAt,
		&request, &r.DeliveryID, &r.Peer, &r.BodySize, &hash)
	if request != nil {
		r.RequestID = *request
	}
	if len(hash) == len(r.BodyHash) {
		r.BodyHash = [32]byte(hash)
	}
	return r, err
}
