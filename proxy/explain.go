package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

const (
	// explainEvery is how often a source's requests are looked into, and the longest
	// that one waits for it: what comes in between, or would wait longer, is not.
	explainEvery = time.Second
	// explainWaiting is the most requests that wait.
	explainWaiting = 8
	// explainBody is the largest body that is looked into.
	explainBody = 1 << 20
)

// Explained is what was found out about a request after it was refused.
type Explained struct {
	Result // as OnResult got it
	// Causes are the findings, which hold together, in the order of Explain.
	// None: the request was dropped, or judged once more it verifies.
	Causes  []verify.Cause
	Dropped bool          // it had waited too long, or Run had ended
	Took    time.Duration // to look into it
	Fault   error         // of ours
}

// evidence is a refused request that is kept until the worker lets go of it.
type evidence struct {
	source  *source
	judge   *verify.Verifier // that has refused it
	request verify.Request
	at      time.Time // since then it waits
	now     time.Time // the same by the source's clock
	bytes   int64     // charged to the budget
	result  Result
}

// explainer looks into refused requests, one at a time, off the path of the
// requests.
type explainer struct {
	began   time.Time
	waiting chan *evidence
	mu      sync.Mutex
	open    bool // Run takes what waits
}

func newExplainer() explainer {
	return explainer{began: time.Now().Add(-explainEvery), waiting: make(chan *evidence, explainWaiting)}
}

// macFailures are the refusals that are looked into: the request had all that its
// scheme needs, and the bytes do not agree.
var macFailures = []verify.Reason{
	verify.ReasonSignatureMismatch, verify.ReasonKeyUnknown, verify.ReasonKeyExpired, verify.ReasonKeyNotYetValid,
}

// keep takes the body of a request whose MAC has failed out of the exchange, so that
// it may be looked into later, unless it is another one's turn. Its bytes stay
// charged to the budget.
func (x *exchange) keep(req verify.Request, body *buffer, failure error) {
	var refused *verify.Error
	if x.p.cfg.OnExplain == nil || !errors.As(failure, &refused) || !slices.Contains(macFailures, refused.Reason) {
		return
	}
	at := time.Now() // the body may have come slowly
	if len(req.Body) > explainBody || !x.source.turn(at.Sub(x.p.explainer.began)) {
		x.result.Unexplained = true
		return
	}
	x.result.Explaining = true
	body.lent = true
	e := &evidence{source: x.source, judge: x.verifier, request: req, at: at, now: x.source.now(), bytes: min(x.reading.bytes, int64(cap(body.bytes)))}
	e.request.Header = req.Header.Clone()
	x.reading.bytes -= e.bytes
	x.evidence = e
}

// turn says whether a request may be looked into at this time since the beginning.
func (s *source) turn(now time.Duration) bool {
	last := s.explained.Load()
	return now-time.Duration(last) >= explainEvery && s.explained.CompareAndSwap(last, int64(now))
}

// explain hands over what was kept, once the request has its answer and its report.
func (x *exchange) explain() {
	e := x.evidence
	if e == nil {
		return
	}
	x.evidence = nil
	e.result = x.result
	ex := &x.p.explainer
	ex.mu.Lock()
	room := ex.open && len(ex.waiting) < cap(ex.waiting)
	if room {
		ex.waiting <- e
	}
	ex.mu.Unlock()
	if !room {
		x.p.drop(context.WithoutCancel(x.r.Context()), e)
	}
}

// Run looks into refused requests and tells Config.OnExplain, until ctx is done.
// Without Config.OnExplain it has nothing to do; without Run every request for
// OnExplain is dropped.
func (p *Proxy) Run(ctx context.Context) error {
	ex := &p.explainer
	ex.mu.Lock()
	running := ex.open
	ex.open = true
	ex.mu.Unlock()
	if running {
		return errors.New("proxy: Run runs already")
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case e := <-ex.waiting:
			p.lookInto(ctx, e)
		}
	}
	ex.mu.Lock()
	ex.open = false
	ex.mu.Unlock()
	for {
		select {
		case e := <-ex.waiting:
			p.drop(context.WithoutCancel(ctx), e)
		default:
			return nil
		}
	}
}

func (p *Proxy) lookInto(ctx context.Context, e *evidence) {
	begun := time.Now()
	if begun.Sub(e.at) > explainEvery || ctx.Err() != nil {
		p.drop(ctx, e)
		return
	}
	causes, fault := p.causes(e)
	p.budget.release(e.bytes)
	p.cfg.OnExplain(ctx, Explained{Result: e.result, Causes: causes, Took: time.Since(begun), Fault: fault})
}

func (p *Proxy) drop(ctx context.Context, e *evidence) {
	p.budget.release(e.bytes)
	p.cfg.OnExplain(ctx, Explained{Result: e.result, Dropped: true})
}

// causes judges the request as at its receipt. A request that makes it panic must
// not take the process with it.
func (e *evidence) causes() (causes []verify.Cause, fault error) {
	defer func() {
		if v := recover(); v != nil {
			fault = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	v := *e.judge
	v.Now = func() time.Time { return e.now }
	return v.Explain(e.request, e.source.othersKeys()...).Causes, nil
}

// othersKeys are those of the tenant's other sources, with what was enrolled since.
func (s *source) othersKeys() (all []verify.KeySet) {
	for _, other := range s.others {
		all = append(all, other.verifier().Keys)
		if other.second != nil {
			all = append(all, other.second.Keys)
		}
	}
	return all
}
