package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// The rows of a batch are locked, so that their place in the table stays the same
// within the statement.
const oldAttemptsSQL = `
WITH c AS MATERIALIZED (
	SELECT ctid AS row, outbox_id, number, late, ended_at FROM hooklatch.attempt
	WHERE ended_at >= $2 AND (ended_at, outbox_id, number, late) > ($2, $3, $6, $7) AND ended_at < $4
	ORDER BY ended_at, outbox_id, number, late LIMIT $5`

const settledAttemptsSQL = `),
o AS MATERIALIZED (
	SELECT c.row FROM c
	WHERE NOT EXISTS (SELECT FROM hooklatch.outbox o WHERE o.id = c.outbox_id AND ` + stillOpenSQL + `)
		AND ($1 = '' OR $1 = (SELECT i.source FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id WHERE o.id = c.outbox_id OFFSET 0)))`

const lastAttemptSQL = `
SELECT (SELECT count(*) FROM c), (SELECT count(*) FROM o), ended_at, outbox_id, number, late FROM c
ORDER BY ended_at DESC, outbox_id DESC, number DESC, late DESC LIMIT 1`

const (
	dropAttemptsSQL = oldAttemptsSQL + ` FOR UPDATE SKIP LOCKED` + settledAttemptsSQL + `,
		d AS (DELETE FROM hooklatch.attempt WHERE ctid = ANY (ARRAY(SELECT row FROM o)))` + lastAttemptSQL
	countAttemptsSQL = oldAttemptsSQL + settledAttemptsSQL + lastAttemptSQL
)

func pruneAttempts(ctx context.Context, tx pgx.Tx, p *pruning) error {
	p.Looked, p.Rows = 0, 0
	err := tx.QueryRow(ctx, p.choose(dropAttemptsSQL, countAttemptsSQL), p.Source, p.at, p.id, p.before, pruneRows, p.number, p.late).
		Scan(&p.Looked, &p.Rows, &p.at, &p.id, &p.number, &p.late)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	p.Until, p.done = p.at, p.Looked < pruneRows
	return err
}

// edgeSQL is the newest refusal that is one too many.
const edgeSQL = `SELECT minute, id FROM hooklatch.refusal ORDER BY minute DESC, id DESC OFFSET $1 LIMIT 1`

const oldRefusalsSQL = `
WITH c AS MATERIALIZED (
	SELECT ctid AS row, id, minute FROM hooklatch.refusal
	WHERE (minute, id) > ($2, $3) AND (minute, id) <= ($4, $6) AND ($1 = '' OR source = $1) ORDER BY minute, id LIMIT $5`

const (
	dropRefusalsSQL = oldRefusalsSQL + ` FOR UPDATE SKIP LOCKED),
		d AS (DELETE FROM hooklatch.refusal WHERE ctid = ANY (ARRAY(SELECT row FROM c)))
		SELECT id, minute FROM c ORDER BY minute, id`
	countRefusalsSQL = oldRefusalsSQL + `) SELECT id, minute FROM c ORDER BY minute, id`
)

func pruneRefusals(ctx context.Context, tx pgx.Tx, p *pruning) error {
	if p.MaxRefusals > 0 && p.Source == "" && p.Until.IsZero() { // once, at the beginning
		edge := pruning{}
		err := tx.QueryRow(ctx, edgeSQL, p.MaxRefusals).Scan(&edge.at, &edge.id)
		switch {
		case err == nil && !edge.at.Before(p.before):
			p.before, p.edge = edge.at, edge.id
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return err
		}
	}
	rows, err := tx.Query(ctx, p.choose(dropRefusalsSQL, countRefusalsSQL), p.Source, p.at, p.id, p.before, pruneRows, p.edge)
	if err != nil {
		return err
	}
	_, err = p.walk(rows)
	p.Rows = p.Looked
	return err
}

// KeyUseAge is how far back uses of keys can be looked at.
const KeyUseAge = 90 * 24 * time.Hour

const dropKeyUsesSQL = `
DELETE FROM hooklatch.key_use WHERE (source, tenant, key_id, scheme, hour) IN (
	SELECT source, tenant, key_id, scheme, hour FROM hooklatch.key_use u
	WHERE hour < $2 AND ($1 = '' OR source = $1) AND EXISTS (SELECT FROM hooklatch.key_use l
		WHERE l.source = u.source AND l.tenant = u.tenant AND l.key_id = u.key_id AND l.scheme = u.scheme AND l.hour > u.hour)
	ORDER BY hour LIMIT $3 FOR UPDATE SKIP LOCKED)`

func pruneKeyUses(ctx context.Context, tx pgx.Tx, p *pruning) error {
	tag, err := tx.Exec(ctx, dropKeyUsesSQL, p.Source, p.before, pruneRows)
	p.Rows = int(tag.RowsAffected())
	p.Looked, p.Until, p.done = p.Rows, p.before, p.Rows < pruneRows
	return err
}
