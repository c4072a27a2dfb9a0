package verify

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scheme is a compiled recipe. It is immutable; the zero Scheme refuses
// everything.
type Scheme struct{ p *program }

// program is a recipe with everything looked up that can be before a request.
type program struct {
	ready       bool
	recipe      Recipe
	algo        algorithm
	code        *coder // nil: the recipe says it all
	sha1        bool
	headers     []headerName
	nameLengths uint64 // bit n: a header of n bytes is named
	longNames   bool
	signature   signatureSpec
	fields      []string // names of {sig:…} tokens
	parts       []part
	timestamp   *timestampSpec
	id          *idSpec
	keyID       place
	eventType   []place
	late        [][]string // JSON paths of id and event type, by place.slot
	require     []requirement
	handshakes  []handshake
	// keyedAnswers: a handshake answers with a MAC under the signing key.
	keyedAnswers bool
	bodySigned   bool
	needsURL     bool
	queryByURL   bool // a value in the query is signed only where the URL has no query of its own
}

type requirement struct {
	slot   int
	equals string
}

func (p *program) title() string {
	if p.recipe.Name == "" {
		return "scheme"
	}
	return p.recipe.Name
}

// Name is the recipe's name.
func (s Scheme) Name() string {
	if s.p == nil {
		return ""
	}
	return s.p.recipe.Name
}

// Recipe returns what the scheme was compiled from.
func (s Scheme) Recipe() Recipe {
	if s.p == nil {
		return Recipe{}
	}
	return s.p.recipe.clone()
}

// IsZero says whether the scheme refuses everything.
func (s Scheme) IsZero() bool { return s.p == nil }

// SecretSpec says how the secrets of this scheme are decoded, defaults filled in.
func (s Scheme) SecretSpec() SecretSpec {
	if s.p == nil {
		return SecretSpec{}
	}
	spec := s.p.recipe.clone().SecretSpec
	spec.Encoding = cmp.Or(spec.Encoding, s.p.defaultEncoding())
	spec.MinLen = max(spec.MinLen, 1)
	return spec
}

// HasDeliveryID says whether requests carry a delivery id.
func (s Scheme) HasDeliveryID() bool { return s.p != nil && s.p.id != nil }

// IDSigned says whether the signature covers the delivery id.
func (s Scheme) IDSigned() bool { return s.HasDeliveryID() && s.p.id.signed }

// BodySigned says whether the signature covers the whole body.
func (s Scheme) BodySigned() bool { return s.p != nil && s.p.bodySigned }

// UsesKeyID says whether the request names its key.
func (s Scheme) UsesKeyID() bool { return s.p != nil && s.p.keyID.kind != placeNone }

// HasTimestamp says whether a timestamp is checked.
func (s Scheme) HasTimestamp() bool { return s.p != nil && s.p.timestamp != nil }

// HasHandshake says whether the scheme has a handshake of that kind.
func (s Scheme) HasHandshake(kind string) bool {
	if s.p == nil {
		return false
	}
	return slices.ContainsFunc(s.p.handshakes, func(h handshake) bool { return h.kind == kind })
}

// HandshakeNeedsToken says whether a handshake compares [Handshakes.Token].
func (s Scheme) HandshakeNeedsToken() bool {
	if s.p == nil {
		return false
	}
	return slices.ContainsFunc(s.p.handshakes, func(h handshake) bool { return h.token >= 0 })
}

// Tolerance is the scheme's own window, both ways. 0: it checks none.
func (s Scheme) Tolerance() time.Duration {
	if !s.HasTimestamp() {
		return 0
	}
	return s.p.timestamp.window
}

// NeedsURL says whether Verifier.URL must be set.
func (s Scheme) NeedsURL() bool { return s.p != nil && s.p.needsURL }

// Headers returns the names of the headers that the scheme looks at, in the order
// of the recipe.
func (s Scheme) Headers() []string {
	if s.p == nil {
		return nil
	}
	names := make([]string, len(s.p.headers))
	for i := range names {
		names[i] = s.p.headers[i].name
	}
	return names
}

// SignatureAt lists the places of the signature, as [ParseField] reads them.
func (s Scheme) SignatureAt() []string {
	if s.p == nil {
		return nil
	}
	var all []string
	for i := range s.p.signature.places {
		p := &s.p.signature.places[i]
		if p.kind == placeHeader {
			all = append(all, "header:"+p.name)
		} else {
			all = append(all, p.String())
		}
	}
	return all
}

// Warnings are weaknesses of a recipe that are no faults. Presets have reasons for
// theirs.
func (s Scheme) Warnings() []string {
	if s.p == nil {
		return nil
	}
	var w []string
	for i := 1; i < len(s.p.parts); i++ {
		a, b := &s.p.parts[i-1], &s.p.parts[i]
		if !a.fixed() && !b.fixed() {
			w = append(w, fmt.Sprintf("template: {%s} and {%s} touch, so two requests can have one signed text", a.text, b.text))
		}
	}
	if s.p.code != nil {
		for _, name := range s.p.code.params {
			if !slices.Contains(s.p.recipe.Params, name) {
				w = append(w, fmt.Sprintf("params: %s is not demanded, so any value of it is accepted where none is given", name))
			}
		}
	}
	return w
}

//go:embed schemes.json
var schemesJSON string

// presets compiles the embedded table at first use.
var presets = sync.OnceValues(loadPresets)

func loadPresets() (map[string]Scheme, error) {
	all := map[string]Scheme{}
	for line := range strings.Lines(schemesJSON) {
		r, err := parseRecipe([]byte(line), nil)
		if err != nil {
			return nil, err
		}
		s, err := r.Compile()
		if err != nil {
			return nil, err
		}
		if _, twice := all[r.Name]; twice || r.Name == "" {
			return nil, fmt.Errorf("preset %q has no name of its own", r.Name)
		}
		all[r.Name] = s
	}
	return all, nil
}

// Preset returns a built-in scheme.
func Preset(name string) (Scheme, bool) {
	all, _ := presets() // a test holds that the table compiles
	s, ok := all[name]
	return s, ok
}

// Presets returns the names of the built-in schemes, sorted.
func Presets() []string {
	all, _ := presets()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (p *program) defaultEncoding() string {
	switch {
	case !p.algo.family.shared():
		return "pem"
	case p.code != nil && p.code.encoding != "":
		return p.code.encoding
	}
	return "utf8"
}
