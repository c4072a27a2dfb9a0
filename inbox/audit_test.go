package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// audited are the differences that Audit names, in its order.
func audited(t testing.TB, s *Store, r AuditRequest) (all []Discrepancy) {
	t.Helper()
	for d, err := range s.Audit(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// wholeAtEnd audits the inbox when the test is over: whatever it did to the store, the
// tables agree.
func wholeAtEnd(t testing.TB, pool *pgxpool.Pool) {
	t.Cleanup(func() {
		s, err := New(pool, Config{})
		if err != nil {
			t.Error(err)
			return
		}
		for d, err := range s.Audit(context.Background(), AuditRequest{Bodies: true}) {
			if err != nil {
				t.Error(err)
				return
			}
			t.Errorf("audit: %s", d)
		}
	})
}

// auditScene is an inbox with something in every state, in which nothing is wrong.
func auditScene(t *testing.T) (*Store, *pgxpool.Pool) {
	t.Helper()
	s, pool := newStore(t)
	end := func(outcome Outcome, class string) {
		t.Helper()
		if err := s.Settle(t.Context(), settlement(claimOne(t, s, time.Time{}), outcome, class)); err != nil {
			t.Fatal(err)
		}
	}
	accept(t, s, delivery("done", "x"))
	end(OutcomeRetry, "5xx")
	end(OutcomeAccepted, "2xx")
	accept(t, s, delivery("dead", "x"))
	end(OutcomeBlocked, "4xx")
	accept(t, s, delivery("again", "x"))
	st := settlement(claimOne(t, s, time.Time{}), OutcomeRetry, "5xx")
	st.Delay = time.Hour
	if err := s.Settle(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	accept(t, s, delivery("leased", "x"))
	claimOne(t, s, time.Time{})
	both := delivery("both", "x")
	both.Forwards = append(both.Forwards, NewForward{Destination: "other", Hold: true})
	accept(t, s, both)
	none := delivery("none", "x")
	none.Forwards = nil
	accept(t, s, none)
	if _, err := s.Accept(t.Context(), delivery("done", "y")); err == nil {
		t.Fatal("no conflict")
	}
	// Two lanes: of one the second revision is next, the other has a gap before the third.
	for _, id := range []string{"1", "2"} {
		for revision := range int64(3) {
			if id == "2" && revision == 1 {
				continue
			}
			d := delivery(fmt.Sprintf("r%s-%d", id, revision+1), "x")
			d.ResourceType, d.ResourceID, d.Revision = "thing", id, new(revision+1)
			d.Forwards = []NewForward{{Destination: "lanes", Ordering: OrderStrict}}
			accept(t, s, d)
		}
	}
	exec(t, pool, `
		UPDATE hooklatch.outbox SET state = 'accepted', attempts = 1, settled_at = now() WHERE revision = 1;
		INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class) SELECT id, 1, tenant, now(), '2xx' FROM hooklatch.outbox WHERE revision = 1;
		INSERT INTO hooklatch.resource (tenant, destination, source, resource_type, resource_id, lane, applied, passed)
		SELECT i.tenant, o.destination, i.source, i.resource_type, i.resource_id, o.lane, 1, 1
		FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id WHERE o.revision = 1;
		UPDATE hooklatch.outbox SET waiting = true WHERE revision = 3 AND inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = 'r1-3');
		UPDATE hooklatch.outbox SET state = 'held', hold_reason = 'gap', next_attempt_at = 'infinity'
		WHERE revision = 3 AND inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = 'r2-3');
		INSERT INTO hooklatch.gap (tenant, resource, first_missing, last_missing, opened_at)
		SELECT tenant, id, 2, 2, now() FROM hooklatch.resource WHERE resource_id = '2'`)
	if found := audited(t, s, AuditRequest{Bodies: true}); len(found) > 0 {
		t.Fatalf("before any fault: %v", found)
	}
	return s, pool
}

// forwardTo selects the forward of a delivery.
func forwardTo(deliveryID string) string {
	return `(SELECT o.id FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id WHERE i.delivery_id = '` + deliveryID + `' ORDER BY o.destination LIMIT 1)`
}

// Each fault is named, and it alone.
func TestAuditNamesEachFault(t *testing.T) {
	t.Parallel()
	const unguarded = `BEGIN; SET LOCAL session_replication_role = replica; `
	for _, c := range []struct {
		kind      DiscrepancyKind
		where     string // delivery id, or id of the resource
		forwarded bool   // a forward is named
		fault     string
	}{
		{DiffForwardMissing, "both", false, `DELETE FROM hooklatch.outbox WHERE id = ` + forwardTo("both")},
		{DiffForwardMissing, "none", false, `INSERT INTO hooklatch.audit (tenant, actor, action, reason, inbox_id, detail)
			SELECT 't1', 'ann', 'route', 'late', id, 'app, other' FROM hooklatch.inbox WHERE delivery_id = 'none';
			INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at) SELECT id, tenant, 'app', now() FROM hooklatch.inbox WHERE delivery_id = 'none'`},
		{DiffBodyMissing, "again", false, `DELETE FROM hooklatch.payload USING hooklatch.inbox WHERE id = inbox_id AND delivery_id = 'again'`},
		{DiffBodyAltered, "again", false, `UPDATE hooklatch.payload SET body = 'z' FROM hooklatch.inbox WHERE id = inbox_id AND delivery_id = 'again'`},
		{DiffAttemptMissing, "done", true, `DELETE FROM hooklatch.attempt WHERE number = 1 AND outbox_id = ` + forwardTo("done")},
		{DiffAttemptExtra, "again", true, `UPDATE hooklatch.outbox SET attempts = 0 WHERE id = ` + forwardTo("again")},
		{DiffAcceptedUnproven, "done", true, `UPDATE hooklatch.attempt SET class = '5xx' WHERE outbox_id = ` + forwardTo("done")},
		{DiffAcceptedUnproven, "dead", true, `UPDATE hooklatch.outbox SET state = 'accepted' WHERE id = ` + forwardTo("dead")},
		{DiffAcceptedLost, "done", true, `UPDATE hooklatch.outbox SET state = 'pending' WHERE id = ` + forwardTo("done")},
		{DiffHoldUnexplained, "both", true, `UPDATE hooklatch.outbox SET hold_reason = NULL WHERE state = 'held' AND destination = 'other'`},
		{DiffLeaseAbandoned, "leased", true, `UPDATE hooklatch.outbox SET lease_until = now() - interval '2 hours' WHERE id = ` + forwardTo("leased")},
		{DiffLeaseSettled, "dead", true, `UPDATE hooklatch.outbox SET lease_until = now(), attempts = 2 WHERE id = ` + forwardTo("dead")},
		{DiffLaneMissing, "r1-3", true, `DELETE FROM hooklatch.resource WHERE resource_id = '1'`},
		{DiffAppliedBehind, "r1-1", true, `UPDATE hooklatch.resource SET applied = 0 WHERE resource_id = '1'`},
		{DiffAppliedUnproven, "1", false, `UPDATE hooklatch.resource SET applied = 2, passed = 2 WHERE resource_id = '1'`},
		{DiffAppliedUnproven, "1", false, `UPDATE hooklatch.resource SET deleted = true WHERE resource_id = '1'`},
		{DiffPassedBehind, "1", false, `UPDATE hooklatch.resource SET passed = NULL WHERE resource_id = '1'`},
		{DiffLaneLeases, "1", true, `UPDATE hooklatch.outbox SET lease_until = now() + interval '1 minute', attempts = 1 WHERE id = ` + forwardTo("r1-2")},
		{DiffLaneLeases, "1", true, `UPDATE hooklatch.resource SET in_flight = ` + forwardTo("r1-2") + `;
			UPDATE hooklatch.outbox SET lease_until = now() + interval '1 minute', attempts = 1 WHERE id IN (` + forwardTo("r1-2") + `, ` + forwardTo("r1-3") + `)`},
		{DiffLaneStuck, "1", true, `UPDATE hooklatch.outbox SET waiting = true WHERE id = ` + forwardTo("r1-2")},
		{DiffLaneStuck, "1", true, `UPDATE hooklatch.outbox SET state = 'cancelled' WHERE id = ` + forwardTo("r1-2")},
		{DiffGapWithoutHeld, "2", false, `UPDATE hooklatch.outbox SET state = 'cancelled', hold_reason = NULL WHERE id = ` + forwardTo("r2-3")},
		{DiffGapMissing, "2", true, `DELETE FROM hooklatch.gap`},
		{DiffConflictCap, "done", false, `INSERT INTO hooklatch.conflict (tenant, source, delivery_id, body_hash, headers, body)
			SELECT 't1', 'src1', 'done', sha256(n::text::bytea), '', '' FROM generate_series(1, 8) n`},
		{DiffConflictSameBody, "done", false, `UPDATE hooklatch.conflict SET body_hash = sha256('x')`},
		{DiffConflictOrphan, "gone", false, `UPDATE hooklatch.conflict SET delivery_id = 'gone'`},
		{DiffForwardOrphan, "", true, unguarded + `DELETE FROM hooklatch.payload USING hooklatch.inbox WHERE id = inbox_id AND delivery_id = 'again';
			DELETE FROM hooklatch.inbox WHERE delivery_id = 'again'; COMMIT`},
		{DiffBodyOrphan, "", false, unguarded + `DELETE FROM hooklatch.inbox WHERE delivery_id = 'none'; COMMIT`},
		{DiffAttemptOrphan, "", true, `UPDATE hooklatch.inbox SET forwards = 0 WHERE delivery_id = 'done'; DELETE FROM hooklatch.outbox WHERE id = ` + forwardTo("done")},
	} {
		t.Run(fmt.Sprintf("%s of %s", c.kind, c.where), func(t *testing.T) {
			t.Parallel()
			s, pool := auditScene(t)
			exec(t, pool, c.fault)
			found := audited(t, s, AuditRequest{Bodies: true})
			if len(found) != 1 || found[0].Kind != c.kind {
				t.Fatalf("%v, want %s alone", found, c.kind)
			}
			if where := found[0].DeliveryID + found[0].ResourceID; found[0].DeliveryID != c.where && found[0].ResourceID != c.where {
				t.Errorf("it names %q, want %q", where, c.where)
			}
			if (found[0].ForwardID != 0) != c.forwarded {
				t.Errorf("forward %d is named", found[0].ForwardID)
			}
			t.Log(found[0])
		})
	}
}

// Two leases have attempt 1, since the first was handed back. Its worker ends late, and
// the second is handed back too: the ledger has a number that no longer counts.
func TestAuditTakesALateEndForNoAttempt(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	accept(t, s, delivery("dlv_1", "x"))
	lost := claimOne(t, s, time.Time{})
	if err := s.Settle(t.Context(), settlement(lost, OutcomeReleased, "")); err != nil {
		t.Fatal(err)
	}
	f := claimOne(t, s, time.Time{})
	if err := s.Settle(t.Context(), settlement(lost, OutcomeRetry, "5xx")); !errors.Is(err, ErrLeaseLost) {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), settlement(f, OutcomeReleased, "")); err != nil {
		t.Fatal(err)
	}
	if found := audited(t, s, AuditRequest{}); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

// What retention or a person has removed is no difference; what they cannot have
// removed is.
func TestAuditKnowsRetention(t *testing.T) {
	t.Parallel()
	s, pool := auditScene(t)
	old := `UPDATE hooklatch.inbox SET received_at = now() - interval '40 days' WHERE delivery_id = `
	exec(t, pool, old+`'done'; `+old+`'again'`)
	exec(t, pool, `DELETE FROM hooklatch.payload USING hooklatch.inbox WHERE id = inbox_id AND delivery_id = 'done';
		DELETE FROM hooklatch.attempt WHERE number = 1 AND outbox_id = `+forwardTo("done"))
	kinds := func(r AuditRequest) (kinds []string) {
		for _, d := range audited(t, s, r) {
			kinds = append(kinds, string(d.Kind)+" "+d.DeliveryID)
		}
		slices.Sort(kinds)
		return kinds
	}
	missing := []string{"attempt_missing done", "body_missing done"}
	month := AuditRequest{Retention: Retention{Bodies: time.Now().AddDate(0, 0, -30), Attempts: time.Now().AddDate(0, 0, -30)}}
	if found := kinds(month); len(found) > 0 {
		t.Errorf("what retention removed: %v", found)
	}
	year := AuditRequest{Retention: Retention{Bodies: time.Now().AddDate(-1, 0, 0), Attempts: time.Now().AddDate(-1, 0, 0)}}
	for _, r := range []AuditRequest{{}, year} {
		if found := kinds(r); !slices.Equal(found, missing) {
			t.Errorf("nothing has removed %v", found)
		}
	}
	act := Act{Actor: "ann", Reason: "asked for"}
	var received time.Time
	for d, err := range s.Find(t.Context(), Filter{ID: "done"}) {
		if err != nil {
			t.Fatal(err)
		}
		received = d.ReceivedAt
	}
	for _, by := range []struct {
		tenant string
		r      Retention
		hidden bool
	}{
		{"t2", Retention{Bodies: time.Now()}, false},
		{"t1", Retention{Bodies: time.Now(), Source: "src2"}, false},
		{"t1", Retention{Bodies: time.Now().AddDate(0, 0, -41)}, false},
		{"t1", Retention{Bodies: received.Add(time.Microsecond), Source: "src1"}, true},
	} {
		if err := s.RecordPrune(t.Context(), []string{by.tenant}, by.r, act); err != nil {
			t.Fatal(err)
		}
		if found := kinds(year); (len(found) == 0) != by.hidden {
			t.Errorf("after %+v: %v", by, found)
		}
	}
	exec(t, pool, `DELETE FROM hooklatch.payload USING hooklatch.inbox WHERE id = inbox_id AND delivery_id = 'again';
		INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class) SELECT id, 3, tenant, now(), '5xx' FROM hooklatch.outbox WHERE id = `+forwardTo("again")+`;
		UPDATE hooklatch.outbox SET attempts = 3 WHERE id = `+forwardTo("again"))
	if found := kinds(month); !slices.Equal(found, []string{"attempt_missing again", "body_missing again"}) {
		t.Errorf("%v; attempt 2 is missing between 1 and 3, and the body of a forward that is to be sent", found)
	}
}

// Source and Since bound what is compared.
func TestAuditIsBounded(t *testing.T) {
	t.Parallel()
	s, pool := auditScene(t)
	exec(t, pool, `DELETE FROM hooklatch.payload`)
	kinds := func(r AuditRequest) (n int) {
		for _, d := range audited(t, s, r) {
			if d.Kind == DiffBodyMissing {
				n++
			}
		}
		return n
	}
	all := kinds(AuditRequest{})
	if n := kinds(AuditRequest{Source: "src1"}); n != all || all != 11 {
		t.Errorf("%d of the source, %d of all", n, all)
	}
	if n := kinds(AuditRequest{Source: "src2"}); n != 0 {
		t.Errorf("%d of another source", n)
	}
	exec(t, pool, `UPDATE hooklatch.inbox SET received_at = now() - interval '1 day' WHERE delivery_id LIKE 'r%'`)
	if n := kinds(AuditRequest{Since: time.Now().Add(-time.Hour)}); n != all-5 {
		t.Errorf("%d of the last hour, want %d", n, all-5)
	}
}

// What belongs to another source, or is older, is not compared; nor are all lanes read
// for those of one source.
func TestAuditOfOneSourceReadsLittle(t *testing.T) {
	t.Parallel()
	s, pool := auditScene(t)
	exec(t, pool, `UPDATE hooklatch.resource SET passed = NULL`)
	exec(t, pool, `UPDATE hooklatch.conflict SET body_hash = sha256('x')`)
	for _, c := range []struct {
		r    AuditRequest
		want int
	}{
		{AuditRequest{Source: "src1"}, 3}, {AuditRequest{Source: "src2"}, 0},
		{AuditRequest{Since: time.Now().Add(-time.Hour)}, 3}, {AuditRequest{Since: time.Now().Add(time.Hour)}, 0},
	} {
		if found := audited(t, s, c.r); len(found) != c.want {
			t.Errorf("%+v: %v", c.r, found)
		}
	}
	fill(t, pool, 1, 20_000)
	exec(t, pool, `UPDATE hooklatch.inbox SET source = 'src2' WHERE delivery_id IN ('old_7', 'old_9000')`)
	exec(t, pool, `VACUUM ANALYZE`)
	forgetReads(t, s, pool)
	audited(t, s, AuditRequest{Source: "src2"})
	if n := rowsRead(t, s, pool); n > 200 {
		t.Errorf("%d rows were read for two deliveries", n)
	}
}

// What takes too long in one statement is looked at in several; what is gone at the
// second look is not told.
func TestAuditHalvesAPageThatTakesTooLong(t *testing.T) {
	t.Parallel()
	looks := map[int64]int{}
	e := edge{check: func(_ context.Context, keys []int64) (found []suspect, err error) {
		if len(keys) > 3 {
			return nil, &pgconn.PgError{Code: "57014"}
		}
		for _, k := range keys {
			if looks[k]++; k != 4 || looks[k] == 1 {
				found = append(found, suspect{key: k})
			}
		}
		return found, nil
	}}
	found, err := e.confirmed(t.Context(), []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	if err != nil {
		t.Fatal(err)
	}
	var keys []int64
	for _, f := range found {
		keys = append(keys, f.key)
	}
	if !slices.Equal(keys, []int64{1, 2, 3, 5, 6, 7, 8, 9, 10}) {
		t.Errorf("found %v, want all but 4", keys)
	}
}

// Two pages and more are read, each row once.
func TestAuditGoesThroughEveryPage(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	fill(t, pool, 1, 2*auditPage+7)
	exec(t, pool, `UPDATE hooklatch.inbox SET forwards = 1;
		INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class) SELECT id, 1, tenant, now(), '2xx' FROM hooklatch.outbox;
		UPDATE hooklatch.outbox SET attempts = 1;
		DELETE FROM hooklatch.payload USING hooklatch.inbox WHERE id = inbox_id AND delivery_id IN ('old_1', 'old_5000', 'old_5001', 'old_10007')`)
	rows := map[string]int64{}
	found := audited(t, s, AuditRequest{OnPage: func(what string, n, _ int64) { rows[what] = n }})
	var ids []string
	for _, d := range found {
		ids = append(ids, d.DeliveryID)
	}
	if !slices.Equal(ids, []string{"old_1", "old_5000", "old_5001", "old_10007"}) {
		t.Errorf("found %v", ids)
	}
	if n := rows["deliveries and forwards"]; n != 2*auditPage+7 {
		t.Errorf("%v rows were looked at", rows)
	}
}

// On a system at work nothing looks wrong, however often it is looked at: each page is
// one snapshot, and every transaction leaves the tables in agreement.
func TestAuditOfABusySystemFindsNothing(t *testing.T) {
	t.Parallel()
	s, pool := auditScene(t)
	stop, done := make(chan struct{}), make(chan error, 4)
	for w := range cap(done) {
		go func() {
			done <- churn(t.Context(), s, w, stop)
		}()
	}
	// missing is what has not come about yet.
	missing := func() (where []string) {
		for _, w := range []string{"outbox WHERE state = 'superseded'", "outbox WHERE waiting", "outbox WHERE state = 'blocked'", "outbox WHERE state = 'cancelled'",
			"outbox WHERE state = 'held'", "gap WHERE closed_by = 'timeout'", "gap WHERE closed_by = 'arrival'", "gap WHERE closed_at IS NULL", "audit"} {
			if count(t, pool, `SELECT count(*) FROM (SELECT FROM hooklatch.`+w+` LIMIT 1) x`) == 0 {
				where = append(where, w)
			}
		}
		return where
	}
	deadline := time.Now().Add(90 * time.Second)
	for rounds := 0; (rounds < 10 || len(missing()) > 0) && time.Now().Before(deadline) && !t.Failed(); rounds++ {
		for _, d := range audited(t, s, AuditRequest{Bodies: true}) {
			t.Errorf("audit: %s", d)
		}
	}
	if where := missing(); len(where) > 0 {
		t.Errorf("void: there is no %q", where)
	}
	close(stop)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// churn accepts, repeats, contradicts, claims, settles and acts until stop is closed.
func churn(ctx context.Context, s *Store, worker int, stop chan struct{}) error {
	orderings := []Ordering{OrderNone, OrderLatest, OrderCoalesce, OrderStrict}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		d := delivery(fmt.Sprintf("busy-%d-%d", worker, n), "x")
		// Revisions that all workers bring out of order, some of them never.
		d.ResourceType, d.ResourceID, d.Revision = "thing", fmt.Sprint(n/40), new(int64(1+(n*7+worker*11)%20))
		d.Forwards = nil
		for _, o := range orderings {
			d.Forwards = append(d.Forwards, NewForward{Destination: "to-" + string(o), Ordering: o, GapTimeout: time.Duration(n%2) * time.Millisecond})
		}
		for range 2 {
			if _, err := s.Accept(ctx, d); err != nil {
				return err
			}
		}
		var conflict *ConflictError
		if _, err := s.Accept(ctx, delivery(d.DeliveryID, fmt.Sprint("y", n))); !errors.As(err, &conflict) {
			return fmt.Errorf("other bytes: %v", err)
		}
		if err := jump(ctx, s, fmt.Sprintf("%d-%d", worker, n)); err != nil {
			return err
		}
		o := orderings[n%len(orderings)]
		claimed, err := s.Claim(ctx, ClaimRequest{Destination: "to-" + string(o), Limit: 5, Lease: time.Minute})
		if err != nil {
			return err
		}
		for i, f := range claimed {
			if err := churnOne(ctx, s, f, n+i); err != nil {
				return err
			}
		}
	}
}

// jump makes a gap that time closes, and one that closes when what was missing comes.
func jump(ctx context.Context, s *Store, name string) error {
	for _, timeout := range []time.Duration{time.Millisecond, 0} {
		destination := fmt.Sprintf("to-jump-%s-%s", name, timeout)
		for _, revision := range []int64{1, 3, 2} {
			d := delivery(fmt.Sprintf("%s-%d", destination, revision), "x")
			d.ResourceType, d.ResourceID, d.Revision = "jump", destination, &revision
			d.Forwards = []NewForward{{Destination: destination, Ordering: OrderStrict, GapTimeout: timeout}}
			if _, err := s.Accept(ctx, d); err != nil {
				return err
			}
			claimed, err := s.Claim(ctx, ClaimRequest{Destination: destination, Limit: 5, Lease: time.Minute})
			for _, f := range claimed {
				err = errors.Join(err, s.Settle(ctx, settlement(f, OutcomeAccepted, "2xx")))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// churnOne ends one lease, and lets a person act on what came of it.
func churnOne(ctx context.Context, s *Store, f Forward, n int) error {
	st := settlement(f, OutcomeAccepted, "2xx")
	switch n % 5 {
	case 0:
		st.Outcome, st.Class = OutcomeRetry, "5xx"
	case 1:
		st.Outcome = OutcomeReleased
	case 2, 3:
		st.Outcome, st.Class = OutcomeBlocked, "4xx"
	}
	if err := s.Settle(ctx, st); err != nil {
		return err
	}
	act := Act{Actor: "ann", Reason: "test"}
	var err error
	switch {
	case st.Outcome == OutcomeBlocked && n%4 == 0:
		err = s.Replay(ctx, f.ID, ReplayRequest{Act: act, Force: n%8 == 0})
	case st.Outcome == OutcomeBlocked && n%4 == 1:
		err = s.Cancel(ctx, f.ID, act)
	case n%7 == 0 && f.Ordering == OrderStrict:
		d := f.Delivery
		_, _, err = s.Release(ctx, ResourceRef{Tenant: d.Tenant, Destination: f.Destination, Source: d.Source, ResourceType: d.ResourceType, ResourceID: d.ResourceID}, act)
	}
	if errors.Is(err, ErrState) || errors.Is(err, ErrSuperseded) || errors.Is(err, ErrInFlight) || errors.Is(err, ErrNotFound) {
		return nil // somebody was faster, or there is nothing to do
	}
	return err
}
