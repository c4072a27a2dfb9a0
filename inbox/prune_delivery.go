package inbox

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// stillOpenSQL is the state of a forward that may still be sent. Look-ups that use it end
// in OFFSET 0: without it they may become a join, and a plan that was made for a
// small table then walks a large one.
const stillOpenSQL = `o.state IN ('pending', 'retry_wait', 'held', 'blocked') OFFSET 0`

// oldSourceSQL are the deliveries of one source. $1 is the source, or ” for all; $2
// and $3 the place of the row before, $4 the time, $5 how many.
const oldSourceSQL = `
	UNION ALL (SELECT id, received_at FROM hooklatch.inbox
		WHERE $1 <> '' AND source = $1 AND (received_at, id) > ($2, $3) AND received_at < $4 ORDER BY received_at, id LIMIT $5))`

// oldBodiesSQL goes along the bodies and not along the deliveries, most of which have
// none any more. Ids grow with the time of receipt.
const oldBodiesSQL = `
WITH c AS MATERIALIZED (
	(SELECT p.inbox_id AS id, i.received_at AS at
		FROM (SELECT inbox_id FROM hooklatch.payload WHERE $1 = '' AND inbox_id > $3 ORDER BY inbox_id LIMIT $5) p
		CROSS JOIN LATERAL (SELECT received_at FROM hooklatch.inbox WHERE id = p.inbox_id OFFSET 0) i)` + oldSourceSQL

const oldIdentitiesSQL = `
WITH c AS MATERIALIZED (
	(SELECT id, received_at AS at FROM hooklatch.inbox
		WHERE $1 = '' AND (received_at, id) > ($2, $3) AND received_at < $4 ORDER BY received_at, id LIMIT $5)` + oldSourceSQL

// lockOldSQL locks deliveries against a new forward, whose foreign key needs the row.
// Only the next statement sees a forward that was made before that.
const lockOldSQL = `,
l AS MATERIALIZED (
	SELECT id FROM hooklatch.inbox WHERE id = ANY (ARRAY(SELECT id FROM c WHERE at < $4)) ORDER BY id FOR UPDATE SKIP LOCKED)
SELECT id, at, id IN (SELECT id FROM l) FROM c`

const lookOldSQL = ` SELECT id, at, at < $4 FROM c`

// The deliveries of all sources come in the order of the bodies, by id.
const (
	bodiesOrderSQL     = ` ORDER BY CASE WHEN $1 <> '' THEN at END, id`
	identitiesOrderSQL = ` ORDER BY at, id`
)

// old returns the next deliveries that are old, locked unless nothing is to change.
func (p *pruning) old(ctx context.Context, tx pgx.Tx, sql, order string, most int) (ids []int64, err error) {
	if p.DryRun {
		sql += lookOldSQL + order
	} else {
		sql += lockOldSQL + order
	}
	rows, err := tx.Query(ctx, sql, p.Source, p.at, p.id, p.before, most)
	if err != nil {
		return nil, err
	}
	var old bool
	p.Looked = 0
	_, err = pgx.ForEachRow(rows, []any{&p.id, &p.at, &old}, func() error {
		p.Looked++
		if old {
			ids = append(ids, p.id)
		}
		return nil
	})
	p.Until, p.done = p.at, p.Looked < most || !p.at.Before(p.before)
	return ids, err
}

const bodiesSQL = ` FROM hooklatch.payload p WHERE inbox_id = ANY ($1)
	AND NOT EXISTS (SELECT FROM hooklatch.outbox o WHERE o.inbox_id = p.inbox_id AND ` + stillOpenSQL + `)`

const (
	dropBodiesSQL  = `WITH d AS (DELETE` + bodiesSQL + ` RETURNING 1) SELECT count(*) FROM d`
	countBodiesSQL = `SELECT count(*)` + bodiesSQL
)

func pruneBodies(ctx context.Context, tx pgx.Tx, p *pruning) error {
	ids, err := p.old(ctx, tx, oldBodiesSQL, bodiesOrderSQL, pruneRows)
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, p.choose(dropBodiesSQL, countBodiesSQL), ids).Scan(&p.Rows)
}

// settledSQL picks the deliveries that no forward needs. They are locked: none of
// their forwards becomes open again, and no new one can be made.
const settledSQL = `
SELECT u.id FROM unnest($1::int8[]) AS u(id)
WHERE NOT EXISTS (SELECT FROM hooklatch.outbox o WHERE o.inbox_id = u.id AND ` + stillOpenSQL + `)`

// A delivery goes with all that belongs to it. $1 are the ids.
const (
	dropAttemptsOfSQL = `DELETE FROM hooklatch.attempt WHERE outbox_id = ANY (ARRAY(SELECT id FROM hooklatch.outbox WHERE inbox_id = ANY ($1)))`
	dropForwardsOfSQL = `DELETE FROM hooklatch.outbox WHERE inbox_id = ANY ($1)`
	dropPayloadOfSQL  = `DELETE FROM hooklatch.payload WHERE inbox_id = ANY ($1)`
	dropEqualsOfSQL   = `DELETE FROM hooklatch.revision_conflict WHERE inbox_id = ANY ($1)`
	dropConflictsOf   = `DELETE FROM hooklatch.conflict WHERE id = ANY (ARRAY(
		SELECT c.id FROM hooklatch.inbox i CROSS JOIN LATERAL (SELECT id FROM hooklatch.conflict c
			WHERE c.delivery_id = i.delivery_id AND c.source || '' = i.source AND c.tenant || '' = i.tenant OFFSET 0) c
		WHERE i.id = ANY ($1)))`
	dropIdentitiesSQL = `DELETE FROM hooklatch.inbox WHERE id = ANY ($1)`
)

func pruneIdentities(ctx context.Context, tx pgx.Tx, p *pruning) error {
	ids, err := p.old(ctx, tx, oldIdentitiesSQL, identitiesOrderSQL, pruneDeliveries)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, settledSQL, ids)
	if err != nil {
		return err
	}
	settled, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	p.Rows = len(settled)
	if err != nil || p.DryRun || len(settled) == 0 {
		return err
	}
	batch := &pgx.Batch{}
	for _, sql := range []string{dropAttemptsOfSQL, dropForwardsOfSQL, dropPayloadOfSQL, dropEqualsOfSQL, dropConflictsOf, dropIdentitiesSQL} {
		batch.Queue(sql, settled)
	}
	return tx.SendBatch(ctx, batch).Close()
}

// Bytes that were refused under a known id are kept as long as accepted ones, and
// hash, count and times as long as the delivery. Where that has gone while they came
// in, nothing else would ever remove the row.
const oldConflictsSQL = `
WITH c AS MATERIALIZED (
	SELECT ctid AS row, id, first_seen_at AS at, tenant, source, delivery_id FROM hooklatch.conflict
	WHERE body IS NOT NULL AND first_seen_at >= $2 AND (first_seen_at, id) > ($2, $3) AND first_seen_at < $4 AND ($1 = '' OR source = $1)
	ORDER BY first_seen_at, id LIMIT $5`

const dropConflictsSQL = oldConflictsSQL + ` FOR UPDATE SKIP LOCKED),
k AS MATERIALIZED (
	SELECT c.row, EXISTS (SELECT FROM hooklatch.inbox i WHERE i.delivery_id = c.delivery_id
		AND i.source || '' = c.source AND i.tenant || '' = c.tenant OFFSET 0) AS known FROM c),
u AS (UPDATE hooklatch.conflict SET body = NULL, headers = '' WHERE ctid = ANY (ARRAY(SELECT row FROM k WHERE known))),
d AS (DELETE FROM hooklatch.conflict WHERE ctid = ANY (ARRAY(SELECT row FROM k WHERE NOT known)))
SELECT id, at FROM c ORDER BY at, id`

const countConflictsSQL = oldConflictsSQL + `)
SELECT id, at FROM c ORDER BY at, id`

func pruneConflicts(ctx context.Context, tx pgx.Tx, p *pruning) error {
	rows, err := tx.Query(ctx, p.choose(dropConflictsSQL, countConflictsSQL), p.Source, p.at, p.id, p.before, pruneRows)
	if err != nil {
		return err
	}
	_, err = p.walk(rows)
	p.Rows = p.Looked
	return err
}

// A resource stays while any delivery of it is known: its tombstone, and what was
// applied, decide about each of them.
const oldResourcesSQL = `
SELECT id, touched_at FROM hooklatch.resource
WHERE touched_at >= $2 AND (touched_at, id) > ($2, $3) AND touched_at < $4 AND ($1 = '' OR source = $1)
ORDER BY touched_at, id LIMIT $5`

const lockResourcesSQL = oldResourcesSQL + ` FOR UPDATE SKIP LOCKED`

const forgottenSQL = ` FROM hooklatch.resource r WHERE id = ANY ($1)
	AND NOT EXISTS (SELECT FROM hooklatch.inbox i WHERE i.resource_id = r.resource_id AND coalesce(i.resource_type, '') = r.resource_type
		AND i.source || '' = r.source AND i.tenant || '' = r.tenant OFFSET 0)`

const (
	dropResourcesSQL  = `WITH d AS (DELETE` + forgottenSQL + ` RETURNING 1) SELECT count(*) FROM d`
	countResourcesSQL = `SELECT count(*)` + forgottenSQL
)

func pruneResources(ctx context.Context, tx pgx.Tx, p *pruning) error {
	rows, err := tx.Query(ctx, p.choose(lockResourcesSQL, oldResourcesSQL), p.Source, p.at, p.id, p.before, pruneRows)
	if err != nil {
		return err
	}
	ids, err := p.walk(rows)
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, p.choose(dropResourcesSQL, countResourcesSQL), ids).Scan(&p.Rows)
}
