package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A transaction pooler lends each transaction another connection of its own. What was
// prepared on one is missing on the next, or in the way there; that shows under load
// and not at the first request, so it is looked for before.

// poolerRounds is how often the self-test tries: under the load of others two
// transactions in a row may get different connections.
const poolerRounds = 8

// poolerPatience is how long a transaction waits for a connection of the pooler.
const poolerPatience = 3 * time.Second

const backendSQL = `SELECT pg_backend_pid()`

// checkPooler finds whether the way to the database is what database.pooler says.
func checkPooler(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	cfg, err := pgx.ParseConfig(db.url)
	if err != nil {
		return nil, err
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectPatience
	}
	prepares := cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement || cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe
	if db.pooler == "pgbouncer" {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	a, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer a.Close(context.WithoutCancel(ctx))
	b, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer b.Close(context.WithoutCancel(ctx))
	var backend uint32
	if err := a.QueryRow(ctx, backendSQL, pgx.QueryExecModeExec).Scan(&backend); err != nil {
		return nil, err
	}
	switch behind := backend != a.PgConn().PID(); {
	case db.pooler == "pgbouncer":
		return checkLending(ctx, a, b)
	case !behind:
		return []finding{{check: "pooler", level: fine, what: "there is none"}}, nil
	case prepares:
		if err = checkPrepared(ctx, a, b); isStale(err) {
			return []finding{{check: "pooler", what: "it is behind a pooler that gives each transaction another connection, so prepared statements get lost: " +
				"set database.pooler: pgbouncer"}}, nil
		}
	}
	return []finding{{check: "pooler", level: doubtful, what: "a pooler stands before the database: set database.pooler: pgbouncer unless it gives each client a connection of its own"}}, err
}

// checkPrepared prepares the same statements on two connections in turn.
func checkPrepared(ctx context.Context, conns ...*pgx.Conn) error {
	for round := range poolerRounds {
		sql := fmt.Sprintf("SELECT $1::int + %d", round)
		for range 2 {
			for _, conn := range conns {
				err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					var sum int
					return tx.QueryRow(ctx, sql, 1).Scan(&sum)
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// isStale says that a statement was not there, was there already, or had changed.
func isStale(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "26000" || pg.Code == "42P05" || pg.Code == "0A000" && strings.Contains(pg.Message, "cached plan"))
}

// checkLending runs the same statement in two transactions at once.
func checkLending(ctx context.Context, a, b *pgx.Conn) ([]finding, error) {
	var second error
	err := pgx.BeginFunc(ctx, a, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, backendSQL); err != nil {
			return err
		}
		waits, cancel := context.WithTimeout(ctx, poolerPatience)
		defer cancel()
		second = pgx.BeginFunc(waits, b, func(tx pgx.Tx) error {
			_, err := tx.Exec(waits, backendSQL)
			return err
		})
		return nil
	})
	var pg *pgconn.PgError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &pg) && strings.Contains(pg.Message, "statement pooling"):
		return []finding{{check: "pooler", what: "its pooler allows no transactions (pool_mode = statement): pool_mode = transaction is needed"}}, nil
	case err != nil:
		return nil, err
	case errors.Is(second, context.DeadlineExceeded):
		return []finding{{check: "pooler", what: fmt.Sprintf("its pooler did not lend a second connection within %s: default_pool_size or max_db_connections is too small", poolerPatience)}}, nil
	}
	return []finding{{check: "pooler", level: fine, what: "it lends two connections at once"}}, second
}
