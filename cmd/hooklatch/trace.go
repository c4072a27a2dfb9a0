package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func traceCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "trace",
		Usage:     "say where an event went",
		ArgsUsage: "ANY-ID",
		Description: example("Show the way of one delivery in the order of time: its receipt, every attempt, and what\n"+
			"it waits for now. The id may be a delivery id, an event id, a request id, or TYPE/ID of\n"+
			"a resource. Exit code 1: it is not in the inbox, and where a refused request is known by\n"+
			"that delivery id or request id, it is shown; 2: the id fits several deliveries.\n\n"+databaseHelp,
			"hooklatch trace evt_1PqX"),
		Flags: append(databaseFlags(), sourceFlag()),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "ANY-ID")
			if err != nil {
				return err
			}
			return trace(c.Context, s, readWhichDatabase(c), args[0], c.String("source"), c.Bool("json"))
		},
	}
}

// maxTracedAttempts bounds the ledger that is read of one forward.
const maxTracedAttempts = 1000

// attemptLine is the JSON of an attempt.
type attemptLine struct {
	Number  int       `json:"number"`
	EndedAt time.Time `json:"ended_at"`
	Took    float64   `json:"took_ms"`
	Class   string    `json:"class"`
	Status  int       `json:"status,omitempty"`
	Error   string    `json:"error,omitempty"`
	Answer  []byte    `json:"answer_base64,omitempty"`
	Late    bool      `json:"late,omitempty"`
	Worker  string    `json:"worker,omitempty"`

	duration time.Duration
}

// traced is the JSON of trace.
type traced struct {
	V         int            `json:"v"`
	ID        string         `json:"id"`
	Found     bool           `json:"found"`
	Delivery  deliveryLine   `json:"delivery"`
	Conflicts []conflictLine `json:"conflicts"`
	Gone      string         `json:"body_gone,omitempty"` // since when, for people

	receivedAt time.Time // by our clock, from the request id
}

func trace(ctx context.Context, s *stdio, which whichDatabase, id, source string, asJSON bool) error {
	return which.withStore(ctx, func(store *inbox.Store) error {
		d, err := findOne(ctx, s, store, id, source)
		if errors.Is(err, errNoSuch) {
			return traceRefused(ctx, s, store, id, asJSON)
		}
		if err != nil {
			return err
		}
		t, err := readTrace(ctx, store, &d)
		if err != nil {
			return err
		}
		t.ID = id
		kept, err := store.Kept(ctx, d.ID)
		if err != nil {
			return err
		}
		if !kept {
			t.Gone = which.kept().goneText(d.ReceivedAt, time.Now())
		}
		if asJSON {
			return printJSON(s.out, t)
		}
		return t.print(s.out, isTerminal(s.out), time.Now())
	})
}

func readTrace(ctx context.Context, store *inbox.Store, d *inbox.Delivery) (traced, error) {
	forwards, err := store.Forwards(ctx, d.ID)
	if err != nil {
		return traced{}, err
	}
	conflicts, err := store.Conflicts(ctx, d.Tenant, d.Source, d.DeliveryID)
	if err != nil {
		return traced{}, err
	}
	t := traced{V: 1, Found: true, Delivery: describeDelivery(d, forwards), Conflicts: describeConflicts(conflicts),
		receivedAt: receivedAt(d)}
	if err := addPlaces(ctx, store, forwards, t.Delivery.Forwards); err != nil {
		return traced{}, err
	}
	for i, f := range forwards {
		for a, err := range store.Attempts(ctx, inbox.AttemptFilter{ForwardID: f.ID, Limit: maxTracedAttempts}) {
			if err != nil {
				return traced{}, err
			}
			t.Delivery.Forwards[i].Ledger = append(t.Delivery.Forwards[i].Ledger, attemptLine{
				Number: a.Number, EndedAt: a.EndedAt.UTC(), Took: float64(a.Duration.Microseconds()) / 1000, Class: a.Class,
				Status: a.Status, Error: a.Error, Answer: a.Answer, Late: a.Late, Worker: a.Worker, duration: a.Duration})
		}
	}
	return t, nil
}

// receivedAt is when the request came in: its id holds the time. The commit can
// only be later.
func receivedAt(d *inbox.Delivery) time.Time {
	if d.RequestID == uuid.Nil || d.RequestID.Version() != 7 {
		return d.ReceivedAt
	}
	at := time.Unix(d.RequestID.Time().UnixTime()).UTC()
	if at.After(d.ReceivedAt) || d.ReceivedAt.Sub(at) > time.Minute {
		return d.ReceivedAt // the clocks differ
	}
	return at
}

// traceLine is one line of a trace.
type traceLine struct {
	at    time.Time
	who   string
	what  string
	state string // of the forward after it
}

// lines puts everything that happened in the order of time.
func (t traced) lines() []traceLine {
	d := t.Delivery
	lines := []traceLine{
		{t.receivedAt, "received", fmt.Sprintf("request %s from %s, %d bytes, key %s", orDash(d.RequestID), orDash(d.Peer), d.BodySize, orDash(d.KeyID)), ""},
		{d.ReceivedAt, "accepted", fmt.Sprintf("body hash %s…, configuration %d", d.BodyHash[:8], d.ConfigRevision), ""},
	}
	for _, f := range d.Forwards {
		lines = append(lines, f.lines()...)
	}
	for _, c := range t.Conflicts {
		what := fmt.Sprintf("other bytes, body hash %s…, key %s", c.BodyHash[:8], orDash(c.KeyID))
		if c.Seen > 1 {
			what += fmt.Sprintf("   ×%d until %s", c.Seen, c.LastSeenAt.Format("15:04:05"))
		}
		lines = append(lines, traceLine{c.FirstSeenAt, "conflict", what, ""})
	}
	slices.SortStableFunc(lines, func(a, b traceLine) int { return a.at.Compare(b.at) })
	return lines
}

// lines are the attempts of a forward; equal ones in a row are one line.
func (f forwardLine) lines() (lines []traceLine) {
	for i := 0; i < len(f.Ledger); {
		a := f.Ledger[i]
		same := i + 1
		for same < len(f.Ledger) && f.Ledger[same].equal(a) {
			same++
		}
		line := traceLine{at: a.EndedAt, who: f.Destination, what: fmt.Sprintf("attempt %d   %s", a.Number, a.text())}
		if same-i > 1 {
			last := f.Ledger[same-1]
			line.what = fmt.Sprintf("attempts %d to %d   %s   ×%d until %s", a.Number, last.Number, a.outcome(), same-i, last.EndedAt.Format("15:04:05"))
		}
		if same == len(f.Ledger) && !a.Late {
			line.state = string(f.State)
		}
		lines = append(lines, line)
		i = same
	}
	return lines
}

// equal says whether two attempts ended alike.
func (a attemptLine) equal(b attemptLine) bool {
	return a.Class == b.Class && a.Status == b.Status && a.Error == b.Error && a.Late == b.Late && string(a.Answer) == string(b.Answer)
}

// outcome is the status, or the kind of end without one.
func (a attemptLine) outcome() string {
	if a.Status != 0 {
		return fmt.Sprint(a.Status)
	}
	return a.Class
}

func (a attemptLine) text() string {
	text := a.outcome()
	if a.duration > 0 {
		text += " in " + shortDuration(a.duration)
	}
	if a.Error != "" && a.Status == 0 {
		text += "   " + a.Error
	}
	if len(a.Answer) > 0 && a.Class != "2xx" {
		text += fmt.Sprintf("   %q", beginning(strings.ToValidUTF8(string(a.Answer), "?"), 60))
	}
	if a.Late {
		text += "   late: its lease was lost, nothing changed"
	}
	return text
}

// beginning cuts s to n characters.
func beginning(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}

func shortDuration(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func (t traced) print(w io.Writer, terminal bool, now time.Time) error {
	d, lines := t.Delivery, t.lines()
	format, day := "15:04:05.000", lines[0].at.UTC().Format(time.DateOnly)
	if lines[len(lines)-1].at.UTC().Format(time.DateOnly) != day {
		format = "01-02 15:04:05"
	}
	fmt.Fprintf(w, "%s   %s   tenant %s   source %s   %s (UTC)   %s\n", cell(d.DeliveryID, terminal), cell(orDash(d.EventType), terminal),
		d.Tenant, d.Source, day, counted(len(d.Forwards), "forward"))
	who := len("received")
	for _, l := range lines {
		who = max(who, len(l.who))
	}
	row := func(when, name, what, state string) {
		line := fmt.Sprintf("  %-*s  %-*s  %s", len(format), when, who, name, what)
		if state != "" {
			line = fmt.Sprintf("%-84s  %s", line, state)
		}
		fmt.Fprintln(w, cell(line, terminal))
	}
	for _, l := range lines {
		row(l.at.UTC().Format(format), l.who, l.what, l.state)
	}
	for _, f := range d.Forwards {
		if f.Attempts > 0 && len(f.Ledger) == 0 && f.LeaseUntil == nil {
			row("now", f.Destination, fmt.Sprintf("%s after %s, of which retention has removed the ledger", f.State, counted(f.Attempts, "attempt")), "")
		}
		if now := f.waits(now); now != "" {
			row("now", f.Destination, now, "")
		}
	}
	if len(d.Forwards) == 0 {
		row("now", "–", d.unrouted(), "")
	}
	events := programName() + " events "
	next := events + "show " + shellQuote(d.DeliveryID)
	if t.Gone == "" {
		next += "   |   " + events + "body " + shellQuote(d.DeliveryID) + " --pretty"
	} else {
		row("now", "body", t.Gone, "")
	}
	_, err := fmt.Fprintf(w, "  %-*s  %s\n", len(format), "next", cell(next, terminal))
	return err
}

// waits says what a forward that is not settled waits for.
func (f forwardLine) waits(now time.Time) string {
	switch {
	case f.LeaseUntil != nil && f.LeaseUntil.After(now):
		return fmt.Sprintf("attempt %d is under way, lease until %s", f.Attempts, f.LeaseUntil.Format("15:04:05"))
	case f.State == inbox.Blocked:
		return fmt.Sprintf("blocked (%s) after %s: only a person moves it", orDash(f.BlockedReason), counted(f.Attempts, "attempt"))
	case f.place(now) != "":
		return fmt.Sprintf("%s: %s", f.State, f.place(now))
	case f.NextAttemptAt == nil:
		return ""
	case f.ExpiresAt != nil && !f.ExpiresAt.After(now):
		return fmt.Sprintf("%s, its time ended %s: no attempt begins any more", f.State, f.ExpiresAt.Format(time.RFC3339))
	case f.NextAttemptAt.After(now):
		return fmt.Sprintf("%s, attempt %d in %s", f.State, f.Attempts+1, shortDuration(f.NextAttemptAt.Sub(now)))
	}
	return fmt.Sprintf("%s, attempt %d is due: a running server takes it", f.State, f.Attempts+1)
}
