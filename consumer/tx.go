package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hooklatch/hooklatch/inbox"
)

// TxHandler does the business of a forward in the transaction that settles it.
type TxHandler interface {
	// HandleTx writes through tx, and neither commits nor rolls it back. When it
	// returns nil, what it wrote and "accepted" commit together, or neither does:
	// a worker that has lost its lease leaves no trace. Errors, panics and ctx are
	// as with Handler. The transaction is open meanwhile, so keep it short and
	// call nobody over the network from it.
	HandleTx(ctx context.Context, tx pgx.Tx, f Forward) error
}

// TxHandlerFunc is a function as a TxHandler.
type TxHandlerFunc func(ctx context.Context, tx pgx.Tx, f Forward) error

// HandleTx calls h.
func (h TxHandlerFunc) HandleTx(ctx context.Context, tx pgx.Tx, f Forward) error {
	return h(ctx, tx, f)
}

// TxQueue is a Queue that can settle in a transaction of the caller.
// *inbox.Store is one.
type TxQueue interface {
	Queue
	// SettleTx is Settle, taking effect with tx. inbox.ErrLeaseLost: tx must be
	// rolled back.
	SettleTx(ctx context.Context, tx pgx.Tx, s inbox.Settlement) error
}

// TxConfig is what a transactional Consumer is told.
type TxConfig struct {
	Config
	// DB begins the transactions, in the database of the inbox. Demanded;
	// *pgxpool.Pool is one.
	DB interface {
		BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	}
}

// NewTx makes a Consumer whose accepted forwards are settled together with what
// h wrote. Forwards that fail are settled in q as with New.
func NewTx(q TxQueue, h TxHandler, cfg TxConfig) (*Consumer, error) {
	if q == nil || h == nil || cfg.DB == nil {
		return nil, errors.New("consumer: TxQueue, TxHandler and DB are demanded")
	}
	return newConsumer(q, cfg.Config, func(a *attempt) (bool, error) {
		if err := handTx(a, q, h, cfg); err != nil {
			return false, err
		}
		return true, nil
	})
}

// handTx returns nil once the business and the settlement are committed. After
// an error they are not, but for a COMMIT whose answer was lost: then the lease
// has ended with it, and the Settle that follows changes nothing.
func handTx(a *attempt, q TxQueue, h TxHandler, cfg TxConfig) error {
	tx, err := cfg.DB.BeginTx(a.ctx, beginTx(a.run.cfg.Timeout))
	if err != nil {
		return fmt.Errorf("begin: %w", silent{err})
	}
	// From here on a stop or the timeout may cut the Handler, not the commit.
	ctx, cancel := context.WithTimeout(a.run.settles, a.run.cfg.Timeout+queueTimeout)
	defer cancel()
	defer tx.Rollback(ctx) // does nothing after Commit

	failpoint("before_handler")
	if err := h.HandleTx(a.ctx, tx, a.forward()); err != nil {
		return err
	}
	failpoint("after_handler")
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	if err := q.SettleTx(ctx, tx, a.accepted()); err != nil {
		return fmt.Errorf("settle with the transaction: %w", silent{err})
	}
	failpoint("before_handler_commit")
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", silent{err})
	}
	failpoint("after_handler_commit")
	return nil
}

// beginTx begins a transaction that the server ends when nothing is heard in it for
// longer than an attempt may take: a process that vanished, its connection still open,
// must not keep its rows, and its lane, locked.
func beginTx(timeout time.Duration) pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = %d", (timeout + queueTimeout).Milliseconds())}
}
