package verify

import (
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
)

func (b *builder) signature() error {
	if b.p.code != nil {
		return nil
	}
	return b.signatureOf(&b.r.Signature)
}

func (b *builder) signatureOf(r *SignatureRecipe) error {
	spec := &b.p.signature
	spec.least, spec.most = b.p.algo.least, b.p.algo.most
	spec.candidates = maxCandidates
	if !b.p.algo.family.shared() {
		spec.candidates = maxPublicKeySigs
	}
	if err := b.signaturePlaces(r); err != nil {
		return err
	}
	if err := b.signatureList(r); err != nil {
		return err
	}
	spec.prefix, spec.prefixOptional = r.Prefix, r.PrefixOptional
	if r.PrefixOptional && r.Prefix == "" {
		return wrongf("prefix_optional", "without prefix")
	}
	if spec.listSep != 0 && strings.IndexByte(r.Prefix, spec.listSep) >= 0 {
		return wrongf("prefix", "holds list_sep")
	}
	return b.signatureEncoding(r)
}

func (b *builder) signaturePlaces(r *SignatureRecipe) error {
	spec := &b.p.signature
	names := r.Names
	if r.Name != "" {
		if len(names) > 0 {
			return wrongf("names", "name and names exclude each other")
		}
		names = []string{r.Name}
	}
	if len(names) == 0 && b.p.algo.family == familyBasic {
		names = []string{"Authorization"}
	}
	if len(names) == 0 {
		return wrongf("name", "is missing: the header, JSON path or field of the signature")
	}
	if b.p.algo.family == familyBasic && r.In != "" && r.In != "header" {
		return wrongf("in", "basic stands in a header")
	}
	kind := r.In
	switch kind {
	case "", "header":
		kind = "header"
	case "json", "form", "query":
		if len(r.Names) > 0 {
			return wrongf("names", "is for headers")
		}
		if r.MultiValue {
			return wrongf("multi_value", "is for headers")
		}
	default:
		return wrongf("in", "unknown value %q", r.In)
	}
	spec.in = map[string]placeKind{
		"header": placeHeader, "json": placeJSON, "form": placeForm, "query": placeQuery,
	}[kind]
	for i, name := range names {
		field := "name"
		if len(r.Names) > 0 {
			field = fmt.Sprintf("names[%d]", i)
		}
		p, err := parsePlace(kind + ":" + name)
		if err != nil {
			return in(field, err)
		}
		if p.kind == placeHeader {
			if p.slot, err = b.slot(name, false); err != nil {
				return in(field, err)
			}
			h := &b.p.headers[p.slot]
			h.multi, h.list = r.MultiValue, r.ListSep == ","
		}
		spec.places = append(spec.places, p)
	}
	return nil
}

func (b *builder) signatureList(r *SignatureRecipe) error {
	spec := &b.p.signature
	switch r.ListSep {
	case "":
	case ",", ";", " ":
		spec.listSep = r.ListSep[0]
	default:
		return wrongf("list_sep", "unknown value %q", r.ListSep)
	}
	switch r.KVSep {
	case "":
	case "=", ",":
		spec.kvSep = r.KVSep[0]
	default:
		return wrongf("kv_sep", "unknown value %q", r.KVSep)
	}
	if (spec.kvSep != 0) != (len(r.Tags) > 0) {
		return wrongf("tags", "kv_sep and tags go together")
	}
	if spec.kvSep != 0 && spec.kvSep == spec.listSep {
		return wrongf("kv_sep", "is list_sep too")
	}
	for i, tag := range r.Tags {
		if !plainTag(tag) || slices.Contains(r.Tags[:i], tag) {
			return wrongf(fmt.Sprintf("tags[%d]", i), "%q is not 1 to 32 letters, digits, _ or -, or stands twice", tag)
		}
	}
	spec.tags = slices.Clone(r.Tags)
	spec.trim = r.ListSep == ","
	if r.Trim != nil {
		spec.trim = *r.Trim
		if *r.Trim && (spec.listSep == 0 || spec.listSep == ' ') {
			return wrongf("trim", "needs a list that is not split by blanks")
		}
	}
	if f := b.p.algo.family; (f == familyToken || f == familyBasic) && (spec.listSep != 0 || spec.kvSep != 0) {
		return fmt.Errorf("%s has no list of signatures", b.r.Algo)
	}
	return nil
}

func plainTag(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

func (b *builder) signatureEncoding(r *SignatureRecipe) error {
	spec := &b.p.signature
	if r.HexCase != "" && r.HexCase != "lower" && r.HexCase != "any" {
		return wrongf("hex_case", "unknown value %q", r.HexCase)
	}
	switch b.p.algo.family {
	case familyToken:
		if r.Encoding != "" && r.Encoding != "raw" || r.HexCase != "" {
			return wrongf("encoding", "a token is compared as it is: raw")
		}
		spec.encoding = encRaw
		return nil
	case familyBasic:
		if r.Encoding != "" && r.Encoding != "base64" || r.HexCase != "" || r.Prefix != "" {
			return errors.New("basic has a fixed spelling: no encoding, hex_case or prefix")
		}
		spec.encoding, spec.prefix = encBase64, "Basic "
		return nil
	}
	switch r.Encoding {
	case "", "hex":
		spec.encoding = encHex
		if r.HexCase == "any" {
			spec.encoding = encHexAny
		}
		return nil
	case "base64":
		spec.encoding = encBase64
	case "base64url-nopad":
		spec.encoding = encBase64URL
	case "raw":
		return wrongf("encoding", "raw is for tokens")
	default:
		return wrongf("encoding", "unknown value %q", r.Encoding)
	}
	if r.HexCase != "" {
		return wrongf("hex_case", "goes with hex")
	}
	return nil
}

func (b *builder) id() error {
	r := b.r.ID
	if r == nil {
		return nil
	}
	if len(r.From) == 0 {
		return wrongf("from", "is missing")
	}
	spec := &idSpec{}
	if r.Pattern != "" {
		var err error
		if spec.pattern, err = compilePattern(r.Pattern); err != nil {
			return in("pattern", err)
		}
	}
	spec.signed = true
	add := func(p place, demanded bool) (place, error) {
		p, err := b.bind(p, demanded, placeHeader, placeJSON, placeForm, placeQuery, placeBodySHA256)
		if err == nil {
			b.late(&p)
			spec.late = spec.late || p.kind != placeHeader && p.kind != placeQuery
			spec.signed = spec.signed && b.covered(&p)
		}
		return p, err
	}
	if len(r.From) == 1 && strings.Contains(r.From[0], "{") {
		parts, err := parseTemplate(r.From[0])
		if err != nil {
			return in("from", err)
		}
		for i := range parts {
			switch parts[i].kind {
			case partLiteral:
				continue
			case partPlace:
			default:
				return wrongf("from", "{%s} cannot be part of an id", parts[i].text)
			}
			if parts[i].place, err = add(parts[i].place, true); err != nil {
				return in("from", err)
			}
		}
		spec.template = parts
	} else {
		for i, from := range r.From {
			p, err := parsePlace(from)
			if err != nil {
				return in(fromField(r.From, i), err)
			}
			if p, err = add(p, len(r.From) == 1); err != nil {
				return in(fromField(r.From, i), err)
			}
			spec.from = append(spec.from, p)
		}
	}
	if r.Signed && !spec.signed {
		return wrongf("signed", "is true, but the template does not cover the id")
	}
	b.p.id = spec
	return nil
}

// fromField is the path of one of several places.
func fromField(from Sources, i int) string {
	if len(from) == 1 {
		return "from"
	}
	return fmt.Sprintf("from[%d]", i)
}

func (b *builder) keyID() error {
	if b.r.KeyID == nil {
		return nil
	}
	if b.p.keyID.kind != placeNone {
		return fmt.Errorf("does not go with %s, where the signature names the key", b.r.Algo)
	}
	if len(b.r.KeyID.From) != 1 {
		return wrongf("from", "names one place")
	}
	// Nothing in a body may choose the key that the body is checked with.
	p, err := b.place(b.r.KeyID.From[0], true, placeHeader, placeQuery)
	b.p.keyID = p
	return in("from", err)
}

func (b *builder) eventType() error {
	if b.r.EventType == nil {
		return nil
	}
	if len(b.r.EventType.From) == 0 {
		return wrongf("from", "is missing")
	}
	for i, from := range b.r.EventType.From {
		p, err := b.place(from, false, placeHeader, placeJSON, placeForm, placeQuery)
		if err != nil {
			return in(fromField(b.r.EventType.From, i), err)
		}
		b.late(&p)
		b.p.eventType = append(b.p.eventType, p)
	}
	return nil
}

// late gives a place in JSON its slot among those that one scan finds.
func (b *builder) late(p *place) {
	if p.kind == placeJSON {
		p.slot = len(b.p.late)
		b.p.late = append(b.p.late, p.path)
	}
}

func (b *builder) require() error {
	for i, r := range b.r.Require {
		at := fmt.Sprintf("[%d].", i)
		if r.Equals == "" {
			return wrongf(at+"equals", "header %s must equal something", r.Header)
		}
		slot, err := b.slot(r.Header, false)
		if err != nil {
			return in(at+"header", err)
		}
		if slices.ContainsFunc(b.p.require, func(q requirement) bool { return q.slot == slot }) {
			return wrongf(at+"header", "%s stands twice", r.Header)
		}
		b.p.require = append(b.p.require, requirement{slot, r.Equals})
	}
	return nil
}

func (b *builder) params() error {
	for i, name := range b.r.Params {
		if !plainTag(name) || slices.Contains(b.r.Params[:i], name) {
			return wrongf(fmt.Sprintf("[%d]", i), "%q is no name, or stands twice", name)
		}
		if b.p.code != nil && slices.Contains(b.p.code.params, name) {
			continue
		}
		if !slices.ContainsFunc(b.p.parts, func(p part) bool { return p.kind == partParam && p.text == name }) {
			return wrongf(fmt.Sprintf("[%d]", i), "%s is not used", name)
		}
	}
	return nil
}

func (b *builder) conflictIgnore() error {
	if n := len(b.r.ConflictIgnore); n > maxIgnored {
		return wrongf("", "%d pointers are more than %d", n, maxIgnored)
	}
	for i, s := range b.r.ConflictIgnore {
		if _, err := ignoredPath(s); err != nil {
			return in(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

// maxAnswer bounds the body of an answer: it goes out with each delivery.
const maxAnswer = 4096

// mediaType is narrower than [mime.ParseMediaType], which lets control characters
// through in quotes.
func mediaType(s string) bool {
	_, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(s, "/") && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

func (b *builder) ack() error {
	a := b.r.Ack
	if a == nil {
		return nil
	}
	if s := a.SuccessStatus; s != 0 && (s < 200 || s > 299) {
		return wrongf("success_status", "%d is not 200 to 299", s)
	}
	if a.SuccessStatus == 204 && (a.SuccessBody != nil || a.SuccessType != "") {
		return wrongf("success_status", "204 has no body")
	}
	if a.SuccessBody != nil && len(*a.SuccessBody) > maxAnswer {
		return wrongf("success_body", "is longer than %d bytes", maxAnswer)
	}
	if s := a.SuccessType; s != "" && !mediaType(s) {
		return wrongf("success_type", "%q is no media type such as text/plain", s)
	}
	if s := a.RefusalStatus; s != 0 && s != 400 && s != 401 && s != 403 {
		return wrongf("refusal_status", "%d is not 400, 401 or 403", s)
	}
	if s := a.ConflictStatus; s != 0 && (s < 400 || s > 499 || s == 410) {
		return wrongf("conflict_status", "%d is not another 4xx than 410", s)
	}
	if c := a.OnConflict; c != "" && c != "reject" && c != "accept_first" {
		return wrongf("on_conflict", "unknown value %q", c)
	}
	return nil
}
