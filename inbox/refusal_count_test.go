package inbox

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// kindsOf are the kinds as "source reason key cause count sample".
func kindsOf(t *testing.T, s *Store, f RefusalFilter) (lines []string, from time.Time) {
	t.Helper()
	kinds, from, err := s.CountRefusals(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		lines = append(lines, fmt.Sprintf("%s %s %s %s %d %s", k.Source, k.Reason, k.KeyID, k.Cause, k.Count, k.DeliveryID))
	}
	return lines, from
}

func TestRefusalsAreAddedUpByKind(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	now := time.Now().UTC().Truncate(time.Minute)
	row := func(tenant, source, reason, key, id string, age time.Duration, count int64) Refusal {
		at := now.Add(-age)
		return Refusal{Tenant: tenant, Source: source, Minute: at, Code: "signature_invalid", Reason: reason, KeyID: key, DeliveryID: id,
			Count: count, FirstAt: at, LastAt: at.Add(time.Second)}
	}
	rows := []Refusal{
		row("t1", "a", "signature_mismatch", "k1", "too-old", 3*time.Hour, 100),
		row("t1", "a", "signature_mismatch", "k1", "old", time.Hour, 5),
		row("t1", "b", "key_expired", "", "b", 2*time.Minute, 9),
		row("t1", "a", "signature_mismatch", "k1", "new", time.Minute, 2),
		row("t1", "a", "signature_mismatch", "k2", "other-key", time.Minute, 1),
		row("t2", "a", "signature_mismatch", "k1", "other-tenant", time.Minute, 3),
	}
	for _, r := range rows {
		if err := s.Record(t.Context(), &Tallies{Refusals: []Refusal{r}}); err != nil {
			t.Fatal(err)
		}
	}
	since := now.Add(-2 * time.Hour)
	for _, c := range []struct {
		name string
		f    RefusalFilter
		want []string
	}{
		{"all", RefusalFilter{Since: since}, []string{"b key_expired   9 b", "a signature_mismatch k1  7 new", "a signature_mismatch k1  3 other-tenant",
			"a signature_mismatch k2  1 other-key"}},
		{"source", RefusalFilter{Since: since, Source: "b"}, []string{"b key_expired   9 b"}},
		{"tenant", RefusalFilter{Since: since, Tenant: "t2"}, []string{"a signature_mismatch k1  3 other-tenant"}},
		{"code that nothing has", RefusalFilter{Since: since, Code: "body_too_large"}, nil},
		{"nothing so new", RefusalFilter{Since: now.Add(time.Minute)}, nil},
	} {
		got, from := kindsOf(t, s, c.f)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if !from.Equal(c.f.Since) {
			t.Errorf("%s: counted from %s, not from %s", c.name, from, c.f.Since)
		}
	}
	kinds, _, err := s.CountRefusals(t.Context(), RefusalFilter{Since: since, Source: "a", Tenant: "t1"})
	if err != nil || !kinds[0].FirstAt.Equal(now.Add(-time.Hour)) || !kinds[0].LastAt.Equal(now.Add(time.Second-time.Minute)) || !kinds[0].Minute.Equal(now.Add(-time.Minute)) {
		t.Errorf("%+v, %v", kinds, err)
	}
}

// Page by page, and no further than half a million rows: what is left out is told.
func TestRefusalsAreCountedWithABound(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("half a million rows")
	}
	s, pool := newStore(t)
	const minutes = 10_500 // of 50 kinds
	exec(t, pool, `DROP INDEX hooklatch.refusal_source, hooklatch.refusal_delivery, hooklatch.refusal_request, hooklatch.refusal_body;
		ALTER TABLE hooklatch.refusal DROP CONSTRAINT refusal_identity`) // to fill it fast
	exec(t, pool, `INSERT INTO hooklatch.refusal (tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at, body_size)
		SELECT 't1', 'src1', to_timestamp(1700000040 + 60 * m), 'signature_invalid', 'signature_mismatch', 'k' || k, '', 1, now(), now(), 1
		FROM generate_series(1, $1::int) m CROSS JOIN generate_series(1, 50) k`, minutes)
	exec(t, pool, `VACUUM ANALYZE hooklatch.refusal`)
	start := time.Now()
	kinds, from, err := s.CountRefusals(t.Context(), RefusalFilter{Since: time.Unix(1700000000, 0)})
	t.Logf("%s for half a million rows", time.Since(start))
	if err != nil || len(kinds) != 50 {
		t.Fatalf("%d kinds, %v", len(kinds), err)
	}
	if kinds[0].Count < countMost/50-20 || kinds[0].Count > countMost/50 {
		t.Errorf("%d of one kind, want about %d", kinds[0].Count, countMost/50)
	}
	if want := time.Unix(1700000040+60*(minutes-kinds[0].Count+1), 0); !from.Equal(want) {
		t.Errorf("counted from %s, want %s", from, want)
	}
	kinds, from, err = s.CountRefusals(t.Context(), RefusalFilter{Since: time.Unix(1700000040+60*(minutes-1999), 0)})
	if err != nil || kinds[0].Count != 2000 || !from.Equal(time.Unix(1700000040+60*(minutes-1999), 0)) {
		t.Errorf("%d from %s, %v", kinds[0].Count, from, err)
	}
}
