package inbox

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// shown are the ids that one look of a follower shows.
func shown(t testing.TB, w *Follower) (ids []string) {
	t.Helper()
	found, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range found {
		ids = append(ids, d.DeliveryID)
	}
	return ids
}

func follow(t testing.TB, s *Store, f Filter) *Follower {
	t.Helper()
	w, err := s.Follow(f)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// openAccept begins what Accept does, up to its COMMIT.
func openAccept(t testing.TB, pool *pgxpool.Pool, id string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(t.Context()) })
	_, err = tx.Exec(t.Context(), `WITH i AS (
		INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, forwards) VALUES ('t1', 'src1', $1, sha256('x'), 1, 1) RETURNING id),
	p AS (INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body) SELECT id, 't1', 'POST', '', '', 'x' FROM i)
	INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at) SELECT id, 't1', 'app', now() + interval '1 day' FROM i`, id)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// A lower id that commits later is forwarded, listed and shown as any other is.
func TestCaseE7_LateCommitsAreNotPassedOver(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	wholeAtEnd(t, pool)
	before, between := follow(t, s, Filter{}), follow(t, s, Filter{})
	before.grace, between.grace = 0, 0 // the open transaction alone must hold them
	if got := shown(t, before); len(got) > 0 {
		t.Fatalf("an empty inbox shows %v", got)
	}
	slow := openAccept(t, pool, "slow")
	accept(t, s, delivery("fast", "x"))
	if got := shown(t, before); !slices.Equal(got, []string{"fast"}) {
		t.Errorf("shown %v, want fast", got)
	}
	if got := shown(t, between); len(got) > 0 {
		t.Errorf("what was there before is shown: %v", got)
	}
	if _, ids := claimAll(t, s, time.Time{}); !slices.Equal(ids, []string{"fast"}) {
		t.Errorf("claimed %v, want fast", ids)
	}
	var cursor string
	for d, err := range s.Find(t.Context(), Filter{Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		cursor = d.Cursor()
	}
	for i := range 3 { // however often they look
		accept(t, s, delivery(fmt.Sprint("later-", i), "x"))
		shown(t, before)
		shown(t, between)
	}
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE delivery_id = 'fast' AND id > (SELECT id FROM hooklatch.inbox WHERE delivery_id = 'slow')`); n != 1 {
		t.Fatal("void: the id that came later is not lower")
	}
	for name, w := range map[string]*Follower{"begun before": before, "begun between": between} {
		if got := shown(t, w); !slices.Equal(got, []string{"slow"}) {
			t.Errorf("%s: shown %v, want slow", name, got)
		}
		if again := shown(t, w); len(again) > 0 {
			t.Errorf("%s: shown again: %v", name, again)
		}
	}
	if _, ids := claimAll(t, s, time.Time{}); !slices.Contains(ids, "slow") {
		t.Errorf("claimed %v, and not slow", ids)
	}
	if got := find(t, s, Filter{After: cursor}); !slices.Equal(got, []string{"slow"}) {
		t.Errorf("the next page lists %v, want slow", got)
	}
}

// An id may be given a moment before its transaction can be told from one that has not
// begun: for a while nobody goes past it.
func TestCaseE7_IdOfATransactionThatHasNotWritten(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	w := follow(t, s, Filter{})
	shown(t, w)
	id := count(t, pool, `SELECT nextval(pg_get_serial_sequence('hooklatch.inbox', 'id'))`)
	accept(t, s, delivery("fast", "x"))
	for range 3 {
		shown(t, w)
	}
	exec(t, pool, `INSERT INTO hooklatch.inbox (id, tenant, source, delivery_id, body_hash, body_size) OVERRIDING SYSTEM VALUE
		VALUES ($1, 't1', 'src1', 'slow', sha256('x'), 1)`, id)
	if got := shown(t, w); !slices.Equal(got, []string{"slow"}) {
		t.Errorf("shown %v, want slow", got)
	}
}

// What is remembered is forgotten once nobody can commit a lower id, and has a bound
// while somebody can.
func TestFollowerRemembersAsLittleAsItCan(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	w := follow(t, s, Filter{})
	w.grace, w.most = 0, 100
	shown(t, w)
	fill(t, pool, 1, 50)
	if n := len(shown(t, w)); n != 50 {
		t.Fatalf("%d are shown, want 50", n)
	}
	for deadline := time.Now().Add(20 * time.Second); len(w.seen) > 0; { // others write in this cluster too
		if len(shown(t, w)) > 0 || time.Now().After(deadline) {
			t.Fatalf("%d are remembered", len(w.seen))
		}
	}
	slow := openAccept(t, pool, "slow")
	fill(t, pool, 51, 250)
	if n := len(shown(t, w)); n != 200 || !w.Cut() {
		t.Errorf("%d are shown, want 200; cut %v", n, w.Cut())
	}
	if len(w.seen) > 100 {
		t.Errorf("%d are remembered, at most 100 may be", len(w.seen))
	}
	if got := shown(t, w); len(got) > 0 {
		t.Errorf("%d are shown again", len(got))
	}
	if err := slow.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFollowerGoesOnBehindItsCursor(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	w := follow(t, s, Filter{EventType: "push"})
	push := func(id string) {
		d := delivery(id, "x")
		d.EventType = "push"
		accept(t, s, d)
	}
	push("old")
	shown(t, w)
	accept(t, s, delivery("other", "x"))
	push("new")
	if got := shown(t, w); !slices.Equal(got, []string{"new"}) {
		t.Errorf("shown %v, want new", got)
	}
	push("meanwhile")
	got := shown(t, follow(t, s, Filter{EventType: "push", After: w.Cursor()}))
	if !slices.Contains(got, "meanwhile") {
		t.Errorf("the next process shows %v, and not meanwhile", got)
	}
	var cursor string
	for d, err := range s.Find(t.Context(), Filter{ID: "new"}) {
		if err != nil {
			t.Fatal(err)
		}
		cursor = d.Cursor()
	}
	if got := shown(t, follow(t, s, Filter{After: cursor})); !slices.Equal(got, []string{"meanwhile"}) {
		t.Errorf("behind new there is %v, want meanwhile", got)
	}
	if _, err := s.Follow(Filter{After: "nonsense"}); err == nil {
		t.Error("a cursor that is none is taken")
	}
}

func TestFollowedRefusalsAreWhatIsNew(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	now := time.Now()
	refuse := func(source string, at time.Time, n int64) {
		t.Helper()
		if err := s.Record(t.Context(), &Tallies{Refusals: []Refusal{{Tenant: "t1", Source: source, Minute: at, Code: "c", Reason: "r", Count: n, FirstAt: at, LastAt: at}}}); err != nil {
			t.Fatal(err)
		}
	}
	refuse("a", now, 5)
	w := s.FollowRefusals(RefusalFilter{Source: "a"})
	next := func() (counts []int64) {
		t.Helper()
		fresh, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range fresh {
			counts = append(counts, r.Count)
		}
		return counts
	}
	if got := next(); len(got) > 0 {
		t.Errorf("what was there before: %v", got)
	}
	refuse("a", now, 2)                  // the row grows
	refuse("b", now, 9)                  // not asked for
	refuse("a", now.Add(-time.Hour), 70) // a receiver that could not write
	if got := next(); !slices.Equal(got, []int64{70, 2}) {
		t.Errorf("shown %v, want 70 and 2", got)
	}
	if got := next(); len(got) > 0 {
		t.Errorf("shown again: %v", got)
	}
}
