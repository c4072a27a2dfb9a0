package consumer

import (
	"maps"
	"slices"
	"sync"

	"github.com/hooklatch/hooklatch/inbox"
)

// shares divides the places of a destination.
//
// Between tenants: in proportion to their weights, and none has all: at most three
// quarters, or its part by weight where that is more. The rest is there at once for whom
// it comes.
//
// Between new forwards and retries: a quarter of the places is kept for new ones. Where
// both wait, a quarter of what is taken are retries, until they have a quarter of the
// places; else new ones go first.
//
// What has places already counts. Where there are fewer of them than would show whose
// turn it is, what was taken lately counts, too: with one place they take turns.
type shares struct {
	places  int
	weights map[string]int // of the tenants that are configured
	any     bool           // tenants are not: those that are met
	memory  int            // how much of lately can matter

	mu      sync.Mutex
	busy    map[string]int // places by tenant
	retries int            // places of retries
	owed    int            // thirds of a place that retries should have had by now
	lately  []string       // tenants by what was taken, the oldest first
}

// newOnes is how many new forwards there are for one retry, where both wait.
const newOnes = 3

func newShares(places int, tenants []string, weights map[string]int) *shares {
	s := &shares{places: places, any: tenants == nil, memory: 256, weights: map[string]int{}, busy: map[string]int{}}
	all := 0
	for _, tenant := range tenants {
		s.weights[tenant] = max(weights[tenant], 1)
		all = gcd(all, s.weights[tenant])
	}
	sum := 0
	for tenant := range s.weights {
		s.weights[tenant] /= all // fewer turns until each has had one
		sum += s.weights[tenant]
	}
	if s.any {
		maps.Copy(s.weights, weights)
	} else {
		s.memory = turns * sum
	}
	return s
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// quarter is the part that is kept, of what can be divided.
func (s *shares) quarter() int {
	if s.places == 1 {
		return 0
	}
	return max(s.places/4, 1)
}

// divide says in r how its places are to be given away.
func (s *shares) divide(r *inbox.ClaimRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mayRetry := min(max(s.places-s.quarter()-s.retries, 0), r.Limit)
	r.ForNew = r.Limit - mayRetry
	r.ForRetries = min(s.owed/newOnes, max(max(s.quarter(), 1)-s.retries, 0), mayRetry)
	if known := s.known(); len(known) > 1 {
		r.Shares = s.tenants(known, r.Limit)
	}
}

// known are the tenants that the places are divided between.
func (s *shares) known() []string {
	var known []string
	for tenant := range s.weights {
		known = append(known, tenant)
	}
	if s.any {
		known = append(known, s.lately...)
		for tenant := range s.busy {
			known = append(known, tenant)
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}

func (s *shares) tenants(known []string, limit int) map[string]inbox.Share {
	weights, taken := 0, limit
	for _, tenant := range known {
		weights += s.weight(tenant)
		taken += s.busy[tenant]
	}
	all := make(map[string]inbox.Share, len(known))
	for _, tenant := range known {
		weight := s.weight(tenant)
		part := (s.places*weight + weights - 1) / weights
		most := min(max(part, s.places-s.quarter()), max(s.places-1, 1))
		all[tenant] = inbox.Share{
			Weight: weight, Busy: s.busy[tenant], Most: min(max(most-s.busy[tenant], 0), limit),
		}
	}
	if taken < turns*weights {
		// One less: after a whole round all would be level, and the same one next.
		for _, tenant := range s.lately[max(len(s.lately)-turns*weights+1, 0):] {
			if share, ok := all[tenant]; ok {
				share.Busy++
				all[tenant] = share
			}
		}
	}
	return all
}

// turns of each tenant, by its weight, are remembered.
const turns = 2

func (s *shares) weight(tenant string) int { return max(s.weights[tenant], 1) }

// begins is told of each attempt that gets a place.
func (s *shares) begins(f inbox.Forward) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[f.Delivery.Tenant]++
	s.lately = append(s.lately, f.Delivery.Tenant)
	if len(s.lately) > 2*s.memory {
		s.lately = slices.Delete(s.lately, 0, len(s.lately)-s.memory)
	}
	if isRetry(f) {
		s.retries++
		s.owed = max(s.owed-newOnes, 0)
	} else {
		s.owed = min(s.owed+1, max(s.quarter(), 1)*newOnes)
	}
}

// ends is told when it gives the place back.
func (s *shares) ends(f inbox.Forward) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[f.Delivery.Tenant]--; s.busy[f.Delivery.Tenant] == 0 {
		delete(s.busy, f.Delivery.Tenant)
	}
	if isRetry(f) {
		s.retries--
	}
}

func isRetry(f inbox.Forward) bool { return f.State == inbox.RetryWait }

// cut says that a share kept the claim r from taking more: there may be more that is
// due, for which an end makes room.
func cut(r inbox.ClaimRequest, claimed []inbox.Forward) bool {
	retries, of := 0, map[string]int{}
	for _, f := range claimed {
		of[f.Delivery.Tenant]++
		if isRetry(f) {
			retries++
		}
	}
	if r.ForNew > 0 && retries == r.Limit-r.ForNew {
		return true
	}
	for tenant, share := range r.Shares {
		if share.Most < r.Limit && of[tenant] == share.Most {
			return true
		}
	}
	return false
}
