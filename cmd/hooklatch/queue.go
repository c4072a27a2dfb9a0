package main

import (
	"context"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// timedQueue is the store with a watch on its claims. They are what gets slower first
// where a transaction was left open, or where tables are not cleaned up.
type timedQueue struct {
	*inbox.Store
	took func(destination string, d time.Duration)
}

// Claim implements consumer.Queue.
func (q timedQueue) Claim(ctx context.Context, r inbox.ClaimRequest) ([]inbox.Forward, error) {
	begun := time.Now()
	defer func() { q.took(r.Destination, time.Since(begun)) }()
	return q.Store.Claim(ctx, r)
}
