package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config tells New how to run a Store. The zero Config is right for production.
type Config struct {
	// MaxBatchRows bounds the deliveries, or settlements, of one transaction.
	// Defaults to 256.
	MaxBatchRows int
	// MaxBatchBytes bounds the bodies of one transaction, in bytes, of Accept as of
	// Claim; a larger body is a transaction of its own. Defaults to 8 MiB.
	MaxBatchBytes int
	// MaxWait is how long a delivery may wait for a writer. Defaults to 1 second.
	MaxWait time.Duration

	// OnForwards is called after a commit that made new forwards, once for each
	// destination. It must not block.
	OnForwards func(destination string)
	// OnBatch is called after each committed accept transaction with its number of
	// deliveries and the time it took, from taking a connection to COMMIT's answer.
	OnBatch func(rows int, took time.Duration)
	// OnSuperseded is called after a claim that took n forwards out of their lanes,
	// because a later revision was sent or waits. It must not block.
	OnSuperseded func(destination string, n int)
	// OnRevisionConflict is called once for each delivery whose revision of its resource
	// had come before with another body. The first stays. It must not block.
	OnRevisionConflict func(RevisionConflict)
}

// writers is the number of accept transactions at once. One is enough for the
// rate; the second goes on while the first waits for a lock.
const writers = 2

// Store is the inbox in Postgres. It is safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool
	cfg  Config

	accepts   group[*acceptance]
	guarded   group[*acceptance] // those with a body guard, whose locks must not keep the others
	settles   group[*settling]
	refused   quarantine
	alone     group[*acceptance] // for what is refused: one delivery at a time
	conflicts chan struct{}      // held by the one that is being recorded
	looked    gapsSeen
}

// New returns a Store on pool, whose database must have the schema of package
// migrations. The pool stays the caller's to close; it needs at least 3
// connections.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if n := pool.Config().MaxConns; n < writers+1 {
		return nil, fmt.Errorf("inbox: pool of %d connections: the store needs at least %d", n, writers+1)
	}
	if cfg.MaxBatchRows == 0 {
		cfg.MaxBatchRows = 256
	}
	if cfg.MaxBatchBytes == 0 {
		cfg.MaxBatchBytes = 8 << 20
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = time.Second
	}
	s := &Store{pool: pool, cfg: cfg, conflicts: make(chan struct{}, 1)}
	s.accepts = group[*acceptance]{
		writers: writers, maxRows: cfg.MaxBatchRows, maxBytes: cfg.MaxBatchBytes, maxWait: cfg.MaxWait,
		run: s.acceptBatch,
	}
	s.guarded = group[*acceptance]{
		writers: 1, maxRows: cfg.MaxBatchRows, maxBytes: cfg.MaxBatchBytes, maxWait: cfg.MaxWait,
		run: s.acceptBatch,
	}
	s.alone = group[*acceptance]{
		writers: 1, maxRows: 1, maxBytes: cfg.MaxBatchBytes, maxWait: cfg.MaxWait,
		run: s.acceptBatch,
	}
	s.settles = group[*settling]{
		writers: 1, maxRows: cfg.MaxBatchRows, maxBytes: cfg.MaxBatchBytes, maxWait: 10 * time.Second,
		run: s.settleBatch,
	}
	return s, nil
}

const readySQL = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, clock_timestamp()`

// Ready returns nil if the database can be written to, and how far its clock is
// ahead of ours, measured at the middle of the round trip.
func (s *Store) Ready(ctx context.Context) (offset time.Duration, err error) {
	var readOnly bool
	var theirs time.Time
	start := time.Now()
	if err := s.pool.QueryRow(ctx, readySQL).Scan(&readOnly, &theirs); err != nil {
		return 0, readError("ready", err)
	}
	offset = theirs.Sub(start.Add(time.Since(start) / 2))
	if readOnly {
		return offset, fmt.Errorf("ready: %w: the database is read-only", ErrUnavailable)
	}
	return offset, nil
}

const saveConfigSQL = `
WITH new AS (
	INSERT INTO hooklatch.config_revision (hash, redacted) VALUES ($1, $2)
	ON CONFLICT (hash) DO NOTHING RETURNING id)
SELECT id FROM new UNION ALL SELECT id FROM hooklatch.config_revision WHERE hash = $1 LIMIT 1`

// SaveConfig records the configuration that runs, with its secrets masked, and
// returns its revision. The same hash is the same revision.
func (s *Store) SaveConfig(ctx context.Context, hash [32]byte, redacted string) (int64, error) {
	var id int64
	err := s.as(ctx, roleIngest, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, saveConfigSQL, hash[:], redacted).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			// Another process inserted it at this very moment; now it is visible.
			err = tx.QueryRow(ctx, saveConfigSQL, hash[:], redacted).Scan(&id)
		}
		return err
	})
	if err != nil {
		return 0, storeError("save configuration", classify(err, false), err)
	}
	return id, nil
}

// quarantine remembers the deliveries that the database refused, so that their
// retries do not spoil the batches of others.
type quarantine struct {
	mu    sync.Mutex
	until map[identity]time.Time
}

const (
	quarantineTime = time.Minute
	quarantineSize = 10_000
)

func (q *quarantine) add(k identity) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.until == nil || len(q.until) >= quarantineSize {
		q.until = make(map[identity]time.Time)
	}
	q.until[k] = time.Now().Add(quarantineTime)
}

func (q *quarantine) has(k identity) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	until, ok := q.until[k]
	if ok && time.Now().After(until) {
		delete(q.until, k)
		return false
	}
	return ok
}
