package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

// whichDatabase is where an inspecting command looks: directly into the database,
// so that it works while the server is down.
type whichDatabase struct {
	config string // empty: none was named
}

// databaseFlags belong to every command that looks into the database.
func databaseFlags() []cli.Flag { return []cli.Flag{configFlag(), jsonFlag()} }

func readWhichDatabase(c *cli.Context) whichDatabase {
	return whichDatabase{config: c.String("config")}
}

// databaseHelp says in every help page where the database comes from.
const databaseHelp = "The database is that of -c FILE, else of DATABASE_URL or the PG variables, else of\n" +
	"hooklatch.yaml in this folder, else that of the running dev."

// url finds the URL of the database and its pooler.
func (w whichDatabase) url(ctx context.Context) (url, pooler string, err error) {
	if w.config != "" {
		return configuredDatabase(ctx, w.config)
	}
	if url, err := environmentDatabase(); url != "" || err != nil {
		return url, "none", err
	}
	for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"} {
		if os.Getenv(name) != "" {
			return "", "none", nil // pgx reads them
		}
	}
	if _, err := os.Stat(defaultConfigFile); err == nil {
		return configuredDatabase(ctx, defaultConfigFile)
	}
	if dev, err := readDevState(); err == nil && dev.Database != "" {
		return dev.Database, "none", nil
	}
	return "", "", fail(exitUnreachable, errNoDev, programName()+" dev   in another terminal, or -c FILE, or set DATABASE_URL")
}

// environmentDatabase is DATABASE_URL; empty: it is not set. What is no URL is not
// shown: pgx masks a password only where it can tell that it is one.
func environmentDatabase() (url string, err error) {
	url = os.Getenv("DATABASE_URL")
	if url == "" {
		return "", nil
	}
	if _, err := pgxpool.ParseConfig(url); err != nil {
		return "", fail(exitConfig, errors.New("DATABASE_URL holds no connection URL"),
			"DATABASE_URL=postgres://user:password@host/database, what is special in the password written as %XX")
	}
	return url, nil
}

// configuredDatabase reads the URL alone: to look at deliveries takes no signing key.
func configuredDatabase(ctx context.Context, file string) (url, pooler string, err error) {
	c, err := readConfig(file)
	if err != nil {
		return "", "", err
	}
	l := newLoader(c)
	url = l.databaseURL(ctx)
	if len(l.problems) > 0 {
		return "", "", l.found()
	}
	return url, c.Database.Pooler, nil
}

// kept says how long everything is kept: what the configuration says, also where the
// database is found without it, else what is said where it says nothing.
func (w whichDatabase) kept() *config {
	if c, err := readConfig(cmp.Or(w.config, defaultConfigFile)); err == nil {
		return c
	}
	c := &config{}
	c.fillRetention()
	return c
}

// retention is what is old by now: as the configuration says, and where there is none,
// as it is where it says nothing.
func (w whichDatabase) retention(now time.Time) (inbox.Retention, error) {
	file := w.config
	if _, err := os.Stat(defaultConfigFile); file == "" && err == nil {
		file = defaultConfigFile
	}
	c := &config{}
	if file == "" {
		c.fillRetention()
		return c.retention(now), nil
	}
	c, err := readConfig(file)
	if err != nil {
		return inbox.Retention{}, err
	}
	return c.retention(now), nil
}

// withStore opens the inbox, does something with it and closes it. What do
// returns of the store's errors gets its exit code.
func (w whichDatabase) withStore(ctx context.Context, do func(*inbox.Store) error) error {
	url, pooler, err := w.url(ctx)
	if err != nil {
		return err
	}
	store, pool, err := openStore(ctx, url, pooler, useCommand, adminConnections, inbox.Config{})
	if err != nil {
		return fail(exitConfig, fmt.Errorf("database: %w", err), "check PGHOST, PGPORT and the other PG variables, or set DATABASE_URL")
	}
	defer pool.Close()
	return storeFailure(ctx, url, do(store))
}

// storeFailure sorts an error of the store by what can be done about it.
func storeFailure(ctx context.Context, url string, err error) error {
	var known *failure
	var pg *pgconn.PgError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000"):
		return fail(exitUnreachable, errors.New("database: it has no inbox yet"), "hooklatch migrate up")
	case errors.Is(err, inbox.ErrUnavailable), errors.Is(err, inbox.ErrInternal), errors.Is(err, inbox.ErrBusy):
		return unreachable(ctx, url, err)
	}
	return err
}
