package proxy

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slotWait is how long a request may wait for a slot: long enough to ride out
	// a burst, short enough that no sender gives up meanwhile.
	slotWait = 100 * time.Millisecond
	// scarceGrace takes the place of slowGrace while others wait for a slot.
	scarceGrace = 50 * time.Millisecond
)

// budget bounds what is in flight. It is taken before the body is read, so that
// memory stays bounded whatever arrives. Waiters are served in their order: a
// large body is not starved by small ones.
//
// While there is nothing free, bodies that arrive slower than minRate give way to
// those that wait: a few hundred connections that send a byte a second would
// otherwise be an outage.
type budget struct {
	mu       sync.Mutex
	requests int       // free
	bytes    int64     // free
	waiting  list.List // of *waiter
	reading  reading   // ring of the bodies being read, oldest first
}

// reading is a body on its way in, as the budget sees it.
type reading struct {
	w     http.ResponseWriter
	bytes int64     // taken for it
	start time.Time // of the reading
	got   atomic.Int64
	shed  atomic.Bool // it had to give way

	next, prev *reading // nil: not in the ring
}

type waiter struct {
	r     *reading
	ready chan struct{} // closed when the slot is the waiter's
}

// take takes a slot and r.bytes, or fails after slotWait. After it r may be shed
// until done.
func (b *budget) take(ctx context.Context, r *reading) error {
	b.mu.Lock()
	if b.waiting.Len() == 0 && b.fits(r) {
		b.admit(r)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{r: r, ready: make(chan struct{})}
	place := b.waiting.PushBack(w)
	b.shed(r)
	b.mu.Unlock()

	timer := time.NewTimer(scarceGrace)
	defer timer.Stop()
	for waited := scarceGrace; ; waited = slotWait {
		select {
		case <-w.ready:
			return nil
		case <-ctx.Done():
		case <-timer.C:
			if waited < slotWait {
				b.mu.Lock()
				b.shed(r) // those that were too young before
				b.mu.Unlock()
				timer.Reset(slotWait - scarceGrace)
				continue
			}
		}
		return b.leave(place)
	}
}

// leave takes a waiter out of the queue, unless it was served at the last moment.
func (b *budget) leave(place *list.Element) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-place.Value.(*waiter).ready:
		return nil
	default:
	}
	b.waiting.Remove(place)
	b.serve() // the next may fit where this one did not
	return errOverloaded
}

// done says that r's body is read, or never will be: it can no longer be shed.
func (b *budget) done(r *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unlink(r)
}

// give returns what take took.
func (b *budget) give(r *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unlink(r)
	b.requests++
	b.bytes += r.bytes
	b.serve()
}

// release returns bytes that were kept when their slot was given back.
func (b *budget) release(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes += bytes
	b.serve()
}

func (b *budget) fits(r *reading) bool { return b.requests > 0 && b.bytes >= r.bytes }

func (b *budget) admit(r *reading) {
	b.requests--
	b.bytes -= r.bytes
	if r.start = time.Now(); r.bytes == 0 {
		return // nothing is read
	}
	if b.reading.next == nil {
		b.reading.next, b.reading.prev = &b.reading, &b.reading
	}
	r.next, r.prev = &b.reading, b.reading.prev
	r.prev.next, r.next.prev = r, r
}

func (b *budget) unlink(r *reading) {
	if r.next != nil {
		r.prev.next, r.next.prev = r.next, r.prev
		r.next, r.prev = nil, nil
	}
}

func (b *budget) serve() {
	for e := b.waiting.Front(); e != nil; e = b.waiting.Front() {
		w := e.Value.(*waiter)
		if !b.fits(w.r) {
			return
		}
		b.admit(w.r)
		b.waiting.Remove(e)
		close(w.ready)
	}
}

// shed stops as many slow bodies, oldest first, as make room for r. Their reads
// fail, and their slots come back by give.
func (b *budget) shed(r *reading) {
	now := time.Now()
	requests, bytes := b.requests, b.bytes
	for v := b.reading.next; v != nil && v != &b.reading && (requests < 1 || bytes < r.bytes); v = v.next {
		age := now.Sub(v.start)
		if age < scarceGrace || v.got.Load() >= int64(age)*minRate/int64(time.Second) || v.shed.Load() {
			continue
		}
		v.shed.Store(true) // before the deadline: the reader looks at it after setting its own
		http.NewResponseController(v.w).SetReadDeadline(now.Add(-time.Second))
		requests++
		bytes += v.bytes
	}
}
