package consumer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRateIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		rate       float64
		over       time.Duration
		least      int
		most       int
		claimsMost int
	}{
		"50/s":            {50, 20 * time.Second, 990, 1005, 600},
		"2000/s":          {2000, 5 * time.Second, 9900, 10200, 150 + 5*35},
		"one in a minute": {1.0 / 60, 10 * time.Minute, 10, 11, 25},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := &fakeQueue{}
			q.add(12000)
			stop := launch(t, newFake(t, q, accepting, func(c *Config) { c.Rate, c.Concurrency = tc.rate, 500 }))
			wait(nil, tc.over)
			stop()
			n, claims := len(q.settlements()), len(q.claimed())
			if n < tc.least || n > tc.most {
				t.Errorf("%s: %d attempts in %v, want %d to %d", name, n, tc.over, tc.least, tc.most)
			}
			if claims > tc.claimsMost {
				t.Errorf("%s: %d claims for %d attempts", name, claims, n)
			}
		})
	}
}

func TestRateHasNoBurstAfterARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		stop := launch(t, newFake(t, q, accepting, func(c *Config) { c.Rate = 50 }))
		wait(nil, time.Hour)
		q.add(100)
		wait(nil, time.Second+500*time.Millisecond)
		if n := len(q.settlements()); n > 5+75+1 {
			t.Errorf("%d attempts within 1.5 s after an hour's rest, want at most 5 at once and 50 a second", n)
		}
		stop()
	})
}

// A lease that waits for the rate runs out, or comes behind its successors.
func TestForwardDoesNotWaitForTheRateUnderALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(20)
		var mu sync.Mutex
		claimed := map[int64]time.Time{}
		q.onClaim = func() error {
			mu.Lock()
			defer mu.Unlock()
			r := q.claims[len(q.claims)-1]
			for _, f := range q.due[:min(r.Limit, len(q.due))] {
				claimed[f.ID] = time.Now()
			}
			return nil
		}
		h := func(_ context.Context, f Forward) error {
			mu.Lock()
			defer mu.Unlock()
			if late := time.Since(claimed[f.ID]); late != 0 {
				t.Errorf("forward %d was handed over %v after its claim", f.ID, late)
			}
			return nil
		}
		stop := launch(t, newFake(t, q, h, func(c *Config) { c.Rate = 1 }))
		wait(nil, 30*time.Second)
		stop()
		if n := len(q.settlements()); n != 20 {
			t.Errorf("%d of 20 settled", n)
		}
	})
}
