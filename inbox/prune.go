package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// Retention says what is old: what is from before these times. Of a kind whose time
// is zero nothing goes. What a forward may still need stays, however old: as long as
// one of a delivery is open (pending, retry_wait, held or blocked), so do its body,
// its attempts and its identity.
type Retention struct {
	Bodies     time.Time // bodies with their headers; hash, size and times stay
	Attempts   time.Time
	Identities time.Time // deliveries as a whole, and resources that no delivery is left of
	Refusals   time.Time
	KeyUses    time.Time // the last use of each key stays

	// MaxRefusals is how many rows of refusals stay at most. Defaults to no bound.
	MaxRefusals int
	// Source is whose rows go. Defaults to all.
	Source string

	// DryRun counts and changes nothing. Uses of keys are not counted.
	DryRun bool
	// Yield ends the pruning, without an error, when another process that yields is
	// at it: those who prune all the time need not do it together.
	Yield bool
}

// The kinds of what is pruned, in the order in which they go.
const (
	PruneRefusals   = "refusals"
	PruneKeyUses    = "key_uses"
	PruneBodies     = "bodies"
	PruneConflicts  = "conflicts" // only the bodies of them
	PruneAttempts   = "attempts"
	PruneIdentities = "identities"
	PruneResources  = "resources"
)

// PruneKinds are all of them.
func PruneKinds() []string {
	return []string{PruneRefusals, PruneKeyUses, PruneBodies, PruneConflicts, PruneAttempts, PruneIdentities, PruneResources}
}

// Pruned is what one batch came to.
type Pruned struct {
	Kind   string
	Rows   int       // that are gone, or with DryRun would be
	Looked int       // rows looked at
	Until  time.Time // how far the look has come, from the oldest on
	Took   time.Duration
}

// Rows of a batch. Of a delivery several rows go.
const (
	pruneRows       = 1000
	pruneDeliveries = 250
)

// Prune removes what r calls old, batch by batch, each in a transaction of its own:
// what it has yielded is gone, whatever comes later. The caller paces it between two
// batches, and may end it at each. It waits for no lock, and nobody waits for it for
// longer than a batch takes: rows that another transaction holds are left for the
// next time. On a full disk everything goes but the bodies of conflicts, for which
// ErrFull comes at the end.
func (s *Store) Prune(ctx context.Context, r Retention) iter.Seq2[Pruned, error] {
	return func(yield func(Pruned, error) bool) {
		var full error
		for _, p := range pruningsOf(r) {
			for !p.done {
				err := s.pruneBatch(ctx, p)
				if errors.Is(err, errYield) {
					return
				}
				if p.Kind == PruneConflicts && errors.Is(err, ErrFull) {
					full = err // an update takes room, which those that follow make
					break
				}
				if !yield(p.Pruned, err) || err != nil {
					return
				}
			}
		}
		if full != nil {
			yield(Pruned{Kind: PruneConflicts}, full)
		}
	}
}

const auditPruneSQL = `
INSERT INTO hooklatch.audit (tenant, actor, action, reason, detail) SELECT t, $2, 'prune', $3, $4 FROM unnest($1::text[]) t`

// RecordPrune puts into the audit of tenants that a person removes something earlier
// than it is said to be kept: before it is done. Audit reads it there.
func (s *Store) RecordPrune(ctx context.Context, tenants []string, r Retention, act Act) error {
	if err := act.check(); err != nil {
		return fmt.Errorf("record prune: %w", err)
	}
	detail := "bodies and attempts before " + r.Bodies.UTC().Format(time.RFC3339Nano)
	if r.Source != "" {
		detail += " of source " + r.Source
	}
	err := s.as(ctx, roleAdmin, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, auditPruneSQL, tenants, act.Actor, act.Reason, detail)
		return err
	})
	if err != nil {
		return storeError("record prune", classify(err, false), err)
	}
	return nil
}

// errYield ends a pruning quietly.
var errYield = errors.New("another process is pruning")

// One number for all who yield; no other lock of this package has two parts.
const yieldSQL = `SELECT pg_try_advisory_xact_lock(1752131435, 1)`

func (s *Store) pruneBatch(ctx context.Context, p *pruning) error {
	start := time.Now()
	before := *p
	err := s.as(ctx, roleAdmin, func(tx pgx.Tx) error {
		*p = before
		if p.Yield {
			var alone bool
			if err := tx.QueryRow(ctx, yieldSQL).Scan(&alone); err != nil {
				return err
			}
			if !alone {
				return errYield
			}
		}
		return p.batch(ctx, tx)
	})
	p.Took = time.Since(start)
	switch {
	case err == nil, errors.Is(err, errYield):
		return err
	case ctx.Err() != nil:
		return readError("prune "+p.Kind, ctx.Err())
	}
	return storeError("prune "+p.Kind, classify(err, false), err)
}

// pruning is one kind on its way.
type pruning struct {
	Retention
	before   time.Time
	beforeID int64 // of refusals: those of before up to this id go as well
	most     int

	// The row that was looked at last.
	at     time.Time
	id     int64
	number int32
	late   bool

	Pruned
	done bool
}

func pruningsOf(r Retention) (all []*pruning) {
	for _, p := range []pruning{
		{Pruned: Pruned{Kind: PruneRefusals}, before: r.Refusals},
		{Pruned: Pruned{Kind: PruneKeyUses}, before: r.KeyUses},
		{Pruned: Pruned{Kind: PruneBodies}, before: r.Bodies},
		{Pruned: Pruned{Kind: PruneConflicts}, before: r.Bodies},
		{Pruned: Pruned{Kind: PruneAttempts}, before: r.Attempts},
		{Pruned: Pruned{Kind: PruneIdentities}, before: r.Identities, most: pruneDeliveries},
		{Pruned: Pruned{Kind: PruneResources}, before: r.Identities},
	} {
		p.Retention, p.most = r, cmp.Or(p.most, pruneRows)
		if !p.before.IsZero() && !(r.DryRun && p.Kind == PruneKeyUses) {
			all = append(all, &p)
		}
	}
	return all
}

// edgeSQL is the newest refusal that is one too many.
const edgeSQL = `SELECT minute, id FROM hooklatch.refusal ORDER BY minute DESC, id DESC OFFSET $1 LIMIT 1`

// pruneSQL calls the function of the schema that may delete, which no role may. What it
// does to each kind stands there.
const pruneSQL = `SELECT looked, gone, last_at, last_id, last_number, last_late FROM hooklatch.prune($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

func (p *pruning) batch(ctx context.Context, tx pgx.Tx) error {
	if p.Kind == PruneRefusals && p.MaxRefusals > 0 && p.Source == "" && p.Until.IsZero() { // once, at the beginning
		var at time.Time
		var id int64
		err := tx.QueryRow(ctx, edgeSQL, p.MaxRefusals).Scan(&at, &id)
		switch {
		case err == nil && !at.Before(p.before):
			p.before, p.beforeID = at, id
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return err
		}
	}
	err := tx.QueryRow(ctx, pruneSQL, p.Kind, p.Source, p.before, p.beforeID, p.most, p.DryRun, p.at, p.id, p.number, p.late).
		Scan(&p.Looked, &p.Rows, &p.at, &p.id, &p.number, &p.late)
	p.Until = p.at
	p.done = p.Looked < p.most || p.Kind == PruneBodies && !p.at.Before(p.before)
	return err
}

// KeyUseAge is how far back uses of keys can be looked at.
const KeyUseAge = 90 * 24 * time.Hour
