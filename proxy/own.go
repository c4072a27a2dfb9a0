package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// ReadBody reads the raw body for a handler of your own: at most limit bytes, or
// [verify.DefaultMaxBody] where limit is 0, and none that arrives too slowly. Half a
// body is an error, never a body. [Refuse] has the answer to each.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	limit = cmp.Or(limit, verify.DefaultMaxBody)
	x := &exchange{p: &Proxy{}, w: w, r: r, limit: limit, consumed: r.Body == nil || r.Body == http.NoBody}
	size := r.ContentLength
	if size < 0 {
		size = limit
	}
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		w.Header().Set("Connection", "close") // see exchange.answer
	}
	err := error(errTooLarge)
	var body *buffer
	if size <= limit {
		x.reading.start = time.Now()
		body, err = x.readBody(size)
	}
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("%w: %w", errTooLarge, &http.MaxBytesError{Limit: limit})
	}
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	r.Body = http.NoBody // for Refuse: nothing of it is left on the connection
	return body.bytes, nil
}

// Refuse answers a request that a handler of your own did not accept, with what a
// Proxy would say: status, Retry-After and problem document are those of the first
// that err wraps of the errors of [ReadBody], a [verify.Verifier] and
// [inbox.Store.Accept]; anything else is a fault of yours, 500. The sender reads
// fixed texts, nothing of err: log it.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	x := &exchange{p: &Proxy{lines: newLines()}, w: w, r: r, consumed: r.Body == nil || r.Body == http.NoBody}
	x.result.RequestID = newRequestID()
	var conflict *inbox.ConflictError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &conflict):
		x.result.DeliveryID, err = conflict.DeliveryID, errConflict
	case errors.As(err, &tooLarge):
		x.result.BodyLimit, err = tooLarge.Limit, errTooLarge
	}
	x.refuse(err)
}
