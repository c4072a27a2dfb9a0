package inbox

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelForward is what one forward must look like.
type modelForward struct {
	body       string
	comparing  bool // its source ignores what the two bodies differ in
	state      State
	attempts   int
	free       int
	token      int64
	leaseUntil time.Time // zero: no lease
	due        time.Time
	ledger     []string
}

// model plays the inbox in memory: deliveries with one forward each, in the
// order of their arrival, under a clock of its own.
type model struct {
	s      *Store
	prefix string
	now    time.Time
	order  []string
	byID   map[string]*modelForward
	leases []Forward // every lease that was ever given, live or lost
}

const (
	modelLease       = time.Minute
	modelMaxAttempts = 3
)

func (m *model) deliver(t *rapid.T) {
	id := m.prefix + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id")
	body := m.prefix + rapid.SampledFrom([]string{"one", "two"}).Draw(t, "body")
	comparing, guarding := rapid.Bool().Draw(t, "comparing"), rapid.Bool().Draw(t, "guarded")
	d := delivery(id, body)
	d.AcceptFirst = rapid.Bool().Draw(t, "accept first")
	d.Forwards = []NewForward{{Destination: m.prefix}} // each run has a destination of its own
	if comparing {
		d.CompareHash = sha256.Sum256([]byte(m.prefix))
	}
	if guarding {
		d.BodyGuard = time.Hour
	}
	r, err := m.s.Accept(t.Context(), d)
	known := m.byID[id]
	var conflict *ConflictError
	switch {
	case known != nil && !known.isLike(body, comparing):
		if d.AcceptFirst {
			if err != nil || !r.Duplicate || r.Conflict == nil {
				t.Fatalf("%s: %+v, %v, want a duplicate that is a conflict", id, r, err)
			}
		} else if !errors.As(err, &conflict) {
			t.Fatalf("%s: %v, want a conflict", id, err)
		}
	case known == nil && guarding && m.twin(body, comparing):
		if err != nil || !r.Duplicate || m.byID[r.DeliveryID] == nil || !m.byID[r.DeliveryID].isLike(body, comparing) {
			t.Fatalf("%s: %+v, %v, want a duplicate by its body", id, r, err)
		}
	case err != nil || r.Duplicate != (known != nil) || r.Conflict != nil || r.DeliveryID != id:
		t.Fatalf("%s: %+v, %v; known before: %v", id, r, err, known != nil)
	case known == nil:
		m.byID[id] = &modelForward{body: body, comparing: comparing, state: Pending}
		m.order = append(m.order, id)
	}
}

// isLike says whether the body is that of f, as far as their source compares: all
// bodies have one compare hash.
func (f *modelForward) isLike(body string, comparing bool) bool {
	return f.body == body || f.comparing && comparing
}

// twin says whether the body is known under some id.
func (m *model) twin(body string, comparing bool) bool {
	for _, f := range m.byID {
		if f.isLike(body, comparing) {
			return true
		}
	}
	return false
}

// due are the ids that a claim must look at: new ones before the others, the oldest first.
func (m *model) dueIDs() []string {
	var ids []string
	for _, id := range m.order {
		f := m.byID[id]
		if (f.state == Pending || f.state == RetryWait) && !f.due.After(m.now) && !f.leaseUntil.After(m.now) {
			ids = append(ids, id)
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int {
		x, y := m.byID[a], m.byID[b]
		return cmp.Or(cmp.Compare(turnOf(x.state), turnOf(y.state)), x.due.Compare(y.due))
	})
	return ids
}

func (m *model) claim(t *rapid.T) {
	limit := rapid.IntRange(1, 3).Draw(t, "limit")
	got, err := m.s.Claim(t.Context(), ClaimRequest{Destination: m.prefix, Limit: limit, Lease: modelLease, MaxAttempts: modelMaxAttempts, Now: m.now})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for blocked := -1; blocked != 0 && len(want) < limit; {
		blocked = 0
		due := m.dueIDs()
		for _, id := range due[:min(limit-len(want), len(due))] {
			f := m.byID[id]
			if !f.leaseUntil.IsZero() {
				f.ledger = append(f.ledger, fmt.Sprint(f.attempts, " unknown"))
			}
			f.token++
			if f.leaseUntil = (time.Time{}); f.attempts-f.free >= modelMaxAttempts {
				f.state = Blocked
				blocked++
				continue
			}
			f.attempts++
			f.leaseUntil = m.now.Add(modelLease)
			want = append(want, id)
		}
	}
	var ids []string
	for _, f := range got {
		ids = append(ids, f.Delivery.DeliveryID)
		w := m.byID[f.Delivery.DeliveryID]
		if f.Token != w.token || f.Attempt != w.attempts || string(f.Delivery.Body) != w.body {
			t.Fatalf("claimed %+v, want token %d attempt %d", f, w.token, w.attempts)
		}
	}
	if !slices.Equal(ids, want) {
		t.Fatalf("claimed %v, want %v", ids, want)
	}
	m.leases = append(m.leases, got...)
}

func (m *model) settle(t *rapid.T) {
	if len(m.leases) == 0 {
		t.Skip("no lease yet")
	}
	lease := rapid.SampledFrom(m.leases).Draw(t, "lease")
	outcome := rapid.SampledFrom([]Outcome{OutcomeAccepted, OutcomeRetry, OutcomeBlocked, OutcomeReleased}).Draw(t, "outcome")
	class := "5xx"
	if outcome == OutcomeAccepted {
		class = "2xx"
	}
	st := Settlement{ForwardID: lease.ID, Tenant: lease.Delivery.Tenant, Token: lease.Token, Attempt: lease.Attempt, Outcome: outcome, Class: class, Delay: 30 * time.Second, Now: m.now}
	st.Free = outcome == OutcomeRetry && rapid.Bool().Draw(t, "free")
	err := m.s.Settle(t.Context(), st)

	f := m.byID[lease.Delivery.DeliveryID]
	if f.token != lease.Token {
		if !errors.Is(err, ErrLeaseLost) {
			t.Fatalf("stale settle: %v, want ErrLeaseLost", err)
		}
		known := slices.ContainsFunc(f.ledger, func(line string) bool {
			return strings.HasPrefix(line, fmt.Sprint(lease.Attempt, " ")) && strings.HasSuffix(line, " late")
		})
		if outcome != OutcomeReleased && !known {
			f.ledger = append(f.ledger, fmt.Sprint(lease.Attempt, " ", class, " late"))
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if f.leaseUntil.IsZero() {
		return // the repeat of a settlement
	}
	f.leaseUntil = time.Time{}
	switch outcome {
	case OutcomeAccepted:
		f.state = Accepted
	case OutcomeBlocked:
		f.state = Blocked
	case OutcomeRetry:
		f.state, f.due = RetryWait, m.now.Add(30*time.Second)
		if st.Free {
			f.free++
		}
	case OutcomeReleased:
		f.attempts--
		return
	}
	f.ledger = append(f.ledger, fmt.Sprint(lease.Attempt, " ", class))
}

func (m *model) wait(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
}

// prune forgets what is settled, leases of it too.
func (m *model) prune(t *rapid.T) {
	for _, err := range m.s.Prune(t.Context(), Retention{Identities: time.Now().Add(time.Hour)}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	gone := func(id string) bool { return m.byID[id].state == Accepted }
	m.leases = slices.DeleteFunc(m.leases, func(f Forward) bool { return gone(f.Delivery.DeliveryID) })
	m.order = slices.DeleteFunc(m.order, gone)
	maps.DeleteFunc(m.byID, func(_ string, f *modelForward) bool { return f.state == Accepted })
}

// check compares every row with the model after each step.
func (m *model) check(t *rapid.T) {
	for _, id := range slices.Sorted(maps.Keys(m.byID)) {
		want, found := m.byID[id], 0
		for d, err := range m.s.Find(t.Context(), Filter{ID: id}) {
			if err != nil {
				t.Fatal(err)
			}
			found++
			forwards, err := m.s.Forwards(t.Context(), d.ID)
			if err != nil || len(forwards) != 1 {
				t.Fatalf("%s: %d forwards, %v", id, len(forwards), err)
			}
			got := forwards[0]
			if got.State != want.state || got.Attempt != want.attempts || got.AttemptsFree != want.free ||
				got.Token != want.token || got.LeaseUntil.IsZero() != want.leaseUntil.IsZero() {
				t.Fatalf("%s: %+v, want %+v", id, got, *want)
			}
			var ledger []string
			for a, err := range m.s.Attempts(t.Context(), AttemptFilter{ForwardID: got.ID}) {
				if err != nil {
					t.Fatal(err)
				}
				line := fmt.Sprint(a.Number, " ", a.Class)
				if a.Late {
					line += " late"
				}
				ledger = append(ledger, line)
			}
			if slices.Sort(want.ledger); !slices.Equal(slices.Sorted(slices.Values(ledger)), want.ledger) {
				t.Fatalf("%s: ledger %v, want %v", id, ledger, want.ledger)
			}
		}
		if found != 1 {
			t.Fatalf("%s: found %d times", id, found)
		}
	}
}

// Whatever happens in whatever order, the database is what the model is.
func TestInboxIsItsModel(t *testing.T) {
	s, _ := newStore(t)
	wholeAtEnd(t, s.pool)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &model{s: s, prefix: fmt.Sprintf("%d-", run), now: time.Now().Add(time.Hour), byID: map[string]*modelForward{}}
		rt.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) { m.deliver(t) },
			"claim":   func(t *rapid.T) { m.claim(t) },
			"settle":  func(t *rapid.T) { m.settle(t) },
			"wait":    func(t *rapid.T) { m.wait(t) },
			"prune":   func(t *rapid.T) { m.prune(t) },
			"":        m.check,
		})
	})
}
