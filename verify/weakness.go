package verify

import (
	"slices"
	"strings"
)

// Weakness is what a valid signature of a scheme does not rule out.
type Weakness struct {
	// Code is one of id_unsigned, body_not_covered, body_crc32, no_timestamp,
	// no_window, sha1, plain_hash and static_token.
	Code string
	Text string // the same for people
}

// Weaknesses lists what the scheme leaves open, the worst first. They follow from
// the recipe; none of them is a fault of it.
func (s Scheme) Weaknesses() []Weakness {
	if s.p == nil {
		return nil
	}
	p := s.p
	if f := p.algo.family; f == familyToken || f == familyBasic {
		return []Weakness{{"static_token", "static token: nothing is signed, and whoever sees one request can make any other"}}
	}
	var all []Weakness
	add := func(code, text string) { all = append(all, Weakness{code, text}) }
	switch covered := p.coveredOfBody(); {
	case p.bodySigned:
	case slices.Contains(covered, "body_crc32_dec"):
		add("body_crc32", "body covered by CRC-32 only: whoever has one valid request can forge another body for it")
	case slices.Contains(covered, "form_sorted"):
		add("body_not_covered", "body covered as its form fields only: where one ends and the next begins can be moved")
	case len(covered) > 0:
		add("body_not_covered", "body not covered but for "+strings.Join(covered, ", ")+": the rest of it can be changed")
	default:
		add("body_not_covered", "body not covered: a captured signature is valid for any other body")
	}
	if p.id != nil && !p.id.signed {
		add("id_unsigned", "delivery id not signed: a captured request is valid under another id")
	}
	switch {
	case p.timestamp == nil:
		add("no_timestamp", "no timestamp: only the inbox stops a replay, and only under the same delivery id")
	case p.timestamp.window == 0 && (p.code == nil || !p.code.expires):
		add("no_window", "timestamp without a window: unless a tolerance is set, only the inbox stops a replay")
	}
	if p.sha1 {
		add("sha1", "SHA-1: broken as a hash, though not yet as an HMAC")
	}
	if p.algo.family == familyHash {
		add("plain_hash", "secret in a plain hash: it stands where an HMAC belongs, and some hashes can be extended")
	}
	return all
}

// coveredOfBody lists what of the body is signed where not all of it is.
func (p *program) coveredOfBody() []string {
	var all []string
	if p.code != nil && p.code.part != "" {
		all = append(all, p.code.part)
	}
	for i := range p.parts {
		switch part := &p.parts[i]; part.kind {
		case partFormSorted, partBodyCRC32:
			all = append(all, part.text)
		case partPlace:
			if part.place.kind == placeJSON || part.place.kind == placeForm {
				all = append(all, part.text)
			}
		}
	}
	return all
}

// Covers lists what the signature covers, in the order of the signed text: body,
// timestamp, id, key id, URL, method, or the token of the template. A token and
// Basic authorization cover nothing. Schemes in code are said in short.
func (s Scheme) Covers() []string {
	if s.p == nil {
		return nil
	}
	if s.p.code != nil {
		// What must be signed, where the recipe says it.
		return append(slices.Clone(s.p.code.signs), s.p.recipe.RequiredComponents...)
	}
	var all []string
	for i := range s.p.parts {
		if what := s.p.partName(&s.p.parts[i]); what != "" && !slices.Contains(all, what) {
			all = append(all, what)
		}
	}
	return all
}

func (p *program) partName(part *part) string {
	switch part.kind {
	case partLiteral, partSecret:
		return ""
	case partBody, partBodySHA256Hex, partBodySHA256Raw:
		return "body"
	case partBodyCRC32:
		return "CRC-32 of the body"
	case partFormSorted:
		return "form"
	case partMethod:
		return "method"
	case partURL:
		return "URL"
	case partPath, partPathQuery:
		return "path"
	case partHost:
		return "host"
	case partQueryRaw:
		return "query"
	case partPlace:
		return p.placeName(&part.place)
	}
	return part.text
}

func (p *program) placeName(v *place) string {
	is := func(o *place) bool {
		return o.kind == v.kind && (v.kind == placeHeader && o.slot == v.slot || v.kind != placeHeader && o.same(v))
	}
	if p.timestamp != nil && is(&p.timestamp.from) {
		return "timestamp"
	}
	if p.id != nil {
		for i := range p.id.from {
			if is(&p.id.from[i]) {
				return "id"
			}
		}
		for i := range p.id.template {
			if part := &p.id.template[i]; part.kind == partPlace && is(&part.place) {
				return "id"
			}
		}
	}
	if is(&p.keyID) {
		return "key id"
	}
	return v.String()
}
