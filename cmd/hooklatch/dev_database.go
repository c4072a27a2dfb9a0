package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
)

// database finds a Postgres for dev, or starts one, and migrates it.
func (d *devRun) database(ctx context.Context) (stop func(), err error) {
	begun := time.Now()
	stop = func() {}
	if d.o.keep == "" {
		if d.url, err = environmentDatabase(); err != nil {
			return nil, err
		}
	}
	if d.url != "" {
		if err := refuseOthersData(ctx, d.url); err != nil {
			return nil, err
		}
		d.data = "Data stays in the database of DATABASE_URL"
		// Before anything is written there.
		d.events.step(begun, "postgres", "%s, since DATABASE_URL is set", databaseAddress(d.url))
		d.events.warn("the schema hooklatch is created in that database, and its data stays.   unset DATABASE_URL   for a private Postgres")
	} else {
		server, err := devdb.Start(ctx, devdb.Config{Dir: d.o.keep})
		if errors.Is(err, devdb.ErrNoPostgres) {
			return nil, fail(exitUnreachable, err, "one of these, or DATABASE_URL for a Postgres that runs elsewhere")
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			try := ""
			if d.o.keep != "" {
				try = "--keep DIR, a folder that is empty, new, or was kept before"
			}
			return nil, fail(exitUnreachable, err, try)
		}
		stop = func() {
			if err := server.Stop(); err != nil {
				d.events.trouble("stop of Postgres", err)
			}
		}
		d.url = server.URL("postgres")
		what := "throwaway"
		d.data = "Data thrown away (keep it: --keep ./dev-data)"
		if d.o.keep != "" {
			what = "kept in " + d.o.keep
			d.data = "Data kept in " + d.o.keep
		}
		d.events.step(begun, "postgres", "%s from %s, %s, unix socket", server.Binaries().Version, server.Binaries().Dir, what)
	}
	begun = time.Now()
	applied, err := migrations.Up(ctx, d.url)
	if err != nil {
		stop()
		return nil, unreachable(ctx, d.url, err)
	}
	d.events.step(begun, "migrations", "%s", appliedText(len(applied)))
	return stop, nil
}

func appliedText(n int) string {
	if n == 0 {
		return "up to date"
	}
	return fmt.Sprintf("%d applied", n)
}
