package inbox

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"
)

// taking is what a claim made of what was due.
type taking struct {
	ClaimRequest
	due, taken []candidate
}

func (k *taking) count(of func(candidate) bool) (n int) {
	for _, d := range k.taken {
		if of(d) {
			n++
		}
	}
	return n
}

func (k *taking) of(tenant string) int {
	return k.count(func(d candidate) bool { return d.tenant == tenant })
}

func (k *taking) share(tenant string) Share {
	s, ok := k.Shares[tenant]
	if !ok {
		s.Most = math.MaxInt
	}
	s.Weight = max(s.Weight, 1)
	return s
}

// may says that d was not taken, and could have been in the place of another.
func (k *taking) may(d candidate) bool {
	retries := k.count(func(d candidate) bool { return d.retry })
	return !slices.ContainsFunc(k.taken, func(t candidate) bool { return t.id == d.id }) &&
		k.of(d.tenant) < k.share(d.tenant).Most && (!d.retry || retries < k.Limit-k.ForNew)
}

// beyond says which limit does not hold, or which place is empty.
func (k *taking) beyond() error {
	retries := k.count(func(d candidate) bool { return d.retry })
	switch {
	case len(k.taken) > k.Limit:
		return fmt.Errorf("%d taken, for %d places", len(k.taken), k.Limit)
	case retries > max(k.Limit-k.ForNew, 0):
		return fmt.Errorf("%d retries taken, of %d places %d are for new ones", retries, k.Limit, k.ForNew)
	}
	for _, d := range k.taken {
		if n := k.of(d.tenant); n > k.share(d.tenant).Most {
			return fmt.Errorf("%d of %s taken, %d may be", n, d.tenant, k.share(d.tenant).Most)
		}
	}
	for _, d := range k.due {
		if k.may(d) && len(k.taken) < k.Limit {
			return fmt.Errorf("%+v is left, though there is a place", d)
		}
	}
	return nil
}

// unfair says which of those that are left should have gone before one that was taken.
func (k *taking) unfair() error {
	for _, d := range k.due {
		if !k.may(d) {
			continue
		}
		for _, t := range k.taken {
			if err := k.wronged(d, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *taking) wronged(d, t candidate) error {
	if k.Shares != nil && t.tenant != d.tenant {
		// Without the last that t's tenant got it must not have as much as d's would.
		a, b := k.share(t.tenant), k.share(d.tenant)
		if (a.Busy+k.of(t.tenant))*b.Weight > (b.Busy+k.of(d.tenant)+1)*a.Weight {
			return fmt.Errorf("%s had %d and got %d, %s had %d and got %d, with weights %d and %d",
				t.tenant, a.Busy, k.of(t.tenant), d.tenant, b.Busy, k.of(d.tenant), a.Weight, b.Weight)
		}
		return nil
	}
	retries := k.count(func(d candidate) bool { return d.retry })
	own := k.count(func(o candidate) bool { return o.retry && (k.Shares == nil || o.tenant == d.tenant) })
	switch {
	case t.retry == d.retry && byAge(d, t) < 0:
		return fmt.Errorf("%+v went before %+v, which is older", t, d)
	case t.retry && !d.retry && own > k.ForRetries:
		return fmt.Errorf("%+v went before %+v, which is new", t, d)
	case d.retry && !t.retry && retries < k.ForRetries:
		return fmt.Errorf("%+v went before %+v: of the %d places of retries %d are used", t, d, k.ForRetries, retries)
	}
	return nil
}

// drawRequest asks for some places, for some tenants under some shares.
func drawRequest(t *rapid.T, tenants []string) ClaimRequest {
	r := ClaimRequest{Tenants: tenants, Limit: rapid.IntRange(1, 12).Draw(t, "limit")}
	r.ForNew = rapid.IntRange(0, r.Limit).Draw(t, "for new")
	r.ForRetries = rapid.IntRange(0, r.Limit-r.ForNew).Draw(t, "for retries")
	if !rapid.Bool().Draw(t, "shared") {
		return r
	}
	r.Shares = map[string]Share{}
	for _, tenant := range tenants {
		if rapid.IntRange(0, 3).Draw(t, "known") > 0 {
			r.Shares[tenant] = Share{Weight: rapid.IntRange(0, 4).Draw(t, "weight"), Busy: rapid.IntRange(0, 6).Draw(t, "busy"),
				Most: rapid.IntRange(0, 8).Draw(t, "most")}
		}
	}
	return r
}

// Nobody gets more than is due to them, and no place stays empty.
func TestPlacesAreSharedFairly(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t, []string{"a", "b", "c"})
		var due []candidate
		for id := range rapid.IntRange(0, 30).Draw(t, "due") {
			d := candidate{id: int64(id), tenant: rapid.SampledFrom(r.Tenants).Draw(t, "tenant"), retry: rapid.Bool().Draw(t, "retry"),
				at: t0.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "at")) * time.Second)}
			due = append(due, d)
		}
		p := newPlaces(r)
		chosen, left := p.choose(slices.Clone(due))
		if len(chosen)+len(left) != len(due) || p.left != r.Limit-len(chosen) {
			t.Fatalf("%d chosen and %d left of %d, %d places left of %d", len(chosen), len(left), len(due), p.left, r.Limit)
		}
		k := taking{r, due, chosen}
		if err := cmp.Or(k.beyond(), k.unfair()); err != nil {
			t.Fatal(err)
		}
	})
}

// dueOf accepts n deliveries of a tenant, ordered or not, each of a resource of its own.
func dueOf(t testing.TB, s *Store, tenant, name string, ordering Ordering, n int) {
	t.Helper()
	for i := range n {
		d := ofResource(ordering, fmt.Sprint(name, i), 1)
		d.Tenant = tenant
		accept(t, s, d)
	}
}

// takenOf counts what a claim has taken, by tenant and whether it was tried before.
func takenOf(t testing.TB, s *Store, r ClaimRequest) map[string]int {
	t.Helper()
	r.Destination, r.Lease = "app", time.Minute
	all, err := s.Claim(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, f := range all {
		kind := "new"
		if f.State == RetryWait {
			kind = "retry"
		}
		n[f.Delivery.Tenant]++
		n[kind]++
	}
	return n
}

// failBefore makes all forwards ones that have failed before.
func failBefore(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'retry_wait', next_attempt_at = next_attempt_at - interval '1 hour'`)
}

// The backlog of one tenant delays no other, in lanes and outside.
func TestTenantsShareADestination(t *testing.T) {
	for _, mine := range []Ordering{OrderNone, OrderLatest} {
		for _, other := range []Ordering{OrderNone, OrderStrict} {
			t.Run(fmt.Sprintf("%s beside %s", mine, other), func(t *testing.T) {
				t.Parallel()
				s, _ := newStore(t)
				wholeAtEnd(t, s.pool)
				dueOf(t, s, "t1", "mine", mine, 30)
				dueOf(t, s, "t2", "other", other, 4)
				tenants := []string{"t1", "t2"}
				n := takenOf(t, s, ClaimRequest{Tenants: tenants, Limit: 4, Shares: map[string]Share{"t1": {Weight: 1, Most: 9}, "t2": {Weight: 1, Most: 9}}})
				if n["t1"] != 2 || n["t2"] != 2 {
					t.Errorf("of four places %v", n)
				}
				// t1 has 2 of 3 parts: with what it has, 6 of 9 are its own.
				n = takenOf(t, s, ClaimRequest{Tenants: tenants, Limit: 5, Shares: map[string]Share{
					"t1": {Weight: 2, Busy: 2, Most: 9}, "t2": {Weight: 1, Busy: 2, Most: 9}}})
				if n["t1"] != 4 || n["t2"] != 1 {
					t.Errorf("of five places by weight: %v", n)
				}
				n = takenOf(t, s, ClaimRequest{Tenants: tenants, Limit: 9, Shares: map[string]Share{"t1": {Weight: 1, Most: 3}, "t2": {Weight: 1, Most: 9}}})
				if n["t1"] != 3 || n["t2"] != 1 {
					t.Errorf("of nine places, of which one tenant may take three: %v", n)
				}
				if n = takenOf(t, s, ClaimRequest{Tenants: tenants, Limit: 9, Shares: map[string]Share{}}); n["t1"] != 9 {
					t.Errorf("with nobody else there: %v", n)
				}
			})
		}
	}
}

// New forwards go before those that were tried, but for the places that are kept.
func TestNewForwardsGoBeforeRetries(t *testing.T) {
	for _, fresh := range []Ordering{OrderNone, OrderLatest} {
		for _, old := range []Ordering{OrderNone, OrderStrict} {
			for name, shares := range map[string]map[string]Share{"": nil, " shared": {"t1": {Weight: 1, Most: 99}}} {
				t.Run(fmt.Sprintf("%s before %s%s", fresh, old, name), func(t *testing.T) {
					t.Parallel()
					s, pool := newStore(t)
					wholeAtEnd(t, s.pool)
					dueOf(t, s, "t1", "old", old, 12)
					failBefore(t, pool)
					dueOf(t, s, "t1", "fresh", fresh, 6)
					r := ClaimRequest{Limit: 2, Tenants: []string{"t1"}, Shares: shares}
					if n := takenOf(t, s, r); n["new"] != 2 {
						t.Errorf("of two places: %v", n)
					}
					r.Limit, r.ForRetries = 3, 1
					if n := takenOf(t, s, r); n["new"] != 2 || n["retry"] != 1 {
						t.Errorf("of three places, one of them for retries: %v", n)
					}
					r.Limit, r.ForRetries, r.ForNew = 6, 6, 2
					if n := takenOf(t, s, r); n["new"] != 2 || n["retry"] != 4 {
						t.Errorf("of six places, two of them for new ones: %v", n)
					}
					r.Limit, r.ForRetries, r.ForNew = 4, 0, 1
					if n := takenOf(t, s, r); n["new"] != 0 || n["retry"] != 3 {
						t.Errorf("of four places, one of them for new ones, of which there are none: %v", n)
					}
				})
			}
		}
	}
}

// What a gap has held up is as new as what was never held up.
func TestHeldForwardWhoseTimeHasComeIsNew(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	dueOf(t, s, "t1", "old", OrderNone, 3)
	failBefore(t, pool)
	claim := func(revision int64, now time.Time) []Forward {
		if revision > 0 {
			d := ofResource(OrderStrict, "r", revision)
			d.Forwards[0].GapTimeout = time.Minute
			accept(t, s, d)
		}
		got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, ForNew: 1, Lease: time.Minute, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := claim(1, time.Time{})
	if len(first) != 1 {
		t.Fatalf("claimed %+v, want revision 1", first)
	}
	settle1(t, s, first[0], OutcomeAccepted)
	if got := claim(3, time.Time{}); len(got) != 0 {
		t.Fatalf("claimed %+v, though revision 2 is missing", got)
	}
	if got := claim(0, time.Now().Add(2*time.Minute)); len(got) != 1 || got[0].Delivery.DeliveryID != "r-3" {
		t.Errorf("after the patience of the gap: %+v", got)
	}
}

// A claim takes what the shares say, whatever the forwards look like, and finds all of it.
func TestClaimSharesWhatIsDue(t *testing.T) {
	s, pool := newStore(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		to := fmt.Sprint("app", run)
		r := drawRequest(rt, []string{"a", "b", "c"})
		r.Destination, r.Lease, r.MaxAttempts = to, time.Minute, 3
		spent := map[int64]bool{}
		var due []candidate
		for n := range rapid.IntRange(0, 20).Draw(rt, "due") {
			d := ofResource(rapid.SampledFrom([]Ordering{OrderNone, OrderLatest, OrderCoalesce, OrderStrict}).Draw(rt, "ordering"), fmt.Sprint(run, "-", n), 1)
			d.Tenant, d.Forwards[0].Destination = rapid.SampledFrom(r.Tenants).Draw(rt, "tenant"), to
			f := forwardOf(t, s, accept(t, s, d).ID)
			c := candidate{id: f.ID, tenant: d.Tenant, at: f.NextAttemptAt, retry: rapid.Bool().Draw(rt, "retry")}
			if c.retry {
				exec(t, pool, `UPDATE hooklatch.outbox SET state = 'retry_wait' WHERE id = $1`, f.ID)
				if spent[f.ID] = rapid.IntRange(0, 4).Draw(rt, "spent") == 0; spent[f.ID] {
					exec(t, pool, `UPDATE hooklatch.outbox SET attempts = 3 WHERE id = $1`, f.ID)
					continue
				}
			}
			due = append(due, c)
		}
		got, err := s.Claim(t.Context(), r)
		if err != nil {
			rt.Fatal(err)
		}
		var taken []candidate
		for _, f := range got {
			taken = append(taken, candidate{id: f.ID, tenant: f.Delivery.Tenant, at: f.NextAttemptAt, retry: f.State == RetryWait})
			if spent[f.ID] {
				rt.Errorf("forward %d has no attempt left", f.ID)
			}
		}
		k := taking{r, due, taken}
		if err := k.beyond(); err != nil {
			rt.Fatal(err)
		}
		if err := k.unfair(); err != nil && !slices.Contains(slices.Collect(maps.Values(spent)), true) {
			rt.Fatal(err) // who gets the place of one that is spent is not as exact
		}
	})
}
