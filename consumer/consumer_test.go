package consumer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

func TestConfigErrorsNameTheField(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Destination":                          {},
		"Concurrency":                          {Destination: "app", Concurrency: -1},
		"Timeout":                              {Destination: "app", Timeout: -1},
		"Poll":                                 {Destination: "app", Poll: -1},
		"Retry.Base":                           {Destination: "app", Retry: Retry{Base: -1}},
		"Lease 5s does not exceed Timeout 10s": {Destination: "app", Lease: 5 * time.Second},
	} {
		if _, err := New(&fakeQueue{}, HandlerFunc(accepting), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

func TestDefaultsAreAsWritten(t *testing.T) {
	c := newFake(t, &fakeQueue{}, accepting, nil)
	got := fmt.Sprint(c.cfg.Concurrency, c.cfg.Timeout, c.cfg.Lease, c.cfg.Poll, c.cfg.Retry, c.cfg.Grace)
	if want := "16 10s 40s 1s {1s 15m0s 12} 25s"; got != want {
		t.Errorf("defaults %s, want %s", got, want)
	}
}

func TestWakeIsHeardAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		c := newFake(t, q, accepting, nil)
		stop := launch(t, c)
		synctest.Wait()
		began := time.Now()
		q.add(3)
		c.Wake()
		synctest.Wait()
		if n := len(q.settlements()); n != 3 || time.Since(began) != 0 {
			t.Errorf("%d of 3 settled %v after Wake, want all at once", n, time.Since(began))
		}
		stop()
	})
}

func TestWakeDuringAClaimIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{took: 10 * time.Millisecond}
		c := newFake(t, q, accepting, nil)
		q.onClaim = func() error {
			if len(q.claims) == 1 {
				// Committed after the claim's snapshot was taken: this claim cannot see it.
				c.Wake()
				time.AfterFunc(0, func() { q.add(1) })
			}
			return nil
		}
		stop := launch(t, c)
		wait(nil, 25*time.Millisecond)
		synctest.Wait()
		if n := len(q.settlements()); n != 1 {
			t.Errorf("%d settled after 25 ms, want 1: the wake-up was lost", n)
		}
		stop()
	})
}

// The next revision of a resource is due when the one before it is settled, not at the
// next poll.
func TestSettledForwardOfALaneWakesTheLoop(t *testing.T) {
	for ordering, want := range map[inbox.Ordering]int{inbox.OrderLatest: 3, inbox.OrderNone: 1} {
		synctest.Test(t, func(t *testing.T) {
			q := &fakeQueue{}
			add := func() {
				q.add(1)
				q.due[len(q.due)-1].Ordering = ordering
			}
			q.onSettle = func(inbox.Settlement) error {
				if len(q.settlements()) < 2 {
					add()
				}
				return nil
			}
			add()
			c := newFake(t, q, accepting, nil)
			stop := launch(t, c)
			synctest.Wait()
			if n := len(q.settlements()); n != want {
				t.Errorf("ordering %q: %d settled before the poll, want %d", ordering, n, want)
			}
			stop()
		})
	}
}

func TestCaseE1_PollFindsWhatNobodyAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		stop := launch(t, newFake(t, q, accepting, nil))
		synctest.Wait()
		q.add(1)
		wait(nil, time.Second)
		synctest.Wait()
		if len(q.settlements()) != 1 {
			t.Error("not found within the poll interval")
		}
		stop()
	})
}

func TestIdleConsumerDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		stop := launch(t, newFake(t, q, accepting, nil))
		wait(nil, time.Minute)
		stop()
		if n := len(q.claimed()); n < 60 || n > 121 {
			t.Errorf("%d claims in an idle minute, want 60 to 121", n)
		}
	})
}

func TestFullClaimIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1000)
		began := time.Now()
		stop := launch(t, newFake(t, q, accepting, func(c *Config) { c.Concurrency = 4 }))
		synctest.Wait()
		if n := len(q.settlements()); n != 1000 || time.Since(began) != 0 {
			t.Errorf("%d of 1000 settled in %v: the backlog waits for the poll", n, time.Since(began))
		}
		stop()
	})
}

func TestNeverMoreThanConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(500)
		var running, most atomic.Int64
		h := func(_ context.Context, f Forward) error {
			n := running.Add(1)
			defer running.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			wait(nil, time.Duration(1+f.ID%7)*time.Millisecond)
			return nil
		}
		q.onClaim = func() error {
			if r := q.claims[len(q.claims)-1]; int64(r.Limit)+running.Load() > 8 {
				t.Errorf("claim of %d beside %d running, with 8 slots", r.Limit, running.Load())
			}
			return nil
		}
		stop := launch(t, newFake(t, q, h, func(c *Config) { c.Concurrency = 8 }))
		wait(nil, 5*time.Second)
		stop()
		if n := len(q.settlements()); n != 500 || most.Load() != 8 {
			t.Errorf("%d settled, %d at once; want 500 and 8", n, most.Load())
		}
	})
}

func TestClaimSaysWhatTheStoreMustKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		stop := launch(t, newFake(t, q, accepting, func(c *Config) { c.Retry.MaxAttempts, c.Tenants = -1, []string{"t1"} }))
		synctest.Wait()
		stop()
		want := inbox.ClaimRequest{Destination: "app", Tenants: []string{"t1"}, Limit: 16, Lease: 40 * time.Second, ForNew: 4, MaxAttempts: 0, Worker: "w1", ConfigRevision: 7}
		if got := q.claimed()[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("claim %+v, want %+v", got, want)
		}
	})
}

func TestSlowSettlementHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(unsettled + 50)
		var handed atomic.Int64
		q.onSettle = func(inbox.Settlement) error { wait(nil, 3*time.Second); return nil }
		h := func(context.Context, Forward) error { handed.Add(1); return nil }
		stop := launch(t, newFake(t, q, h, func(c *Config) { c.Concurrency = 1 }))
		synctest.Wait()
		if n := handed.Load(); n != unsettled+1 {
			t.Errorf("%d handed over while none is settled, want %d: bounded, but not by the slots", n, unsettled+1)
		}
		stop()
	})
}

func TestClaimTroubleBacksOffAndEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1)
		away := time.Now().Add(time.Minute)
		q.onClaim = func() error {
			if time.Now().Before(away) {
				return errDatabase
			}
			return nil
		}
		var told atomic.Int64
		c := newFake(t, q, accepting, func(c *Config) {
			c.OnError = func(err error) {
				if !errors.Is(err, errDatabase) {
					t.Errorf("OnError was told %v", err)
				}
				told.Add(1)
			}
		})
		stop := launch(t, c)
		wait(nil, time.Minute)
		if n := told.Load(); n < 5 || n > 100 {
			t.Errorf("%d claims in a minute without a database, want between 5 and 100", n)
		}
		wait(nil, trouble.Cap)
		synctest.Wait()
		if len(q.settlements()) != 1 {
			t.Error("did not go on once the database was back")
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestWakeDoesNotBreakThroughABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{onClaim: func() error { return errDatabase }}
		c := newFake(t, q, accepting, func(c *Config) { c.Rand = func() float64 { return 0.9 } })
		stop := launch(t, c)
		for range 1000 {
			c.Wake()
			wait(nil, time.Millisecond)
		}
		stop()
		if n := len(q.claimed()); n > 6 {
			t.Errorf("%d claims in a second of database trouble", n)
		}
	})
}

func TestSettleIsTriedUntilTheLeaseIsOver(t *testing.T) {
	for _, tc := range []struct {
		name  string
		away  time.Duration
		ended bool
	}{
		{"database back in time", 20 * time.Second, true},
		{"database back after the lease", time.Hour, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &fakeQueue{}
				q.add(1)
				began := time.Now()
				tries := 0
				q.onSettle = func(inbox.Settlement) error {
					tries++
					if time.Since(began) < tc.away {
						return errDatabase
					}
					return nil
				}
				results := make(chan AttemptResult, 1)
				stop := launch(t, newFake(t, q, accepting, func(c *Config) {
					c.OnAttempt = func(_ context.Context, r AttemptResult) { results <- r }
				}))
				r := <-results
				took := time.Since(began)
				if settled := r.Err == nil; settled != tc.ended || r.LeaseLost {
					t.Errorf("result %v, lease lost %v", r.Err, r.LeaseLost)
				}
				if took > 40*time.Second || took < tc.away && tc.ended || took < 35*time.Second && !tc.ended {
					t.Errorf("ended after %v of a lease of 40s", took)
				}
				if tries < 5 || tries > 60 {
					t.Errorf("%d tries in %v", tries, took)
				}
				stop()
			})
		})
	}
}

func TestLostLeaseIsToldAndNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1)
		tries := 0
		q.onSettle = func(inbox.Settlement) error {
			tries++
			return fmt.Errorf("settle: %w", inbox.ErrLeaseLost)
		}
		results := make(chan AttemptResult, 1)
		stop := launch(t, newFake(t, q, accepting, func(c *Config) {
			c.OnAttempt = func(_ context.Context, r AttemptResult) { results <- r }
			c.OnError = func(err error) { t.Errorf("OnError was told %v", err) }
		}))
		if r := <-results; !r.LeaseLost || tries != 1 {
			t.Errorf("lease lost %v after %d tries, want true after 1", r.LeaseLost, tries)
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestSecondRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake(t, &fakeQueue{}, accepting, nil)
		stop := launch(t, c)
		synctest.Wait()
		if err := c.Run(t.Context()); err == nil {
			t.Error("two Runs at once")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run after Run: %v", err)
		}
	})
}
