package inbox

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func dead(t testing.TB, s *Store, f DeadFilter) (letters []DeadLetter) {
	t.Helper()
	for d, err := range s.DeadLetters(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, d)
	}
	return letters
}

func idsOf(letters []DeadLetter) (ids []string) {
	for _, d := range letters {
		ids = append(ids, d.Delivery.DeliveryID)
	}
	return ids
}

// dieOf lets every forward that is due end blocked, as a worker that got this answer.
func dieOf(t testing.TB, s *Store, destination, class string, status int) {
	t.Helper()
	all, err := s.Claim(t.Context(), ClaimRequest{Destination: destination, Limit: 50, Lease: time.Minute})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d claimed, %v", len(all), err)
	}
	for _, f := range all {
		st := settlement(f, OutcomeBlocked, class)
		st.Status, st.Error, st.Reason = status, "no "+class, "reason_"+class
		if err := s.Settle(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDeadLettersSayWhatAPersonMustKnow(t *testing.T) {
	s, pool := newStore(t)
	exec(t, pool, `INSERT INTO hooklatch.destination (name, url, owner) VALUES ('app', 'http://app', 'payments')`)
	d := delivery("dlv_1", "x")
	d.EventType = "invoice.paid"
	r := accept(t, s, d)
	first := claimOne(t, s, time.Time{})
	st := settlement(first, OutcomeRetry, "5xx")
	st.Status, st.Error = 503, "no healthy app"
	if err := s.Settle(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	dieOf(t, s, "app", "4xx", 404)
	all := dead(t, s, DeadFilter{})
	if len(all) != 1 {
		t.Fatalf("%d dead letters", len(all))
	}
	got, f := all[0], forwardOf(t, s, r.ID)
	if got.ID != f.ID || got.State != Blocked || got.Attempt != 2 || got.Token != f.Token || got.BlockedReason != "reason_4xx" || got.Owner != "payments" ||
		!got.SettledAt.Equal(f.SettledAt) || got.Delivery.ID != r.ID || got.Delivery.EventType != "invoice.paid" || got.Delivery.Source != "src1" {
		t.Errorf("%+v", got)
	}
	if got.Pruned || got.Superseded {
		t.Errorf("pruned %v, superseded %v", got.Pruned, got.Superseded)
	}
	if a := got.First; a == nil || a.Number != 1 || a.Class != "5xx" || a.Status != 503 || a.Error != "no healthy app" || a.EndedAt.IsZero() {
		t.Errorf("first %+v", a)
	}
	if a := got.Last; a == nil || a.Number != 2 || a.Class != "4xx" || a.Status != 404 || !a.EndedAt.Equal(got.SettledAt) {
		t.Errorf("last %+v", a)
	}
	exec(t, pool, `DELETE FROM hooklatch.payload`)
	if got := dead(t, s, DeadFilter{})[0]; !got.Pruned {
		t.Error("its body is gone, and it is not said")
	}
}

func TestDeadLetterThatWasNeverTried(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, delivery("dlv_1", "x"))
	exec(t, pool, `UPDATE hooklatch.outbox SET expires_at = now()`)
	claimAll(t, s, time.Time{})
	all := dead(t, s, DeadFilter{Reason: ReasonDeadlinePassed})
	if len(all) != 1 || all[0].First != nil || all[0].Last != nil || all[0].Owner != "" {
		t.Errorf("%+v", all)
	}
	if len(dead(t, s, DeadFilter{Class: "5xx"})) != 0 {
		t.Error("it has a class")
	}
}

func TestDeadLetterThatItsLaneHasPassed(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	old := deadLetter(t, s, ofResource(OrderLatest, "r", 1))
	if all := dead(t, s, DeadFilter{}); len(all) != 1 || all[0].Superseded || all[0].Ordering != OrderLatest {
		t.Errorf("before: %+v", all)
	}
	arrive(t, s, OrderLatest, 2)
	drain(t, s)
	if all := dead(t, s, DeadFilter{Delivery: old.Delivery.ID}); len(all) != 1 || !all[0].Superseded {
		t.Errorf("after: %+v", all)
	}
}

func TestDeadFilters(t *testing.T) {
	s, pool := newStore(t)
	exec(t, pool, `INSERT INTO hooklatch.destination (name, url, owner) VALUES ('app', 'http://app', 'payments'), ('other', 'http://other', NULL)`)
	made := map[string]Receipt{}
	for n, class := range []string{"4xx", "5xx", "timeout"} {
		d := delivery(fmt.Sprint("dlv_", n), "x")
		d.EventType = "type_" + class
		if n == 2 {
			d.Source, d.Forwards = "src2", []NewForward{{Destination: "app"}, {Destination: "other"}}
		}
		made[class] = accept(t, s, d)
		dieOf(t, s, "app", class, 0)
		if n == 2 {
			dieOf(t, s, "other", class, 0)
		}
	}
	if err := s.AssignDead(t.Context(), forwardOf(t, s, made["5xx"].ID).ID, "data", me); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET settled_at = settled_at - interval '1 hour' WHERE id = (SELECT min(id) FROM hooklatch.outbox)`)
	ago := time.Now().Add(-30 * time.Minute)
	for _, c := range []struct {
		filter DeadFilter
		want   []string
	}{
		{DeadFilter{}, []string{"dlv_0", "dlv_1", "dlv_2", "dlv_2"}},
		{DeadFilter{Limit: 2}, []string{"dlv_0", "dlv_1"}},
		{DeadFilter{Destination: "app"}, []string{"dlv_0", "dlv_1", "dlv_2"}},
		{DeadFilter{Destination: "other"}, []string{"dlv_2"}},
		{DeadFilter{Destination: "nope"}, nil},
		{DeadFilter{Source: "src2", Destination: "app"}, []string{"dlv_2"}},
		{DeadFilter{Tenant: "t2"}, nil},
		{DeadFilter{EventType: "type_5xx"}, []string{"dlv_1"}},
		{DeadFilter{Class: "4xx"}, []string{"dlv_0"}},
		{DeadFilter{Reason: "reason_timeout", Destination: "app"}, []string{"dlv_2"}},
		{DeadFilter{Owner: "payments"}, []string{"dlv_0", "dlv_2"}},
		{DeadFilter{Owner: "data"}, []string{"dlv_1"}},
		{DeadFilter{Since: ago, Destination: "app"}, []string{"dlv_1", "dlv_2"}},
		{DeadFilter{Until: ago}, []string{"dlv_0"}},
		{DeadFilter{Delivery: made["timeout"].ID}, []string{"dlv_2", "dlv_2"}},
		{DeadFilter{Delivery: made["timeout"].ID, Destination: "other"}, []string{"dlv_2"}},
	} {
		all := dead(t, s, c.filter)
		if got := idsOf(all); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.filter, got, c.want)
		}
		groups, more, err := s.DeadGroups(t.Context(), c.filter)
		n := 0
		for _, g := range groups {
			n += g.Letters
		}
		if c.filter.Limit == 0 && c.filter.Delivery == 0 && (err != nil || more || n != len(c.want)) {
			t.Errorf("%+v: %d counted, more %v, %v; want %d", c.filter, n, more, err, len(c.want))
		}
		for i := range all { // goes on behind each of them
			f := c.filter
			f.After, f.Limit = all[i].Cursor(), 0
			if got := idsOf(dead(t, s, f)); c.filter.Limit == 0 && !slices.Equal(got, c.want[i+1:]) && len(got)+len(c.want[i+1:]) > 0 {
				t.Errorf("%+v after %d: %v, want %v", c.filter, i, got, c.want[i+1:])
			}
		}
	}
	groups, _, err := s.DeadGroups(t.Context(), DeadFilter{Destination: "app"})
	if err != nil || len(groups) != 3 {
		t.Fatalf("%v, %v", groups, err)
	}
	if g := groups[1]; g.Owner != "payments" || g.Class != "4xx" || g.Reason != "reason_4xx" || g.Letters != 1 || time.Since(g.Oldest) < time.Hour {
		t.Errorf("group %+v", g)
	}
	for _, after := range []string{"x", "AAAA", "AAAAAAAAAAE"} {
		for _, err := range s.DeadLetters(t.Context(), DeadFilter{After: after}) {
			if err == nil || !strings.Contains(err.Error(), "was not made by this program") {
				t.Errorf("cursor %q: %v", after, err)
			}
		}
	}
}

// The page behind the first one is found by its key, and a filter that fits little does
// not end the list early.
func TestDeadLettersOverManyPages(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	fill(t, pool, 1, 2*deadPage+3)
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'blocked', settled_at = now()`)
	exec(t, pool, `UPDATE hooklatch.inbox SET source = 'rare' WHERE delivery_id IN ('old_7', $1)`, fmt.Sprint("old_", 2*deadPage+2))
	if n := len(dead(t, s, DeadFilter{})); n != 2*deadPage+3 {
		t.Errorf("%d, want all", n)
	}
	if got := idsOf(dead(t, s, DeadFilter{Source: "rare"})); !slices.Equal(got, []string{"old_7", fmt.Sprint("old_", 2*deadPage+2)}) {
		t.Errorf("rare: %v", got)
	}
}

func TestDeadLettersReadNoHistory(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	r := accept(t, s, delivery("dlv_1", "x"))
	dieOf(t, s, "app", "4xx", 404)
	fill(t, pool, 1, 20_000)
	exec(t, pool, `VACUUM ANALYZE`)
	for _, f := range []DeadFilter{{}, {Destination: "app"}, {Delivery: r.ID}} {
		forgetReads(t, s, pool)
		if n := len(dead(t, s, f)); n != 1 {
			t.Errorf("%+v: %d found", f, n)
		}
		if _, _, err := s.DeadGroups(t.Context(), f); err != nil {
			t.Error(err)
		}
		if _, err := s.ForwardsByID(t.Context(), []int64{forwardOf(t, s, r.ID).ID}); err != nil {
			t.Error(err)
		}
		if n := rowsRead(t, s, pool); n > 100 {
			t.Errorf("%+v: %d rows were read", f, n)
		}
	}
}

func TestAssignDead(t *testing.T) {
	s, pool := newStore(t)
	exec(t, pool, `INSERT INTO hooklatch.destination (name, url, owner) VALUES ('app', 'http://app', 'payments')`)
	f := deadLetter(t, s, delivery("dlv_1", "x"))
	for _, c := range []struct{ owner, want string }{{"data", "data"}, {"", "payments"}, {"data", "data"}} {
		if err := s.AssignDead(t.Context(), f.ID, c.owner, me); err != nil {
			t.Fatal(err)
		}
		if got := dead(t, s, DeadFilter{})[0].Owner; got != c.want {
			t.Errorf("assigned to %q: %q", c.owner, got)
		}
	}
	if got := actsOf(t, s)[0]; got != fmt.Sprintf("assign delivery %d forward %d resource 0: to data", f.Delivery.ID, f.ID) {
		t.Errorf("audit %q", got)
	}
	accept(t, s, delivery("open", "x"))
	open := claimOne(t, s, time.Time{})
	if err := s.AssignDead(t.Context(), open.ID, "data", me); !errors.Is(err, ErrState) {
		t.Errorf("of what is no dead letter: %v", err)
	}
	if err := s.AssignDead(t.Context(), f.ID, "a\x00b", me); err == nil {
		t.Error("an owner that is no text was taken")
	}
}

// What was replayed since a person saw it is not dropped, even if it is dead again.
func TestDropIsOfWhatWasSeen(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	f := deadLetter(t, s, delivery("dlv_1", "x"))
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me, Seen: &f.Token}); err != nil {
		t.Fatal(err)
	}
	if err := s.DropDead(t.Context(), f.ID, f.Token, me); !errors.Is(err, ErrState) {
		t.Errorf("of what is due: %v", err)
	}
	dieOf(t, s, "app", "4xx", 404)
	if err := s.DropDead(t.Context(), f.ID, f.Token, me); !errors.Is(err, ErrState) {
		t.Errorf("of what was tried since: %v", err)
	}
	now := dead(t, s, DeadFilter{})[0]
	if err := s.DropDead(t.Context(), f.ID, now.Token, me); err != nil {
		t.Fatal(err)
	}
	if got := forwardOf(t, s, f.Delivery.ID); got.State != Cancelled || len(dead(t, s, DeadFilter{})) != 0 {
		t.Errorf("%+v", got)
	}
}

// X47: what has moved since it was shown is left alone, though its state is the same.
func TestX47_ReplayOfWhatWasTriedSince(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	f := deadLetter(t, s, delivery("dlv_1", "x"))
	seen := f.Token
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me, Seen: &seen}); err != nil {
		t.Fatal(err)
	}
	before := tables(t, pool)
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me, Seen: &seen}); !errors.Is(err, ErrReplaying) || !errors.Is(err, ErrState) {
		t.Errorf("while it is due: %v, want ErrReplaying", err)
	}
	if after := tables(t, pool); after != before {
		t.Errorf("%s became %s", before, after)
	}
	dieOf(t, s, "app", "4xx", 404)
	before = tables(t, pool)
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me, Seen: &seen}); !errors.Is(err, ErrState) || errors.Is(err, ErrReplaying) {
		t.Errorf("after it was tried: %v, want ErrState", err)
	}
	if after := tables(t, pool); after != before {
		t.Errorf("%s became %s", before, after)
	}
	seen = dead(t, s, DeadFilter{})[0].Token
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me, Seen: &seen}); err != nil {
		t.Error(err)
	}
	if got := forwardOf(t, s, f.Delivery.ID); got.ReplayedBy != me.Actor {
		t.Errorf("replayed by %q", got.ReplayedBy)
	}
}

// E11: with retries the whole budget begins anew, whatever was used of it, and the
// number of the attempt goes on.
func TestCaseE11_ReplayWithRetriesHasTheWholeBudget(t *testing.T) {
	for _, withRetries := range []bool{false, true} {
		s, _ := newStore(t)
		wholeAtEnd(t, s.pool)
		accept(t, s, delivery("dlv_1", "x"))
		for range 9 { // of a budget that was larger then
			settle1(t, s, claimOne(t, s, time.Time{}), OutcomeRetry)
		}
		claimAll(t, s, time.Time{})
		f := dead(t, s, DeadFilter{})[0]
		if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me, WithRetries: withRetries}); err != nil {
			t.Fatal(err)
		}
		var numbers []int
		for {
			all, _ := claimAll(t, s, time.Time{}) // 3 attempts
			if len(all) == 0 {
				break
			}
			numbers = append(numbers, all[0].Attempt)
			settle1(t, s, all[0], OutcomeRetry)
		}
		want := []int{10}
		if withRetries {
			want = []int{10, 11, 12}
		}
		if !reflect.DeepEqual(numbers, want) {
			t.Errorf("with retries %v: attempts %v, want %v", withRetries, numbers, want)
		}
		if got := forwardOf(t, s, f.Delivery.ID); got.State != Blocked || got.BlockedReason != ReasonAttemptsExhausted {
			t.Errorf("with retries %v: %+v", withRetries, got)
		}
	}
}

// P14: nothing is made due for a destination that nobody sends to any more.
func TestP14_ReplayToARemovedDestination(t *testing.T) {
	s, pool := newStore(t)
	f := deadLetter(t, s, delivery("dlv_1", "x"))
	exec(t, pool, `INSERT INTO hooklatch.destination (name, url, removed_at) VALUES ('app', 'http://app', now())`)
	before := tables(t, pool)
	if err := s.Replay(t.Context(), f.ID, ReplayRequest{Act: me}); !errors.Is(err, ErrRemoved) {
		t.Errorf("%v, want ErrRemoved", err)
	}
	if after := tables(t, pool); after != before {
		t.Errorf("%s became %s", before, after)
	}
}
