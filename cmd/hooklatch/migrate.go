package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/migrations"
)

func migrateCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:        "migrate",
		Usage:       "bring the database to the schema of this binary",
		Description: example("Apply and list the migrations of the schema hooklatch.\n\n"+databaseHelp, "hooklatch migrate up -c hooklatch.yaml"),
		Subcommands: []*cli.Command{
			{
				Name:  "up",
				Usage: "apply what is missing",
				Description: example("Apply the migrations that are missing, each in a transaction of its own. Servers that\n"+
					"run may go on. Two at once wait for one another.\n\n"+databaseHelp,
					"hooklatch migrate up -c hooklatch.yaml"),
				Flags: databaseFlags(),
				Action: func(c *cli.Context) error {
					if _, err := arguments(c); err != nil {
						return err
					}
					return migrateUp(c.Context, s, readWhichDatabase(c), c.Bool("json"))
				},
			},
			{
				Name:  "status",
				Usage: "list the migrations and when they were applied",
				Description: example("List the migrations of this binary. Nothing is written. Exit code 1: some are missing.\n\n"+databaseHelp,
					"hooklatch migrate status --json"),
				Flags: databaseFlags(),
				Action: func(c *cli.Context) error {
					if _, err := arguments(c); err != nil {
						return err
					}
					return migrateStatus(c.Context, s, readWhichDatabase(c), c.Bool("json"))
				},
			},
			{
				Name:  "sql",
				Usage: "print the statements, for who runs them by other means",
				Description: example("Print what migrate up would run, roles and grants and what migrate status reads included,\n"+
					"as one transaction. No database is looked at: the script itself refuses one that is not in\n"+
					"the version that --from names. Whoever runs it must be allowed to create roles, or find them\n"+
					"there, and a schema.",
					"hooklatch migrate sql | psql --set ON_ERROR_STOP=1 \"$DATABASE_URL\"",
					"hooklatch migrate sql --from 5 > migrations/0042_hooklatch.sql"),
				Flags: []cli.Flag{jsonFlag(),
					&cli.Int64Flag{Name: "from", Usage: "`VERSION` that the database is in; 0: it has no hooklatch"}},
				Action: func(c *cli.Context) error {
					if _, err := arguments(c); err != nil {
						return err
					}
					return migrateSQL(s, c.Int64("from"), c.Bool("json"))
				},
			},
		},
	}
}

// migrationLine is the JSON of a migration, one a line.
type migrationLine struct {
	V         int        `json:"v"`
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at,omitempty"`
	Took      float64    `json:"took_ms,omitempty"`
}

func migrateSQL(s *stdio, from int64, asJSON bool) error {
	text, err := migrations.SQL(from)
	if err != nil {
		return usagef("hooklatch migrate status   says in which version a database is", "%w", err)
	}
	if !asJSON {
		_, err = fmt.Fprint(s.out, text)
		return err
	}
	to, err := migrations.Version()
	if err != nil {
		return err
	}
	return printJSON(s.out, struct {
		V    int    `json:"v"`
		From int64  `json:"from"`
		To   int64  `json:"to"`
		SQL  string `json:"sql"`
	}{1, from, to, text})
}

func migrateUp(ctx context.Context, s *stdio, which whichDatabase, asJSON bool) error {
	url, _, err := which.url(ctx)
	if err != nil {
		return err
	}
	done, err := migrations.Up(ctx, url)
	for _, m := range done {
		took := float64(m.Took.Microseconds()) / 1000
		var printErr error
		if asJSON {
			printErr = printJSON(s.out, migrationLine{V: 1, Version: m.Version, Name: m.Name, Applied: true, Took: took})
		} else {
			_, printErr = fmt.Fprintf(s.out, "applied %s in %.0f ms\n", m.Name, took)
		}
		if printErr != nil {
			return printErr
		}
	}
	if err != nil && len(done) > 0 {
		return fail(exitPartly, fmt.Errorf("database: %w", err), "hooklatch migrate up   goes on from here")
	}
	if err != nil {
		return unreachable(ctx, url, err)
	}
	if len(done) == 0 && !asJSON {
		_, err = fmt.Fprintln(s.out, "nothing to do: the schema is up to date")
	}
	return err
}

func migrateStatus(ctx context.Context, s *stdio, which whichDatabase, asJSON bool) error {
	url, _, err := which.url(ctx)
	if err != nil {
		return err
	}
	states, err := migrations.Status(ctx, url)
	if err != nil {
		return unreachable(ctx, url, err)
	}
	missing := 0
	var rows [][]string
	for _, m := range states {
		line := migrationLine{V: 1, Version: m.Version, Name: m.Name, Applied: !m.AppliedAt.IsZero()}
		applied := "missing"
		if line.Applied {
			at := m.AppliedAt.UTC()
			line.AppliedAt = &at
			applied = at.Format(time.RFC3339)
		} else {
			missing++
		}
		if asJSON {
			if err := printJSON(s.out, line); err != nil {
				return err
			}
		}
		rows = append(rows, []string{fmt.Sprint(m.Version), m.Name, applied})
	}
	if !asJSON {
		s.printTable([]string{"version", "file", "applied"}, rows)
	}
	if missing > 0 {
		s.note("%s missing.   hooklatch migrate up", counted(missing, "migration"))
		return answerNo()
	}
	return nil
}
