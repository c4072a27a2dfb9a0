package proxy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The ends of a request to the upstream that are not its answer.
var (
	errUpstream        = errors.New("upstream cannot be reached")
	errUpstreamTimeout = errors.New("upstream does not answer in time")
	errUpstreamCut     = errors.New("upstream ended its answer early")
	errStopped         = errors.New("cut by the stop")
)

// pass hands the request to the upstream and its answer to the client, each as it
// comes.
func (x *exchange) pass() error {
	pt, res := x.p.passthrough, &x.result
	res.Outcome = OutcomePassed
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	if !pt.running.begin(x, cancel) {
		return errShuttingDown
	}
	defer pt.running.end(x)

	control := http.NewResponseController(x.w)
	control.SetReadDeadline(time.Time{})
	control.SetWriteDeadline(time.Time{})
	w := &passing{ResponseWriter: x.w, x: x, ctx: ctx, hangUp: x.w.Header()["Connection"] != nil}
	in := x.r.WithContext(ctx)
	body := &passingBody{ReadCloser: x.r.Body}
	if !x.consumed {
		w.body = body
		in.Body = body
	}
	aborted := w.serve(pt.proxy, in)

	broken := aborted || w.failed != nil
	x.passed = true // from here on the end of the request's context may be our doing
	res.Disconnected = broken && x.r.Context().Err() != nil
	if !x.consumed && !w.hijacked && x.r.ProtoMajor == 1 {
		body.give(control)
	}
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		res.Err, x.abort = errStopped, true
	case res.Disconnected:
		x.abort = true
	case aborted:
		res.Err, x.abort = errUpstreamCut, true
	case broken && !x.answered:
		err := errBodyMalformed
		if !body.failed.Load() {
			err = blame(w.failed)
			res.Err = err
		}
		return err
	}
	return nil
}

// passing is the answer on its way to the client.
type passing struct {
	http.ResponseWriter
	x        *exchange
	ctx      context.Context
	body     *passingBody // nil: there is none
	hangUp   bool         // the connection ends with this answer
	hijacked bool         // it is no longer HTTP
	failed   error        // there is no answer
}

// Unwrap is for [http.ResponseController].
func (w *passing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve says whether the answer broke off. Then the client must see that it did.
func (w *passing) serve(h http.Handler, r *http.Request) (aborted bool) {
	defer func() {
		if v := recover(); v == http.ErrAbortHandler {
			aborted = true
		} else if v != nil {
			panic(v)
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

// WriteHeader implements [http.ResponseWriter]. What the app left out, net/http does
// not add.
func (w *passing) WriteHeader(status int) {
	if status >= 200 {
		h := w.Header()
		for _, name := range []string{"Content-Type", "Date"} {
			if _, ok := h[name]; !ok {
				h[name] = nil
			}
		}
		if w.hangUp || w.x.r.ProtoMajor == 1 && (len(w.x.r.TransferEncoding) > 0 || w.body != nil && !w.body.ended.Load()) {
			// What is left of the body must not be taken for the next request. Nor does
			// net/http then wait for it before it lets the answer out.
			h["Connection"] = w.x.p.lines.close
		}
		w.x.answered, w.x.result.Status = true, status
	}
	w.ResponseWriter.WriteHeader(status)
	if _, ok := w.Header()["Content-Length"]; !ok && status >= 200 {
		// ReverseProxy flushes too, but beside the copying: net/http adds a length to
		// an answer that ends first.
		http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// Hijack implements [http.Hijacker], for a connection that is upgraded.
func (w *passing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.Header().Del("Connection") // it ends by itself
	conn, brw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked, w.x.answered, w.x.result.Status = true, true, http.StatusSwitchingProtocols
		context.AfterFunc(w.ctx, func() { conn.Close() }) // also when its other end does not read
	}
	return conn, brw, err
}

// passingBody is a request's body on its way to the app, read by a goroutine that
// may outlive the exchange.
type passingBody struct {
	io.ReadCloser

	mu                sync.Mutex  // held while it is read
	given             atomic.Bool // nobody may read it any more
	ended, failed     atomic.Bool // it was read to its end, it could not be
	declared, trailer http.Header // of the request that came, of the one that goes
}

func (b *passingBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.given.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.ended.Store(true)
		for name := range b.trailer {
			b.trailer[name] = b.declared[name]
		}
	case err != nil && !b.given.Load():
		b.failed.Store(true)
	}
	return n, err
}

// give returns to net/http a body that the app did not read to its end. It reads a
// bit of what is left, so that the connection can be used again; we have taken the
// deadline away that would have ended that.
func (b *passingBody) give(control *http.ResponseController) {
	b.given.Store(true)
	if !b.mu.TryLock() {
		control.SetReadDeadline(time.Now().Add(-time.Second)) // ends the read that holds it
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	if !b.ended.Load() {
		control.SetReadDeadline(time.Now().Add(drainTime))
	}
}

// blame says what the failure of the upstream is to the client.
func blame(err error) error {
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return fmt.Errorf("%w: %w", errUpstreamTimeout, err)
	}
	return fmt.Errorf("%w: %w", errUpstream, err)
}

// running are the requests at the upstream.
type running struct {
	mu      sync.Mutex
	cancels map[*exchange]context.CancelCauseFunc
	ended   bool          // no other may begin
	empty   chan struct{} // closed when there is none; nil: nobody waits
}

func (r *running) begin(x *exchange, cancel context.CancelCauseFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancels == nil {
		r.cancels = map[*exchange]context.CancelCauseFunc{}
	}
	if !r.ended {
		r.cancels[x] = cancel
	}
	return !r.ended
}

func (r *running) end(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cancels, x)
	r.tell()
}

func (r *running) tell() {
	if len(r.cancels) == 0 && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
}

// finish waits for all of them, and cuts those that are left when ctx is done.
func (r *running) finish(ctx context.Context) (cut int) {
	r.mu.Lock()
	empty := make(chan struct{})
	r.ended, r.empty = true, empty
	r.tell()
	r.mu.Unlock()
	select {
	case <-empty:
		return 0
	case <-ctx.Done():
	}
	r.mu.Lock()
	cut = len(r.cancels)
	for _, cancel := range r.cancels {
		cancel(errStopped)
	}
	r.mu.Unlock()
	<-empty
	return cut
}

// Finish waits until the upstream has answered all that was handed to it, and cuts
// what is left when ctx is done: its error says how many. Call it with
// [http.Server.Shutdown], which neither waits for upgraded connections nor ends them.
func (p *Proxy) Finish(ctx context.Context) error {
	if p.passthrough == nil {
		return nil
	}
	defer p.passthrough.reusing.CloseIdleConnections()
	if cut := p.passthrough.running.finish(ctx); cut > 0 {
		return fmt.Errorf("proxy: %d requests to the upstream were cut: %w", cut, cmp.Or(ctx.Err(), context.Canceled))
	}
	return nil
}
