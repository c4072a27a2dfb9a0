package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// steps are the moments at which the program is killed, in their order.
var steps = []struct {
	name string
	// failpoint at which the program kills itself, or
	failpoint string
	// the COMMIT that is held while it is killed; sent: the database has got it.
	commitOf string
	sent     bool

	stored, booked bool // what is committed by then
}{
	{name: "request read", failpoint: "before_accept"},
	{name: "delivery inserted", failpoint: "after_insert"},
	{name: "before the delivery's COMMIT", failpoint: "before_commit"},
	{name: "the delivery's COMMIT never arrived", commitOf: "INTO hooklatch.inbox"},
	{name: "the delivery's COMMIT unanswered", commitOf: "INTO hooklatch.inbox", sent: true, stored: true},
	{name: "committed, before the answer", failpoint: "after_commit", stored: true},
	{name: "claimed", failpoint: "after_claim", stored: true},
	{name: "before the business row", failpoint: "before_handler", stored: true},
	{name: "after the business row", failpoint: "after_handler", stored: true},
	{name: "before the business COMMIT", failpoint: "before_handler_commit", stored: true},
	{name: "the business COMMIT never arrived", commitOf: "INTO payment", stored: true},
	{name: "the business COMMIT unanswered", commitOf: "INTO payment", sent: true, stored: true, booked: true},
	{name: "after the business COMMIT", failpoint: "after_handler_commit", stored: true, booked: true},
}

// Killed at every step and started again, with a sender that tries until it has its
// 202: each delivery is exactly one business row.
func TestKilledAtEveryStepBooksEachDeliveryOnce(t *testing.T) {
	exe := build(t, ".", "-tags", "failpoint")
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			deliveries := []string{"dlv_1", "dlv_2", "dlv_3"}
			var wait func()
			if step.failpoint != "" {
				p := s.start(exe, s.url, "HOOKLATCH_FAILPOINT="+step.failpoint)
				wait = s.send(deliveries)
				if p.signal() != syscall.SIGKILL {
					t.Fatalf("void: ended with %v", p.cmd.ProcessState)
				}
			} else {
				fault := inboxtest.NewFaultProxy(t, s.url)
				p := s.start(exe, fault.URL())
				fault.AtCommitOf(step.commitOf, inboxtest.HoldCommit, 2*len(deliveries)) // all there are
				wait = s.send(deliveries)
				fault.Await(func(c inboxtest.Counts) bool { return c.Held > 0 })
				if step.sent {
					fault.Set(inboxtest.CutDown) // COMMIT goes on, its answer does not come back
					before := s.committed()
					fault.Release()
					if !eventually(func() bool { return s.committed() != before }) {
						t.Fatal("void: nothing was committed")
					}
				}
				p.kill()
				fault.Set(inboxtest.Reset) // as the kernel does with a dead process's connections
			}
			if stored, booked := s.number(`SELECT count(*) FROM hooklatch.inbox`) > 0, s.number(`SELECT count(*) FROM payment`) > 0; stored != step.stored || booked != step.booked {
				t.Fatalf("void: killed elsewhere: stored %v, booked %v", stored, booked)
			}
			s.expireLeases()
			s.start(exe, s.url)
			wait()
			for _, wrong := range s.wrong(deliveries) {
				t.Error(wrong)
			}
		})
	}
}

// The test above can fail: these are the example with one guarantee taken out.
func TestBrokenExamplesAreFoundOut(t *testing.T) {
	for _, c := range []struct {
		name, failpoint string
		replace         []string // in main.go: old, new, old, new …
	}{
		{"settled outside the transaction", "after_handler", []string{
			`consumer.NewTx(store, consumer.TxHandlerFunc(book), consumer.TxConfig{DB: booking, Config: consumer.Config{`,
			`consumer.New(store, consumer.HandlerFunc(func(ctx context.Context, f consumer.Forward) error {
				return pgx.BeginFunc(ctx, booking, func(tx pgx.Tx) error { return book(ctx, tx, f) })
			}), consumer.Config{`,
			"\n\t}})\n", "\n\t})\n",
		}},
		{"answered before the commit", "before_accept", []string{
			`_, err = rc.store.Accept(`, "w.WriteHeader(http.StatusAccepted)\n\tw.(http.Flusher).Flush()\n\t_, err = rc.store.Accept(",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			exe := build(t, ".", "-tags", "failpoint", "-overlay", overlay(t, "main.go", c.replace))
			s := newSite(t)
			deliveries := []string{"dlv_1", "dlv_2", "dlv_3"}
			p := s.start(exe, s.url, "HOOKLATCH_FAILPOINT="+c.failpoint)
			wait := s.send(deliveries)
			if p.signal() != syscall.SIGKILL {
				t.Fatalf("void: ended with %v", p.cmd.ProcessState)
			}
			s.expireLeases()
			s.start(exe, s.url)
			wait()
			if wrong := s.wrong(deliveries); len(wrong) == 0 {
				t.Error("each delivery was booked once")
			} else {
				t.Log(wrong)
			}
		})
	}
}

// overlay makes a copy of a file with other text in it, for go build.
func overlay(t *testing.T, file string, replace []string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	broken := string(text)
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(broken, replace[i]) != 1 {
			t.Fatalf("void: %s does not hold %q once", file, replace[i])
		}
		broken = strings.Replace(broken, replace[i], replace[i+1], 1)
	}
	dir := t.TempDir()
	original, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: filepath.Join(dir, file)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{file: []byte(broken), "overlay.json": list} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "overlay.json")
}

// send begins to deliver, all at once. wait ends when all are taken.
func (s *site) send(deliveries []string) (wait func()) {
	var senders sync.WaitGroup
	for i, id := range deliveries {
		senders.Go(func() { s.deliver(id, fmt.Sprintf(`{"invoice":"inv_%d","amount_cents":%d}`, i, 100*i)) })
	}
	s.t.Cleanup(senders.Wait)
	return senders.Wait
}

func (s *site) committed() int {
	return s.number(`SELECT (SELECT count(*) FROM hooklatch.inbox) + (SELECT count(*) FROM payment)`)
}

// expireLeases stands for the time after which the leases of the dead are over.
func (s *site) expireLeases() {
	s.t.Helper()
	if _, err := s.pool.Exec(context.Background(), `UPDATE hooklatch.outbox SET lease_until = now() WHERE lease_until IS NOT NULL`); err != nil {
		s.t.Fatal(err)
	}
}

// wrong waits until all that is stored is settled, and names each delivery that has
// not exactly one business row.
func (s *site) wrong(deliveries []string) (list []string) {
	s.t.Helper()
	if !eventually(func() bool {
		return s.number(`SELECT count(*) FROM hooklatch.outbox WHERE state <> 'accepted' OR lease_until IS NOT NULL`) == 0
	}) {
		list = append(list, "not all that is stored is settled")
	}
	for _, id := range deliveries {
		if n := s.number(`SELECT count(*) FROM payment WHERE delivery_id = '` + id + `'`); n != 1 {
			list = append(list, fmt.Sprintf("%s has %d business rows", id, n))
		}
	}
	store, err := inbox.New(s.pool, inbox.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	for d, err := range store.Audit(s.t.Context(), inbox.AuditRequest{Bodies: true}) {
		if err != nil {
			s.t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("audit: %s", d))
	}
	return list
}
