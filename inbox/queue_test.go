package inbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func ledger(t testing.TB, s *Store, forwardID int64) []string {
	t.Helper()
	var lines []string
	for a, err := range s.Attempts(t.Context(), AttemptFilter{ForwardID: forwardID}) {
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprint(a.Number, " ", a.Class)
		if a.Late {
			line += " late"
		}
		lines = append(lines, line)
	}
	return lines
}

func forwardOf(t testing.TB, s *Store, deliveryID int64) Forward {
	t.Helper()
	forwards, err := s.Forwards(t.Context(), deliveryID)
	if err != nil || len(forwards) != 1 {
		t.Fatalf("%d forwards, %v; want 1", len(forwards), err)
	}
	return forwards[0]
}

func settlement(f Forward, outcome Outcome, class string) Settlement {
	return Settlement{ForwardID: f.ID, Tenant: f.Delivery.Tenant, Token: f.Token, Attempt: f.Attempt, Outcome: outcome, Class: class}
}

func TestClaimHandsOverWhatWasReceived(t *testing.T) {
	s, _ := newStore(t)
	d := delivery("dlv_1", "body\x00")
	d.Header = map[string][]string{"X-A": {"1", "2"}}
	d.EventType, d.KeyID = "invoice.paid", "k1"
	r := accept(t, s, d)
	f := claimOne(t, s, time.Time{})
	if got := f.Delivery; string(got.Body) != "body\x00" || got.BodyHash != d.BodyHash || got.DeliveryID != "dlv_1" || got.ID != r.ID ||
		got.Method != "POST" || !slices.Equal(got.Header["X-A"], []string{"1", "2"}) || got.EventType != "invoice.paid" || got.KeyID != "k1" {
		t.Errorf("delivery %+v", got)
	}
	if f.Attempt != 1 || f.Token != 1 || f.State != Pending || f.Destination != "app" || time.Until(f.LeaseUntil) < 50*time.Second {
		t.Errorf("forward %+v", f)
	}
	if got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 9, Lease: time.Minute}); err != nil || len(got) != 0 {
		t.Errorf("claimed again while leased: %v, %v", got, err)
	}
	if got, err := s.Claim(t.Context(), ClaimRequest{Destination: "other", Limit: 9, Lease: time.Minute}); err != nil || len(got) != 0 {
		t.Errorf("claimed for another destination: %v, %v", got, err)
	}
}

func TestClaimTakesTheOldestDueFirst(t *testing.T) {
	s, _ := newStore(t)
	for i := range 5 {
		accept(t, s, delivery(fmt.Sprint(i), "x"))
	}
	got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 3, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, f := range got {
		ids = append(ids, f.Delivery.DeliveryID)
	}
	if !slices.Equal(ids, []string{"0", "1", "2"}) {
		t.Errorf("claimed %v", ids)
	}
}

func TestSettleMovesTheForward(t *testing.T) {
	t0 := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	for _, c := range []struct {
		name   string
		change func(*Settlement)
		class  string
		want   Forward
		ledger []string
	}{
		{"accepted", func(st *Settlement) { st.Outcome = OutcomeAccepted }, "2xx",
			Forward{State: Accepted, Attempt: 1, SettledAt: t0, NextAttemptAt: t0}, []string{"1 2xx"}},
		{"retry", func(st *Settlement) { st.Outcome, st.Delay = OutcomeRetry, 90*time.Second }, "5xx",
			Forward{State: RetryWait, Attempt: 1, NextAttemptAt: t0.Add(90 * time.Second)}, []string{"1 5xx"}},
		{"free retry", func(st *Settlement) { st.Outcome, st.Free, st.Delay = OutcomeRetry, true, time.Second }, "429",
			Forward{State: RetryWait, Attempt: 1, AttemptsFree: 1, NextAttemptAt: t0.Add(time.Second)}, []string{"1 429"}},
		{"blocked", func(st *Settlement) { st.Outcome, st.Reason = OutcomeBlocked, "answer_refused" }, "4xx",
			Forward{State: Blocked, Attempt: 1, BlockedReason: "answer_refused", SettledAt: t0, NextAttemptAt: t0}, []string{"1 4xx"}},
		{"released", func(st *Settlement) { st.Outcome, st.Class = OutcomeReleased, "" }, "",
			Forward{State: Pending, Attempt: 0}, nil},
		{"hostile answer", func(st *Settlement) {
			st.Outcome, st.Error, st.Answer = OutcomeRetry, "nul \x00 and \xff", []byte("\x00\xff")
		}, "5xx", Forward{State: RetryWait, Attempt: 1, NextAttemptAt: t0}, []string{"1 5xx"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := newStore(t)
			r := accept(t, s, delivery("dlv_1", "x"))
			f := claimOne(t, s, time.Time{})
			st := Settlement{ForwardID: f.ID, Tenant: f.Delivery.Tenant, Token: f.Token, Attempt: f.Attempt, Class: c.class, Now: t0}
			c.change(&st)
			for range 2 { // the second is the repeat after a lost answer
				if err := s.Settle(t.Context(), st); err != nil {
					t.Fatal(err)
				}
			}
			got := forwardOf(t, s, r.ID)
			if c.name == "released" {
				c.want.NextAttemptAt = r.ReceivedAt
			}
			if got.State != c.want.State || got.Attempt != c.want.Attempt || got.AttemptsFree != c.want.AttemptsFree ||
				got.BlockedReason != c.want.BlockedReason || !got.SettledAt.Equal(c.want.SettledAt) ||
				!got.NextAttemptAt.Equal(c.want.NextAttemptAt) || !got.LeaseUntil.IsZero() {
				t.Errorf("forward %+v\nwant    %+v", got, c.want)
			}
			if l := ledger(t, s, f.ID); !slices.Equal(l, c.ledger) {
				t.Errorf("ledger %v, want %v", l, c.ledger)
			}
		})
	}
}

// P05, E9: the late finisher changes nothing but the ledger.
func TestP05_LostLeaseChangesNothing(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	r := accept(t, s, delivery("dlv_1", "x"))
	late := claimOne(t, s, time.Time{})
	now := time.Now().Add(2 * time.Minute) // the lease of a minute is over
	holder := claimOne(t, s, now)
	if holder.ID != late.ID || holder.Token != late.Token+1 || holder.Attempt != 2 {
		t.Fatalf("second lease %+v after %+v", holder, late)
	}
	for _, outcome := range []Outcome{OutcomeAccepted, OutcomeBlocked, OutcomeReleased} {
		st := settlement(late, outcome, "2xx")
		if err := s.Settle(t.Context(), st); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("settle with outcome %d: %v, want ErrLeaseLost", outcome, err)
		}
	}
	if _, err := s.Renew(t.Context(), late, time.Minute); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("renew: %v, want ErrLeaseLost", err)
	}
	if got := forwardOf(t, s, r.ID); got.State != Pending || got.Token != holder.Token || !got.LeaseUntil.Equal(holder.LeaseUntil) {
		t.Errorf("forward %+v is no longer the holder's %+v", got, holder)
	}
	if err := s.Settle(t.Context(), settlement(holder, OutcomeAccepted, "2xx")); err != nil {
		t.Error(err)
	}
	if err := s.Settle(t.Context(), settlement(late, OutcomeRetry, "5xx")); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("settle after the holder: %v, want ErrLeaseLost", err)
	}
	if got := forwardOf(t, s, r.ID); got.State != Accepted {
		t.Errorf("state %s", got.State)
	}
	if l := ledger(t, s, late.ID); !slices.Equal(l, []string{"1 unknown", "1 2xx late", "2 2xx"}) {
		t.Errorf("ledger %v", l)
	}
	if _, err := s.Renew(t.Context(), holder, time.Minute); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("renew after settle: %v, want ErrLeaseLost", err)
	}
}

// A stale and a live settlement of one forward may share a batch.
func TestSettleOfTwoLeasesInOneBatch(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	r := accept(t, s, delivery("dlv_1", "x"))
	late := claimOne(t, s, time.Time{})
	holder := claimOne(t, s, time.Now().Add(2*time.Minute))
	members := []*member[*settling]{
		{work: &settling{Settlement: settlement(late, OutcomeRetry, "5xx")}},
		{work: &settling{Settlement: settlement(holder, OutcomeAccepted, "2xx")}},
	}
	s.settleBatch(members)
	if members[0].work.held || !members[1].work.held || members[0].err != nil {
		t.Errorf("late held %v, holder held %v, %v", members[0].work.held, members[1].work.held, members[0].err)
	}
	if got := forwardOf(t, s, r.ID); got.State != Accepted {
		t.Errorf("state %s", got.State)
	}
}

func TestRenewProlongsTheLease(t *testing.T) {
	s, _ := newStore(t)
	accept(t, s, delivery("dlv_1", "x"))
	f := claimOne(t, s, time.Time{})
	until, err := s.Renew(t.Context(), f, time.Hour)
	if err != nil || until.Sub(f.LeaseUntil) < 58*time.Minute {
		t.Errorf("lease until %v after %v, %v", until, f.LeaseUntil, err)
	}
	if got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute, Now: time.Now().Add(2 * time.Minute)}); err != nil || len(got) != 0 {
		t.Errorf("claimed under a renewed lease: %v, %v", got, err)
	}
}

// X44: what has no attempts or no time left is blocked, and does not hide what
// is due behind it.
func TestX44_SpentForwardsAreBlockedAtClaim(t *testing.T) {
	s, pool := newStore(t)
	for _, id := range []string{"exhausted", "expired", "free", "pruned", "good"} {
		accept(t, s, delivery(id, "x"))
	}
	set := func(id, what string) {
		exec(t, pool, `UPDATE hooklatch.outbox SET `+what+` WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = $1)`, id)
	}
	set("exhausted", `attempts = 3`)
	set("expired", `expires_at = now()`)
	set("free", `attempts = 3, attempts_free = 1`)
	exec(t, pool, `DELETE FROM hooklatch.payload WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = 'pruned')`)
	var ids []string
	for range 2 {
		got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute, MaxAttempts: 3})
		if err != nil || len(got) != 1 {
			t.Fatalf("%d claimed, %v; want 1 though the head is spent", len(got), err)
		}
		ids = append(ids, got[0].Delivery.DeliveryID)
	}
	if !slices.Equal(ids, []string{"free", "good"}) {
		t.Errorf("claimed %v", ids)
	}
	for id, reason := range map[string]string{"exhausted": ReasonAttemptsExhausted, "expired": ReasonDeadlinePassed, "pruned": ReasonBodyPruned} {
		if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = inbox_id
			WHERE delivery_id = $1 AND state = 'blocked' AND blocked_reason = $2 AND lease_until IS NULL AND settled_at IS NOT NULL`, id, reason); n != 1 {
			t.Errorf("%s is not blocked with reason %s", id, reason)
		}
	}
}

// E10, X44: a forward that kills its process each time uses up an attempt with each
// claim. It ends as a dead letter, and holds up nobody meanwhile.
func TestCaseE10_X44_CrashUsesUpAnAttempt(t *testing.T) {
	for n, ordering := range []Ordering{OrderNone, OrderNone, OrderLatest, OrderCoalesce, OrderStrict} {
		most := []int{1, 3}[n%2]
		s, _ := newStore(t)
		wholeAtEnd(t, s.pool)
		deadly := ofResource(ordering, "r", 1)
		deadly.DeliveryID = "deadly"
		r := accept(t, s, deadly)
		accept(t, s, delivery("good", "x"))
		now := time.Now().Add(time.Minute)
		claim := func() (ids []string) {
			got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 2, Lease: time.Minute, MaxAttempts: most, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range got {
				ids = append(ids, f.Delivery.DeliveryID)
				if f.Delivery.DeliveryID == "good" {
					settle1(t, s, f, OutcomeAccepted)
				}
			}
			now = now.Add(time.Hour) // the process is gone, and its lease runs out
			return ids
		}
		wantIDs(t, claim(), "deadly", "good")
		for range most - 1 {
			wantIDs(t, claim(), "deadly")
		}
		wantIDs(t, claim())
		f := forwardOf(t, s, r.ID)
		if f.State != Blocked || f.BlockedReason != ReasonAttemptsExhausted || !f.LeaseUntil.IsZero() {
			t.Errorf("%+v", f)
		}
		if l := ledger(t, s, f.ID); !slices.Equal(l, []string{"1 unknown", "2 unknown", "3 unknown"}[:most]) {
			t.Errorf("ledger %v", l)
		}
	}
}

func TestSpentForwardsTakeNobodysPlace(t *testing.T) {
	s, pool := newStore(t)
	for i := range 10 {
		accept(t, s, delivery(fmt.Sprint("dlv_", i), "x"))
	}
	exec(t, pool, "UPDATE hooklatch.outbox SET attempts = 3 WHERE id % 2 = 0")
	got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 4, Lease: time.Minute, MaxAttempts: 3})
	if err != nil || len(got) != 4 {
		t.Errorf("claimed %d, %v; want 4, since 5 are due and have attempts left", len(got), err)
	}
}

// Large bodies must not make one claim so long that it never ends in time, and is
// taken back and begun again for ever.
func TestClaimOfLargeBodiesIsSeveralTransactions(t *testing.T) {
	s, _, proxy := faulty(t)
	s.cfg.MaxBatchBytes = 100
	sizes := []int{60, 40, 0, 300, 60, 41, 0}
	for i, size := range sizes {
		accept(t, s, delivery(fmt.Sprint(i), strings.Repeat("x", size)))
	}
	commits := proxy.Counts().Commits
	got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Tenants: []string{"t1"}, Limit: 50, Lease: time.Minute})
	if err != nil || len(got) != len(sizes) {
		t.Fatalf("%d claimed, %v; want %d", len(got), err, len(sizes))
	}
	for i, f := range got {
		if f.Delivery.DeliveryID != fmt.Sprint(i) || len(f.Delivery.Body) != sizes[i] {
			t.Errorf("forward %d is delivery %s of %d bytes", i, f.Delivery.DeliveryID, len(f.Delivery.Body))
		}
	}
	if n := proxy.Counts().Commits - commits; n != 4 { // 100, 300, 60, 41
		t.Errorf("%d transactions, want 4", n)
	}
}

func TestClaimDoesNotScanPayloads(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, delivery("dlv_1", "x"))
	exec(t, pool, `INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size)
		SELECT 't1', 'src1', 'old_' || n, sha256('x'), 1 FROM generate_series(1, 5000) n`)
	exec(t, pool, `INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body)
		SELECT id, 't1', 'POST', '', '', repeat('x', 200)::bytea FROM hooklatch.inbox WHERE delivery_id LIKE 'old%'`)
	exec(t, pool, `INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at)
		SELECT id, 't1', 'app', now() + interval '1 day' FROM hooklatch.inbox WHERE delivery_id LIKE 'old%'`)
	exec(t, pool, "ANALYZE")
	rows, err := pool.Query(t.Context(), "EXPLAIN "+claimSQL, nil, 12, "app", time.Minute, 0, 8<<20,
		[]string{"t1"}, []string{"pending"}, []int32{16}, 0)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range plan {
		if strings.Contains(line, "Seq Scan on payload") || strings.Contains(line, "Seq Scan on outbox") {
			t.Errorf("the claim reads a whole table:\n%s", strings.Join(plan, "\n"))
		}
	}
}

func TestPausedDestinationHasNothingDue(t *testing.T) {
	s, pool := newStore(t)
	if err := s.SaveDestinations(t.Context(), 0, []Destination{{Name: "app", URL: "http://app"}}); err != nil {
		t.Fatal(err)
	}
	accept(t, s, delivery("dlv_1", "x"))
	exec(t, pool, `UPDATE hooklatch.destination SET paused_at = now(), paused_by = 'me', pause_reason = 'deploy'`)
	if got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute}); err != nil || len(got) != 0 {
		t.Errorf("claimed %v, %v", got, err)
	}
	if err := s.SaveDestinations(t.Context(), 0, []Destination{{Name: "app", URL: "http://elsewhere"}}); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context())
	if err != nil || len(stats) != 1 || !stats[0].Paused || stats[0].Open[Pending] != 1 {
		t.Errorf("stats %+v, %v", stats, err)
	}
	exec(t, pool, `UPDATE hooklatch.destination SET paused_at = NULL`)
	claimOne(t, s, time.Time{})
}

// What is in flight is told apart from what was not begun, of every tenant and kind.
func TestStatsCountWhatIsInFlight(t *testing.T) {
	s, pool := newStore(t)
	for _, tenant := range []string{"t1", "t2"} {
		dueOf(t, s, tenant, tenant+"-alone", OrderNone, 4)
		dueOf(t, s, tenant, tenant+"-ordered", OrderStrict, 4)
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'retry_wait' WHERE id % 2 = 0`)
	inFlight := func() int {
		stats, err := s.Stats(t.Context())
		if err != nil || len(stats) != 1 || stats[0].Open[Pending]+stats[0].Open[RetryWait] != 16 {
			t.Fatalf("%+v, %v", stats, err)
		}
		return stats[0].InFlight
	}
	if n := inFlight(); n != 0 {
		t.Errorf("%d in flight before any claim", n)
	}
	all, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 12, ForRetries: 6, Lease: time.Minute, Shares: map[string]Share{}})
	if err != nil || len(all) != 12 {
		t.Fatalf("%d claimed, %v", len(all), err)
	}
	if n := inFlight(); n != 12 {
		t.Errorf("%d in flight, want 12", n)
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET lease_until = now() WHERE id = $1`, all[0].ID)
	if n := inFlight(); n != 11 {
		t.Errorf("%d in flight after a lease has run out, want 11", n)
	}
}
