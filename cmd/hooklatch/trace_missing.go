package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hooklatch/hooklatch/inbox"
)

// notTraced is the JSON of trace for an id that the inbox does not have: "not found" is
// an answer with evidence.
type notTraced struct {
	V         int            `json:"v"`
	ID        string         `json:"id"`
	Found     bool           `json:"found"`
	Refusals  []*refusalLine `json:"refusals"`               // whose sample it is
	KeptSince time.Time      `json:"kept_since"`             // identities
	Oldest    *time.Time     `json:"oldest_at,omitempty"`    // delivery that is there
	LastAt    *time.Time     `json:"latest_at,omitempty"`    // delivery that is there, of the source if one was named
	Refused   []refusedLine  `json:"refused_last_24h"`       // by source and code
	Likely    string         `json:"likely"`                 // for people
	Next      []string       `json:"next"`                   // commands
	CutAt     *time.Time     `json:"counted_from,omitempty"` // there were too many refusals to count all

	kept   duration
	source string
}

// refusedLine is how many requests of a source were refused with one code.
type refusedLine struct {
	Source string `json:"source"` // empty: they belonged to none
	Code   string `json:"code"`
	Count  int64  `json:"count"`
}

// missingWindow is how far back refusals are counted.
const missingWindow = 24 * time.Hour

// readMissing collects what speaks for and against an id that the inbox does not have.
func readMissing(ctx context.Context, store *inbox.Store, kept *config, id, source string, now time.Time) (*notTraced, error) {
	m := &notTraced{V: 1, ID: id, Refusals: []*refusalLine{}, Refused: []refusedLine{}, source: source,
		kept: kept.Retention.Identity, KeptSince: now.Add(-time.Duration(kept.Retention.Identity)).UTC()}
	for r, err := range store.Refusals(ctx, inbox.RefusalFilter{ID: id, Limit: maxTracedRefusals}) {
		if err != nil {
			return nil, err
		}
		m.Refusals = append(m.Refusals, describeRefusal(&r))
	}
	oldest, err := store.Oldest(ctx)
	if err != nil {
		return nil, err
	}
	m.Oldest = moment(oldest)
	for d, err := range store.Find(ctx, inbox.Filter{Source: source, Limit: 1}) {
		if err != nil {
			return nil, err
		}
		m.LastAt = moment(d.ReceivedAt)
	}
	since := now.Add(-missingWindow)
	kinds, from, err := store.CountRefusals(ctx, inbox.RefusalFilter{Source: source, Since: since})
	if err != nil {
		return nil, err
	}
	if from.After(since) {
		m.CutAt = moment(from)
	}
	m.count(kinds)
	m.judge()
	return m, nil
}

// count adds up the kinds by source and code, the most frequent first.
func (m *notTraced) count(kinds []inbox.Refusal) {
	for _, k := range kinds {
		i := slices.IndexFunc(m.Refused, func(r refusedLine) bool { return r.Source == k.Source && r.Code == k.Code })
		if i < 0 {
			i, m.Refused = len(m.Refused), append(m.Refused, refusedLine{Source: k.Source, Code: k.Code})
		}
		m.Refused[i].Count += k.Count
	}
	slices.SortStableFunc(m.Refused, func(a, b refusedLine) int { return cmp.Compare(b.Count, a.Count) })
}

// judge says what is likely, and what to do next.
func (m *notTraced) judge() {
	me := programName()
	list := me + " events list --since 24h"
	if m.source != "" {
		list = me + " events list --source " + shellQuote(m.source) + " --since 24h"
	}
	at, isRequest := timeOf(m.ID)
	switch {
	case len(m.Refusals) > 0:
		last := m.Refusals[0]
		m.Likely = "it was refused: nothing of it is stored but what is shown here"
		if last.Source != "" {
			m.Next = []string{fmt.Sprintf("%s refusals --source %s --code %s", me, shellQuote(last.Source), last.Code)}
		} else {
			m.Next = []string{me + " refusals --code " + last.Code}
		}
		return
	case isRequest && at.Before(m.KeptSince):
		m.Likely = fmt.Sprintf("a request of %s, which is longer ago than anything is kept", at.Format(time.RFC3339))
	case isRequest:
		m.Likely = fmt.Sprintf("a request of %s that was a repeat, or refused: of those the server's log has each one, the database a sample of each kind in a minute", at.Format(time.RFC3339))
	case len(m.Refused) > 0:
		top := m.Refused[0]
		m.Likely = fmt.Sprintf("one of %s: the id of a refused request is known for the first of its kind in a minute alone", top.text())
		next := fmt.Sprintf("%s refusals --code %s --since 24h", me, top.Code)
		if top.Source != "" {
			next = fmt.Sprintf("%s refusals --source %s --code %s --since 24h", me, shellQuote(top.Source), top.Code)
		}
		m.Next = append(m.Next, next)
	case m.Oldest == nil:
		m.Likely = "this inbox has never taken a delivery: is it the right database?"
	default:
		m.Likely = "it never came here: ask its sender what was answered, and by whom"
	}
	m.Next = append(m.Next, list)
}

// timeOf is when a request id was made.
func timeOf(id string) (time.Time, bool) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}, false
	}
	return time.Unix(u.Time().UnixTime()).UTC(), true
}

func (r refusedLine) text() string {
	if r.Source == "" {
		return fmt.Sprintf("%d %s of no source", r.Count, r.Code)
	}
	return fmt.Sprintf("%d %s of %s", r.Count, r.Code, r.Source)
}

// maxMissingKinds is how many kinds of refusals are named.
const maxMissingKinds = 8

func (m *notTraced) print(s *stdio, asJSON bool) error {
	if asJSON {
		return errors.Join(printJSON(s.out, m), answerNo())
	}
	terminal := isTerminal(s.out)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(s.out, "  %-12s %s\n", name, cell(fmt.Sprintf(format, args...), terminal))
	}
	fmt.Fprintf(s.out, "%s is not in the inbox (identities are kept for %s: since %s)\n", cell(m.ID, terminal), m.kept, m.KeptSince.Format(time.DateOnly))
	looked := "delivery id, event id, request id, TYPE/ID or ID of a resource, hash of a body"
	if _, err := hex.DecodeString(m.ID); err == nil && len(m.ID) < 8 {
		looked += " (at least 8 digits of it)"
	}
	row("looked for", "%s; of conflicts and refusals too", looked)
	for _, r := range m.Refusals {
		row("refused", "%s   %s", r.FirstAt.Format("2006-01-02 15:04:05 UTC"), r.what())
	}
	row("deliveries", "%s", m.deliveries())
	kinds := make([]string, 0, maxMissingKinds)
	for i, r := range m.Refused {
		if i == maxMissingKinds {
			kinds = append(kinds, fmt.Sprintf("and %d kinds more", len(m.Refused)-i))
			break
		}
		kinds = append(kinds, r.text())
	}
	since := "in the last 24 h"
	if m.CutAt != nil {
		since = "since " + m.CutAt.Format(time.RFC3339)
	}
	row("refusals", "%s: %s", since, cmp.Or(strings.Join(kinds, ", "), "none"))
	row("likely", "%s", m.Likely)
	row("next", "%s", strings.Join(m.Next, "   |   "))
	return answerNo()
}

// deliveries says what the inbox has instead.
func (m *notTraced) deliveries() string {
	of := ""
	if m.source != "" {
		of = " of " + m.source
	}
	switch {
	case m.Oldest == nil:
		return "none"
	case m.LastAt == nil:
		return fmt.Sprintf("since %s, none%s", m.Oldest.Format(time.RFC3339), of)
	}
	return fmt.Sprintf("since %s, the last%s at %s", m.Oldest.Format(time.RFC3339), of, m.LastAt.Format(time.RFC3339))
}

// what is the refusal without its time. Its count is that of all requests of the kind
// in that minute, of which the one with the id was the first.
func (r *refusalLine) what() string {
	parts := []string{"source " + orDash(r.Source), r.Code}
	if r.Reason != r.Code {
		parts = append(parts, r.Reason)
	}
	if r.KeyID != "" {
		parts = append(parts, "key "+r.KeyID)
	}
	if len(r.Causes) > 0 {
		parts = append(parts, "cause "+strings.Join(r.Causes, ", "))
	}
	parts = append(parts, r.Sample.text())
	if r.Count > 1 {
		parts = append(parts, fmt.Sprintf("×%d until %s", r.Count, r.LastAt.Format("15:04:05")))
	}
	return strings.Join(parts, "   ")
}
