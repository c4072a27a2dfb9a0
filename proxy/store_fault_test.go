package proxy

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// faultyInbox does to the next Accept what it is told to.
type faultyInbox struct {
	Inbox
	mu    sync.Mutex
	fault func(ctx context.Context, accept func() (inbox.Receipt, error)) (inbox.Receipt, error) // nil: none
}

func (f *faultyInbox) Accept(ctx context.Context, d inbox.Delivery) (inbox.Receipt, error) {
	f.mu.Lock()
	fault := f.fault
	f.fault = nil
	f.mu.Unlock()
	accept := func() (inbox.Receipt, error) { return f.Inbox.Accept(ctx, d) }
	if fault == nil {
		return accept()
	}
	return fault(ctx, accept)
}

// X33, T31: whatever a store does and then says, no sender is told 2xx unless Accept
// has said so, and what was committed behind an error is a duplicate for its retry.
func TestX33_WhatTheStoreDoesAndWhatItSays(t *testing.T) {
	t.Parallel()
	says := func(err error) func(context.Context, func() (inbox.Receipt, error)) (inbox.Receipt, error) {
		return func(context.Context, func() (inbox.Receipt, error)) (inbox.Receipt, error) {
			return inbox.Receipt{}, err
		}
	}
	does := func(err error) func(context.Context, func() (inbox.Receipt, error)) (inbox.Receipt, error) {
		return func(_ context.Context, accept func() (inbox.Receipt, error)) (inbox.Receipt, error) {
			accept()
			return inbox.Receipt{}, err
		}
	}
	for _, c := range []struct {
		name   string
		fault  func(context.Context, func() (inbox.Receipt, error)) (inbox.Receipt, error)
		status int
		code   string
		stored bool
	}{
		{"an error", says(fmt.Errorf("accept: %w", inbox.ErrUnavailable)), 503, "store_unavailable", false},
		{"a timeout", says(context.DeadlineExceeded), 503, "store_outcome_unknown", false},
		{"an error that nobody foresaw", says(fmt.Errorf("accept: out of luck")), 500, "internal", false},
		{"done, then a timeout", does(context.DeadlineExceeded), 503, "store_outcome_unknown", true},
		{"done, then the outcome is unknown", does(fmt.Errorf("accept: %w", inbox.ErrOutcomeUnknown)), 503, "store_outcome_unknown", true},
		{"done, then an error", does(fmt.Errorf("accept: %w", inbox.ErrUnavailable)), 503, "store_unavailable", true},
		{"done, then a panic", func(_ context.Context, accept func() (inbox.Receipt, error)) (inbox.Receipt, error) {
			accept()
			panic("boom")
		}, 500, "internal", true},
		{"nothing, until the time for it is over", func(ctx context.Context, _ func() (inbox.Receipt, error)) (inbox.Receipt, error) {
			<-ctx.Done()
			return inbox.Receipt{}, ctx.Err()
		}, 503, "store_outcome_unknown", false},
		{"done, but slowly", func(_ context.Context, accept func() (inbox.Receipt, error)) (inbox.Receipt, error) {
			<-time.After(2500 * time.Millisecond)
			return accept()
		}, 202, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool := inboxtest.New(t)
			wholeAtEnd(t, pool)
			in := &faultyInbox{Inbox: newStore(t, pool)}
			g := start(t, setup{inbox: in})
			fresh, known, other := signed("dlv_new", "one"), signed("dlv_known", "one"), signed("dlv_known", "two")
			g.send(known).wants(t, 202, "")
			for _, m := range []*message{fresh, known, other} {
				in.mu.Lock()
				in.fault = c.fault
				in.mu.Unlock()
				status, code := c.status, c.code
				if m == other && status == 202 {
					status, code = 409, "delivery_conflict"
				}
				a := g.send(m)
				a.wants(t, status, code)
				if status == 503 && a.header.Get("Retry-After") == "" {
					t.Error("503 without Retry-After")
				}
			}
			a := g.send(fresh)
			a.wants(t, 202, "")
			if a.receipt(t).Duplicate != c.stored {
				t.Errorf("the retry is duplicate %v, want %v", a.receipt(t).Duplicate, c.stored)
			}
			g.send(known).wants(t, 202, "")
			g.send(other).wants(t, 409, "delivery_conflict")
			wantRows(t, pool, 2, 1)
		})
	}
}

// wholeAtEnd audits the inbox when the test is over: whatever it did, the tables agree.
func wholeAtEnd(t *testing.T, pool *pgxpool.Pool) {
	t.Cleanup(func() {
		for d, err := range newStore(t, pool).Audit(context.Background(), inbox.AuditRequest{Bodies: true}) {
			if err != nil {
				t.Error(err)
				return
			}
			t.Errorf("audit: %s", d)
		}
	})
}
