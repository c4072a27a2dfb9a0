package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func auditCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "prove that nothing is lost: compare the tables of the inbox",
		Description: example("Compare what the tables say at each step of a delivery's way: its body, its forwards,\n"+
			"their attempts, leases and lanes, and the conflicts of its id. Each difference is named.\n"+
			"None means that every delivery is accepted, pending, held, in retry_wait, superseded,\n"+
			"blocked or cancelled for each destination that it was routed to. The server may run:\n"+
			"what looks wrong is looked at twice. Exit code 1: there are differences.\n\n"+databaseHelp,
			"hooklatch audit -c hooklatch.yaml",
			"hooklatch audit --source acme-stripe --since 2h --json"),
		Flags: append(databaseFlags(),
			&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"},
			&cli.StringFlag{Name: "since", Usage: "only deliveries received since this `TIME`, an age or RFC 3339"},
			&cli.BoolFlag{Name: "bodies", Usage: "read every body too, and compare its hash"}),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			o := auditOptions{which: readWhichDatabase(c), since: c.String("since"), json: c.Bool("json"),
				request: inbox.AuditRequest{Source: c.String("source"), Bodies: c.Bool("bodies")}}
			return audit(c.Context, s, o)
		},
	}
}

type auditOptions struct {
	which   whichDatabase
	request inbox.AuditRequest
	since   string
	json    bool
}

// discrepancyLine is the JSON of a difference.
type discrepancyLine struct {
	V            int                   `json:"v"`
	Kind         inbox.DiscrepancyKind `json:"kind"`
	Detail       string                `json:"detail"`
	Tenant       string                `json:"tenant,omitempty"`
	Source       string                `json:"source,omitempty"`
	DeliveryID   string                `json:"delivery_id,omitempty"`
	Destination  string                `json:"destination,omitempty"`
	ForwardID    int64                 `json:"forward_id,omitempty"`
	ResourceType string                `json:"resource_type,omitempty"`
	ResourceID   string                `json:"resource_id,omitempty"`
}

func audit(ctx context.Context, s *stdio, o auditOptions) (err error) {
	if o.request.Since, err = parseMoment("--since", o.since, time.Now()); err != nil {
		return err
	}
	p := &auditProgress{s: s, last: time.Now(), rows: map[string]int64{}}
	o.request.OnPage = p.page
	if o.request.Retention, err = o.which.retention(time.Now()); err != nil {
		return err
	}
	found := 0
	err = o.which.withStore(ctx, func(store *inbox.Store) error {
		if err := o.knows(ctx, store); err != nil {
			return err
		}
		for d, err := range store.Audit(ctx, o.request) {
			if err != nil {
				return err
			}
			found++
			line := discrepancyLine{V: 1, Kind: d.Kind, Detail: d.Detail, Tenant: d.Tenant, Source: d.Source, DeliveryID: d.DeliveryID,
				Destination: d.Destination, ForwardID: d.ForwardID, ResourceType: d.ResourceType, ResourceID: d.ResourceID}
			if o.json {
				err = printJSON(s.out, line)
			} else {
				err = line.print(s.out, isTerminal(s.out))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.summary(found)
	if found > 0 {
		return answerNo()
	}
	return nil
}

// knows refuses a source that is neither configured nor in the inbox: a name that is
// mistyped would pass every audit.
func (o *auditOptions) knows(ctx context.Context, store *inbox.Store) error {
	source := o.request.Source
	if source == "" || o.which.kept().Sources[source] != nil {
		return nil
	}
	names, err := store.Sources(ctx)
	if err != nil || slices.Contains(names, source) {
		return err
	}
	return usagef("hooklatch audit   looks at all of them", "audit: there is no source %q: the inbox has deliveries of %s", source,
		cmp.Or(strings.Join(names, ", "), "none"))
}

func (d discrepancyLine) print(w io.Writer, terminal bool) error {
	text := string(d.Kind)
	add := func(name, value string) {
		if value != "" {
			text += "   " + name + value
		}
	}
	add("", d.DeliveryID)
	if d.ResourceID != "" {
		add("", d.ResourceType+"/"+d.ResourceID)
	}
	add("to ", d.Destination)
	if d.DeliveryID == "" && d.ForwardID != 0 {
		add("forward ", fmt.Sprint(d.ForwardID))
	}
	add("source ", d.Source)
	add("", d.Detail)
	next := ""
	switch {
	case d.DeliveryID != "":
		next = "trace " + shellQuote(d.DeliveryID) + " --source " + shellQuote(d.Source)
	case d.ResourceID != "":
		next = "resources show " + shellQuote(d.ResourceType+"/"+d.ResourceID)
	}
	if next != "" {
		text += "\n  next   " + programName() + " " + next
	}
	_, err := fmt.Fprintln(w, printable(text, terminal))
	return err
}

// auditProgress tells every ten seconds how far an audit is.
type auditProgress struct {
	s     *stdio
	what  string
	began time.Time // of what
	last  time.Time
	order []string
	rows  map[string]int64
}

const auditTells = 10 * time.Second

func (p *auditProgress) page(what string, rows, estimate int64) {
	now := time.Now()
	if what != p.what {
		p.what, p.began = what, now
		p.order = append(p.order, what)
	}
	p.rows[what] = rows
	if now.Sub(p.last) < auditTells {
		return
	}
	p.last = now
	text := fmt.Sprintf("%s: %d compared", what, rows)
	if passed := now.Sub(p.began).Seconds(); passed > 0 {
		rate := float64(rows) / passed
		text += fmt.Sprintf(", %.0f a second", rate)
		if estimate > rows && rate > 0 {
			text += fmt.Sprintf(", about %s left", (time.Duration(float64(estimate-rows)/rate) * time.Second).Round(time.Second))
		}
	}
	p.s.note("%s", text)
}

func (p *auditProgress) summary(found int) {
	text := "nothing to compare"
	for i, what := range p.order {
		if i == 0 {
			text = ""
		} else {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", what, p.rows[what])
	}
	if found == 0 {
		p.s.note("no difference: %s", text)
		return
	}
	p.s.note("%s: %s", counted(found, "difference"), text)
}
