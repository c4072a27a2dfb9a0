package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// app is a destination that can be down, and counts what reaches it.
type fakeApp struct {
	down          atomic.Bool
	handed        atomic.Int64
	running, most atomic.Int64
	took          time.Duration
}

func (a *fakeApp) handle(ctx context.Context, _ Forward) error {
	a.handed.Add(1)
	n := a.running.Add(1)
	defer a.running.Add(-1)
	for m := a.most.Load(); n > m && !a.most.CompareAndSwap(m, n); m = a.most.Load() {
	}
	if a.took > 0 {
		wait(ctx.Done(), a.took)
	}
	if a.down.Load() {
		return &AttemptError{Status: 503, Err: errors.New("answered 503")}
	}
	return nil
}

// changes collects what OnBreaker is told.
type changes struct {
	mu  sync.Mutex
	all []BreakerChange
}

func (c *changes) add(b BreakerChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, b)
}

func (c *changes) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := ""
	for _, b := range c.all {
		text += fmt.Sprintf("%s>%s after %d;", b.From, b.To, b.Failures)
	}
	return text
}

func TestX46_BreakerOpensAfterFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told changes
		app, q := &fakeApp{took: time.Millisecond}, &fakeQueue{}
		app.down.Store(true)
		q.add(1000)
		c := newFake(t, q, app.handle, func(c *Config) { c.Concurrency, c.OnBreaker = 1, told.add })
		stop := launch(t, c)
		wait(nil, 29*time.Second)
		synctest.Wait()
		if n := app.handed.Load(); n != 5 {
			t.Errorf("%d forwards handed over, want the 5 that open it", n)
		}
		if got := told.String(); got != "closed>open after 5;" {
			t.Errorf("told %q", got)
		}
		if s := c.Breaker(); s.State != BreakerOpen || s.Err != "answered 503" || s.Until.Sub(s.Since) != 30*time.Second || s.Concurrency != 0 {
			t.Errorf("status %+v", s)
		}
		stop()
	})
}

func TestX46_OutageCostsOneProbeATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, q := &fakeApp{took: time.Second}, &fakeQueue{}
		app.down.Store(true)
		q.add(1000)
		stop := launch(t, newFake(t, q, app.handle, nil))
		wait(nil, 10*time.Minute)
		stop()
		// 16 were on their way, and the places of the first four that failed were taken
		// again; then one for each 31 seconds.
		if n := app.handed.Load(); n < 16+18 || n > 16+4+20 {
			t.Errorf("%d requests in an outage of 10 minutes, want 16 and one probe every 31 s", n)
		}
		if n := len(q.settlements()); n > 60 {
			t.Errorf("%d settlements: what is not sent is claimed and given back all the time", n)
		}
	})
}

func TestCaseE16_AfterAnOutageOneProbeThenARamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told changes
		app, q := &fakeApp{took: time.Second}, &fakeQueue{}
		app.down.Store(true)
		q.add(5000)
		c := newFake(t, q, app.handle, func(c *Config) { c.OnBreaker = told.add })
		stop := launch(t, c)
		wait(nil, 5*time.Second)
		app.down.Store(false)
		wait(nil, 26*time.Second+500*time.Millisecond) // the probe runs
		app.most.Store(0)
		var most []int64
		for range 7 {
			synctest.Wait()
			most = append(most, app.running.Load())
			wait(nil, time.Second)
		}
		if want := []int64{1, 2, 4, 8, 16, 16, 16}; !slices.Equal(most, want) {
			t.Errorf("attempts at once, second by second: %v, want %v", most, want)
		}
		if got := told.String(); got != "closed>open after 5;open>half_open after 5;half_open>closed after 0;" {
			t.Errorf("told %q", got)
		}
		if n := c.Breaker().Concurrency; n != 16 {
			t.Errorf("%d at once in the end", n)
		}
		stop()
	})
}

// An app that fails some forwards works: the places come back all the same.
func TestBreakerOfAnAppThatFailsSomeForwardsStaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, q := &fakeApp{took: time.Second}, &fakeQueue{}
		app.down.Store(true)
		q.add(20_000)
		c := newFake(t, q, func(ctx context.Context, f Forward) error {
			if err := app.handle(ctx, f); err != nil || f.ID%10 != 0 {
				return err
			}
			return &AttemptError{Status: 500}
		}, func(c *Config) { c.Concurrency = 64 })
		stop := launch(t, c)
		wait(nil, 5*time.Second)
		app.down.Store(false)
		wait(nil, 2*time.Minute)
		synctest.Wait()
		if s := c.Breaker(); s.State != BreakerClosed || s.Concurrency != 64 {
			t.Errorf("two minutes after the outage, with one failure in ten: %+v", s)
		}
		stop()
	})
}

func TestBreakerOpensAgainOnFailuresInTheRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, q := &fakeApp{took: time.Second}, &fakeQueue{}
		app.down.Store(true)
		q.add(1000)
		c := newFake(t, q, app.handle, nil)
		stop := launch(t, c)
		wait(nil, 5*time.Second)
		app.down.Store(false)
		wait(nil, 28*time.Second+500*time.Millisecond) // a round of two has begun
		app.down.Store(true)
		wait(nil, time.Second)
		synctest.Wait()
		if s := c.Breaker(); s.State != BreakerOpen {
			t.Errorf("status %+v, want open", s)
		}
		stop()
	})
}

func TestBreakerLetsThroughWhatAPersonWants(t *testing.T) {
	for _, up := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			app, q := &fakeApp{took: time.Second}, &fakeQueue{}
			app.down.Store(true)
			q.add(100)
			c := newFake(t, q, app.handle, nil)
			stop := launch(t, c)
			wait(nil, 5*time.Second)
			app.down.Store(!up)
			before := app.handed.Load()
			c.Probe()
			c.Probe()
			wait(nil, 500*time.Millisecond)
			if n := app.handed.Load() - before; n != 1 {
				t.Errorf("%d tried, want 1", n)
			}
			wait(nil, time.Second)
			synctest.Wait()
			want := BreakerOpen
			if up {
				want = BreakerClosed
			}
			if s := c.Breaker(); s.State != want {
				t.Errorf("app up %t: status %+v", up, s)
			}
			if !up && app.handed.Load() != before+1 {
				t.Error("more than what was wanted")
			}
			stop()
		})
	}
}

func TestProbeWaitsForAForwardThatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, q := &fakeApp{}, &fakeQueue{}
		app.down.Store(true)
		q.add(5)
		c := newFake(t, q, app.handle, func(c *Config) { c.Breaker.OpenFor = time.Hour })
		stop := launch(t, c)
		synctest.Wait()
		app.down.Store(false)
		c.Probe()
		wait(nil, 5*time.Second)
		if s := c.Breaker(); s.State != BreakerOpen {
			t.Errorf("status %+v before anything was tried", s)
		}
		q.add(1)
		wait(nil, time.Second)
		synctest.Wait()
		if s := c.Breaker(); s.State != BreakerClosed {
			t.Errorf("status %+v, want closed: one was due within a poll", s)
		}
		stop()
	})
}

// A probe that says nothing (its connection was stale, or we cut it off) decides
// nothing, and does not use up the place of the one that does.
func TestX46_SilentProbeIsFollowedByAnother(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(Breaker{Failures: 1, OpenFor: time.Minute}, 4, func(BreakerChange) {})
			p, _ := b.enter()
			p.leave(errFailed, "")
			if wanted {
				b.probe()
			} else {
				wait(nil, time.Minute+time.Nanosecond)
			}
			for range 3 {
				if n, _ := b.room(); n != 1 {
					t.Fatalf("wanted %t: room for %d, want 1", wanted, n)
				}
				p, ok := b.enter()
				if n, _ := b.room(); !ok || n != 0 {
					t.Fatalf("wanted %t: not let in, or room for %d beside it", wanted, n)
				}
				p.leave(errSilent, "")
			}
			p, _ = b.enter()
			p.leave(nil, "")
			if s := b.status(); s.State != BreakerClosed || s.Concurrency != 2 {
				t.Errorf("wanted %t: status %+v", wanted, s)
			}
		})
	}
}

// What began before the breaker opened and ends while it is open, or half open, or
// closed again, decides nothing.
func TestBreakerDoesNotHearAttemptsOfAnEarlierState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(Breaker{Failures: 2, OpenFor: time.Minute}, 8, func(BreakerChange) {})
		var early []pass
		for range 8 {
			p, _ := b.enter()
			early = append(early, p)
		}
		early[0].leave(errFailed, "")
		early[1].leave(errFailed, "")
		early[2].leave(nil, "")
		if s := b.status(); s.State != BreakerOpen {
			t.Fatalf("an early success changed it: %+v", s)
		}
		wait(nil, time.Minute+time.Nanosecond)
		probe, ok := b.enter()
		if !ok {
			t.Fatal("no probe")
		}
		early[3].leave(errFailed, "")
		early[4].leave(nil, "")
		if s := b.status(); s.State != BreakerHalfOpen {
			t.Fatalf("an early end decided: %+v", s)
		}
		if _, ok := b.enter(); ok {
			t.Fatal("a second probe")
		}
		probe.leave(nil, "")
		early[5].leave(errFailed, "")
		if s := b.status(); s.State != BreakerClosed || s.Concurrency != 2 {
			t.Errorf("an early failure was counted in the ramp: %+v", s)
		}
	})
}

// The breaker opens while a claim is under way: what that brings is not sent.
func TestBreakerGivesBackWhatWasClaimedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, q := &fakeApp{took: 10 * time.Millisecond}, &fakeQueue{}
		app.down.Store(true)
		q.add(5)
		q.onClaim = func() error {
			if len(q.claims) == 2 {
				q.mu.Unlock()
				q.add(3)
				wait(nil, 20*time.Millisecond) // the five end meanwhile
				q.mu.Lock()
			}
			return nil
		}
		c := newFake(t, q, app.handle, nil)
		stop := launch(t, c)
		wait(nil, time.Millisecond)
		c.Wake()
		wait(nil, time.Second)
		stop()
		released := 0
		for _, s := range q.settlements() {
			if s.Outcome == inbox.OutcomeReleased {
				released++
			}
		}
		if n := app.handed.Load(); n != 5 || released != 3 {
			t.Errorf("%d sent, %d given back; want 5 and 3", n, released)
		}
	})
}

func TestWhatIsAFailureOfTheDestination(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool // it opens
	}{
		"500":                        {&AttemptError{Status: 500}, true},
		"429":                        {&AttemptError{Status: 429, RetryAfter: time.Second}, true},
		"503 with Retry-After":       {&AttemptError{Status: 503, RetryAfter: time.Second}, true},
		"network":                    {&AttemptError{Class: "network"}, true},
		"timeout":                    {&AttemptError{Class: "timeout"}, true},
		"error of a Handler":         {errors.New("no"), true},
		"408":                        {&AttemptError{Status: 408}, false},
		"404":                        {&AttemptError{Status: 404, Permanent: true}, false},
		"redirect":                   {&AttemptError{Status: 301, Permanent: true}, false},
		"Handler that blames it":     {&AttemptError{Err: errors.New("too large"), Permanent: true}, false},
		"stale connection":           {&AttemptError{Class: "network", Err: silent{errors.New("closed")}}, false},
		"our database":               {fmt.Errorf("hand over: %w", silent{errDatabase}), false},
		"lease that was lost":        {inbox.ErrLeaseLost, false},
		"500 that blocks by request": {&AttemptError{Status: 500, Permanent: true}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := &fakeQueue{}
			q.add(1)
			c := newFake(t, q, failing(tc.err), func(c *Config) { c.Breaker.Failures = 1 })
			stop := launch(t, c)
			synctest.Wait()
			if got := c.Breaker().State == BreakerOpen; got != tc.want {
				t.Errorf("%s: opens %t, want %t", name, got, tc.want)
			}
			stop()
		})
	}
}

func TestStopWithAnOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, q := &fakeApp{}, &fakeQueue{}
		app.down.Store(true)
		q.add(100)
		c := newFake(t, q, app.handle, nil)
		stop := launch(t, c)
		synctest.Wait()
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) != 0 {
			t.Errorf("stopped after %v with %v", time.Since(began), err)
		}
	})
}

func TestHookMayAskForTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, q := &fakeApp{}, &fakeQueue{}
		app.down.Store(true)
		q.add(100)
		var c *Consumer
		var seen atomic.Value
		c = newFake(t, q, app.handle, func(cfg *Config) {
			cfg.OnBreaker = func(BreakerChange) { seen.Store(c.Breaker().State) }
		})
		stop := launch(t, c)
		synctest.Wait()
		if seen.Load() != BreakerOpen {
			t.Errorf("the hook saw %v", seen.Load())
		}
		stop()
	})
}
