package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
)

const (
	breakersLook    = 3 * time.Second // between two looks at what people asked for
	breakersStale   = time.Minute     // after its probe was due, an open breaker is that of a process that has ended, or of one with nothing to do
	breakersTimeout = 5 * time.Second // of one statement
	breakersWaiting = 256             // changes that wait to be written
)

// breakers is what a process does about its breakers: it tells of their changes and
// keeps them for people to see, and passes the probes on that people ask for.
type breakers struct {
	store interface {
		RecordBreaker(ctx context.Context, destination string, c inbox.BreakerChange) error
		Destinations(ctx context.Context) ([]inbox.Destination, error)
	}
	log       *slog.Logger
	metrics   *metrics
	worker    string
	revision  int64
	consumers map[string]*consumer.Consumer

	changed chan struct{}

	mu       sync.Mutex
	unsaved  []breakerChange
	accepted map[string]time.Time // when a destination accepted something last
	asked    map[string]time.Time // the last probe that was passed on; nil before the first look
}

type breakerChange struct {
	destination string
	inbox.BreakerChange
}

func newBreakers(s *server, worker string) *breakers {
	return &breakers{store: s.look, log: s.log, metrics: s.metrics, worker: worker, revision: s.revision, consumers: s.consumers,
		changed: make(chan struct{}, 1), accepted: map[string]time.Time{}}
}

// change is told by a consumer, and does not block.
func (b *breakers) change(destination string, c consumer.BreakerChange) {
	b.metrics.breaker(destination, c.To)
	level, a := slog.LevelWarn, attributes{}
	a.text("destination", destination)
	a.text("from", string(c.From))
	a.text("to", string(c.To))
	switch c.To {
	case consumer.BreakerOpen:
		a.add(slog.Int("failures", c.Failures))
		a.add(slog.Time("probe_at", c.Until))
		a.text("error", c.Err)
	case consumer.BreakerHalfOpen:
		level = slog.LevelDebug
	default:
		level = slog.LevelInfo
	}
	b.log.LogAttrs(context.Background(), level, "breaker", a...)
	change := inbox.BreakerChange{From: inbox.BreakerState(c.From), To: inbox.BreakerState(c.To), Until: c.Until, Failures: c.Failures,
		Worker: b.worker, ConfigRevision: b.revision}
	if c.To == consumer.BreakerOpen {
		change.Error = c.Err
	}
	b.save(destination, change)
}

// save has a change written. While the database is away the latest ones wait.
func (b *breakers) save(destination string, c inbox.BreakerChange) {
	b.mu.Lock()
	b.unsaved = append(b.unsaved, breakerChange{destination, c})
	if n := len(b.unsaved) - breakersWaiting; n > 0 {
		b.unsaved = b.unsaved[n:]
	}
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// attempt notes that a destination works.
func (b *breakers) attempt(r *consumer.AttemptResult) {
	if r.Settlement.Outcome != inbox.OutcomeAccepted {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted[r.Forward.Destination] = time.Now()
}

// Run writes and looks until ctx is done.
func (b *breakers) Run(ctx context.Context) {
	tick := time.NewTicker(breakersLook)
	defer tick.Stop()
	b.look(ctx)
	for {
		select {
		case <-b.changed:
			b.write(ctx)
		case <-tick.C:
			b.write(ctx)
			b.look(ctx)
		case <-ctx.Done():
			b.write(context.WithoutCancel(ctx))
			return
		}
	}
}

// write saves the changes in their order, as far as the database takes them.
func (b *breakers) write(ctx context.Context) {
	for {
		b.mu.Lock()
		if len(b.unsaved) == 0 {
			b.mu.Unlock()
			return
		}
		c := b.unsaved[0]
		b.unsaved = b.unsaved[1:]
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, breakersTimeout)
		err := b.store.RecordBreaker(ctx, c.destination, c.BreakerChange)
		cancel()
		if err == nil {
			continue
		}
		b.log.Warn("breaker is not recorded", "destination", c.destination, "error", err)
		b.mu.Lock()
		b.unsaved = append([]breakerChange{c}, b.unsaved...)
		b.mu.Unlock()
		return
	}
}

// look passes on the probes that people have asked for since the last look.
func (b *breakers) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, breakersTimeout)
	defer cancel()
	all, err := b.store.Destinations(ctx)
	if err != nil {
		b.log.Debug("destinations are not looked at", "error", err)
		return
	}
	for _, name := range b.passOn(all) {
		b.save(name, inbox.BreakerChange{From: inbox.BreakerOpen, To: inbox.BreakerClosed, Error: "another process finds that it works",
			Worker: b.worker, ConfigRevision: b.revision})
	}
}

// passOn returns the destinations whose breaker is said to be open and is not.
func (b *breakers) passOn(all []inbox.Destination) (closed []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.asked == nil
	if first {
		b.asked = map[string]time.Time{}
	}
	for _, d := range all {
		c := b.consumers[d.Name]
		if c == nil {
			continue
		}
		if d.ProbeAskedAt.After(b.asked[d.Name]) {
			b.asked[d.Name] = d.ProbeAskedAt
			if !first { // else it was meant for others: our breaker is closed
				b.log.Info("a person wants a probe", "destination", d.Name)
				c.Probe()
			}
		}
		if b.outlived(d, c.Breaker().State) {
			closed = append(closed, d.Name)
		}
	}
	return closed
}

// outlived says whether what stands in the database is no longer so: our breaker is
// closed, and the destination has accepted something since the other one should have
// found out.
func (b *breakers) outlived(d inbox.Destination, ours consumer.BreakerState) bool {
	if d.Breaker.State == inbox.BreakerClosed || ours != consumer.BreakerClosed {
		return false
	}
	last := d.Breaker.At
	if d.Breaker.Until.After(last) {
		last = d.Breaker.Until
	}
	return time.Since(last) > breakersStale && b.accepted[d.Name].After(last)
}
