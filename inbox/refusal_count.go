package inbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// refusalEdgeSQL is the minute of the row behind the $3 newest of the minutes from $1
// to before $2; none: there are no more. It reads an index alone.
const (
	refusalEdgeSQL         = `SELECT minute FROM hooklatch.refusal WHERE minute >= $1 AND minute < $2 ORDER BY minute DESC OFFSET $3 LIMIT 1`
	refusalEdgeOfSourceSQL = `SELECT minute FROM hooklatch.refusal WHERE source = $4 AND minute >= $1 AND minute < $2 ORDER BY minute DESC OFFSET $3 LIMIT 1`
)

// refusalKindsSQL adds up the rows of the minutes from $1 to before $2.
const (
	refusalKindsHead = `
SELECT tenant, source, code, reason, key_id, cause, sum(count)::int8, min(first_at), max(last_at), max(id) FROM hooklatch.refusal
WHERE minute >= $1 AND minute < $2 AND ($3 = '' OR tenant = $3) AND ($4 = '' OR code = $4)`
	refusalKindsSQL         = refusalKindsHead + ` GROUP BY tenant, source, code, reason, key_id, cause`
	refusalKindsOfSourceSQL = refusalKindsHead + ` AND source = $5 GROUP BY tenant, source, code, reason, key_id, cause`
)

const refusalSamplesSQL = `SELECT ` + refusalColumns + ` FROM hooklatch.refusal WHERE id = ANY ($1)`

// countPage is how many rows are added up at a time, countMost how many at most.
const (
	countPage = 50_000
	countMost = 500_000
)

// CountRefusals adds refusals up by tenant, source, reason, key and cause, over the
// minutes since f.Since: the most frequent first, each with the sample and the minute
// of its latest row. It looks at little more than half a million rows, the newest: from is
// the minute from which on all are counted, later than f.Since where there are more.
// f.ID, f.After and f.Limit are not looked at.
func (s *Store) CountRefusals(ctx context.Context, f RefusalFilter) (kinds []Refusal, from time.Time, err error) {
	from = time.Now().AddDate(100, 0, 0)
	c := refusalCount{at: map[refusalKind]int{}}
	for looked, more := 0, true; more && looked < countMost; looked += countPage {
		if from, more, err = s.countPage(ctx, f, from, &c); err != nil {
			return nil, from, readError("count refusals", err)
		}
	}
	if kinds, err = s.sampled(ctx, c.kinds); err != nil {
		return nil, from, readError("count refusals", err)
	}
	slices.SortStableFunc(kinds, func(a, b Refusal) int { return cmp.Compare(b.Count, a.Count) })
	return kinds, from, nil
}

// countPage counts the newest rows before a minute, and says from which minute on.
func (s *Store) countPage(ctx context.Context, f RefusalFilter, before time.Time, c *refusalCount) (from time.Time, more bool, err error) {
	from = f.Since.Truncate(time.Minute)
	edgeSQL, edgeArgs := refusalEdgeSQL, []any{from, before, countPage}
	sql, args := refusalKindsSQL, []any{from, before, f.Tenant, f.Code}
	if f.Source != "" {
		edgeSQL, edgeArgs = refusalEdgeOfSourceSQL, append(edgeArgs, f.Source)
		sql, args = refusalKindsOfSourceSQL, append(args, f.Source)
	}
	err = s.as(ctx, roleRead, func(tx pgx.Tx) error {
		var edge time.Time
		switch err := tx.QueryRow(ctx, edgeSQL, edgeArgs...).Scan(&edge); {
		case err == nil:
			// The whole minute of the edge is left for the next page, unless it is all.
			if more, from = true, edge.Add(time.Minute); !from.Before(before) {
				from = edge
			}
			args[0] = from
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		var r Refusal
		_, err = pgx.ForEachRow(rows, []any{&r.Tenant, &r.Source, &r.Code, &r.Reason, &r.KeyID, &r.Cause, &r.Count, &r.FirstAt, &r.LastAt, &r.ID},
			func() error { c.add(r); return nil })
		return err
	})
	return from, more, err
}

// refusalCount adds up what pages have counted, the newest page first.
type refusalCount struct {
	at    map[refusalKind]int
	kinds []Refusal
}

type refusalKind struct{ tenant, source, reason, keyID, cause string }

func (c *refusalCount) add(r Refusal) {
	k := refusalKind{r.Tenant, r.Source, r.Reason, r.KeyID, r.Cause}
	i, known := c.at[k]
	if !known {
		c.at[k] = len(c.kinds)
		c.kinds = append(c.kinds, r)
		return
	}
	c.kinds[i].Count += r.Count
	if r.FirstAt.Before(c.kinds[i].FirstAt) {
		c.kinds[i].FirstAt = r.FirstAt
	}
	if r.LastAt.After(c.kinds[i].LastAt) {
		c.kinds[i].LastAt = r.LastAt
	}
}

// sampled gives each kind the sample of its latest row; one whose row is gone by now
// stays without.
func (s *Store) sampled(ctx context.Context, kinds []Refusal) ([]Refusal, error) {
	ids, at := make([]int64, len(kinds)), make(map[int64]int, len(kinds))
	for i, k := range kinds {
		ids[i], at[k.ID] = k.ID, i
	}
	samples, err := collect(ctx, s, roleRead, scanRefusal, refusalSamplesSQL, ids)
	for _, r := range samples {
		k := &kinds[at[r.ID]]
		k.Minute, k.RequestID, k.DeliveryID, k.Peer, k.BodySize, k.BodyHash = r.Minute, r.RequestID, r.DeliveryID, r.Peer, r.BodySize, r.BodyHash
	}
	return kinds, err
}
