package main

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

const (
	pruneEvery = 10 * time.Minute
	// pruneShare is the part of the time in which the pruner is at work.
	pruneShare = 0.1
)

// pruner removes what retention calls old, all the time a little. Every server has
// one: of several processes the one that meets another at it leaves it to that one.
type pruner struct {
	prune     func(context.Context, inbox.Retention) iter.Seq2[inbox.Pruned, error]
	retention func(now time.Time) inbox.Retention
	log       *slog.Logger
	pruned    func(kind string, rows int) // told of each batch
}

// Run prunes every ten minutes or so, until ctx is done. Processes that were started
// together do not begin together.
func (p *pruner) Run(ctx context.Context) {
	wait := rand.N(time.Minute)
	for sleep(ctx, wait) {
		p.once(ctx)
		wait = pruneEvery*8/10 + rand.N(pruneEvery*4/10)
	}
}

// once goes through everything, and rests nine times as long as it works.
func (p *pruner) once(ctx context.Context) {
	gone := map[string]int{}
	defer func() { p.tell(gone) }()
	r := p.retention(time.Now())
	r.Yield = true
	for batch, err := range p.prune(ctx, r) {
		if err != nil {
			if ctx.Err() == nil {
				p.log.Warn("what is old is not removed; it is tried again later", "kind", batch.Kind, "error", err)
			}
			return
		}
		gone[batch.Kind] += batch.Rows
		p.pruned(batch.Kind, batch.Rows)
		if !sleep(ctx, time.Duration(float64(batch.Took)*(1-pruneShare)/pruneShare)) {
			return
		}
	}
}

func (p *pruner) tell(gone map[string]int) {
	var args []any
	for _, kind := range inbox.PruneKinds() {
		if gone[kind] > 0 {
			args = append(args, kind, gone[kind])
		}
	}
	if len(args) > 0 {
		p.log.Info("removed what was old", args...)
	}
}

// sleep returns false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
