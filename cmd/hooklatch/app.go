package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// stdio is what a command reads and writes.
type stdio struct {
	in  io.Reader
	out io.Writer // results
	err io.Writer // messages

	inRead  bool // in was read to its end
	quiet   bool // --quiet: no notes
	noColor bool // --no-color
}

// note writes a message for people, one line.
func (s *stdio) note(format string, args ...any) {
	if !s.quiet {
		fmt.Fprintln(s.err, printable(fmt.Sprintf(format, args...), isTerminal(s.err)))
	}
}

// isTerminal says whether a person is at the other end of w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width is how many characters of a line a person sees; 0: nobody looks.
func (s *stdio) width() int {
	f, ok := s.out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// colour says whether w may be coloured.
func (s *stdio) colour(w io.Writer) bool {
	switch {
	case s.noColor || os.Getenv("NO_COLOR") != "":
		return false
	case os.Getenv("FORCE_COLOR") != "":
		return true
	}
	return isTerminal(w) && os.Getenv("TERM") != "dumb"
}

// commands lists the commands in the order of the help page.
func commands(s *stdio) []*cli.Command {
	return []*cli.Command{
		serveCommand(s),
		devCommand(s),
		sendCommand(s),
		signCommand(s),
		verifyCommand(s),
		explainCommand(s),
		schemesCommand(s),
		eventsCommand(s),
		traceCommand(s),
		refusalsCommand(s),
		resourcesCommand(s),
		destinationsCommand(s),
		replayCommand(s),
		deadCommand(s),
		auditCommand(s),
		pruneCommand(s),
		keysCommand(s),
		configCommand(s),
		migrateCommand(s),
		doctorCommand(s),
		keygenCommand(s),
		completionCommand(s),
		versionCommand(s),
	}
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, s *stdio, args []string) int {
	if len(args) > 0 && args[0] == completeCommand {
		return complete(s, args[1:])
	}
	app := newApp(s)
	args, err := arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, args)
	}
	return report(ctx, s, err)
}

func newApp(s *stdio) *cli.App {
	app := &cli.App{
		Name:  "hooklatch",
		Usage: "receive webhooks: verified, committed once, handed to the app until it has taken them",
		Description: example("See a delivery pass, with nothing set up:",
			"hooklatch dev",
			"hooklatch send"),
		Reader: s.in, Writer: s.out, ErrWriter: s.err,
		Commands: commands(s),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print results and errors only"},
			&cli.BoolFlag{Name: "no-color", Usage: "print without colour"},
			&cli.BoolFlag{Name: "version", Usage: "print the version"},
		},
		Before: func(c *cli.Context) error {
			s.quiet, s.noColor = c.Bool("quiet"), c.Bool("no-color")
			return nil
		},
		Action: func(c *cli.Context) error {
			if c.Bool("version") {
				return version(s, false)
			}
			return cli.ShowAppHelp(c)
		},
		HideVersion:     true,
		HideHelpCommand: true,
		Suggest:         true,
		// A comma in a header is part of its value.
		DisableSliceFlagSeparator: true,
		CommandNotFound:           func(*cli.Context, string) {},
		OnUsageError:              usageError,
		// Errors come back to run, which alone decides the exit code.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	prepare(app.Commands)
	return app
}

// prepare sets what cli does not hand down to subcommands.
func prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.HideHelpCommand = true
		c.OnUsageError = usageError
		if len(c.Subcommands) > 0 && c.Action == nil {
			c.Action = missingSubcommand
		}
		prepare(c.Subcommands)
	}
}

// unreadValue is how cli says that a value does not fit its flag.
var unreadValue = regexp.MustCompile(`^invalid (boolean )?value (".*") for (?:flag )?-([a-z-]+): `)

func usageError(c *cli.Context, err error, _ bool) error {
	if m := unreadValue.FindStringSubmatch(err.Error()); m != nil {
		wanted := "is no whole number"
		if m[1] != "" {
			wanted = "is neither true nor false"
		}
		err = fmt.Errorf("%s: %s %s", dashed(m[3]), m[2], wanted)
	}
	return usagef(c.Command.HelpName+" --help", "%s: %w", shortName(c), err)
}

// shortName is the command without the program's name, which every message
// begins with.
func shortName(c *cli.Context) string {
	return strings.TrimPrefix(c.Command.HelpName, c.App.Name+" ")
}

func missingSubcommand(c *cli.Context) error {
	var names []string
	for _, sub := range c.Command.Subcommands {
		names = append(names, sub.Name)
	}
	return usagef(c.Command.HelpName+" --help", "%s: which of %s?", shortName(c), strings.Join(names, ", "))
}

// arguments checks that the command was given as many arguments as it has names
// for, and returns them. An empty one comes of a shell variable that is not set, and
// must not be read as "any".
func arguments(c *cli.Context, names ...string) ([]string, error) {
	got := c.Args().Slice()
	if len(got) < len(names) {
		return nil, usagef(c.Command.HelpName+" --help", "%s: %s is missing", shortName(c), names[len(got)])
	}
	if len(got) > len(names) {
		return nil, usagef(c.Command.HelpName+" --help", "%s: argument %q is one too many", shortName(c), got[len(names)])
	}
	if i := slices.Index(got, ""); i >= 0 {
		return nil, usagef(c.Command.HelpName+" --help", "%s: %s is empty", shortName(c), names[i])
	}
	return got, nil
}

// example formats the end of a command's description.
func example(what string, lines ...string) string {
	return what + "\n\nExample:\n   " + strings.Join(lines, "\n   ")
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON"}
}

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Aliases: []string{"c"}, EnvVars: []string{"HOOKLATCH_CONFIG"}, TakesFile: true,
		Usage: "configuration `FILE`"}
}
