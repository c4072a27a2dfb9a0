package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/hooklatch/hooklatch/inbox"
)

const (
	keptAnswer = 4 << 10 // of an answer, in the ledger
	keptError  = 1 << 10 // of an error's text
)

// attempt is one try of one forward, from its claim to its settlement.
type attempt struct {
	run    *run
	claim  inbox.Forward
	report Report
	pass   pass

	ctx    context.Context
	cancel context.CancelCauseFunc
	began  time.Time

	// Both are the database's times moved to our clock: the store counted from a
	// moment after we asked, so we think of each end a little early, and no
	// difference between the clocks can matter.
	leaseEnd atomic.Pointer[time.Time]
	expires  time.Time // zero: never
}

func newAttempt(r *run, f inbox.Forward, claimed time.Time) *attempt {
	a := &attempt{run: r, claim: f}
	end := claimed.Add(r.cfg.Lease)
	a.leaseEnd.Store(&end)
	if !f.ExpiresAt.IsZero() && !f.LeaseUntil.IsZero() {
		a.expires = end.Add(f.ExpiresAt.Sub(f.LeaseUntil))
	}
	return a
}

func (a *attempt) forward() Forward {
	return Forward{Forward: a.claim, Report: &a.report}
}

// release gives back a forward that was not handed over.
func (a *attempt) release() {
	defer a.run.slots.settled()
	a.run.handled(a.claim)
	_ = a.settle(a.settlement(inbox.OutcomeReleased, "")) // told to OnError; a lost lease needs no release
}

var (
	errNoReturn   = errors.New("handler ended its goroutine")
	errNotRenewed = errors.New("lease could not be renewed")
)

// work hands the forward over and settles it. The settlement is deferred, so
// that also a Handler that never returns by itself (runtime.Goexit) is settled.
func (a *attempt) work() {
	a.began = time.Now()
	ctx, cancelTimeout := context.WithTimeout(a.run.attempts, a.run.cfg.Timeout)
	defer cancelTimeout()
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	stopKeeping := a.keepLease()

	settled, err := false, errNoReturn
	defer func() {
		defer a.run.slots.settled()
		settlement := a.judge(err)
		a.pass.leave(verdict(settlement, err), settlement.Error)
		a.run.handled(a.claim)
		a.cancel(nil)
		stopKeeping()
		a.claim.Delivery.Body = nil // a settlement may take long, and no renewal reads it any more
		result := AttemptResult{Forward: a.claim, Settlement: settlement}
		if !settled {
			result.Err = a.settle(result.Settlement)
			result.LeaseLost = errors.Is(result.Err, inbox.ErrLeaseLost)
		}
		if a.claim.Ordering != inbox.OrderNone {
			a.run.Wake() // the next one of its lane may be due
		}
		a.run.cfg.OnAttempt(a.run.settles, result)
	}()
	settled, err = a.call()
}

func (a *attempt) call() (settled bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			settled, err = false, fmt.Errorf("handler panicked: %v", v)
			a.run.cfg.OnError(fmt.Errorf("forward %d: %w\n%s", a.claim.ID, err, debug.Stack()))
		}
	}()
	return a.run.hand(a)
}

// keepLease renews the lease each time half of it is over. It ends the attempt
// when it cannot, early enough to settle. The returned function ends the keeping.
func (a *attempt) keepLease() (stop func()) {
	half := a.run.cfg.Lease / 2
	done := make(chan struct{})
	timer := time.AfterFunc(time.Until(a.leaseEnd.Load().Add(-half)), func() {
		defer close(done)
		for a.renew() {
			if !wait(a.ctx.Done(), time.Until(a.leaseEnd.Load().Add(-half))) {
				return
			}
		}
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// leaseLeft is how long the attempt may go on: the last quarter of its lease is for the
// settlement.
func (a *attempt) leaseLeft() time.Duration {
	return time.Until(*a.leaseEnd.Load()) - a.run.cfg.Lease/4
}

// renew tries as long as leaseLeft. False: the attempt is over.
func (a *attempt) renew() bool {
	for n := 0; a.ctx.Err() == nil; n++ {
		left := a.leaseLeft()
		if left <= 0 {
			a.cancel(errNotRenewed)
			return false
		}
		asked := time.Now()
		ctx, cancel := context.WithTimeout(a.run.settles, min(left, queueTimeout))
		_, err := a.run.queue.Renew(ctx, a.claim, a.run.cfg.Lease)
		cancel()
		if err == nil {
			end := asked.Add(a.run.cfg.Lease)
			a.leaseEnd.Store(&end)
			return true
		}
		if errors.Is(err, inbox.ErrLeaseLost) {
			a.cancel(err)
			return false
		}
		a.run.cfg.OnError(fmt.Errorf("renew lease of forward %d: %w", a.claim.ID, err))
		wait(a.ctx.Done(), min(left, trouble.pause(n, a.run.cfg.Rand)))
	}
	return false
}

// settle tries until the lease is over, or until a stop waits no longer. Trouble
// is told to OnError each time.
func (a *attempt) settle(s inbox.Settlement) error {
	failpoint("before_settle")
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(a.run.settles, queueTimeout)
		err := a.run.queue.Settle(ctx, s)
		cancel()
		if err == nil {
			if s.Outcome == inbox.OutcomeRetry {
				a.run.retries.add(s.Delay)
			}
			return nil
		}
		err = fmt.Errorf("settle forward %d: %w", a.claim.ID, err)
		if errors.Is(err, inbox.ErrLeaseLost) {
			return err
		}
		a.run.cfg.OnError(err)
		if a.run.settles.Err() != nil {
			a.run.leasesLeft.Add(1)
			return err
		}
		pause := trouble.pause(n, a.run.cfg.Rand)
		if time.Until(*a.leaseEnd.Load()) <= pause {
			return err
		}
		wait(a.run.settles.Done(), pause)
	}
}

// Reasons why the consumer blocks a forward, beside those of package inbox.
const (
	ReasonRedirected = "redirected" // the destination answered 3xx
	ReasonRefused    = "refused"    // any other answer that trying again does not change
)

// judge decides what becomes of the forward.
func (a *attempt) judge(err error) inbox.Settlement {
	if err == nil {
		return a.accepted()
	}
	var known *AttemptError
	if !errors.As(err, &known) {
		known = &AttemptError{Err: err, Status: a.report.Status}
		if errors.Is(a.ctx.Err(), context.DeadlineExceeded) {
			known.Class = "timeout"
		}
	}
	if cause := a.cutOff(err); cause != nil && known.Status == 0 {
		// By us: nobody knows what the destination made of it. Due again at once.
		s := a.settlement(inbox.OutcomeRetry, "unknown")
		s.Error = cleanText(cause.Error())
		if a.claim.Last {
			s.Outcome, s.Reason = inbox.OutcomeBlocked, inbox.ReasonAttemptsExhausted
		}
		return s
	}

	class := known.Class
	if class == "" {
		class = classOf(known.Status)
	}
	s := a.settlement(inbox.OutcomeRetry, class)
	s.Error = cleanText(known.Error())
	if known.Status != 0 {
		s.Status = known.Status
	}
	if known.Permanent {
		s.Outcome, s.Reason = inbox.OutcomeBlocked, ReasonRefused
		if class == "3xx" {
			s.Reason = ReasonRedirected
		}
		return s
	}
	return a.retry(s, known)
}

// cutOff says why the attempt was ended from outside; nil when it was not.
func (a *attempt) cutOff(err error) error {
	switch {
	case errors.Is(a.ctx.Err(), context.Canceled):
		return context.Cause(a.ctx)
	case errors.Is(err, inbox.ErrLeaseLost):
		return err
	default:
		return nil
	}
}

// retry sets when, or that the forward has no retry left.
func (a *attempt) retry(s inbox.Settlement, failed *AttemptError) inbox.Settlement {
	retry := a.run.cfg.Retry
	counted := a.claim.Attempt - a.claim.AttemptsFree // this one included
	if failed.RetryAfter > 0 {
		s.Free = failed.Status == 429 || failed.Status == 503
		s.Delay = retry.after(failed.RetryAfter, a.run.cfg.Rand)
	} else {
		s.Delay = retry.pause(max(counted-1, 0), a.run.cfg.Rand)
	}
	switch {
	case a.claim.Last, !s.Free && retry.MaxAttempts > 0 && counted >= retry.MaxAttempts:
		s.Reason = inbox.ReasonAttemptsExhausted
	case !a.expires.IsZero() && time.Now().Add(s.Delay).After(a.expires):
		s.Reason = inbox.ReasonDeadlinePassed
	default:
		return s
	}
	// The store would find out when it is claimed next; now is when a person
	// should see it.
	s.Outcome, s.Delay = inbox.OutcomeBlocked, 0
	return s
}

// accepted is the settlement of a forward that was taken, be it with another status than
// 2xx where the destination's responses say so.
func (a *attempt) accepted() inbox.Settlement {
	class := "2xx"
	if known := classOf(a.report.Status); known != "error" {
		class = known
	}
	return a.settlement(inbox.OutcomeAccepted, class)
}

func (a *attempt) settlement(outcome inbox.Outcome, class string) inbox.Settlement {
	s := inbox.Settlement{
		ForwardID: a.claim.ID, Tenant: a.claim.Delivery.Tenant, Token: a.claim.Token, Attempt: a.claim.Attempt,
		Outcome: outcome, Class: class,
		Status:         a.report.Status,
		Answer:         a.report.Answer[:min(len(a.report.Answer), keptAnswer)],
		Worker:         a.run.cfg.Worker,
		ConfigRevision: a.run.cfg.ConfigRevision,
	}
	if !a.began.IsZero() {
		s.Duration = time.Since(a.began)
	}
	return s
}

// classOf is the kind of end that an HTTP status means; error where there is none.
func classOf(status int) string {
	switch {
	case status == 429:
		return "429"
	case status >= 200 && status <= 599:
		return fmt.Sprintf("%dxx", status/100)
	default:
		return "error"
	}
}

// cleanText makes any text fit for a text column and for a person's terminal
// line: valid UTF-8, one line, bounded.
func cleanText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	if len(text) > keptError {
		cut := keptError
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	return text
}
