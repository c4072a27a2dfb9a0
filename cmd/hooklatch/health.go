package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// health knows whether this process should get requests. It looks at the
// database by itself, so that probes do not.
type health struct {
	ready  func(context.Context) (clockOffset time.Duration, err error)
	schema func(context.Context) error
	offset func(time.Duration) // told of each clock offset
	log    *slog.Logger

	// Both are asked at each request.
	stopping atomic.Bool  // a stop has begun
	full     atomic.Int64 // when the store last said that it is full, in Unix time; 0: not since the last commit

	mu      sync.Mutex
	started bool      // the listeners take requests
	reached time.Time // when the database was last found writable
	lost    error     // why it is not; nil while it is
	misfit  error     // why the schema does not fit
	clock   time.Duration
	unready bool // what the log said last
}

const (
	healthEvery    = 500 * time.Millisecond
	healthPatience = time.Second
	schemaEvery    = 10 * time.Second
	// unreachableAfter is how long the database may be away before the process
	// counts as not ready.
	unreachableAfter = 2 * time.Second
	// fullFor is how long a full disk keeps requests away. Without any requests
	// nobody would find out that there is room again.
	fullFor = time.Minute
)

// check is one line of /readyz?verbose.
type check struct {
	name string
	err  error
}

// Run looks until ctx is done.
func (h *health) Run(ctx context.Context) error {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	var schemaAt time.Time
	for {
		reached := h.look(ctx)
		if reached && time.Since(schemaAt) >= schemaEvery {
			h.lookAtSchema(ctx)
			schemaAt = time.Now()
		}
		h.announce()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (h *health) look(ctx context.Context) (reached bool) {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	clock, err := h.ready(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost = err; err != nil {
		return false
	}
	h.reached, h.clock = time.Now(), clock
	h.offset(clock)
	return true
}

func (h *health) lookAtSchema(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	err := h.schema(ctx)
	if ctx.Err() != nil {
		return // no verdict
	}
	h.mu.Lock()
	h.misfit = err
	h.mu.Unlock()
}

// announce writes to the log when readiness has changed.
func (h *health) announce() {
	ok, checks := h.state()
	h.mu.Lock()
	changed := h.started && !h.stopping.Load() && h.unready == ok
	h.unready = h.started && !ok
	h.mu.Unlock()
	if !changed {
		return
	}
	if ok {
		h.log.Warn("ready again")
		return
	}
	for _, c := range checks {
		if c.err != nil {
			h.log.Error("not ready", "check", c.name, "error", c.err)
		}
	}
}

// start says that the listeners take requests, and the database has been reached.
func (h *health) start() {
	h.mu.Lock()
	h.started, h.reached = true, time.Now()
	h.mu.Unlock()
}

// committed and filled are what the accept path has seen of the database's disk.
func (h *health) committed() {
	if h.full.Load() != 0 {
		h.full.Store(0)
	}
}

func (h *health) filled() { h.full.Store(time.Now().Unix()) }

var (
	errStarting = errors.New("starting")
	errStopping = errors.New("stopping")
	errDiskFull = errors.New("the disk of the database is full")
)

// state is what /readyz answers: never a word about destinations.
func (h *health) state() (ready bool, checks []check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var process, database, clock, disk error
	switch {
	case h.stopping.Load():
		process = errStopping
	case !h.started:
		process = errStarting
	}
	if away := time.Since(h.reached); h.started && away >= unreachableAfter {
		database = fmt.Errorf("not writable for %s", away.Truncate(time.Second))
		if h.lost != nil {
			database = fmt.Errorf("%w: %w", database, h.lost)
		}
	}
	if h.clock.Abs() > clockTolerance {
		side := "ahead of"
		if h.clock < 0 {
			side = "behind"
		}
		clock = fmt.Errorf("the database's clock is %s %s this machine's", h.clock.Abs().Round(time.Second), side)
	}
	if full := h.full.Load(); full != 0 && time.Since(time.Unix(full, 0)) < fullFor {
		disk = errDiskFull
	}
	checks = []check{{"process", process}, {"database", database}, {"schema", h.misfit}, {"clock", clock}, {"disk", disk}}
	for _, c := range checks {
		if c.err != nil {
			return false, checks
		}
	}
	return true, checks
}
