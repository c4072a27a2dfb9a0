package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// How slowly a body may arrive: all of it within bodyTime, plus a second for each
// MiB above the first, at most maxBodyTime; and after a grace of slowGrace at
// minRate or faster, so that a trickle does not hold its slot to the end.
const (
	bodyTime    = 10 * time.Second
	maxBodyTime = 40 * time.Second
	slowGrace   = 2 * time.Second
	minRate     = 16 << 10 // bytes per second
)

// readBody reads the body to its end. size is its declared length, or the cap.
func (x *exchange) readBody(size int64) (*buffer, error) {
	if x.consumed {
		return &buffer{bytes: []byte{}}, nil
	}
	limit, declared := x.limit, x.r.ContentLength
	first := size
	if declared < 0 {
		first = 0
	}
	buf := x.p.buffers.get(min(first, maxFirst) + 1)
	pace := newPace(x.w, x.reading.start, size)
	for !x.reading.shed.Load() {
		if len(buf.bytes) == cap(buf.bytes) {
			buf = x.p.buffers.grow(buf, limit+1)
		}
		if pace.allow(int64(len(buf.bytes))) && x.reading.shed.Load() {
			break // the deadline that was to stop it is gone
		}
		free := buf.bytes[len(buf.bytes):min(int64(cap(buf.bytes)), limit+1)]
		n, err := x.r.Body.Read(free)
		buf.bytes = buf.bytes[:len(buf.bytes)+n]
		got := int64(len(buf.bytes))
		x.result.BodyBytes = got
		x.reading.got.Store(got)
		switch {
		case got > limit:
			return buf, errTooLarge
		case err == io.EOF && declared >= 0 && got != declared:
			return buf, fmt.Errorf("%w: %d of %d bytes", errBodyMalformed, got, declared)
		case err == io.EOF:
			x.consumed = true
			return buf, nil
		case err != nil:
			return buf, x.readError(err)
		}
	}
	return buf, errOverloaded
}

// readError never says "empty body": bytes that came before an error count for
// nothing.
func (x *exchange) readError(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case x.reading.shed.Load():
		return errOverloaded
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.timedOut = true
		return errBodyTimeout
	case errors.As(err, &tooLarge):
		return errTooLarge
	}
	return fmt.Errorf("%w: %w", errBodyMalformed, err)
}

// pace sets the read deadline ahead of each read. A server that knows no
// deadlines leaves the body to its own limits.
type pace struct {
	control *http.ResponseController
	start   time.Time
	end     time.Time
	armed   time.Time
}

func newPace(w http.ResponseWriter, start time.Time, size int64) pace {
	extra := time.Duration(max(size-1<<20, 0)) * time.Second >> 20
	return pace{http.NewResponseController(w), start, start.Add(min(bodyTime+extra, maxBodyTime)), time.Time{}}
}

// allow gives the sender of n bytes so far its time for the next ones. Small
// steps are left out: over HTTP/2 each is a message to another goroutine. It says
// whether it set a deadline.
func (p *pace) allow(n int64) bool {
	deadline := p.start.Add(slowGrace + time.Duration(n)*time.Second/minRate)
	if deadline.After(p.end) {
		deadline = p.end
	}
	if deadline.Sub(p.armed) < 100*time.Millisecond {
		return false
	}
	p.armed = deadline
	p.control.SetReadDeadline(deadline)
	return true
}

// buffer is the memory of one body.
type buffer struct {
	bytes []byte
	lent  bool // the inbox may still look at it
}

// buffers keeps the memory of bodies for the next ones, by size. The classes hold
// a little more than round sizes, so that the read which finds the end fits too.
type buffers struct{ classes []*sizeClass }

type sizeClass struct {
	size int64
	pool sync.Pool // of *buffer
}

// maxFirst is the most memory taken for a body before any of it has arrived.
const maxFirst = 1 << 20

func newBuffers() buffers {
	var b buffers
	for _, size := range []int64{4 << 10, 16 << 10, 64 << 10, 256 << 10} {
		b.classes = append(b.classes, &sizeClass{size: size + 512})
	}
	return b
}

func (b *buffers) get(n int64) *buffer {
	for _, c := range b.classes {
		if n > c.size {
			continue
		}
		if buf, ok := c.pool.Get().(*buffer); ok {
			return buf
		}
		return &buffer{bytes: make([]byte, 0, c.size)}
	}
	return &buffer{bytes: make([]byte, 0, n)}
}

// grow moves a full buffer into one of at least twice the size, as far as limit
// allows.
func (b *buffers) grow(buf *buffer, limit int64) *buffer {
	bigger := b.get(min(2*int64(cap(buf.bytes)), max(limit, int64(cap(buf.bytes))+1)))
	bigger.bytes = append(bigger.bytes, buf.bytes...)
	b.put(buf)
	return bigger
}

func (b *buffers) put(buf *buffer) {
	if buf.lent {
		return
	}
	for _, c := range b.classes {
		if int64(cap(buf.bytes)) == c.size {
			buf.bytes = buf.bytes[:0]
			c.pool.Put(buf)
			return
		}
	}
}
