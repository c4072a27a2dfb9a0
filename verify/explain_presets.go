package verify

import (
	"slices"
	"strings"
	"sync"
)

// facts is what all presets know together, each list in their order.
type facts struct {
	signatures []signatureHeader
	times, ids []string
	frames     []string // distinct shapes of signed texts
	hashed     []string // of plain hashes, which have the secret inside
}

type signatureHeader struct {
	name    string
	schemes []string
}

var presetFacts = sync.OnceValue(func() facts {
	var f facts
	seen := func(list []string, s string) bool {
		return slices.ContainsFunc(list, func(t string) bool { return strings.EqualFold(s, t) })
	}
	for _, name := range Presets() {
		s, _ := Preset(name)
		p := s.p
		for i := range p.signature.places {
			if q := &p.signature.places[i]; q.kind == placeHeader {
				f.addSignature(q.name, name)
			}
		}
		// Date stands in requests that have nothing to do with signatures.
		if t := p.timestamp; t != nil && t.from.kind == placeHeader && !strings.EqualFold(t.from.name, "Date") && !seen(f.times, t.from.name) {
			f.times = append(f.times, t.from.name)
		}
		if p.id != nil && p.id.template == nil && p.id.from[0].kind == placeHeader && !seen(f.ids, p.id.from[0].name) {
			f.ids = append(f.ids, p.id.from[0].name)
		}
		if shape := generalShape(p); shape != "" {
			list := &f.frames
			if p.algo.family == familyHash {
				list = &f.hashed
			}
			if !slices.Contains(*list, shape) {
				*list = append(*list, shape)
			}
		}
	}
	return f
})

// addSignature leaves out a header that has more uses than signatures.
func (f *facts) addSignature(header, scheme string) {
	if strings.EqualFold(header, "Authorization") {
		return
	}
	for i := range f.signatures {
		if s := &f.signatures[i]; strings.EqualFold(s.name, header) {
			s.schemes = append(s.schemes, scheme)
			return
		}
	}
	f.signatures = append(f.signatures, signatureHeader{header, []string{scheme}})
}
