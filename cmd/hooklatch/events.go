package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func eventsCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "look at deliveries in the inbox",
		Description: example("List deliveries, show one, print its body, follow new ones. An id may be a delivery id,\n"+
			"an event id, a request id, TYPE/ID or ID of a resource, or 8 hex digits or more of the hash\n"+
			"of a body.\n\n"+databaseHelp,
			"hooklatch events list --state blocked"),
		Subcommands: []*cli.Command{eventsListCommand(s), eventsShowCommand(s), eventsBodyCommand(s), eventsDiffCommand(s), eventsTailCommand(s)},
	}
}

func eventsListCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list deliveries, newest first",
		Description: example("List deliveries with the state of their forwards. The last line names the command that\n"+
			"goes on. Times are an age such as 2h or 3d, or RFC 3339.\n\n"+databaseHelp,
			"hooklatch events list --source acme-stripe --state retry_wait --since 2h",
			"hooklatch events list --unrouted --json"),
		Flags: append(databaseFlags(),
			&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"},
			&cli.StringFlag{Name: "tenant", Usage: "only of this tenant `NAME`"},
			&cli.StringFlag{Name: "type", Usage: "only of this event `TYPE`"},
			&cli.StringFlag{Name: "state", Usage: "only with a forward in this `STATE`: " + strings.Join(stateNames(), " ")},
			&cli.StringFlag{Name: "destination", Usage: "only with a forward to this destination `NAME`"},
			&cli.StringFlag{Name: "held", Usage: "only with a forward that is held for this `REASON`: " + strings.Join(holdReasons(), " ")},
			&cli.BoolFlag{Name: "unrouted", Usage: "only those without any forward"},
			&cli.BoolFlag{Name: "conflicts", Usage: "only those of whose id other bytes came too"},
			&cli.StringFlag{Name: "since", Usage: "only received since this `TIME`"},
			&cli.StringFlag{Name: "until", Usage: "only received before this `TIME`"},
			&cli.IntFlag{Name: "limit", Value: 50, Usage: "print at most this `NUMBER`; 0 is all"},
			&cli.StringFlag{Name: "after", Usage: "go on behind this `CURSOR` of an earlier list"},
		),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			o := listOptions{which: readWhichDatabase(c), since: c.String("since"), until: c.String("until"), json: c.Bool("json"),
				filter: inbox.Filter{Source: c.String("source"), Tenant: c.String("tenant"), EventType: c.String("type"),
					State: inbox.State(c.String("state")), Destination: c.String("destination"), Unrouted: c.Bool("unrouted"),
					HoldReason: inbox.HoldReason(c.String("held")), Conflict: c.Bool("conflicts"),
					Limit: c.Int("limit"), After: c.String("after")}}
			return eventsList(c.Context, s, o)
		},
	}
}

func stateNames() []string {
	return []string{"pending", "retry_wait", "held", "accepted", "blocked", "superseded", "cancelled"}
}

func holdReasons() []string { return []string{"gap", "backfill", "unverified", "person"} }

type listOptions struct {
	which        whichDatabase
	filter       inbox.Filter
	since, until string
	json         bool
}

func eventsList(ctx context.Context, s *stdio, o listOptions) error {
	if err := o.read(time.Now()); err != nil {
		return err
	}
	return o.which.withStore(ctx, func(store *inbox.Store) error {
		page := o.filter
		if page.Limit > 0 {
			page.Limit++ // one more tells whether the list goes on
		}
		var rows [][]string
		n, last, more := 0, "", false
		for d, err := range store.Find(ctx, page) {
			if err != nil {
				return badCursor("events list", o.filter.After, err)
			}
			if n++; o.filter.Limit > 0 && n > o.filter.Limit {
				more = true
				break
			}
			last = d.Cursor()
			forwards, err := store.Forwards(ctx, d.ID)
			if err != nil {
				return err
			}
			if o.json {
				if err := printJSON(s.out, describeDelivery(&d, forwards)); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, []string{d.ReceivedAt.UTC().Format("2006-01-02 15:04:05"), d.Source, d.DeliveryID,
				d.EventType, size(d.BodySize).String(), forwardStates(forwards)})
		}
		if n == 0 {
			s.note("no delivery fits")
		}
		if len(rows) > 0 {
			s.printTable([]string{"received (UTC)", "source", "delivery", "type", "size", "forwards"}, rows)
		}
		if more {
			s.note("next   %s", o.next(last))
		}
		return nil
	})
}

// badCursor tells a cursor that is none from trouble with the database.
func badCursor(command, after string, err error) error {
	if after == "" || errors.Is(err, inbox.ErrUnavailable) || errors.Is(err, inbox.ErrInternal) ||
		errors.Is(err, inbox.ErrBusy) || errors.Is(err, context.Canceled) {
		return err
	}
	return usagef("leave --after out", "%s: %w", command, err)
}

// read checks what was typed.
func (o *listOptions) read(now time.Time) (err error) {
	if o.filter.State != "" && !slices.Contains(stateNames(), string(o.filter.State)) {
		return usagef("--state retry_wait", "events list: unknown state %q: %s are known", o.filter.State, strings.Join(stateNames(), ", "))
	}
	if o.filter.HoldReason != "" && !slices.Contains(holdReasons(), string(o.filter.HoldReason)) {
		return usagef("--held gap", "events list: unknown reason %q: %s are known", o.filter.HoldReason, strings.Join(holdReasons(), ", "))
	}
	if o.filter.HoldReason != "" && o.filter.State != "" && o.filter.State != inbox.Held {
		return usagef("leave --state out", "events list: only what is held has a reason to be held")
	}
	if o.filter.Unrouted && (o.filter.State != "" || o.filter.Destination != "" || o.filter.HoldReason != "") {
		return usagef("leave --unrouted out", "events list: a delivery without forwards is in no state and goes to no destination")
	}
	if o.filter.Limit < 0 {
		return usagef("--limit 50", "events list: the limit is negative")
	}
	if o.filter.Since, err = parseMoment("--since", o.since, now); err != nil {
		return err
	}
	o.filter.Until, err = parseMoment("--until", o.until, now)
	return err
}

// parseMoment reads an age or an RFC 3339 time; empty is the zero time.
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if age, err := parseDuration(text); err == nil {
		return now.Add(-age), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usagef(flag+" 2h", "%s %q is neither an age such as 2h nor a time such as 2026-12-01T00:00:00Z", flag, text)
	}
	return at, nil
}

// next is the command that goes on behind the cursor.
func (o listOptions) next(cursor string) string {
	words := []string{programName(), "events", "list"}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, shellQuote(value))
		}
	}
	add("-c", o.which.config)
	add("--source", o.filter.Source)
	add("--tenant", o.filter.Tenant)
	add("--type", o.filter.EventType)
	add("--state", string(o.filter.State))
	add("--destination", o.filter.Destination)
	add("--held", string(o.filter.HoldReason))
	if o.filter.Unrouted {
		words = append(words, "--unrouted")
	}
	if o.filter.Conflict {
		words = append(words, "--conflicts")
	}
	if !o.filter.Since.IsZero() {
		add("--since", o.filter.Since.UTC().Format(time.RFC3339))
	}
	if o.filter.Limit != 50 {
		add("--limit", fmt.Sprint(o.filter.Limit))
	}
	if o.json {
		words = append(words, "--json")
	}
	add("--after", cursor)
	return strings.Join(words, " ")
}

func forwardStates(forwards []inbox.Forward) string {
	if len(forwards) == 0 {
		return "none"
	}
	var states []string
	for _, f := range forwards {
		state := f.Destination + " " + string(f.State)
		switch {
		case f.State == inbox.Held && f.HoldReason != "":
			state += " (" + string(f.HoldReason) + ")"
		case f.Waiting && open(f):
			state += " (waiting)"
		}
		states = append(states, state)
	}
	return strings.Join(states, ", ")
}

// deliveryLine is the JSON of a delivery.
type deliveryLine struct {
	V              int           `json:"v"`
	Outcome        string        `json:"outcome,omitempty"` // of the request, in a tail
	Cursor         string        `json:"cursor"`
	Tenant         string        `json:"tenant"`
	Source         string        `json:"source"`
	DeliveryID     string        `json:"delivery_id"`
	ReceivedAt     time.Time     `json:"received_at"`
	RequestID      string        `json:"request_id,omitempty"`
	Peer           string        `json:"peer,omitempty"`
	Scheme         string        `json:"scheme,omitempty"`
	KeyID          string        `json:"key_id,omitempty"`
	BodyHash       string        `json:"body_hash"`
	BodySize       int           `json:"body_size"`
	EventID        string        `json:"event_id,omitempty"`
	EventType      string        `json:"event_type,omitempty"`
	ResourceType   string        `json:"resource_type,omitempty"`
	ResourceID     string        `json:"resource_id,omitempty"`
	Revision       *int64        `json:"revision,omitempty"`
	Deleted        bool          `json:"deleted,omitempty"`
	MetaError      string        `json:"meta_error,omitempty"`
	ConfigRevision int64         `json:"config_revision,omitempty"`
	Status         string        `json:"status"` // routed, or unrouted: no destination takes it
	Forwards       []forwardLine `json:"forwards"`
}

// unroutedStatus is that of a delivery that has no forward.
const unroutedStatus = "unrouted"

// forwardLine is the JSON of a forward.
type forwardLine struct {
	Destination   string      `json:"destination"`
	State         inbox.State `json:"state"`
	Attempts      int         `json:"attempts"`
	NextAttemptAt *time.Time  `json:"next_attempt_at,omitempty"`
	ExpiresAt     *time.Time  `json:"expires_at,omitempty"`
	LeaseUntil    *time.Time  `json:"lease_until,omitempty"`
	BlockedReason string      `json:"blocked_reason,omitempty"`
	SettledAt     *time.Time  `json:"settled_at,omitempty"`

	Ordering   inbox.Ordering   `json:"ordering,omitempty"`
	HoldReason inbox.HoldReason `json:"hold_reason,omitempty"`
	Behind     *aheadLine       `json:"behind,omitempty"`           // of its lane
	Gap        *gapLine         `json:"gap,omitempty"`              // in its lane
	Paused     *pauseLine       `json:"paused,omitempty"`           // its destination, in a trace
	Breaker    *breakerLine     `json:"breaker,omitempty"`          // the same, where it is not closed
	Rate       string           `json:"rate,omitempty"`             // the same, where it is configured
	Applied    *int64           `json:"applied_revision,omitempty"` // of a superseded one, in a trace: what overtook it
	Passed     *int64           `json:"passed_revision,omitempty"`

	Ledger []attemptLine `json:"ledger,omitempty"`
}

func describeDelivery(d *inbox.Delivery, forwards []inbox.Forward) deliveryLine {
	line := deliveryLine{
		V: 1, Cursor: d.Cursor(), Tenant: d.Tenant, Source: d.Source, DeliveryID: d.DeliveryID, ReceivedAt: d.ReceivedAt.UTC(),
		Peer: d.Peer, Scheme: d.Scheme, KeyID: d.KeyID, BodyHash: hex.EncodeToString(d.BodyHash[:]), BodySize: d.BodySize,
		EventID: d.EventID, EventType: d.EventType, ResourceType: d.ResourceType, ResourceID: d.ResourceID,
		Revision: d.Revision, Deleted: d.Deleted, MetaError: d.MetaError, ConfigRevision: d.ConfigRevision,
		Status: "routed", Forwards: []forwardLine{},
	}
	if len(forwards) == 0 {
		line.Status = unroutedStatus
	}
	if d.RequestID != uuid.Nil {
		line.RequestID = d.RequestID.String()
	}
	for _, f := range forwards {
		line.Forwards = append(line.Forwards, describeForward(f))
	}
	return line
}

func describeForward(f inbox.Forward) forwardLine {
	line := forwardLine{Destination: f.Destination, State: f.State, Attempts: f.Attempt, BlockedReason: f.BlockedReason,
		LeaseUntil: moment(f.LeaseUntil), SettledAt: moment(f.SettledAt), Ordering: f.Ordering}
	if f.State == inbox.Held {
		line.HoldReason = f.HoldReason
	}
	if open(f) {
		line.NextAttemptAt, line.ExpiresAt = moment(f.NextAttemptAt), moment(f.ExpiresAt)
	}
	return line
}

// open says whether time alone moves the forward on.
func open(f inbox.Forward) bool { return f.State == inbox.Pending || f.State == inbox.RetryWait }

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// maxFits bounds how many deliveries are listed for one id.
const maxFits = 100

// findOne finds the delivery that an id means. Several are listed, exit code 2.
func findOne(ctx context.Context, s *stdio, store *inbox.Store, id, source string) (inbox.Delivery, error) {
	var chosen, byDeliveryID, byEventID []inbox.Delivery
	for d, err := range store.Find(ctx, inbox.Filter{ID: id, Source: source}) {
		if err != nil {
			return inbox.Delivery{}, err
		}
		chosen = append(chosen, d)
		if d.DeliveryID == id {
			byDeliveryID = append(byDeliveryID, d)
		}
		if d.EventID == id {
			byEventID = append(byEventID, d)
		}
		if len(chosen) == maxFits {
			break
		}
	}
	if len(byDeliveryID) == 1 {
		chosen = byDeliveryID
	} else if len(byDeliveryID) == 0 && len(byEventID) == 1 {
		chosen = byEventID // the others have a resource of that name
	}
	switch len(chosen) {
	case 0:
		return inbox.Delivery{}, errNoSuch
	case 1:
		return chosen[0], nil
	}
	terminal := isTerminal(s.err)
	for _, d := range chosen {
		fmt.Fprintf(s.err, "%s  %s  tenant %s  source %s  %s\n", d.ReceivedAt.UTC().Format(time.RFC3339),
			cell(d.DeliveryID, terminal), d.Tenant, d.Source, cell(d.EventType, terminal))
	}
	try := "--source NAME, or one of the delivery ids above"
	if chosen[0].ResourceType+"/"+chosen[0].ResourceID == id {
		try += ", or " + programName() + " resources show " + shellQuote(id)
	}
	return inbox.Delivery{}, usagef(try, "%s fits %d deliveries", id, len(chosen))
}

// errNoSuch: the inbox has no delivery of that id.
var errNoSuch = errors.New("not in the inbox")
