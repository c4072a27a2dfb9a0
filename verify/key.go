package verify

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"
)

// maxActive is how many keys are tried where the request does not name one.
const maxActive = 4

// Key is a named secret with the span in which it is accepted: from NotBefore,
// included, to NotAfter, excluded, by our clock at receipt. A zero time is no
// bound. A key without an id answers to every key id.
type Key struct {
	ID        string
	Secret    Secret
	NotBefore time.Time
	NotAfter  time.Time
}

// Active says whether t lies in the key's span.
func (k Key) Active(t time.Time) bool {
	return !t.Before(k.NotBefore) && (k.NotAfter.IsZero() || t.Before(k.NotAfter))
}

// KeySet is an immutable list of keys. The zero KeySet accepts nothing.
type KeySet struct{ d *keySetData }

type keySetData struct {
	keys   []Key  // as given
	newest []*Key // later NotBefore first, none counts as oldest, then as given
	decoy  Secret // hashes for key ids that are not there
}

// NewKeySet refuses keys without a secret, ids that no header can hold, spans that
// are empty, and ids that stand twice.
func NewKeySet(keys ...Key) (KeySet, error) {
	d := &keySetData{keys: slices.Clone(keys)}
	for i := range d.keys {
		k := &d.keys[i]
		if k.Secret.IsZero() {
			return KeySet{}, fmt.Errorf("verify: key %q: %w: no secret", k.ID, ErrKeyUnusable)
		}
		if rule := keyIDRule(k.ID); rule != "" {
			return KeySet{}, fmt.Errorf("verify: key %q: %w: %s", k.ID, ErrKeyUnusable, rule)
		}
		if !k.NotAfter.IsZero() && !k.NotBefore.Before(k.NotAfter) {
			return KeySet{}, fmt.Errorf("verify: key %q: %w: not_after is not later than not_before", k.ID, ErrKeyUnusable)
		}
		for _, other := range d.keys[:i] {
			if other.ID == k.ID && k.ID != "" {
				return KeySet{}, fmt.Errorf("verify: key %q stands twice", k.ID)
			}
		}
		d.newest = append(d.newest, k)
	}
	slices.SortStableFunc(d.newest, func(a, b *Key) int { return b.NotBefore.Compare(a.NotBefore) })
	decoy := make([]byte, 32)
	rand.Read(decoy)
	d.decoy = newSecret(&secretData{raw: decoy})
	return KeySet{d}, nil
}

// Keys returns the keys in their order. Their secrets print as [redacted].
func (s KeySet) Keys() []Key {
	if s.d == nil {
		return nil
	}
	return slices.Clone(s.d.keys)
}

// keyList is a bounded choice of keys, kept on the stack.
type keyList struct {
	keys [maxActive]*Key
	n    int
}

func (l *keyList) add(k *Key) {
	if l.n < len(l.keys) {
		l.keys[l.n] = k
		l.n++
	}
}

// named finds the key of that id whatever its span; failing that, keys without an
// id, those that are active at t before the others.
func (s KeySet) named(id string, t time.Time) (l keyList) {
	if s.d == nil {
		return l
	}
	for _, k := range s.d.newest {
		if k.ID == id && id != "" {
			l.add(k)
			return l
		}
	}
	for _, active := range []bool{true, false} {
		for _, k := range s.d.newest {
			if k.ID == "" && k.Active(t) == active {
				l.add(k)
			}
		}
	}
	return l
}

// active returns the newest keys whose span holds t, or those whose span does not.
func (s KeySet) active(t time.Time, want bool) (l keyList) {
	if s.d == nil {
		return l
	}
	for _, k := range s.d.newest {
		if k.Active(t) == want {
			l.add(k)
		}
	}
	return l
}

// retiring says whether a later key than k is active.
func (s KeySet) retiring(k *Key, t time.Time) bool {
	if k.NotAfter.IsZero() {
		return false
	}
	for _, other := range s.d.newest {
		if other.NotBefore.After(k.NotBefore) && other.Active(t) {
			return true
		}
	}
	return false
}

// mostActive is the largest number of keys that are active at one time; of those
// without an id where the others are found by theirs.
func (s KeySet) mostActive(byID bool) int {
	if s.d == nil {
		return 0
	}
	most := 0
	// The number only grows where a span begins.
	for _, at := range s.d.keys {
		n := 0
		for _, k := range s.d.keys {
			if k.Active(at.NotBefore) && (k.ID == "" || !byID) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
