package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
)

func refusalsCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "refusals",
		Usage: "say what was refused and why",
		Description: example("Count refused requests by source, reason, key and cause, with one of them as a sample:\n"+
			"its size, body hash, delivery id and request id. Bodies of refused requests are not\n"+
			"kept. A cause is there where the server has looked into a signature that did not match,\n"+
			"at most once a second for each source; – was not looked into. Rows are kept for a week, or\n"+
			"as long as refusals.keep says.\n"+
			"The server need not run; one that does is behind by a few seconds. A conflict is none of\n"+
			"them: it is kept with its delivery (hooklatch events show). In a minute with more than\n"+
			"1,000 kinds, the rest is added up as other.\n\n"+databaseHelp,
			"hooklatch refusals --since 1h",
			"hooklatch refusals --source acme-stripe --code signature_invalid --json"),
		Flags: append(databaseFlags(),
			&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"},
			&cli.StringFlag{Name: "code", Usage: "only with this `CODE`, as the sender was told"},
			&cli.StringFlag{Name: "since", Value: "24h", Usage: "only since this `TIME`, an age or RFC 3339, in whole minutes"}),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return refusals(c.Context, s, readWhichDatabase(c), c.String("source"), c.String("code"), c.String("since"), c.Bool("json"))
		},
	}
}

// refusalCodes are the codes of what is counted. A conflict is rightly signed, and kept.
func refusalCodes() []string {
	return append(slices.DeleteFunc(proxy.Codes(), func(code string) bool { return code == "delivery_conflict" }), otherRefusals)
}

func refusals(ctx context.Context, s *stdio, which whichDatabase, source, code, since string, asJSON bool) error {
	now := time.Now()
	from, err := parseMoment("--since", since, now)
	if err != nil {
		return err
	}
	if oldest := now.Add(-time.Duration(which.kept().Refusals.Keep)); from.Before(oldest) {
		from = oldest // the window that is named holds all that was refused in it
	}
	if known := refusalCodes(); code != "" && !slices.Contains(known, code) {
		return usagef("--code signature_invalid", "refusals: unknown code %q: %s are known", code, listed(known))
	}
	return which.withStore(ctx, func(store *inbox.Store) error {
		kinds, since, err := store.CountRefusals(ctx, inbox.RefusalFilter{Source: source, Code: code, Since: from})
		if err != nil {
			return err
		}
		window := since.UTC().Format(time.RFC3339)
		if since.After(from) {
			s.note("there are too many to add up: what was refused before %s is left out", window)
		}
		if len(kinds) == 0 {
			s.note("no refusal fits since %s", window)
			return nil
		}
		return printRefusals(s, kinds, window, asJSON)
	})
}

// refusalLine is the JSON of what was refused for one reason.
type refusalLine struct {
	V       int           `json:"v"`
	Outcome string        `json:"outcome,omitempty"` // of the requests, in a tail
	Source  string        `json:"source"`            // empty: the requests belonged to none
	Tenant  string        `json:"tenant"`
	Code    string        `json:"code"`
	Reason  string        `json:"reason"`
	KeyID   string        `json:"key_id,omitempty"`
	Causes  []string      `json:"causes,omitempty"`
	Count   int64         `json:"count"`
	FirstAt time.Time     `json:"first_at"`
	LastAt  time.Time     `json:"last_at"`
	Sample  refusalSample `json:"sample"`
}

// refusalSample is the latest sample of them.
type refusalSample struct {
	RequestID  string `json:"request_id,omitempty"`
	DeliveryID string `json:"delivery_id,omitempty"`
	Peer       string `json:"peer,omitempty"`
	BodySize   int64  `json:"body_size"`
	BodyHash   string `json:"body_hash,omitempty"`
}

func describeRefusal(r *inbox.Refusal) *refusalLine {
	line := &refusalLine{
		V: 1, Source: r.Source, Tenant: r.Tenant, Code: r.Code, Reason: r.Reason, KeyID: r.KeyID,
		Count: r.Count, FirstAt: r.FirstAt.UTC(), LastAt: r.LastAt.UTC(),
		Sample: refusalSample{RequestID: requestID(r.RequestID), DeliveryID: r.DeliveryID, Peer: r.Peer, BodySize: r.BodySize},
	}
	if r.Cause != "" {
		line.Causes = strings.Split(r.Cause, ",")
	}
	if r.BodyHash != [32]byte{} {
		line.Sample.BodyHash = hex.EncodeToString(r.BodyHash[:])
	}
	return line
}

// printRefusals prints the kinds by source, the most frequent first.
func printRefusals(s *stdio, kinds []inbox.Refusal, window string, asJSON bool) error {
	slices.SortStableFunc(kinds, func(a, b inbox.Refusal) int { return cmp.Compare(a.Source, b.Source) })
	var total int64
	var rows [][]string
	for i := range kinds {
		line := describeRefusal(&kinds[i])
		total += line.Count
		if asJSON {
			if err := printJSON(s.out, line); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{orDash(line.Source), line.Reason, orDash(line.KeyID), orDash(strings.Join(line.Causes, ", ")), fmt.Sprint(line.Count),
			line.LastAt.Format("2006-01-02 15:04:05"), line.Sample.text()})
	}
	if asJSON {
		return nil
	}
	s.printTable([]string{"source", "reason", "key", "cause", "count", "last (UTC)", "sample"}, rows)
	s.note("%s since %s", counted(int(total), "refused request"), window)
	return nil
}

// text is what of a sample finds it again.
func (r refusalSample) text() string {
	text := fmt.Sprintf("%d bytes", r.BodySize)
	if r.BodyHash != "" {
		text += ", body hash " + r.BodyHash[:8] + "…"
	}
	if r.DeliveryID != "" {
		return text + ", " + r.DeliveryID
	}
	return text + ", request " + orDash(r.RequestID)
}
