//go:build nostore

package main

import (
	"context"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
)

// acceptInto throws deliveries away and says they were taken. It exists for make
// bench alone, to measure what everything but storing costs; the build tag keeps
// it out of every other program.
func acceptInto(*inbox.Store) proxy.Inbox { return nowhere{} }

type nowhere struct{}

func (nowhere) Accept(context.Context, inbox.Delivery) (inbox.Receipt, error) {
	return inbox.Receipt{ID: 1, ReceivedAt: time.Now()}, nil
}
