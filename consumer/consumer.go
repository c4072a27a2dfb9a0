package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// Queue is what a Consumer needs of the store. *inbox.Store is one.
type Queue interface {
	// Claim leases at most r.Limit due forwards to the caller, each with a token
	// of its own. A forward whose budget or time is used up is blocked instead.
	Claim(ctx context.Context, r inbox.ClaimRequest) ([]inbox.Forward, error)
	// Renew makes the lease of f last that long from now. inbox.ErrLeaseLost: it is no
	// longer the caller's, and nothing changed.
	Renew(ctx context.Context, f inbox.Forward, lease time.Duration) (time.Time, error)
	// Settle ends a lease. inbox.ErrLeaseLost: it was no longer the caller's, and
	// the forward did not change. Any other error: it may or may not have been
	// settled, and settling again is harmless.
	Settle(ctx context.Context, s inbox.Settlement) error
}

// Config is what a Consumer is told. Only Destination is demanded.
type Config struct {
	// Destination is whose forwards are claimed.
	Destination string
	// Tenants are those whose forwards are claimed. nil: all that have something due,
	// at the price of a further look at each claim.
	Tenants []string
	// Concurrency is how many attempts may run at once. Defaults to 16.
	Concurrency int
	// Timeout bounds an attempt. Defaults to 10 seconds.
	Timeout time.Duration
	// Lease is how long a claimed forward stays ours. Defaults to Timeout plus 30
	// seconds; must exceed Timeout.
	Lease time.Duration
	// Poll is the longest time between two looks when nobody calls Wake and no
	// retry of ours falls due. Defaults to 1 second.
	Poll time.Duration
	// Rate is how many attempts may begin in a second, by this Consumer. Defaults to no
	// bound.
	Rate float64
	// Shares is the weight of each tenant where several have something due. Defaults
	// to 1 each.
	Shares map[string]int
	// Retry is the pace of what failed.
	Retry Retry
	// Breaker says when a destination that fails is left alone.
	Breaker Breaker
	// Grace is how long attempts in flight may go on once Run was told to stop.
	// Defaults to 25 seconds.
	Grace time.Duration
	// Worker names this process in the ledger, for people.
	Worker string
	// ConfigRevision is recorded with each attempt.
	ConfigRevision int64

	// Rand returns numbers in [0, 1), also to several goroutines at once.
	// Defaults to math/rand/v2.
	Rand func() float64
	// OnAttempt is told of each attempt after it was settled, or could not be.
	// It must not block.
	OnAttempt func(ctx context.Context, r AttemptResult)
	// OnBreaker is told of each change of the breaker, in their order. It must not
	// block.
	OnBreaker func(BreakerChange)
	// OnError is told of trouble with the queue, and of a Handler's panic with its
	// stack. The Consumer goes on.
	OnError func(error)
}

// MaxWeight is the largest weight of a tenant.
const MaxWeight = 100

const (
	// queueTimeout bounds one call of the Queue. The store gives up within 4
	// seconds by itself.
	queueTimeout = 5 * time.Second
	// unsettled is how many forwards beyond Concurrency may be handed over and
	// not yet settled. It lets settlements share transactions, and bounds what a
	// failing database can pile up; their bodies are let go.
	unsettled = 256
)

// Consumer hands the due forwards of one destination to a Handler.
type Consumer struct {
	queue Queue
	hand  func(*attempt) (settled bool, err error)
	cfg   Config

	breaker *breaker
	bucket  *bucket
	wake    chan struct{}
	running atomic.Bool
}

// New makes a Consumer that hands forwards to h and settles them in q.
func New(q Queue, h Handler, cfg Config) (*Consumer, error) {
	if q == nil || h == nil {
		return nil, errors.New("consumer: Queue and Handler are demanded")
	}
	return newConsumer(q, cfg, func(a *attempt) (bool, error) {
		err := h.Handle(a.ctx, a.forward())
		failpoint("after_handler")
		return false, err
	})
}

func newConsumer(q Queue, cfg Config, hand func(*attempt) (bool, error)) (*Consumer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Consumer{
		queue: q, hand: hand, cfg: cfg, wake: make(chan struct{}, 1),
		breaker: newBreaker(cfg.Breaker, cfg.Concurrency, cfg.OnBreaker),
		bucket:  newBucket(cfg.Rate),
	}, nil
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.Destination == "" {
		return cfg, errors.New("consumer: Destination is demanded")
	}
	if cfg.Concurrency < 0 {
		return cfg, fmt.Errorf("consumer: Concurrency %d is negative", cfg.Concurrency)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Timeout", cfg.Timeout}, {"Lease", cfg.Lease}, {"Poll", cfg.Poll}, {"Grace", cfg.Grace},
		{"Retry.Base", cfg.Retry.Base}, {"Retry.Cap", cfg.Retry.Cap}, {"Breaker.OpenFor", cfg.Breaker.OpenFor},
	} {
		if d.value < 0 {
			return cfg, fmt.Errorf("consumer: %s %v is negative", d.name, d.value)
		}
	}
	orDefault(&cfg.Concurrency, 16)
	orDefault(&cfg.Timeout, 10*time.Second)
	orDefault(&cfg.Lease, cfg.Timeout+30*time.Second)
	orDefault(&cfg.Poll, time.Second)
	orDefault(&cfg.Grace, 25*time.Second)
	orDefault(&cfg.Retry.Base, time.Second)
	orDefault(&cfg.Retry.Cap, 15*time.Minute)
	orDefault(&cfg.Retry.MaxAttempts, 12)
	orDefault(&cfg.Breaker.Failures, 5)
	orDefault(&cfg.Breaker.OpenFor, 30*time.Second)
	cfg.Retry.MaxAttempts = max(cfg.Retry.MaxAttempts, 0) // the store's word for no limit
	if cfg.Lease <= cfg.Timeout {
		return cfg, fmt.Errorf("consumer: Lease %v does not exceed Timeout %v", cfg.Lease, cfg.Timeout)
	}
	if cfg.Rate < 0 {
		return cfg, fmt.Errorf("consumer: Rate %v is negative", cfg.Rate)
	}
	for tenant, weight := range cfg.Shares {
		if weight < 1 || weight > MaxWeight {
			return cfg, fmt.Errorf("consumer: Shares: weight %d of %s is not 1 to %d", weight, tenant, MaxWeight)
		}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.OnAttempt == nil {
		cfg.OnAttempt = func(context.Context, AttemptResult) {}
	}
	if cfg.OnBreaker == nil {
		cfg.OnBreaker = func(BreakerChange) {}
	}
	if cfg.OnError == nil {
		cfg.OnError = func(error) {}
	}
	return cfg, nil
}

func orDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Wake says that new forwards may be due. It never blocks, and is heard also
// while a claim is under way.
func (c *Consumer) Wake() { notify(c.wake) }

// notify never blocks: what is not heard yet says it already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Probe wants one forward to be tried now although the breaker is open: the first that
// is due. What becomes of it decides whether it closes. It never blocks.
func (c *Consumer) Probe() { c.breaker.probe() }

// Breaker is where the breaker stands.
func (c *Consumer) Breaker() BreakerStatus { return c.breaker.status() }

// Run works until ctx is done and then drains, as the package comment says. It
// returns nil when no lease is left, and an error when the database did not
// take some back: those forwards are due again when their leases end.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("consumer: Run is running already")
	}
	defer c.running.Store(false)

	r := &run{Consumer: c, slots: newSlots(c.cfg.Concurrency), retries: newRetries(c.cfg.Poll)}
	r.shares = newShares(c.cfg.Concurrency, c.cfg.Tenants, c.cfg.Shares)
	detached := context.WithoutCancel(ctx)
	r.attempts, r.cutAttempts = context.WithCancelCause(detached)
	r.settles, r.cutSettles = context.WithCancel(detached)
	defer r.cutAttempts(nil)
	defer r.cutSettles()

	drained := make(chan struct{})
	var limit sync.WaitGroup
	limit.Go(func() { r.limitStop(ctx, drained) })
	r.loop(ctx)
	r.inFlight.Wait()
	close(drained)
	limit.Wait()

	if n := r.leasesLeft.Load(); n > 0 {
		return fmt.Errorf("consumer: stopped with %d leases of %s that the store did not take back", n, c.cfg.Destination)
	}
	return nil
}

// run is one Run of a Consumer.
type run struct {
	*Consumer
	slots      *slots
	shares     *shares
	retries    *retries
	inFlight   sync.WaitGroup
	leasesLeft atomic.Int64

	attempts    context.Context // of all attempts; outlives Run's by Grace
	cutAttempts context.CancelCauseFunc
	settles     context.Context // of all settlements; outlives the attempts'
	cutSettles  context.CancelFunc
}

var errStopped = errors.New("stopped before the attempt had ended")

// limitStop ends what a stop may not wait for any longer.
func (r *run) limitStop(ctx context.Context, drained <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-drained:
		return
	}
	if !wait(drained, r.cfg.Grace) {
		return
	}
	r.cutAttempts(errStopped)
	if wait(drained, queueTimeout) {
		r.cutSettles()
	}
}

// loop claims and starts attempts until ctx is done.
func (r *run) loop(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		limit, pause := r.room()
		if limit <= 0 {
			r.waitForRoom(ctx, pause)
			continue
		}
		select {
		case <-r.wake: // this claim sees what the call was about
		default:
		}
		select {
		case <-r.slots.ended: // it has the place
		default:
		}
		r.retries.drop()
		asked := time.Now()
		request := r.request(limit)
		forwards, err := r.claim(request)
		for _, f := range forwards {
			r.start(ctx, f, asked)
		}
		if err != nil {
			r.cfg.OnError(fmt.Errorf("claim for %s: %w", r.cfg.Destination, err))
			wait(ctx.Done(), trouble.pause(failures, r.cfg.Rand))
			failures++
			continue
		}
		failures = 0
		if len(forwards) < limit {
			r.idle(ctx, cut(request, forwards))
		}
	}
}

// room is how many forwards may be claimed. Where that is none, and time brings room,
// it is how long that takes.
func (r *run) room() (n int, wait time.Duration) {
	if n, wait = r.breaker.room(); n <= 0 {
		return n, wait
	}
	return r.bucket.room(min(n, r.slots.free()))
}

func (r *run) waitForRoom(ctx context.Context, pause time.Duration) {
	var over <-chan time.Time // nil: never
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-r.slots.freed:
	case <-r.breaker.asked:
	case <-over:
	case <-ctx.Done():
	}
}

func (r *run) request(limit int) inbox.ClaimRequest {
	request := inbox.ClaimRequest{
		Destination:    r.cfg.Destination,
		Tenants:        r.cfg.Tenants,
		Limit:          limit,
		Lease:          r.cfg.Lease,
		MaxAttempts:    r.cfg.Retry.MaxAttempts,
		Worker:         r.cfg.Worker,
		ConfigRevision: r.cfg.ConfigRevision,
	}
	r.shares.divide(&request)
	return request
}

// claim is never cut short: a claim whose answer is lost leaves leases behind.
func (r *run) claim(request inbox.ClaimRequest) ([]inbox.Forward, error) {
	ctx, cancel := context.WithTimeout(r.settles, queueTimeout)
	defer cancel()
	return r.queue.Claim(ctx, request)
}

// start works on f, unless a stop was faster, the breaker has opened since, or the
// claim came back so late that another may have f by now: what is sent after its lease
// comes behind its successors.
func (r *run) start(ctx context.Context, f inbox.Forward, claimed time.Time) {
	r.slots.take()
	r.shares.begins(f)
	a := newAttempt(r, f, claimed)
	var ok bool
	if ctx.Err() == nil && a.leaseLeft() > 0 {
		a.pass, ok = r.breaker.enter()
	}
	if ok {
		r.bucket.take()
	}
	r.inFlight.Go(func() {
		if !ok {
			a.release()
			return
		}
		a.work()
	})
}

// handled gives the place of f back.
func (r *run) handled(f inbox.Forward) {
	r.shares.ends(f)
	r.slots.handled()
}

// idle waits for a reason to look again; with more, what has ended is one. The poll is
// early by up to a half, so that replicas do not look in step.
func (r *run) idle(ctx context.Context, more bool) {
	var freed <-chan struct{} // nil: never
	if more {
		freed = r.slots.ended
	}
	poll := time.Now().Add(r.cfg.Poll - spread(r.cfg.Poll/2, r.cfg.Rand))
	for {
		timer := time.NewTimer(r.retries.next(time.Until(poll)))
		select {
		case <-r.retries.earlier: // settled since we looked
			timer.Stop()
			continue
		case <-r.wake:
		case <-freed:
		case <-r.breaker.asked:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		return
	}
}

// wait returns true after d, false as soon as end is closed.
func wait(end <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-end:
		return false
	}
}

// slots counts what is under way. Only the loop takes, so what was free stays
// free until it does.
type slots struct {
	mu      sync.Mutex
	busy    int // Handlers that run
	open    int // forwards claimed and not settled
	maxBusy int
	freed   chan struct{} // either is less
	ended   chan struct{} // busy is
}

func newSlots(concurrency int) *slots {
	return &slots{maxBusy: concurrency, freed: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
}

func (s *slots) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.maxBusy-s.busy, s.maxBusy+unsettled-s.open)
}

func (s *slots) take()    { s.change(+1, +1) }
func (s *slots) handled() { s.change(-1, 0) }
func (s *slots) settled() { s.change(0, -1) }

func (s *slots) change(busy, open int) {
	s.mu.Lock()
	s.busy += busy
	s.open += open
	s.mu.Unlock()
	if busy < 0 || open < 0 {
		notify(s.freed)
	}
	if busy < 0 {
		notify(s.ended)
	}
}
