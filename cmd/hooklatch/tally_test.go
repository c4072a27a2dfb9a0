package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// database stands in for the store: it counts, and it can be away.
type database struct {
	mu        sync.Mutex // where Run is at work
	away      error
	batches   []int
	refusals  map[string]int64 // reason, key, cause
	uses      map[string][2]int64
	attempted *inbox.Tallies // the last that was tried
}

func (d *database) record(_ context.Context, t *inbox.Tallies) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attempted = t; d.away != nil {
		return d.away
	}
	d.batches = append(d.batches, t.Len())
	for _, r := range t.Refusals {
		d.refusals[fmt.Sprintf("%s %s %s", r.Reason, r.KeyID, r.Cause)] += r.Count
	}
	for _, u := range t.KeyUses {
		sum := d.uses[u.KeyID]
		d.uses[u.KeyID] = [2]int64{sum[0] + u.Accepted, sum[1] + u.Retiring}
	}
	return nil
}

func newTestTally(d *database) (t *tally, dropped *atomic.Int64, log *bytes.Buffer) {
	d.refusals, d.uses = map[string]int64{}, map[string][2]int64{}
	dropped, log = &atomic.Int64{}, &bytes.Buffer{}
	drop := func() { dropped.Add(1) }
	return &tally{record: d.record, log: newLogger(log, "info", "json"),
		dropRefusal: drop, dropUse: drop, refusals: map[refusalKind]*inbox.Refusal{}, uses: map[useKind]*inbox.KeyUse{}}, dropped, log
}

func refusedBy(reason verify.Reason, keyID string) *proxy.Result {
	return &proxy.Result{Source: "billing", Tenant: "acme", Outcome: proxy.OutcomeRefused, Reason: string(reason), Code: reason.Code(), KeyID: keyID, DeliveryID: "dlv_1"}
}

func TestEveryRefusalIsCountedOnce(t *testing.T) {
	d := &database{}
	y, dropped, _ := newTestTally(d)
	now := time.Now()
	mismatch, unknown := refusedBy(verify.ReasonSignatureMismatch, "k1"), refusedBy(verify.ReasonKeyUnknown, "text of a sender")
	for range 3 {
		y.request(mismatch, now)
		y.request(unknown, now)
	}
	looked := *mismatch
	looked.Explaining = true
	y.request(&looked, now) // counted below
	y.explained(&proxy.Explained{Result: looked, Causes: []verify.Cause{{Code: "key_other"}, {Code: "body_crlf"}}}, now)
	y.explained(&proxy.Explained{Result: looked, Dropped: true}, now)
	y.explained(&proxy.Explained{Result: looked, Causes: make([]verify.Cause, 60)}, now)
	for _, o := range []proxy.Outcome{proxy.OutcomeAccepted, proxy.OutcomeDuplicate, proxy.OutcomeConflict, proxy.OutcomeAccepted} {
		y.request(&proxy.Result{Source: "billing", Outcome: o, KeyID: "k1", Retiring: o == proxy.OutcomeDuplicate}, now)
	}
	y.request(&proxy.Result{Source: "billing", Outcome: proxy.OutcomeAccepted, KeyID: "k0", Retiring: true}, now)
	y.request(&proxy.Result{Source: "billing", Outcome: proxy.OutcomeConflict, KeyID: "k2"}, now)
	if err := y.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]int64{"signature_mismatch k1 ": 4, "key_unknown  ": 3, "signature_mismatch k1 key_other,body_crlf": 1, "signature_mismatch k1 ,,,": 1} {
		if d.refusals[kind] != want {
			t.Errorf("%q: %d, want %d", kind, d.refusals[kind], want)
		}
	}
	for key, want := range map[string][2]int64{"k1": {2, 0}, "k0": {1, 1}, "k2": {0, 0}} {
		if got, there := d.uses[key]; got != want || !there {
			t.Errorf("%s: accepted and retiring %v, want %v", key, got, want)
		}
	}
	if len(d.refusals) != 4 || len(d.uses) != 3 || dropped.Load() != 0 {
		t.Errorf("%v, %v, %d dropped", d.refusals, d.uses, dropped.Load())
	}
}

func TestEachKindIsARowOfItsOwn(t *testing.T) {
	y, dropped, _ := newTestTally(&database{})
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	refused := refusedBy(verify.ReasonSignatureMismatch, "k1")
	refused.RequestID, refused.Peer, refused.BodyBytes, refused.BodyHash = uuid.New(), "192.0.2.1", 412, [32]byte{1}
	use := &proxy.Result{Source: "billing", Tenant: "acme", Scheme: "github", KeyID: "k1", Outcome: proxy.OutcomeAccepted}
	repeat := *use
	repeat.Outcome = proxy.OutcomeDuplicate
	for _, after := range []time.Duration{0, 59 * time.Second, time.Minute} {
		y.request(refused, noon.Add(after))
	}
	y.request(use, noon)
	y.request(use, noon.Add(time.Hour))
	y.request(&repeat, noon.Add(59*time.Minute))
	away, full, other := *refused, *use, *use
	away.Source, full.Source, other.Scheme = "shop", "shop", "stripe"
	for _, r := range []*proxy.Result{&away, &full, &other} {
		y.request(r, noon)
	}
	ours := *refused
	ours.Outcome, ours.Reason = proxy.OutcomeUnavailable, "store_unavailable"
	y.request(&ours, noon)
	batch := y.take()
	if len(batch.Refusals) != 4 || len(batch.KeyUses) != 4 {
		t.Fatalf("%d rows of refusals and %d of keys, want 4 and 4", len(batch.Refusals), len(batch.KeyUses))
	}
	row := inbox.Refusal{
		Tenant: "acme", Source: "billing", Minute: noon, Code: "signature_invalid", Reason: "signature_mismatch", KeyID: "k1", Count: 2,
		FirstAt: noon, LastAt: noon.Add(59 * time.Second), RequestID: refused.RequestID, DeliveryID: "dlv_1", Peer: "192.0.2.1", BodySize: 412, BodyHash: [32]byte{1},
	}
	if !slices.Contains(batch.Refusals, row) {
		t.Errorf("no %+v in\n%+v", row, batch.Refusals)
	}
	used := inbox.KeyUse{Tenant: "acme", Source: "billing", KeyID: "k1", Scheme: "github", Hour: noon, Accepted: 1, LastUsed: noon.Add(59 * time.Minute)}
	if !slices.Contains(batch.KeyUses, used) {
		t.Errorf("no %+v in\n%+v", used, batch.KeyUses)
	}
	// Both kinds have their bound, and their place in one batch.
	for i := range tallyRows + 3 {
		use.KeyID, refused.KeyID = fmt.Sprint("k", i), fmt.Sprint("k", i)
		y.request(use, noon)
		y.request(refused, noon)
	}
	if other := y.refusals[refusalKind{reason: otherRefusals, minute: noon.Unix() / 60}]; other == nil || other.Count != 3 || other.Source != "" || other.Tenant != "" {
		t.Errorf("those that found no row: %+v, want 3 of them", other)
	}
	if batch = y.take(); dropped.Load() != 3 || len(y.uses)+len(y.refusals)+batch.Len() != 2*tallyRows+1 || batch.Len() != tallyBatch {
		t.Errorf("%d dropped, %d and %d left, %d in the batch", dropped.Load(), len(y.uses), len(y.refusals), batch.Len())
	}
}

func TestTalliesDoNotGrowWhileTheDatabaseIsAway(t *testing.T) {
	d := &database{}
	y, dropped, _ := newTestTally(d)
	now := time.Now()
	count := func(n int) {
		for i := range n {
			y.request(refusedBy(verify.Reason(fmt.Sprint("reason_", i)), "k1"), now)
		}
	}
	d.away = errors.New("away")
	count(tallyRows)
	if err := y.flush(t.Context()); err == nil {
		t.Fatal("void: it was recorded")
	}
	first := d.attempted
	if first.Len() != tallyBatch {
		t.Errorf("%d rows in a batch, want %d", first.Len(), tallyBatch)
	}
	for range 2 * tallyOthers {
		now = now.Add(time.Minute)
		count(tallyRows * 2)
		if err := y.flush(t.Context()); err == nil || d.attempted != first || first.Len() != tallyBatch {
			t.Fatal("the batch that failed is not the one that is tried again")
		}
	}
	if n := len(y.refusals); n != tallyRows+tallyOthers || dropped.Load() == 0 {
		t.Errorf("%d rows in memory, %d dropped", n, dropped.Load())
	}
	d.away = nil
	if err := y.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, n := range d.refusals {
		sum += n
	}
	if want := int64(tallyRows + 2*tallyOthers*tallyRows*2); sum+dropped.Load() != want || len(y.refusals) != 0 {
		t.Errorf("%d written and %d dropped of %d, %d left", sum, dropped.Load(), want, len(y.refusals))
	}
	for _, n := range d.batches {
		if n > tallyBatch {
			t.Errorf("a batch of %d rows", n)
		}
	}
}

func TestTalliesAreWrittenEveryFewSecondsAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		y, _, log := newTestTally(d)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- y.Run(ctx) }()
		y.request(refusedBy("a", ""), time.Now())
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		pass(tallyEvery + time.Millisecond)
		if d.refusals["a  "] != 1 {
			t.Errorf("after %s: %v", tallyEvery, d.refusals)
		}
		// Away for a while: said once, and once more when it is over.
		set := func(away error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.away = away
		}
		set(errors.New("away"))
		y.request(refusedBy("b", ""), time.Now())
		pass(4 * tallyEvery)
		set(nil)
		pass(tallyEvery)
		if n := strings.Count(log.String(), "\n"); n != 2 || d.refusals["b  "] != 1 {
			t.Errorf("%d lines in the log, %v:\n%s", n, d.refusals, log)
		}
		y.request(refusedBy("c", ""), time.Now())
		stop()
		if err := <-ended; err != nil || d.refusals["c  "] != 1 {
			t.Errorf("at the end: %v, %v", err, d.refusals)
		}
	})
}

// The log must not promise at the end that somebody counts on.
func TestTalliesThatAreLostAtTheEndAreTold(t *testing.T) {
	d := &database{away: errors.New("away")}
	y, _, log := newTestTally(d)
	y.request(refusedBy("a", ""), time.Now())
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := y.Run(ctx); err != nil || !strings.Contains(log.String(), "are lost") || strings.Contains(log.String(), "counted on") {
		t.Errorf("%v, log:\n%s", err, log)
	}
}

// A database that hangs must not hold up the stop.
func TestTalliesHaveLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, _, _ := newTestTally(&database{})
		y.record = func(ctx context.Context, _ *inbox.Tallies) error {
			<-ctx.Done()
			return ctx.Err()
		}
		y.request(refusedBy("a", ""), time.Now())
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		begun := time.Now()
		if err := y.Run(ctx); err != nil || time.Since(begun) != time.Second+tallyPatience {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}
