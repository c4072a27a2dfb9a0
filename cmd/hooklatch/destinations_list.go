package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func destinationsListCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list destinations with what waits for them",
		Description: example("List each destination: whether it is paused or its breaker open, how many forwards wait, are\n"+
			"in flight and are dead letters, and under which configurations those that wait were tried\n"+
			"last, or received. What is configured is read from -c FILE or hooklatch.yaml here, where\n"+
			"there is one.\n\n"+databaseHelp,
			"hooklatch destinations list"),
		Flags: append(databaseFlags(), &cli.BoolFlag{Name: "all", Usage: "also those that were removed"}),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return destinationsList(c.Context, s, readWhichDatabase(c), c.Bool("all"), c.Bool("json"))
		},
	}
}

func destinationsShowCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one destination and its history",
		ArgsUsage: "NAME",
		Description: example("Show what \"destinations list\" does, and the last things that happened to the destination:\n"+
			"changes of its URL, pauses, what its breaker did, and what people decided. Exit code 1:\n"+
			"there is none of that name.\n\n"+databaseHelp,
			"hooklatch destinations show shop"),
		Flags: append(databaseFlags(), &cli.IntFlag{Name: "limit", Value: 20, Usage: "at most `N` lines of history"}),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "NAME")
			if err != nil {
				return err
			}
			if c.Int("limit") < 1 {
				return usagef("--limit 20", "destinations show: the limit must be at least 1")
			}
			return destinationsShow(c.Context, s, readWhichDatabase(c), args[0], c.Int("limit"), c.Bool("json"))
		},
	}
}

// destinationLine is the JSON of a destination.
type destinationLine struct {
	V           int         `json:"v"`
	Destination string      `json:"destination"`
	URL         string      `json:"url"`
	Owner       string      `json:"owner,omitempty"`
	Configured  *bool       `json:"configured,omitempty"` // missing: no configuration was at hand
	RemovedAt   *time.Time  `json:"removed_at,omitempty"`
	Pause       *pauseLine  `json:"pause,omitempty"`
	Breaker     breakerLine `json:"breaker"`

	Waiting     int     `json:"waiting"` // not started: new, to be tried again or held
	InFlight    int     `json:"in_flight"`
	Held        int     `json:"held"`
	DeadLetters int     `json:"dead_letters"`
	OldestDue   float64 `json:"oldest_due_seconds"`

	ConfigRevision int64          `json:"config_revision,omitempty"` // that saved it last
	Revisions      []revisionLine `json:"waiting_under"`

	History []destinationEventLine `json:"history,omitempty"`
}

// revisionLine is the JSON of what waits under one configuration.
type revisionLine struct {
	ConfigRevision int64     `json:"config_revision"`
	Forwards       int       `json:"forwards"`
	OldestReceived time.Time `json:"oldest_received_at"`
}

// breakerLine is the JSON of a breaker.
type breakerLine struct {
	State  inbox.BreakerState `json:"state"`
	At     *time.Time         `json:"changed_at,omitempty"`
	Until  *time.Time         `json:"probe_at,omitempty"`
	Worker string             `json:"worker,omitempty"`
	Error  string             `json:"error,omitempty"`
}

// destinationEventLine is the JSON of a line of history.
type destinationEventLine struct {
	At             time.Time `json:"at"`
	Event          string    `json:"event"`
	Actor          string    `json:"actor,omitempty"`
	Reason         string    `json:"reason,omitempty"`
	Worker         string    `json:"worker,omitempty"`
	Detail         string    `json:"detail,omitempty"`
	ConfigRevision int64     `json:"config_revision,omitempty"`
}

func describeBreaker(b *inbox.Breaker) breakerLine {
	return breakerLine{State: b.State, At: moment(b.At), Until: moment(b.Until), Worker: b.Worker, Error: b.Error}
}

// text says what the breaker lets through.
func (b breakerLine) text(now time.Time) string {
	switch {
	case b.State == inbox.BreakerClosed:
		return "closed: attempts are made"
	case b.State == inbox.BreakerHalfOpen:
		return "half open since " + b.At.Format(time.RFC3339) + ": few attempts at a time, to see whether it goes well"
	case b.Until == nil || b.Until.After(now):
		return "open since " + b.At.Format(time.RFC3339) + ": nothing is tried" + b.probe()
	}
	return "open since " + b.At.Format(time.RFC3339) + b.probe() + ": it comes with the next forward that is due"
}

func (b breakerLine) probe() string {
	if b.Until == nil {
		return ""
	}
	return ", probe at " + b.Until.Format(time.RFC3339)
}

func describePause(p *inbox.Pause) *pauseLine {
	if p == nil {
		return nil
	}
	return &pauseLine{p.At.UTC(), p.By, p.Reason}
}

// text says who stopped it, when and why.
func (p pauseLine) text() string {
	text := "paused since " + p.At.Format(time.RFC3339)
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += fmt.Sprintf(": %q", p.Reason)
	}
	return text
}

func describeEvent(e inbox.DestinationEvent) destinationEventLine {
	return destinationEventLine{At: e.At.UTC(), Event: e.Event, Actor: e.Actor, Reason: e.Reason, Worker: e.Worker, Detail: e.Detail, ConfigRevision: e.ConfigRevision}
}

// text is what happened, without the time.
func (e destinationEventLine) text() string {
	text := e.Event
	switch e.Event {
	case inbox.EventOpened:
		text = "breaker opened"
	case inbox.EventClosed:
		text = "breaker closed"
	case inbox.EventProbe:
		text = "asked to be tried"
	}
	if e.Actor != "" {
		text += " by " + e.Actor
	}
	if e.Reason != "" {
		text += fmt.Sprintf(": %q", e.Reason)
	}
	if e.Detail != "" && e.Actor == "" {
		text += " " + e.Detail
	} else if e.Detail != "" {
		text += ", " + e.Detail
	}
	if e.Event == inbox.EventConfigured && e.ConfigRevision != 0 {
		text += fmt.Sprintf(", configuration %d", e.ConfigRevision)
	}
	return text
}

// known is the configuration at hand; nil: there is none that can be read.
func (w whichDatabase) known() *config {
	file := w.config
	if file == "" {
		file = defaultConfigFile
		if _, err := os.Stat(file); err != nil {
			return nil
		}
	}
	c, err := readConfig(file)
	if err != nil {
		return nil
	}
	return c
}

// readDestinations reads all of them, and those that are configured and unknown to the
// database.
func readDestinations(ctx context.Context, store *inbox.Store, cfg *config) ([]destinationLine, error) {
	all, err := store.Destinations(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := store.Stats(ctx)
	if err != nil {
		return nil, err
	}
	var lines []destinationLine
	seen := map[string]bool{}
	for i := range all {
		d := &all[i]
		seen[d.Name] = true
		lines = append(lines, destinationLine{V: 1, Destination: d.Name, URL: d.URL, Owner: d.Owner, RemovedAt: moment(d.RemovedAt),
			Pause: describePause(d.Pause), Breaker: describeBreaker(&d.Breaker), ConfigRevision: d.ConfigRevision})
	}
	for _, st := range stats {
		if !seen[st.Destination] { // nobody has configured it; a forward to it was made in Go
			seen[st.Destination] = true
			lines = append(lines, destinationLine{V: 1, Destination: st.Destination, Breaker: breakerLine{State: inbox.BreakerClosed}})
		}
	}
	if cfg != nil {
		for _, d := range cfg.destinations() {
			if !seen[d.Name] {
				lines = append(lines, destinationLine{V: 1, Destination: d.Name, URL: d.URL, Owner: d.Owner, Breaker: breakerLine{State: inbox.BreakerClosed}})
			}
		}
	}
	for i := range lines {
		if err := lines[i].fill(ctx, store, cfg, stats); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// fill adds what waits.
func (d *destinationLine) fill(ctx context.Context, store *inbox.Store, cfg *config, stats []inbox.DestinationStats) error {
	if cfg != nil {
		configured := cfg.Destinations[d.Destination] != nil
		d.Configured = &configured
	}
	for _, st := range stats {
		if st.Destination == d.Destination {
			d.Held, d.DeadLetters = st.Open[inbox.Held], st.Open[inbox.Blocked]
			d.InFlight = st.InFlight
			d.Waiting = st.Open[inbox.Pending] + st.Open[inbox.RetryWait] + d.Held - d.InFlight
			d.OldestDue = max(st.OldestNew, st.OldestRetry).Seconds()
		}
	}
	d.Revisions = []revisionLine{}
	if d.Waiting == 0 {
		return nil
	}
	waiting, err := store.WaitingByRevision(ctx, d.Destination)
	for _, w := range waiting {
		d.Revisions = append(d.Revisions, revisionLine{w.ConfigRevision, w.Forwards, w.Oldest.UTC()})
	}
	return err
}

func destinationsList(ctx context.Context, s *stdio, which whichDatabase, all, asJSON bool) error {
	return which.withStore(ctx, func(store *inbox.Store) error {
		lines, err := readDestinations(ctx, store, which.known())
		if err != nil {
			return err
		}
		var rows [][]string
		now := time.Now()
		for _, d := range lines {
			if d.RemovedAt != nil && !all && d.Waiting+d.InFlight+d.DeadLetters == 0 {
				continue
			}
			if asJSON {
				if err := printJSON(s.out, d); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, []string{d.Destination, d.URL, d.standing(now), fmt.Sprint(d.Waiting), fmt.Sprint(d.InFlight), fmt.Sprint(d.DeadLetters), d.under()})
		}
		switch {
		case asJSON:
			return nil
		case len(rows) == 0:
			_, err := fmt.Fprintln(s.out, "no destination: no server has run with one yet")
			return err
		}
		s.printTable([]string{"destination", "url", "state", "waiting", "in flight", "dead", "waiting under configuration"}, rows)
		return nil
	})
}

// standing is in a few words whether it is handed anything.
func (d destinationLine) standing(now time.Time) string {
	var words []string
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(d.RemovedAt != nil, "removed")
	add(d.RemovedAt == nil && d.Configured != nil && !*d.Configured, "not configured")
	if d.Pause != nil {
		add(true, "paused for %s by %s", age(now.Sub(d.Pause.At)), orDash(d.Pause.By))
	}
	if b := d.Breaker; b.State != inbox.BreakerClosed {
		text := "breaker " + strings.ReplaceAll(string(b.State), "_", " ")
		if b.Until != nil {
			text += ", probe at " + b.Until.Format("15:04:05")
		}
		add(true, "%s", text)
	}
	if len(words) == 0 {
		return "ok"
	}
	return strings.Join(words, "; ")
}

// under says which configurations those that wait were tried under.
func (d destinationLine) under() string {
	var parts []string
	looked := 0
	for _, r := range d.Revisions {
		name := fmt.Sprint(r.ConfigRevision)
		if r.ConfigRevision == 0 {
			name = "unknown"
		}
		if len(d.Revisions) > 1 {
			name += fmt.Sprintf(": %d", r.Forwards)
		}
		parts = append(parts, name)
		looked += r.Forwards
	}
	text := strings.Join(parts, ", ")
	if looked >= inbox.WaitingLook && looked < d.Waiting {
		text += fmt.Sprintf(" (of %d that were looked at)", looked)
	}
	return text
}

func destinationsShow(ctx context.Context, s *stdio, which whichDatabase, name string, limit int, asJSON bool) error {
	return which.withStore(ctx, func(store *inbox.Store) error {
		lines, err := readDestinations(ctx, store, which.known())
		if err != nil {
			return err
		}
		var names []inbox.Destination
		for _, d := range lines {
			if d.Destination != name {
				names = append(names, inbox.Destination{Name: d.Destination})
				continue
			}
			for e, err := range store.DestinationEvents(ctx, inbox.EventFilter{Destination: name, Limit: limit, Newest: true}) {
				if err != nil {
					return err
				}
				d.History = append(d.History, describeEvent(e))
			}
			if asJSON {
				return printJSON(s.out, d)
			}
			return d.print(s.out, isTerminal(s.out), time.Now())
		}
		return unknownDestination("destinations show", name, names)
	})
}

func (d destinationLine) print(w io.Writer, terminal bool, now time.Time) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-12s %s\n", name, cell(fmt.Sprintf(format, args...), terminal))
	}
	fmt.Fprintf(w, "%s   %s\n", d.Destination, cell(orDash(d.URL), terminal))
	line("owner", "%s", orDash(d.Owner))
	switch {
	case d.RemovedAt != nil:
		line("removed", "%s", d.RemovedAt.Format(time.RFC3339))
	case d.Configured != nil && !*d.Configured:
		line("configured", "no: nobody hands anything to it")
	}
	if d.Pause != nil {
		line("pause", "%s", d.Pause.text())
	}
	line("breaker", "%s", d.Breaker.text(now))
	if d.Breaker.Error != "" {
		line("", "%s", d.Breaker.Error)
	}
	text := fmt.Sprintf("%s not started, %d of them held; %d in flight; %s", counted(d.Waiting, "forward"), d.Held, d.InFlight, counted(d.DeadLetters, "dead letter"))
	if d.OldestDue > 0 {
		text += "; the oldest has been due for " + age(time.Duration(d.OldestDue*float64(time.Second)))
	}
	line("waiting", "%s", text)
	for _, r := range d.Revisions {
		line("", "configuration %d: %s, the oldest received %s", r.ConfigRevision, counted(r.Forwards, "forward"), r.OldestReceived.Format(time.RFC3339))
	}
	for _, e := range d.History {
		line("history", "%s  %s", e.At.Format(time.RFC3339), e.text())
	}
	me := programName()
	next := me + " events list --destination " + shellQuote(d.Destination)
	switch {
	case d.Pause != nil:
		next = me + " destinations resume " + shellQuote(d.Destination) + " --reason TEXT"
	case d.Breaker.State != inbox.BreakerClosed:
		next = me + " destinations probe " + shellQuote(d.Destination)
	}
	_, err := fmt.Fprintf(w, "  %-12s %s\n", "next", cell(next, terminal))
	return err
}
