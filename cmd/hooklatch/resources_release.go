package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

func resourcesReleaseCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "release",
		Usage:     "let a resource go on without what it waits for",
		ArgsUsage: "TYPE/ID",
		Description: example("Give up the revisions that are missing, or the dead letter at the front, at each\n"+
			"destination where the resource waits for one; the dead letter stays one. What is given up\n"+
			"and comes after all is not sent any more. Only ordering strict waits so. The server may\n"+
			"run. What is done stands in the audit, with your login name and the reason. Exit code 1:\n"+
			"it waits for nothing that a release could give up; 5: it went on at some of several\n"+
			"destinations.\n\n"+databaseHelp,
			"hooklatch resources release report/R-77 --destination analytics --reason 'revision 5 was lost at the sender' --yes",
			"hooklatch resources release report/R-77 --dry-run"),
		Flags: append(laneFlags(), actFlags()...),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "TYPE/ID")
			if err != nil {
				return err
			}
			r := releaser{s: s, reason: c.String("reason"), dryRun: c.Bool("dry-run"), yes: c.Bool("yes"), json: c.Bool("json"),
				filter: inbox.ResourceFilter{Name: args[0], Source: c.String("source"), Destination: c.String("destination")}}
			return r.run(c.Context, readWhichDatabase(c))
		},
	}
}

// releaser is one run of release.
type releaser struct {
	s            *stdio
	filter       inbox.ResourceFilter
	reason       string
	dryRun, yes  bool
	json         bool
	found, stuck []resourceLine
}

// released is the JSON of a release at one destination.
type released struct {
	V            int    `json:"v"`
	DryRun       bool   `json:"dry_run,omitempty"`
	Tenant       string `json:"tenant"`
	Source       string `json:"source"`
	Destination  string `json:"destination"`
	ResourceType string `json:"resource_type"`
	ResourceID   string `json:"resource_id"`
	Released     bool   `json:"released"`
	First        int64  `json:"first_given_up"`
	Last         int64  `json:"last_given_up"`
	Why          string `json:"why"` // missing, blocked; or why it was not released

	Due *aheadLine `json:"due,omitempty"` // what is tried next
}

func (r *releaser) run(ctx context.Context, which whichDatabase) error {
	if err := checkResource("release", r.filter.Name); err != nil {
		return err
	}
	if r.reason == "" && !r.dryRun && !r.s.asks() { // before the database is looked at
		_, err := r.s.reason(ctx, "resources release", r.reason)
		return err
	}
	return which.withStore(ctx, func(store *inbox.Store) error {
		for lane, err := range store.Resources(ctx, r.filter) {
			if err != nil {
				return err
			}
			line := describeResource(&lane)
			if r.found = append(r.found, line); line.stuck() {
				r.stuck = append(r.stuck, line)
			}
		}
		switch {
		case len(r.found) == 0:
			return noResource(ctx, r.s, store, r.filter.Name, r.json)
		case len(r.stuck) == 0:
			return fail(exitNo, fmt.Errorf("resources release: %s waits for nothing that could be given up", r.filter.Name),
				programName()+" resources show "+shellQuote(r.filter.Name))
		}
		if r.dryRun {
			return r.plan()
		}
		return r.release(ctx, store)
	})
}

// givesUp is what a release of the lane is expected to do.
func (r *releaser) givesUp(lane resourceLine) released {
	done := released{V: 1, DryRun: r.dryRun, Tenant: lane.Tenant, Source: lane.Source, Destination: lane.Destination,
		ResourceType: lane.ResourceType, ResourceID: lane.ResourceID}
	if lane.Gap != nil {
		done.First, done.Last, done.Why = lane.Gap.FirstMissing, lane.Gap.LastMissing, "missing"
	} else {
		head := lane.head()
		done.First, done.Last, done.Why = head.Revision, head.Revision, "blocked"
	}
	done.Due = lane.behind(done.Last)
	return done
}

// behind is the first forward above a revision.
func (r resourceLine) behind(revision int64) *aheadLine {
	for _, f := range r.Forwards {
		if f.Revision > revision {
			return &aheadLine{Revision: f.Revision, DeliveryID: f.DeliveryID, State: f.State, BlockedReason: f.BlockedReason, LeaseUntil: f.LeaseUntil}
		}
	}
	return nil
}

func (r *releaser) plan() error {
	for _, lane := range r.stuck {
		if err := r.print(r.givesUp(lane), "would give up"); err != nil {
			return err
		}
	}
	return nil
}

func (r *releaser) release(ctx context.Context, store *inbox.Store) error {
	if !r.yes && r.s.asks() {
		for _, lane := range r.stuck {
			r.s.note("%s", r.givesUp(lane).text("will give up"))
		}
	}
	err := r.s.confirm(ctx, "resources release", fmt.Sprintf("release %s at %s?", r.filter.Name, counted(len(r.stuck), "destination")), r.yes)
	if err != nil {
		return err
	}
	reason, err := r.s.reason(ctx, "resources release", r.reason)
	if err != nil {
		return err
	}
	went := 0
	for _, lane := range r.stuck {
		done := r.givesUp(lane)
		done.First, done.Last, err = store.Release(ctx, inbox.ResourceRef{Tenant: lane.Tenant, Destination: lane.Destination, Source: lane.Source,
			ResourceType: lane.ResourceType, ResourceID: lane.ResourceID}, inbox.Act{Actor: actor(), Reason: reason})
		switch {
		case errors.Is(err, inbox.ErrState), errors.Is(err, inbox.ErrNotFound):
			done.Due, done.Why = nil, "it went on meanwhile"
		case err != nil:
			return err
		default:
			done.Released, done.Due = true, lane.behind(done.Last)
			went++
		}
		if err := r.print(done, "gave up"); err != nil {
			return err
		}
	}
	switch went {
	case 0:
		return answerNo()
	case len(r.stuck):
		return nil
	}
	return fail(exitPartly, nil, "")
}

func (r *releaser) print(done released, verb string) error {
	if r.json {
		return printJSON(r.s.out, done)
	}
	_, err := fmt.Fprintln(r.s.out, cell(done.text(verb), isTerminal(r.s.out)))
	return err
}

// text is the release on one line.
func (d released) text(verb string) string {
	where := fmt.Sprintf("%s/%s   source %s   destination %s   ", d.ResourceType, d.ResourceID, d.Source, d.Destination)
	if verb == "gave up" && !d.Released {
		return where + d.Why
	}
	what := "missing"
	if d.Why == "blocked" {
		what = "a dead letter"
	}
	text := fmt.Sprintf("%s%s %s, %s", where, verb, revisions(d.First, d.Last), what)
	switch {
	case d.Due == nil:
		return text + "; nothing waits behind"
	case d.Due.Revision == d.Last+1:
		return text + fmt.Sprintf("; next is %s", d.Due.text(time.Now()))
	}
	return text + fmt.Sprintf("; then %s is missing before %s", revisions(d.Last+1, d.Due.Revision-1), d.Due.text(time.Now()))
}
