package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/migrations"
)

func doctorCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check the configuration, the database, the keys and the destinations",
		Description: example("Look at everything that a server needs, one line a check: ✓ fine, ! worth a look, ✗ wrong,\n"+
			"with what mends it. The rules of a start are among them. Nothing is changed, and nothing is\n"+
			"handed to a destination: it is connected to and asked for the head of its root.\n"+
			"Without a configuration the database alone is looked at.\n"+
			"Exit code 1: something is wrong. 4: the database cannot be reached.\n\n"+databaseHelp,
			"hooklatch doctor -c hooklatch.yaml",
			"hooklatch doctor --json"),
		Flags: databaseFlags(),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			d := &doctor{s: s, asJSON: c.Bool("json")}
			return d.run(c.Context, readWhichDatabase(c))
		},
	}
}

// doctor prints what checks find, as they find it.
type doctor struct {
	s      *stdio
	asJSON bool

	all         []finding
	unreachable bool // the database
}

// doctorLine is the JSON of a check.
type doctorLine struct {
	Check  string `json:"check"`
	Level  string `json:"level"` // ok, warning, error
	What   string `json:"what"`
	Fix    string `json:"fix,omitempty"`
	sign   string
	colour string
}

func (f finding) line() doctorLine {
	l := doctorLine{Check: f.check, What: oneLine(f.what), Fix: f.fix}
	switch f.level {
	case fine:
		l.Level, l.sign, l.colour = "ok", "✓", colourGreen
	case doubtful:
		l.Level, l.sign, l.colour = "warning", "!", colourYellow
	default:
		l.Level, l.sign, l.colour = "error", "✗", colourRed
	}
	return l
}

func (d *doctor) say(found ...finding) {
	d.all = append(d.all, found...)
	if d.asJSON {
		return
	}
	terminal := isTerminal(d.s.out)
	for _, f := range found {
		l := f.line()
		text := cell(l.What, terminal)
		if l.Fix != "" {
			text += "   fix: " + cell(l.Fix, terminal)
		}
		fmt.Fprintf(d.s.out, "%s %-13s %s\n", paint(d.s, d.s.out, l.colour, l.sign), l.Check, text)
	}
}

func (d *doctor) run(ctx context.Context, which whichDatabase) error {
	cfg := d.configuration(ctx, which)
	if cfg != nil {
		which.config = cfg.file // also where DATABASE_URL names another one
	}
	if ctx.Err() == nil {
		d.database(ctx, which, cfg)
	}
	if cfg != nil && ctx.Err() == nil {
		d.say(checkDestinations(ctx, cfg)...)
		d.say(checkUpstream(ctx, cfg)...)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.conclude()
}

// configuration checks what of the configuration can be checked without the database.
// nil: there is none that can be used.
func (d *doctor) configuration(ctx context.Context, which whichDatabase) *config {
	const check = "configuration"
	file := which.config
	if file == "" {
		file = defaultConfigFile
		if _, err := os.Stat(file); err != nil {
			d.say(finding{check: check, level: doubtful, what: "none was named, and there is no " + defaultConfigFile + " here: only the database is looked at", fix: "hooklatch doctor -c FILE"})
			return nil
		}
	}
	cfg, err := readConfig(file)
	if err != nil {
		d.say(finding{check: check, what: firstLine(err), fix: "hooklatch config check -c " + shellQuote(file) + "   points at each line"})
		return nil
	}
	d.say(finding{check: check, level: fine, what: fmt.Sprintf("%s: %s, %s", file, counted(len(cfg.Sources), "source"), counted(len(cfg.Destinations), "destination"))})
	for _, w := range cfg.warnings {
		d.say(finding{check: check, level: doubtful, what: fmt.Sprintf("%s:%d: %s", file, w.Line, w.Message)})
	}
	d.say(checkRetention(cfg))
	d.say(checkKeys(ctx, cfg)...)
	d.say(checkCertificates(cfg)...)
	return cfg
}

// firstLine is an error without the excerpts of what it found.
func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// database runs the rules of a start, and then looks at what a server that runs may
// suffer from.
func (d *doctor) database(ctx context.Context, which whichDatabase, cfg *config) {
	const check = "database"
	url, pooler, err := which.url(ctx)
	if err != nil {
		d.fail(check, err)
		return
	}
	d.say(checkTransport(url))
	store, pool, err := openStore(ctx, url, pooler, useCommand, adminConnections, inbox.Config{})
	if err != nil {
		d.fail(check, err)
		return
	}
	defer pool.Close()
	db := &checkedDatabase{url: url, pooler: pooler, pool: pool, store: store}
	if !d.check(ctx, db, append([]databaseCheck{checkLatency}, serverChecks()...)) {
		return
	}
	misfit := migrations.Check(ctx, pool)
	var version *migrations.VersionError
	switch {
	case errors.As(misfit, &version):
		d.say(finding{check: "schema", what: misfit.Error()})
		return
	case misfit != nil:
		d.fail(check, unreachable(ctx, url, misfit))
		return
	}
	newest, err := migrations.Version()
	if err != nil {
		d.fail(check, err)
		return
	}
	d.say(finding{check: "schema", level: fine, what: fmt.Sprintf("it serves this binary, which needs version %d", newest)})
	if !d.check(ctx, db, append(schemaChecks(), checkTransactions, checkDisk)) {
		return
	}
	waiting, err := checkWaiting(ctx, store, cfg)
	d.say(waiting...)
	if err != nil {
		d.fail("waiting", storeFailure(ctx, url, err))
	}
}

// check runs checks of a database until one cannot be run.
func (d *doctor) check(ctx context.Context, db *checkedDatabase, checks []databaseCheck) bool {
	for _, check := range checks {
		found, err := check(ctx, db)
		d.say(found...)
		if err != nil {
			d.fail("database", unreachable(ctx, db.url, err))
			return false
		}
	}
	return true
}

// fail says why checks could not be made.
func (d *doctor) fail(check string, err error) {
	f := finding{check: check, what: strings.TrimPrefix(firstLine(err), check+": ")}
	var known *failure
	if errors.As(err, &known) {
		f.fix = known.try
		d.unreachable = d.unreachable || known.code == exitUnreachable
	}
	d.say(f)
}

func (d *doctor) conclude() error {
	bad, lines := 0, []doctorLine{}
	for _, f := range d.all {
		if f.level == wrong {
			bad++
		}
		lines = append(lines, f.line())
	}
	if d.asJSON {
		err := printJSON(d.s.out, struct {
			V      int          `json:"v"`
			OK     bool         `json:"ok"`
			Checks []doctorLine `json:"checks"`
		}{1, bad == 0, lines})
		if err != nil {
			return err
		}
	}
	switch {
	case d.unreachable:
		return fail(exitUnreachable, nil, "")
	case bad > 0:
		return answerNo()
	}
	return nil
}
