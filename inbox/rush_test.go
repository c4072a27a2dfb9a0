package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// rush is everything at once: senders that race for the same ids with the same and
// with other bodies, workers that claim and settle, people who route and look.
type rush struct {
	t      *testing.T
	stores []*Store
	each   int // deliveries of a pair of senders

	mu       sync.Mutex
	fresh    map[string]int     // ids by how often they were accepted as new
	bodies   map[string]string  // what was accepted
	handed   map[string][]int64 // revisions by resource, in the order in which they were handed over
	sent     map[string]int     // attempts by delivery id
	troubles map[string]int     // errors that a caller may try again
	stale    int                // of them: a prepared statement did not fit
	sending  atomic.Int32
	passed   atomic.Int64 // deliveries that were taken
}

const rushPairs, rushResources = 4, 5

// delivery is the n-th of a pair of senders. Every third stands in a lane, every
// seventh is not routed, and of every fifth the second sender has other bytes.
func (r *rush) delivery(pair, second, n int) Delivery {
	body := fmt.Sprintf("body %d %d", pair, n)
	if second == 1 && n%5 == 0 {
		body += " changed"
	}
	d := delivery(fmt.Sprintf("rush_%d_%d", pair, n), body)
	if n%3 == 0 {
		revision := int64(n*rushPairs + pair)
		d.ResourceType, d.ResourceID, d.Revision = "report", fmt.Sprint("R-", n/3%rushResources), &revision
		d.Forwards[0].Ordering = []Ordering{OrderLatest, OrderCoalesce}[n/3%rushResources%2]
	}
	if n%7 == 0 {
		d.Forwards = nil
	}
	return d
}

// may says whether err is one that goes away, and counts it.
func (r *rush) may(op string, err error) bool {
	if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles[op]++
	if classify(err, false) == classStale {
		r.stale++
	}
	return true
}

func (r *rush) send(s *Store, pair, second int) {
	defer r.sending.Add(-1)
	for n := range r.each {
		d := r.delivery(pair, second, n)
		for {
			receipt, err := s.Accept(r.t.Context(), d)
			var conflict *ConflictError
			if errors.As(err, &conflict) {
				if conflict.Unrecorded != nil {
					r.t.Errorf("evidence of %s: %v", d.DeliveryID, conflict.Unrecorded)
				}
				break
			}
			if err != nil && r.may("accept", err) {
				continue
			}
			if err != nil {
				r.t.Errorf("accept %s: %v", d.DeliveryID, err)
				return
			}
			r.accepted(d, receipt)
			if d.Forwards == nil {
				r.route(s, receipt.ID)
			}
			break
		}
	}
}

func (r *rush) accepted(d Delivery, receipt Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !receipt.Duplicate {
		r.fresh[d.DeliveryID]++
	}
	if was := r.bodies[d.DeliveryID]; was != "" && was != string(d.Body) {
		r.t.Errorf("%s was accepted as %q and as %q", d.DeliveryID, was, d.Body)
	}
	r.bodies[d.DeliveryID] = string(d.Body)
	r.passed.Add(1)
}

func (r *rush) route(s *Store, id int64) {
	for {
		_, err := s.Route(r.t.Context(), id, []NewForward{{Destination: "app"}}, act)
		if err == nil || !r.may("route", err) {
			if err != nil {
				r.t.Errorf("route: %v", err)
			}
			return
		}
	}
}

// work claims and settles until nothing is left once the senders are done.
func (r *rush) work(s *Store) {
	for {
		last := r.sending.Load() == 0
		forwards, err := s.Claim(r.t.Context(), ClaimRequest{Destination: "app", Limit: 8, Lease: time.Minute})
		if err != nil && !r.may("claim", err) {
			r.t.Errorf("claim: %v", err)
			return
		}
		for _, f := range forwards {
			r.handOver(&f)
			err := s.Settle(r.t.Context(), settlement(f, OutcomeAccepted, "2xx"))
			for err != nil && r.may("settle", err) {
				err = s.Settle(r.t.Context(), settlement(f, OutcomeAccepted, "2xx"))
			}
			if err != nil {
				r.t.Errorf("settle %d: %v", f.ID, err)
				return
			}
		}
		if last && err == nil && len(forwards) == 0 && r.open(s) == 0 {
			return
		}
	}
}

// open is how many forwards are still to be sent.
func (r *rush) open(s *Store) (n int) {
	stats, err := s.Stats(r.t.Context())
	if err != nil {
		return 1
	}
	for _, d := range stats {
		n += d.Open[Pending] + d.Open[RetryWait] + d.Open[Held]
	}
	return n
}

func (r *rush) handOver(f *Forward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &f.Delivery
	r.sent[d.DeliveryID]++
	if was := r.bodies[d.DeliveryID]; was != "" && was != string(d.Body) {
		r.t.Errorf("%s was accepted as %q and handed over as %q", d.DeliveryID, was, d.Body)
	}
	if f.Ordering == OrderNone {
		return
	}
	before := r.handed[d.ResourceID]
	if len(before) > 0 && *d.Revision <= before[len(before)-1] {
		r.t.Errorf("%s: revision %d after %d", d.ResourceID, *d.Revision, before[len(before)-1])
	}
	r.handed[d.ResourceID] = append(before, *d.Revision)
}

// look reads whatever can be read, as people do.
func (r *rush) look(s *Store) {
	ctx := r.t.Context()
	seen := func(op string, err error) {
		if err != nil && !errors.Is(err, ErrNotFound) && !r.may(op, err) {
			r.t.Errorf("%s: %v", op, err)
		}
	}
	for n := 0; r.sending.Load() > 0; n++ {
		for d, err := range s.Find(ctx, Filter{Source: "src1", Limit: 20}) {
			if seen("find", err); err != nil {
				break
			}
			forwards, err := s.Forwards(ctx, d.ID)
			seen("forwards", err)
			_, err = s.Payload(ctx, d.ID)
			seen("payload", err)
			for _, f := range forwards[:min(1, len(forwards))] {
				for _, err := range s.Attempts(ctx, AttemptFilter{ForwardID: f.ID}) {
					seen("attempts", err)
				}
				_, err = s.Place(ctx, f.ID)
				seen("place", err)
			}
			_, err = s.Conflicts(ctx, d.Tenant, d.Source, d.DeliveryID)
			seen("conflicts", err)
		}
		for _, state := range []State{Pending, Accepted, Superseded, Blocked} {
			for _, err := range s.Find(ctx, Filter{State: state, Limit: 5}) {
				seen("find state", err)
			}
		}
		for _, err := range s.Find(ctx, Filter{ID: fmt.Sprintf("rush_%d_%d", n%rushPairs, n%r.each)}) {
			seen("find id", err)
		}
		for _, err := range s.Resources(ctx, ResourceFilter{Name: fmt.Sprint("report/R-", n%rushResources)}) {
			seen("resources", err)
		}
		for _, err := range s.Gaps(ctx, GapFilter{}) {
			seen("gaps", err)
		}
		for _, err := range s.Unrouted(ctx, UnroutedFilter{Source: "src1"}) {
			seen("unrouted", err)
		}
		for _, err := range s.Acts(ctx, ActFilter{Limit: 10}) {
			seen("acts", err)
		}
		for _, err := range s.Prune(ctx, Retention{Bodies: time.Now().Add(-time.Hour), Identities: time.Now().Add(-time.Hour)}) {
			seen("prune", err)
		}
		_, err := s.Stats(ctx)
		seen("stats", err)
		seen("destinations", s.SaveDestinations(ctx, 0, []Destination{{Name: "app", URL: "http://127.0.0.1"}}))
	}
}

// run lets everything go, does something meanwhile, and judges what has become of it.
func (r *rush) run(during func()) {
	r.t.Helper()
	r.fresh, r.bodies, r.sent, r.troubles = map[string]int{}, map[string]string{}, map[string]int{}, map[string]int{}
	r.handed = map[string][]int64{}
	wholeAtEnd(r.t, r.stores[0].pool)
	var all sync.WaitGroup
	r.sending.Store(2 * rushPairs)
	for pair := range rushPairs {
		for second := range 2 {
			all.Go(func() { r.send(r.stores[(pair+second)%len(r.stores)], pair, second) })
		}
	}
	for _, s := range r.stores {
		all.Go(func() { r.work(s) })
		all.Go(func() { r.work(s) })
		all.Go(func() { r.look(s) })
	}
	during()
	all.Wait()

	pool := r.stores[0].pool
	if n := count(r.t, pool, `SELECT count(*) FROM hooklatch.inbox`); n != rushPairs*r.each || len(r.bodies) != n {
		r.t.Errorf("%d rows, %d ids accepted, want %d of each", n, len(r.bodies), rushPairs*r.each)
	}
	if n := count(r.t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state NOT IN ('accepted', 'superseded')`); n != 0 {
		r.t.Errorf("%d forwards are not at their end", n)
	}
	for pair := range rushPairs {
		for n := range r.each {
			d := r.delivery(pair, 0, n)
			if got := r.fresh[d.DeliveryID]; got > 1 || got == 0 && r.troubles["accept"] == 0 {
				r.t.Errorf("%s was new %d times", d.DeliveryID, got)
			}
			if ordered := n%3 == 0 && n%7 != 0; r.sent[d.DeliveryID] != 1 && !ordered {
				r.t.Errorf("%s was handed over %d times", d.DeliveryID, r.sent[d.DeliveryID])
			}
		}
	}
	for resource, revisions := range r.handed {
		highest := int64(count(r.t, pool, `SELECT max(o.revision) FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id WHERE resource_id = $1`, resource))
		if last := slices.Max(revisions); last != highest {
			r.t.Errorf("%s ends at revision %d, the highest is %d", resource, last, highest)
		}
	}
	r.t.Logf("tried again: %v", r.troubles)
}

// codes counts the errors of a pool's statements by their SQLSTATE.
type codes struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *codes) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *codes) TraceQueryEnd(_ context.Context, _ *pgx.Conn, end pgx.TraceQueryEndData) {
	c.count(end.Err)
}

func (c *codes) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *codes) TraceBatchQuery(_ context.Context, _ *pgx.Conn, query pgx.TraceBatchQueryData) {
	c.count(query.Err)
}

func (c *codes) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *codes) count(err error) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n == nil {
			c.n = map[string]int{}
		}
		c.n[pg.Code]++
	}
}

func (c *codes) of(code string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[code]
}

// traced is a pool whose errors are counted.
func traced(t *testing.T, address string, c *codes) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 8
	cfg.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// newRush has two stores, as two processes have.
func newRush(t *testing.T, address string, each int) (*rush, *codes) {
	t.Helper()
	r, seen := &rush{t: t, each: each}, &codes{}
	for range 2 {
		s, err := New(traced(t, address, seen), Config{})
		if err != nil {
			t.Fatal(err)
		}
		r.stores = append(r.stores, s)
	}
	return r, seen
}

// Neither the isolation nor the durability that a server has as its default is ours.
func TestRushWithUnhelpfulDefaults(t *testing.T) {
	t.Parallel()
	cluster := inboxtest.NewCluster(t, "default_transaction_isolation=repeatable read", "synchronous_commit=off")
	r, seen := newRush(t, cluster.URL(), 40)
	if n := count(t, r.stores[0].pool, `SELECT (current_setting('synchronous_commit') || current_setting('transaction_isolation') = 'offrepeatable read')::int`); n != 1 {
		t.Fatal("void: the defaults are not what they were set to")
	}
	r.run(func() {})
	if n := seen.of("40001"); n != 0 {
		t.Errorf("%d transactions could not be serialised", n)
	}
}

func TestRushThroughAPooler(t *testing.T) {
	t.Parallel()
	r, seen := newRush(t, inboxtest.Pooler(t, inboxtest.URL(t), 4)+"&default_query_exec_mode=exec", 30)
	r.run(func() {})
	if len(seen.n) != 0 {
		t.Errorf("errors: %v", seen.n)
	}
}

// The next version of the schema comes while this binary works: the type of a column
// changes under statements that are prepared, again and again.
func TestRushWhileAColumnChangesItsType(t *testing.T) {
	t.Parallel()
	address := inboxtest.URL(t)
	r, seen := newRush(t, address, 40)
	r.run(func() {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(t.Context())
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n, at := 0, int64(0); n < 10 && r.sending.Load() > 0; n++ {
			for r.sending.Load() > 0 && r.passed.Load() < at { // the second try shall be done before the next change
				<-tick.C
			}
			at = r.passed.Load() + 20
			next := []string{"bigint", "integer"}[n%2]
			_, err := conn.Exec(t.Context(), `ALTER TABLE hooklatch.inbox ALTER COLUMN body_size TYPE `+next)
			if err != nil && !strings.Contains(err.Error(), "40P01") {
				t.Error(err)
			}
		}
	})
	if seen.of("0A000") == 0 {
		t.Error("void: no statement was stale")
	}
	// The second try may meet the next change; most do not.
	if r.stale > 1+seen.of("0A000")/10 {
		t.Errorf("of %d stale statements, %d were not tried again on a fresh connection", seen.of("0A000"), r.stale)
	}
	t.Logf("errors: %v", seen.n)
}
