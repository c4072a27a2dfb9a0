package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func resourcesGapsCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "gaps",
		Usage: "list revisions that are missing, the latest gap first",
		Description: example("List the gaps in the revisions of resources under ordering strict: what is missing, since\n"+
			"when, what waits behind it, and when it is given up. The last line names the command\n"+
			"that goes on. Times are an age such as 2h or 3d, or RFC 3339.\n\n"+databaseHelp,
			"hooklatch resources gaps --source globex-geo --since 2h",
			"hooklatch resources gaps --all --json"),
		Flags: append(laneFlags(),
			&cli.BoolFlag{Name: "all", Usage: "closed ones too, with what closed them"},
			&cli.StringFlag{Name: "since", Usage: "only opened since this `TIME`"},
			&cli.IntFlag{Name: "limit", Value: 50, Usage: "print at most this `NUMBER`; 0 is all"},
			&cli.StringFlag{Name: "after", Usage: "go on behind this `CURSOR` of an earlier list"},
		),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			o := gapOptions{which: readWhichDatabase(c), since: c.String("since"), json: c.Bool("json"),
				filter: inbox.GapFilter{All: c.Bool("all"), Source: c.String("source"), Destination: c.String("destination"),
					Limit: c.Int("limit"), After: c.String("after")}}
			return resourcesGaps(c.Context, s, o)
		},
	}
}

type gapOptions struct {
	which  whichDatabase
	filter inbox.GapFilter
	since  string
	json   bool
}

// listedGap is the JSON of a gap in a list.
type listedGap struct {
	V            int    `json:"v"`
	Cursor       string `json:"cursor"`
	Tenant       string `json:"tenant"`
	Source       string `json:"source"`
	Destination  string `json:"destination"`
	ResourceType string `json:"resource_type"`
	ResourceID   string `json:"resource_id"`
	gapLine
}

func resourcesGaps(ctx context.Context, s *stdio, o gapOptions) (err error) {
	if o.filter.Limit < 0 {
		return usagef("--limit 50", "resources gaps: the limit is negative")
	}
	if o.filter.Since, err = parseMoment("--since", o.since, time.Now()); err != nil {
		return err
	}
	return o.which.withStore(ctx, func(store *inbox.Store) error {
		page, now := o.filter, time.Now()
		if page.Limit > 0 {
			page.Limit++ // one more tells whether the list goes on
		}
		var rows [][]string
		n, last, more := 0, "", false
		for g, err := range store.Gaps(ctx, page) {
			if err != nil {
				return badCursor("resources gaps", o.filter.After, err)
			}
			if n++; o.filter.Limit > 0 && n > o.filter.Limit {
				more = true
				break
			}
			last = g.Cursor()
			line := listedGap{V: 1, Cursor: last, Tenant: g.Tenant, Source: g.Source, Destination: g.Destination,
				ResourceType: g.ResourceType, ResourceID: g.ResourceID, gapLine: *describeGap(&g)}
			if o.json {
				if err := printJSON(s.out, line); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, line.row(now))
		}
		if n == 0 {
			s.note("no gap fits")
		}
		if len(rows) > 0 {
			s.printTable([]string{"opened (UTC)", "source", "destination", "resource", "missing", "waits", "until"}, rows)
		}
		if more {
			s.note("next   %s", o.next(last))
		}
		return nil
	})
}

func (g listedGap) row(now time.Time) []string {
	missing := fmt.Sprint(g.FirstMissing)
	if g.LastMissing != g.FirstMissing {
		missing += fmt.Sprint(" to ", g.LastMissing)
	}
	waits, until := "–", "released"
	if g.Waits != nil {
		waits = fmt.Sprintf("%d %s", g.Waits.Revision, g.Waits.DeliveryID)
	}
	switch {
	case g.ClosedAt != nil:
		until = "closed by " + g.ClosedBy + " " + g.ClosedAt.Format("2006-01-02 15:04:05")
	case g.GivenUpAt != nil && g.GivenUpAt.After(now):
		until = "given up in " + shortDuration(g.GivenUpAt.Sub(now))
	case g.GivenUpAt != nil:
		until = "given up now"
	}
	return []string{g.OpenedAt.Format("2006-01-02 15:04:05"), g.Source, g.Destination, g.ResourceType + "/" + g.ResourceID, missing, waits, until}
}

// next is the command that goes on behind the cursor.
func (o gapOptions) next(cursor string) string {
	words := []string{programName(), "resources", "gaps"}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, shellQuote(value))
		}
	}
	add("-c", o.which.config)
	add("--source", o.filter.Source)
	add("--destination", o.filter.Destination)
	if o.filter.All {
		words = append(words, "--all")
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
