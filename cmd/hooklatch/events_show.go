package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func sourceFlag() cli.Flag {
	return &cli.StringFlag{Name: "source", Usage: "`NAME` of the source, where the id fits several deliveries"}
}

func eventsShowCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one delivery: facts, headers, forwards",
		ArgsUsage: "ID",
		Description: example("Show what is known of a delivery. Headers that may hold a secret are masked.\n\n"+databaseHelp,
			"hooklatch events show dlv_8821"),
		Flags: append(databaseFlags(), sourceFlag()),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "ID")
			if err != nil {
				return err
			}
			return eventsShow(c.Context, s, readWhichDatabase(c), args[0], c.String("source"), c.Bool("json"))
		},
	}
}

// shownDelivery is the JSON of events show.
type shownDelivery struct {
	deliveryLine
	Method    string         `json:"method,omitempty"`
	Query     string         `json:"query,omitempty"`
	Headers   http.Header    `json:"headers,omitempty"`
	Pruned    bool           `json:"body_pruned"`
	Gone      string         `json:"body_gone,omitempty"` // since when, for people
	Conflicts []conflictLine `json:"conflicts"`
}

// conflictLine is the JSON of another body under the same id.
type conflictLine struct {
	BodyHash    string    `json:"body_hash"`
	BodySize    int       `json:"body_size"`
	Pruned      bool      `json:"body_pruned"`
	KeyID       string    `json:"key_id,omitempty"`
	Seen        int       `json:"seen"`
	FirstSeenAt time.Time `json:"first_seen_at"`
	LastSeenAt  time.Time `json:"last_seen_at"`
}

func describeConflicts(conflicts []inbox.Conflict) []conflictLine {
	lines := []conflictLine{}
	for _, c := range conflicts {
		lines = append(lines, conflictLine{BodyHash: hex.EncodeToString(c.BodyHash[:]), BodySize: c.BodySize, Pruned: c.Pruned, KeyID: c.KeyID,
			Seen: c.Seen, FirstSeenAt: c.FirstSeenAt.UTC(), LastSeenAt: c.LastSeenAt.UTC()})
	}
	return lines
}

func eventsShow(ctx context.Context, s *stdio, which whichDatabase, id, source string, asJSON bool) error {
	return which.withStore(ctx, func(store *inbox.Store) error {
		d, err := findOne(ctx, s, store, id, source)
		if errors.Is(err, errNoSuch) {
			return notFound(s, id, asJSON)
		}
		if err != nil {
			return err
		}
		forwards, err := store.Forwards(ctx, d.ID)
		if err != nil {
			return err
		}
		conflicts, err := store.Conflicts(ctx, d.Tenant, d.Source, d.DeliveryID)
		if err != nil {
			return err
		}
		shown := shownDelivery{deliveryLine: describeDelivery(&d, forwards), Conflicts: describeConflicts(conflicts)}
		if err := addPlaces(ctx, store, forwards, shown.Forwards); err != nil {
			return err
		}
		whole, err := store.Payload(ctx, d.ID)
		switch {
		case errors.Is(err, inbox.ErrPruned):
			shown.Pruned, shown.Gone = true, which.kept().goneText(d.ReceivedAt, time.Now())
		case err != nil:
			return err
		}
		shown.Method, shown.Query, shown.Headers = whole.Method, whole.RawQuery, maskHeaders(whole.Header)
		if asJSON {
			return printJSON(s.out, shown)
		}
		return shown.print(s.out, isTerminal(s.out))
	})
}

// notFound is the answer to an id that the inbox does not have.
func notFound(s *stdio, id string, asJSON bool) error {
	if asJSON {
		return errors.Join(printJSON(s.out, struct {
			V     int    `json:"v"`
			ID    string `json:"id"`
			Found bool   `json:"found"`
		}{1, id, false}), answerNo())
	}
	fmt.Fprintf(s.out, "%s is not in the inbox\n", cell(id, isTerminal(s.out)))
	fmt.Fprintln(s.out, "  looked for   delivery id, event id, request id, TYPE/ID or ID of a resource, hash of a body")
	fmt.Fprintf(s.out, "  next         %s trace %s\n", programName(), cell(shellQuote(id), isTerminal(s.out)))
	return answerNo()
}

// failNotFound is notFound for commands whose results are of another kind.
func failNotFound(s *stdio, id string, asJSON bool) error {
	if asJSON {
		return notFound(s, id, true)
	}
	return fail(exitNo, fmt.Errorf("%s is not in the inbox", id), "hooklatch trace "+shellQuote(id))
}

// maskHeaders hides what may be a signature or a secret.
func maskHeaders(header map[string][]string) http.Header {
	masked := http.Header{}
	for name, values := range header {
		lower := strings.ToLower(name)
		if slices.ContainsFunc([]string{"signature", "authorization", "token", "secret", "hmac", "cookie", "-key", "-sig"}, func(word string) bool {
			return strings.Contains(lower, word) && !strings.Contains(lower, "key-id")
		}) {
			values = []string{redacted}
		}
		masked[name] = values
	}
	return masked
}

func (d shownDelivery) print(w io.Writer, terminal bool) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-12s %s\n", name, cell(fmt.Sprintf(format, args...), terminal))
	}
	fmt.Fprintf(w, "%s   %s   tenant %s   source %s\n", cell(d.DeliveryID, terminal), cell(d.EventType, terminal), d.Tenant, d.Source)
	line("received", "%s from %s, request %s", d.ReceivedAt.Format(time.RFC3339Nano), orDash(d.Peer), orDash(d.RequestID))
	line("verified", "scheme %s, key %s", orDash(d.Scheme), orDash(d.KeyID))
	line("body", "%d bytes, body hash %s", d.BodySize, d.BodyHash)
	if d.Pruned {
		line("", "%s", d.Gone)
	}
	if d.EventID != "" {
		line("event", "%s", d.EventID)
	}
	if d.ResourceID != "" {
		line("resource", "%s/%s%s", d.ResourceType, d.ResourceID, d.revision())
	}
	if d.MetaError != "" {
		line("metadata", "%s", d.MetaError)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		for _, value := range d.Headers[name] {
			line("header", "%s: %s", name, value)
		}
	}
	if d.Status == unroutedStatus {
		line("status", "%s", d.unrouted())
	}
	for _, f := range d.Forwards {
		line("forward", "%s", f.text())
	}
	for _, c := range d.Conflicts {
		size := fmt.Sprintf("%d bytes", c.BodySize)
		if c.Pruned {
			size += ", removed by retention"
		}
		line("conflict", "%s, body hash %s, key %s, seen %d × until %s", size, c.BodyHash, orDash(c.KeyID), c.Seen, c.LastSeenAt.Format(time.RFC3339))
	}
	me := programName()
	next := me + " trace " + shellQuote(d.DeliveryID)
	if !d.Pruned {
		next += "   |   " + me + " events body " + shellQuote(d.DeliveryID) + " --pretty"
	}
	_, err := fmt.Fprintf(w, "  %-12s %s\n", "next", cell(next, terminal))
	return err
}

func (d deliveryLine) revision() string {
	text := ""
	if d.Revision != nil {
		text = fmt.Sprintf(", revision %d", *d.Revision)
	}
	if d.Deleted {
		text += ", deleted"
	}
	return text
}

// unrouted says what of a delivery without forwards becomes.
func (d deliveryLine) unrouted() string {
	return "unrouted: no destination took " + typeText(d.EventType) + "; once one does: " +
		programName() + " replay --delivery " + shellQuote(d.DeliveryID) + " --source " + shellQuote(d.Source)
}

// text is the forward on one line.
func (f forwardLine) text() string {
	text := fmt.Sprintf("%s   %s after %s", f.Destination, f.State, counted(f.Attempts, "attempt"))
	if f.Ordering != inbox.OrderNone {
		text += ", ordering " + string(f.Ordering)
	}
	if f.BlockedReason != "" {
		text += ", " + f.BlockedReason
	}
	if place := f.place(time.Now()); place != "" {
		return text + ", " + place
	}
	if f.State == inbox.RetryWait && f.NextAttemptAt != nil {
		text += ", next at " + f.NextAttemptAt.Format(time.RFC3339)
	}
	return text
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func eventsBodyCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "body",
		Usage:     "print the body of a delivery",
		ArgsUsage: "ID",
		Description: example("Print the body as it was received. --raw is every byte; --hex shows bytes; --pretty\n"+
			"indents JSON and leaves its numbers as they are written. Without a choice a terminal\n"+
			"gets --pretty where the body is JSON, anything else --raw.\n\n"+databaseHelp,
			"hooklatch events body dlv_8821 --raw > body.bin"),
		Flags: append(databaseFlags(), sourceFlag(),
			&cli.BoolFlag{Name: "raw", Usage: "print exact bytes"},
			&cli.BoolFlag{Name: "hex", Usage: "print bytes as hex"},
			&cli.BoolFlag{Name: "pretty", Usage: "print JSON indented"},
		),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "ID")
			if err != nil {
				return err
			}
			var ways []string
			for _, way := range []string{"raw", "hex", "pretty", "json"} {
				if c.Bool(way) {
					ways = append(ways, way)
				}
			}
			if len(ways) > 1 {
				return usagef("--"+ways[0], "events body: %s exclude one another", "--"+strings.Join(ways, " and --"))
			}
			return eventsBody(c.Context, s, readWhichDatabase(c), args[0], c.String("source"), strings.Join(ways, ""))
		},
	}
}

func eventsBody(ctx context.Context, s *stdio, which whichDatabase, id, source, way string) error {
	return which.withStore(ctx, func(store *inbox.Store) error {
		d, err := findOne(ctx, s, store, id, source)
		if errors.Is(err, errNoSuch) {
			return failNotFound(s, id, way == "json")
		}
		if err != nil {
			return err
		}
		whole, err := store.Payload(ctx, d.ID)
		if errors.Is(err, inbox.ErrPruned) {
			return fail(exitNo, fmt.Errorf("the body of %s is gone: %s; it had %d bytes, body hash %x",
				d.DeliveryID, which.kept().goneText(d.ReceivedAt, time.Now()), d.BodySize, d.BodyHash), "")
		}
		if err != nil {
			return err
		}
		return printBody(s, &whole, way)
	})
}

func printBody(s *stdio, d *inbox.Delivery, way string) error {
	terminal := isTerminal(s.out)
	var pretty bytes.Buffer
	isJSON := json.Indent(&pretty, d.Body, "", "  ") == nil
	if way == "" && terminal && isJSON {
		way = "pretty"
	}
	var err error
	switch way {
	case "json":
		return printJSON(s.out, struct {
			V           int    `json:"v"`
			DeliveryID  string `json:"delivery_id"`
			Source      string `json:"source"`
			ContentType string `json:"content_type,omitempty"`
			BodyHash    string `json:"body_hash"`
			BodySize    int    `json:"body_size"`
			Body        string `json:"body_base64"`
		}{1, d.DeliveryID, d.Source, http.Header(d.Header).Get("Content-Type"), hex.EncodeToString(d.BodyHash[:]), len(d.Body),
			base64.StdEncoding.EncodeToString(d.Body)})
	case "hex":
		_, err = io.WriteString(s.out, hex.Dump(d.Body))
	case "pretty":
		if !isJSON {
			return fail(exitNo, fmt.Errorf("the body of %s is not JSON", d.DeliveryID), "--raw or --hex")
		}
		pretty.WriteByte('\n')
		_, err = io.WriteString(s.out, printable(pretty.String(), terminal))
	default:
		if terminal && !utf8.Valid(d.Body) {
			return fail(exitNo, fmt.Errorf("the body of %s is not text", d.DeliveryID), "--hex, or --raw into a file")
		}
		if terminal {
			s.note("note: control characters are escaped on a terminal; write to a file for exact bytes")
		}
		_, err = io.WriteString(s.out, printable(string(d.Body), terminal))
	}
	return err
}
