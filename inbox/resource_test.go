package inbox

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// revised is a delivery of revision n of report/R-1.
func revised(n int64, ordering Ordering) Delivery {
	d := delivery(fmt.Sprint("rev_", n), fmt.Sprint("body ", n))
	d.ResourceType, d.ResourceID, d.Revision = "report", "R-1", &n
	d.Forwards[0].Ordering = ordering
	return d
}

// putResource makes the row of a lane as a claim would have left it.
func putResource(t *testing.T, pool *pgxpool.Pool, d Delivery, destination string, applied, passed any) (id int) {
	t.Helper()
	return count(t, pool, `INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane, applied, applied_at, passed)
		VALUES ($1, $2, $3, $4, $5, $6, $7, CASE WHEN $7::int8 IS NOT NULL THEN now() END, $8) RETURNING id`,
		d.Tenant, destination, d.Source, d.ResourceType, d.ResourceID, laneOf(&d), applied, passed)
}

func resources(t *testing.T, s *Store, f ResourceFilter) (all []Resource) {
	t.Helper()
	for r, err := range s.Resources(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// standingOf writes the forwards of a lane as revision and state.
func standingOf(r Resource) (lines []string) {
	for _, f := range r.Open {
		line := fmt.Sprint(*f.Delivery.Revision, " ", f.State)
		if f.HoldReason != "" {
			line += " " + string(f.HoldReason)
		}
		if f.Waiting {
			line += " waiting"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestResourcesShowWhatStandsInALane(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	for _, n := range []int64{1, 2, 4, 5} {
		accept(t, s, revised(n, OrderStrict))
	}
	other := revised(1, OrderLatest)
	other.DeliveryID, other.Forwards[0].Destination = "other", "log"
	accept(t, s, other)
	// No claim has met either lane: the deliveries tell.
	all := resources(t, s, ResourceFilter{Name: "report/R-1"})
	if len(all) != 2 || all[0].ID != 0 || all[0].Destination != "app" || all[1].Destination != "log" || all[0].Passed != nil ||
		!slices.Equal(standingOf(all[0]), []string{"1 pending", "2 pending", "4 pending", "5 pending"}) {
		t.Fatalf("%+v", all)
	}
	id := putResource(t, pool, other, "app", 1, 1)
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'accepted', settled_at = now() WHERE destination = 'app' AND revision = 1`)
	exec(t, pool, `UPDATE hooklatch.outbox SET lease_until = now() + interval '1 minute', attempts = 1 WHERE destination = 'app' AND revision = 2`)
	exec(t, pool, `UPDATE hooklatch.resource SET in_flight = (SELECT id FROM hooklatch.outbox WHERE destination = 'app' AND revision = 2)`)
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'held', hold_reason = 'gap', next_attempt_at = 'infinity' WHERE destination = 'app' AND revision > 3`)
	exec(t, pool, `INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at) VALUES ('t1', $1, 3, 3, now())`, id)
	all = resources(t, s, ResourceFilter{Name: "report/R-1", Destination: "app", Source: "src1", Tenant: "t1"})
	if len(all) != 1 {
		t.Fatalf("%d lanes, want 1", len(all))
	}
	r := all[0]
	if r.ID != int64(id) || *r.Applied != 1 || *r.Passed != 1 || r.AppliedAt.IsZero() || r.InFlight == nil || *r.InFlight.Delivery.Revision != 2 ||
		r.InFlight.Delivery.DeliveryID != "rev_2" || !slices.Equal(standingOf(r), []string{"2 pending", "4 held gap", "5 held gap"}) {
		t.Errorf("%+v: %v", r, standingOf(r))
	}
	if g := r.Gap; g == nil || g.FirstMissing != 3 || g.LastMissing != 3 || g.Waits == nil || *g.Waits.Delivery.Revision != 4 || !g.Waits.NextAttemptAt.IsZero() {
		t.Errorf("gap %+v", r.Gap)
	}
	if !r.Open[1].NextAttemptAt.IsZero() || r.Open[0].NextAttemptAt.IsZero() {
		t.Errorf("next attempts %v and %v", r.Open[0].NextAttemptAt, r.Open[1].NextAttemptAt)
	}
	if r = resources(t, s, ResourceFilter{Name: "report/R-1", Destination: "app", Most: 2})[0]; len(r.Open) != 2 || !r.More {
		t.Errorf("capped: %v, more %v", standingOf(r), r.More)
	}
	if len(resources(t, s, ResourceFilter{Name: "report/R-2"})) != 0 || len(resources(t, s, ResourceFilter{Name: "invoice/R-1"})) != 0 {
		t.Error("another resource is found")
	}
	for _, err := range s.Resources(t.Context(), ResourceFilter{Name: "R-1"}) {
		if err == nil {
			t.Error("a name without a type is taken")
		}
	}
}

// A dead letter holds nobody under latest, and is shown all the same.
func TestResourcesShowDeadLettersBesideALane(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	for _, n := range []int64{1, 2, 3} {
		d := revised(n, OrderLatest)
		d.ResourceType = "" // a resource may have none
		accept(t, s, d)
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'blocked', blocked_reason = 'client_error', settled_at = now() WHERE revision = 2`)
	all := resources(t, s, ResourceFilter{Name: "/R-1"})
	if len(all) != 1 || !slices.Equal(standingOf(all[0]), []string{"1 pending", "2 blocked", "3 pending"}) {
		t.Errorf("%+v", all)
	}
	// What a release has given up holds nobody either.
	exec(t, pool, `UPDATE hooklatch.outbox SET ordering = 'strict'`)
	d := revised(2, OrderStrict)
	d.ResourceType = ""
	putResource(t, pool, d, "app", nil, 2)
	r := resources(t, s, ResourceFilter{Name: "/R-1", Most: 1})[0]
	if !slices.Equal(standingOf(r), []string{"1 pending", "2 blocked", "3 pending"}) || r.More {
		t.Errorf("%+v, more %v", standingOf(r), r.More)
	}
}

func TestPlaceSaysWhatStandsAhead(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	ids := map[int64]int64{}
	for _, n := range []int64{1, 2, 3, 5} {
		r := accept(t, s, revised(n, OrderStrict))
		ids[n] = forwardOf(t, s, r.ID).ID
	}
	loose := forwardOf(t, s, accept(t, s, delivery("loose", "x")).ID).ID
	ahead := func(forward int64) (int64, *Gap) {
		t.Helper()
		p, err := s.Place(t.Context(), forward)
		if err != nil {
			t.Fatal(err)
		}
		if p.Ahead == nil {
			return 0, p.Gap
		}
		return *p.Ahead.Delivery.Revision, p.Gap
	}
	want := func(forward, revision int64, gap bool) {
		t.Helper()
		if got, g := ahead(forward); got != revision || (g != nil) != gap {
			t.Errorf("ahead is revision %d, gap %v; want %d, %v", got, g, revision, gap)
		}
	}
	want(loose, 0, false)
	want(ids[1], 0, false)
	want(ids[3], 1, false) // before any claim
	id := putResource(t, pool, revised(1, OrderStrict), "app", nil, 0)
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'blocked', blocked_reason = 'client_error', settled_at = now() WHERE id = $1`, ids[1])
	want(ids[3], 1, false) // a dead letter at the head holds a strict lane
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'accepted' WHERE id = $1`, ids[1])
	exec(t, pool, `UPDATE hooklatch.resource SET applied = 1, passed = 1`)
	want(ids[1], 0, false)
	want(ids[3], 2, false)
	exec(t, pool, `UPDATE hooklatch.outbox SET lease_until = now() + interval '1 minute' WHERE id = $1`, ids[3])
	exec(t, pool, `UPDATE hooklatch.resource SET in_flight = $1`, ids[3])
	want(ids[2], 3, false) // what is being tried, wherever it stands
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'accepted', lease_until = NULL WHERE id IN ($1, $2)`, ids[2], ids[3])
	exec(t, pool, `UPDATE hooklatch.resource SET applied = 3, passed = 3`)
	exec(t, pool, `INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at) VALUES ('t1', $1, 4, 4, now())`, id)
	want(ids[5], 0, true)
}

func TestGapsGoOnBehindACursor(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	begun := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	for n := range int64(6) {
		d := revised(1, OrderStrict)
		d.ResourceID, d.Source = fmt.Sprint("R-", n), fmt.Sprint("src", n%2)
		id := putResource(t, pool, d, "app", nil, nil)
		exec(t, pool, `INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at) VALUES ('t1', $1, 3, 4, $2)`, id, begun.Add(time.Duration(n)*time.Minute))
		if n >= 4 {
			exec(t, pool, `UPDATE hooklatch.gap SET closed_at = now(), closed_by = 'arrival' WHERE resource = $1`, id)
		}
	}
	list := func(f GapFilter) (names []string, last string) {
		t.Helper()
		for g, err := range s.Gaps(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			if g.Waits != nil || g.FirstMissing != 3 || g.LastMissing != 4 || g.ClosedAt.IsZero() != (g.ClosedBy == "") || g.ResourceType != "report" {
				t.Errorf("%+v", g)
			}
			names, last = append(names, g.ResourceID), g.Cursor()
		}
		return names, last
	}
	for _, c := range []struct {
		name string
		f    GapFilter
		want []string
	}{
		{"open", GapFilter{}, []string{"R-3", "R-2", "R-1", "R-0"}},
		{"all", GapFilter{All: true}, []string{"R-5", "R-4", "R-3", "R-2", "R-1", "R-0"}},
		{"of a source", GapFilter{Source: "src1"}, []string{"R-3", "R-1"}},
		{"of a destination", GapFilter{Destination: "log"}, nil},
		{"of a tenant", GapFilter{Tenant: "t2"}, nil},
		{"since", GapFilter{Since: begun.Add(2 * time.Minute)}, []string{"R-3", "R-2"}},
		{"limited", GapFilter{Limit: 1}, []string{"R-3"}},
	} {
		if got, _ := list(c.f); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	_, cursor := list(GapFilter{Limit: 2})
	if got, _ := list(GapFilter{After: cursor}); !slices.Equal(got, []string{"R-1", "R-0"}) {
		t.Errorf("behind the cursor: %v", got)
	}
	for _, err := range s.Gaps(t.Context(), GapFilter{After: "nonsense"}) {
		if err == nil {
			t.Error("a cursor that is none is taken")
		}
	}
}

// However long the history of a resource and of gaps is, a look reads little of it.
func TestLooksAtLanesReadLittle(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	d := revised(1, OrderStrict)
	resource := putResource(t, pool, d, "app", 20_000, 20_000)
	exec(t, pool, `WITH i AS (
		INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, resource_type, resource_id, revision)
		SELECT 't1', 'src1', 'old_' || n, sha256('x'), 1, 'report', 'R-1', n FROM generate_series(1, 20000) n RETURNING id, revision)
	INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at, state, ordering, lane, revision)
	SELECT id, 't1', 'app', now() + interval '1 day', 'accepted', 'strict', $1, revision FROM i`, laneOf(&d))
	exec(t, pool, `INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at, closed_at, closed_by)
		SELECT 't1', $1, n, n, now() - n * interval '1 second', now(), 'arrival' FROM generate_series(1, 20000) n`, resource)
	exec(t, pool, `INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at) VALUES ('t1', $1, 20001, 20001, now() - interval '1 day')`, resource)
	last := accept(t, s, revised(20_002, OrderStrict))
	forward := forwardOf(t, s, last.ID).ID
	forgetReads(t, s, pool)
	if r := resources(t, s, ResourceFilter{Name: "report/R-1"}); len(r) != 1 || len(r[0].Open) != 1 || r[0].Gap == nil {
		t.Fatalf("%+v", r)
	}
	n := 0
	for _, err := range s.Gaps(t.Context(), GapFilter{}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if p, err := s.Place(t.Context(), forward); n != 1 || err != nil || p.Gap == nil {
		t.Fatalf("%d gaps, %+v, %v", n, p, err)
	}
	if n := rowsRead(t, s, pool); n > 1000 {
		t.Errorf("three looks read %d rows", n)
	}
}
