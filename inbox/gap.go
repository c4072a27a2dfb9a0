package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Who closes a gap.
const (
	closedByArrival = "arrival"
	closedByRelease = "release"
	closedByTimeout = "timeout"
)

// missing is the open gap of a lane.
type missing struct {
	first, last int64
	openedAt    time.Time
}

const laneGapsSQL = `
SELECT resource, first_missing, last_missing, opened_at FROM hooklatch.gap WHERE resource = ANY($1::int8[]) AND closed_at IS NULL`

func readLaneGaps(rows pgx.Rows, byID map[int64]*laneFacts) error {
	var resource int64
	var g missing
	_, err := pgx.ForEachRow(rows, []any{&resource, &g.first, &g.last, &g.openedAt}, func() error {
		one := g
		byID[resource].gap = &one
		return nil
	})
	return err
}

// arrivedSQL finds the revisions between what is passed and the first of a lane that
// are here, and of which nothing is to be sent in it: a person has cancelled them, no
// route leads here, or they came before the source was ordered. They are no gap. One
// snapshot sees a delivery with its forwards or not at all.
const arrivedSQL = `
SELECT k.id, a.revision FROM unnest($1::int8[], $2::int8[]) AS k(id, front)
CROSS JOIN LATERAL (
	SELECT tenant, source, destination, resource_type, resource_id, passed FROM hooklatch.resource WHERE id = k.id OFFSET 0) r
CROSS JOIN LATERAL (
	(SELECT revision FROM hooklatch.inbox i WHERE resource_id = r.resource_id AND resource_type = r.resource_type
		AND revision > r.passed AND revision < k.front AND ` + unsentHere + ` ORDER BY revision LIMIT $3)
	UNION ALL
	(SELECT revision FROM hooklatch.inbox i WHERE r.resource_type = '' AND resource_id = r.resource_id AND resource_type IS NULL
		AND revision > r.passed AND revision < k.front AND ` + unsentHere + ` ORDER BY revision LIMIT $3)) a
ORDER BY k.id, a.revision`

// unsentHere is true of a delivery i of the sender of lane r that stands in it no more,
// or never did. The concatenations keep the planner on the index of resources.
const unsentHere = `i.tenant || '' = r.tenant AND i.source || '' = r.source
		AND (SELECT o.id FROM hooklatch.outbox o WHERE o.inbox_id = i.id AND o.destination = r.destination AND o.lane IS NOT NULL
			AND o.state IN ('pending', 'retry_wait', 'held', 'blocked')) IS NULL`

// gapsLooked is how many open gaps each claim looks at.
const gapsLooked = 20

// laneArrivedSQL looks at the next open gaps, and says which lanes of the destination
// have got what was missing first: what arrives without a forward to it leads no claim
// there.
const laneArrivedSQL = `
SELECT g.resource, r.lane, r.tenant, r.destination = $2 AND (
	EXISTS (SELECT FROM hooklatch.inbox i WHERE i.resource_id = r.resource_id AND i.resource_type = r.resource_type
		AND i.revision = g.first_missing AND i.source || '' = r.source AND i.tenant || '' = r.tenant)
	OR r.resource_type = '' AND EXISTS (SELECT FROM hooklatch.inbox i WHERE i.resource_id = r.resource_id AND i.resource_type IS NULL
		AND i.revision = g.first_missing AND i.source || '' = r.source AND i.tenant || '' = r.tenant)),
	coalesce($1::timestamptz, clock_timestamp())
FROM (SELECT resource, first_missing FROM hooklatch.gap WHERE closed_at IS NULL AND resource > $3 ORDER BY resource LIMIT $4) g
CROSS JOIN LATERAL (SELECT * FROM hooklatch.resource WHERE id = g.resource OFFSET 0) r
WHERE NOT EXISTS (SELECT FROM hooklatch.destination WHERE name = $2 AND paused_at IS NOT NULL)
ORDER BY g.resource`

// gapsSeen is the gap that a claim has looked at last, by destination.
type gapsSeen struct {
	mu sync.Mutex
	at map[string]int64
}

func (g *gapsSeen) last(destination string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at[destination]
}

func (g *gapsSeen) set(destination string, resource int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at == nil {
		g.at = make(map[string]int64)
	}
	g.at[destination] = resource
}

// readArrived adds those lanes to the due ones, and returns the gap that was looked at
// last; 0: it was the last of all.
func (d *dueLanes) readArrived(rows pgx.Rows) (last int64, err error) {
	var looked int
	var lane []byte
	var tenant string
	var arrived bool
	_, err = pgx.ForEachRow(rows, []any{&last, &lane, &tenant, &arrived, &d.now}, func() error {
		looked++
		if key := string(lane); arrived && d.met[key] == nil {
			d.lanes, d.made[key], d.tenant[key] = append(d.lanes, []byte(key)), true, tenant
		}
		return nil
	})
	if looked < gapsLooked {
		last = 0
	}
	return last, err
}

const (
	closeGapSQL = `UPDATE hooklatch.gap SET closed_at = coalesce($2::timestamptz, clock_timestamp()), closed_by = $3 WHERE resource = $1 AND closed_at IS NULL`

	openNewGapSQL = `
INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at)
SELECT tenant, id, $2, $3, $4 FROM hooklatch.resource WHERE id = $1
ON CONFLICT (resource) WHERE closed_at IS NULL DO UPDATE SET first_missing = excluded.first_missing, last_missing = excluded.last_missing`
)

const gapCountSQL = `
SELECT r.source, count(*) FROM hooklatch.gap g JOIN hooklatch.resource r ON r.id = g.resource WHERE g.closed_at IS NULL GROUP BY r.source`

// GapCounts counts the open gaps of each source that has any.
func (s *Store) GapCounts(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	err := s.as(ctx, roleRead, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, gapCountSQL)
		if err != nil {
			return err
		}
		var source string
		var n int
		_, err = pgx.ForEachRow(rows, []any{&source, &n}, func() error {
			counts[source] = n
			return nil
		})
		return err
	})
	if err != nil {
		return nil, readError("count gaps", err)
	}
	return counts, nil
}
