package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
)

// The connections of a process. The accept path has its own, so that neither the
// consumers nor a look into the inbox can keep a sender waiting.
const (
	acceptConnections = 8
	adminConnections  = 4
	connectPatience   = 5 * time.Second
)

// consumerConnections is how many the consumers share: a claim for each
// destination and the settlements, which share a transaction.
func consumerConnections(destinations int) int { return min(max(destinations+2, 4), 16) }

// useCommand is what commands open the database for.
const useCommand = "command"

// openPool makes a pool. It connects when it is first used.
func openPool(ctx context.Context, url, pooler, use string, connections int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err // masks the password
	}
	cfg.MaxConns = int32(connections)
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectPatience
	}
	if pooler == "pgbouncer" || use == useCommand {
		// A prepared statement stays behind on a connection that the next transaction
		// does not get, and start-up parameters are refused. A command runs too few
		// statements to prepare any, and often nobody has told it of the pooler.
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if pooler != "pgbouncer" && cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "hooklatch " + use
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// openStore makes a pool and a store on it.
func openStore(ctx context.Context, url, pooler, use string, connections int, cfg inbox.Config) (*inbox.Store, *pgxpool.Pool, error) {
	pool, err := openPool(ctx, url, pooler, use, connections)
	if err != nil {
		return nil, nil, err
	}
	store, err := inbox.New(pool, cfg)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return store, pool, nil
}

// unreachable gives an error of the database exit code 4 and a next step.
func unreachable(ctx context.Context, url string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	try := ""
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "3D000":
		try = "createdb " + databaseName(url)
	case errors.As(err, &pg) && strings.HasPrefix(pg.Code, "28"):
		try = "check user and password of the database URL"
	case pg == nil:
		try = "check that Postgres runs there and that the database URL is right: " + databaseAddress(url)
	}
	return fail(exitUnreachable, fmt.Errorf("database: %w", shortError{err}), try)
}

func databaseName(url string) string {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return "NAME"
	}
	return cfg.Database
}

// databaseAddress is what of the URL may be shown. It is not cut out of the
// text, which may be no URL but host=… password=….
func databaseAddress(url string) string {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return redacted
	}
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))) + "/" + cfg.Database
}
