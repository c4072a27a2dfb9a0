package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"
)

func configCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:        "config",
		Usage:       "check, show and describe the configuration",
		Description: example("Look at a configuration file without starting anything.", "hooklatch config check -c hooklatch.yaml"),
		Subcommands: []*cli.Command{
			{
				Name:  "check",
				Usage: "find what is wrong with a configuration",
				Description: example("Load a configuration as serve does: parse it, fetch its secrets, compile its sources,\n"+
					"check its keys. Every problem is shown with its line. Exit code 3: there are problems.",
					"hooklatch config check -c hooklatch.yaml",
					"hooklatch config check --no-secrets       # in CI, where no secret is"),
				Flags: []cli.Flag{configFlag(), jsonFlag(),
					&cli.BoolFlag{Name: "no-secrets", Usage: "do not fetch secrets and certificates"}},
				Action: func(c *cli.Context) error {
					if _, err := arguments(c); err != nil {
						return err
					}
					return configCheck(c.Context, s, configFile(c), c.Bool("no-secrets"), c.Bool("json"))
				},
			},
			{
				Name:        "show",
				Usage:       "print the configuration with its defaults, secrets masked",
				Description: example("Print what a configuration means once defaults are filled in. No secret is fetched.", "hooklatch config show -c hooklatch.yaml --json"),
				Flags:       []cli.Flag{configFlag(), jsonFlag()},
				Action: func(c *cli.Context) error {
					if _, err := arguments(c); err != nil {
						return err
					}
					return configShow(s, configFile(c), c.Bool("json"))
				},
			},
			{
				Name:  "schema",
				Usage: "print the JSON Schema of the configuration",
				Description: example("Print a JSON Schema, for editors that complete and check YAML. The first line of the\n"+
					"file names it:  # yaml-language-server: $schema=hooklatch.schema.json",
					"hooklatch config schema > hooklatch.schema.json"),
				Flags: []cli.Flag{jsonFlag()},
				Action: func(c *cli.Context) error {
					if _, err := arguments(c); err != nil {
						return err
					}
					return configSchema(s)
				},
			},
		},
	}
}

// configFile is the file that the command line, else the environment names.
func configFile(c *cli.Context) string {
	if file := c.String("config"); file != "" {
		return file
	}
	return defaultConfigFile
}

// checkResult is the JSON of config check.
type checkResult struct {
	V        int       `json:"v"`
	File     string    `json:"file"`
	Valid    bool      `json:"valid"`
	Problems []problem `json:"problems"`
	Warnings []problem `json:"warnings"`
	Notes    []problem `json:"notes"` // what the schemes leave open
}

func configCheck(ctx context.Context, s *stdio, file string, noSecrets, asJSON bool) error {
	c, err := readConfig(file)
	if err == nil && !noSecrets {
		_, err = c.loadSecrets(ctx)
	}
	var warnings, notes []problem
	if c != nil {
		warnings, notes = c.warnings, c.notes
	}
	var found *configProblems
	if asJSON && (err == nil || errors.As(err, &found)) {
		result := checkResult{V: 1, File: file, Valid: err == nil, Problems: []problem{}, Warnings: append([]problem{}, warnings...), Notes: append([]problem{}, notes...)}
		if found != nil {
			result.Problems = found.problems
			err = fail(exitConfig, nil, "")
		}
		return errors.Join(printJSON(s.out, result), err)
	}
	for _, w := range warnings {
		w.Message = "warning: " + w.Message
		s.note("%s", printable(w.text(file), isTerminal(s.err)))
	}
	if err != nil {
		return err
	}
	for _, n := range notes {
		s.note("%s:%d: note: %s", file, n.Line, n.Message)
	}
	keys := 0
	for _, source := range c.Sources {
		keys += len(source.Keys)
	}
	_, err = fmt.Fprintf(s.out, "%s: ok, %s, %s, %s\n", file, counted(len(c.Sources), "source"), counted(keys, "key"), counted(len(c.Destinations), "destination"))
	return err
}

func configShow(s *stdio, file string, asJSON bool) error {
	c, err := readConfig(file)
	if err != nil {
		return err
	}
	text, err := c.masked()
	if err != nil {
		return err
	}
	if asJSON {
		text = append(text, '\n')
	} else if text, err = yaml.JSONToYAML(text); err != nil {
		return err
	}
	_, err = s.out.Write(text)
	return err
}

func configSchema(s *stdio) error {
	schema, err := schemaOfConfig()
	if err != nil {
		return fmt.Errorf("config schema: %w", err)
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return err
	}
	_, err = s.out.Write(append(text, '\n'))
	return err
}
