package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tallies are counts that are added to the database in one transaction.
//
// After an error of Record, the same Tallies may be recorded again, unchanged: what
// the first try has committed is not added twice, also where its answer was lost.
// That knowledge is in the Tallies and in the database's record of its transactions:
// it ends with the process, and with a crash or fail-over after which the server has
// not heard of the first try; then the counts may be added once more, or be missing.
type Tallies struct {
	Refusals []Refusal
	KeyUses  []KeyUse

	tried string // transaction whose end nobody saw
}

// Len is the number of rows that a Record writes at most.
func (t *Tallies) Len() int { return len(t.Refusals) + len(t.KeyUses) }

func (t *Tallies) tenants() []string {
	var tenants []string
	for _, r := range t.Refusals {
		tenants = append(tenants, clip(r.Tenant, 255))
	}
	for _, u := range t.KeyUses {
		tenants = append(tenants, clip(u.Tenant, 255))
	}
	return tenants
}

// triedSQL needs no rights and no table: the server remembers how each of its
// transactions ended, for far longer than anybody tries again.
const triedSQL = `SELECT coalesce(pg_xact_status($1::text::xid8), 'aborted')`

const currentTransactionSQL = `SELECT pg_current_xact_id()::text`

// Record adds t to what was counted before, all of it or nothing. Processes may
// record at the same time.
func (s *Store) Record(ctx context.Context, t *Tallies) error {
	if t.Len() == 0 {
		return nil
	}
	done, err := s.recorded(ctx, t)
	if done || err != nil {
		return err
	}
	committing := false
	err = s.asOf(ctx, roleIngest, t.tenants(), func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		if len(t.Refusals) > 0 {
			batch.Queue(addRefusalsSQL, refusalArgs(t.Refusals)...)
		}
		if len(t.KeyUses) > 0 {
			batch.Queue(addKeyUsesSQL, keyUseArgs(t.KeyUses)...)
		}
		batch.Queue(currentTransactionSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&t.tried) })
		err := tx.SendBatch(ctx, batch).Close()
		committing = err == nil
		return err
	})
	if err != nil {
		return storeError("record tallies", classify(err, committing), err)
	}
	return nil
}

// recorded says whether an earlier try has committed t after all.
func (s *Store) recorded(ctx context.Context, t *Tallies) (bool, error) {
	if t.tried == "" {
		return false, nil
	}
	var status string
	err := s.pool.QueryRow(ctx, triedSQL, t.tried).Scan(&status)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "22023":
		return false, nil // in the future: a server that never ran it
	case err != nil:
		return false, readError("record tallies", err)
	case status == "in progress":
		return false, fmt.Errorf("record tallies: %w: the earlier try has not ended", ErrBusy)
	}
	return status == "committed", nil
}

// clip cuts text to what its column holds.
func clip(s string, most int) string {
	if s = toText(s); len(s) <= most {
		return s
	}
	return toText(s[:most-len("�")+1])
}
