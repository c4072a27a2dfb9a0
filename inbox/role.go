package inbox

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// role is the database role that a transaction runs under: no more rights than its
// purpose needs.
type role string

const (
	roleIngest   role = "hooklatch_ingest"   // accepts deliveries, tallies refusals
	roleConsumer role = "hooklatch_consumer" // claims and settles
	roleAdmin    role = "hooklatch_admin"    // acts for a person; sees bodies
	roleRead     role = "hooklatch_read"     // looks, without bodies
)

// beginTx begins every transaction but those of accept. A process that vanishes in
// the middle of one, its connection still open, must not keep its rows locked; and
// a plan made while a table was small must not scan it when it has grown.
var beginTx = pgx.TxOptions{BeginQuery: `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '10s';
	SET LOCAL lock_timeout = '1s'; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL enable_seqscan = off`}

// as runs do in a transaction with the rights of r, and commits it where do returns
// nil.
func (s *Store) as(ctx context.Context, r role, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, beginTx, do)
}

// collect runs one query in a transaction with the rights of r.
func collect[T any](ctx context.Context, s *Store, r role, scan pgx.RowToFunc[T], sql string, args ...any) (all []T, err error) {
	err = s.as(ctx, r, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}
