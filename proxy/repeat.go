package proxy

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// repeats is what a source takes for a repeat of a delivery, and for none.
type repeats struct {
	acceptFirst bool
	ignored     verify.Ignored
	// guard is how far back the body guard looks for a request that the first or the
	// second scheme has verified. 0: it is off.
	guard, guardSecond time.Duration
}

// newRepeats takes the defaults from the schemes. What is ignored is the same for
// both of them: a retry may come under the other one.
func newRepeats(s Source, first, second *verify.Verifier) (r repeats, err error) {
	recipe := first.Scheme.Recipe()
	onConflict := s.OnConflict
	if onConflict == "" && recipe.Ack != nil {
		onConflict = recipe.Ack.OnConflict
	}
	switch onConflict {
	case "", "reject":
	case "accept_first":
		r.acceptFirst = true
	default:
		return r, fmt.Errorf("OnConflict %q is neither reject nor accept_first", onConflict)
	}
	pointers := s.ConflictIgnore
	if pointers == nil {
		pointers = recipe.ConflictIgnore
		if second != nil {
			pointers = append(pointers, second.Scheme.Recipe().ConflictIgnore...)
		}
	}
	if r.ignored, err = verify.ParseIgnored(pointers...); err != nil {
		return r, fmt.Errorf("ConflictIgnore: %w", err)
	}
	if s.BodyGuard != "" && s.BodyGuard != "on" && s.BodyGuard != "off" {
		return r, fmt.Errorf("BodyGuard %q is neither on nor off", s.BodyGuard)
	}
	if s.IdentityRetention < 0 {
		return r, fmt.Errorf("IdentityRetention %s is negative", s.IdentityRetention)
	}
	r.guard = guardOf(s, first)
	if second != nil {
		r.guardSecond = guardOf(s, second)
	}
	return r, nil
}

// guardOf is how long a request that v verifies can be sent again, where the guard is
// on.
func guardOf(s Source, v *verify.Verifier) time.Duration {
	on := s.BodyGuard == "on" || s.BodyGuard == "" && !v.Scheme.IDSigned() && v.Scheme.Recipe().BodyUnique
	switch {
	case !on:
		return 0
	case v.Scheme.HasTimestamp() && window(v) > 0:
		return 2 * window(v)
	}
	return cmp.Or(s.IdentityRetention, 90*24*time.Hour)
}

// mark says in d what counts as its repeat.
func (s *source) mark(d *inbox.Delivery, v *verify.Verifier) {
	r := &s.repeats
	d.AcceptFirst, d.BodyGuard = r.acceptFirst, r.guard
	if v == s.second {
		d.BodyGuard = r.guardSecond
	}
	if hash, ok := r.ignored.CompareHash(d.Body); ok {
		d.CompareHash = hash
	}
}
