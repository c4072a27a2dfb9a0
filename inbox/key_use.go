package inbox

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// KeyUse is what one key has verified within one hour.
type KeyUse struct {
	Tenant, Source, KeyID, Scheme string
	Hour                          time.Time // cut to the hour

	Accepted int64     // new deliveries; a repeat is none
	Retiring int64     // of them, while a later key was active
	LastUsed time.Time // also by a repeat or a conflict
}

const addKeyUsesSQL = `
INSERT INTO hooklatch.key_use AS k (tenant, source, key_id, scheme, hour, accepted, retiring, last_used)
SELECT tenant, source, key_id, scheme, hour, sum(accepted), sum(retiring), max(last_used)
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::int8[], $7::int8[], $8::timestamptz[])
	AS u(tenant, source, key_id, scheme, hour, accepted, retiring, last_used)
GROUP BY tenant, source, key_id, scheme, hour
ORDER BY source COLLATE "C", tenant COLLATE "C", key_id COLLATE "C", scheme COLLATE "C", hour
ON CONFLICT (source, tenant, key_id, scheme, hour) DO UPDATE SET accepted = k.accepted + excluded.accepted,
	retiring = k.retiring + excluded.retiring, last_used = greatest(k.last_used, excluded.last_used)`

func keyUseArgs(uses []KeyUse) []any {
	n := len(uses)
	tenants, sources, keys, schemes := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	hours, lasts, accepted, retiring := make([]time.Time, n), make([]time.Time, n), make([]int64, n), make([]int64, n)
	for i, u := range uses {
		tenants[i], sources[i] = clip(u.Tenant, 255), clip(u.Source, 255)
		keys[i], schemes[i] = clip(u.KeyID, 128), clip(u.Scheme, 255)
		hours[i], lasts[i], accepted[i], retiring[i] = u.Hour.Truncate(time.Hour), u.LastUsed, u.Accepted, u.Retiring
	}
	return []any{tenants, sources, keys, schemes, hours, accepted, retiring, lasts}
}

// KeyUsage is what is known of one key.
type KeyUsage struct {
	Tenant, Source, KeyID, Scheme string

	FirstHour time.Time // the first hour that is remembered; older ones may have been removed
	LastUsed  time.Time
	// Since KeyUsageFilter.Since:
	Accepted int64 // new deliveries
	Retiring int64 // of them, while a later key was active
}

// KeyUsageFilter says of which keys, and since when.
type KeyUsageFilter struct {
	Source string    // empty: every source
	Since  time.Time // the whole of its hour
}

// keyUsagesSQL goes from one key to the next through the primary key, and reads
// for each its first row, its last and those of the window: the cost is that of the
// keys and their windows, not of the history. $1 to $4 are the key to go on behind.
const keyUsagesSQL = `
WITH RECURSIVE k AS (
	(SELECT source, tenant, key_id, scheme FROM hooklatch.key_use
		WHERE (source, tenant, key_id, scheme) > ($1, $2, $3, $4) AND ($5 = '' OR source = $5)
		ORDER BY source, tenant, key_id, scheme LIMIT 1)
	UNION ALL
	SELECT n.source, n.tenant, n.key_id, n.scheme FROM k CROSS JOIN LATERAL (
		SELECT u.source, u.tenant, u.key_id, u.scheme FROM hooklatch.key_use u
		WHERE (u.source, u.tenant, u.key_id, u.scheme) > (k.source, k.tenant, k.key_id, k.scheme) AND ($5 = '' OR u.source = $5)
		ORDER BY u.source, u.tenant, u.key_id, u.scheme LIMIT 1) n)
SELECT k.source, k.tenant, k.key_id, k.scheme,
	(SELECT u.hour FROM hooklatch.key_use u WHERE u.source = k.source AND u.tenant = k.tenant AND u.key_id = k.key_id AND u.scheme = k.scheme
		ORDER BY u.hour LIMIT 1),
	(SELECT u.last_used FROM hooklatch.key_use u WHERE u.source = k.source AND u.tenant = k.tenant AND u.key_id = k.key_id AND u.scheme = k.scheme
		ORDER BY u.hour DESC LIMIT 1),
	w.accepted, w.retiring
FROM k CROSS JOIN LATERAL (
	SELECT coalesce(sum(u.accepted), 0)::int8 AS accepted, coalesce(sum(u.retiring), 0)::int8 AS retiring FROM hooklatch.key_use u
	WHERE u.source = k.source AND u.tenant = k.tenant AND u.key_id = k.key_id AND u.scheme = k.scheme AND u.hour >= $6) w
LIMIT $7`

// keyUsagePage is how many keys one round trip brings.
const keyUsagePage = 200

// KeyUsages lists the keys that have ever verified something, by source, tenant, key
// id and scheme, whether or not they are still configured. It reads page by page as
// far as the caller goes on.
func (s *Store) KeyUsages(ctx context.Context, f KeyUsageFilter) iter.Seq2[KeyUsage, error] {
	return func(yield func(KeyUsage, error) bool) {
		last := KeyUsage{Source: f.Source} // no key stands before it
		for {
			page, err := collect(ctx, s, roleRead, scanKeyUsage, keyUsagesSQL,
				last.Source, last.Tenant, last.KeyID, last.Scheme, f.Source, f.Since.Truncate(time.Hour), keyUsagePage)
			if err != nil {
				yield(KeyUsage{}, readError("key usages", err))
				return
			}
			for _, u := range page {
				if !yield(u, nil) {
					return
				}
				last = u
			}
			if len(page) < keyUsagePage {
				return
			}
		}
	}
}

func scanKeyUsage(row pgx.CollectableRow) (u KeyUsage, err error) {
	err = row.Scan(&u.Source, &u.Tenant, &u.KeyID, &u.Scheme, &u.FirstHour, &u.LastUsed, &u.Accepted, &u.Retiring)
	return u, err
}
