package proxy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// exchange is one request on its way through the checks.
type exchange struct {
	p *Proxy
	w http.ResponseWriter
	r *http.Request

	start    time.Time
	source   *source          // nil until the route is known
	verifier *verify.Verifier // whose word counts
	next     *verify.Verifier // judges where that one refuses; nil: none does
	limit    int64            // of the body
	reading  reading
	result   Result
	consumed bool      // the body was read to its end
	timedOut bool      // reading the body was
	answered bool      // the answer's header is written
	passed   bool      // to the upstream, and that is over
	abort    bool      // the answer is not whole, and the client must see it
	out      []byte    // the answer's body; its memory is used again
	evidence *evidence // kept to be explained; nil: nothing is
}

func (p *Proxy) begin(w http.ResponseWriter, r *http.Request) *exchange {
	x, _ := p.exchanges.Get().(*exchange)
	if x == nil {
		x = &exchange{p: p}
	}
	x.w, x.r, x.start = w, r, time.Now()
	x.consumed = r.Body == nil || r.Body == http.NoBody
	x.result = Result{RequestID: newRequestID(), BodyBytes: max(r.ContentLength, 0)}
	x.result.Peer, _ = p.proxies.client(r)
	return x
}

// newRequestID is a UUIDv7, or the nil UUID if the system has no randomness.
func newRequestID() uuid.UUID {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil
	}
	return id
}

// handle runs the checks in their order. After nil the sender has its answer.
func (x *exchange) handle() error {
	if x.p.draining.Load() {
		return errShuttingDown
	}
	target, err := x.route()
	if errors.Is(err, errPath) && x.p.passthrough.takes(x.r.Method, target) {
		return x.pass()
	}
	if err != nil {
		return err
	}
	s := x.source
	req := verify.Request{Method: x.r.Method, URL: target, Header: x.r.Header}
	x.verifier, x.next = s.choose(req)
	x.limit = s.maxBody
	may := x.verifier.MayHandshake(req)
	if x.r.Method != http.MethodPost && !may {
		return errMethod
	}
	if countFields(x.r.Header) > maxFields {
		return errTooManyFields
	}
	if x.r.Method != http.MethodPost {
		return x.bodyless(req)
	}
	err = x.verifier.CheckHeader(req)
	if err != nil && x.next != nil {
		x.verifier, x.next = x.next, nil
		err = x.verifier.CheckHeader(req)
	}
	if err != nil {
		if !may {
			return err
		}
		return x.suspect(req, err)
	}
	if !s.answersPost {
		if err := s.checkEventIDHeader(req); err != nil {
			return err
		}
	}
	return x.receive(req)
}

// maxFields is the most header fields of a request.
const maxFields = 128

func countFields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// route finds the source and returns the request target as it came.
func (x *exchange) route() (target string, err error) {
	target = x.r.RequestURI
	if target == "" { // a request that no server has parsed
		target = x.r.URL.RequestURI()
	}
	s, err := x.p.routes.find(x.r.Host, pathOf(target))
	if err != nil {
		return target, err
	}
	x.source = s
	x.result.Source, x.result.Tenant, x.result.BodyLimit = s.name, s.tenant, s.maxBody
	return target, nil
}

// receive takes a slot, reads the body, verifies and commits.
func (x *exchange) receive(req verify.Request) error {
	size := x.r.ContentLength
	if x.consumed {
		size = 0
	}
	if size > x.limit {
		return errTooLarge
	}
	if size < 0 {
		size = x.limit
	}
	rd := &x.reading
	rd.w, rd.bytes = x.w, size
	if err := x.p.budget.take(x.r.Context(), rd); err != nil {
		return err
	}
	defer x.p.budget.give(rd)

	body, err := x.readBody(size)
	x.p.budget.done(rd)
	if err == nil {
		req.Body = body.bytes
		err = x.accept(req, body)
		x.keep(req, body, err)
	}
	x.p.buffers.put(body)
	return err
}

// accept verifies the raw bytes, and only then looks inside them.
func (x *exchange) accept(req verify.Request, body *buffer) error {
	s, res := x.source, &x.result
	env, answer, err := x.verifier.Receive(req)
	if err != nil && x.next != nil {
		x.verifier, x.next = x.next, nil
		env, answer, err = x.verifier.Receive(req)
	}
	res.BodyHash = sha256.Sum256(req.Body)
	if err != nil {
		return err
	}
	if answer.Kind != "" {
		return x.shake(&env, &answer)
	}
	if s.answersPost {
		if err := s.checkEventIDHeader(req); err != nil {
			return err
		}
	}
	d := s.delivery(req, &env, res.BodyHash)
	d.RequestID, d.Peer, d.ConfigRevision = res.RequestID, res.Peer, x.p.cfg.ConfigRevision
	_, d.RawQuery, _ = strings.Cut(req.URL, "?")
	res.describe(&env, &d)
	switch {
	case s.onlyJSON && !isJSON(req.Body):
		return errNotJSON
	case s.routing.rule.Refuse && !s.routing.allows(d.EventType):
		return errType
	}

	s.mark(&d, x.verifier)
	// The sender may hang up now; what it sent is complete and shall be stored.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), inbox.MaxAccept)
	defer cancel()
	body.lent = true // after an error nobody knows who still looks at it
	receipt, err := x.p.inbox.Accept(ctx, d)
	var conflict *inbox.ConflictError
	switch {
	case errors.As(err, &conflict):
		res.conflict(conflict)
		return errConflict
	case err != nil:
		res.Err = err
		return err
	}
	body.lent = receipt.Conflict != nil
	receipt.DeliveryID = cmp.Or(receipt.DeliveryID, d.DeliveryID)
	if receipt.Conflict != nil {
		res.conflict(receipt.Conflict)
	}
	res.Duplicate = receipt.Duplicate
	if receipt.DeliveryID != d.DeliveryID {
		res.KeptAs = receipt.DeliveryID
	}
	x.succeed(receipt)
	return nil
}

// end reports the request, also when a check panicked: one faulty request must
// not take the others of the process with it.
func (x *exchange) end() {
	if v := recover(); v != nil {
		x.result.Err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		x.refuse(errPanic)
		x.report()
		x.explain()
		return // x may still be in use somewhere
	}
	x.report()
	x.explain()
	abort := x.abort
	x.reset()
	x.p.exchanges.Put(x)
	if abort {
		panic(http.ErrAbortHandler) // as net/http wants it said
	}
}

func (x *exchange) reset() {
	x.w, x.r, x.source, x.verifier, x.next, x.result = nil, nil, nil, nil, nil, Result{}
	x.consumed, x.timedOut, x.answered, x.passed, x.abort = false, false, false, false, false
	x.reading.w = nil
	x.reading.got.Store(0)
	x.reading.shed.Store(false)
}

// gone says that the sender has closed its side. A read deadline of ours ends the
// request's context too.
func (x *exchange) gone() bool {
	if x.passed {
		return x.result.Disconnected
	}
	return x.r.Context().Err() != nil && !x.timedOut && !x.reading.shed.Load()
}

func (x *exchange) report() {
	if x.p.cfg.OnResult == nil {
		return
	}
	if x.gone() {
		x.result.Disconnected = true
		x.result.Status = StatusDisconnected
	}
	x.result.Duration = time.Since(x.start)
	x.p.cfg.OnResult(x.r.Context(), x.result)
}

// note takes over what a refusal says beyond the public code.
func (r *Result) note(err error) {
	var refused *verify.Error
	if errors.As(err, &refused) {
		r.Reason = string(refused.Reason)
		r.Field, r.Scheme, r.KeyID = refused.Field, refused.Scheme, refused.KeyID
		r.DeliveryID = refused.DeliveryID
		r.Distance = refused.Distance
	}
}
