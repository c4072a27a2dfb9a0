package inbox

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestPausesSayWhoAndWhy(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	if err := s.SaveDestinations(t.Context(), 0, []Destination{{Name: "app", URL: "http://app"}, {Name: "log", URL: "http://log"}}); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE hooklatch.destination SET paused_at = now(), paused_by = 'ann', pause_reason = 'deploy' WHERE name = 'app'`)
	pauses, err := s.Pauses(t.Context())
	if err != nil || len(pauses) != 1 || pauses[0].Destination != "app" || pauses[0].By != "ann" || pauses[0].Reason != "deploy" || pauses[0].At.IsZero() {
		t.Errorf("%+v, %v", pauses, err)
	}
}

func TestOldestIsTheFirstThatIsThere(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	if at, err := s.Oldest(t.Context()); err != nil || !at.IsZero() {
		t.Errorf("of nothing: %s, %v", at, err)
	}
	first := accept(t, s, delivery("a", "x"))
	accept(t, s, delivery("b", "x"))
	exec(t, pool, `UPDATE hooklatch.inbox SET received_at = received_at + interval '1 hour' WHERE delivery_id = 'b'`)
	if at, err := s.Oldest(t.Context()); err != nil || !at.Equal(first.ReceivedAt) {
		t.Errorf("%s, %v; want %s", at, err, first.ReceivedAt)
	}
}

// Both deliveries of a conflict of revisions know it.
func TestRevisionConflictsFromBothSides(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	wholeAtEnd(t, pool)
	arrive(t, s, OrderLatest, 1)
	other := ofResource(OrderLatest, "r", 1)
	other.DeliveryID, other.Body, other.BodyHash = "other", []byte("another body"), [32]byte{}
	accept(t, s, other)
	for range 3 {
		claimed, _ := claimAll(t, s, time.Time{})
		for _, f := range claimed {
			if err := s.Settle(t.Context(), settlement(f, OutcomeAccepted, "2xx")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range []string{"r-1", "other"} {
		var got []string
		conflicts, err := s.RevisionConflicts(t.Context(), int64(count(t, pool, `SELECT id FROM hooklatch.inbox WHERE delivery_id = $1`, id)))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range conflicts {
			got = append(got, fmt.Sprintf("%s/%s %d %s after %s %v", c.ResourceType, c.ResourceID, c.Revision, c.DeliveryID, c.FirstDeliveryID, c.NoticedAt.IsZero()))
		}
		if want := []string{"invoice/r 1 other after r-1 false"}; !slices.Equal(got, want) {
			t.Errorf("of %s: %q, want %q", id, got, want)
		}
	}
}

// What a trace reads, it reads through indexes, however long the history is.
func TestTraceReadsLittle(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	fill(t, pool, 1, 20_000)
	exec(t, pool, `
		INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class) SELECT id, 1, tenant, now(), '2xx' FROM hooklatch.outbox;
		INSERT INTO hooklatch.audit (tenant, actor, action, reason, inbox_id) SELECT tenant, 'ann', 'replay', 'test', id FROM hooklatch.inbox;
		INSERT INTO hooklatch.revision_conflict (inbox_id, tenant, first_id, revision, noticed_at) SELECT id, tenant, id - 1, 1, now() FROM hooklatch.inbox;
		INSERT INTO hooklatch.conflict (tenant, source, delivery_id, body_hash, headers, body) SELECT tenant, source, delivery_id, sha256('y'), '', '' FROM hooklatch.inbox;
		INSERT INTO hooklatch.refusal (tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at, body_size, delivery_id)
		SELECT 't1', 'src1', now() - id * interval '1 minute', 'c', 'r', '', '', 1, now(), now(), 1, delivery_id FROM hooklatch.inbox`)
	exec(t, pool, `VACUUM ANALYZE`)
	var d Delivery
	for found, err := range s.Find(t.Context(), Filter{ID: "old_9000"}) {
		if err != nil {
			t.Fatal(err)
		}
		d = found
	}
	rowsRead(t, s, pool) // so that nothing of the above is counted below
	exec(t, pool, `SELECT pg_stat_reset()`)
	forwards, err := s.Forwards(t.Context(), d.ID)
	if err != nil || len(forwards) != 1 {
		t.Fatal(err)
	}
	read := 0
	for _, err := range s.Attempts(t.Context(), AttemptFilter{ForwardID: forwards[0].ID}) {
		if err != nil {
			t.Fatal(err)
		}
		read++
	}
	for _, err := range s.Acts(t.Context(), ActFilter{Delivery: d.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		read++
	}
	for _, err := range s.Refusals(t.Context(), RefusalFilter{ID: d.DeliveryID}) {
		if err != nil {
			t.Fatal(err)
		}
		read++
	}
	revisions, err := s.RevisionConflicts(t.Context(), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	conflicts, err := s.Conflicts(t.Context(), d.Tenant, d.Source, d.DeliveryID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Oldest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if read != 3 || len(revisions) != 2 || len(conflicts) != 1 {
		t.Errorf("void: read %d rows, %d conflicts of revisions and %d of ids", read, len(revisions), len(conflicts))
	}
	if n := rowsRead(t, s, pool); n > 100 {
		t.Errorf("%d rows were read", n)
	}
}
