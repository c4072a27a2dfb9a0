package nats

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
)

// lanes is a queue that hands out one forward of each lane at a time, as the store
// does. It says nothing about the store.
type lanes struct {
	mu      sync.Mutex
	waiting map[string][]inbox.Forward // by resource
	busy    map[int64]string
	retried int
	open    int
	kept    int           // not handed out before release
	done    chan struct{} // closed when all are accepted
}

func newLanes(resources, revisions int) *lanes {
	q := &lanes{waiting: map[string][]inbox.Forward{}, busy: map[int64]string{}, open: resources * revisions, kept: resources * revisions / 4, done: make(chan struct{})}
	for r := range int64(revisions) {
		for n := range resources {
			f := forward(fmt.Sprintf("%d-%d", n, r)).Forward
			f.ID, f.Attempt, f.Ordering = r*int64(resources)+int64(n)+1, 0, inbox.OrderStrict
			f.Delivery.ResourceType, f.Delivery.ResourceID, f.Delivery.Revision = "order", fmt.Sprint(n), &r
			q.waiting[f.Delivery.ResourceID] = append(q.waiting[f.Delivery.ResourceID], f)
		}
	}
	return q
}

func (q *lanes) Claim(_ context.Context, r inbox.ClaimRequest) ([]inbox.Forward, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var taken []inbox.Forward
	for lane, forwards := range q.waiting {
		if len(taken) == r.Limit || len(q.busy) >= q.open-q.kept {
			break
		}
		if len(forwards) == 0 || q.busyLane(lane) {
			continue
		}
		forwards[0].Attempt++
		taken = append(taken, forwards[0])
		q.busy[forwards[0].ID] = lane
	}
	return taken, nil
}

func (q *lanes) busyLane(lane string) bool {
	for _, busy := range q.busy {
		if busy == lane {
			return true
		}
	}
	return false
}

func (q *lanes) Renew(context.Context, inbox.Forward, time.Duration) (time.Time, error) {
	return time.Time{}, nil
}

func (q *lanes) Settle(_ context.Context, s inbox.Settlement) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	lane := q.busy[s.ForwardID]
	delete(q.busy, s.ForwardID)
	switch s.Outcome {
	case inbox.OutcomeAccepted:
		q.waiting[lane] = q.waiting[lane][1:]
		if q.open--; q.open == 0 {
			close(q.done)
		}
	case inbox.OutcomeRetry:
		q.retried++
	}
	return nil
}

func (q *lanes) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kept = 0
}

func (q *lanes) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open
}

// One of three servers is killed, each time the one that leads the stream or the one
// that we are connected to: every message stands in the stream, none of them twice, and
// those of one resource in their order.
func TestOneOfThreeServersIsKilled(t *testing.T) {
	for _, which := range []string{"the leader of the stream", "the one that we are connected to"} {
		t.Run(which, func(t *testing.T) {
			const timeout, resources, revisions = 6 * time.Second, 20, 50
			servers := cluster(t)
			hooks := stream(t, servers[0], jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>"}, Replicas: 3})
			info, err := hooks.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leader := slices.IndexFunc(servers, func(s *server.Server) bool { return s.Name() == info.Cluster.Leader })
			victim, first := leader, (leader+1)%3
			if which == "the one that we are connected to" {
				victim = first
			}
			h := newHandler(t, Config{Servers: []string{address(servers[first])}, Subject: "hooks", Timeout: timeout})
			if _, err := h.Look(t.Context()); err != nil {
				t.Fatal(err)
			}

			q := newLanes(resources, revisions)
			c, err := consumer.New(q, h, consumer.Config{Destination: "log", Poll: 20 * time.Millisecond, Timeout: timeout,
				Retry:   consumer.Retry{Base: 20 * time.Millisecond, Cap: 200 * time.Millisecond, MaxAttempts: -1},
				Breaker: consumer.Breaker{Failures: 1 << 20}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			eventually(t, "a part of them", func() bool { return q.left() < resources*revisions*3/4 })
			stop(servers[victim])
			q.release()
			select {
			case <-q.done:
			case <-time.After(20 * time.Second):
				t.Fatalf("%d messages are left", q.left())
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if hooks, err = operator(t, servers[(victim+1)%3]).Stream(t.Context(), "HOOKS"); err != nil {
				t.Fatal(err)
			}
			last := map[string]int64{}
			all := messages(t, hooks)
			for _, m := range all {
				var resource string
				var revision int64
				id := m.Header.Get("Hooklatch-Delivery-Id")
				if _, err := fmt.Sscanf(strings.Replace(id, "-", " ", 1), "%s %d", &resource, &revision); err != nil {
					t.Fatal(err)
				}
				if before, ok := last[resource]; ok && revision != before+1 || !ok && revision != 0 {
					t.Errorf("resource %s: revision %d after %d", resource, revision, before)
				}
				last[resource] = revision
			}
			if len(all) != resources*revisions {
				t.Errorf("%d messages in the stream, want %d", len(all), resources*revisions)
			}
			t.Logf("%d attempts failed", q.retried)
		})
	}
}
