package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func deadCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "dead",
		Usage: "look at dead letters, give them to somebody, drop them",
		Description: example("A dead letter is a forward in state blocked: the destination refused it, or its attempts\n"+
			"or its time ran out. Only a person moves it: list and show them here, hand them on with\n"+
			"replay, or drop what is not wanted any more. Its body is kept as long as it is one.\n\n"+databaseHelp,
			"hooklatch dead list",
			"hooklatch replay --destination shop --state blocked --since 6h --dry-run"),
		Subcommands: []*cli.Command{deadListCommand(s), deadShowCommand(s), deadAssignCommand(s), deadDropCommand(s)},
	}
}

// deadFlags say which dead letters are meant.
func deadFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "destination", Usage: "only to this destination `NAME`"},
		&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"},
		&cli.StringFlag{Name: "tenant", Usage: "only of this tenant `NAME`"},
		&cli.StringFlag{Name: "type", Usage: "only of this event `TYPE`"},
		&cli.StringFlag{Name: "blocked-reason", Usage: "only those that are blocked for this `REASON`, such as attempts_exhausted"},
		&cli.StringFlag{Name: "class", Usage: "only those whose last attempt ended so, a `CLASS`: " + strings.Join(attemptClasses, " ")},
		&cli.StringFlag{Name: "since", Usage: "only dead since this `TIME`, an age or RFC 3339"},
		&cli.StringFlag{Name: "until", Usage: "only dead before this `TIME`"},
	}
}

// ownerFlag tells whose dead letters are meant.
func ownerFlag() cli.Flag {
	return &cli.StringFlag{Name: "owner", Usage: "only those that this `NAME` looks after"}
}

// readDeadFilter reads the flags of deadFlags.
func readDeadFilter(c *cli.Context, now time.Time) (f inbox.DeadFilter, err error) {
	f = inbox.DeadFilter{Destination: c.String("destination"), Source: c.String("source"), Tenant: c.String("tenant"), EventType: c.String("type"),
		Reason: c.String("blocked-reason"), Class: c.String("class")}
	if f.Class != "" && !slices.Contains(attemptClasses, f.Class) {
		return f, usagef("--class 5xx", "%s: unknown class %q: %s are known", shortName(c), f.Class, strings.Join(attemptClasses, ", "))
	}
	if f.Since, err = parseMoment("--since", c.String("since"), now); err != nil {
		return f, err
	}
	f.Until, err = parseMoment("--until", c.String("until"), now)
	return f, err
}

// deadWords writes a filter as the flags that it was read from.
func deadWords(f inbox.DeadFilter) (words []string) {
	for _, w := range []struct{ flag, value string }{
		{"--destination", f.Destination}, {"--source", f.Source}, {"--tenant", f.Tenant}, {"--type", f.EventType},
		{"--blocked-reason", f.Reason}, {"--class", f.Class}, {"--since", exactTime(f.Since)}, {"--until", exactTime(f.Until)},
	} {
		if w.value != "" {
			words = append(words, w.flag, shellQuote(w.value))
		}
	}
	return words
}

func exactTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func deadListCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list dead letters by destination, the oldest first",
		Description: example("List dead letters with their reason, their last error, since when they are dead and who\n"+
			"looks after them; then how many there are. --summary counts them by destination, owner,\n"+
			"reason and class of the last attempt. Exit code 0 also where there is none.\n\n"+databaseHelp,
			"hooklatch dead list --destination shop --class 5xx --since 6h",
			"hooklatch dead list --summary --json"),
		Flags: append(append(databaseFlags(), deadFlags()...), ownerFlag(),
			&cli.BoolFlag{Name: "summary", Usage: "only count them"},
			&cli.IntFlag{Name: "limit", Value: 50, Usage: "print at most this `NUMBER`; 0 is all"},
			&cli.StringFlag{Name: "after", Usage: "go on behind this `CURSOR` of an earlier list"}),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			f, err := readDeadFilter(c, time.Now())
			if err != nil {
				return err
			}
			f.Owner, f.Limit, f.After = c.String("owner"), c.Int("limit"), c.String("after")
			if f.Limit < 0 {
				return usagef("--limit 50", "dead list: the limit is negative")
			}
			o := deadListOptions{config: c.String("config"), filter: f, json: c.Bool("json")}
			return readWhichDatabase(c).withStore(c.Context, func(store *inbox.Store) error {
				if c.Bool("summary") {
					return deadSummary(c.Context, s, store, o)
				}
				return deadList(c.Context, s, store, o)
			})
		},
	}
}

type deadListOptions struct {
	config string
	filter inbox.DeadFilter
	json   bool
}

// deadLine is the JSON of a dead letter.
type deadLine struct {
	V             int           `json:"v"`
	Cursor        string        `json:"cursor"`
	Tenant        string        `json:"tenant"`
	Source        string        `json:"source"`
	DeliveryID    string        `json:"delivery_id"`
	EventType     string        `json:"event_type,omitempty"`
	ReceivedAt    time.Time     `json:"received_at"`
	Destination   string        `json:"destination"`
	DeadSince     time.Time     `json:"dead_since"`
	BlockedReason string        `json:"blocked_reason"`
	Owner         string        `json:"owner"` // empty: nobody
	Attempts      int           `json:"attempts"`
	First         *deadError    `json:"first_error,omitempty"`
	Last          *deadError    `json:"last_error,omitempty"`
	ReplayedBy    string        `json:"replayed_by,omitempty"`
	Pruned        bool          `json:"pruned,omitempty"`
	Superseded    bool          `json:"superseded,omitempty"`
	Ledger        []attemptLine `json:"attempts_made,omitempty"`
	Acts          []actLine     `json:"acts,omitempty"`
}

// deadError is how an attempt ended.
type deadError struct {
	Attempt int       `json:"attempt"`
	EndedAt time.Time `json:"ended_at"`
	Class   string    `json:"class"`
	Status  int       `json:"status,omitempty"`
	Error   string    `json:"error,omitempty"`
}

func describeError(a *inbox.Attempt) *deadError {
	if a == nil {
		return nil
	}
	return &deadError{Attempt: a.Number, EndedAt: a.EndedAt.UTC(), Class: a.Class, Status: a.Status, Error: a.Error}
}

// text is the end on a part of a line.
func (e *deadError) text() string {
	switch {
	case e == nil:
		return "never tried"
	case e.Status != 0:
		return fmt.Sprint(e.Status)
	case e.Error != "":
		return e.Class + ": " + beginning(e.Error, 60)
	}
	return e.Class
}

func describeDead(d *inbox.DeadLetter) deadLine {
	return deadLine{V: 1, Cursor: d.Cursor(), Tenant: d.Delivery.Tenant, Source: d.Delivery.Source, DeliveryID: d.Delivery.DeliveryID,
		EventType: d.Delivery.EventType, ReceivedAt: d.Delivery.ReceivedAt.UTC(), Destination: d.Destination, DeadSince: d.SettledAt.UTC(),
		BlockedReason: d.BlockedReason, Owner: d.Owner, Attempts: d.Attempt, First: describeError(d.First), Last: describeError(d.Last),
		ReplayedBy: d.ReplayedBy, Pruned: d.Pruned, Superseded: d.Superseded}
}

func deadList(ctx context.Context, s *stdio, store *inbox.Store, o deadListOptions) error {
	page := o.filter
	if page.Limit > 0 {
		page.Limit++ // one more tells whether the list goes on
	}
	var rows [][]string
	n, last, more, now := 0, "", false, time.Now()
	for d, err := range store.DeadLetters(ctx, page) {
		if err != nil {
			return badCursor("dead list", o.filter.After, err)
		}
		if n++; o.filter.Limit > 0 && n > o.filter.Limit {
			more = true
			break
		}
		last = d.Cursor()
		line := describeDead(&d)
		if o.json {
			if err := printJSON(s.out, line); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{line.Destination, line.DeadSince.Format("2006-01-02 15:04:05"), age(now.Sub(line.DeadSince)), line.Source, line.DeliveryID,
			orDash(line.EventType), line.reason(), line.Last.text(), fmt.Sprint(line.Attempts), cmp.Or(line.Owner, "nobody")})
	}
	if len(rows) > 0 {
		s.printTable([]string{"destination", "dead since (UTC)", "age", "source", "delivery", "type", "reason", "last error", "attempts", "owner"}, rows)
	}
	groups, over, err := store.DeadGroups(ctx, o.filter)
	if err != nil {
		return err
	}
	s.note("%s", deadTotals(groups, over, now))
	if more {
		words := append([]string{programName(), "dead", "list"}, o.words()...)
		s.note("next   %s", strings.Join(append(words, "--after", last), " "))
	}
	return nil
}

// reason is why it is dead, and what stands in the way of a replay.
func (l deadLine) reason() string {
	text := orDash(l.BlockedReason)
	if l.Superseded {
		text += ", superseded"
	}
	if l.Pruned {
		text += ", body gone"
	}
	return text
}

// words are the flags of the list.
func (o deadListOptions) words() (words []string) {
	if o.config != "" {
		words = append(words, "-c", shellQuote(o.config))
	}
	words = append(words, deadWords(o.filter)...)
	if o.filter.Owner != "" {
		words = append(words, "--owner", shellQuote(o.filter.Owner))
	}
	if o.filter.Limit != 50 {
		words = append(words, "--limit", fmt.Sprint(o.filter.Limit))
	}
	if o.json {
		words = append(words, "--json")
	}
	return words
}

// deadTotals says how many dead letters there are, how old the oldest is, and whose
// they are: one without the others hides a heap.
func deadTotals(groups []inbox.DeadGroup, more bool, now time.Time) string {
	n, owners := 0, map[string]int{}
	var oldest time.Time
	for _, g := range groups {
		n += g.Letters
		owners[cmp.Or(g.Owner, "nobody")] += g.Letters
		if oldest.IsZero() || g.Oldest.Before(oldest) {
			oldest = g.Oldest
		}
	}
	if n == 0 {
		return "no dead letter fits"
	}
	var names []string
	for name, n := range owners {
		names = append(names, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(names)
	text := counted(n, "dead letter")
	if more {
		text += " or more"
	}
	return fmt.Sprintf("%s, the oldest dead for %s, owners: %s", text, age(now.Sub(oldest)), strings.Join(names, ", "))
}

// deadGroupLine is the JSON of dead letters that are alike.
type deadGroupLine struct {
	Destination   string    `json:"destination"`
	Owner         string    `json:"owner"`
	BlockedReason string    `json:"blocked_reason"`
	Class         string    `json:"class"`
	Letters       int       `json:"dead_letters"`
	Oldest        time.Time `json:"oldest"`
}

// deadSummaryLine is the JSON of dead list --summary.
type deadSummaryLine struct {
	V       int             `json:"v"`
	Letters int             `json:"dead_letters"`
	More    bool            `json:"more,omitempty"` // only the first were counted
	Oldest  *time.Time      `json:"oldest,omitempty"`
	Groups  []deadGroupLine `json:"groups"`
}

func deadSummary(ctx context.Context, s *stdio, store *inbox.Store, o deadListOptions) error {
	groups, more, err := store.DeadGroups(ctx, o.filter)
	if err != nil {
		return err
	}
	line, now := deadSummaryLine{V: 1, More: more, Groups: []deadGroupLine{}}, time.Now()
	var rows [][]string
	for _, g := range groups {
		line.Letters += g.Letters
		if line.Oldest == nil || g.Oldest.Before(*line.Oldest) {
			line.Oldest = moment(g.Oldest)
		}
		line.Groups = append(line.Groups, deadGroupLine{g.Destination, g.Owner, g.Reason, g.Class, g.Letters, g.Oldest.UTC()})
		rows = append(rows, []string{g.Destination, cmp.Or(g.Owner, "nobody"), fmt.Sprint(g.Letters), age(now.Sub(g.Oldest)), orDash(g.Reason), orDash(g.Class)})
	}
	if o.json {
		return printJSON(s.out, line)
	}
	if len(rows) > 0 {
		s.printTable([]string{"destination", "owner", "dead letters", "oldest", "reason", "last attempt"}, rows)
	}
	s.note("%s", deadTotals(groups, more, now))
	return nil
}

func deadShowCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show the dead letters of one delivery, with every attempt",
		ArgsUsage: "ID",
		Description: example("Show why a delivery is dead at a destination: reason, attempts with what the app answered,\n"+
			"what people did, and what can be done. Exit code 1: it is nowhere a dead letter.\n\n"+databaseHelp,
			"hooklatch dead show dlv_8821 --destination shop"),
		Flags: append(databaseFlags(),
			&cli.StringFlag{Name: "destination", Usage: "only to this destination `NAME`"},
			&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"}),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "ID")
			if err != nil {
				return err
			}
			return readWhichDatabase(c).withStore(c.Context, func(store *inbox.Store) error {
				return deadShow(c.Context, s, store, args[0], inbox.DeadFilter{Source: c.String("source"), Destination: c.String("destination")}, c.Bool("json"))
			})
		},
	}
}

func deadShow(ctx context.Context, s *stdio, store *inbox.Store, id string, f inbox.DeadFilter, asJSON bool) error {
	d, err := findOne(ctx, s, store, id, f.Source)
	if errors.Is(err, errNoSuch) {
		return failNotFound(s, id, asJSON)
	}
	if err != nil {
		return err
	}
	f.Delivery = d.ID
	found := false
	for letter, err := range store.DeadLetters(ctx, f) {
		if err != nil {
			return err
		}
		found = true
		line := describeDead(&letter)
		for a, err := range store.Attempts(ctx, inbox.AttemptFilter{ForwardID: letter.ID}) {
			if err != nil {
				return err
			}
			line.Ledger = append(line.Ledger, describeAttempt(a))
		}
		for a, err := range store.Acts(ctx, inbox.ActFilter{Delivery: d.ID}) {
			if err != nil {
				return err
			}
			if a.ForwardID == letter.ID || a.ForwardID == 0 {
				line.Acts = append(line.Acts, actLine{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason, Detail: a.Detail, Destination: letter.Destination})
			}
		}
		if asJSON {
			err = printJSON(s.out, line)
		} else {
			err = line.print(s, time.Now())
		}
		if err != nil {
			return err
		}
	}
	if !found {
		return fail(exitNo, fmt.Errorf("dead show: %s is no dead letter", id), programName()+" trace "+shellQuote(id))
	}
	return nil
}

func (l deadLine) print(s *stdio, now time.Time) error {
	terminal := isTerminal(s.out)
	line := func(format string, args ...any) { fmt.Fprintln(s.out, cell(fmt.Sprintf(format, args...), terminal)) }
	line("%s to %s   %s   tenant %s   source %s", l.DeliveryID, l.Destination, orDash(l.EventType), l.Tenant, l.Source)
	line("  dead      since %s, %s ago: %s after %s", l.DeadSince.Format(time.RFC3339), age(now.Sub(l.DeadSince)), l.reason(), counted(l.Attempts, "attempt"))
	line("  owner     %s", cmp.Or(l.Owner, "nobody"))
	for _, a := range l.Ledger {
		line("  attempt   %d   %s   %s", a.Number, a.EndedAt.Format(time.RFC3339), a.text())
	}
	for _, a := range l.Acts {
		line("  %-9s %s   %s", a.Action, a.At.Format(time.RFC3339), a.text())
	}
	of := shellQuote(l.DeliveryID) + " --source " + shellQuote(l.Source) + " --destination " + shellQuote(l.Destination)
	next := programName() + " replay --delivery " + of
	switch {
	case l.Pruned:
		next = programName() + " dead drop --delivery " + of
	case l.Superseded:
		next += " --force   |   " + programName() + " dead drop --delivery " + of
	}
	line("  next      %s", next)
	return nil
}
