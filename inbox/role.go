package inbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// beginRoleSQL begins every transaction but those of accept. A process that vanishes in
// the middle of one, its connection still open, must not keep its rows locked; and
// a plan made while a table was small must not scan it when it has grown. What is
// forbidden seems dear, and what is dear is compiled, for longer than all else takes.
const beginRoleSQL = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '10s';
	SET LOCAL lock_timeout = '1s'; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL enable_seqscan = off; SET LOCAL jit = off`

// planOnceSQL keeps the plans of claims and settlements. Left to choose, the server takes
// the short arrays that they come with for a reason to plan anew each time, which takes
// longer than all else; there is only one good plan for each.
const planOnceSQL = `; SET LOCAL plan_cache_mode = force_generic_plan`

// setRoleSQL goes with it in one round trip. The tenants come as hex, in which nothing
// can end the literal.
const setRoleSQL = `; SELECT set_config('role', '%s', true), set_config('hooklatch.tenants', convert_from(decode('%x', 'hex'), 'UTF8'), true)`

// everyTenant is what the setting reads where all tenants are meant, configured or not.
// Only roleAdmin and roleRead may ask for it.
const everyTenant = "{*}"

// as runs do in a transaction with the rights of r over every tenant, and commits it
// where do returns nil. do runs from its beginning once more where a prepared statement
// did not fit.
func (s *Store) as(ctx context.Context, r role, do func(pgx.Tx) error) error {
	return s.begin(ctx, r, everyTenant, do)
}

// asOf is as over these tenants: rows of others are neither seen nor written.
func (s *Store) asOf(ctx context.Context, r role, tenants []string, do func(pgx.Tx) error) error {
	return s.begin(ctx, r, tenantList(tenants), do)
}

func (s *Store) begin(ctx context.Context, r role, tenants string, do func(pgx.Tx) error) error {
	return s.onceMore(func() error { return pgx.BeginTxFunc(ctx, s.pool, beginAs(r, tenants), do) })
}

func beginAs(r role, tenants string) pgx.TxOptions {
	begin := beginRoleSQL
	if r == roleConsumer {
		begin += planOnceSQL
	}
	return pgx.TxOptions{BeginQuery: begin + fmt.Sprintf(setRoleSQL, r, tenants)}
}

// inElement writes what would end or change an element of an array.
var inElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// tenantList writes the setting hooklatch.tenants: an array, each tenant once.
func tenantList(tenants []string) string {
	var list strings.Builder
	for i, tenant := range tenants {
		if slices.Contains(tenants[:i], tenant) {
			continue
		}
		if list.Len() > 0 {
			list.WriteByte(',')
		}
		list.WriteString(`"` + inElement.Replace(tenant) + `"`)
	}
	return "{" + list.String() + "}"
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

// lendRoleSQL says what role and tenants a transaction has, and changes them.
const lendRoleSQL = `
WITH before AS MATERIALIZED (
	SELECT current_setting('role') AS role, coalesce(current_setting('hooklatch.tenants', true), '') AS tenants)
SELECT role, tenants, set_config('role', $1, true), set_config('hooklatch.tenants', $2, true) FROM before`

const returnRoleSQL = `SELECT set_config('role', $1, true), set_config('hooklatch.tenants', $2, true)`

// within runs do in the caller's transaction with the rights of r over the tenants, and
// puts back what was before. After an error of the database there is nothing to put
// back: the caller's rollback, be it to a savepoint, does that.
func within(ctx context.Context, tx pgx.Tx, r role, tenants []string, do func() error) error {
	var role, list, set string
	if err := tx.QueryRow(ctx, lendRoleSQL, string(r), tenantList(tenants)).Scan(&role, &list, &set, &set); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, returnRoleSQL, role, list)
	return err
}
