package consumer

import (
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hooklatch/hooklatch/inbox"
)

// Breaker says when a destination that fails is left alone.
type Breaker struct {
	// Failures is how many in a row open it. Defaults to 5; negative means that it
	// never opens.
	Failures int
	// OpenFor is how long nothing is handed over then. Defaults to 30 seconds.
	OpenFor time.Duration
}

// BreakerState is whether forwards are handed over.
type BreakerState string

// The states.
const (
	BreakerClosed   BreakerState = "closed"    // they are
	BreakerHalfOpen BreakerState = "half_open" // one is, and decides
	BreakerOpen     BreakerState = "open"      // none is
)

// BreakerChange is one change of the state of a breaker, by the clock of the process.
type BreakerChange struct {
	From, To BreakerState
	At       time.Time
	Until    time.Time // of an open one: when the next forward is tried
	Failures int       // in a row, up to now
	Err      string    // the last of them, for people
}

// BreakerStatus is where a breaker stands.
type BreakerStatus struct {
	State    BreakerState
	Since    time.Time // zero: it has never changed
	Until    time.Time // of an open one: when the next forward is tried
	Failures int       // in a row
	Err      string    // the last of them
	// Concurrency is how many attempts may run at once just now: after an outage it
	// grows from one.
	Concurrency int
}

// silent is a failure that says nothing about whether the destination works: an idle
// connection that it has closed in the meantime, or trouble with our own database.
type silent struct{ error }

func (s silent) Unwrap() error { return s.error }

// breaker keeps a destination that fails from being asked. Each change of state begins
// a generation; an attempt is heard only in the one that it began in.
//
// After an outage the places grow from one by each success, which doubles them with each
// round. Until all are there each failure takes one away, and where none is left it opens
// again: an app that is down is found out at once, one that fails some forwards is not
// shut out for those.
type breaker struct {
	cfg    Breaker
	places int // of the destination
	asked  chan struct{}
	tell   func(BreakerChange)

	mu         sync.Mutex
	circuit    *gobreaker.TwoStepCircuitBreaker[any] // nil: never opens
	state      BreakerState
	last       BreakerChange
	untold     []BreakerChange
	telling    bool
	failures   int
	err        string
	generation int
	running    int  // of this generation
	allowed    int  // places just now
	wanted     bool // a person wants it to be tried though it is open
	trying     bool // for that person
}

func newBreaker(cfg Breaker, places int, tell func(BreakerChange)) *breaker {
	b := &breaker{
		cfg: cfg, places: places, allowed: places, state: BreakerClosed,
		asked: make(chan struct{}, 1), tell: tell,
	}
	if cfg.Failures > 0 {
		b.circuit = b.newCircuit()
	}
	return b
}

func (b *breaker) newCircuit() *gobreaker.TwoStepCircuitBreaker[any] {
	return gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     b.cfg.OpenFor,
		ReadyToTrip: func(gobreaker.Counts) bool {
			return b.allowed == 0 || b.failures >= b.cfg.Failures
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, errSilent) },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.change(states[to]) },
	})
}

var (
	errFailed = errors.New("failed")
	errSilent = errors.New("says nothing")

	states = map[gobreaker.State]BreakerState{
		gobreaker.StateClosed: BreakerClosed, gobreaker.StateHalfOpen: BreakerHalfOpen, gobreaker.StateOpen: BreakerOpen,
	}
)

// change is called with mu held.
func (b *breaker) change(to BreakerState) {
	now := time.Now()
	c := BreakerChange{From: b.state, To: to, At: now, Failures: b.failures, Err: b.err}
	if to == BreakerOpen {
		c.Until = now.Add(b.cfg.OpenFor)
	}
	b.state, b.last = to, c
	b.untold = append(b.untold, c)
	b.generation++
	b.running, b.allowed = 0, 1
	b.wanted, b.trying = false, false
}

// report tells of changes in their order, and with mu not held: the hook may ask for
// the state.
func (b *breaker) report() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.telling {
		return // who tells already goes on with these
	}
	b.telling = true
	for len(b.untold) > 0 {
		c := b.untold[0]
		b.untold = b.untold[1:]
		b.mu.Unlock()
		b.tell(c)
		b.mu.Lock()
	}
	b.telling = false
}

// look notes that the time of an open breaker is over.
func (b *breaker) look() {
	if b.circuit != nil {
		b.circuit.State()
	}
}

func (b *breaker) status() BreakerStatus {
	defer b.report()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	s := BreakerStatus{
		State: b.state, Since: b.last.At, Failures: b.failures, Err: b.err, Concurrency: b.allowed,
	}
	if b.state == BreakerOpen {
		s.Until, s.Concurrency = b.last.Until, 0
	}
	return s
}

// probe asks for one attempt now although it is open.
func (b *breaker) probe() {
	b.mu.Lock()
	b.look()
	b.wanted = b.state == BreakerOpen && !b.trying
	b.mu.Unlock()
	b.report()
	notify(b.asked)
}

// room is how many attempts may begin. Where there is none, and time brings it, it is
// how long that takes.
func (b *breaker) room() (n int, wait time.Duration) {
	if b.circuit == nil {
		return b.places, 0
	}
	defer b.report()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	switch {
	case b.state != BreakerOpen:
		return b.allowed - b.running, 0
	case b.trying:
		return 0, 0
	case b.wanted:
		return 1, 0
	default:
		// A moment more: what is due at an instant is let through after it.
		return 0, max(time.Until(b.last.Until), 0) + time.Nanosecond
	}
}

// pass is the leave of one attempt.
type pass struct {
	breaker    *breaker
	done       func(error)
	generation int
	wanted     bool
}

// enter is false where the attempt must not be made.
func (b *breaker) enter() (pass, bool) {
	if b.circuit == nil {
		return pass{}, true
	}
	defer b.report()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	if b.trying {
		return pass{}, false
	}
	if b.state == BreakerOpen && b.wanted {
		b.wanted, b.trying = false, true
		return pass{breaker: b, generation: b.generation, wanted: true}, true
	}
	if b.running >= b.allowed {
		return pass{}, false
	}
	done, err := b.circuit.Allow()
	if err != nil {
		return pass{}, false
	}
	b.running++
	return pass{breaker: b, done: done, generation: b.generation}, true
}

// verdict is what the end of an attempt says about its destination. Each answer of an
// app that lives is a good sign, also one that refuses.
func verdict(s inbox.Settlement, err error) error {
	switch {
	case s.Outcome == inbox.OutcomeReleased, s.Class == "unknown", errors.As(err, &silent{}):
		return errSilent
	case s.Outcome == inbox.OutcomeAccepted, s.Class == "2xx", s.Class == "3xx", s.Class == "4xx":
		return nil
	case s.Class == "error" && s.Reason == ReasonRefused:
		return nil // a Handler knows that it is this forward, and not the destination
	default:
		return errFailed
	}
}

// leave says how the attempt went: nil, errFailed or errSilent.
func (p pass) leave(result error, text string) {
	b := p.breaker
	if b == nil {
		return
	}
	defer b.report()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	if p.generation != b.generation {
		return
	}
	if !p.wanted {
		b.running--
	}
	switch result {
	case errFailed:
		b.failures++
		b.err = text
		if b.allowed < b.places && !p.wanted {
			b.allowed--
		}
	case nil:
		b.failures, b.err = 0, ""
	}
	if p.wanted {
		b.decide(result)
		return
	}
	p.done(result) // may change the state
	if result == nil {
		b.allowed = min(b.allowed+1, b.places)
	}
}

// decide ends the attempt that a person wanted.
func (b *breaker) decide(result error) {
	b.trying = false
	switch result {
	case nil:
		b.circuit = b.newCircuit()
		b.change(BreakerClosed)
		b.allowed = min(2, b.places)
	case errSilent:
		b.wanted = true // it has not been tried yet
	}
}
