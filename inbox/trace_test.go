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
