package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

const (
	tallyEvery    = 5 * time.Second
	tallyPatience = 3 * time.Second // for a flush, also the last one
	// tallyRows is the most rows of refusals, and of uses of keys, in memory. What would
	// be one more refusal is added up as other, one row a minute: the sum stays right.
	// While the database is away there are that many more of them; then, as with keys at
	// once, what would be one more is dropped and counted.
	tallyRows   = 1000
	tallyOthers = 10
	// tallyBatch is the most rows in one transaction.
	tallyBatch = 500
	// tallyCauses is how many findings of an explanation are remembered.
	tallyCauses = 4
)

// tally counts refusals and uses of keys in memory, and adds them to the database
// every few seconds: no request waits for it, none costs a round trip. What is not
// yet added is lost when the process is killed.
type tally struct {
	record      func(context.Context, *inbox.Tallies) error
	log         *slog.Logger
	dropRefusal func() // a refusal was not counted
	dropUse     func() // the same of a use of a key

	mu       sync.Mutex
	refusals map[refusalKind]*inbox.Refusal
	uses     map[useKind]*inbox.KeyUse

	// Only Run touches these.
	pending *inbox.Tallies // to be recorded again as it is
	failing bool           // what the log said last
}

// refusalKind and useKind are what makes a row of the database: names of the
// configuration and words from closed lists. The address is in the sample alone: a
// flood chooses its addresses, and would push everybody else into other.
type refusalKind struct {
	source, reason, keyID, cause string
	minute                       int64
}

// otherRefusals is the reason and the code of those that found no row.
const otherRefusals = "other"

type useKind struct {
	source, keyID, scheme string
	hour                  int64
}

func newTally(store *inbox.Store, log *slog.Logger, m *metrics) *tally {
	return &tally{record: store.Record, log: log, dropRefusal: m.refusalsDropped.Inc, dropUse: m.keyUsesDropped.Inc,
		refusals: map[refusalKind]*inbox.Refusal{}, uses: map[useKind]*inbox.KeyUse{}}
}

// request counts one request. One that is still to be explained is counted then.
func (t *tally) request(r *proxy.Result, now time.Time) {
	switch r.Outcome {
	case proxy.OutcomeRefused, proxy.OutcomeUnavailable:
		if !r.Explaining {
			t.refusal(r, "", now)
		}
	case proxy.OutcomeAccepted, proxy.OutcomeDuplicate, proxy.OutcomeConflict:
		t.use(r, now)
	}
}

// explained counts a refusal with what was found out about it.
func (t *tally) explained(e *proxy.Explained, now time.Time) {
	var codes []string
	for _, c := range e.Causes[:min(len(e.Causes), tallyCauses)] {
		codes = append(codes, c.Code)
	}
	t.refusal(&e.Result, strings.Join(codes, ","), now)
}

func (t *tally) refusal(r *proxy.Result, cause string, now time.Time) {
	keyID := r.KeyID
	if r.Reason == string(verify.ReasonKeyUnknown) {
		keyID = "" // the sender's text
	}
	k := refusalKind{r.Source, r.Reason, keyID, cause, now.Unix() / 60}
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.refusals[k]
	tenant, code := r.Tenant, r.Code
	if row == nil && len(t.refusals) >= tallyRows {
		k, tenant, code = refusalKind{reason: otherRefusals, minute: k.minute}, "", otherRefusals
		row = t.refusals[k]
	}
	if row == nil {
		if len(t.refusals) >= tallyRows+tallyOthers {
			t.dropRefusal()
			return
		}
		row = &inbox.Refusal{
			Tenant: tenant, Source: k.source, Minute: now.Truncate(time.Minute), Code: code, Reason: k.reason, KeyID: k.keyID, Cause: k.cause,
			FirstAt: now, RequestID: r.RequestID, DeliveryID: strings.Clone(r.DeliveryID), Peer: strings.Clone(r.Peer),
			BodySize: r.BodyBytes, BodyHash: r.BodyHash,
		}
		t.refusals[k] = row
	}
	row.Count++
	row.LastAt = now
}

func (t *tally) use(r *proxy.Result, now time.Time) {
	k := useKind{r.Source, r.KeyID, r.Scheme, now.Unix() / 3600}
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.uses[k]
	if row == nil {
		if len(t.uses) >= tallyRows {
			t.dropUse()
			return
		}
		row = &inbox.KeyUse{Tenant: r.Tenant, Source: r.Source, KeyID: r.KeyID, Scheme: r.Scheme, Hour: now.Truncate(time.Hour)}
		t.uses[k] = row
	}
	row.LastUsed = now
	if r.Outcome != proxy.OutcomeAccepted {
		return // a repeat is no delivery, but a use
	}
	row.Accepted++
	if r.Retiring {
		row.Retiring++
	}
}

// take moves up to a batch of rows out of the memory that is being counted in.
func (t *tally) take() *inbox.Tallies {
	t.mu.Lock()
	defer t.mu.Unlock()
	batch := &inbox.Tallies{}
	for k, row := range t.uses {
		if batch.Len() == tallyBatch {
			return batch
		}
		batch.KeyUses = append(batch.KeyUses, *row)
		delete(t.uses, k)
	}
	for k, row := range t.refusals {
		if batch.Len() == tallyBatch {
			break
		}
		batch.Refusals = append(batch.Refusals, *row)
		delete(t.refusals, k)
	}
	return batch
}

// flush records everything, batch by batch. A batch that fails stays as it is for
// the next flush: meanwhile the memory that is counted in fills up to its bound.
func (t *tally) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tallyPatience)
	defer cancel()
	for {
		if t.pending == nil {
			t.pending = t.take()
		}
		if t.pending.Len() > 0 {
			if err := t.record(ctx, t.pending); err != nil {
				return err
			}
		}
		more := t.pending.Len() == tallyBatch
		if t.pending = nil; !more {
			return nil
		}
	}
}

// Run flushes until ctx is done, and then once more.
func (t *tally) Run(ctx context.Context) error {
	tick := time.NewTicker(tallyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			err := t.flush(context.WithoutCancel(ctx))
			if err != nil { // nobody counts on
				t.log.Warn("tallies of refusals and keys are lost: they could not be written before the end", "error", err)
				return nil
			}
			t.tell(nil)
			return nil
		case <-tick.C:
			err := t.flush(ctx)
			if ctx.Err() == nil {
				t.tell(err)
			}
		}
	}
}

// tell writes to the log when it begins and when it ceases to fail.
func (t *tally) tell(err error) {
	switch {
	case err != nil && !t.failing:
		t.log.Warn("tallies of refusals and keys are not written; they are counted on in memory", "error", err)
	case err == nil && t.failing:
		t.log.Info("tallies of refusals and keys are written again")
	}
	t.failing = err != nil
}
