package inbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// faulty returns a store whose connections go through a fault proxy, and a pool
// that goes straight to the same database.
func faulty(t *testing.T) (*Store, *pgxpool.Pool, *inboxtest.FaultProxy) {
	t.Helper()
	direct := inboxtest.New(t)
	wholeAtEnd(t, direct)
	proxy := inboxtest.NewFaultProxy(t, direct.Config().ConnString())
	pool, err := pgxpool.New(t.Context(), proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := New(pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s, direct, proxy
}

// X33, D9: COMMIT was sent and its answer lost. Nobody is told 202, nothing is
// tried again by us, and the sender's retry finds out.
func TestX33_LostAnswerOfCommitIsUnknownForEveryMember(t *testing.T) {
	for _, c := range []struct {
		name      string
		fault     inboxtest.CommitFault
		committed bool
	}{
		{"cut after COMMIT", inboxtest.CutAfterCommit, true},
		{"cut before COMMIT", inboxtest.CutBeforeCommit, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, direct, proxy := faulty(t)
			accept(t, s, delivery("warm", "x"))
			proxy.AtCommit(c.fault, 1)
			commits := proxy.Counts().Commits
			var members []*member[*acceptance]
			for _, d := range []Delivery{delivery("a", "x"), delivery("a", "x"), delivery("b", "x")} {
				work, err := newAcceptance(d)
				if err != nil {
					t.Fatal(err)
				}
				members = append(members, &member[*acceptance]{work: work})
			}
			s.acceptBatch(members)
			counts := proxy.Counts()
			if counts.CutBefore+counts.CutAfter != 1 {
				t.Fatalf("void: nothing was cut, %+v", counts)
			}
			if n := counts.Commits - commits; n != 1 {
				t.Errorf("%d COMMITs were sent, want 1", n)
			}
			for i, m := range members {
				if !errors.Is(m.err, ErrOutcomeUnknown) || errors.Is(m.err, ErrUnavailable) {
					t.Errorf("member %d: %v, want ErrOutcomeUnknown", i, m.err)
				}
			}
			for _, id := range []string{"a", "b"} {
				if r := accept(t, s, delivery(id, "x")); r.Duplicate != c.committed {
					t.Errorf("retry of %s: duplicate %v, want %v", id, r.Duplicate, c.committed)
				}
			}
			if n := count(t, direct, `SELECT count(*) FROM hooklatch.outbox`); n != 3 {
				t.Errorf("%d forwards, want 3", n)
			}
		})
	}
}

// D9: the backend is killed while it holds our COMMIT back.
func TestCaseD9_BackendKilledInCommit(t *testing.T) {
	s, direct, proxy := faulty(t)
	accept(t, s, delivery("warm", "x"))
	proxy.AtCommit(inboxtest.HoldCommit, 1)
	result := make(chan error)
	go func() {
		_, err := s.Accept(context.Background(), delivery("a", "x"))
		result <- err
	}()
	proxy.Await(func(c inboxtest.Counts) bool { return c.Held == 1 })
	exec(t, direct, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	proxy.Release()
	if err := <-result; !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("%v, want ErrOutcomeUnknown", err)
	}
	if r := accept(t, s, delivery("a", "x")); r.Duplicate {
		t.Error("the retry is a duplicate of what was rolled back")
	}
}

// A COMMIT that is given no time only makes outcomes unknown.
func TestNoCommitIsBegunWithoutTimeForIt(t *testing.T) {
	s, _, proxy := faulty(t)
	accept(t, s, delivery("warm", "x"))
	work, err := newAcceptance(delivery("a", "x"))
	if err != nil {
		t.Fatal(err)
	}
	commits := proxy.Counts().Commits
	ctx, cancel := context.WithTimeout(t.Context(), commitTime)
	defer cancel()
	if err := s.commit(ctx, []*acceptance{work}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if n := proxy.Counts().Commits - commits; n != 0 {
		t.Errorf("%d COMMITs were sent", n)
	}
}

// D8: whatever the database does, Accept answers in time for the sender.
func TestCaseD8_SilentDatabaseIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		name string
		mode inboxtest.Mode
	}{{"requests lost", inboxtest.CutUp}, {"answers lost", inboxtest.CutDown}, {"half-open", inboxtest.HalfOpen}} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			s, _, proxy := faulty(t)
			accept(t, s, delivery("warm", "x"))
			proxy.Set(mode.mode)
			start := time.Now()
			_, err := s.Accept(t.Context(), delivery("a", "x"))
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable: COMMIT was never sent", err)
			}
			if took := time.Since(start); took > MaxAccept {
				t.Errorf("took %v", took)
			}
			proxy.Set(inboxtest.Pass)
			accept(t, s, delivery("a", "x"))
		})
	}
}

// The connection is reset under load: nothing that was acknowledged is missing.
func TestP01_AcknowledgedIsStoredThroughResets(t *testing.T) {
	s, direct, proxy := faulty(t)
	var acked []string
	resets := 0
	for i := 0; i < 300; i++ {
		d := delivery(string(rune('a'+i%26))+time.Duration(i).String(), "x")
		if i%10 == 5 {
			proxy.AtCommit([]inboxtest.CommitFault{inboxtest.CutAfterCommit, inboxtest.CutBeforeCommit}[i/10%2], 1)
			resets++
		}
		if _, err := s.Accept(t.Context(), d); err == nil {
			acked = append(acked, d.DeliveryID)
		}
	}
	counts := proxy.Counts()
	if counts.CutBefore == 0 || counts.CutAfter == 0 {
		t.Fatalf("void: %+v", counts)
	}
	if len(acked) != 300-resets {
		t.Errorf("%d acknowledged, want all but %d", len(acked), resets)
	}
	if n := count(t, direct, `SELECT count(*) FROM hooklatch.inbox WHERE delivery_id = ANY($1)`, acked); n != len(acked) {
		t.Errorf("%d of %d acknowledged deliveries are stored", n, len(acked))
	}
}

// A settlement whose answer was lost may be tried again; it settles once.
func TestSettleSurvivesALostAnswer(t *testing.T) {
	for _, fault := range []inboxtest.CommitFault{inboxtest.CutAfterCommit, inboxtest.CutBeforeCommit} {
		s, direct, proxy := faulty(t)
		r := accept(t, s, delivery("a", "x"))
		f := claimOne(t, s, time.Time{})
		proxy.AtCommit(fault, 1)
		if err := s.Settle(t.Context(), settlement(f, OutcomeAccepted, "2xx")); err != nil {
			t.Errorf("settle: %v", err)
		}
		if c := proxy.Counts(); c.CutBefore+c.CutAfter != 1 {
			t.Fatalf("void: %+v", c)
		}
		if got := forwardOf(t, s, r.ID); got.State != Accepted {
			t.Errorf("state %s", got.State)
		}
		if n := count(t, direct, `SELECT count(*) FROM hooklatch.attempt`); n != 1 {
			t.Errorf("%d attempts in the ledger, want 1", n)
		}
	}
}
