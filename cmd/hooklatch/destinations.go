package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func destinationsCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "destinations",
		Usage: "look at destinations, stop and start them, take one away",
		Description: example("Say what waits where and why, and decide about a destination as a whole. All of it works\n"+
			"while servers run, and while they do not. Who decided what and why stands in the history\n"+
			"of the destination, which \"destinations show\" prints.\n\n"+databaseHelp,
			"hooklatch destinations list"),
		Subcommands: []*cli.Command{destinationsListCommand(s), destinationsShowCommand(s), destinationsPauseCommand(s), destinationsResumeCommand(s),
			destinationsProbeCommand(s), destinationsRemoveCommand(s)},
	}
}

func destinationsPauseCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "pause",
		Usage:     "hand nothing more to a destination",
		ArgsUsage: "NAME",
		Description: example("Keep everything that waits for a destination, and all that comes for it, until \"destinations\n"+
			"resume\". Senders get their 202 as before. Attempts under way end by themselves. The time in\n"+
			"which a forward is tried goes on: retry.deadline of the destination counts through a pause.\n"+
			"Exit code 1: it is paused already, or there is none of that name.\n\n"+databaseHelp,
			"hooklatch destinations pause shop --reason deploy"),
		Flags: append(databaseFlags(), actFlags()...),
		Action: func(c *cli.Context) error {
			return decideDestination(c, s, "pause", "paused", "would be paused: %s and %s wait", (*inbox.Store).PauseDestination)
		},
	}
}

func destinationsResumeCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "resume",
		Usage:     "end a pause",
		ArgsUsage: "NAME",
		Description: example("Let a paused destination go on: what is due is handed on within a second, at the\n"+
			"concurrency and rate of the configuration. Exit code 1: it is not paused, or there is none\n"+
			"of that name.\n\n"+databaseHelp,
			"hooklatch destinations resume shop --reason deployed"),
		Flags: append(databaseFlags(), actFlags()...),
		Action: func(c *cli.Context) error {
			return decideDestination(c, s, "resume", "resumed", "would be resumed: %s and %s wait", (*inbox.Store).ResumeDestination)
		},
	}
}

// decided is the JSON of a decision about a destination.
type decided struct {
	V           int    `json:"v"`
	DryRun      bool   `json:"dry_run,omitempty"`
	Destination string `json:"destination"`
	Did         string `json:"did"` // paused, resumed
	Waiting     int    `json:"waiting"`
	Blocked     int    `json:"blocked"`
}

// decideDestination pauses or resumes. Neither asks for confirmation: the other one undoes it.
func decideDestination(c *cli.Context, s *stdio, what, did, would string, do func(*inbox.Store, context.Context, string, inbox.Act) error) error {
	args, err := arguments(c, "NAME")
	if err != nil {
		return err
	}
	command, name := "destinations "+what, args[0]
	dryRun, asJSON := c.Bool("dry-run"), c.Bool("json")
	var reason string
	if !dryRun {
		if reason, err = s.reason(c.Context, command, c.String("reason")); err != nil {
			return err
		}
	}
	return readWhichDatabase(c).withStore(c.Context, func(store *inbox.Store) error {
		d, all, err := findDestination(c.Context, store, name)
		if err != nil {
			return err
		}
		if d == nil {
			return unknownDestination(command, name, all)
		}
		if paused := d.Pause != nil; paused == (what == "pause") {
			return pausedAlready(command, d)
		}
		if !dryRun {
			err := do(store, c.Context, name, inbox.Act{Actor: actor(), Reason: reason})
			if errors.Is(err, inbox.ErrState) {
				return fail(exitNo, fmt.Errorf("%s: somebody else did it at this moment", command), programName()+" destinations show "+shellQuote(name))
			}
			if err != nil {
				return err
			}
		}
		stats, err := statsOf(c.Context, store, name)
		if err != nil {
			return err
		}
		line := decided{V: 1, DryRun: dryRun, Destination: name, Did: did, Blocked: stats.Open[inbox.Blocked],
			Waiting: stats.Open[inbox.Pending] + stats.Open[inbox.RetryWait] + stats.Open[inbox.Held]}
		if asJSON {
			return printJSON(s.out, line)
		}
		text := did + ": %s and %s wait"
		if dryRun {
			text = would
		}
		_, err = fmt.Fprintf(s.out, "%s "+text+"\n", name, counted(line.Waiting, "forward"), counted(line.Blocked, "dead letter"))
		return err
	})
}

func pausedAlready(command string, d *inbox.Destination) error {
	next := programName() + " destinations show " + shellQuote(d.Name)
	if d.Pause == nil {
		return fail(exitNo, fmt.Errorf("%s: %s is not paused", command, d.Name), next)
	}
	return fail(exitNo, fmt.Errorf("%s: %s is %s already, and stays so", command, d.Name, describePause(d.Pause).text()), next)
}

// findDestination also returns all of them, for those that got the name wrong.
func findDestination(ctx context.Context, store *inbox.Store, name string) (found *inbox.Destination, all []inbox.Destination, err error) {
	all, err = store.Destinations(ctx)
	for i := range all {
		if all[i].Name == name {
			return &all[i], all, err
		}
	}
	return nil, all, err
}

func unknownDestination(command, name string, all []inbox.Destination) error {
	var names []string
	for _, d := range all {
		if d.RemovedAt.IsZero() {
			names = append(names, d.Name)
		}
	}
	known := "no server has run with a destination yet"
	if len(names) > 0 {
		known = "there is " + strings.Join(names, ", ")
	}
	return fail(exitNo, fmt.Errorf("%s: no destination %q: %s", command, name, known), programName()+" destinations list")
}

// statsOf counts what is open at one destination.
func statsOf(ctx context.Context, store *inbox.Store, name string) (inbox.DestinationStats, error) {
	all, err := store.Stats(ctx)
	for _, d := range all {
		if d.Destination == name {
			return d, err
		}
	}
	return inbox.DestinationStats{Destination: name}, err
}

func destinationsProbeCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "probe",
		Usage:     "find out whether a destination answers, and have it tried now",
		ArgsUsage: "NAME",
		Description: example("Connect to the destination as forwards do and ask for the head of its root, which hands\n"+
			"nothing over. Where its breaker is open, running servers are asked to try one forward now\n"+
			"in place of at the next probe; they look every few seconds. The address is that of the\n"+
			"configuration. Exit code 1: it does not answer.",
			"hooklatch destinations probe shop"),
		Flags: databaseFlags(),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "NAME")
			if err != nil {
				return err
			}
			return probeDestination(c.Context, s, configFile(c), args[0], c.Bool("json"))
		},
	}
}

// probed is the JSON of a probe.
type probed struct {
	V           int    `json:"v"`
	Destination string `json:"destination"`
	Answers     bool   `json:"answers"`
	Found       string `json:"found"`
	Fix         string `json:"fix,omitempty"`
	Breaker     string `json:"breaker"`
	Asked       bool   `json:"asked"` // running servers, to try one forward now
}

func probeDestination(ctx context.Context, s *stdio, file, name string, asJSON bool) error {
	const command = "destinations probe"
	cfg, err := readConfig(file)
	if err != nil {
		return err
	}
	if cfg.Destinations[name] == nil {
		return usagef(programName()+" destinations list", "%s: unknown destination %q: %s", command, name, configured(sortedKeys(cfg.Destinations)))
	}
	found := checkDestination(ctx, cfg, name)
	return whichDatabase{config: file}.withStore(ctx, func(store *inbox.Store) error {
		d, _, err := findDestination(ctx, store, name)
		if err != nil {
			return err
		}
		line := probed{V: 1, Destination: name, Answers: found.level != wrong, Found: strings.TrimPrefix(oneLine(found.what), name+": "), Fix: found.fix,
			Breaker: string(inbox.BreakerClosed)}
		if d != nil {
			line.Breaker = string(d.Breaker.State)
			if err := store.AskProbe(ctx, name, actor()); err != nil {
				return err
			}
			line.Asked = true
		}
		if err := line.print(s, asJSON, d); err != nil {
			return err
		}
		if !line.Answers {
			return answerNo()
		}
		return nil
	})
}

func (p probed) print(s *stdio, asJSON bool, d *inbox.Destination) error {
	if asJSON {
		return printJSON(s.out, p)
	}
	terminal := isTerminal(s.out)
	sign := "✓"
	if !p.Answers {
		sign = "✗"
	}
	fmt.Fprintln(s.out, cell(fmt.Sprintf("%s %s %s", sign, p.Destination, p.Found), terminal))
	if p.Fix != "" {
		fmt.Fprintln(s.out, cell("  fix       "+p.Fix, terminal))
	}
	if d == nil {
		_, err := fmt.Fprintln(s.out, "  servers   none has run with it yet")
		return err
	}
	fmt.Fprintln(s.out, cell("  breaker   "+describeBreaker(&d.Breaker).text(time.Now()), terminal))
	if d.Pause != nil {
		fmt.Fprintln(s.out, cell("  pause     "+describePause(d.Pause).text()+": nothing is tried", terminal))
	}
	_, err := fmt.Fprintln(s.out, "  servers   those that run are asked to try one forward now")
	return err
}
