package consumer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// sharingQueue gives places away as the store does: by tenant, then retries that have
// a place first, then new ones, then the oldest.
type sharingQueue struct {
	fakeQueue
	short int // claims that a share kept from taking all that was due
}

func (q *sharingQueue) put(n int, tenant string, state inbox.State) {
	q.add(n)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := len(q.due) - n; i < len(q.due); i++ {
		q.due[i].Delivery.Tenant, q.due[i].State = tenant, state
	}
}

func (q *sharingQueue) Claim(ctx context.Context, r inbox.ClaimRequest) ([]inbox.Forward, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims = append(q.claims, r)
	var taken []inbox.Forward
	retries, of := 0, map[string]int{}
	for len(taken) < r.Limit {
		best := -1
		for i, f := range q.due {
			share, ok := r.Shares[f.Delivery.Tenant]
			if ok && of[f.Delivery.Tenant] >= share.Most || isRetry(f) && retries >= r.Limit-r.ForNew {
				continue
			}
			if best < 0 || q.before(r, of, retries, f, q.due[best]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		f := q.due[best]
		q.due = slices.Delete(q.due, best, best+1)
		of[f.Delivery.Tenant]++
		if isRetry(f) {
			retries++
		}
		f.ExpiresAt, f.LeaseUntil = time.Now().Add(time.Hour), time.Now().Add(r.Lease)
		taken = append(taken, f)
	}
	if len(taken) < r.Limit && len(q.due) > 0 {
		q.short++
	}
	return taken, nil
}

func (q *sharingQueue) before(r inbox.ClaimRequest, of map[string]int, retries int, a, b inbox.Forward) bool {
	turn := func(f inbox.Forward) float64 {
		share := r.Shares[f.Delivery.Tenant]
		return float64(share.Busy+of[f.Delivery.Tenant]+1) / float64(max(share.Weight, 1))
	}
	if r.Shares != nil && turn(a) != turn(b) {
		return turn(a) < turn(b)
	}
	if isRetry(a) != isRetry(b) {
		return isRetry(a) == (retries < r.ForRetries)
	}
	return a.ID < b.ID
}

// handed counts what is handed over, in all and just now, by any name.
type handed struct {
	mu       sync.Mutex
	all, now map[string]int
	most     map[string]int
	took     func(inbox.Forward) time.Duration
	name     func(inbox.Forward) string
}

func (h *handed) handle(ctx context.Context, f Forward) error {
	name := h.name(f.Forward)
	h.count(name, 1)
	defer h.count(name, -1)
	wait(ctx.Done(), h.took(f.Forward))
	return nil
}

func (h *handed) count(name string, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all, h.now, h.most = map[string]int{}, map[string]int{}, map[string]int{}
	}
	h.now[name] += by
	h.all[name] += max(by, 0)
	h.most[name] = max(h.most[name], h.now[name])
}

func (h *handed) seen() (all, now, most map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.all), maps.Clone(h.now), maps.Clone(h.most)
}

func tenantOf(f inbox.Forward) string { return f.Delivery.Tenant }

func kindOf(f inbox.Forward) string {
	if isRetry(f) {
		return "retry"
	}
	return "new"
}

func always(d time.Duration) func(inbox.Forward) time.Duration {
	return func(inbox.Forward) time.Duration { return d }
}

func TestOneTenantDoesNotHoldEveryPlace(t *testing.T) {
	for name, tenants := range map[string][]string{"configured": {"big", "small"}, "met": nil} {
		synctest.Test(t, func(t *testing.T) {
			q := &sharingQueue{}
			q.put(1, "small", inbox.Pending)
			q.put(500, "big", inbox.Pending)
			h := &handed{name: tenantOf, took: always(5 * time.Second)}
			stop := launch(t, newFake(t, q, h.handle, func(c *Config) { c.Tenants = tenants }))
			wait(nil, 12*time.Second)
			began := time.Now()
			q.put(3, "small", inbox.Pending)
			for range 500 {
				if _, now, _ := h.seen(); now["small"] == 3 {
					break
				}
				wait(nil, 10*time.Millisecond)
			}
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("%s: a small tenant waited %v beside one that is slow, want a poll at most", name, waited)
			}
			if _, _, most := h.seen(); name == "configured" && most["big"] > 12 || most["big"] < 12 {
				t.Errorf("%s: one tenant held %d of 16 places, want 12", name, most["big"])
			}
			stop()
		})
	}
}

func TestTenantThatMayNotHaveMoreIsServedAsPlacesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &sharingQueue{}
		q.put(1200, "big", inbox.Pending)
		h := &handed{name: tenantOf, took: always(10 * time.Millisecond)}
		stop := launch(t, newFake(t, q, h.handle, func(c *Config) { c.Tenants = []string{"big", "small"} }))
		wait(nil, time.Second+time.Millisecond)
		synctest.Wait()
		if all, _, _ := h.seen(); all["big"] < 1150 {
			t.Errorf("%d of 1200 in a second by 12 places of 10 ms: it waits for the poll", all["big"])
		}
		if n := len(q.claimed()); n > 1250 {
			t.Errorf("%d claims for 1200 forwards", n)
		}
		stop()
	})
}

func TestTenantsAreServedByTheirWeights(t *testing.T) {
	for _, tc := range []struct {
		name        string
		concurrency int
		rate        float64
		shares      map[string]int
		want        [3]int // of 600
	}{
		{"many places", 24, 0, map[string]int{"a": 1, "b": 2, "c": 3}, [3]int{100, 200, 300}},
		{"one place", 1, 0, map[string]int{"a": 1, "b": 2, "c": 3}, [3]int{100, 200, 300}},
		{"a rate", 24, 50, map[string]int{"a": 1, "b": 2, "c": 3}, [3]int{100, 200, 300}},
		{"no weights", 1, 0, nil, [3]int{200, 200, 200}},
		{"weights with a common factor", 1, 0, map[string]int{"a": 60, "b": 30, "c": 30}, [3]int{300, 150, 150}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := &sharingQueue{}
			for _, tenant := range []string{"a", "b", "c"} { // the backlog of a is the oldest
				q.put(700, tenant, inbox.Pending)
			}
			h := &handed{name: tenantOf, took: always(100 * time.Millisecond)}
			stop := launch(t, newFake(t, q, h.handle, func(c *Config) {
				c.Tenants, c.Concurrency, c.Rate, c.Shares = []string{"a", "b", "c"}, tc.concurrency, tc.rate, tc.shares
			}))
			sum := 0
			var all map[string]int
			for i := 0; sum < 600 && i < 10000; i++ {
				wait(nil, 10*time.Millisecond)
				all, _, _ = h.seen()
				sum = all["a"] + all["b"] + all["c"]
			}
			for i, tenant := range []string{"a", "b", "c"} {
				if n := all[tenant]; n < tc.want[i]-20 || n > tc.want[i]+20 {
					t.Errorf("%s: %v, want about %v", tc.name, all, tc.want)
				}
			}
			stop()
		})
	}
}

func TestNewForwardsAndRetriesShareThePlaces(t *testing.T) {
	for _, tc := range []struct {
		name        string
		concurrency int
		rate        float64
	}{{"many places", 16, 0}, {"one place", 1, 0}, {"a rate", 16, 40}} {
		synctest.Test(t, func(t *testing.T) {
			q := &sharingQueue{}
			q.put(1000, "t", inbox.RetryWait)
			q.put(1000, "t", inbox.Pending)
			h := &handed{name: kindOf, took: always(100 * time.Millisecond)}
			stop := launch(t, newFake(t, q, h.handle, func(c *Config) { c.Concurrency, c.Rate = tc.concurrency, tc.rate }))
			for range 10000 {
				if all, _, _ := h.seen(); all["new"]+all["retry"] >= 400 {
					break
				}
				wait(nil, 10*time.Millisecond)
			}
			if all, _, _ := h.seen(); all["retry"] < 80 || all["retry"] > 120 {
				t.Errorf("%s: %v, want about a quarter of 400 retries", tc.name, all)
			}
			stop()
		})
	}
}

func TestSlowRetriesLeaveAPlaceForNewForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &sharingQueue{}
		q.put(1000, "t", inbox.RetryWait)
		h := &handed{name: kindOf, took: always(9 * time.Second)}
		stop := launch(t, newFake(t, q, h.handle, nil))
		wait(nil, 5*time.Second)
		if _, now, _ := h.seen(); now["retry"] != 12 {
			t.Errorf("%v run, want 12 retries on 16 places", now)
		}
		q.put(3, "t", inbox.Pending)
		wait(nil, time.Second)
		synctest.Wait()
		if _, now, _ := h.seen(); now["new"] != 3 {
			t.Errorf("%v run: new forwards wait for retries to end", now)
		}
		stop()
	})
}

// Retries that take long get a quarter of the places, not of the turns.
func TestSlowRetriesDoNotPushOutNewForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &sharingQueue{}
		q.put(200, "t", inbox.RetryWait)
		q.put(3000, "t", inbox.Pending)
		h := &handed{name: kindOf, took: func(f inbox.Forward) time.Duration {
			if isRetry(f) {
				return 9 * time.Second
			}
			return 50 * time.Millisecond
		}}
		stop := launch(t, newFake(t, q, h.handle, nil))
		wait(nil, 8*time.Second)
		if all, _, most := h.seen(); most["retry"] != 4 || all["new"] < 1700 {
			t.Errorf("%v begun, at most %v at once: want 4 retries at once, and new ones on 12 places", all, most)
		}
		stop()
	})
}

func TestOneTenantHasNoShares(t *testing.T) {
	s := newShares(16, []string{"t"}, map[string]int{"t": 3})
	s.begins(inbox.Forward{Delivery: inbox.Delivery{Tenant: "t"}})
	r := inbox.ClaimRequest{Limit: 15}
	s.divide(&r)
	if r.Shares != nil || r.ForNew != 3 {
		t.Errorf("%+v", r)
	}
}

// However few places there are, some are for retries and some for each tenant.
func TestNobodyIsShutOut(t *testing.T) {
	for places := 1; places <= 40; places++ {
		s := newShares(places, []string{"a", "b"}, map[string]int{"a": MaxWeight})
		r := inbox.ClaimRequest{Limit: places}
		s.divide(&r)
		for _, tenant := range []string{"a", "b"} {
			if most := r.Shares[tenant].Most; most < 1 || places > 1 && most >= places {
				t.Errorf("%d places: %s may have %d", places, tenant, most)
			}
		}
		if r.ForNew >= places || places > 1 && r.ForNew == 0 {
			t.Errorf("%d places: %d for new ones alone", places, r.ForNew)
		}
	}
}
