package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// RevisionConflict is two deliveries that bring the same revision of one resource with
// different bodies. The first stays; the later one is not sent after it.
type RevisionConflict struct {
	Tenant, Source           string
	ResourceType, ResourceID string
	Revision                 int64
	DeliveryID               string // the later one
	FirstDeliveryID          string
	NoticedAt                time.Time // set by RevisionConflicts
}

// revisionConflictSQL compares each forward that is superseded with what came first of
// its revision, and writes down who brought something else, once.
const revisionConflictSQL = `
WITH k AS (
	SELECT DISTINCT i.tenant, i.source, i.resource_type, i.resource_id, i.revision
	FROM unnest($1::int8[]) AS u(id)
	CROSS JOIN LATERAL (SELECT inbox_id FROM hooklatch.outbox WHERE id = u.id OFFSET 0) o
	CROSS JOIN LATERAL (SELECT * FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i),
found AS (
	SELECT k.tenant, k.source, k.revision, k.resource_type, k.resource_id, x.id, x.delivery_id, x.body_hash, x.compare_hash,
		first_value(x.id) OVER w AS first_id, first_value(x.delivery_id) OVER w AS first_delivery,
		first_value(x.body_hash) OVER w AS first_hash, first_value(x.compare_hash) OVER w AS first_compare
	FROM k CROSS JOIN LATERAL (
		(SELECT id, tenant, source, delivery_id, body_hash, compare_hash FROM hooklatch.inbox
			WHERE resource_id = k.resource_id AND resource_type = k.resource_type AND revision = k.revision
				AND tenant || '' = k.tenant AND source || '' = k.source LIMIT 100)
		UNION ALL
		(SELECT id, tenant, source, delivery_id, body_hash, compare_hash FROM hooklatch.inbox
			WHERE k.resource_type IS NULL AND resource_id = k.resource_id AND resource_type IS NULL AND revision = k.revision
				AND tenant || '' = k.tenant AND source || '' = k.source LIMIT 100)) x
	WINDOW w AS (PARTITION BY k.tenant, k.source, k.resource_type, k.resource_id, k.revision ORDER BY x.id)),
new AS (
	INSERT INTO hooklatch.revision_conflict (inbox_id, tenant, first_id, revision, noticed_at)
	SELECT id, tenant, first_id, revision, $2 FROM found
	WHERE body_hash <> first_hash AND (compare_hash = first_compare) IS NOT TRUE
	ORDER BY id ON CONFLICT DO NOTHING RETURNING inbox_id)
SELECT tenant, source, coalesce(resource_type, ''), resource_id, revision, delivery_id, first_delivery
FROM found WHERE id IN (SELECT inbox_id FROM new)`

func (c *claiming) readConflicts(rows pgx.Rows) error {
	var r RevisionConflict
	_, err := pgx.ForEachRow(rows, []any{&r.Tenant, &r.Source, &r.ResourceType, &r.ResourceID, &r.Revision, &r.DeliveryID, &r.FirstDeliveryID},
		func() error {
			c.conflicts = append(c.conflicts, r)
			return nil
		})
	return err
}

const revisionConflictsSQL = `
SELECT i.tenant, i.source, coalesce(i.resource_type, ''), coalesce(i.resource_id, ''), c.revision, i.delivery_id, coalesce(f.delivery_id, ''), c.noticed_at
FROM (
	SELECT * FROM hooklatch.revision_conflict WHERE inbox_id = $1
	UNION (SELECT * FROM hooklatch.revision_conflict WHERE first_id = $1 LIMIT $2)) c
CROSS JOIN LATERAL (SELECT * FROM hooklatch.inbox WHERE id = c.inbox_id OFFSET 0) i
LEFT JOIN LATERAL (SELECT delivery_id FROM hooklatch.inbox WHERE id = c.first_id OFFSET 0) f ON true
ORDER BY c.noticed_at, c.inbox_id`

// RevisionConflicts returns those in which one delivery came first or later, at most 100.
func (s *Store) RevisionConflicts(ctx context.Context, deliveryID int64) ([]RevisionConflict, error) {
	conflicts, err := collect(ctx, s, roleRead, func(row pgx.CollectableRow) (r RevisionConflict, err error) {
		err = row.Scan(&r.Tenant, &r.Source, &r.ResourceType, &r.ResourceID, &r.Revision, &r.DeliveryID, &r.FirstDeliveryID, &r.NoticedAt)
		return r, err
	}, revisionConflictsSQL, deliveryID, 100)
	if err != nil {
		return nil, readError("revision conflicts", err)
	}
	return conflicts, nil
}

// tellOrder tells the hooks of a claim that is committed.
func (s *Store) tellOrder(c *claiming) {
	if c.superseded > 0 && s.cfg.OnSuperseded != nil {
		s.cfg.OnSuperseded(c.Destination, c.superseded)
	}
	if s.cfg.OnRevisionConflict != nil {
		for _, r := range c.conflicts {
			s.cfg.OnRevisionConflict(r)
		}
	}
}
