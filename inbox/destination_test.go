package inbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

func saveDestinations(t testing.TB, s *Store, revision int64, all ...Destination) {
	t.Helper()
	if err := s.SaveDestinations(t.Context(), revision, all); err != nil {
		t.Fatal(err)
	}
}

func destinationOf(t testing.TB, s *Store, name string) Destination {
	t.Helper()
	all, err := s.Destinations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no destination %s in %+v", name, all)
	return Destination{}
}

// history is what happened to app, one word or sentence each.
func history(t testing.TB, s *Store, f EventFilter) (lines []string) {
	t.Helper()
	f.Destination = "app"
	for e, err := range s.DestinationEvents(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(e.At).Abs() > time.Minute || e.Destination != "app" {
			t.Errorf("event %+v", e)
		}
		line := e.Event
		for _, more := range []string{e.Actor, e.Reason, e.Worker, e.Detail} {
			if more != "" {
				line += " " + more
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func wantLines(t testing.TB, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestPauseSaysWhoAndWhyAndKeepsForwardsWhereTheyAre(t *testing.T) {
	s, _ := newStore(t)
	saveDestinations(t, s, 0, Destination{Name: "app", URL: "http://app"})
	told := 0
	s.cfg.OnForwards = func(string) { told++ }
	if err := s.PauseDestination(t.Context(), "app", Act{"ann", "deploy"}); err != nil {
		t.Fatal(err)
	}
	d := destinationOf(t, s, "app")
	if d.Pause == nil || d.Pause.By != "ann" || d.Pause.Reason != "deploy" || time.Since(d.Pause.At).Abs() > time.Minute {
		t.Errorf("pause %+v", d.Pause)
	}
	accept(t, s, delivery("dlv_1", "x"))
	if all, _ := claimAll(t, s, time.Time{}); len(all) != 0 {
		t.Errorf("claimed %v of a paused destination", all)
	}
	told = 0
	if err := s.ResumeDestination(t.Context(), "app", Act{"bob", "deployed"}); err != nil {
		t.Fatal(err)
	}
	if told != 1 {
		t.Errorf("the consumer was told %d times that it goes on", told)
	}
	claimOne(t, s, time.Time{})
	if d := destinationOf(t, s, "app"); d.Pause != nil {
		t.Errorf("still paused: %+v", d.Pause)
	}
	wantLines(t, history(t, s, EventFilter{}), "configured http://app", "paused ann deploy", "resumed bob deployed after 0s")
}

func TestPauseIsNotOverwritten(t *testing.T) {
	s, _ := newStore(t)
	saveDestinations(t, s, 0, Destination{Name: "app", URL: "http://app"})
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"resume what runs", s.ResumeDestination(t.Context(), "app", me), ErrState},
		{"pause", s.PauseDestination(t.Context(), "app", Act{"ann", "deploy"}), nil},
		{"pause again", s.PauseDestination(t.Context(), "app", me), ErrState},
		{"pause the unknown", s.PauseDestination(t.Context(), "ap", me), ErrNotFound},
		{"resume the unknown", s.ResumeDestination(t.Context(), "ap", me), ErrNotFound},
		{"probe the unknown", s.AskProbe(t.Context(), "ap", "ann"), ErrNotFound},
	} {
		if !errors.Is(c.err, c.want) || c.want == nil && c.err != nil {
			t.Errorf("%s: %v, want %v", c.what, c.err, c.want)
		}
	}
	for _, act := range []Act{{}, {Actor: "ann"}, {Reason: "deploy"}} {
		if s.PauseDestination(t.Context(), "app", act) == nil || s.ResumeDestination(t.Context(), "app", act) == nil {
			t.Errorf("%+v was enough", act)
		}
	}
	if d := destinationOf(t, s, "app"); d.Pause == nil || d.Pause.By != "ann" {
		t.Errorf("pause %+v", d.Pause)
	}
	wantLines(t, history(t, s, EventFilter{}), "configured http://app", "paused ann deploy")
}

// A changed URL is a new revision; what stays is no event.
func TestSaveDestinationsNotesWhatChanges(t *testing.T) {
	s, pool := newStore(t)
	saveDestinations(t, s, 1, Destination{Name: "app", URL: "http://a", Owner: "payments"})
	saveDestinations(t, s, 2, Destination{Name: "app", URL: "http://a", Owner: "shop"})
	if d := destinationOf(t, s, "app"); d.Owner != "shop" || d.ConfigRevision != 2 || d.URL != "http://a" || d.Breaker.State != BreakerClosed || !d.Breaker.At.IsZero() {
		t.Errorf("%+v", d)
	}
	saveDestinations(t, s, 3, Destination{Name: "app", URL: "http://b"})
	if d := destinationOf(t, s, "app"); d.Owner != "" || d.ConfigRevision != 3 {
		t.Errorf("%+v", d)
	}
	exec(t, pool, `UPDATE hooklatch.destination SET removed_at = now()`)
	saveDestinations(t, s, 4, Destination{Name: "app", URL: "http://b"})
	if d := destinationOf(t, s, "app"); !d.RemovedAt.IsZero() {
		t.Errorf("it is configured, and still removed: %+v", d)
	}
	wantLines(t, history(t, s, EventFilter{}), "configured http://a", "configured http://b", "configured http://b")
	var revisions []int64
	for e, err := range s.DestinationEvents(t.Context(), EventFilter{Destination: "app"}) {
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, e.ConfigRevision)
	}
	if !slices.Equal(revisions, []int64{1, 3, 4}) {
		t.Errorf("revisions %v", revisions)
	}
}

// A destination that stays down is probed again and again: that is no history, but its
// last state is there to be seen.
func TestBreakerHistoryHoldsWhatChanged(t *testing.T) {
	s, _ := newStore(t)
	saveDestinations(t, s, 0, Destination{Name: "app", URL: "http://app"})
	until := time.Date(2026, 12, 1, 12, 1, 40, 0, time.UTC)
	record := func(from, to BreakerState, until time.Time, failures int, text string) {
		t.Helper()
		err := s.RecordBreaker(t.Context(), "app", BreakerChange{From: from, To: to, Until: until, Failures: failures, Error: text, Worker: "host:1", ConfigRevision: 7})
		if err != nil {
			t.Fatal(err)
		}
	}
	record(BreakerClosed, BreakerOpen, until, 5, "answered 503")
	for n := range 3 {
		record(BreakerOpen, BreakerHalfOpen, time.Time{}, 0, "")
		record(BreakerHalfOpen, BreakerOpen, until.Add(time.Duration(n+1)*time.Minute), 1, "refused\x00")
	}
	if b := destinationOf(t, s, "app").Breaker; b.State != BreakerOpen || !b.Until.Equal(until.Add(3*time.Minute)) || b.Worker != "host:1" || b.Error != "refused�" {
		t.Errorf("breaker %+v", b)
	}
	record(BreakerHalfOpen, BreakerClosed, time.Time{}, 0, "")
	if b := destinationOf(t, s, "app").Breaker; b.State != BreakerClosed || !b.Until.IsZero() || b.Error != "" {
		t.Errorf("breaker %+v", b)
	}
	wantLines(t, history(t, s, EventFilter{}), "configured http://app",
		"opened host:1 after 5 failures in a row, probe at 2026-12-01T12:01:40Z: answered 503", "closed host:1")
}

func TestHistoryOfADestinationIsBounded(t *testing.T) {
	s, pool := newStore(t)
	saveDestinations(t, s, 0, Destination{Name: "app", URL: "http://app"}, Destination{Name: "other", URL: "http://other"})
	exec(t, pool, `INSERT INTO hooklatch.destination_event (destination, event, at) SELECT d, 'opened', now() - n * interval '1 second'
		FROM generate_series(1, 1050) n, unnest('{app,other}'::text[]) d`)
	if err := s.PauseDestination(t.Context(), "app", me); err != nil {
		t.Fatal(err)
	}
	if err := s.RecordBreaker(t.Context(), "app", BreakerChange{From: BreakerHalfOpen, To: BreakerClosed}); err != nil {
		t.Fatal(err)
	}
	const sql = `SELECT count(*) FROM hooklatch.destination_event WHERE destination = $1 AND (event IN ('opened', 'closed')) = $2`
	for _, c := range []struct {
		destination string
		breaker     bool
		want        int
	}{{"app", true, 1000}, {"app", false, 2}, {"other", true, 1050}} {
		if n := count(t, pool, sql, c.destination, c.breaker); n != c.want {
			t.Errorf("%s keeps %d lines (of breakers: %v), want %d", c.destination, n, c.breaker, c.want)
		}
	}
}

// The list goes on behind any of its lines, in both directions, and reads no more than
// it lists.
func TestDestinationEventsGoOn(t *testing.T) {
	s, pool := newStore(t)
	fillEvents(t, pool, 450)
	for _, newest := range []bool{false, true} {
		var all []int64
		var last DestinationEvent
		for len(all) < 1000 {
			n := 0
			for e, err := range s.DestinationEvents(t.Context(), EventFilter{Destination: "app", Newest: newest, After: last, Limit: 230}) {
				if err != nil {
					t.Fatal(err)
				}
				all, last, n = append(all, e.ID), e, n+1
			}
			if n == 0 {
				break
			}
		}
		var want []int64
		for n := range int64(450) {
			if newest {
				n = 449 - n
			}
			want = append(want, 2*n+1)
		}
		if !slices.Equal(all, want) {
			t.Errorf("newest first: %v: got %v", newest, all)
		}
	}
	if n := len(history(t, s, EventFilter{Since: time.Now().Add(-time.Hour), Until: time.Now().Add(-30 * time.Minute)})); n != 0 {
		t.Errorf("%d events of a time in which there were none", n)
	}
}

// fillEvents makes n events of app and as many of another one, several at each time.
func fillEvents(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	exec(t, pool, `INSERT INTO hooklatch.destination_event (destination, event, at) SELECT d, 'probe', now() + n / 10 * interval '1 ms'
		FROM generate_series(1, $1::int) n, unnest('{app,other}'::text[]) WITH ORDINALITY AS u(d, k) ORDER BY n, k`, n)
}
