package consumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hooklatch/hooklatch/inbox"
)

// storeFault is what a faultyStore does to a call: the work or not, and then an error.
type storeFault struct {
	name string
	does bool
	says error
}

var storeFaults = []storeFault{
	{"an error", false, inbox.ErrUnavailable},
	{"a timeout", false, context.DeadlineExceeded},
	{"done, then a timeout", true, context.DeadlineExceeded},
	{"done, then an error", true, inbox.ErrUnavailable},
}

// faultyStore does its fault to the first calls of one method.
type faultyStore struct {
	*inbox.Store
	method string
	fault  storeFault

	mu    sync.Mutex
	left  int
	hit   chan struct{} // closed at the first fault
	hitIt sync.Once
}

// meet says whether this call is met by the fault. A call that did nothing, such as a
// claim that found nothing, meets none.
func (s *faultyStore) meet(method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if method != s.method || s.left == 0 {
		return false
	}
	s.left--
	s.hitIt.Do(func() { close(s.hit) })
	return true
}

func (s *faultyStore) Claim(ctx context.Context, r inbox.ClaimRequest) ([]inbox.Forward, error) {
	if !s.fault.does {
		if s.meet("Claim") {
			return nil, s.fault.says
		}
		return s.Store.Claim(ctx, r)
	}
	claimed, err := s.Store.Claim(ctx, r)
	if err == nil && len(claimed) > 0 && s.meet("Claim") {
		return nil, s.fault.says
	}
	return claimed, err
}

func (s *faultyStore) Renew(ctx context.Context, f inbox.Forward, lease time.Duration) (time.Time, error) {
	met := s.meet("Renew")
	if met && !s.fault.does {
		return time.Time{}, s.fault.says
	}
	until, err := s.Store.Renew(ctx, f, lease)
	if met && err == nil {
		return time.Time{}, s.fault.says
	}
	return until, err
}

func (s *faultyStore) Settle(ctx context.Context, st inbox.Settlement) error {
	return s.settle("Settle", func() error { return s.Store.Settle(ctx, st) })
}

func (s *faultyStore) SettleTx(ctx context.Context, tx pgx.Tx, st inbox.Settlement) error {
	return s.settle("SettleTx", func() error { return s.Store.SettleTx(ctx, tx, st) })
}

func (s *faultyStore) settle(method string, settle func() error) error {
	met := s.meet(method)
	if met && !s.fault.does {
		return s.fault.says
	}
	if err := settle(); err != nil || !met {
		return err
	}
	return s.fault.says
}

// Whatever a store does and then says, each forward is handed over, is settled once,
// and has exactly one business row where the two are one transaction.
func TestP04_WhatTheStoreDoesAndWhatItSays(t *testing.T) {
	for _, method := range []string{"Claim", "Renew", "Settle", "SettleTx"} {
		for _, fault := range storeFaults {
			t.Run(method+": "+fault.name, func(t *testing.T) {
				t.Parallel()
				real, pool := newStore(t)
				rows := business(t, pool)
				const n = 5
				accept(t, real, numbered(n)...)
				store := &faultyStore{Store: real, method: method, fault: fault, left: 3, hit: make(chan struct{})}
				h := func(ctx context.Context, tx pgx.Tx, f Forward) error {
					if method == "Renew" {
						select {
						case <-store.hit: // not before the lease had to be renewed
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					if method == "Settle" && f.Attempt == 1 {
						return errors.New("settled apart, for a retry")
					}
					return pay(ctx, tx, f)
				}
				results, stop := startedTx(t, store, pool, h, Config{
					Timeout: 2 * time.Second, Lease: 2100 * time.Millisecond,
					Retry: Retry{Base: time.Millisecond, Cap: time.Millisecond, MaxAttempts: -1},
				})
				for deadline := time.After(time.Minute); forwards(t, pool, "state = 'accepted' AND lease_until IS NULL") < n; {
					select {
					case <-results:
					case <-deadline:
						t.Fatalf("%d of %d accepted", forwards(t, pool, "state = 'accepted'"), n)
					}
				}
				stop()
				select {
				case <-store.hit:
				default:
					t.Fatal("void: there was no fault")
				}
				if rows() != n {
					t.Errorf("%d business rows, want %d", rows(), n)
				}
			})
		}
	}
}
