package inbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"
)

// orderArrival is a delivery that the history of a resource holds, once or several times.
type orderArrival struct {
	d          Delivery
	receivedAt time.Time // zero: it has not arrived yet
	disturbed  bool      // held, blocked or cancelled at some time: another may have gone in its place
	gone       bool      // a person has cancelled it, or it can never be sent again
}

// orderRow is what the database says of a forward.
type orderRow struct {
	id         int64
	deliveryID string
	lane       orderLane
	ordering   Ordering
	revision   *int64
	state      State
	hold       HoldReason
	reason     string
	token      int64
	leaseUntil time.Time
	waiting    bool
	attempts   int
}

func (r orderRow) String() string {
	text := fmt.Sprintf("%s %s of %s, revision %s: %s", r.ordering, r.deliveryID, r.lane.resource, said(r.revision), r.state)
	for _, more := range []string{string(r.hold), r.reason} {
		if more != "" {
			text += " " + more
		}
	}
	if r.waiting {
		text += " waiting"
	}
	if !r.leaseUntil.IsZero() {
		text += fmt.Sprintf(", token %d until %s", r.token, r.leaseUntil.Format("15:04:05"))
	}
	return text
}

// orderLane names a lane: all are of one destination.
type orderLane struct{ source, resource string }

// orderState is what the database says of a lane.
type orderState struct {
	applied, passed *int64
	deleted         bool
}

// orderTruth is what the app has of a lane, and what nobody waits for any more.
type orderTruth struct {
	base    *int64 // of a strict one: before the first that was sent
	applied *int64
	deleted bool
	body    string
	done    map[int64]bool // accepted, given up or cancelled
}

// orderModel plays senders, workers, an app and a person against one destination, whose
// sources have an ordering each. It knows the rules of order alone: what may be sent now,
// and what must never happen.
type orderModel struct {
	s           *Store
	pool        *pgxpool.Pool
	destination string
	now         time.Time

	all     []*orderArrival // in the order of the history
	waiting []*orderArrival // have not arrived yet
	byID    map[string]*orderArrival
	rows    map[string]orderRow
	lanes   map[orderLane]orderState
	truth   map[orderLane]*orderTruth
	leases  []Forward
	settled map[string]bool     // by forward and token
	missing map[orderLane]int64 // the first revision of each open gap
}

const (
	orderLease       = time.Minute
	orderMaxAttempts = 3
	orderGapTimeout  = 70 * time.Minute // the clock of the model starts 60 minutes ahead
	orderDeadline    = 80 * time.Minute
)

func revisionOf(n int64) *int64 { return &n }

// history draws what the senders have to tell, and the order in which it comes.
func (m *orderModel) history(t *rapid.T) {
	add := func(source string, ordering Ordering, resource string, revision *int64, deleted bool, body string) {
		a := &orderArrival{d: Delivery{Tenant: "t1", Source: source, DeliveryID: fmt.Sprint(m.destination, "-", len(m.all)), Method: "POST", Body: []byte(body),
			ResourceType: "report", ResourceID: resource, Revision: revision, Deleted: deleted}}
		f := NewForward{Destination: m.destination, Ordering: ordering, Deadline: 10_000 * time.Hour}
		switch rapid.IntRange(0, 9).Draw(t, "kind of forward") {
		case 0:
			f.Hold, a.disturbed = true, true
		case 1:
			f.Deadline, a.disturbed = orderDeadline, true
		case 2, 3, 4:
			if ordering == OrderStrict {
				f.GapTimeout = orderGapTimeout
			}
		}
		a.d.Forwards = []NewForward{f}
		m.all = append(m.all, a)
		m.byID[a.d.DeliveryID] = a
	}
	orderings := []Ordering{OrderStrict, OrderLatest, OrderCoalesce}
	for _, ordering := range orderings[:rapid.IntRange(1, 3).Draw(t, "orderings")] {
		source := m.destination + "-" + string(ordering)
		for r := range rapid.IntRange(1, 2).Draw(t, "resources") {
			resource := fmt.Sprint("r", r)
			for n := range int64(rapid.IntRange(1, 5).Draw(t, "revisions")) {
				body := fmt.Sprint(resource, " ", n)
				if len(m.all) > 0 && rapid.IntRange(0, 9).Draw(t, "hole") == 0 {
					continue // the sender never had it
				}
				add(source, ordering, resource, revisionOf(n), rapid.IntRange(0, 4).Draw(t, "deleted") == 0, body)
				switch rapid.IntRange(0, 9).Draw(t, "twin") {
				case 0: // the same fact under another id
					add(source, ordering, resource, revisionOf(n), m.all[len(m.all)-1].d.Deleted, body)
				case 1: // another fact
					add(source, ordering, resource, revisionOf(n), rapid.Bool().Draw(t, "twin deleted"), body+" twin")
				case 2: // no valid revision
					add(source, ordering, resource, nil, false, body+" unordered")
				}
			}
		}
	}
	m.waiting = rapid.Permutation(m.all).Draw(t, "arrivals")
}

// arrive lets some deliveries come in, and one that is there already once more.
func (m *orderModel) arrive(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "burst") {
		if len(m.waiting) > 0 {
			m.accept(t, m.waiting[0])
			m.waiting = m.waiting[1:]
		}
	}
	again := rapid.SampledFrom(m.all).Draw(t, "again")
	if !again.receivedAt.IsZero() {
		m.accept(t, again)
	}
}

func (m *orderModel) accept(t *rapid.T, a *orderArrival) {
	r, err := m.s.Accept(t.Context(), a.d)
	if err != nil || r.Duplicate == a.receivedAt.IsZero() {
		t.Fatalf("accept %s: %v, %v", a.d.DeliveryID, r, err)
	}
	a.receivedAt = r.ReceivedAt
}

// claim is a worker that takes what it gets, and an app that looks at it.
func (m *orderModel) claim(t *rapid.T, limit int) []Forward {
	before, missing := m.rows, m.missing
	r := ClaimRequest{Destination: m.destination, Limit: limit, Lease: orderLease, MaxAttempts: orderMaxAttempts, Now: m.now}
	most := limit
	if rapid.Bool().Draw(t, "shares") {
		most = rapid.IntRange(0, limit).Draw(t, "most")
		r.Shares = map[string]Share{"t1": {Weight: 1, Most: most}}
		r.ForRetries, r.ForNew = rapid.IntRange(0, limit).Draw(t, "for retries"), rapid.IntRange(0, limit).Draw(t, "for new")
	}
	got, err := m.s.Claim(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	retries := 0
	for _, f := range got {
		if before[f.Delivery.DeliveryID].state == RetryWait {
			retries++
		}
	}
	if len(got) > most || retries > limit-r.ForNew {
		t.Fatalf("%d were claimed, %d of them tried before, where %d of %d places were to be had and %d were for new ones", len(got), retries, most, limit, r.ForNew)
	}
	m.read(t)
	m.judgeGaps(t)
	for l, n := range m.missing {
		if known, was := missing[l]; !was || known != n {
			m.judgeMissing(t, l, n)
		}
	}
	for _, f := range got {
		was, is, a := before[f.Delivery.DeliveryID], m.rows[f.Delivery.DeliveryID], m.byID[f.Delivery.DeliveryID]
		switch {
		case string(f.Delivery.Body) != string(a.d.Body):
			t.Fatalf("%s: sent %q, received %q", was.deliveryID, f.Delivery.Body, a.d.Body)
		case was.state != Pending && was.state != RetryWait && (was.state != Held || was.hold != HoldGap):
			t.Fatalf("%s was sent from state %s %s", was.deliveryID, was.state, was.hold)
		case was.leaseUntil.After(m.now):
			t.Fatalf("%s was sent while its lease was alive", was.deliveryID)
		case is.token != f.Token || !is.leaseUntil.After(m.now):
			t.Fatalf("claimed %v, stored %v", f, is)
		}
		if f.Ordering != is.ordering {
			t.Fatalf("%s was claimed as %q, and is %q", was.deliveryID, f.Ordering, is.ordering)
		}
		if is.ordering != OrderNone {
			m.judge(t, is)
		}
	}
	m.leases = append(m.leases, got...)
	return got
}

// judge says whether the order allows what was sent just now.
func (m *orderModel) judge(t *rapid.T, sent orderRow) {
	truth, r := m.truthOf(sent.lane), *sent.revision
	if truth.applied != nil && r <= *truth.applied {
		t.Fatalf("%v was sent after revision %d was applied", sent, *truth.applied)
	}
	for _, other := range m.rows {
		if other.lane != sent.lane || other.id == sent.id || other.revision == nil {
			continue
		}
		open := other.state == Pending || other.state == RetryWait || other.state == Held && other.hold == HoldGap
		before := *other.revision < r || *other.revision == r && other.id < sent.id
		passed := *other.revision <= max(orBefore(truth.applied), orBefore(truth.base)) || truth.done[*other.revision]
		switch {
		case other.leaseUntil.After(m.now):
			t.Fatalf("%v was sent beside %v", sent, other)
		case sent.ordering == OrderCoalesce && *other.revision > r && (other.state == Pending || other.state == RetryWait):
			t.Fatalf("%v was sent while %v, which is newer, waits", sent, other)
		case sent.ordering != OrderCoalesce && open && before && !passed:
			t.Fatalf("%v was sent before %v", sent, other)
		case sent.ordering != OrderCoalesce && other.state == Held && before && !passed:
			t.Fatalf("%v was sent past %v, which waits for a person", sent, other)
		case sent.ordering == OrderStrict && other.state == Blocked && before && !passed:
			t.Fatalf("%v was sent past the dead letter %v", sent, other)
		}
	}
	if sent.ordering != OrderStrict {
		return
	}
	if truth.base == nil {
		truth.base = revisionOf(r - 1)
	}
	for n := *truth.base + 1; n < r; n++ {
		if !truth.done[n] {
			t.Fatalf("%v was sent, and revision %d left out", sent, n)
		}
	}
}

// judgeMissing says whether a lane may begin to wait for a revision.
func (m *orderModel) judgeMissing(t *rapid.T, l orderLane, n int64) {
	if m.truthOf(l).done[n] {
		t.Fatalf("%v waits for revision %d, which nobody will send any more", l, n)
	}
	for _, r := range m.rows {
		if r.lane == l && r.revision != nil && *r.revision == n && r.state != Superseded && r.state != Cancelled {
			t.Fatalf("%v waits for revision %d, and it is here: %v", l, n, r)
		}
	}
}

// judgeGaps looks at the gaps, and what closed them.
func (m *orderModel) judgeGaps(t *rapid.T) {
	m.missing = map[orderLane]int64{}
	for g, err := range m.s.Gaps(t.Context(), GapFilter{All: true, Destination: m.destination}) {
		if err != nil {
			t.Fatal(err)
		}
		truth := m.truthOf(orderLane{g.Source, g.ResourceID})
		if !slices.ContainsFunc(m.all, func(a *orderArrival) bool {
			return a.d.Source == g.Source && a.d.ResourceID == g.ResourceID && a.receivedAt.Equal(g.OpenedAt) && *a.d.Revision > g.FirstMissing
		}) {
			t.Fatalf("nothing was received when gap %v was opened", g)
		}
		if truth.base != nil && g.FirstMissing <= *truth.base {
			t.Fatalf("gap %v begins before revision %d, the first that was sent", g, *truth.base+1)
		}
		if g.ClosedBy == "" {
			m.missing[orderLane{g.Source, g.ResourceID}] = g.FirstMissing
			continue
		}
		if g.ClosedBy != "timeout" { // by a release: that says itself what is given up
			continue
		}
		if m.now.Before(g.OpenedAt.Add(orderGapTimeout)) {
			t.Fatalf("gap %v was given up at %s", g, m.now)
		}
		for n := g.FirstMissing; n <= g.LastMissing; n++ {
			truth.done[n] = true
		}
	}
}

// work is a worker that tries at once what it gets.
func (m *orderModel) work(t *rapid.T) {
	for _, f := range m.claim(t, rapid.IntRange(1, 5).Draw(t, "limit")) {
		m.settleAs(t, f, rapid.SampledFrom([]Outcome{OutcomeAccepted, OutcomeAccepted, OutcomeRetry, OutcomeBlocked}).Draw(t, "outcome"))
		m.read(t)
	}
}

func (m *orderModel) settle(t *rapid.T) {
	if len(m.leases) == 0 {
		t.Skip("no lease yet")
	}
	lease := rapid.SampledFrom(m.leases).Draw(t, "lease")
	outcome := rapid.SampledFrom([]Outcome{OutcomeAccepted, OutcomeAccepted, OutcomeAccepted, OutcomeRetry, OutcomeBlocked, OutcomeReleased}).Draw(t, "outcome")
	m.settleAs(t, lease, outcome)
}

func (m *orderModel) settleAs(t *rapid.T, lease Forward, outcome Outcome) {
	was := m.rows[lease.Delivery.DeliveryID]
	st := settlement(lease, outcome, "5xx")
	st.Reason, st.Delay, st.Now = "client_error", 30*time.Second, m.now
	err := m.s.Settle(t.Context(), st)
	if was.token != lease.Token {
		if !errors.Is(err, ErrLeaseLost) {
			t.Fatalf("a late settle of %v: %v, want ErrLeaseLost", was, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("settle %v: %v", was, err)
	}
	a := m.byID[was.deliveryID]
	key := fmt.Sprint(lease.ID, " ", lease.Token)
	if m.settled[key] {
		return // the repeat of a settlement
	}
	if m.settled[key] = true; was.leaseUntil.IsZero() {
		t.Fatalf("a settle of %v was taken, whose lease was lost", was)
	}
	switch outcome {
	case OutcomeBlocked:
		a.disturbed = true
	case OutcomeAccepted:
		if was.ordering == OrderNone {
			return
		}
		truth := m.truthOf(was.lane)
		truth.done[*was.revision] = true
		if truth.applied == nil || *was.revision > *truth.applied {
			truth.applied, truth.deleted, truth.body = was.revision, a.d.Deleted, string(a.d.Body)
		}
	}
}

func (m *orderModel) wait(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{10 * time.Second, 61 * time.Second, 6 * time.Minute}).Draw(t, "time"))
}

func (m *orderModel) truthOf(l orderLane) *orderTruth {
	if m.truth[l] == nil {
		m.truth[l] = &orderTruth{done: map[int64]bool{}}
	}
	return m.truth[l]
}

const (
	orderRowsSQL = `SELECT o.id, i.delivery_id, i.source, coalesce(i.resource_id, ''), coalesce(o.ordering, ''), o.revision, o.state,
		coalesce(o.hold_reason, ''), coalesce(o.blocked_reason, ''), o.lease_token, o.lease_until, o.waiting, o.attempts
		FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id WHERE o.destination = $1`
	orderLanesSQL = `SELECT r.source, r.resource_id, r.applied, r.passed, r.deleted FROM hooklatch.resource r WHERE r.destination = $1`
)

// read takes over what the database says.
func (m *orderModel) read(t *rapid.T) {
	rows, err := m.pool.Query(t.Context(), orderRowsSQL, m.destination)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r orderRow, err error) {
		var lease *time.Time
		err = row.Scan(&r.id, &r.deliveryID, &r.lane.source, &r.lane.resource, &r.ordering, &r.revision, &r.state, &r.hold, &r.reason, &r.token, &lease, &r.waiting, &r.attempts)
		r.leaseUntil = timeOr(lease)
		return r, err
	})
	if err != nil {
		t.Fatal(err)
	}
	m.rows = map[string]orderRow{}
	for _, r := range all {
		m.rows[r.deliveryID] = r
	}
	rows, err = m.pool.Query(t.Context(), orderLanesSQL, m.destination)
	if err != nil {
		t.Fatal(err)
	}
	m.lanes = map[orderLane]orderState{}
	var l orderLane
	var s orderState
	if _, err = pgx.ForEachRow(rows, []any{&l.source, &l.resource, &s.applied, &s.passed, &s.deleted}, func() error {
		m.lanes[l] = s
		s = orderState{}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// check demands after every step what must hold at any time.
func (m *orderModel) check(t *rapid.T) {
	before := m.lanes
	m.read(t)
	m.judgeGaps(t)
	live := map[orderLane]int{}
	for id, r := range m.rows {
		a := m.byID[id]
		if (r.ordering == OrderNone) != (a.d.Revision == nil) {
			t.Fatalf("%v has an order, or none", r)
		}
		if r.state == Blocked {
			a.disturbed = true
		}
		if r.ordering == OrderNone {
			continue
		}
		if r.leaseUntil.After(m.now) {
			if live[r.lane]++; live[r.lane] > 1 {
				t.Fatalf("two leases in lane %v", r.lane)
			}
		}
		s := m.lanes[r.lane]
		if r.state == Superseded && (s.passed == nil || *r.revision > *s.passed) && r.ordering != OrderCoalesce {
			t.Fatalf("%v is superseded by nothing: %v", r, s)
		}
		if r.state == Accepted && !m.truthOf(r.lane).done[*r.revision] {
			t.Fatalf("%v is accepted, and the app has not got it", r)
		}
	}
	for l, s := range m.lanes {
		truth, was := m.truthOf(l), before[l]
		switch {
		case !equalRevisions(s.applied, truth.applied) || s.deleted != truth.deleted:
			t.Fatalf("lane %v: %s deleted %v, and the app has %s deleted %v", l, said(s.applied), s.deleted, said(truth.applied), truth.deleted)
		case was.applied != nil && (s.applied == nil || *s.applied < *was.applied):
			t.Fatalf("lane %v: applied fell from %s to %s", l, said(was.applied), said(s.applied))
		case was.passed != nil && (s.passed == nil || *s.passed < *was.passed):
			t.Fatalf("lane %v: passed fell from %s to %s", l, said(was.passed), said(s.passed))
		case !strings.HasSuffix(l.source, "strict") && !equalRevisions(s.applied, s.passed):
			t.Fatalf("lane %v: %s was passed, %s applied", l, said(s.passed), said(s.applied))
		}
	}
}

func equalRevisions(a, b *int64) bool { return said(a) == said(b) }

func said(revision *int64) string {
	if revision == nil {
		return "none"
	}
	return fmt.Sprint(*revision)
}
