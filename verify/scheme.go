package verify

// Scheme is a compiled recipe. It is immutable; the zero Scheme refuses
// everything.
type Scheme struct{ p *program }

type program struct{ recipe Recipe }

// Name is the recipe's name.
func (s Scheme) Name() string { return s.Recipe().Name }

// Recipe returns what the scheme was compiled from.
func (s Scheme) Recipe() Recipe {
	if s.p == nil {
		return Recipe{}
	}
	return s.p.recipe
}

// SecretSpec says how the secrets of this scheme are decoded.
func (s Scheme) SecretSpec() SecretSpec { return s.Recipe().SecretSpec }

// HasDeliveryID says whether requests carry a delivery id.
func (s Scheme) HasDeliveryID() bool { return s.Recipe().ID != nil }

// IDSigned says whether the signature covers the delivery id.
func (s Scheme) IDSigned() bool { return false }

// UsesKeyID says whether the request names its key.
func (s Scheme) UsesKeyID() bool { return s.Recipe().KeyID != nil }

// HasTimestamp says whether a timestamp is checked.
func (s Scheme) HasTimestamp() bool { return s.Recipe().Timestamp != nil }

// NeedsURL says whether Verifier.URL must be set.
func (s Scheme) NeedsURL() bool { return false }

// Preset returns a built-in scheme.
func Preset(name string) (Scheme, bool) { return Scheme{}, false }

// Presets returns the names of the built-in schemes, sorted.
func Presets() []string { return nil }
