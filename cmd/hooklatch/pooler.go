package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// checkPooler finds whether the way to the database is what database.pooler says. hint
// is what may be wrong, and need not be.
func checkPooler(ctx context.Context, url, pooler string) (found []finding, hint string, err error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, "", err
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectPatience
	}
	prepares := cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement || cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe
	if pooler == "pgbouncer" {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	a, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, "", err
	}
	defer a.Close(context.WithoutCancel(ctx))
	b, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, "", err
	}
	defer b.Close(context.WithoutCancel(ctx))
	var backend uint32
	if err := a.QueryRow(ctx, backendSQL, pgx.QueryExecModeExec).Scan(&backend); err != nil {
		return nil, "", err
	}
	switch behind := backend != a.PgConn().PID(); {
	case pooler == "pgbouncer":
		found, err = checkLending(ctx, a, b)
		return found, "", err
	case !behind:
		return nil, "", nil
	case prepares:
		if err = checkPrepared(ctx, a, b); isStale(err) {
			return []finding{{what: "it is behind a pooler that gives each transaction another connection, so prepared statements get lost: " +
				"set database.pooler: pgbouncer"}}, "", nil
		}
	}
	return nil, "a pooler stands before the database: set database.pooler: pgbouncer unless it gives each client a connection of its own", err
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
		return []finding{{what: "its pooler allows no transactions (pool_mode = statement): pool_mode = transaction is needed"}}, nil
	case err != nil:
		return nil, err
	case errors.Is(second, context.DeadlineExceeded):
		return []finding{{what: fmt.Sprintf("its pooler did not lend a second connection within %s: default_pool_size or max_db_connections is too small", poolerPatience)}}, nil
	}
	return nil, second
}

// poolerFits is the self-test of a server before anything else is asked of the
// database.
func poolerFits(ctx context.Context, l *slog.Logger, url, pooler string) error {
	found, hint, err := checkPooler(ctx, url, pooler)
	if err != nil {
		return unreachable(ctx, url, err)
	}
	if hint != "" {
		l.Warn("database: " + hint)
	}
	if len(found) > 0 {
		return fail(exitUnreachable, startupErrors(found), "")
	}
	return nil
}
