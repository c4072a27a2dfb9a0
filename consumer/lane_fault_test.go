package consumer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// ofResource is a revision of a resource, ordered at its destination.
func ofResource(ordering inbox.Ordering, resource string, revision int64) inbox.Delivery {
	body := fmt.Appendf(nil, `{"resource":%q,"revision":%d}`, resource, revision)
	return inbox.Delivery{
		Tenant: "t1", Source: "src1", DeliveryID: fmt.Sprintf("%s-%d", resource, revision), Method: "POST",
		Body: body, BodyHash: sha256.Sum256(body),
		ResourceType: "thing", ResourceID: resource, Revision: &revision,
		Forwards: []inbox.NewForward{{Destination: "app", Ordering: ordering}},
	}
}

// stoppedStore is a store whose first claim with something in it comes back as late as
// the test wants, as that of a process does which was stopped meanwhile.
type stoppedStore struct {
	*inbox.Store
	once    sync.Once
	claimed chan struct{}
	goOn    chan struct{}
	settled chan inbox.Settlement
}

func (s *stoppedStore) Claim(ctx context.Context, r inbox.ClaimRequest) ([]inbox.Forward, error) {
	got, err := s.Store.Claim(ctx, r)
	if len(got) > 0 {
		s.once.Do(func() {
			close(s.claimed)
			<-s.goOn
		})
	}
	return got, err
}

func (s *stoppedStore) Settle(ctx context.Context, st inbox.Settlement) error {
	defer func() { s.settled <- st }()
	return s.Store.Settle(ctx, st)
}

// X43, P09: a worker that was stopped between its claim and the sending, for longer than
// the lease, sends nothing: another has sent this revision, and later ones, by now.
func TestX43_WhatWasClaimedTooLongAgoIsNotSent(t *testing.T) {
	store, pool := newStore(t)
	for revision := range int64(3) {
		if _, err := store.Accept(t.Context(), ofResource(inbox.OrderStrict, "r", revision)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var sent []int64
	h := HandlerFunc(func(_ context.Context, f Forward) error {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, *f.Delivery.Revision)
		return nil
	})
	stopped := &stoppedStore{Store: store, claimed: make(chan struct{}), goOn: make(chan struct{}), settled: make(chan inbox.Settlement, 100)}
	cfg := Config{Timeout: 100 * time.Millisecond, Lease: 200 * time.Millisecond}
	_, _, stopLate := started(t, stopped, h, cfg)
	<-stopped.claimed
	_, results, stopQuick := started(t, store, h, cfg)
	for n := 0; n < 3; n++ {
		next(t, results)
	}
	close(stopped.goOn)
	<-stopped.settled // the late worker has done with what it claimed
	stopLate()
	stopQuick()
	if !slices.Equal(sent, []int64{0, 1, 2}) {
		t.Errorf("sent %v, want each revision once and in order", sent)
	}
	if n := forwards(t, pool, "state = 'accepted' AND lease_until IS NULL"); n != 3 {
		t.Errorf("%d accepted", n)
	}
}

// A laneWorld is senders, an inbox and two processes' worth of workers, which go on
// while a test does harm to the server. The destination "strict" settles in the
// transaction of its business rows; "latest" and "coalesce" only note what they get.
type laneWorld struct {
	t      *testing.T
	pool   *pgxpool.Pool
	stores []*inbox.Store
	jobs   []inbox.Delivery

	lease time.Duration
	stall func() // of a worker that has a forward in hand; deaf to its context

	booked  atomic.Int64 // business rows, also such as were rolled back
	trouble atomic.Int64 // errors that senders and workers have met
	lost    atomic.Int64 // attempts that ended after their lease
	mu      sync.Mutex
	got     map[string][]int64 // by destination and resource: the revisions handed over
	acked   map[string][32]byte
	fresh   map[string]int // how often an id was taken as new
}

const (
	worldResources = 10
	worldRevisions = 12
)

func newLaneWorld(t *testing.T, cluster *inboxtest.Cluster) *laneWorld {
	t.Helper()
	w := &laneWorld{t: t, pool: cluster.Pool(), lease: 4 * time.Second, stall: func() {}, got: map[string][]int64{}, acked: map[string][32]byte{}, fresh: map[string]int{}}
	if _, err := w.pool.Exec(t.Context(), `CREATE TABLE booked (n bigint GENERATED ALWAYS AS IDENTITY, resource text, revision bigint)`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		store, err := inbox.New(cluster.Pool(), inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w.stores = append(w.stores, store)
	}
	wholeAtEnd(t, w.stores[0])
	for r := range worldResources {
		for revision := range int64(worldRevisions) {
			d := ofResource(inbox.OrderNone, fmt.Sprint("r", r), revision)
			d.Forwards = nil
			for name, ordering := range map[string]inbox.Ordering{"strict": inbox.OrderStrict, "latest": inbox.OrderLatest, "coalesce": inbox.OrderCoalesce} {
				d.Forwards = append(d.Forwards, inbox.NewForward{Destination: name, Ordering: ordering})
			}
			if revision == 0 {
				w.accept(w.stores[0], d) // the base of the strict lane
				continue
			}
			other := d
			other.Body = append(slices.Clone(d.Body), ' ')
			other.BodyHash = sha256.Sum256(other.Body)
			w.jobs = append(w.jobs, d, d)
			if revision%4 == 0 {
				w.jobs = append(w.jobs, other)
			}
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	shuffle := mathrand.New(mathrand.NewPCG(seed, 0))
	shuffle.Shuffle(len(w.jobs), func(i, j int) { w.jobs[i], w.jobs[j] = w.jobs[j], w.jobs[i] })
	return w
}

// accept sends a delivery until it is taken or in conflict, as senders do.
func (w *laneWorld) accept(store *inbox.Store, d inbox.Delivery) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		receipt, err := store.Accept(context.Background(), d)
		var conflict *inbox.ConflictError
		if err != nil && !errors.As(err, &conflict) {
			w.trouble.Add(1)
			wait(w.t.Context().Done(), 20*time.Millisecond)
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if known, ok := w.acked[d.DeliveryID]; ok && (known == d.BodyHash) == (conflict != nil) {
			w.t.Errorf("%s: %v, after another answer about the same bytes", d.DeliveryID, err)
		}
		if conflict == nil {
			w.acked[d.DeliveryID] = d.BodyHash
			if !receipt.Duplicate {
				w.fresh[d.DeliveryID]++
			}
		}
		return
	}
	w.t.Errorf("%s was never taken", d.DeliveryID)
}

// run starts all, lets the test do harm, and returns when every forward is settled.
func (w *laneWorld) run(harm func()) {
	w.t.Helper()
	var stops []func() error
	for _, store := range w.stores {
		for _, name := range []string{"strict", "latest", "coalesce"} {
			stops = append(stops, launch(w.t, w.worker(store, name)))
		}
	}
	jobs := make(chan inbox.Delivery, len(w.jobs))
	for _, d := range w.jobs {
		jobs <- d
	}
	close(jobs)
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			for d := range jobs {
				w.accept(w.stores[i%2], d)
			}
		})
	}
	harm()
	senders.Wait()
	w.await("every forward is settled", func() bool {
		return w.number(`SELECT count(*) FROM hooklatch.outbox WHERE state IN ('pending', 'retry_wait', 'held') OR lease_until IS NOT NULL`) == 0
	})
	for _, stop := range stops {
		if err := stop(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *laneWorld) worker(store *inbox.Store, destination string) *Consumer {
	w.t.Helper()
	cfg := Config{
		Destination: destination, Concurrency: 4, Timeout: w.lease / 2, Lease: w.lease, Poll: 50 * time.Millisecond,
		Retry:   Retry{Base: time.Millisecond, Cap: 20 * time.Millisecond, MaxAttempts: -1},
		OnError: func(error) { w.trouble.Add(1) },
		OnAttempt: func(_ context.Context, r AttemptResult) {
			if r.LeaseLost {
				w.lost.Add(1)
			}
		},
	}
	note := func(f Forward) {
		w.mu.Lock()
		defer w.mu.Unlock()
		key := destination + " " + f.Delivery.ResourceID
		w.got[key] = append(w.got[key], *f.Delivery.Revision)
	}
	if destination != "strict" {
		c, err := New(store, HandlerFunc(func(_ context.Context, f Forward) error {
			note(f)
			w.stall()
			return nil
		}), cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		return c
	}
	c, err := NewTx(store, TxHandlerFunc(func(ctx context.Context, tx pgx.Tx, f Forward) error {
		note(f)
		w.booked.Add(1)
		w.stall()
		_, err := tx.Exec(ctx, `INSERT INTO booked (resource, revision) VALUES ($1, $2)`, f.Delivery.ResourceID, *f.Delivery.Revision)
		return err
	}), TxConfig{DB: w.pool, Config: cfg})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *laneWorld) await(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); wait(w.t.Context().Done(), 10*time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not in two minutes: %s", what)
		}
	}
}

// number runs a query that returns one; -1 while the database is away.
func (w *laneWorld) number(sql string) (n int) {
	if err := w.pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		return -1
	}
	return n
}

// lanes are the applied and the passed revision of each lane.
func (w *laneWorld) lanes() map[string][2]int64 {
	w.t.Helper()
	all := map[string][2]int64{}
	w.await("the database answers", func() bool {
		rows, err := w.pool.Query(context.Background(), `SELECT destination || ' ' || resource_id, coalesce(applied, -1), coalesce(passed, -1) FROM hooklatch.resource`)
		if err != nil {
			return false
		}
		var name string
		var at [2]int64
		_, err = pgx.ForEachRow(rows, []any{&name, &at[0], &at[1]}, func() error { all[name] = at; return nil })
		return err == nil
	})
	return all
}

// harmed does harm n times, each time after more was booked, and checks that it was
// felt, and that no lane went back.
func (w *laneWorld) harmed(n int, harm func()) {
	w.t.Helper()
	for i := range int64(n) {
		at := (i + 1) * worldResources * worldRevisions / int64(n+2)
		w.await("enough is booked", func() bool { return w.booked.Load() >= at })
		before, trouble := w.lanes(), w.trouble.Load()
		harm()
		w.await("the harm is felt", func() bool { return w.trouble.Load() > trouble })
		after := w.lanes()
		for lane, at := range before {
			if after[lane][0] < at[0] || after[lane][1] < at[1] {
				w.t.Errorf("lane %s went from %d, passed %d, back to %d, passed %d", lane, at[0], at[1], after[lane][0], after[lane][1])
			}
		}
	}
}

// check compares what everyone has seen.
func (w *laneWorld) check() {
	w.t.Helper()
	const last = worldRevisions - 1
	for id, hash := range w.acked { // P01, P03
		var stored []byte
		if err := w.pool.QueryRow(w.t.Context(), `SELECT body_hash FROM hooklatch.inbox WHERE delivery_id = $1`, id).Scan(&stored); err != nil || [32]byte(stored) != hash {
			w.t.Errorf("%s was taken, and is stored with hash %x, %v", id, stored, err)
		}
		if w.fresh[id] > 1 {
			w.t.Errorf("%s was new %d times", id, w.fresh[id])
		}
	}
	if len(w.acked) != worldResources*worldRevisions {
		w.t.Errorf("%d deliveries taken", len(w.acked))
	}
	for lane, at := range w.lanes() {
		if at != [2]int64{last, last} {
			w.t.Errorf("lane %s ends at %d, passed %d", lane, at[0], at[1])
		}
	}
	for r := range worldResources {
		name := fmt.Sprint("r", r)
		rows, err := w.pool.Query(w.t.Context(), `SELECT revision FROM booked WHERE resource = $1 ORDER BY n`, name)
		if err != nil {
			w.t.Fatal(err)
		}
		booked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(booked) != worldRevisions || !slices.IsSorted(booked) || booked[last] != last {
			w.t.Errorf("%s: booked %v, %v; want each revision once and in order", name, booked, err)
		}
		for _, destination := range []string{"latest", "coalesce"} {
			if got := w.got[destination+" "+name]; len(got) == 0 || got[len(got)-1] != last {
				w.t.Errorf("%s of %s got %v, want revision %d last", destination, name, got, last)
			}
		}
		got := w.got["strict "+name]
		for i := 1; i < len(got); i++ {
			if step := got[i] - got[i-1]; step != 0 && step != 1 {
				w.t.Errorf("strict of %s was handed %v", name, got)
				break
			}
		}
	}
}

// P01, P09: the server is killed under duplicates, conflicts and lanes of every order.
func TestP01_P09_PostmasterKilledUnderLanes(t *testing.T) {
	t.Parallel()
	cluster := inboxtest.NewCluster(t)
	w := newLaneWorld(t, cluster)
	w.run(func() {
		w.harmed(3, func() {
			cluster.Kill()
			cluster.Start()
		})
	})
	w.check()
}

// P09: the connections of those who work on lanes are ended, again and again.
func TestP09_BackendsTerminatedUnderLanes(t *testing.T) {
	t.Parallel()
	cluster := inboxtest.NewCluster(t)
	w := newLaneWorld(t, cluster)
	w.run(func() {
		w.harmed(12, func() {
			if cluster.Terminate() == 0 {
				t.Error("void: there was no connection")
			}
		})
	})
	w.check()
}

// P05, P09: workers stall in the middle of their work, for longer than their lease, and
// then go on as if nothing had been.
func TestP05_P09_StalledWorkersUnderLanes(t *testing.T) {
	w := newLaneWorld(t, inboxtest.NewCluster(t))
	w.lease = time.Second
	var n atomic.Int64
	w.stall = func() {
		if n.Add(1)%20 == 0 {
			wait(nil, 3*w.lease/2)
		}
	}
	w.run(func() {})
	if w.lost.Load() == 0 {
		t.Error("void: no worker has lost its lease")
	}
	w.check()
}
