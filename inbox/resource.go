package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// ResourceFilter says which resource to look at, and at which destinations.
type ResourceFilter struct {
	// Name is "type/id" of the resource; "/id" where its deliveries name no type.
	// Demanded.
	Name string

	Source      string
	Destination string
	Tenant      string

	// Most bounds the forwards that are read of each lane. Defaults to 100.
	Most int
}

// Resource is how far one destination has come with one resource of a source: a
// lane, and what stands in it.
type Resource struct {
	ID                          int64 // 0: no claim has met it yet
	Tenant, Source, Destination string
	ResourceType, ResourceID    string

	Applied   *int64    // highest revision that the destination has accepted; nil: none
	AppliedAt time.Time // zero: never
	Deleted   bool      // the applied revision was the end of the resource
	Passed    *int64    // up to here nothing is sent any more: applied, or given up

	// InFlight is the forward that is being tried; nil: none is.
	InFlight *Forward
	// Open are the forwards that stand in the lane, in their order, and the dead letters
	// beside it, each with the identity of its delivery. More: these are not all.
	Open []Forward
	More bool
	// Gap is what is missing in the lane; nil: nothing is.
	Gap *Gap

	lane []byte
}

// recentSQL are the deliveries of the resource with the highest revisions: so far back
// goes a look for what no index of lanes holds. $1 and $2 are its id and type, $3 and $4
// source and tenant, empty: any. They are compared in a form that no index serves: the
// planner might take that of the source, and read all its deliveries.
const recentSQL = `
	SELECT id, tenant, source FROM (
		(SELECT id, tenant, source FROM hooklatch.inbox WHERE resource_id = $1 AND resource_type = $2 AND revision IS NOT NULL
			AND $3 IN ('', source || '') AND $4 IN ('', tenant || '') ORDER BY revision DESC LIMIT 100)
		UNION ALL
		(SELECT id, tenant, source FROM hooklatch.inbox WHERE $2 = '' AND resource_id = $1 AND resource_type IS NULL AND revision IS NOT NULL
			AND $3 IN ('', source || '') AND $4 IN ('', tenant || '') ORDER BY revision DESC LIMIT 100)) both_spellings`

// resourcesSQL are the lanes of a resource: those that a claim has met, and those in
// which its latest deliveries still wait for the first one.
const resourcesSQL = `
WITH recent AS (` + recentSQL + `),
lanes AS (
	SELECT id, tenant, source, destination, lane, applied, applied_at, deleted, passed FROM hooklatch.resource
	WHERE resource_id = $1 AND resource_type = $2
	UNION ALL
	SELECT DISTINCT 0, i.tenant, i.source, o.destination, o.lane, NULL::int8, NULL::timestamptz, false, NULL::int8
	FROM recent i CROSS JOIN LATERAL (
		SELECT destination, lane FROM hooklatch.outbox WHERE inbox_id = i.id AND lane IS NOT NULL OFFSET 0) o
	WHERE NOT EXISTS (SELECT FROM hooklatch.resource r WHERE r.destination = o.destination AND r.lane = o.lane))
SELECT * FROM lanes
WHERE ($3 = '' OR source = $3) AND ($4 = '' OR tenant = $4) AND ($5 = '' OR destination = $5)
ORDER BY destination, source, tenant LIMIT 1000`

// Resources reads the lanes of one resource, by destination, source and tenant.
func (s *Store) Resources(ctx context.Context, f ResourceFilter) iter.Seq2[Resource, error] {
	return func(yield func(Resource, error) bool) {
		resourceType, resourceID, ok := strings.Cut(f.Name, "/")
		if !ok || resourceID == "" {
			yield(Resource{}, fmt.Errorf("resources: %q is not TYPE/ID", f.Name))
			return
		}
		found, err := collect(ctx, s, roleRead, func(row pgx.CollectableRow) (r Resource, err error) {
			var at *time.Time
			err = row.Scan(&r.ID, &r.Tenant, &r.Source, &r.Destination, &r.lane, &r.Applied, &at, &r.Deleted, &r.Passed)
			r.ResourceType, r.ResourceID, r.AppliedAt = resourceType, resourceID, timeOr(at)
			return r, err
		}, resourcesSQL, toText(resourceID), toText(resourceType), f.Source, f.Tenant, f.Destination)
		if err != nil {
			yield(Resource{}, readError("resources", err))
			return
		}
		for _, r := range found {
			err := s.as(ctx, roleRead, func(tx pgx.Tx) error { return r.read(ctx, tx, cmp.Or(f.Most, 100)) })
			if err != nil {
				yield(Resource{}, readError("resources", err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

const standsColumns = `o.id, o.destination, o.state, o.attempts, o.attempts_free, o.lease_token, o.lease_until,
	nullif(o.next_attempt_at, 'infinity'), o.expires_at, coalesce(o.blocked_reason, ''), coalesce(o.hold_reason, ''),
	coalesce(o.ordering, ''), o.waiting, o.settled_at, i.id, i.tenant, i.source, i.delivery_id, i.received_at, o.revision, i.deleted`

// ofDelivery reads the delivery of each forward by its key, and never by a join, which
// the planner might turn into a scan.
const ofDelivery = ` CROSS JOIN LATERAL (
	SELECT id, tenant, source, delivery_id, received_at, deleted FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i`

// inLane repeats the condition of the index outbox_lane word for word.
const inLane = `o.destination = $1 AND o.lane = $2 AND o.lane IS NOT NULL AND o.revision IS NOT NULL
	AND (o.state IN ('pending', 'retry_wait', 'held') OR o.state = 'blocked' AND o.ordering = 'strict')`

const openSQL = `SELECT ` + standsColumns + ` FROM (
	SELECT * FROM hooklatch.outbox o WHERE ` + inLane + ` AND o.revision > $3 ORDER BY o.revision, o.id LIMIT $4) o` + ofDelivery + ` ORDER BY o.revision, o.id`

// besideSQL finds what holds nobody, as far as it is recent: dead letters, and what has
// come too late to be sent.
const besideSQL = `
WITH recent AS (` + recentSQL + `)
SELECT ` + standsColumns + ` FROM (
	SELECT o.* FROM recent CROSS JOIN LATERAL (
		SELECT * FROM hooklatch.outbox WHERE inbox_id = recent.id AND destination = $5 OFFSET 0) o
	WHERE o.lane = $6 AND (o.state = 'blocked' AND o.ordering <> 'strict'
		OR o.revision <= $7 AND o.state IN ('pending', 'retry_wait', 'held', 'blocked'))) o` + ofDelivery

const inFlightSQL = `SELECT ` + standsColumns + ` FROM (
	SELECT o.* FROM hooklatch.resource r JOIN hooklatch.outbox o ON o.id = r.in_flight
	WHERE r.destination = $1 AND r.lane = $2 AND o.lease_until > clock_timestamp()) o` + ofDelivery

// read fills in what stands in the lane.
func (r *Resource) read(ctx context.Context, tx pgx.Tx, most int) (err error) {
	passed := orBefore(r.Passed)
	if r.Open, err = standing(ctx, tx, openSQL, r.Destination, r.lane, passed, most+1); err != nil {
		return err
	}
	if r.More = len(r.Open) > most; r.More {
		r.Open = r.Open[:most]
	}
	beside, err := standing(ctx, tx, besideSQL, toText(r.ResourceID), toText(r.ResourceType), r.Source, r.Tenant, r.Destination, r.lane, passed)
	if err != nil {
		return err
	}
	r.Open = append(r.Open, beside...)
	slices.SortStableFunc(r.Open, func(a, b Forward) int { return cmp.Compare(*a.Delivery.Revision, *b.Delivery.Revision) })
	if r.InFlight, err = first(standing(ctx, tx, inFlightSQL, r.Destination, r.lane)); err != nil {
		return err
	}
	r.Gap, err = openGap(ctx, tx, r.ID)
	return err
}

// orBefore is the revision before all others where there is none.
func orBefore(revision *int64) int64 {
	if revision == nil {
		return -1
	}
	return *revision
}

func standing(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]Forward, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanStanding)
}

func scanStanding(row pgx.CollectableRow) (f Forward, err error) {
	var lease, next, settled *time.Time
	d := &f.Delivery
	err = row.Scan(&f.ID, &f.Destination, &f.State, &f.Attempt, &f.AttemptsFree, &f.Token, &lease,
		&next, &f.ExpiresAt, &f.BlockedReason, &f.HoldReason, &f.Ordering, &f.Waiting, &settled,
		&d.ID, &d.Tenant, &d.Source, &d.DeliveryID, &d.ReceivedAt, &d.Revision, &d.Deleted)
	f.LeaseUntil, f.NextAttemptAt, f.SettledAt = timeOr(lease), timeOr(next), timeOr(settled)
	return f, err
}

func first[T any](all []T, err error) (*T, error) {
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// timeOr is the zero time where the database has none.
func timeOr(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// Place is what an open forward of a lane waits for, beside time.
type Place struct {
	// Ahead is the forward behind which it waits: the one that is being tried, else the
	// first of the lane. nil: it is the first itself, or stands in no lane any more.
	Ahead *Forward
	// Gap is what is missing before the first of the lane; nil: nothing is.
	Gap *Gap
}

const laneOfForwardSQL = `
SELECT o.destination, o.lane, coalesce(r.id, 0), r.passed
FROM hooklatch.outbox o LEFT JOIN hooklatch.resource r ON r.destination = o.destination AND r.lane = o.lane
WHERE o.id = $1 AND o.lane IS NOT NULL AND o.state IN ('pending', 'retry_wait', 'held')`

const headSQL = `SELECT ` + standsColumns + ` FROM (
	SELECT * FROM hooklatch.outbox o WHERE ` + inLane + ` AND o.revision > $3 ORDER BY o.revision, o.id LIMIT 1) o` + ofDelivery

// Place says what an open forward waits for in its lane. One without a lane waits for
// nothing.
func (s *Store) Place(ctx context.Context, forwardID int64) (p Place, err error) {
	err = s.as(ctx, roleRead, func(tx pgx.Tx) error {
		var destination string
		var lane []byte
		var resource int64
		var passed *int64
		err := tx.QueryRow(ctx, laneOfForwardSQL, forwardID).Scan(&destination, &lane, &resource, &passed)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if p.Ahead, err = first(standing(ctx, tx, inFlightSQL, destination, lane)); err != nil {
			return err
		}
		if p.Ahead == nil {
			if p.Ahead, err = first(standing(ctx, tx, headSQL, destination, lane, orBefore(passed))); err != nil {
				return err
			}
		}
		if p.Ahead != nil && p.Ahead.ID == forwardID {
			p.Ahead = nil
		}
		p.Gap, err = openGap(ctx, tx, resource)
		return err
	})
	if err != nil {
		return Place{}, readError("place", err)
	}
	return p, nil
}
