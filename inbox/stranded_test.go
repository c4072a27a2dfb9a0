package inbox

import (
	"testing"
	"time"
)

func TestStrandedForwardsAreNamed(t *testing.T) {
	s, pool := newStore(t)
	for _, tenant := range []string{"t1", "gone", "left"} {
		accept(t, s, of(tenant, "dlv_1"))
		ordered := revised(1, OrderStrict)
		ordered.Tenant, ordered.DeliveryID = tenant, "dlv_2"
		accept(t, s, ordered)
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'accepted' WHERE tenant = 'left' AND lane IS NULL`)
	exec(t, pool, `UPDATE hooklatch.outbox SET next_attempt_at = now() - interval '1 hour' WHERE tenant = 'gone' AND lane IS NULL`)
	got, err := s.Stranded(t.Context(), "app", []string{"t1"})
	if err != nil || len(got) != 2 || got[0].Tenant != "gone" || got[0].Forwards != 2 || time.Since(got[0].Oldest) < 59*time.Minute ||
		got[1].Tenant != "left" || got[1].Forwards != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.Stranded(t.Context(), "app", nil); err != nil || len(got) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.Stranded(t.Context(), "other", nil); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
