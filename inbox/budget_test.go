package inbox

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// wanted is the ledger of a forward with who wanted each attempt.
func wanted(t testing.TB, s *Store, forwardID int64) (lines []string) {
	t.Helper()
	for a, err := range s.Attempts(t.Context(), AttemptFilter{ForwardID: forwardID}) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%d %s by %q, late %v", a.Number, a.Class, a.ReplayedBy, a.Late))
	}
	return lines
}

// allow makes the forwards due again, as a person's replay does, up to the attempt of
// this number.
func allow(t testing.TB, pool *pgxpool.Pool, most int, actor string) {
	t.Helper()
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'retry_wait', blocked_reason = NULL, settled_at = NULL, next_attempt_at = clock_timestamp(),
		attempts_max = $1, replayed_by = $2`, most, actor)
}

// A replay has the attempts that it was given, however many the destination would allow,
// and whatever the worker decides about the last of them.
func TestX44_ReplayHasTheAttemptsItWasGiven(t *testing.T) {
	for _, ordering := range []Ordering{OrderNone, OrderLatest, OrderCoalesce, OrderStrict} {
		t.Run(string(ordering), func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			wholeAtEnd(t, s.pool)
			r := accept(t, s, ofResource(ordering, "r", 1))
			first := claimOne(t, s, time.Time{})
			if first.Last || first.ReplayedBy != "" {
				t.Errorf("the first attempt: last %v, wanted by %q", first.Last, first.ReplayedBy)
			}
			settle1(t, s, first, OutcomeBlocked)
			allow(t, pool, 3, "ann")
			claim := func(now time.Time) Forward {
				got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute, MaxAttempts: 1, Now: now})
				if err != nil || len(got) != 1 {
					t.Fatalf("%d claimed, %v: a replay is not bound by the budget of its destination", len(got), err)
				}
				return got[0]
			}
			f := claim(time.Time{})
			if f.Last || f.ReplayedBy != "ann" || f.Attempt != 2 {
				t.Errorf("attempt %d, last %v, wanted by %q", f.Attempt, f.Last, f.ReplayedBy)
			}
			settle1(t, s, f, OutcomeRetry)
			released := claim(time.Time{})
			settle1(t, s, released, OutcomeReleased)
			f = claim(time.Time{})
			if !f.Last || f.Attempt != 3 {
				t.Errorf("attempt %d, last %v", f.Attempt, f.Last)
			}
			if listed := forwardOf(t, s, r.ID); !listed.Last || listed.ReplayedBy != "ann" {
				t.Errorf("listed as %+v", listed)
			}
			for range 2 { // the second is the repeat after a lost answer
				settle1(t, s, f, OutcomeRetry)
			}
			got := forwardOf(t, s, r.ID)
			if got.State != Blocked || got.BlockedReason != ReasonAttemptsExhausted || got.SettledAt.IsZero() {
				t.Errorf("after its last attempt: %+v", got)
			}
			want := []string{`1 4xx by "", late false`, `2 5xx by "ann", late false`, `3 5xx by "ann", late false`}
			if lines := wanted(t, s, f.ID); !slices.Equal(lines, want) {
				t.Errorf("ledger %q", lines)
			}
		})
	}
}

// A replay that kills its process has had its attempt. The ledger names who wanted it;
// what comes late of an attempt before it was wanted by nobody.
func TestX44_LostAttemptOfAReplayIsItsLast(t *testing.T) {
	for _, ordering := range []Ordering{OrderNone, OrderLatest, OrderStrict} {
		t.Run(string(ordering), func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			wholeAtEnd(t, s.pool)
			r := accept(t, s, ofResource(ordering, "r", 1))
			stale := claimOne(t, s, time.Time{})
			now := time.Now().Add(2 * time.Minute)
			claim := func() []Forward {
				got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute, MaxAttempts: 1, Now: now})
				if err != nil {
					t.Fatal(err)
				}
				now = now.Add(2 * time.Minute)
				return got
			}
			if got := claim(); len(got) != 0 {
				t.Fatalf("claimed %+v, with no attempt left", got)
			}
			allow(t, pool, 2, "ann")
			if got := claim(); len(got) != 1 || !got[0].Last {
				t.Fatalf("claimed %+v, want the last attempt", got)
			}
			if err := s.Settle(t.Context(), settlement(stale, OutcomeAccepted, "2xx")); !errors.Is(err, ErrLeaseLost) {
				t.Fatal(err)
			}
			if got := claim(); len(got) != 0 {
				t.Errorf("claimed %+v: a third attempt", got)
			}
			if f := forwardOf(t, s, r.ID); f.State != Blocked || f.BlockedReason != ReasonAttemptsExhausted || f.Attempt != 2 {
				t.Errorf("%+v", f)
			}
			want := []string{`1 unknown by "", late false`, `1 2xx by "", late true`, `2 unknown by "ann", late false`}
			if lines := wanted(t, s, stale.ID); !slices.Equal(lines, want) {
				t.Errorf("ledger %q", lines)
			}
		})
	}
}
