package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// noon is a moment of which minute and hour are both just beginning.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// refused is one refusal of src1 at noon plus after.
func refused(after time.Duration, reason, keyID, cause string) Refusal {
	at := noon.Add(after)
	return Refusal{
		Tenant: "t1", Source: "src1", Minute: at, Code: "signature_invalid", Reason: reason, KeyID: keyID, Cause: cause,
		Count: 1, FirstAt: at, LastAt: at, RequestID: uuid.New(), DeliveryID: fmt.Sprint("dlv_", after), Peer: "192.0.2.1", BodySize: 412, BodyHash: [32]byte{1},
	}
}

func used(after time.Duration, keyID string, accepted, retiring int64) KeyUse {
	at := noon.Add(after)
	return KeyUse{Tenant: "t1", Source: "src1", KeyID: keyID, Scheme: "zhisou-v1", Hour: at, Accepted: accepted, Retiring: retiring, LastUsed: at}
}

func record(t testing.TB, s *Store, refusals []Refusal, uses []KeyUse) {
	t.Helper()
	if err := s.Record(t.Context(), &Tallies{Refusals: refusals, KeyUses: uses}); err != nil {
		t.Fatal(err)
	}
}

func refusals(t testing.TB, s *Store, f RefusalFilter) (all []Refusal) {
	t.Helper()
	for r, err := range s.Refusals(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func usages(t testing.TB, s *Store, f KeyUsageFilter) (all []KeyUsage) {
	t.Helper()
	for u, err := range s.KeyUsages(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		u.FirstHour, u.LastUsed = u.FirstHour.UTC(), u.LastUsed.UTC()
		all = append(all, u)
	}
	return all
}

func TestRefusalsOfAMinuteAreOneRowWithTheFirstAsItsSample(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	first, second := refused(time.Second, "signature_mismatch", "k1", ""), refused(2*time.Second, "signature_mismatch", "k1", "")
	second.Count = 4
	record(t, s, []Refusal{first, second}, nil) // in one batch
	third := refused(59*time.Second, "signature_mismatch", "k1", "")
	record(t, s, []Refusal{third}, nil) // and in a later one
	others := []Refusal{refused(time.Minute, "signature_mismatch", "k1", ""), refused(0, "signature_mismatch", "k2", ""), refused(0, "key_expired", "k1", ""),
		refused(0, "signature_mismatch", "k1", "body_crlf")}
	other := refused(0, "signature_mismatch", "k1", "")
	other.Source = "src2"
	record(t, s, append(others, other), nil)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.refusal`); n != 6 {
		t.Errorf("%d rows, want 6", n)
	}
	got := refusals(t, s, RefusalFilter{ID: first.DeliveryID})
	if len(got) != 1 {
		t.Fatalf("%d rows have the sample", len(got))
	}
	r := got[0]
	r.ID, r.Minute, r.FirstAt, r.LastAt = 0, r.Minute.UTC(), r.FirstAt.UTC(), r.LastAt.UTC()
	want := first
	want.Count, want.LastAt, want.Minute = 6, third.LastAt, noon
	if r != want {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
}

func TestTalliesOfTwoProcessesAddUp(t *testing.T) {
	t.Parallel()
	url := inboxtest.URL(t)
	var stores [2]*Store
	for i := range stores {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		if stores[i], err = New(pool, Config{}); err != nil {
			t.Fatal(err)
		}
	}
	const flushes, keys = 20, 40
	var running sync.WaitGroup
	for _, s := range stores {
		running.Go(func() {
			for range flushes {
				tallies := &Tallies{}
				for n := range keys {
					key := fmt.Sprint("k", n)
					tallies.Refusals = append(tallies.Refusals, refused(0, "signature_mismatch", key, ""))
					tallies.KeyUses = append(tallies.KeyUses, used(0, key, 2, 1))
				}
				// Maps are walked in any order: so may the rows come.
				rand.Shuffle(keys, func(i, j int) {
					r, u := tallies.Refusals, tallies.KeyUses
					r[i], r[j], u[i], u[j] = r[j], r[i], u[j], u[i]
				})
				if err := s.Record(t.Context(), tallies); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	got := refusals(t, stores[0], RefusalFilter{Since: noon})
	for _, r := range got {
		if r.Count != 2*flushes {
			t.Errorf("%s: %d refusals, want %d", r.KeyID, r.Count, 2*flushes)
		}
	}
	uses := usages(t, stores[1], KeyUsageFilter{Since: noon})
	for _, u := range uses {
		if u.Accepted != 4*flushes || u.Retiring != 2*flushes {
			t.Errorf("%s: %d accepted, %d retiring", u.KeyID, u.Accepted, u.Retiring)
		}
	}
	if len(got) != keys || len(uses) != keys {
		t.Errorf("%d rows of refusals and %d of keys, want %d", len(got), len(uses), keys)
	}
}

// To the client both faults look alike. Adding again after the second would double
// what is committed; not adding after the first would lose it.
func TestTalliesAreRecordedOnceThoughTheAnswerOfCommitWasLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault inboxtest.CommitFault
	}{
		{"cut after COMMIT", inboxtest.CutAfterCommit},
		{"cut before COMMIT", inboxtest.CutBeforeCommit},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, direct, proxy := faulty(t)
			record(t, s, []Refusal{refused(0, "signature_mismatch", "k1", "")}, nil)
			proxy.AtCommit(c.fault, 1)
			tallies := &Tallies{Refusals: []Refusal{refused(0, "signature_mismatch", "k1", "")}, KeyUses: []KeyUse{used(0, "k1", 1, 0)}}
			if err := s.Record(t.Context(), tallies); !errors.Is(err, ErrOutcomeUnknown) {
				t.Fatalf("%v, want ErrOutcomeUnknown", err)
			}
			if counts := proxy.Counts(); counts.CutBefore+counts.CutAfter != 1 {
				t.Fatalf("void: nothing was cut, %+v", counts)
			}
			err := s.Record(t.Context(), tallies)
			for errors.Is(err, ErrBusy) { // the server has not noticed yet
				err = s.Record(t.Context(), tallies)
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := count(t, direct, `SELECT sum(count) FROM hooklatch.refusal`); n != 2 {
				t.Errorf("%d refusals, want 2", n)
			}
			if n := count(t, direct, `SELECT sum(accepted) FROM hooklatch.key_use`); n != 1 {
				t.Errorf("%d uses, want 1", n)
			}
		})
	}
}

func TestRecordAgainWhileTheFirstTryStillRuns(t *testing.T) {
	t.Parallel()
	s, direct, proxy := faulty(t)
	record(t, s, nil, []KeyUse{used(0, "k1", 1, 0)})
	proxy.AtCommit(inboxtest.HoldCommit, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tallies := &Tallies{KeyUses: []KeyUse{used(0, "k1", 1, 0)}}
	failed := make(chan error)
	go func() { failed <- s.Record(ctx, tallies) }()
	proxy.Await(func(c inboxtest.Counts) bool { return c.Held == 1 })
	cancel()
	if err := <-failed; err == nil {
		t.Fatal("void: the first try has succeeded")
	}
	other, err := New(direct, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Record(t.Context(), tallies); err != nil && !errors.Is(err, ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	proxy.Release()
	for err = other.Record(t.Context(), tallies); errors.Is(err, ErrBusy); {
		err = other.Record(t.Context(), tallies)
	}
	if n := count(t, direct, `SELECT sum(accepted) FROM hooklatch.key_use`); n != 2 || err != nil {
		t.Errorf("%d uses, want 2; %v", n, err)
	}
}

// After a fail-over the transaction of the first try may not exist.
func TestRecordAgainOnAServerThatNeverSawTheFirstTry(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	if err := s.Record(t.Context(), &Tallies{KeyUses: []KeyUse{used(0, "k1", 1, 0)}, tried: "999999999999"}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, `SELECT sum(accepted) FROM hooklatch.key_use`); n != 1 {
		t.Errorf("%d uses, want 1", n)
	}
}

// A text that the database would refuse must not keep all the others from it.
func TestNoTextKeepsTalliesFromTheDatabase(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for _, text := range []string{"\x00", "\xff", strings.Repeat("é", 300), strings.Repeat("x", 5000), strings.Repeat("€", 85) + "x"} {
		r := refused(0, text, text, text)
		r.Code, r.DeliveryID, r.Peer, r.Source, r.Tenant = text, text, text, text, text
		u := used(0, text, 1, 0)
		u.Source, u.Tenant, u.Scheme = text, text, text
		if err := s.Record(t.Context(), &Tallies{Refusals: []Refusal{r, r}, KeyUses: []KeyUse{u, u}}); err != nil {
			t.Errorf("%.10q…: %v", text, err)
		}
	}
}

func TestRefusalsAreListedNewestFirstOverPages(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	const n = refusalPage*2 + 3
	var all []Refusal
	for i := range n {
		r := refused(time.Duration(i)*20*time.Second, fmt.Sprint("reason_", i%3), "", "")
		if r.Source = "src1"; i%2 == 0 {
			r.Source, r.Code, r.Tenant = "src2", "body_too_large", "t2"
		}
		all = append(all, r)
	}
	record(t, s, all, nil)
	got := refusals(t, s, RefusalFilter{Since: noon})
	if len(got) != n {
		t.Fatalf("%d rows, want %d", len(got), n)
	}
	for i := range got[1:] {
		if got[i+1].Minute.After(got[i].Minute) {
			t.Fatalf("row %d is newer than the one before it", i+1)
		}
	}
	since := noon.Add(100*time.Minute + 30*time.Second)
	for _, c := range []struct {
		name string
		f    RefusalFilter
		fits func(Refusal) bool
	}{
		{"source", RefusalFilter{Source: "src2"}, func(r Refusal) bool { return r.Source == "src2" }},
		{"tenant", RefusalFilter{Tenant: "t2"}, func(r Refusal) bool { return r.Tenant == "t2" }},
		{"code", RefusalFilter{Code: "signature_invalid"}, func(r Refusal) bool { return r.Code == "signature_invalid" }},
		{"since, whole minutes", RefusalFilter{Since: since}, func(r Refusal) bool { return !r.FirstAt.Before(since.Truncate(time.Minute)) }},
		{"all", RefusalFilter{Source: "src1", Since: since, Code: "body_too_large"}, func(Refusal) bool { return false }},
	} {
		want := 0
		for _, r := range all {
			if c.fits(r) {
				want++
			}
		}
		if got := refusals(t, s, c.f); len(got) != want {
			t.Errorf("%s: %d rows, want %d", c.name, len(got), want)
		}
	}
	// By the request id of a sample, and on behind a row in another process.
	if one := refusals(t, s, RefusalFilter{ID: all[7].RequestID.String(), Source: "another"}); len(one) != 1 || one[0].RequestID != all[7].RequestID {
		t.Errorf("by request id: %d rows", len(one))
	}
	page := refusals(t, s, RefusalFilter{Limit: 10})
	next := refusals(t, s, RefusalFilter{Limit: 10, After: page[9].Cursor()})
	if len(page) != 10 || len(next) != 10 || next[0].ID != got[10].ID {
		t.Errorf("%d rows and then %d, from %d on", len(page), len(next), next[0].ID)
	}
	for _, err := range s.Refusals(t.Context(), RefusalFilter{After: "x"}) {
		if err == nil {
			t.Error("a cursor of somebody else is taken")
		}
	}
}

func TestKeyUsagesSumTheWindowAndRememberTheLastUse(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	hour := time.Hour
	other := used(0, "k1", 7, 0)
	other.Source = "src2"
	record(t, s, nil, []KeyUse{
		used(-50*hour, "old", 9, 9), used(-48*hour, "old", 1, 0),
		used(-30*hour, "k1", 5, 0), used(-2*hour, "k1", 3, 2), used(-2*hour+time.Minute, "k1", 1, 0), used(0, "k1", 4, 4),
		used(-time.Minute, "k2", 0, 0), // repeats alone
		other,
	})
	got := usages(t, s, KeyUsageFilter{Source: "src1", Since: noon.Add(-2*hour + 30*time.Minute)})
	usage := func(keyID string, accepted, retiring int64, first, last time.Duration) KeyUsage {
		return KeyUsage{Tenant: "t1", Source: "src1", KeyID: keyID, Scheme: "zhisou-v1", Accepted: accepted, Retiring: retiring,
			FirstHour: noon.Add(first), LastUsed: noon.Add(last)}
	}
	want := []KeyUsage{usage("k1", 8, 6, -30*hour, 0), usage("k2", 0, 0, -hour, -time.Minute), usage("old", 0, 0, -50*hour, -48*hour)}
	if len(got) != len(want) {
		t.Fatalf("%d keys: %+v", len(got), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
	if all := usages(t, s, KeyUsageFilter{}); len(all) != 4 || all[3].Source != "src2" {
		t.Errorf("of every source: %+v", all)
	}
}

func TestKeyUsagesGoOverPages(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	var uses []KeyUse
	for i := range keyUsagePage*2 + 1 {
		uses = append(uses, used(0, fmt.Sprintf("k%04d", i), 1, 0))
	}
	record(t, s, nil, uses)
	got := usages(t, s, KeyUsageFilter{})
	if len(got) != len(uses) {
		t.Fatalf("%d keys, want %d", len(got), len(uses))
	}
	for i, u := range got {
		if u.KeyID != uses[i].KeyID {
			t.Fatalf("key %d is %s", i, u.KeyID)
		}
	}
}

func TestPruningLeavesTheLastUseOfEachKey(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	day := 24 * time.Hour
	// One id is that of several keys: of each the last use stays.
	tenant, source, scheme := used(-98*day, "k1", 1, 0), used(-97*day, "k1", 1, 0), used(-96*day, "k1", 1, 0)
	tenant.Tenant, source.Source, scheme.Scheme = "t2", "src2", "github"
	record(t, s, []Refusal{refused(-31*day, "a", "", ""), refused(-29*day, "b", "", "")},
		[]KeyUse{used(-200*day, "k1", 1, 0), used(-100*day, "k1", 1, 0), used(-300*day, "k2", 1, 0), used(-250*day, "k2", 1, 0),
			used(0, "k3", 1, 0), used(-89*day, "k3", 1, 0), used(-91*day, "k3", 1, 0), tenant, source, scheme})
	prune(t, s, Retention{Refusals: noon.Add(-30 * day), KeyUses: noon.Add(-90 * day)})
	if got := refusals(t, s, RefusalFilter{}); len(got) != 1 || got[0].Reason != "b" {
		t.Errorf("refusals left: %+v", got)
	}
	var left []string
	for _, u := range usages(t, s, KeyUsageFilter{}) {
		left = append(left, fmt.Sprintf("%s %d to %d", u.KeyID, noon.Sub(u.FirstHour)/day, noon.Sub(u.LastUsed)/day))
	}
	want := "k1 96 to 96, k1 100 to 100, k2 250 to 250, k3 89 to 0, k1 98 to 98, k1 97 to 97"
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.key_use`); n != 7 || strings.Join(left, ", ") != want {
		t.Errorf("%d rows left: %s", n, left)
	}
}

// Behind a transaction pooler nothing is prepared, so no type is told by the server.
func TestTalliesWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	_, migrated := newStore(t)
	cfg := migrated.Config()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := New(pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	whole, bare := refused(0, "signature_mismatch", "k1", "no_match"), refused(0, "header_missing", "", "")
	bare.RequestID, bare.DeliveryID, bare.BodyHash = uuid.Nil, "", [32]byte{}
	for range 2 {
		record(t, s, []Refusal{whole, bare}, []KeyUse{used(0, "k1", 1, 0)})
	}
	for name, f := range map[string]RefusalFilter{
		"all": {}, "of a source": {Source: "src1", Since: noon}, "a delivery id": {ID: whole.DeliveryID}, "a request id": {ID: whole.RequestID.String()},
	} {
		got := refusals(t, s, f)
		i := slices.IndexFunc(got, func(r Refusal) bool { return r.RequestID == whole.RequestID })
		if i < 0 || got[i].BodyHash != whole.BodyHash || got[i].Count != 2 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := usages(t, s, KeyUsageFilter{Since: noon}); len(got) != 1 || got[0].Accepted != 2 {
		t.Errorf("uses: %+v", got)
	}
	if prune(t, s, Retention{Refusals: noon.Add(time.Hour)}); len(refusals(t, s, RefusalFilter{})) != 0 {
		t.Error("not pruned")
	}
}

// Looking must not cost more the longer a server has run.
func TestLooksAtTalliesReadNoHistory(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	exec(t, pool, `INSERT INTO hooklatch.refusal (tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at, body_size, delivery_id)
		SELECT 't1', 'src' || n % 3, $1::timestamptz - make_interval(mins => n), 'c', 'r', '', '', 1, $1, $1, 0, 'dlv_' || n FROM generate_series(1, 20000) n`, noon)
	exec(t, pool, `INSERT INTO hooklatch.key_use (source, tenant, key_id, scheme, hour, accepted, retiring, last_used)
		SELECT 'src' || n % 3, 't1', 'k' || n % 2, 's', $1::timestamptz - make_interval(hours => n), 1, 0, $1 FROM generate_series(1, 20000) n`, noon)
	exec(t, pool, `ANALYZE hooklatch.refusal, hooklatch.key_use`)
	exec(t, pool, `SELECT pg_stat_reset()`)
	refusals(t, s, RefusalFilter{Since: noon.Add(-30 * time.Minute)})
	refusals(t, s, RefusalFilter{Source: "src1", Since: noon.Add(-30 * time.Minute)})
	refusals(t, s, RefusalFilter{ID: "dlv_19000"})
	refusals(t, s, RefusalFilter{Limit: 10})
	if n := len(usages(t, s, KeyUsageFilter{Since: noon.Add(-24 * time.Hour)})); n != 6 {
		t.Errorf("%d keys", n)
	}
	record(t, s, []Refusal{refused(0, "r", "", "")}, []KeyUse{used(0, "k1", 1, 0)})
	if n := rowsRead(t, s, pool); n > 2000 {
		t.Errorf("%d rows were read", n)
	}
}
