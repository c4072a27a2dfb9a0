package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/migrations"
)

// finding is one start-up check that failed.
type finding struct {
	what string
	// durability: a server may not run so; a database that is thrown away may.
	durability bool
}

// startupErrors are the findings, one a line.
type startupErrors []finding

func (e startupErrors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = "database: " + f.what
	}
	return strings.Join(lines, "\n")
}

const (
	oldestServer   = 14
	clockWarning   = 5 * time.Second
	clockTolerance = 30 * time.Second
)

const serverSQL = `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
	pg_is_in_recovery(), current_setting('transaction_read_only')::boolean,
	current_setting('fsync')::boolean, current_setting('full_page_writes')::boolean`

// commitSQL is what the accept transaction begins with, as far as durability goes.
const commitSQL = `SELECT set_config('synchronous_commit', 'on', true)`

const committedSQL = `SELECT current_setting('synchronous_commit')`

// checkServer finds what of the server would break a promise.
func checkServer(ctx context.Context, pool *pgxpool.Pool) ([]finding, error) {
	var version int
	var encoding, commit string
	var recovery, readOnly, fsync, fullPages bool
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, serverSQL).Scan(&version, &encoding, &recovery, &readOnly, &fsync, &fullPages); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, commitSQL); err != nil {
			return err
		}
		return tx.QueryRow(ctx, committedSQL).Scan(&commit)
	})
	if err != nil {
		return nil, err
	}
	var found []finding
	add := func(durability bool, format string, args ...any) {
		found = append(found, finding{fmt.Sprintf(format, args...), durability})
	}
	if version/10000 < oldestServer {
		add(false, "Postgres %d is too old: %d or newer is needed", version/10000, oldestServer)
	}
	if encoding != "UTF8" {
		add(false, "its encoding is %s: UTF8 is needed (createdb --encoding UTF8 --template template0)", encoding)
	}
	if recovery {
		add(false, "it is a standby (in recovery): use the primary")
	} else if readOnly {
		add(false, "it is read-only: default_transaction_read_only is on")
	}
	if !fsync {
		add(true, "fsync is off: a crash of the machine would lose deliveries that were answered 202")
	}
	if !fullPages {
		add(true, "full_page_writes is off: a crash of the machine could damage the tables")
	}
	if commit != "on" && commit != "remote_apply" {
		add(true, "synchronous_commit reads %s although it was set to on: a 202 would come before the commit is safe", commit)
	}
	return found, nil
}

const unloggedSQL = `SELECT coalesce(string_agg(c.relname, ', ' ORDER BY c.relname), '') FROM pg_class c
	WHERE c.relnamespace = 'hooklatch'::regnamespace AND c.relkind IN ('r', 'p') AND c.relpersistence <> 'p'`

const identitySQL = `SELECT EXISTS (SELECT FROM pg_index i
	WHERE i.indrelid = 'hooklatch.inbox'::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 3
	AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
		WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])) = '{delivery_id,source,tenant}')`

// checkTables finds what of a schema in the right version has been changed by
// hand.
func checkTables(ctx context.Context, pool *pgxpool.Pool) ([]finding, error) {
	var unlogged string
	var identity bool
	if err := pool.QueryRow(ctx, unloggedSQL).Scan(&unlogged); err != nil {
		return nil, err
	}
	if err := pool.QueryRow(ctx, identitySQL).Scan(&identity); err != nil {
		return nil, err
	}
	var found []finding
	if unlogged != "" {
		found = append(found, finding{"unlogged tables are emptied by a crash: " + unlogged + " (ALTER TABLE … SET LOGGED)", true})
	}
	if !identity {
		found = append(found, finding{"hooklatch.inbox has no unique key over tenant, source and delivery_id: deliveries would be stored twice", false})
	}
	return found, nil
}

// prepareDatabase brings the database to where a server can run on it, or says
// in one line each why not. A database that may be thrown away gets warnings in
// place of failures of durability.
func prepareDatabase(ctx context.Context, l *slog.Logger, pool *pgxpool.Pool, store *inbox.Store, url, migrate string, throwaway bool) error {
	found, err := checkServer(ctx, pool)
	if err != nil {
		return unreachable(ctx, url, err)
	}
	found = warnOf(l, found, throwaway)
	if len(found) > 0 {
		return fail(exitUnreachable, startupErrors(found), "")
	}
	if err := prepareSchema(ctx, l, pool, url, migrate); err != nil {
		return err
	}
	if found, err = checkTables(ctx, pool); err != nil {
		return unreachable(ctx, url, err)
	}
	if found = warnOf(l, found, throwaway); len(found) > 0 {
		return fail(exitUnreachable, startupErrors(found), "")
	}
	offset, err := store.Ready(ctx)
	if err != nil {
		return unreachable(ctx, url, err)
	}
	if offset.Abs() > clockWarning {
		l.Warn("the clocks of this machine and of the database differ", "database_ahead_s", offset.Seconds(),
			"not_ready_beyond_s", clockTolerance.Seconds())
	}
	return nil
}

// warnOf logs what may be overlooked and returns the rest.
func warnOf(l *slog.Logger, found []finding, throwaway bool) []finding {
	var rest []finding
	for _, f := range found {
		if throwaway && f.durability {
			l.Warn("database: " + f.what)
		} else {
			rest = append(rest, f)
		}
	}
	return rest
}

func prepareSchema(ctx context.Context, l *slog.Logger, pool *pgxpool.Pool, url, migrate string) error {
	if migrate == "auto" {
		done, err := migrations.Up(ctx, url)
		for _, m := range done {
			l.Info("migrated", "version", m.Version, "file", m.Name, "ms", m.Took.Milliseconds())
		}
		if err != nil {
			return unreachable(ctx, url, err)
		}
	}
	err := migrations.Check(ctx, pool)
	var misfit *migrations.VersionError
	if errors.As(err, &misfit) {
		try := ""
		if misfit.Schema < misfit.Binary {
			try = "database.migrate: auto   migrates at each start"
		}
		return fail(exitUnreachable, fmt.Errorf("database: %w", err), try)
	}
	if err != nil {
		return unreachable(ctx, url, err)
	}
	return nil
}
