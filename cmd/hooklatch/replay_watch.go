package main

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// manyReplay replays dead letters one after the other and watches what becomes of them.
type manyReplay struct {
	*replayer
	store  *inbox.Store
	o      manyOptions
	paused map[string]bool // destinations
	total  int             // to replay, as far as the plan saw

	done    manyReplayed
	watched map[int64]int // forwards that were replayed and not tried yet: how often they had been tried before
	recent  []bool        // the last outcomes: true is a failure
	moved   time.Time     // of the last replay or outcome
	hinted  bool
}

const (
	// watchEvery is how often it is looked at what became of the replays.
	watchEvery = 200 * time.Millisecond
	// watchMost bounds those that are due and not tried yet: more would only be a heap.
	watchMost = 500
	// watchRecent is of how many outcomes the share of failures is taken.
	watchRecent = 100
	// watchHint is after which a person is told what may be amiss, and watchPatience
	// after which the run gives up.
	watchHint, watchPatience = 10 * time.Second, 10 * time.Minute
	// watchGrace is how long a run that has stopped waits for what it had replayed.
	watchGrace = 5 * time.Second
)

// Why a run has stopped before its end.
const (
	stoppedErrors      = "errors"
	stoppedInterrupted = "interrupted"
	stoppedStalled     = "stalled" // nothing was tried for a long time
)

// run replays at the rate. First the first ones: the others only once these have come
// to an end, and not too badly.
func (m *manyReplay) run(ctx context.Context) error {
	next, stop := iter.Pull2(m.store.DeadLetters(ctx, m.o.filter))
	defer stop()
	replays, looks := time.NewTicker(time.Duration(float64(time.Second)/m.o.rate.perSecond())), time.NewTicker(watchEvery)
	defer replays.Stop()
	defer looks.Stop()
	p := m.s.progress("replay", m.total)
	var failed error
	for more := true; failed == nil && m.goesOn(more); {
		turn := replays.C
		if !more || m.done.Stopped != "" || len(m.watched) >= watchMost || m.done.Replayed >= m.o.first && m.settled() < m.o.first {
			turn = nil
		}
		select {
		case <-ctx.Done():
			m.done.Stopped = stoppedInterrupted
		case <-turn:
			more, failed = m.replayNext(ctx, next)
		case <-looks.C:
			if failed = m.look(ctx); failed == nil && more && m.tooManyFail() {
				m.done.Stopped = stoppedErrors
			}
			m.hint()
		}
		p.at(m.settled(), m.done.outcomes())
	}
	p.end()
	return m.finish(ctx, failed)
}

func (m *manyReplay) goesOn(more bool) bool {
	switch m.done.Stopped {
	case "":
		return more || len(m.watched) > 0
	case stoppedErrors:
		return len(m.watched) > 0 && time.Since(m.moved) < watchGrace
	}
	return false
}

// settled is how many of the replays have come to an end.
func (m *manyReplay) settled() int { return m.done.Replayed - len(m.watched) }

// replayNext replays the next one that can be. more: there may be another one.
func (m *manyReplay) replayNext(ctx context.Context, next func() (inbox.DeadLetter, error, bool)) (more bool, err error) {
	for {
		d, err, ok := next()
		if !ok || err != nil {
			return false, err
		}
		why := m.leave(&d)
		if why == "" {
			// An interruption waits for it: what was done must be known.
			err = m.store.Replay(context.WithoutCancel(ctx), d.ID, inbox.ReplayRequest{Act: m.act, Force: m.force, WithRetries: m.withRetries, Seen: &d.Token})
			why = leftOf(err)
		}
		if why == "" && err != nil {
			return true, err
		}
		if why != "" {
			m.done.Left[why]++
			continue
		}
		m.done.Replayed++
		m.done.Waiting++
		m.watched[d.ID] = d.Attempt
		m.moved, m.hinted = time.Now(), false
		return true, nil
	}
}

// leftOf says for which reason the store has left one alone; empty: it has not, or there
// is trouble.
func leftOf(err error) string {
	for _, e := range []struct {
		is  error
		why string
	}{
		{inbox.ErrSuperseded, leftSuperseded}, {inbox.ErrPruned, leftPruned}, {inbox.ErrRemoved, leftGone}, {inbox.ErrInFlight, leftChanged},
		{inbox.ErrState, leftChanged}, {inbox.ErrNotFound, leftChanged}, {inbox.ErrBusy, leftBusy},
	} {
		if errors.Is(err, e.is) {
			return e.why
		}
	}
	return ""
}

// look takes note of what came to an end. With retries the first attempt after the
// replay decides: the others may take a day.
func (m *manyReplay) look(ctx context.Context) error {
	if len(m.watched) == 0 {
		return nil
	}
	forwards, err := m.store.ForwardsByID(ctx, slices.Collect(maps.Keys(m.watched)))
	if err != nil {
		return err
	}
	for _, f := range forwards {
		tried := f.Attempt > m.watched[f.ID] && f.LeaseUntil.IsZero()
		switch {
		case f.State == inbox.Accepted:
			m.done.Accepted++
			m.recent = append(m.recent, false)
		case f.State == inbox.Blocked, tried && (f.State == inbox.RetryWait || f.State == inbox.Pending):
			m.done.Failed++
			m.recent = append(m.recent, true)
		case f.State == inbox.Superseded, f.State == inbox.Cancelled:
			m.done.Ended++
		default:
			continue
		}
		m.done.Waiting--
		m.moved = time.Now()
		delete(m.watched, f.ID)
	}
	m.recent = m.recent[max(0, len(m.recent)-watchRecent):]
	return nil
}

// tooManyFail judges the last outcomes, of at least the first ones.
func (m *manyReplay) tooManyFail() bool {
	failures := 0
	for _, failure := range m.recent {
		if failure {
			failures++
		}
	}
	of := max(len(m.recent), min(m.o.first, m.total, watchRecent))
	return failures > 0 && failures*100 >= m.o.stopAt*of
}

// hint says what may be amiss where nothing is tried, and in the end gives up.
func (m *manyReplay) hint() {
	switch waited := time.Since(m.moved); {
	case len(m.watched) == 0:
	case waited > watchPatience && m.done.Stopped == "":
		m.done.Stopped = stoppedStalled
	case waited > watchHint && !m.hinted:
		m.hinted = true
		m.s.note("%s not tried yet: does a server run that forwards, and is the destination well? See %s destinations list",
			counted(len(m.watched), "replay"), programName())
	}
}

// finish looks once more, whatever the end was, and reports.
func (m *manyReplay) finish(ctx context.Context, failed error) error {
	if ctx.Err() != nil {
		m.done.Stopped, failed = stoppedInterrupted, nil
	}
	if m.done.Stopped == stoppedInterrupted {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = m.look(last) // what it misses is said to wait
	}
	if m.done.Stopped != "" || failed != nil {
		m.done.Next = m.goOn()
	}
	switch m.done.Stopped {
	case stoppedErrors:
		m.s.note("stopped: too many failures, of the last %d", len(m.recent))
	case stoppedStalled:
		m.s.note("stopped: nothing was tried for %s", duration(watchPatience))
	}
	verdict := m.done.end(m.s, m.json)
	if failed != nil {
		return failed
	}
	return verdict
}
