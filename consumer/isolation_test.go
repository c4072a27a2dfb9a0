package consumer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// acceptFor commits one delivery of a tenant for one destination.
func acceptFor(t *testing.T, store *inbox.Store, tenant, destination, id string) {
	t.Helper()
	body := []byte(`{}`)
	_, err := store.Accept(t.Context(), inbox.Delivery{
		Tenant: tenant, Source: "src1", DeliveryID: id, Method: "POST", Body: body, BodyHash: sha256.Sum256(body),
		Forwards: []inbox.NewForward{{Destination: destination}},
	})
	if err != nil {
		t.Error(err)
	}
}

func acceptMany(t *testing.T, store *inbox.Store, tenant, destination string, n int) {
	t.Helper()
	var all sync.WaitGroup
	var next atomic.Int64
	for range 200 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n) && !t.Failed(); i = next.Add(1) {
				acceptFor(t, store, tenant, destination, fmt.Sprint(destination, i))
			}
		})
	}
	all.Wait()
}

// waits is how long each of n deliveries, one after the other, took from its commit to
// its Handler, in order of length.
func waits(t *testing.T, store *inbox.Store, c *Consumer, begun <-chan time.Time, round, n int) []time.Duration {
	t.Helper()
	var all []time.Duration
	for i := range n {
		acceptFor(t, store, "t1", "app", fmt.Sprintf("%d-%d", round, i))
		committed := time.Now()
		c.Wake()
		select {
		case at := <-begun:
			all = append(all, at.Sub(committed))
		case <-time.After(20 * time.Second):
			t.Fatal("it was not handed over")
		}
	}
	slices.Sort(all)
	return all
}

func TestP10_DestinationDoesNotWaitForOneThatHangs(t *testing.T) {
	store, _ := newStore(t)
	begun := make(chan time.Time, 1)
	c, _, _ := started(t, store, HandlerFunc(func(context.Context, Forward) error {
		begun <- time.Now()
		return nil
	}), Config{})
	acceptMany(t, store, "t1", "hanging", 500)
	hang := func() (stop func() error) {
		hangs := make(chan struct{}, 1)
		hanging, err := New(store, HandlerFunc(func(ctx context.Context, _ Forward) error {
			select {
			case hangs <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return ctx.Err()
		}), Config{Destination: "hanging", Timeout: 200 * time.Millisecond, Poll: 20 * time.Millisecond, Breaker: Breaker{Failures: -1},
			Retry: Retry{Base: 10 * time.Millisecond, Cap: 100 * time.Millisecond, MaxAttempts: -1}}) // something hangs all the time
		if err != nil {
			t.Fatal(err)
		}
		stop = launch(t, hanging)
		t.Cleanup(func() { stop() })
		<-hangs
		return stop
	}
	// Other programs on the machine may be in the way: each round has a baseline of its own.
	const n = 120
	var alone, beside time.Duration
	for round := range 5 {
		alone = waits(t, store, c, begun, 2*round, n)[n*99/100]
		stop := hang()
		beside = waits(t, store, c, begun, 2*round+1, n)[n*99/100]
		if err := stop(); err != nil {
			t.Error(err)
		}
		if beside <= 2*max(alone, 10*time.Millisecond) {
			return
		}
	}
	t.Errorf("p99 from commit to Handler %v, and %v beside a destination that hangs", alone, beside)
}

// A tenant with a long and slow backlog leaves places to another one, which is handed
// over while the places of the first are all taken.
func TestTenantDoesNotWaitForThatOf10000SlowForwards(t *testing.T) {
	store, _ := newStore(t)
	acceptMany(t, store, "big", "app", 10_000)
	full := make(chan struct{}, 10_000)
	small := make(chan struct{})
	var busy atomic.Int64
	c, _, _ := started(t, store, HandlerFunc(func(ctx context.Context, f Forward) error {
		if f.Delivery.Tenant == "small" {
			small <- struct{}{}
			return nil
		}
		busy.Add(1)
		full <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}), Config{Tenants: []string{"big", "small"}, Concurrency: 8, Timeout: time.Minute, Grace: time.Millisecond})
	for range 6 {
		<-full
	}
	for i := range 20 {
		acceptFor(t, store, "small", "app", fmt.Sprint("small", i))
		c.Wake()
		select {
		case <-small:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of 20 handed over beside the slow tenant", i)
		}
	}
	if n := busy.Load(); n != 6 {
		t.Errorf("%d places of 8 are the slow tenant's, want 6", n)
	}
}
