package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// group lets callers that arrive while a transaction runs share the next one.
// There is no timer and no goroutine of its own: the caller that finds a writer
// free becomes the writer, runs one batch, and passes the role on to the first
// that still waits. An idle group thus adds no wait, and a busy one commits as
// many members at once as have queued.
type group[M any] struct {
	writers  int           // batches that may run at once
	maxRows  int           // members of one batch
	maxBytes int           // sum of their sizes; one larger member is a batch of its own
	maxWait  time.Duration // in the queue; after that the member leaves with errWaited

	// run decides every member of a batch by setting its err, also to nil. Whom it
	// leaves undecided, as a panic does, gets errUndecided.
	run func([]*member[M])

	mu    sync.Mutex
	busy  int
	queue []*member[M] // those in state waiting, oldest first
}

// member is one caller's part of a batch.
type member[M any] struct {
	work M
	size int
	err  error

	state memberState   // guarded by the group's mutex
	wake  chan struct{} // the state has changed
}

type memberState int

const (
	waiting memberState = iota // in the queue, may still leave
	leading                    // has become the writer
	taken                      // in a batch: stays to its end
	done                       // err is decided
)

var (
	errWaited    = errors.New("no writer was free in time")
	errUndecided = errors.New("the batch ended without deciding")
)

// submit runs work in a batch and returns what the batch decided. It gives up,
// with errWaited, only while the work waits in the queue.
func (g *group[M]) submit(ctx context.Context, work M, size int) error {
	m := g.join(work, size)
	timer := time.NewTimer(g.maxWait)
	defer timer.Stop()
	ended := ctx.Done()
	for {
		switch g.stateOf(m) {
		case leading:
			g.write(m)
			continue
		case done:
			return m.err
		}
		select {
		case <-m.wake:
		case <-timer.C:
			if g.leave(m) {
				return errWaited
			}
		case <-ended:
			if g.leave(m) {
				return fmt.Errorf("%w: %w", errWaited, context.Cause(ctx))
			}
			ended = nil // the batch decides now
		}
	}
}

// join makes the member the writer if one is free, else the last of the queue.
func (g *group[M]) join(work M, size int) *member[M] {
	m := &member[M]{work: work, size: size, wake: make(chan struct{}, 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy < g.writers {
		g.busy++
		m.state = leading
	} else {
		g.queue = append(g.queue, m)
	}
	return m
}

func (g *group[M]) stateOf(m *member[M]) memberState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return m.state
}

// leave takes a waiting member out of the queue; false: it is too late for that.
func (g *group[M]) leave(m *member[M]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.state != waiting {
		return false
	}
	g.queue = slices.DeleteFunc(g.queue, func(q *member[M]) bool { return q == m })
	return true
}

// write runs one batch, made of the leader and of what has queued, and hands the
// role on.
func (g *group[M]) write(leader *member[M]) {
	batch := g.take(leader)
	defer g.finish(batch) // also when run panics: nobody may wait for ever
	g.run(batch)
}

func (g *group[M]) take(leader *member[M]) []*member[M] {
	g.mu.Lock()
	defer g.mu.Unlock()
	leader.state, leader.err = taken, errUndecided
	batch := append(make([]*member[M], 0, min(1+len(g.queue), max(g.maxRows, 1))), leader)
	bytes := leader.size
	for len(g.queue) > 0 && len(batch) < g.maxRows && bytes+g.queue[0].size <= g.maxBytes {
		m := g.pop()
		m.state, m.err = taken, errUndecided
		bytes += m.size
		batch = append(batch, m)
	}
	return batch
}

// pop takes the oldest out of the queue, which then no longer keeps its body alive.
func (g *group[M]) pop() *member[M] {
	m := g.queue[0]
	g.queue[0] = nil
	g.queue = g.queue[1:]
	return m
}

func (g *group[M]) finish(batch []*member[M]) {
	g.mu.Lock()
	var next *member[M]
	if len(g.queue) > 0 {
		next = g.pop()
		next.state = leading
	} else {
		g.queue = nil
		g.busy--
	}
	for _, m := range batch {
		m.state = done
	}
	g.mu.Unlock()

	// The next writer first: its batch can run while these answer.
	if next != nil {
		next.notify()
	}
	for _, m := range batch {
		m.notify()
	}
}

func (m *member[M]) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
