package inbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const day = 24 * time.Hour

// prune runs to the end and returns what went, by kind.
func prune(t testing.TB, s *Store, r Retention) map[string]int {
	t.Helper()
	gone := map[string]int{}
	for p, err := range s.Prune(t.Context(), r) {
		if err != nil {
			t.Fatalf("prune: %v", err)
		}
		if p.Rows > pruneRows {
			t.Errorf("one batch removed %d rows of %s", p.Rows, p.Kind)
		}
		if p.Rows > 0 {
			gone[p.Kind] += p.Rows
		}
	}
	return gone
}

// age makes everything of a delivery older.
func age(t testing.TB, pool *pgxpool.Pool, id int64, by time.Duration) {
	t.Helper()
	exec(t, pool, `UPDATE hooklatch.attempt SET ended_at = ended_at - $2::interval WHERE outbox_id IN (SELECT id FROM hooklatch.outbox WHERE inbox_id = $1)`, id, by)
	exec(t, pool, `UPDATE hooklatch.conflict c SET first_seen_at = first_seen_at - $2::interval FROM hooklatch.inbox i
		WHERE i.id = $1 AND (c.delivery_id, c.source, c.tenant) = (i.delivery_id, i.source, i.tenant)`, id, by)
	exec(t, pool, `UPDATE hooklatch.inbox SET received_at = received_at - $2::interval WHERE id = $1`, id, by)
}

// settled accepts a delivery and brings its forward, if it has one, into state.
func settled(t testing.TB, s *Store, pool *pgxpool.Pool, d Delivery, state State, old time.Duration) Receipt {
	t.Helper()
	r := accept(t, s, d)
	exec(t, pool, `UPDATE hooklatch.outbox SET state = $2 WHERE inbox_id = $1`, r.ID, string(state))
	exec(t, pool, `INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class, answer)
		SELECT id, 1, tenant, now(), '2xx', 'answer of the app' FROM hooklatch.outbox WHERE inbox_id = $1`, r.ID)
	age(t, pool, r.ID, old)
	return r
}

// old is what a retention of 30 days for bodies and attempts and 90 for identities
// calls old.
func old() Retention {
	now := time.Now()
	return Retention{Bodies: now.Add(-30 * day), Attempts: now.Add(-30 * day), Identities: now.Add(-90 * day)}
}

func rows(t testing.TB, pool *pgxpool.Pool) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, table := range []string{"inbox", "payload", "outbox", "attempt", "conflict", "revision_conflict", "resource", "gap", "refusal"} {
		if c := count(t, pool, `SELECT count(*) FROM hooklatch.`+table); c > 0 {
			n[table] = c
		}
	}
	return n
}

func TestPrunedBodyLeavesHashSizeAndTimes(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	young := settled(t, s, pool, delivery("young", "kept"), Accepted, 29*day)
	r := settled(t, s, pool, delivery("dlv_1", "gone"), Accepted, 31*day)
	before, err := s.Payload(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if gone := prune(t, s, old()); !maps.Equal(gone, map[string]int{PruneBodies: 1, PruneAttempts: 1}) {
		t.Errorf("gone: %v", gone)
	}
	if _, err := s.Payload(t.Context(), young.ID); err != nil {
		t.Errorf("the young one: %v", err)
	}
	if _, err := s.Payload(t.Context(), r.ID); !errors.Is(err, ErrPruned) {
		t.Errorf("payload: %v, want ErrPruned", err)
	}
	for after, err := range s.Find(t.Context(), Filter{ID: "dlv_1"}) {
		if err != nil || after.BodyHash != before.BodyHash || after.BodySize != 4 || !after.ReceivedAt.Equal(before.ReceivedAt) {
			t.Errorf("left: %+v, %v", after, err)
		}
	}
	if again, err := s.Accept(t.Context(), delivery("dlv_1", "gone")); err != nil || !again.Duplicate || !again.ReceivedAt.Equal(before.ReceivedAt) {
		t.Errorf("late repeat: %+v, %v", again, err)
	}
	var conflict *ConflictError
	if _, err := s.Accept(t.Context(), delivery("dlv_1", "other")); !errors.As(err, &conflict) {
		t.Errorf("other bytes: %v, want a conflict", err)
	}
	if gone := prune(t, s, old()); len(gone) > 0 {
		t.Errorf("a second time: %v", gone)
	}
}

// A forward that may still be sent needs all of its delivery.
func TestOpenForwardKeepsItsDelivery(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	for _, state := range []State{Pending, RetryWait, Held, Blocked, Accepted, Superseded, Cancelled} {
		d := delivery(string(state), "x")
		d.Forwards = append(d.Forwards, NewForward{Destination: "other"}) // one of two is open
		r := settled(t, s, pool, d, Accepted, 100*day)
		exec(t, pool, `UPDATE hooklatch.outbox SET state = $2 WHERE inbox_id = $1 AND destination = 'other'`, r.ID, string(state))
	}
	unrouted := delivery("unrouted", "x")
	unrouted.Forwards = nil
	settled(t, s, pool, unrouted, "", 100*day)
	want := map[string]int{PruneBodies: 4, PruneAttempts: 10, PruneIdentities: 4}
	dry := old()
	dry.DryRun = true
	if would := prune(t, s, dry); !maps.Equal(would, want) {
		t.Errorf("would go: %v, want %v", would, want)
	}
	if gone := prune(t, s, old()); !maps.Equal(gone, want) {
		t.Errorf("gone: %v, want %v", gone, want)
	}
	if left := rows(t, pool); !maps.Equal(left, map[string]int{"inbox": 4, "payload": 4, "outbox": 8, "attempt": 4}) {
		t.Errorf("left: %v", left)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE destination = 'other' AND state IN ('pending', 'retry_wait', 'held', 'blocked')`); n != 4 {
		t.Errorf("%d open forwards are left, want 4", n)
	}
}

func TestPrunedIdentityTakesAllOfItAlong(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	r := settled(t, s, pool, delivery("dlv_1", "x"), Accepted, 0)
	other := delivery("dlv_1", "y")
	other.Source = "src2" // same id, another source: its conflicts are its own
	stays := settled(t, s, pool, other, Accepted, 0)
	for _, source := range []string{"src1", "src2"} {
		d := delivery("dlv_1", "z")
		d.Source = source
		if _, err := s.Accept(t.Context(), d); err == nil {
			t.Fatal("no conflict")
		}
	}
	exec(t, pool, `INSERT INTO hooklatch.revision_conflict (inbox_id, tenant, first_id, revision, noticed_at) VALUES ($1, 't1', 1, 1, now()), ($2, 't1', 1, 1, now())`, r.ID, stays.ID)
	age(t, pool, r.ID, 91*day)
	only := Retention{Identities: time.Now().Add(-90 * day)}
	if gone := prune(t, s, only); !maps.Equal(gone, map[string]int{PruneIdentities: 1}) {
		t.Errorf("gone: %v", gone)
	}
	if left := rows(t, pool); !maps.Equal(left, map[string]int{"inbox": 1, "payload": 1, "outbox": 1, "attempt": 1, "conflict": 1, "revision_conflict": 1}) {
		t.Errorf("left: %v", left)
	}
	if again := accept(t, s, delivery("dlv_1", "z")); again.Duplicate {
		t.Error("an id that was forgotten is a duplicate")
	}
}

func TestPrunedConflictKeepsItsHash(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	r := accept(t, s, delivery("dlv_1", "first"))
	d := delivery("dlv_1", "second")
	d.Header = map[string][]string{"X": {"second"}}
	if _, err := s.Accept(t.Context(), d); err == nil {
		t.Fatal("no conflict")
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'accepted'`)
	age(t, pool, r.ID, 31*day)
	// Nothing but the row knows of a delivery that went while this came.
	exec(t, pool, `INSERT INTO hooklatch.conflict (tenant, source, delivery_id, body_hash, headers, body, first_seen_at)
		VALUES ('t1', 'src1', 'nobody', sha256('x'), '', 'x', now() - interval '31 days')`)
	if gone := prune(t, s, old()); !maps.Equal(gone, map[string]int{PruneBodies: 1, PruneConflicts: 2}) {
		t.Errorf("gone: %v", gone)
	}
	got, err := s.Conflicts(t.Context(), "t1", "src1", "dlv_1")
	if err != nil || len(got) != 1 || got[0].BodyHash != d.BodyHash || got[0].Body != nil || len(got[0].Header) != 0 || got[0].Seen != 1 {
		t.Fatalf("conflicts: %+v, %v", got, err)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.conflict`); n != 1 {
		t.Errorf("%d conflicts are left", n)
	}
	// The same bytes again are counted, and not kept again.
	if _, err := s.Accept(t.Context(), d); err == nil {
		t.Fatal("no conflict")
	}
	if got, err := s.Conflicts(t.Context(), "t1", "src1", "dlv_1"); err != nil || got[0].Seen != 2 || got[0].Body != nil {
		t.Errorf("seen again: %+v, %v", got, err)
	}
}

// D6: a tombstone survives the bodies, and goes with the last delivery of its
// resource.
func TestCaseD6_TombstoneOutlivesTheBodies(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	of := func(id, resource string) Delivery {
		d := delivery(id, "x")
		d.ResourceType, d.ResourceID = "report", resource
		return d
	}
	settled(t, s, pool, of("a", "R-1"), Accepted, 100*day)
	settled(t, s, pool, of("b", "R-1"), Accepted, 89*day)
	settled(t, s, pool, of("c", "R-2"), Accepted, 100*day)
	settled(t, s, pool, of("d", "R-3"), Blocked, 100*day)
	other := of("e", "R-2") // another sender's resource of that name
	other.Source = "src2"
	settled(t, s, pool, other, Accepted, 0)
	exec(t, pool, `INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane, applied, passed, deleted, touched_at)
		SELECT 't1', 'app', 'src1', 'report', id, sha256(id::bytea), 5, 5, true, now() - interval '91 days' FROM unnest(ARRAY['R-1', 'R-2', 'R-3']) id`)
	exec(t, pool, `INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at) SELECT 't1', id, 1, 4, now() FROM hooklatch.resource`)
	bodies := old()
	bodies.Identities = time.Time{}
	prune(t, s, bodies)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.resource WHERE deleted AND applied = 5`); n != 3 {
		t.Errorf("%d tombstones have survived the bodies, want 3", n)
	}
	if gone := prune(t, s, old()); !maps.Equal(gone, map[string]int{PruneIdentities: 2, PruneResources: 1}) {
		t.Errorf("gone: %v", gone)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.resource r JOIN hooklatch.gap g ON g.resource = r.id WHERE resource_id IN ('R-1', 'R-3')`); n != 2 {
		t.Errorf("%d resources with deliveries are left, want 2", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.gap`); n != 2 {
		t.Errorf("%d gaps, want 2", n)
	}
}

func TestPruneOfOneSourceLeavesTheOthers(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	for _, source := range []string{"src1", "src2"} {
		for i := range 3 {
			d := delivery(fmt.Sprint("dlv_", i), "x")
			d.Source = source
			settled(t, s, pool, d, Accepted, 100*day)
			d.Body[0], d.BodyHash = 'y', [32]byte{1}
			s.Accept(t.Context(), d)
		}
		exec(t, pool, `INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane, touched_at)
			VALUES ('t1', 'app', $1, '', 'R', sha256($1::text::bytea), now() - interval '91 days')`, source)
		exec(t, pool, `INSERT INTO hooklatch.refusal (tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at, body_size)
			VALUES ('t1', $1, now() - interval '91 days', 'c', 'r', '', '', 1, now(), now(), 0)`, source)
	}
	exec(t, pool, `UPDATE hooklatch.conflict SET first_seen_at = now() - interval '91 days'`)
	r := old()
	r.Source, r.Refusals, r.MaxRefusals = "src2", r.Bodies, 1
	want := map[string]int{PruneRefusals: 1, PruneBodies: 3, PruneConflicts: 3, PruneAttempts: 3, PruneIdentities: 3, PruneResources: 1}
	r.DryRun = true
	if would := prune(t, s, r); !maps.Equal(would, want) {
		t.Errorf("would go: %v, want %v", would, want)
	}
	r.DryRun = false
	if gone := prune(t, s, r); !maps.Equal(gone, want) {
		t.Errorf("gone: %v, want %v", gone, want)
	}
	if left := rows(t, pool); !maps.Equal(left, map[string]int{"inbox": 3, "payload": 3, "outbox": 3, "attempt": 3, "conflict": 3, "resource": 1, "refusal": 1}) {
		t.Errorf("left: %v", left)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE source = 'src2'`); n != 0 {
		t.Errorf("%d deliveries of the source are left", n)
	}
}

// T23: what retention has removed is in no table.
func TestT23_NoByteOfAPrunedBodyIsLeft(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	secret := "a-body-that-must-be-forgotten"
	d := delivery("dlv_1", secret)
	d.RawQuery, d.Header = secret, map[string][]string{"X": {secret}}
	r := settled(t, s, pool, d, Accepted, 0)
	exec(t, pool, `UPDATE hooklatch.attempt SET answer = $1, error = $2`, []byte(secret), secret)
	d.Body, d.BodyHash = []byte(secret+"!"), [32]byte{1}
	if _, err := s.Accept(t.Context(), d); err == nil {
		t.Fatal("no conflict")
	}
	age(t, pool, r.ID, 31*day)
	if len(tablesWith(t, pool, secret)) != 3 {
		t.Fatalf("void: it stands in %v", tablesWith(t, pool, secret))
	}
	prune(t, s, old())
	if found := tablesWith(t, pool, secret); len(found) > 0 {
		t.Errorf("it still stands in %v", found)
	}
}

// tablesWith names the tables of the schema whose rows hold text, as it is or as
// bytes, like a dump of them would.
func tablesWith(t testing.TB, pool *pgxpool.Pool, text string) (found []string) {
	t.Helper()
	tables, err := pool.Query(t.Context(), `SELECT table_name FROM information_schema.tables WHERE table_schema = 'hooklatch' AND table_type = 'BASE TABLE'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(tables, pgx.RowTo[string])
	if err != nil || len(names) < 5 {
		t.Fatalf("tables: %v, %v", names, err)
	}
	for _, name := range names {
		if count(t, pool, `SELECT count(*) FROM hooklatch.`+name+` x WHERE strpos(x::text, $1) + strpos(x::text, encode($1::text::bytea, 'hex')) > 0`, text) > 0 {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func TestRefusalsStayWithinTheirBound(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	exec(t, pool, `INSERT INTO hooklatch.refusal (tenant, source, minute, code, reason, key_id, cause, count, first_at, last_at, body_size)
		SELECT 't1', 'src1', $1::timestamptz - make_interval(mins => n / 2), 'c', 'r', '', n::text, 1, $1, $1, 0 FROM generate_series(1, 5000) n`, noon)
	left := func() int { t.Helper(); return count(t, pool, `SELECT count(*) FROM hooklatch.refusal`) }
	dry := Retention{Refusals: noon.Add(-24 * time.Hour), MaxRefusals: 100, DryRun: true}
	if would := prune(t, s, dry); would[PruneRefusals] != 4900 || left() != 5000 {
		t.Errorf("would go: %v; %d are left", would, left())
	}
	if gone := prune(t, s, Retention{Refusals: noon.Add(-24 * time.Hour)}); left() != 2881 {
		t.Errorf("by age: %v, %d are left", gone, left())
	}
	if gone := prune(t, s, Retention{Refusals: noon.Add(-24 * time.Hour), MaxRefusals: 100}); left() != 100 {
		t.Errorf("by number: %v, %d are left", gone, left())
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.refusal WHERE minute >= $1::timestamptz - interval '50 minutes'`, noon); n != 100 {
		t.Errorf("only %d of the newest 100 are left", n)
	}
}

// Every batch is a transaction: who stops has lost nothing of what was done.
func TestPruneGoesInBatchesAndCanBeStopped(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	fill(t, pool, 1, 2500)
	exec(t, pool, `UPDATE hooklatch.inbox SET received_at = now() - interval '100 days' + make_interval(secs => id)`)
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'blocked' WHERE id % 2 = 0 AND id < 1500`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	batches := 0
	for p, err := range s.Prune(ctx, Retention{Bodies: time.Now()}) {
		if batches++; batches == 1 {
			if err != nil || p.Kind != PruneBodies || p.Rows != 500 || p.Looked != pruneRows || p.Until.IsZero() || p.Took <= 0 {
				t.Errorf("first batch: %+v, %v", p, err)
			}
			stop()
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("batch %d: %+v, %v", batches, p, err)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.payload`); batches != 2 || n != 2000 {
		t.Errorf("%d batches, %d bodies are left", batches, n)
	}
	if gone := prune(t, s, old()); gone[PruneBodies] != 2000-749+500-500 || gone[PruneIdentities] != 2500-749 {
		t.Errorf("gone on: %v", gone)
	}
}

// With many processes one at a time is enough.
func TestWhoYieldsEndsWhereAnotherPrunes(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	settled(t, s, pool, delivery("dlv_1", "x"), Accepted, 100*day)
	other := begin(t, pool)
	if _, err := other.Exec(t.Context(), yieldSQL); err != nil {
		t.Fatal(err)
	}
	r := old()
	r.Yield = true
	for p, err := range s.Prune(t.Context(), r) {
		t.Errorf("%+v, %v although another process prunes", p, err)
	}
	other.Rollback(t.Context())
	if gone := prune(t, s, r); gone[PruneIdentities] != 1 {
		t.Errorf("gone: %v", gone)
	}
}

// Nothing of it may grow with what stays: an old plan is kept when the tables have
// grown.
func TestPruneReadsWhatIsOldAndNoMore(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"", "src1"} {
		s, pool := newStore(t)
		for _, table := range []string{"inbox", "outbox", "payload", "attempt", "conflict", "resource"} {
			exec(t, pool, `ALTER TABLE hooklatch.`+table+` SET (autovacuum_enabled = off)`)
		}
		make := func(from, to, days int, source string) {
			exec(t, pool, `INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, received_at, resource_id)
				SELECT 't1', $4, 'old_' || n, sha256('x'), 1, now() - make_interval(days => $3, secs => -n), 'R-' || n FROM generate_series($1::int, $2) n`, from, to, days, source)
			exec(t, pool, `INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body)
				SELECT id, 't1', 'POST', '', '', 'x' FROM hooklatch.inbox WHERE id NOT IN (SELECT inbox_id FROM hooklatch.outbox)`)
			exec(t, pool, `INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at, state)
				SELECT id, 't1', 'app', now(), 'accepted' FROM hooklatch.inbox WHERE id NOT IN (SELECT inbox_id FROM hooklatch.outbox)`)
			exec(t, pool, `INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class)
				SELECT id, 1, 't1', now() - make_interval(days => $1), '2xx' FROM hooklatch.outbox WHERE id NOT IN (SELECT outbox_id FROM hooklatch.attempt)`, days)
			exec(t, pool, `INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane, touched_at)
				SELECT 't1', 'app', $4, '', 'R-' || n, sha256(($4 || n)::bytea), now() - make_interval(days => $3) FROM generate_series($1::int, $2) n`, from, to, days, source)
		}
		r := old()
		r.Source = source
		for round := range 8 { // from the sixth on a plan is kept
			make(round*10, round*10+9, 100, "src1")
			if gone := prune(t, s, r); gone[PruneIdentities] != 10 || gone[PruneResources] != 10 {
				t.Fatalf("round %d: %v", round, gone)
			}
		}
		make(1000, 11000, 20, "src2")
		make(11001, 21000, 20, "src1")
		make(100, 149, 100, "src1")
		forgetReads(t, s, pool)
		if gone := prune(t, s, r); gone[PruneIdentities] != 50 {
			t.Fatalf("gone: %v", gone)
		}
		if n := rowsRead(t, s, pool); n > 6000 {
			t.Errorf("source %q: 50 old deliveries read %d rows", source, n)
		}
	}
}
