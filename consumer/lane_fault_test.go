package consumer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// ofResource is a revision of a resource, ordered at its destination.
func ofResource(ordering inbox.Ordering, resource string, revision int64) inbox.Delivery {
	body := fmt.Appendf(nil, `{"resource":%q,"revision":%d}`, resource, revision)
	return inbox.Delivery{
		Tenant: "t1", Source: "src1", DeliveryID: fmt.Sprintf("%s-%d", resource, revision), Method: "POST",
		Body: body, BodyHash: sha256.Sum256(body),
		ResourceType: "thing", ResourceID: resource, Revision: &revision,
		Forwards: []inbox.NewForward{{Destination: "app", Ordering: ordering}},
	}
}

// stoppedStore is a store whose first claim with something in it comes back as late as
// the test wants, as that of a process does which was stopped meanwhile.
type stoppedStore struct {
	*inbox.Store
	once    sync.Once
	claimed chan struct{}
	goOn    chan struct{}
	settled chan inbox.Settlement
}

func (s *stoppedStore) Claim(ctx context.Context, r inbox.ClaimRequest) ([]inbox.Forward, error) {
	got, err := s.Store.Claim(ctx, r)
	if len(got) > 0 {
		s.once.Do(func() {
			close(s.claimed)
			<-s.goOn
		})
	}
	return got, err
}

func (s *stoppedStore) Settle(ctx context.Context, st inbox.Settlement) error {
	defer func() { s.settled <- st }()
	return s.Store.Settle(ctx, st)
}

// X43, P09: a worker that was stopped between its claim and the sending, for longer than
// the lease, sends nothing: another has sent this revision, and later ones, by now.
func TestX43_WhatWasClaimedTooLongAgoIsNotSent(t *testing.T) {
	store, pool := newStore(t)
	for revision := range int64(3) {
		if _, err := store.Accept(t.Context(), ofResource(inbox.OrderStrict, "r", revision)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var sent []int64
	h := HandlerFunc(func(_ context.Context, f Forward) error {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, *f.Delivery.Revision)
		return nil
	})
	stopped := &stoppedStore{Store: store, claimed: make(chan struct{}), goOn: make(chan struct{}), settled: make(chan inbox.Settlement, 100)}
	cfg := Config{Timeout: 100 * time.Millisecond, Lease: 200 * time.Millisecond}
	_, _, stopLate := started(t, stopped, h, cfg)
	<-stopped.claimed
	_, results, stopQuick := started(t, store, h, cfg)
	for n := 0; n < 3; n++ {
		next(t, results)
	}
	close(stopped.goOn)
	<-stopped.settled // the late worker has done with what it claimed
	stopLate()
	stopQuick()
	if !slices.Equal(sent, []int64{0, 1, 2}) {
		t.Errorf("sent %v, want each revision once and in order", sent)
	}
	if n := forwards(t, pool, "state = 'accepted' AND lease_until IS NULL"); n != 3 {
		t.Errorf("%d accepted", n)
	}
}
