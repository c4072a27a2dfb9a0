package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditRequest says what Audit compares. The zero AuditRequest is the whole inbox, of
// which retention has removed nothing.
type AuditRequest struct {
	// Source leaves out what belongs to other sources.
	Source string
	// Since leaves out deliveries received before it, and the lanes and conflicts in
	// which nothing has happened since. With it, or with Source, rows that belong to no
	// delivery are not looked for.
	Since time.Time

	// Retention says which bodies and attempts are old enough to be gone; what else it
	// says is not looked at. What people have removed earlier stands in the audit.
	Retention Retention
	// Bodies reads every body and compares its hash: as slow as the disk is.
	Bodies bool

	// OnPage is called after each page with what is being compared, the number of rows
	// compared so far, and an estimate of all of them: 0 where there is none.
	OnPage func(what string, rows, estimate int64)
}

// Discrepancy is a difference between two tables that must agree.
type Discrepancy struct {
	Kind   DiscrepancyKind
	Detail string // for people

	// Where it is; what does not apply is empty.
	Tenant, Source, DeliveryID string
	ID                         int64 // of the delivery
	ForwardID                  int64
	Destination                string
	ResourceType, ResourceID   string
}

// DiscrepancyKind says what differs.
type DiscrepancyKind string

// The kinds.
const (
	DiffForwardMissing   DiscrepancyKind = "forward_missing"   // a delivery has fewer forwards than were made for it
	DiffBodyMissing      DiscrepancyKind = "body_missing"      // a body is gone before its time
	DiffBodyAltered      DiscrepancyKind = "body_altered"      // a body is not what its hash says
	DiffAttemptMissing   DiscrepancyKind = "attempt_missing"   // an attempt was counted and is not in the ledger
	DiffAttemptExtra     DiscrepancyKind = "attempt_extra"     // the ledger has an attempt that was never counted
	DiffAcceptedUnproven DiscrepancyKind = "accepted_unproven" // accepted, and no attempt was answered 2xx
	DiffAcceptedLost     DiscrepancyKind = "accepted_lost"     // an attempt was answered 2xx, and the forward is not accepted
	DiffHoldUnexplained  DiscrepancyKind = "hold_unexplained"  // held without a reason
	DiffLeaseAbandoned   DiscrepancyKind = "lease_abandoned"   // a lease ran out long ago and nobody took the forward up
	DiffLeaseSettled     DiscrepancyKind = "lease_settled"     // a forward that is settled has a lease
	DiffLaneMissing      DiscrepancyKind = "lane_missing"      // a forward has its place in a lane that does not exist

	DiffAppliedBehind   DiscrepancyKind = "applied_behind"   // a later revision was accepted than the lane says
	DiffAppliedUnproven DiscrepancyKind = "applied_unproven" // the lane says applied, and no forward of that revision was accepted
	DiffPassedBehind    DiscrepancyKind = "passed_behind"    // what was applied could be sent again
	DiffLaneLeases      DiscrepancyKind = "lane_leases"      // two live leases in one lane, or one that the lane does not know
	DiffLaneStuck       DiscrepancyKind = "lane_stuck"       // every forward of a lane waits for another, or for nothing
	DiffGapWithoutHeld  DiscrepancyKind = "gap_without_held" // a gap is open and no forward waits for it
	DiffGapMissing      DiscrepancyKind = "gap_missing"      // a forward waits for a gap that is not open

	DiffConflictCap      DiscrepancyKind = "conflict_cap"       // more bodies are kept for one id than may be
	DiffConflictSameBody DiscrepancyKind = "conflict_same_body" // a conflict has the delivery's own body
	DiffConflictOrphan   DiscrepancyKind = "conflict_orphan"    // a conflict of no delivery
	DiffForwardOrphan    DiscrepancyKind = "forward_orphan"     // a forward of no delivery
	DiffBodyOrphan       DiscrepancyKind = "body_orphan"        // a body of no delivery
	DiffAttemptOrphan    DiscrepancyKind = "attempt_orphan"     // an attempt of no forward
)

// leaseGrace is how long after its end a lease counts as abandoned: whoever
// restarts a server may take his time.
const leaseGrace = time.Hour

// auditor compares the tables for one AuditRequest.
type auditor struct {
	s     *Store
	r     AuditRequest
	until time.Time // the database's clock at the start
	sizes map[int64]int64
}

// edge is one pair of tables, or more, that are compared by the keys of one of them.
type edge struct {
	what string
	// page returns the keys behind a place, and the place of the last.
	page func(context.Context, auditPlace) ([]int64, auditPlace, error)
	size int
	// check returns what is wrong with the rows of some keys, in one statement, and so
	// in one snapshot.
	check     func(context.Context, []int64) ([]suspect, error)
	table     string // whose rows are as many as the keys
	unbounded bool   // left out where Source or Since bound the audit
}

// auditPlace is how far a page went.
type auditPlace struct {
	at time.Time
	id int64
}

// suspect is a difference that was seen once, with the key of its row.
type suspect struct {
	key int64
	Discrepancy
}

const auditStartSQL = `
SELECT clock_timestamp(), relname, greatest(reltuples, 0)::int8 FROM pg_class
WHERE relnamespace = 'hooklatch'::regnamespace AND relkind IN ('r', 'p')`

// Audit compares what the tables say at each step of a delivery's way: its body, its
// forwards, their attempts, leases and lanes, and the conflicts of its id. Identities
// are compared, never totals: one row too many must not hide one too few. It yields
// what differs; nothing means that every delivery is accepted, pending, held, in
// retry_wait, superseded, blocked or cancelled for each destination that it was
// routed to.
//
// It reads page by page through indexes, and may run beside everything else: what
// looks wrong is looked at again in a later snapshot before it is yielded.
func (s *Store) Audit(ctx context.Context, r AuditRequest) iter.Seq2[Discrepancy, error] {
	return func(yield func(Discrepancy, error) bool) {
		a := &auditor{s: s, r: r}
		rows := map[string]int64{}
		err := s.as(ctx, roleRead, func(tx pgx.Tx) error {
			found, err := tx.Query(ctx, auditStartSQL)
			if err != nil {
				return err
			}
			var name string
			var estimate int64
			_, err = pgx.ForEachRow(found, []any{&a.until, &name, &estimate}, func() error {
				rows[name] = estimate
				return nil
			})
			return err
		})
		if err != nil {
			yield(Discrepancy{}, readError("audit", err))
			return
		}
		bounded := r.Source != "" || !r.Since.IsZero()
		for _, e := range a.edges() {
			if bounded && e.unbounded {
				continue
			}
			estimate := rows[e.table]
			if bounded {
				estimate = 0
			}
			if !a.walk(ctx, e, estimate, yield) {
				return
			}
		}
	}
}

// walk compares one edge and says whether to go on.
func (a *auditor) walk(ctx context.Context, e edge, estimate int64, yield func(Discrepancy, error) bool) bool {
	place, done := auditPlace{}, int64(0)
	for {
		keys, next, err := e.page(ctx, place)
		var found []suspect
		if err == nil && len(keys) > 0 {
			found, err = e.confirmed(ctx, keys)
		}
		if err != nil {
			yield(Discrepancy{}, readError("audit of "+e.what, err))
			return false
		}
		for _, f := range found {
			if !yield(f.Discrepancy, nil) {
				return false
			}
		}
		done += int64(len(keys))
		if a.r.OnPage != nil && len(keys) > 0 {
			a.r.OnPage(e.what, done, max(estimate, 0))
		}
		if len(keys) < e.size {
			return true
		}
		place = next
	}
}

// confirmed are the differences among the rows of keys that two snapshots agree on. A
// page that takes too long, since its lanes or bodies are large, is halved.
func (e edge) confirmed(ctx context.Context, keys []int64) ([]suspect, error) {
	first, err := e.check(ctx, keys)
	if err != nil && len(keys) > 1 && errors.Is(readError("audit", err), ErrBusy) {
		half, err := e.confirmed(ctx, keys[:len(keys)/2])
		if err != nil {
			return nil, err
		}
		rest, err := e.confirmed(ctx, keys[len(keys)/2:])
		return append(half, rest...), err
	}
	if err != nil || len(first) == 0 {
		return nil, err
	}
	type name struct {
		key  int64
		kind DiscrepancyKind
		id   int64
	}
	seen := map[name]bool{}
	var again []int64
	for _, f := range first {
		seen[name{f.key, f.Kind, f.ForwardID}] = true
		again = append(again, f.key)
	}
	second, err := e.check(ctx, again)
	var both []suspect
	for _, f := range second {
		if seen[name{f.key, f.Kind, f.ForwardID}] {
			both = append(both, f)
		}
	}
	return both, err
}

// Pages. $1 and $2 are the place, $3 the size.
const (
	auditRecentSQL = `SELECT received_at, id, body_size FROM hooklatch.inbox
WHERE (received_at, id) > ($1, $2) AND received_at >= $4 AND received_at <= $5 ORDER BY received_at, id LIMIT $3`

	auditSourceSQL = `SELECT received_at, id, body_size FROM hooklatch.inbox
WHERE source = $6 AND (received_at, id) > ($1, $2) AND received_at >= $4 AND received_at <= $5 ORDER BY received_at, id LIMIT $3`

	auditLanesSQL     = `SELECT id FROM hooklatch.resource WHERE id > $1 ORDER BY id LIMIT $2`
	auditConflictsSQL = `SELECT id FROM hooklatch.conflict WHERE id > $1 ORDER BY id LIMIT $2`
	auditForwardsSQL  = `SELECT id FROM hooklatch.outbox WHERE id > $1 ORDER BY id LIMIT $2`
	auditBodiesSQL    = `SELECT inbox_id FROM hooklatch.payload WHERE inbox_id > $1 GROUP BY inbox_id ORDER BY inbox_id LIMIT $2`
	auditAttemptsSQL  = `SELECT outbox_id FROM hooklatch.attempt WHERE outbox_id > $1 GROUP BY outbox_id ORDER BY outbox_id LIMIT $2`
)

const (
	auditPage     = 5000
	auditLanePage = 200     // a lane may have thousands of forwards
	auditBytes    = 8 << 20 // of bodies in one statement
)

func (a *auditor) edges() []edge {
	ids := func(sql string, size int) func(context.Context, auditPlace) ([]int64, auditPlace, error) {
		return func(ctx context.Context, after auditPlace) ([]int64, auditPlace, error) {
			keys, err := collect(ctx, a.s, roleRead, pgx.RowTo[int64], sql, after.id, size)
			if len(keys) > 0 {
				after.id = keys[len(keys)-1]
			}
			return keys, after, err
		}
	}
	checks := func(sql string, args ...any) func(context.Context, []int64) ([]suspect, error) {
		return func(ctx context.Context, keys []int64) ([]suspect, error) {
			return collect(ctx, a.s, roleRead, scanSuspect, sql, append([]any{keys}, args...)...)
		}
	}
	edges := []edge{
		{what: "deliveries and forwards", table: "inbox", page: a.deliveries, size: auditPage,
			check: checks(auditDeliverySQL, a.r.Retention.Bodies, a.r.Retention.Attempts, leaseGrace)},
		{what: "lanes", table: "resource", page: ids(auditLanesSQL, auditLanePage), size: auditLanePage, check: checks(auditLaneSQL, a.r.Source, a.r.Since)},
		{what: "conflicts", table: "conflict", page: ids(auditConflictsSQL, auditPage), size: auditPage,
			check: checks(auditConflictSQL, maxConflicts, a.r.Source, a.r.Since)},
		{what: "forwards", table: "outbox", page: ids(auditForwardsSQL, auditPage), size: auditPage, check: checks(auditForwardSQL), unbounded: true},
		{what: "bodies", table: "payload", page: ids(auditBodiesSQL, auditPage), size: auditPage, check: checks(auditBodySQL), unbounded: true},
		{what: "attempts", table: "attempt", page: ids(auditAttemptsSQL, auditPage), size: auditPage, check: checks(auditAttemptSQL), unbounded: true},
	}
	if a.r.Bodies {
		edges = append(edges, edge{what: "hashes of bodies", table: "inbox", page: a.deliveries, size: auditPage, check: a.hashes})
	}
	return edges
}

// deliveries is a page of the inbox, by time of receipt: what was accepted after the
// audit began is none of its business, or it would never end.
func (a *auditor) deliveries(ctx context.Context, after auditPlace) ([]int64, auditPlace, error) {
	sql, args := auditRecentSQL, []any{after.at, after.id, auditPage, a.r.Since, a.until}
	if a.r.Source != "" {
		sql, args = auditSourceSQL, append(args, a.r.Source)
	}
	var keys []int64
	a.sizes = make(map[int64]int64)
	_, err := collect(ctx, a.s, roleRead, func(row pgx.CollectableRow) (id int64, err error) {
		var size int64
		err = row.Scan(&after.at, &id, &size)
		keys, after.id, a.sizes[id] = append(keys, id), id, size
		return id, err
	}, sql, args...)
	return keys, after, err
}

// hashes reads the bodies, as many at a time as are not too large together.
func (a *auditor) hashes(ctx context.Context, keys []int64) (found []suspect, err error) {
	for len(keys) > 0 {
		n, bytes := 0, int64(0)
		for n < len(keys) && (n == 0 || bytes+a.sizes[keys[n]] <= auditBytes) {
			bytes += a.sizes[keys[n]]
			n++
		}
		some, err := collect(ctx, a.s, roleAdmin, scanSuspect, auditHashSQL, keys[:n])
		if err != nil {
			return nil, err
		}
		found, keys = append(found, some...), keys[n:]
	}
	return found, nil
}

func scanSuspect(row pgx.CollectableRow) (f suspect, err error) {
	err = row.Scan(&f.key, &f.Kind, &f.Tenant, &f.Source, &f.DeliveryID, &f.ID, &f.ForwardID, &f.Destination, &f.ResourceType, &f.ResourceID, &f.Detail)
	return f, err
}

// String is the difference on one line.
func (d Discrepancy) String() string {
	where := cmp.Or(d.DeliveryID, "–")
	if d.ResourceID != "" && d.DeliveryID == "" {
		where = d.ResourceType + "/" + d.ResourceID
	}
	if d.Destination != "" {
		where += " to " + d.Destination
	}
	return fmt.Sprintf("%s: %s: %s", d.Kind, where, d.Detail)
}
