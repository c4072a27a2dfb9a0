package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func resourcesCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "resources",
		Usage: "look at the order of a resource, and let it go on",
		Description: example("Say how far each destination has come with a resource, list revisions that are missing,\n"+
			"and release what waits for them. A resource is TYPE/ID, /ID where its deliveries name no\n"+
			"type. Only sources with an ordering have them.\n\n"+databaseHelp,
			"hooklatch resources gaps"),
		Subcommands: []*cli.Command{resourcesShowCommand(s), resourcesGapsCommand(s), resourcesReleaseCommand(s)},
	}
}

func laneFlags() []cli.Flag {
	return append(databaseFlags(),
		&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"},
		&cli.StringFlag{Name: "destination", Usage: "only at this destination `NAME`"})
}

func resourcesShowCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show how far each destination has come with a resource",
		ArgsUsage: "TYPE/ID",
		Description: example("Show, for each source and destination, the revision that was applied, what is missing,\n"+
			"what is being tried and what waits, in the order in which it will be sent. Exit code 1:\n"+
			"no delivery of the resource is ordered.\n\n"+databaseHelp,
			"hooklatch resources show report/R-77"),
		Flags: laneFlags(),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "TYPE/ID")
			if err != nil {
				return err
			}
			f := inbox.ResourceFilter{Name: args[0], Source: c.String("source"), Destination: c.String("destination")}
			return resourcesShow(c.Context, s, readWhichDatabase(c), f, c.Bool("json"))
		},
	}
}

// checkResource refuses what names no resource.
func checkResource(command, name string) error {
	if _, id, ok := strings.Cut(name, "/"); !ok || id == "" {
		return usagef("hooklatch resources "+command+" report/R-77, or /R-77 where the deliveries name no type",
			"resources %s: %q is not TYPE/ID", command, name)
	}
	return nil
}

func resourcesShow(ctx context.Context, s *stdio, which whichDatabase, f inbox.ResourceFilter, asJSON bool) error {
	if err := checkResource("show", f.Name); err != nil {
		return err
	}
	return which.withStore(ctx, func(store *inbox.Store) error {
		found := false
		for r, err := range store.Resources(ctx, f) {
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(s.out, describeResource(&r))
			} else {
				err = describeResource(&r).print(s.out, isTerminal(s.out), time.Now())
			}
			if err != nil {
				return err
			}
			found = true
		}
		if !found {
			return noResource(ctx, s, store, f.Name, asJSON)
		}
		return nil
	})
}

// noResource says what is known of a resource that has no order.
func noResource(ctx context.Context, s *stdio, store *inbox.Store, name string, asJSON bool) error {
	if asJSON {
		return errors.Join(printJSON(s.out, struct {
			V        int    `json:"v"`
			Resource string `json:"resource"`
			Found    bool   `json:"found"`
		}{1, name, false}), answerNo())
	}
	terminal := isTerminal(s.out)
	fmt.Fprintf(s.out, "%s has no delivery that is ordered\n", cell(name, terminal))
	for d, err := range store.Find(ctx, inbox.Filter{ID: name, Limit: 1}) {
		if err != nil {
			return err
		}
		why := "the order of its source is none, or that of another source or destination was asked for"
		if d.Revision == nil {
			why = cmp.Or(d.MetaError, "it has no revision")
		}
		fmt.Fprintf(s.out, "  %-12s %s\n", "latest", cell(fmt.Sprintf("%s of source %s: %s", d.DeliveryID, d.Source, why), terminal))
	}
	return answerNo()
}

// resourceLine is the JSON of a resource at a destination.
type resourceLine struct {
	V            int            `json:"v"`
	Tenant       string         `json:"tenant"`
	Source       string         `json:"source"`
	Destination  string         `json:"destination"`
	ResourceType string         `json:"resource_type"`
	ResourceID   string         `json:"resource_id"`
	Applied      *int64         `json:"applied"` // null: none yet
	AppliedAt    *time.Time     `json:"applied_at,omitempty"`
	Deleted      bool           `json:"deleted"`
	Passed       *int64         `json:"passed"` // up to here nothing is sent any more
	Gap          *gapLine       `json:"gap,omitempty"`
	InFlight     *standingLine  `json:"in_flight,omitempty"`
	Forwards     []standingLine `json:"forwards"`
	More         bool           `json:"more,omitempty"` // the forwards are not all
}

// standingLine is the JSON of a forward in its lane.
type standingLine struct {
	Revision   int64     `json:"revision"`
	Deleted    bool      `json:"deleted,omitempty"`
	DeliveryID string    `json:"delivery_id"`
	ReceivedAt time.Time `json:"received_at"`
	forwardLine
}

func describeStanding(f *inbox.Forward) *standingLine {
	if f == nil {
		return nil
	}
	return &standingLine{Revision: *f.Delivery.Revision, Deleted: f.Delivery.Deleted, DeliveryID: f.Delivery.DeliveryID,
		ReceivedAt: f.Delivery.ReceivedAt.UTC(), forwardLine: describeForward(*f)}
}

func describeResource(r *inbox.Resource) resourceLine {
	line := resourceLine{V: 1, Tenant: r.Tenant, Source: r.Source, Destination: r.Destination, ResourceType: r.ResourceType,
		ResourceID: r.ResourceID, Applied: r.Applied, AppliedAt: moment(r.AppliedAt), Deleted: r.Deleted, Passed: r.Passed,
		Gap: describeGap(r.Gap), InFlight: describeStanding(r.InFlight), Forwards: []standingLine{}, More: r.More}
	for i := range r.Open {
		line.Forwards = append(line.Forwards, *describeStanding(&r.Open[i]))
		line.Forwards[i].unhold(r.Gap)
	}
	return line
}

func (r resourceLine) name() string { return r.ResourceType + "/" + r.ResourceID }

func (r resourceLine) print(w io.Writer, terminal bool, now time.Time) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-12s %s\n", name, cell(fmt.Sprintf(format, args...), terminal))
	}
	fmt.Fprintf(w, "%s   tenant %s   source %s   destination %s\n", cell(r.name(), terminal), r.Tenant, r.Source, r.Destination)
	switch {
	case r.Applied == nil:
		line("applied", "none yet")
	case r.Deleted:
		line("applied", "revision %d at %s, which deleted it", *r.Applied, r.AppliedAt.Format(time.RFC3339))
	default:
		line("applied", "revision %d at %s", *r.Applied, r.AppliedAt.Format(time.RFC3339))
	}
	if r.Passed != nil && (r.Applied == nil || *r.Passed > *r.Applied) {
		line("passed", "revision %d: up to there nothing is sent any more", *r.Passed)
	}
	if r.Gap != nil {
		line("gap", "%s", r.Gap.text(now))
	}
	if f := r.InFlight; f != nil {
		line("in flight", "revision %d   %s   attempt %d, lease until %s", f.Revision, f.DeliveryID, f.Attempts, f.LeaseUntil.Format(time.RFC3339))
	}
	for _, f := range r.Forwards {
		if r.InFlight == nil || f.DeliveryID != r.InFlight.DeliveryID {
			line("forward", "revision %d   %s   %s", f.Revision, f.DeliveryID, f.standing())
		}
	}
	if r.More {
		line("", "and more behind them")
	}
	if len(r.Forwards) == 0 {
		line("forwards", "none waits")
	}
	me := programName()
	next := me + " events list --destination " + shellQuote(r.Destination)
	if r.stuck() {
		next = me + " resources release " + shellQuote(r.name()) + " --destination " + shellQuote(r.Destination) + " --reason TEXT"
	} else if len(r.Forwards) > 0 {
		next = me + " trace " + shellQuote(r.Forwards[0].DeliveryID)
	}
	_, err := fmt.Fprintf(w, "  %-12s %s\n", "next", cell(next, terminal))
	return err
}

// stuck says whether a release would let the lane go on.
func (r resourceLine) stuck() bool {
	if r.Gap != nil {
		return true
	}
	head := r.head()
	return head != nil && head.State == inbox.Blocked
}

// head is the first forward of a strict lane; nil: nothing stands in it.
func (r resourceLine) head() *standingLine {
	for i, f := range r.Forwards {
		if f.Ordering == inbox.OrderStrict && (r.Passed == nil || f.Revision > *r.Passed) {
			return &r.Forwards[i]
		}
	}
	return nil
}

// standing is the forward's state in its lane.
func (f standingLine) standing() string {
	text := string(f.State)
	if why := cmp.Or(string(f.HoldReason), f.BlockedReason); why != "" {
		text += " (" + why + ")"
	}
	text += fmt.Sprintf(" after %s, received %s", counted(f.Attempts, "attempt"), f.ReceivedAt.Format(time.RFC3339))
	if f.Deleted {
		text += ", deletes it"
	}
	return text
}
