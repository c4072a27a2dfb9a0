package inbox

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// candidate is a forward that is due and stands in no lane, or a lane with one that is.
type candidate struct {
	tenant string
	retry  bool // it was tried before
	at     time.Time
	id     int64
	lane   string // empty: it stands in none
}

// places are the free places of a claim, and who may take them.
type places struct {
	left    int
	retries int              // of them, for what was tried before
	first   int              // of those, before what is new
	shares  map[string]Share // nil: all tenants are one
	weights int              // of all of them
}

func newPlaces(r ClaimRequest) *places {
	p := &places{left: r.Limit, retries: max(r.Limit-r.ForNew, 0), first: r.ForRetries}
	if r.Shares == nil {
		return p
	}
	p.shares = make(map[string]Share, len(r.Tenants))
	for _, tenant := range r.Tenants {
		share, ok := r.Shares[tenant]
		if !ok {
			share.Most = math.MaxInt
		}
		share.Weight = max(share.Weight, 1)
		p.weights += share.Weight
		p.shares[tenant] = share
	}
	return p
}

func (p *places) clone() *places {
	c := *p
	c.shares = maps.Clone(p.shares)
	return &c
}

// room is how many forwards of a tenant may be taken.
func (p *places) room(tenant string, retry bool) int {
	n := p.left
	if p.shares != nil {
		n = min(n, p.shares[tenant].Most)
	}
	if retry {
		n = min(n, p.retries)
	}
	return max(n, 0)
}

func (p *places) take(tenant string, retry bool) {
	p.left--
	if retry {
		p.retries--
		p.first--
	}
	if p.shares != nil {
		share := p.shares[tenant]
		share.Busy++
		share.Most--
		p.shares[tenant] = share
	}
}

// queue is what is due of those who share as one: a tenant, or all of them.
type queue struct {
	tenant string
	fresh  []candidate
	tried  []candidate
}

// next says which of the two goes first; nil: neither may be taken.
func (q *queue) next(p *places) *[]candidate {
	fresh := len(q.fresh) > 0 && p.room(q.tenant, false) > 0
	tried := len(q.tried) > 0 && p.room(q.tenant, true) > 0
	switch {
	case tried && (p.first > 0 || !fresh):
		return &q.tried
	case fresh:
		return &q.fresh
	}
	return nil
}

// before says that a tenant has less than another, by weight, if each gets one more.
func (p *places) before(a, b *queue, headA, headB candidate) bool {
	x, y := p.shares[a.tenant], p.shares[b.tenant]
	return cmp.Or(cmp.Compare((x.Busy+1)*max(y.Weight, 1), (y.Busy+1)*max(x.Weight, 1)), byAge(headA, headB)) < 0
}

func byAge(a, b candidate) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) }

// choose gives the places away, one after the other, each to the tenant that has least.
func (p *places) choose(due []candidate) (chosen, left []candidate) {
	slices.SortFunc(due, byAge)
	var queues []*queue
	known := map[string]*queue{}
	for _, d := range due {
		key := ""
		if p.shares != nil {
			key = d.tenant
		}
		q := known[key]
		if q == nil {
			q = &queue{tenant: key}
			known[key], queues = q, append(queues, q)
		}
		if d.retry {
			q.tried = append(q.tried, d)
		} else {
			q.fresh = append(q.fresh, d)
		}
	}
	for p.left > 0 {
		var best *queue
		var from *[]candidate
		for _, q := range queues {
			if next := q.next(p); next != nil && (best == nil || p.before(q, best, (*next)[0], (*from)[0])) {
				best, from = q, next
			}
		}
		if best == nil {
			break
		}
		d := (*from)[0]
		*from = (*from)[1:]
		chosen = append(chosen, d)
		p.take(d.tenant, d.retry)
	}
	for _, q := range queues {
		left = append(append(left, q.fresh...), q.tried...)
	}
	return chosen, left
}

// turnOf puts new forwards before those that were tried.
func turnOf(state State) int {
	if state == RetryWait {
		return 1
	}
	return 0
}

// looks says how many forwards of which tenant and state to look at.
type looks struct {
	tenants, states []string
	most            []int32
	wanted          []int // more than most where there are too many tenants to look at all at once
}

func (l *looks) add(tenant string, state State, most, wanted int) {
	l.tenants, l.states, l.most = append(l.tenants, tenant), append(l.states, string(state)), append(l.most, int32(most))
	l.wanted = append(l.wanted, wanted)
}

func (l *looks) args(now *time.Time, destination string) []any {
	return []any{now, destination, l.tenants, l.states, l.most}
}

// kind is what is counted as one: forwards of a tenant in a state.
type kind struct{ tenant, state string }

// cut says of what was found whether there may be more of some kind, and whether it was
// looked at less than wanted.
func (l *looks) cut(found map[kind]int) (more, narrow bool) {
	for i, most := range l.most {
		if found[kind{l.tenants[i], l.states[i]}] >= int(most) {
			more, narrow = true, narrow || int(most) < l.wanted[i]
		}
	}
	return more, narrow
}

// wide is how many forwards of each state a round of a claim looks at, of all tenants
// together. Most of the first are enough to fill the places; a later one finds the rest.
func wide(places, round int) int { return 32 * places << (2 * min(round-1, 8)) }

// looks are as many as may be taken, at least so many where any may, but no more than
// the part of the tenant of those that the round looks at.
func (p *places) looks(tenants []string, atLeast, wide int, states ...State) *looks {
	l := &looks{}
	for _, tenant := range tenants {
		for _, state := range states {
			if n := p.room(tenant, state == RetryWait); n > 0 {
				n = max(n, atLeast)
				l.add(tenant, state, min(n, p.part(tenant, wide)), n)
			}
		}
	}
	return l
}

// part is what of n things belongs to a tenant, by its weight.
func (p *places) part(tenant string, n int) int {
	if p.shares == nil {
		return n
	}
	return max(n*p.shares[tenant].Weight/p.weights, 1)
}

// looksFor counts those that were chosen and stand in no lane.
func looksFor(chosen []candidate) *looks {
	l := &looks{}
	for k, n := range countKinds(chosen) {
		l.add(k.tenant, State(k.state), n, n)
	}
	return l
}

func countKinds(all []candidate) map[kind]int {
	counts := map[kind]int{}
	for _, d := range all {
		switch {
		case d.lane != "":
		case d.retry:
			counts[kind{d.tenant, string(RetryWait)}]++
		default:
			counts[kind{d.tenant, string(Pending)}]++
		}
	}
	return counts
}

// dueSQL finds what is due and stands in no lane, of each tenant and state the oldest.
// It locks nothing: most of it may not be taken.
const dueSQL = `
WITH t AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT q.tenant, q.state = 'retry_wait', o.next_attempt_at, o.id
FROM unnest($3::text[], $4::text[], $5::int4[]) AS q(tenant, state, most)
CROSS JOIN LATERAL (
	SELECT id, next_attempt_at FROM hooklatch.outbox
	WHERE destination = $2 AND tenant = q.tenant AND state = q.state AND ` + loneDue + ` AND next_attempt_at <= (SELECT now FROM t)
		AND (lease_until IS NULL OR lease_until <= (SELECT now FROM t))
		AND NOT EXISTS (SELECT FROM hooklatch.destination WHERE name = $2 AND paused_at IS NOT NULL)
	ORDER BY next_attempt_at, id LIMIT q.most) o`

func readDue(rows pgx.Rows) ([]candidate, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d candidate, err error) {
		return d, row.Scan(&d.tenant, &d.retry, &d.at, &d.id)
	})
}

// tenantsOf steps from one tenant to the next of what waits for destination $1 outside
// lanes, and in them.
const tenantsOf = `
WITH RECURSIVE alone AS (
	(SELECT tenant FROM hooklatch.outbox WHERE destination = $1 AND ` + loneDue + ` ORDER BY tenant LIMIT 1)
	UNION ALL
	SELECT n.tenant FROM alone a CROSS JOIN LATERAL (
		SELECT tenant FROM hooklatch.outbox WHERE destination = $1 AND tenant > a.tenant AND ` + loneDue + ` ORDER BY tenant LIMIT 1) n),
ordered AS (
	(SELECT tenant FROM hooklatch.outbox WHERE destination = $1 AND ` + inLaneDue + ` ORDER BY tenant LIMIT 1)
	UNION ALL
	SELECT n.tenant FROM ordered a CROSS JOIN LATERAL (
		SELECT tenant FROM hooklatch.outbox WHERE destination = $1 AND tenant > a.tenant AND ` + inLaneDue + ` ORDER BY tenant LIMIT 1) n)
`

// waitingTenantsSQL finds the tenants of what waits, and of the gaps that are to be
// looked at.
const waitingTenantsSQL = tenantsOf + `
SELECT tenant FROM alone UNION SELECT tenant FROM ordered
UNION (SELECT tenant FROM hooklatch.gap WHERE closed_at IS NULL AND resource > $2 ORDER BY resource LIMIT $3)`

func (s *Store) waitingTenants(ctx context.Context, destination string) ([]string, error) {
	return collect(ctx, s, roleRead, pgx.RowTo[string], waitingTenantsSQL, destination, s.looked.last(destination), gapsLooked)
}
