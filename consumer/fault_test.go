package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func TestX49_PostgresStopsAndComesBack(t *testing.T) {
	cluster := inboxtest.NewCluster(t)
	pool := cluster.Pool()
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	wholeAtEnd(t, store)
	const n = 300
	accept(t, store, numbered(n)...)
	var handed atomic.Int64
	halfway, down, trouble := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h := HandlerFunc(func(context.Context, Forward) error {
		switch i := handed.Add(1); {
		case i == n/2:
			close(halfway)
			fallthrough
		case i > n/2:
			<-down // work is in hand when the server goes
		}
		return nil
	})
	var once sync.Once
	_, results, stop := started(t, store, h, Config{
		Timeout: 20 * time.Second, Lease: 21 * time.Second,
		OnError: func(error) { once.Do(func() { close(trouble) }) },
	})
	<-halfway
	cluster.Stop()
	close(down)
	<-trouble
	cluster.Start()
	deadline := time.After(time.Minute)
	for forwards(t, pool, "state = 'accepted'") < n {
		select {
		case <-results:
		case <-deadline:
			t.Fatalf("%d of %d accepted", forwards(t, pool, "state = 'accepted'"), n)
		}
	}
	stop()
	if left := forwards(t, pool, "lease_until IS NOT NULL"); left != 0 {
		t.Errorf("%d leases left", left)
	}
}

func TestSettlementWhoseAnswerWasLost(t *testing.T) {
	for name, fault := range map[string]inboxtest.CommitFault{
		"committed":     inboxtest.CutAfterCommit,
		"not committed": inboxtest.CutBeforeCommit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := inboxtest.URL(t)
			proxy := inboxtest.NewFaultProxy(t, url)
			pool, err := pgxpool.New(t.Context(), proxy.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			store, err := inbox.New(pool, inbox.Config{})
			if err != nil {
				t.Fatal(err)
			}
			wholeAtEnd(t, store)
			accept(t, store, "d1")
			h := HandlerFunc(func(context.Context, Forward) error {
				proxy.AtCommit(fault, 1)
				return nil
			})
			_, results, stop := started(t, store, h, Config{Poll: time.Hour})
			r := next(t, results)
			stop()
			if c := proxy.Counts(); c.CutBefore+c.CutAfter != 1 {
				t.Fatalf("void: %+v", c)
			}
			if f := stateOf(t, store, r); r.Err != nil || r.LeaseLost || f.State != inbox.Accepted || !f.LeaseUntil.IsZero() {
				t.Errorf("told %+v, forward %+v; want accepted", r, f)
			}
			wantLedger(t, store, r.Forward.ID, "1 2xx 0")
		})
	}
}
