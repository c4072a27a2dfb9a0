package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func eventsDiffCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "diff",
		Usage: "show how two bodies under one delivery id differ",
		Description: example("Show the body that is stored under a delivery id beside another one that came under it,\n"+
			"and how they differ: values of JSON by their pointers, texts line by line, other bytes as\n"+
			"hex. Where the difference is no more than a counter it says which conflict_ignore of the\n"+
			"source makes such bodies one delivery. Of several other bodies --hash picks one. The exit\n"+
			"code is 1 where there is nothing to compare: no conflict, or a body that retention has\n"+
			"removed. Headers that may hold a secret are masked.\n\n"+databaseHelp,
			"hooklatch events diff --conflict dlv_8821",
			"hooklatch events diff --conflict dlv_8821 --hash 3b5c8a15 --json"),
		Flags: append(databaseFlags(), sourceFlag(),
			&cli.StringFlag{Name: "conflict", Usage: "`ID` of the delivery"},
			&cli.StringFlag{Name: "hash", Usage: "`HASH` of the other body, or how it begins"},
		),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			o := diffOptions{which: readWhichDatabase(c), id: c.String("conflict"), source: c.String("source"),
				hash: strings.ToLower(c.String("hash")), json: c.Bool("json")}
			if o.id == "" {
				return usagef("hooklatch events diff --conflict ID", "events diff: which delivery?")
			}
			return eventsDiff(c.Context, s, o)
		},
	}
}

type diffOptions struct {
	which            whichDatabase
	id, source, hash string
	json             bool
}

// conflictDiff is the JSON of events diff.
type conflictDiff struct {
	V          int    `json:"v"`
	ID         string `json:"id"`
	Found      bool   `json:"found"`
	DeliveryID string `json:"delivery_id"`
	Source     string `json:"source"`
	Tenant     string `json:"tenant"`

	First diffSide `json:"first"` // what is stored
	Other diffSide `json:"other"`

	Headers []headerDiff `json:"headers"`
	*bodyDiff
}

// diffSide is one of two bodies.
type diffSide struct {
	BodyHash  string     `json:"body_hash"`
	BodySize  int        `json:"body_size"`
	Pruned    bool       `json:"body_pruned"`
	KeyID     string     `json:"key_id,omitempty"`
	RequestID string     `json:"request_id,omitempty"`
	At        time.Time  `json:"at"` // of the first request that brought it
	Seen      int        `json:"seen,omitempty"`
	Until     *time.Time `json:"until,omitempty"`
	Body      *string    `json:"body_base64,omitempty"`
}

// headerDiff is a header that only one of two requests had, or with other values.
type headerDiff struct {
	Name  string   `json:"name"`
	First []string `json:"first"`
	Other []string `json:"other"`
}

func eventsDiff(ctx context.Context, s *stdio, o diffOptions) error {
	return o.which.withStore(ctx, func(store *inbox.Store) error {
		d, err := findOne(ctx, s, store, o.id, o.source)
		if errors.Is(err, errNoSuch) {
			return notFound(s, o.id, o.json)
		}
		if err != nil {
			return err
		}
		conflicts, err := store.Conflicts(ctx, d.Tenant, d.Source, d.DeliveryID)
		if err != nil {
			return err
		}
		if len(conflicts) == 0 {
			return fail(exitNo, fmt.Errorf("%s has no conflict: no other body came under this id", d.DeliveryID), programName()+" trace "+shellQuote(d.DeliveryID))
		}
		other, err := o.choose(s, &d, conflicts)
		if err != nil {
			return err
		}
		whole, err := store.Payload(ctx, d.ID)
		pruned := errors.Is(err, inbox.ErrPruned)
		if err != nil && !pruned {
			return err
		}
		shown := describeConflict(o.id, &whole, pruned, other)
		if o.json {
			err = printJSON(s.out, shown)
		} else {
			err = shown.print(s.out, isTerminal(s.out))
		}
		if err == nil && shown.bodyDiff == nil {
			return answerNo()
		}
		return err
	})
}

// choose picks the other body. Where several fit, it lists them.
func (o diffOptions) choose(s *stdio, d *inbox.Delivery, conflicts []inbox.Conflict) (*inbox.Conflict, error) {
	fits := slices.DeleteFunc(slices.Clone(conflicts), func(c inbox.Conflict) bool {
		return !strings.HasPrefix(hex.EncodeToString(c.BodyHash[:]), o.hash)
	})
	if len(fits) == 1 {
		return &fits[0], nil
	}
	for _, c := range conflicts {
		fmt.Fprintf(s.err, "%x  %s  key %s  %d bytes  seen %d ×\n", c.BodyHash, c.FirstSeenAt.UTC().Format(time.RFC3339),
			orDash(c.KeyID), c.BodySize, c.Seen)
	}
	try := fmt.Sprintf("--hash %x, or another of these", conflicts[0].BodyHash[:4])
	if len(fits) == 0 {
		return nil, usagef(try, "events diff: no other body of %s has a hash that begins with %q", d.DeliveryID, o.hash)
	}
	return nil, usagef(try, "events diff: %d other bodies of %s fit", len(fits), d.DeliveryID)
}

func describeConflict(id string, first *inbox.Delivery, pruned bool, other *inbox.Conflict) conflictDiff {
	until := other.LastSeenAt.UTC()
	t := conflictDiff{
		V: 1, ID: id, Found: true, DeliveryID: first.DeliveryID, Source: first.Source, Tenant: first.Tenant, Headers: []headerDiff{},
		First: diffSide{BodyHash: hex.EncodeToString(first.BodyHash[:]), BodySize: first.BodySize, Pruned: pruned, KeyID: first.KeyID,
			RequestID: idText(first.RequestID), At: first.ReceivedAt.UTC()},
		Other: diffSide{BodyHash: hex.EncodeToString(other.BodyHash[:]), BodySize: other.BodySize, Pruned: other.Pruned, KeyID: other.KeyID,
			RequestID: idText(other.RequestID), At: other.FirstSeenAt.UTC(), Seen: other.Seen, Until: &until},
	}
	base := func(body []byte) *string {
		text := base64.StdEncoding.EncodeToString(body)
		return &text
	}
	if !pruned {
		t.First.Body = base(first.Body)
	}
	if !other.Pruned {
		t.Other.Body = base(other.Body)
	}
	if pruned || other.Pruned {
		return t // headers go with their body
	}
	t.Headers = differingHeaders(first.Header, other.Header)
	t.bodyDiff = compareBodies(first.Body, other.Body, http.Header(first.Header).Get("Content-Type"))
	return t
}

func idText(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

func differingHeaders(first, other map[string][]string) []headerDiff {
	all := []headerDiff{}
	shownFirst, shownOther := maskHeaders(first), maskHeaders(other)
	names := slices.AppendSeq(slices.Collect(maps.Keys(first)), maps.Keys(other))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.Equal(first[name], other[name]) {
			all = append(all, headerDiff{name, nonNil(shownFirst[name]), nonNil(shownOther[name])})
		}
	}
	return all
}

func nonNil(values []string) []string {
	if values == nil {
		return []string{}
	}
	return values
}

func (t conflictDiff) print(w io.Writer, terminal bool) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-12s %s\n", name, cell(fmt.Sprintf(format, args...), terminal))
	}
	fmt.Fprintf(w, "%s   tenant %s   source %s\n", cell(t.DeliveryID, terminal), t.Tenant, t.Source)
	line("first", "%s", t.First.text())
	line("other", "%s", t.Other.text())
	if t.bodyDiff == nil {
		line("bodies", "cannot be compared: retention has removed %s", t.gone())
		return nil
	}
	for _, h := range t.Headers {
		line("header", "%s: %s → %s", h.Name, headerText(h.First), headerText(h.Other))
	}
	t.bodyDiff.describe(line, t.Source)
	_, err := io.WriteString(w, printable(t.bodyDiff.clipped(), terminal))
	return err
}

func (d diffSide) text() string {
	text := fmt.Sprintf("%s, key %s, %d bytes, body hash %s, request %s", d.At.Format(time.RFC3339), orDash(d.KeyID), d.BodySize, d.BodyHash, orDash(d.RequestID))
	if d.Until != nil {
		text += fmt.Sprintf(", seen %d × until %s", d.Seen, d.Until.Format(time.RFC3339))
	}
	return text
}

// gone says which of the bodies are.
func (t conflictDiff) gone() string {
	switch {
	case t.First.Pruned && t.Other.Pruned:
		return "both; their hashes, sizes and times stay"
	case t.First.Pruned:
		return "the first; its hash, size and time stay, and --json has the other"
	}
	return "the other; its hash, size and time stay, and --json has the first"
}

func headerText(values []string) string {
	if len(values) == 0 {
		return "(absent)"
	}
	return strings.Join(values, ", ")
}
