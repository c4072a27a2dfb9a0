package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/migrations"
)

// finding is what a check says, of a server's start and of doctor alike.
type finding struct {
	check string // its name
	level level
	what  string
	fix   string // empty: nothing is to be done, or what says it

	// durability: a server may not run so; a database that is thrown away may.
	durability bool
}

// level is how much a finding matters.
type level int

const (
	wrong    level = iota // a server does not start, or does not do its work
	doubtful              // it works, and a person should know
	fine
)

// startupErrors are the findings, one a line.
type startupErrors []finding

func (e startupErrors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = "database: " + f.text()
	}
	return strings.Join(lines, "\n")
}

func (f finding) text() string {
	if f.fix == "" {
		return f.what
	}
	return f.what + " (" + f.fix + ")"
}

const (
	oldestServer   = 14
	clockWarning   = 5 * time.Second
	clockTolerance = 30 * time.Second
)

// checkedDatabase is what the checks of a database look at.
type checkedDatabase struct {
	url, pooler string
	pool        *pgxpool.Pool
	store       *inbox.Store
}

// databaseCheck is one line of doctor, or several where there is something to say.
type databaseCheck func(context.Context, *checkedDatabase) ([]finding, error)

// The rules of a start: first those of the server, then, in a schema that fits, those
// of what is in it. Roles come before what has to be read with them.
func serverChecks() []databaseCheck {
	return []databaseCheck{checkPooler, checkServer, checkDurability}
}

func schemaChecks() []databaseCheck {
	return []databaseCheck{checkTables, checkRowSecurity, checkRoles, checkClock}
}

// prepareDatabase brings the database to where a server can run on it, or says
// in one line each why not. A database that may be thrown away gets warnings in
// place of failures of durability.
func prepareDatabase(ctx context.Context, l *slog.Logger, db *checkedDatabase, migrate string, throwaway bool) error {
	if err := db.fits(ctx, l, serverChecks(), throwaway); err != nil {
		return err
	}
	if err := prepareSchema(ctx, l, db.pool, db.url, migrate); err != nil {
		return err
	}
	return db.fits(ctx, l, schemaChecks(), throwaway)
}

// fits runs checks, logs what is doubtful and fails with what is wrong.
func (db *checkedDatabase) fits(ctx context.Context, l *slog.Logger, checks []databaseCheck, throwaway bool) error {
	var bad startupErrors
	for _, check := range checks {
		found, err := check(ctx, db)
		if err != nil && len(bad) > 0 {
			break // what was found before may be why
		}
		if err != nil {
			return unreachable(ctx, db.url, err)
		}
		for _, f := range found {
			switch {
			case f.level == doubtful && !throwaway, f.level == wrong && f.durability && throwaway:
				l.Warn("database: " + f.text())
			case f.level == wrong:
				bad = append(bad, f)
			}
		}
	}
	if len(bad) > 0 {
		return fail(exitUnreachable, bad, "")
	}
	return nil
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

// warnStranded says loudly what no consumer of this configuration will ever claim.
func warnStranded(ctx context.Context, l *slog.Logger, store *inbox.Store, c *config) error {
	found, err := checkStranded(ctx, store, c)
	for _, f := range found {
		if f.level != fine {
			l.Error(f.text())
		}
	}
	return err
}

// checkStranded looks for forwards of tenants that no source of a destination has.
func checkStranded(ctx context.Context, store *inbox.Store, c *config) ([]finding, error) {
	const check = "tenants"
	var found []finding
	for _, name := range sortedKeys(c.Destinations) {
		stranded, err := store.Stranded(ctx, name, c.tenantsOf(name))
		if err != nil {
			return nil, err
		}
		for _, b := range stranded {
			found = append(found, finding{check: check, what: fmt.Sprintf("%s of tenant %s wait for destination %s since %s, and no source of that tenant forwards there: nobody will send them",
				counted(b.Forwards, "forward"), b.Tenant, name, b.Oldest.UTC().Format(time.RFC3339)),
				fix: "give the tenant a source that forwards to " + name + " again"})
		}
	}
	if len(found) == 0 {
		found = append(found, finding{check: check, level: fine, what: "every forward that waits belongs to a tenant whose sources forward there"})
	}
	return found, nil
}

func sortedKeys[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
