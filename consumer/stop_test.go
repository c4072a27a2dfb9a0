package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

func TestStopReleasesWhatWasClaimedAndNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{took: 100 * time.Millisecond}
		q.add(16)
		h := func(context.Context, Forward) error { t.Error("handed over after the stop"); return nil }
		stop := launch(t, newFake(t, q, h, nil))
		wait(nil, 50*time.Millisecond) // the claim is under way
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		settled := q.settlements()
		if len(settled) != 16 {
			t.Fatalf("%d of 16 released", len(settled))
		}
		for _, s := range settled {
			if s.Outcome != inbox.OutcomeReleased || s.Token != 1 {
				t.Errorf("settled %+v, want released under token 1", s)
			}
		}
		if n := len(q.claimed()); n != 1 {
			t.Errorf("%d claims, want none after the stop", n)
		}
	})
}

func TestStopLetsAttemptsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1)
		h := func(ctx context.Context, _ Forward) error {
			wait(ctx.Done(), 8*time.Second)
			return ctx.Err()
		}
		stop := launch(t, newFake(t, q, h, nil))
		synctest.Wait()
		q.add(1) // nobody may claim this one
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if s := q.settlements(); len(s) != 1 || s[0].Outcome != inbox.OutcomeAccepted {
			t.Errorf("settled %+v, want the one attempt accepted", s)
		}
	})
}

func TestStopCutsWhatOutlivesGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(2)
		h := func(ctx context.Context, f Forward) error {
			<-ctx.Done()
			if f.ID == 2 {
				return &AttemptError{Class: "network", Err: ctx.Err()}
			}
			return ctx.Err()
		}
		stop := launch(t, newFake(t, q, h, func(c *Config) { c.Timeout, c.Grace = time.Minute, 3*time.Second }))
		synctest.Wait()
		began := time.Now()
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("drained in %v, want Grace", took)
		}
		settled := q.settlements()
		if len(settled) != 2 {
			t.Fatalf("%d settled, want 2", len(settled))
		}
		for _, s := range settled {
			if s.Outcome != inbox.OutcomeRetry || s.Class != "unknown" || s.Delay != 0 || s.Error != errStopped.Error() {
				t.Errorf("settled %+v, want unknown and due at once", s)
			}
		}
	})
}

func TestStopKeepsAnAnswerThatCameWithTheCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1)
		h := func(ctx context.Context, _ Forward) error {
			<-ctx.Done()
			return &AttemptError{Status: 404, Permanent: true}
		}
		stop := launch(t, newFake(t, q, h, func(c *Config) { c.Timeout = time.Minute }))
		synctest.Wait()
		stop()
		if s := q.settlements()[0]; s.Outcome != inbox.OutcomeBlocked || s.Class != "4xx" {
			t.Errorf("settled %+v, want blocked by the answer", s)
		}
	})
}

func TestStopDoesNotWaitForADeadDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{onSettle: func(inbox.Settlement) error { return errDatabase }}
		q.add(3)
		h := func(ctx context.Context, _ Forward) error { wait(ctx.Done(), time.Minute); return nil }
		stop := launch(t, newFake(t, q, h, func(c *Config) {
			c.Timeout, c.Lease = 2*time.Minute, 10*time.Minute
			c.Grace = 20 * time.Second
		}))
		synctest.Wait()
		began := time.Now()
		err := stop()
		if took := time.Since(began); err == nil || took > 25*time.Second {
			t.Errorf("Run: %v after %v; want an error after at most Grace plus 5s", err, took)
		}
	})
}

func TestStopBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := newFake(t, q, accepting, nil).Run(ctx); err != nil || len(q.claimed()) != 0 {
			t.Errorf("Run: %v after %d claims", err, len(q.claimed()))
		}
	})
}

func TestLongHandlerIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1)
		h := func(ctx context.Context, _ Forward) error { wait(ctx.Done(), 115*time.Second); return ctx.Err() }
		stop := launch(t, newFake(t, q, h, func(c *Config) {
			c.Timeout, c.Lease = 118*time.Second, 120*time.Second
		}))
		wait(nil, 116*time.Second)
		stop()
		if s := q.settlements(); q.renewals != 1 || len(s) != 1 || s[0].Outcome != inbox.OutcomeAccepted {
			t.Errorf("%d renewals, settled %+v; want one at half the lease, and accepted", q.renewals, s)
		}
	})
}

func TestShortHandlerIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1)
		h := func(ctx context.Context, _ Forward) error { <-ctx.Done(); return ctx.Err() }
		stop := launch(t, newFake(t, q, h, nil))
		wait(nil, time.Minute)
		stop()
		if q.renewals != 0 {
			t.Errorf("%d renewals with a timeout far below the lease", q.renewals)
		}
	})
}

func TestFailedRenewalEndsTheAttempt(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		end  time.Duration // of a lease of 100s
	}{
		{"lease lost", inbox.ErrLeaseLost, 50 * time.Second},
		{"database away", errDatabase, 75 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &fakeQueue{onRenew: func() error { return tc.err }}
				q.add(1)
				began := time.Now()
				var ended time.Duration
				h := func(ctx context.Context, _ Forward) error {
					<-ctx.Done()
					ended = time.Since(began)
					return ctx.Err()
				}
				results := make(chan AttemptResult, 1)
				stop := launch(t, newFake(t, q, h, func(c *Config) {
					c.Timeout, c.Lease = 99*time.Second, 100*time.Second
					c.OnAttempt = func(_ context.Context, r AttemptResult) { results <- r }
				}))
				r := <-results
				if ended != tc.end || r.Settlement.Class != "unknown" || r.Settlement.Outcome != inbox.OutcomeRetry {
					t.Errorf("attempt ended after %v as %+v, want unknown after %v", ended, r.Settlement, tc.end)
				}
				stop()
			})
		})
	}
}

func TestRenewalOutlivesAShortTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1)
		began := time.Now()
		q.onRenew = func() error {
			if time.Since(began) < 60*time.Second {
				return errDatabase
			}
			return nil
		}
		h := func(ctx context.Context, _ Forward) error { wait(ctx.Done(), 98*time.Second); return ctx.Err() }
		stop := launch(t, newFake(t, q, h, func(c *Config) { c.Timeout, c.Lease = 99*time.Second, 100*time.Second }))
		wait(nil, 99*time.Second)
		stop()
		if s := q.settlements(); len(s) != 1 || s[0].Outcome != inbox.OutcomeAccepted {
			t.Errorf("settled %+v, want accepted", s)
		}
	})
}

func TestSettlementsOutliveAStopByLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := errors.New("not yet")
		q := &fakeQueue{onSettle: func(inbox.Settlement) error { return back }}
		q.add(1)
		began := time.Now()
		q.onSettle = func(inbox.Settlement) error {
			if time.Since(began) < 10*time.Second {
				return back
			}
			return nil
		}
		stop := launch(t, newFake(t, q, accepting, nil))
		synctest.Wait()
		if err := stop(); err != nil || len(q.settlements()) != 1 {
			t.Errorf("Run: %v, %d settled; want the settlement to have waited for the database", err, len(q.settlements()))
		}
	})
}
