package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
)

func replayCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "hand deliveries on after all",
		Description: example("Make forwards due again that are blocked, or held for a person: each keeps its ids and its\n"+
			"place among the revisions of its resource, gets one attempt (--with-retries: the whole\n"+
			"policy once more), and its deadline begins anew. Which?\n\n"+
			"--delivery ID: those of one delivery. One that no route took when it came in is given the\n"+
			"forwards that it would have now, and with --destination also one that has others.\n\n"+
			"--state blocked: every dead letter that fits, at one destination, of one source, or\n"+
			"--all-sources. The --first of them are sent and watched, then the others at --rate; it\n"+
			"stops where --stop-if-errors of the last 100 outcomes were failures. Ctrl-C stops it: what\n"+
			"was done is said, and the command that goes on. Needs a running server, which sends.\n\n"+
			"--unrouted: all deliveries of a source that have no forward, oldest first; types that the\n"+
			"source does not allow stay held then.\n\n"+
			"--force sends a revision although a later one was applied: the destination goes back to it.\n"+
			"What cannot be replayed is left as it is, and the reason is told. Exit code 1: nothing was\n"+
			"replayed; 5: not all of it was, or not all was accepted. Routes and database are those of\n"+
			"-c FILE, else of hooklatch.yaml in this folder. What is done stands in the audit, with your\n"+
			"login name and the reason.",
			"hooklatch replay --delivery dlv_8821 --destination app --reason 'app mended'",
			"hooklatch replay --destination shop --state blocked --since 6h --first 10 --stop-if-errors 20% --rate 5/s --dry-run",
			"hooklatch replay --unrouted --source acme-stripe --since 2d --dry-run"),
		Flags: append(append(databaseFlags(), actFlags()...),
			&cli.StringFlag{Name: "delivery", Usage: "the delivery of this `ID`"},
			&cli.StringFlag{Name: "state", Usage: "every forward in this `STATE`: blocked"},
			&cli.BoolFlag{Name: "unrouted", Usage: "every delivery of a source that has no forward"},
			&cli.StringFlag{Name: "destination", Usage: "only to this destination `NAME`"},
			&cli.StringFlag{Name: "source", Usage: "`NAME` of the source"},
			&cli.BoolFlag{Name: "all-sources", Usage: "with --state: of every source"},
			&cli.StringFlag{Name: "tenant", Usage: "with --state: only of this tenant `NAME`"},
			&cli.StringFlag{Name: "type", Usage: "with --state or --unrouted: only of this event `TYPE`"},
			&cli.StringFlag{Name: "since", Usage: "with --state: only dead since this `TIME`, an age or RFC 3339; with --unrouted: only received since"},
			&cli.StringFlag{Name: "until", Usage: "with --state: only dead before this `TIME`; with --unrouted: only received before"},
			&cli.StringFlag{Name: "class", Usage: "with --state: only those whose last attempt ended so, a `CLASS`: " + strings.Join(attemptClasses, " ")},
			&cli.StringFlag{Name: "blocked-reason", Usage: "with --state: only those that are blocked for this `REASON`"},
			&cli.StringFlag{Name: "owner", Usage: "with --state: only those that this `NAME` looks after"},
			&cli.IntFlag{Name: "first", Value: 10, Usage: "with --state: watch what becomes of the first `NUMBER`, then go on"},
			&cli.StringFlag{Name: "stop-if-errors", Value: "20%", Usage: "with --state: stop where so many of the last 100 failed, a `SHARE`"},
			&cli.StringFlag{Name: "rate", Value: "5/s", Usage: "with --state: replay so many in a time, a `RATE`"},
			&cli.BoolFlag{Name: "with-retries", Usage: "give each its whole budget of attempts once more"},
			&cli.BoolFlag{Name: "force", Usage: "also where a later revision was applied"},
		),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			if err := checkReplayFlags(c); err != nil {
				return err
			}
			r := &replayer{s: s, config: configFile(c), reason: c.String("reason"), dryRun: c.Bool("dry-run"), force: c.Bool("force"),
				withRetries: c.Bool("with-retries"), json: c.Bool("json")}
			switch {
			case c.Bool("unrouted"):
				return r.unrouted(c.Context, unroutedOptions{filter: inbox.UnroutedFilter{Source: c.String("source"), EventType: c.String("type")},
					since: c.String("since"), until: c.String("until"), yes: c.Bool("yes")})
			case c.IsSet("state"):
				o, err := readManyOptions(c)
				if err != nil {
					return err
				}
				return r.many(c.Context, o)
			}
			return r.delivery(c.Context, c.String("delivery"), c.String("source"), c.String("destination"))
		},
	}
}

// checkReplayFlags refuses flags that would do nothing, or more than was meant.
func checkReplayFlags(c *cli.Context) error {
	var modes []string
	for _, mode := range []string{"delivery", "state", "unrouted"} {
		if c.IsSet(mode) && (mode != "unrouted" || c.Bool(mode)) {
			modes = append(modes, mode)
		}
	}
	if len(modes) != 1 {
		return usagef("--delivery ID, --state blocked or --unrouted", "replay: what is to be replayed? One delivery, dead letters, or those that no route has taken")
	}
	needless := []string{"state", "all-sources", "tenant", "class", "blocked-reason", "owner", "first", "stop-if-errors", "rate"}
	switch modes[0] {
	case "unrouted":
		if c.String("source") == "" {
			return usagef("--source NAME", "replay: --unrouted takes the deliveries of one source: which?")
		}
		needless = append(needless, "destination", "force", "with-retries")
	case "delivery":
		needless = append(needless, "type", "since", "until")
	default:
		needless = nil
	}
	for _, name := range needless {
		if c.IsSet(name) {
			return usagef("leave --"+name+" out", "replay: --%s does not go with --%s", name, modes[0])
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
	force  bool
	json   bool

	withRetries bool

	cfg     *config
	act     inbox.Act
	sources map[[2]string]string // what is wrong with a source, by its name and tenant
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

// sourceGone says what is wrong with the source of a delivery; empty: nothing.
func (r *replayer) sourceGone(name, tenant string) string {
	why, known := r.sources[[2]string{name, tenant}]
	if !known {
		if r.sources == nil {
			r.sources = map[[2]string]string{}
		}
		_, why = r.source(name, tenant)
		r.sources[[2]string{name, tenant}] = why
	}
	return why
}

// replayLine is the JSON of what became of one forward.
type replayLine struct {
	Destination string `json:"destination"`
	Did         string `json:"did"` // routed, replayed, released or left; of a dry run: route, replay, release or left
	Why         string `json:"why,omitempty"`
	Waits       string `json:"waits,omitempty"` // why nothing goes out yet

	forward *inbox.NewForward // to be made
	id      int64             // of the one to be made due again
	token   int64             // that it had
	retries bool              // it has its whole budget
	refused bool              // left, and it would have needed something
}

// What becomes of a forward, and what is said of it.
const (
	didRoute    = "route"
	didReplay   = "replay"
	didRelease  = "release"
	didRouted   = "routed"
	didReplayed = "replayed"
	didReleased = "released"
	didLeft     = "left"
)

func (l replayLine) text() string {
	switch l.Did {
	case didRoute:
		return "would be handed on"
	case didReplay:
		return "would be due again"
	case didRelease:
		return "would be released"
	case didRouted:
		return "routed: due now"
	case didReplayed:
		if l.retries {
			return "due again, with all its attempts"
		}
		return "due again, for one attempt"
	case didReleased:
		return "released: due now"
	}
	return "left alone: " + l.Why
}

func (l *replayLine) leave(refused bool, format string, args ...any) {
	l.Did, l.Why, l.refused = didLeft, fmt.Sprintf(format, args...), refused
	l.forward, l.id = nil, 0
}

func (l replayLine) todo() bool { return l.forward != nil || l.id != 0 }

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

func (r *replayer) delivery(ctx context.Context, id, source, destination string) error {
	return r.open(ctx, func(store *inbox.Store) error {
		d, err := findOne(ctx, r.s, store, id, source)
		if errors.Is(err, errNoSuch) {
			return failNotFound(r.s, id, r.json)
		}
		if err != nil {
			return err
		}
		forwards, err := store.Forwards(ctx, d.ID)
		if err != nil {
			return err
		}
		there := slices.ContainsFunc(forwards, func(f inbox.Forward) bool { return f.Destination == destination })
		if destination != "" && !there && r.cfg.Destinations[destination] == nil {
			return usagef("--destination NAME", "replay: unknown destination %q: %s", destination, configured(slices.Sorted(maps.Keys(r.cfg.Destinations))))
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
			if err := r.replay(ctx, store, &d, done.Forwards); err != nil {
				return err
			}
		}
		if r.dryRun {
			if err := r.foresee(ctx, store, &d, done.Forwards); err != nil {
				return err
			}
		}
		if err := sayWhatWaits(ctx, store, done.Forwards); err != nil && r.dryRun { // what was done is told, whatever comes after
			return err
		}
		if err := done.print(r.s.out, isTerminal(r.s.out), r.json); err != nil {
			return err
		}
		return done.verdict()
	})
}

// verdict is the exit code. What needed nothing is no matter where something was done.
func (d *replayed) verdict() error {
	did := slices.ContainsFunc(d.Forwards, func(l replayLine) bool { return l.Did != didLeft })
	refused := slices.ContainsFunc(d.Forwards, func(l replayLine) bool { return l.refused })
	switch {
	case !did:
		return answerNo()
	case refused:
		return &failure{code: exitPartly}
	}
	return nil
}

// plan says what is to be done for each forward, or why nothing can be.
func (r *replayer) plan(d *inbox.Delivery, forwards []inbox.Forward, destination string) (lines []replayLine, why string, err error) {
	for _, f := range forwards {
		if destination == "" || destination == f.Destination {
			lines = append(lines, r.again(d, f))
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

// again says what is to be done with a forward that is there.
func (r *replayer) again(d *inbox.Delivery, f inbox.Forward) (l replayLine) {
	l = replayLine{Destination: f.Destination, id: f.ID, token: f.Token, retries: r.withRetries}
	leased := f.LeaseUntil.After(time.Now())
	switch {
	case f.State == inbox.Accepted:
		l.leave(false, "the destination has accepted it at %s", f.SettledAt.UTC().Format(time.RFC3339))
	case f.State == inbox.Cancelled:
		l.leave(true, "cancelled by a person")
	case r.cfg.Destinations[f.Destination] == nil:
		l.leave(true, "destination %s is not in the configuration any more", f.Destination)
	case r.sourceGone(d.Source, d.Tenant) != "":
		l.leave(true, "%s", r.sourceGone(d.Source, d.Tenant))
	case leased:
		l.leave(false, "in flight: attempt %d is under way, lease until %s", f.Attempt, f.LeaseUntil.UTC().Format(time.RFC3339))
	case f.State == inbox.Superseded && !r.force:
		l.leave(true, "%s", supersededText)
	case f.State == inbox.Blocked, f.State == inbox.Superseded:
		l.Did = didReplay
	case f.State == inbox.Held && f.HoldReason == inbox.HoldPerson:
		l.Did = didRelease
	case f.State == inbox.Held:
		l.leave(true, "held, and not for a person: %s", f.HoldReason)
	default:
		l.leave(false, "%s: it is tried without that", f.State)
	}
	return l
}

const supersededText = "superseded: a later revision was applied; --force sends it all the same"

// replay makes the forwards due again, each in a transaction of its own.
func (r *replayer) replay(ctx context.Context, store *inbox.Store, d *inbox.Delivery, lines []replayLine) error {
	for i := range lines {
		l := &lines[i]
		if l.id == 0 {
			continue
		}
		switch err := store.Replay(ctx, l.id, inbox.ReplayRequest{Act: r.act, Force: r.force, WithRetries: r.withRetries, Seen: &l.token}); {
		case err == nil && l.Did == didRelease:
			l.Did = didReleased
		case err == nil:
			l.Did = didReplayed
		case errors.Is(err, inbox.ErrSuperseded):
			l.leave(true, "%s", supersededText)
		case errors.Is(err, inbox.ErrPruned):
			l.leave(true, "%s", r.gone(d))
		case errors.Is(err, inbox.ErrInFlight):
			l.leave(true, "in flight: an attempt has begun meanwhile")
		case errors.Is(err, inbox.ErrRemoved):
			l.leave(true, "destination %s was removed", l.Destination)
		case errors.Is(err, inbox.ErrReplaying):
			l.leave(true, "a replay is in progress: somebody else was faster")
		case errors.Is(err, inbox.ErrState), errors.Is(err, inbox.ErrNotFound):
			l.leave(true, "it has changed meanwhile: look again")
		default:
			return err
		}
	}
	return nil
}

// route makes the forwards that are to be made, all of them or none.
func (r *replayer) route(ctx context.Context, store *inbox.Store, d *inbox.Delivery, lines []replayLine) error {
	var forwards []inbox.NewForward
	for _, l := range lines {
		if l.forward != nil {
			forwards = append(forwards, *l.forward)
		}
	}
	if len(forwards) == 0 {
		return nil
	}
	made, err := store.Route(ctx, d.ID, forwards, r.act)
	if err != nil && !errors.Is(err, inbox.ErrPruned) {
		return err
	}
	for i := range lines {
		l := &lines[i]
		switch {
		case l.forward == nil:
		case slices.Contains(made, l.Destination):
			l.Did = didRouted
		case err != nil:
			l.leave(true, "%s", r.gone(d))
		default:
			l.leave(false, "somebody else has made it meanwhile")
		}
	}
	return nil
}

// gone says since when the body is not there.
func (r *replayer) gone(d *inbox.Delivery) string {
	return "its body was " + r.cfg.goneText(d.ReceivedAt, time.Now())
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
		text := l.text()
		if l.Waits != "" {
			text += "; " + l.Waits
		}
		fmt.Fprintln(w, cell(fmt.Sprintf("  %-*s   %s", width, l.Destination, text), terminal))
	}
	_, err := fmt.Fprintf(w, "  next   %s\n", cell(programName()+" trace "+shellQuote(d.DeliveryID)+" --source "+shellQuote(d.Source), terminal))
	return err
}
