package consumer

import (
	"slices"
	"sync"
	"time"
)

// retries remembers when the retries that a run has settled fall due, so that
// one with a short pause does not wait for the poll. Those that a poll finds in
// time are not kept.
//
// Times count from began and are rounded up to a grain: a destination that fails
// everything costs one claim a grain and not one a retry, and the list stays
// shorter than Poll has grains.
type retries struct {
	began       time.Time
	poll, grain time.Duration
	earlier     chan struct{} // the first of due has changed

	mu  sync.Mutex
	due []time.Duration // ascending, each once
}

// grains is how many looks within Poll retries can cause at most.
const grains = 50

func newRetries(poll time.Duration) *retries {
	return &retries{began: time.Now(), poll: poll, grain: max(poll/grains, 1), earlier: make(chan struct{}, 1)}
}

// add is called once the store has settled a retry: it began to count before.
func (r *retries) add(pause time.Duration) {
	if pause >= r.poll {
		return
	}
	due := time.Since(r.began) + pause
	due += (r.grain - due%r.grain) % r.grain
	r.mu.Lock()
	defer r.mu.Unlock()
	i, known := slices.BinarySearch(r.due, due)
	if known {
		return
	}
	r.due = slices.Insert(r.due, i, due)
	if i == 0 {
		select {
		case r.earlier <- struct{}{}:
		default:
		}
	}
}

// drop forgets what the claim that follows finds.
func (r *retries) drop() {
	now := time.Since(r.began)
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(r.due) && r.due[n] <= now {
		n++
	}
	r.due = slices.Delete(r.due, 0, n)
}

// next is how long it takes until the first falls due, at most limit.
func (r *retries) next(limit time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.due) == 0 {
		return limit
	}
	return min(limit, r.due[0]-time.Since(r.began))
}
