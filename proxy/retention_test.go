package proxy

import (
	"errors"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// D5: bodies are kept for 3 days and identities for 90. A delivery that is sent again
// by hand on day 20 is a duplicate, and other bytes are a conflict.
func TestCaseD5_IdentityOutlivesTheBody(t *testing.T) {
	c := newCase(t)
	fs := fixtures(t, "D5")
	c.send(fs[0], 202)
	store := newStore(t, c.pool)
	look := func() (d inbox.Delivery, bodyErr error) {
		for found, err := range store.Find(t.Context(), inbox.Filter{ID: "dlv_D5"}) {
			if err != nil {
				t.Fatal(err)
			}
			d = found
		}
		_, bodyErr = store.Payload(t.Context(), d.ID)
		return d, bodyErr
	}
	first, err := look()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.pool.Exec(t.Context(), `UPDATE hooklatch.outbox SET state = 'accepted'`); err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for _, on := range []time.Duration{2 * day, 4 * day, 19 * day} {
		now := time.Now().Add(on)
		for _, err := range store.Prune(t.Context(), inbox.Retention{Bodies: now.Add(-3 * day), Attempts: now.Add(-3 * day), Identities: now.Add(-90 * day)}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		d, err := look()
		if kept := on < 3*day; kept != (err == nil) || !kept && !errors.Is(err, inbox.ErrPruned) {
			t.Errorf("body after %v: %v", on, err)
		}
		if d.BodyHash != first.BodyHash || d.BodySize != len(fs[0].body(t)) || !d.ReceivedAt.Equal(first.ReceivedAt) {
			t.Errorf("after %v: %+v", on, d)
		}
	}
	again := c.rig(fs[1]).send(fs[1].message(t))
	again.wants(t, 202, "")
	if !again.receipt(t).Duplicate {
		t.Error("the repeat on day 20 is new")
	}
	c.rig(fs[2]).send(fs[2].message(t)).wants(t, 409, "delivery_conflict")
	if n := count(t, c.pool, `SELECT (SELECT count(*) FROM hooklatch.inbox) * 10 + (SELECT count(*) FROM hooklatch.conflict)`); n != 11 {
		t.Errorf("%d deliveries and %d conflicts, want 1 and 1", n/10, n%10)
	}
}
