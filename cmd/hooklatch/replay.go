package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
)

func replayCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "hand a delivery on after all",
		Description: example("Make the forwards of a delivery that no route took when it came in, or, with\n"+
			"--destination, the one that has a route now. Each counts its deadline from now, stands\n"+
			"in its place among the revisions of its resource, and has the ids of the delivery.\n"+
			"With --unrouted all such deliveries of a source, oldest first; a type that the source\n"+
			"does not allow stays held then. What cannot be replayed is left as it is, and the\n"+
			"reason is told: exit code 1, or 5 where something was. Routes and database are those\n"+
			"of -c FILE, else of hooklatch.yaml in this folder. The server may run. What is done\n"+
			"stands in the audit, with your login name and the reason.",
			"hooklatch replay --delivery dlv_8821 --reason 'route added'",
			"hooklatch replay --unrouted --source acme-stripe --since 2d --dry-run"),
		Flags: append(append(databaseFlags(), actFlags()...),
			&cli.StringFlag{Name: "delivery", Usage: "the delivery of this `ID`"},
			&cli.StringFlag{Name: "destination", Usage: "only to this destination `NAME`"},
			&cli.BoolFlag{Name: "unrouted", Usage: "every delivery of a source that has no forward"},
			&cli.StringFlag{Name: "source", Usage: "`NAME` of the source"},
			&cli.StringFlag{Name: "type", Usage: "with --unrouted: only of this event `TYPE`"},
			&cli.StringFlag{Name: "since", Usage: "with --unrouted: only received since this `TIME`, an age or RFC 3339"},
			&cli.StringFlag{Name: "until", Usage: "with --unrouted: only received before this `TIME`"},
		),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			if err := checkReplayFlags(c); err != nil {
				return err
			}
			r := &replayer{s: s, config: configFile(c), reason: c.String("reason"), dryRun: c.Bool("dry-run"), json: c.Bool("json")}
			if c.Bool("unrouted") {
				return r.unrouted(c.Context, unroutedOptions{filter: inbox.UnroutedFilter{Source: c.String("source"), EventType: c.String("type")},
					since: c.String("since"), until: c.String("until"), yes: c.Bool("yes")})
			}
			return r.delivery(c.Context, c.String("delivery"), c.String("source"), c.String("destination"))
		},
	}
}

// checkReplayFlags refuses flags that would do nothing, or more than was meant.
func checkReplayFlags(c *cli.Context) error {
	var needless []string
	switch {
	case c.IsSet("delivery") == c.Bool("unrouted"):
		return usagef("--delivery ID, or --unrouted --source NAME", "replay: what is to be replayed? One delivery, or those that no route has taken")
	case c.Bool("unrouted"):
		if c.String("source") == "" {
			return usagef("--source NAME", "replay: --unrouted takes the deliveries of one source: which?")
		}
		needless = []string{"destination"}
	default:
		needless = []string{"type", "since", "until"}
	}
	for _, name := range needless {
		if c.IsSet(name) {
			return usagef("leave --"+name+" out", "replay: --%s does not go with --%s", name,
				map[bool]string{true: "unrouted", false: "delivery"}[c.Bool("unrouted")])
		}
	}
	return nil
}

// replayer is one run of replay.
type replayer struct {
	s      *stdio
	config string // file
	reason string
	dryRun bool
	json   bool

	cfg *config
	act inbox.Act
}

// open reads the configuration and opens its database.
func (r *replayer) open(ctx context.Context, do func(*inbox.Store) error) (err error) {
	if r.cfg, err = readConfig(r.config); err != nil {
		return err
	}
	return whichDatabase{config: r.config}.withStore(ctx, do)
}

// decide asks for what the audit wants to know.
func (r *replayer) decide(ctx context.Context) error {
	reason, err := r.s.reason(ctx, "replay", r.reason)
	r.act = inbox.Act{Actor: actor(), Reason: reason}
	return err
}

// source is what the receiving side is told of a source; why says what is wrong with
// it, for a delivery of that tenant.
func (r *replayer) source(name, tenant string) (source proxy.Source, why string) {
	for _, source := range r.cfg.proxyConfig(&secrets{}).Sources {
		switch {
		case source.Name != name:
		case source.Tenant != tenant:
			return source, fmt.Sprintf("source %s belongs to tenant %s now", name, source.Tenant)
		default:
			return source, ""
		}
	}
	return source, fmt.Sprintf("source %s is not in the configuration any more", name)
}

// replayLine is the JSON of what became of one forward.
type replayLine struct {
	Destination string `json:"destination"`
	Did         string `json:"did"` // routed, or left; of a dry run: route
	Why         string `json:"why,omitempty"`

	forward *inbox.NewForward // to be made
}

// replayed is the JSON of replay for one delivery.
type replayed struct {
	V          int          `json:"v"`
	DryRun     bool         `json:"dry_run,omitempty"`
	Tenant     string       `json:"tenant"`
	Source     string       `json:"source"`
	DeliveryID string       `json:"delivery_id"`
	EventType  string       `json:"event_type,omitempty"`
	Forwards   []replayLine `json:"forwards"`
	Why        string       `json:"why,omitempty"` // nothing could be done
}

const (
	didRoute  = "route"
	didRouted = "routed"
	didLeft   = "left"
)

func (r *replayer) delivery(ctx context.Context, id, source, destination string) error {
	return r.open(ctx, func(store *inbox.Store) error {
		if known := slices.Sorted(maps.Keys(r.cfg.Destinations)); destination != "" && !slices.Contains(known, destination) {
			return usagef("--destination NAME", "replay: unknown destination %q: %s", destination, configured(known))
		}
		d, err := findOne(ctx, r.s, store, id, source)
		if errors.Is(err, errNoSuch) {
			return fail(exitNo, fmt.Errorf("%s is not in the inbox", id), "hooklatch trace "+shellQuote(id))
		}
		if err != nil {
			return err
		}
		forwards, err := store.Forwards(ctx, d.ID)
		if err != nil {
			return err
		}
		done := &replayed{V: 1, DryRun: r.dryRun, Tenant: d.Tenant, Source: d.Source, DeliveryID: d.DeliveryID, EventType: d.EventType}
		if done.Forwards, done.Why, err = r.plan(&d, forwards, destination); err != nil {
			return err
		}
		if !r.dryRun && slices.ContainsFunc(done.Forwards, replayLine.todo) {
			if err := r.decide(ctx); err != nil {
				return err
			}
			if err := r.route(ctx, store, &d, done.Forwards); err != nil {
				return err
			}
		}
		if err := done.print(r.s.out, isTerminal(r.s.out), r.json); err != nil {
			return err
		}
		if r.dryRun || slices.ContainsFunc(done.Forwards, func(l replayLine) bool { return l.Did != didLeft }) {
			return nil
		}
		return answerNo()
	})
}

func (l replayLine) todo() bool { return l.forward != nil }

// plan says what is to be done for each forward, or why nothing can be.
func (r *replayer) plan(d *inbox.Delivery, forwards []inbox.Forward, destination string) (lines []replayLine, why string, err error) {
	for _, f := range forwards {
		if destination == "" || destination == f.Destination {
			lines = append(lines, replayLine{Destination: f.Destination, Did: didLeft, Why: r.left(f)})
		}
	}
	if len(lines) > 0 {
		return lines, "", nil
	}
	// A destination that was routed to since gets what came before only by name, or
	// where the delivery goes nowhere yet.
	source, why := r.source(d.Source, d.Tenant)
	if why != "" {
		return nil, why + ": nothing says where its deliveries go", nil
	}
	wanted, err := source.Route(d.EventType)
	if err != nil {
		return nil, "", err
	}
	for _, f := range wanted {
		if destination == "" || destination == f.Destination {
			f.Hold = false // this very delivery was decided about
			lines = append(lines, replayLine{Destination: f.Destination, Did: didRoute, forward: &f})
		}
	}
	if len(lines) == 0 {
		to := ""
		if destination != "" {
			to = " to " + destination
		}
		return nil, fmt.Sprintf("no route of source %s takes %s%s", d.Source, typeText(d.EventType), to), nil
	}
	return lines, "", nil
}

func typeText(eventType string) string {
	if eventType == "" {
		return "events without a type"
	}
	return "events of type " + eventType
}

// left says why a forward that is there stays as it is.
func (r *replayer) left(f inbox.Forward) string {
	switch f.State {
	case inbox.Accepted:
		return "the destination has accepted it at " + f.SettledAt.UTC().Format(time.RFC3339)
	case inbox.Superseded:
		return "superseded: a later revision was applied"
	}
	return "it is there, and " + string(f.State)
}

// route makes the forwards that are to be made, all of them or none.
func (r *replayer) route(ctx context.Context, store *inbox.Store, d *inbox.Delivery, lines []replayLine) error {
	var forwards []inbox.NewForward
	for _, l := range lines {
		if l.todo() {
			forwards = append(forwards, *l.forward)
		}
	}
	made, err := store.Route(ctx, d.ID, forwards, r.act)
	if err != nil && !errors.Is(err, inbox.ErrPruned) {
		return err
	}
	for i := range lines {
		l := &lines[i]
		switch {
		case !l.todo():
		case slices.Contains(made, l.Destination):
			l.Did = didRouted
		default:
			l.Did, l.Why = didLeft, cmp.Or(prunedText(d, err), "somebody else has made it meanwhile")
		}
	}
	return nil
}

// prunedText says since when a body can be gone; empty: it is not.
func prunedText(d *inbox.Delivery, err error) string {
	if err == nil {
		return ""
	}
	return "its body was pruned by retention; it was received " + d.ReceivedAt.UTC().Format(time.RFC3339)
}

func (d replayed) print(w io.Writer, terminal, asJSON bool) error {
	if asJSON {
		d.Forwards = append([]replayLine{}, d.Forwards...)
		return printJSON(w, d)
	}
	title := fmt.Sprintf("%s   %s   tenant %s   source %s", d.DeliveryID, orDash(d.EventType), d.Tenant, d.Source)
	if _, err := fmt.Fprintln(w, cell(title, terminal)); err != nil {
		return err
	}
	if d.Why != "" {
		fmt.Fprintf(w, "  left alone   %s\n", cell(d.Why, terminal))
	}
	width := 0
	for _, l := range d.Forwards {
		width = max(width, len(l.Destination))
	}
	for _, l := range d.Forwards {
		fmt.Fprintln(w, cell(fmt.Sprintf("  %-*s   %s", width, l.Destination, l.text()), terminal))
	}
	_, err := fmt.Fprintf(w, "  next   %s\n", cell(programName()+" trace "+shellQuote(d.DeliveryID)+" --source "+shellQuote(d.Source), terminal))
	return err
}

func (l replayLine) text() string {
	switch l.Did {
	case didRoute:
		return "would be handed on"
	case didRouted:
		return "routed: due now"
	}
	return "left alone: " + l.Why
}
