package consumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hooklatch/hooklatch/inbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeQueue lets the loop be watched under testing/synctest, where a database
// cannot take part. It says nothing about the store.
type fakeQueue struct {
	mu       sync.Mutex
	due      []inbox.Forward
	claims   []inbox.ClaimRequest
	settled  []inbox.Settlement
	renewals int

	took      time.Duration                // by each claim
	onClaim   func() error                 // nil: no error
	onSettle  func(inbox.Settlement) error // nil: no error
	onRenew   func() error                 // nil: no error
	expiresIn time.Duration                // of claimed forwards; 0: an hour
}

func (q *fakeQueue) add(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range n {
		id := int64(len(q.due) + len(q.settled) + 1)
		q.due = append(q.due, inbox.Forward{ID: id, Destination: "app", Token: 1, Attempt: 1})
	}
}

func (q *fakeQueue) Claim(ctx context.Context, r inbox.ClaimRequest) ([]inbox.Forward, error) {
	if q.took > 0 {
		wait(ctx.Done(), q.took)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims = append(q.claims, r)
	if q.onClaim != nil {
		if err := q.onClaim(); err != nil {
			return nil, err
		}
	}
	n := min(r.Limit, len(q.due))
	claimed := append([]inbox.Forward(nil), q.due[:n]...)
	q.due = q.due[n:]
	expiresIn := q.expiresIn
	if expiresIn == 0 {
		expiresIn = time.Hour
	}
	// A database whose clock is a year ahead: nothing may depend on ours.
	now := time.Now().AddDate(1, 0, 0)
	for i := range claimed {
		claimed[i].LeaseUntil = now.Add(r.Lease)
		claimed[i].ExpiresAt = now.Add(expiresIn)
	}
	return claimed, nil
}

func (q *fakeQueue) Renew(context.Context, inbox.Forward, time.Duration) (time.Time, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.renewals++
	if q.onRenew != nil {
		return time.Time{}, q.onRenew()
	}
	return time.Time{}, nil
}

func (q *fakeQueue) Settle(ctx context.Context, s inbox.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if q.onSettle != nil {
		if err := q.onSettle(s); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settled = append(q.settled, s)
	return nil
}

func (q *fakeQueue) settlements() []inbox.Settlement {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]inbox.Settlement(nil), q.settled...)
}

func (q *fakeQueue) claimed() []inbox.ClaimRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]inbox.ClaimRequest(nil), q.claims...)
}

var errDatabase = errors.New("database is away")

func accepting(context.Context, Forward) error { return nil }

// launch runs a Consumer until the returned function stops it, which returns
// what Run returned.
func launch(t *testing.T, c *Consumer) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

func newFake(t *testing.T, q Queue, h HandlerFunc, change func(*Config)) *Consumer {
	t.Helper()
	cfg := Config{Destination: "app", Worker: "w1", ConfigRevision: 7}
	if change != nil {
		change(&cfg)
	}
	c, err := New(q, h, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
