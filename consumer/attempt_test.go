package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"weak"

	"pgregory.net/rapid"

	"github.com/hooklatch/hooklatch/inbox"
)

// attemptOf runs one attempt of f and returns how it was settled.
func attemptOf(t *testing.T, f inbox.Forward, h HandlerFunc, change func(*Config)) (s inbox.Settlement) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{due: []inbox.Forward{f}, expiresIn: 24 * time.Hour}
		stop := launch(t, newFake(t, q, h, func(c *Config) {
			c.Rand = func() float64 { return 0.5 }
			if change != nil {
				change(c)
			}
		}))
		wait(nil, time.Minute)
		stop()
		if len(q.settled) != 1 {
			t.Fatalf("%d settlements, want 1", len(q.settled))
		}
		s = q.settled[0]
	})
	return s
}

func failing(err error) HandlerFunc {
	return func(context.Context, Forward) error { return err }
}

func TestWhatBecomesOfAnAttempt(t *testing.T) {
	first := inbox.Forward{ID: 1, Token: 4, Attempt: 1}
	for _, tc := range []struct {
		name    string
		forward inbox.Forward
		handler HandlerFunc
		want    string // outcome class reason delay free
	}{
		{"nil", first, failing(nil), "accepted 2xx - 0s false"},
		{"a plain error", first, failing(errors.New("no")), "retry error - 500ms false"},
		{"third attempt", inbox.Forward{Attempt: 3}, failing(errors.New("no")), "retry error - 2s false"},
		{"free ones do not slow down", inbox.Forward{Attempt: 9, AttemptsFree: 8}, failing(errors.New("no")), "retry error - 500ms false"},
		{"500", first, failing(&AttemptError{Status: 500}), "retry 5xx - 500ms false"},
		{"408", first, failing(&AttemptError{Status: 408}), "retry 4xx - 500ms false"},
		{"404", first, failing(&AttemptError{Status: 404, Permanent: true}), "blocked 4xx refused 0s false"},
		{"302", first, failing(&AttemptError{Status: 302, Permanent: true}), "blocked 3xx redirected 0s false"},
		{"wrapped", first, failing(fmt.Errorf("x: %w", &AttemptError{Status: 422, Permanent: true})), "blocked 4xx refused 0s false"},
		{"429 without Retry-After counts", first, failing(&AttemptError{Status: 429}), "retry 429 - 500ms false"},
		{"429 with Retry-After is free", first, failing(&AttemptError{Status: 429, RetryAfter: 2 * time.Minute}), "retry 429 - 2m0.5s true"},
		{"503 with Retry-After beyond the cap", first, failing(&AttemptError{Status: 503, RetryAfter: time.Hour}), "retry 5xx - 15m0.5s true"},
		{"500 with Retry-After counts", first, failing(&AttemptError{Status: 500, RetryAfter: time.Minute}), "retry 5xx - 1m0.5s false"},
		{"last attempt", inbox.Forward{Attempt: 12}, failing(&AttemptError{Status: 500}), "blocked 5xx attempts_exhausted 0s false"},
		{"last attempt, but free", inbox.Forward{Attempt: 12}, failing(&AttemptError{Status: 429, RetryAfter: time.Second}), "retry 429 - 1.5s true"},
		{"twelfth of which one was free", inbox.Forward{Attempt: 12, AttemptsFree: 1}, failing(&AttemptError{Status: 500}), "retry 5xx - 7m30s false"},
		{"thirteenth of which one was free", inbox.Forward{Attempt: 13, AttemptsFree: 1}, failing(&AttemptError{Status: 500}), "blocked 5xx attempts_exhausted 0s false"},
		{"nothing in time", first, func(ctx context.Context, _ Forward) error { <-ctx.Done(); return ctx.Err() }, "retry timeout - 500ms false"},
		{"panic", first, func(context.Context, Forward) error { panic("boom") }, "retry error - 500ms false"},
		{"Goexit", first, func(context.Context, Forward) error { runtime.Goexit(); return nil }, "retry error - 500ms false"},
		{"lease lost in the handler", first, failing(fmt.Errorf("x: %w", inbox.ErrLeaseLost)), "retry unknown - 0s false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := attemptOf(t, tc.forward, tc.handler, nil)
			if got := describe(s); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if s.Token != tc.forward.Token || s.Attempt != tc.forward.Attempt || s.Worker != "w1" || s.ConfigRevision != 7 {
				t.Errorf("settlement %+v of forward %+v", s, tc.forward)
			}
		})
	}
}

func describe(s inbox.Settlement) string {
	outcome := map[inbox.Outcome]string{
		inbox.OutcomeAccepted: "accepted", inbox.OutcomeRetry: "retry",
		inbox.OutcomeBlocked: "blocked", inbox.OutcomeReleased: "released",
	}[s.Outcome]
	reason := s.Reason
	if reason == "" {
		reason = "-"
	}
	return fmt.Sprint(outcome, " ", s.Class, " ", reason, " ", s.Delay, " ", s.Free)
}

func TestRetryBeyondTheDeadlineIsBlockedNow(t *testing.T) {
	for name, tc := range map[string]struct {
		expiresIn time.Duration
		want      string
	}{
		"retry in time":         {10 * time.Second, "retry 5xx - 500ms false"},
		"retry after the end":   {400 * time.Millisecond, "blocked 5xx deadline_passed 0s false"},
		"answered past the end": {-time.Second, "blocked 5xx deadline_passed 0s false"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &fakeQueue{expiresIn: tc.expiresIn}
				q.add(1)
				stop := launch(t, newFake(t, q, failing(&AttemptError{Status: 500}), func(c *Config) {
					c.Rand = func() float64 { return 0.5 }
				}))
				synctest.Wait()
				stop()
				if got := describe(q.settled[0]); got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestPanicFailsOneAttemptAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(40)
		h := func(_ context.Context, f Forward) error {
			switch f.ID % 4 {
			case 0:
				panic(fmt.Sprint("forward ", f.ID))
			case 1:
				runtime.Goexit()
			}
			return nil
		}
		var stack string
		stop := launch(t, newFake(t, q, h, func(c *Config) {
			c.Concurrency = 1
			c.OnError = func(err error) { stack = err.Error() }
		}))
		synctest.Wait()
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		outcomes := map[inbox.Outcome]int{}
		for _, s := range q.settled {
			outcomes[s.Outcome]++
		}
		if outcomes[inbox.OutcomeAccepted] != 20 || outcomes[inbox.OutcomeRetry] != 20 {
			t.Errorf("outcomes %v, want 20 accepted and 20 retries", outcomes)
		}
		if !strings.Contains(stack, "attempt_test.go") {
			t.Errorf("no stack of the panic in %q", stack)
		}
	})
}

func TestLedgerKeepsABoundedReport(t *testing.T) {
	answer := []byte(strings.Repeat("\xff\xfe\x00x", 5000))
	s := attemptOf(t, inbox.Forward{Attempt: 1}, func(_ context.Context, f Forward) error {
		f.Report.Status, f.Report.Answer = 500, answer
		wait(nil, 30*time.Millisecond)
		return errors.New(strings.Repeat("é\x00\n", 1000))
	}, nil)
	if len(s.Answer) != keptAnswer || s.Status != 500 || s.Class != "5xx" || s.Duration != 30*time.Millisecond {
		t.Errorf("%d bytes of answer, status %d, class %s, %v", len(s.Answer), s.Status, s.Class, s.Duration)
	}
	if len(s.Error) > keptError || !utf8.ValidString(s.Error) || strings.ContainsAny(s.Error, "\x00\n") {
		t.Errorf("error text %q", s.Error)
	}
}

func TestCleanText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 2*keptError).Draw(t, "text"))
		got := cleanText(text)
		if len(got) > keptError || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("cleaned to %q", got)
		}
	})
}

// While the database is away, hundreds of settlements may wait: none may hold a body.
func TestBodyIsLetGoBeforeTheSettlement(t *testing.T) {
	q := &fakeQueue{}
	q.add(1)
	body := make([]byte, 1<<20)
	held := weak.Make(&body[0])
	q.due[0].Delivery.Body, body = body, nil
	settling, goOn := make(chan struct{}), make(chan struct{})
	q.onSettle = func(inbox.Settlement) error {
		q.mu.Lock()
		q.due = nil
		q.mu.Unlock()
		close(settling)
		<-goOn
		return nil
	}
	h := func(_ context.Context, f Forward) error {
		if len(f.Delivery.Body) != 1<<20 {
			t.Errorf("handed over %d bytes", len(f.Delivery.Body))
		}
		return nil
	}
	stop := launch(t, newFake(t, q, h, nil))
	<-settling
	runtime.GC()
	runtime.GC()
	if held.Value() != nil {
		t.Error("the body is still held while the settlement waits")
	}
	close(goOn)
	stop()
}

// A replay is one attempt: also what would cost no budget, and what we cut off ourselves,
// ends as a dead letter and not as a retry.
func TestX44_LastAttemptIsFollowedByNone(t *testing.T) {
	for name, h := range map[string]HandlerFunc{
		"500":         failing(&AttemptError{Status: 500}),
		"Retry-After": failing(&AttemptError{Status: 503, RetryAfter: time.Minute}),
		"cut off":     func(ctx context.Context, _ Forward) error { <-ctx.Done(); return ctx.Err() },
	} {
		synctest.Test(t, func(t *testing.T) {
			q := &fakeQueue{}
			q.add(1)
			q.due[0].Last = true
			stop := launch(t, newFake(t, q, h, func(c *Config) { c.Timeout, c.Grace = time.Minute, time.Second }))
			synctest.Wait()
			stop()
			if s := q.settlements()[0]; s.Outcome != inbox.OutcomeBlocked || s.Reason != inbox.ReasonAttemptsExhausted {
				t.Errorf("%s: outcome %v, reason %q", name, s.Outcome, s.Reason)
			}
		})
	}
}
