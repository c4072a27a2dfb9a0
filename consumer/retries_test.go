package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// comesBack makes a retry due again when its pause is over, as the store does:
// there the pause begins a little before Settle returns.
func comesBack(q *fakeQueue) {
	q.onSettle = func(s inbox.Settlement) error {
		if s.Outcome == inbox.OutcomeRetry {
			time.AfterFunc(s.Delay-time.Microsecond, func() { q.add(1) })
		}
		return nil
	}
}

// failingFirst fails the first n attempts after they took that long, and notes when
// each attempt began.
func failingFirst(n int, took time.Duration, began *[]time.Duration) HandlerFunc {
	start := time.Now()
	return func(ctx context.Context, f Forward) error {
		*began = append(*began, time.Since(start)) // attempts follow each other here
		if len(*began) > n {
			return nil
		}
		wait(ctx.Done(), took)
		return errors.New("not yet")
	}
}

func TestShortRetryWaitsForThePoll(t *testing.T) {
	for _, test := range []struct {
		name        string
		took        time.Duration // the attempt
		claim       time.Duration // each claim
		concurrency int
		want        time.Duration // between two attempts, but for the grain
	}{
		{"settled before the loop is idle", 0, 50 * time.Millisecond, 4, 150 * time.Millisecond},
		{"settled while the loop is idle", 300 * time.Millisecond, 0, 4, 400 * time.Millisecond},
		{"settled while the loop waits for a slot", 300 * time.Millisecond, 0, 1, 400 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &fakeQueue{took: test.claim}
				comesBack(q)
				q.add(1)
				var began []time.Duration
				stop := launch(t, newFake(t, q, failingFirst(2, test.took, &began), func(c *Config) {
					c.Poll = 10 * time.Second
					c.Retry = Retry{Base: 100 * time.Millisecond, Cap: 100 * time.Millisecond}
					c.Rand = func() float64 { return 1 }
					c.Concurrency = test.concurrency
				}))
				wait(nil, 3*time.Second)
				stop()
				if len(began) != 3 {
					t.Fatalf("%d attempts within 3 s, want 3", len(began))
				}
				for i := range 2 {
					grain := 200 * time.Millisecond
					if d := began[i+1] - began[i]; d < test.want || d > test.want+grain {
						t.Errorf("attempt %d came %v after the one before, want %v to %v", i+2, d, test.want, test.want+grain)
					}
				}
			})
		})
	}
}

// The first that falls due must not make the others forgotten, in whichever
// order they were settled.
func TestEachShortRetryIsLookedForInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetries(time.Second)
		var looked []time.Duration
		for _, pause := range []time.Duration{500, 100, 900, 105, 1000, 5000} {
			r.add(pause * time.Millisecond)
		}
		for began := time.Now(); ; {
			d := r.next(time.Minute)
			if d == time.Minute {
				break
			}
			wait(nil, d)
			looked = append(looked, time.Since(began))
			r.drop()
		}
		want := []time.Duration{100 * time.Millisecond, 120 * time.Millisecond, 500 * time.Millisecond, 900 * time.Millisecond}
		if !slices.Equal(looked, want) {
			t.Errorf("looked after %v, want %v", looked, want)
		}
	})
}

func TestManyShortRetriesDoNotCostAClaimEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(2000) // which do not come back
		stop := launch(t, newFake(t, q, func(context.Context, Forward) error { return errors.New("down") }, func(c *Config) {
			c.Concurrency = 2000
		}))
		synctest.Wait()
		before := len(q.claimed())
		wait(nil, time.Second)
		if n := len(q.claimed()) - before; n > grains+2 {
			t.Errorf("%d claims in a second after 2000 failures, want at most %d", n, grains+2)
		}
		stop()
	})
}
