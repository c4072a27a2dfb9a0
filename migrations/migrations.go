// Package migrations is the schema of hooklatch, and brings a database to it.
//
// The schema is a row of plain .sql files with a step up and a step down each.
// Files that were released are never edited. What ran is remembered in the table
// hooklatch.schema_version; the schema hooklatch itself is made here, before the
// first file, and never dropped.
//
// # Who may run with which schema
//
// A binary needs the newest version that it contains. An older schema is refused
// by [Check]. A newer one is fine as long as its newest migration says so:
//
//	COMMENT ON TABLE hooklatch.schema_version IS 'serves 3';
//
// means that binaries that need version 3 go on working, so that the schema can be
// migrated before the last old binary has stopped. A migration without that line
// serves nobody but its own binary. Its step down puts the old comment back.
//
// # Whose the tables are
//
// From the sixth file on everything belongs to hooklatch_owner, and so both steps of
// each later file begin with SET LOCAL ROLE hooklatch_owner: what is made is his, and
// whoever migrates need only be a member. A new table says which roles may do what, and
// one with a tenant enables and forces row-level security with the policies tenants and
// every_tenant. Tests fail where any of it is missing.
//
// # Two at once
//
// Migrators that start together run one after the other: each holds a lock in a
// transaction of its own on a second connection for the whole run. A session lock
// would not hold behind a transaction pooler. A pool of a single connection does
// not suffice, therefore.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// FS holds the migrations.
//
//go:embed *.sql
var FS embed.FS

const versionTable = "hooklatch.schema_version"

// Result is one migration that ran.
type Result struct {
	Version int64
	Name    string // of the file
	Took    time.Duration
}

// State is one migration, as Status lists it.
type State struct {
	Version   int64
	Name      string    // of the file
	AppliedAt time.Time // zero: not applied
}

// Up applies what is missing, oldest first, each migration in a transaction of its
// own, which is tried again where it and a running server were in each other's way. After an error, those in the result are applied, and Up goes on from there.
func Up(ctx context.Context, url string) ([]Result, error) {
	return run(ctx, "migrate up", url, (*goose.Provider).Up)
}

// Down takes back the migrations above version to, newest first, with all the data
// in them. It is for tests.
func Down(ctx context.Context, url string, to int64) ([]Result, error) {
	return run(ctx, "migrate down", url, func(p *goose.Provider, ctx context.Context) ([]*goose.MigrationResult, error) {
		return p.DownTo(ctx, to)
	})
}

func run(ctx context.Context, operation, url string, step func(*goose.Provider, context.Context) ([]*goose.MigrationResult, error)) ([]Result, error) {
	var done []Result
	err := with(ctx, url, func(db *sql.DB, p *goose.Provider) error {
		unlock, err := lock(ctx, db)
		if err != nil {
			return err
		}
		defer unlock()
		if _, err := db.ExecContext(ctx, schemaSQL); err != nil {
			return err
		}
		for tries := 1; ; tries++ {
			results, err := step(p, ctx)
			var partial *goose.PartialError
			if errors.As(err, &partial) {
				results = partial.Applied
			}
			for _, r := range results {
				done = append(done, Result{Version: r.Source.Version, Name: r.Source.Path, Took: r.Duration})
			}
			if !isDeadlock(err) || tries == maxTries {
				return err
			}
		}
	})
	if err != nil {
		return done, fmt.Errorf("%s: %w", operation, err)
	}
	return done, nil
}

// maxTries bounds how often a step gives way to what runs beside it. Each time takes the
// server's deadlock_timeout, one second unless it was changed.
const maxTries = 10

// isDeadlock says that the step was taken back because it and a transaction of a running
// server waited for each other: one locks whole tables, the other the rows of several.
func isDeadlock(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "40P01"
}

// Status lists every migration of this binary, oldest first. It writes nothing.
func Status(ctx context.Context, url string) ([]State, error) {
	var states []State
	err := with(ctx, url, func(db *sql.DB, p *goose.Provider) error {
		applied, err := appliedAt(ctx, db)
		if err != nil {
			return err
		}
		for _, s := range p.ListSources() {
			states = append(states, State{Version: s.Version, Name: s.Path, AppliedAt: applied[s.Version]})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("migrate status: %w", err)
	}
	return states, nil
}

// Schema and table are looked up first: CREATE IF NOT EXISTS asks for the right to
// create even where there is nothing to do.
const schemaSQL = `DO $$ BEGIN
	IF to_regnamespace('hooklatch') IS NULL THEN CREATE SCHEMA hooklatch; END IF;
END $$`

const existsSQL = `SELECT to_regclass('hooklatch.schema_version') IS NOT NULL`

// goose keeps the time without its zone, which is that of the session.
const appliedSQL = `SELECT version_id, tstamp AT TIME ZONE current_setting('TimeZone') FROM hooklatch.schema_version WHERE is_applied AND version_id > 0`

func appliedAt(ctx context.Context, db *sql.DB) (map[int64]time.Time, error) {
	var exists bool
	if err := db.QueryRowContext(ctx, existsSQL).Scan(&exists); err != nil || !exists {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, appliedSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := map[int64]time.Time{}
	for rows.Next() {
		var version int64
		var at time.Time
		if err := rows.Scan(&version, &at); err != nil {
			return nil, err
		}
		applied[version] = at
	}
	return applied, rows.Err()
}

// with connects to url and hands over goose's view of FS.
func with(ctx context.Context, url string, do func(*sql.DB, *goose.Provider) error) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return err // masks the password
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // prepares nothing, for poolers
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, FS,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	return do(db, p)
}

// Everything that could end the waiting, or the transaction while it idles during a
// long migration, is turned off in this transaction.
const patienceSQL = `SELECT set_config(name, '0', true) FROM pg_settings
	WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')`

const lockSQL = `SELECT pg_advisory_xact_lock(hashtextextended('hooklatch.migrate', 0))`

// lock waits until no other migrator runs.
func lock(ctx context.Context, db *sql.DB) (unlock func(), err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{patienceSQL, lockSQL} {
		if _, err := tx.ExecContext(ctx, sql); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
	}
	return func() { tx.Rollback() }, nil
}
