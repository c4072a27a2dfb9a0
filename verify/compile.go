package verify

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// defaultTolerance is the window of recipes that name none.
const defaultTolerance = 300 * time.Second

// Compile checks the recipe and makes a Scheme of it. All nonsense is refused
// here, none at the first request.
func (r Recipe) Compile() (Scheme, error) {
	p := &program{recipe: r.clone()}
	b := builder{p: p, r: &p.recipe}
	steps := []struct {
		field string
		run   func() error
	}{
		{"name", b.name}, {"algo", b.algo}, {"secret_spec", b.secretSpec},
		{"", b.compileCode}, {"signature", b.signature}, {"template", b.template}, {"timestamp", b.timestamp},
		{"id", b.id}, {"key_id", b.keyID}, {"event_type", b.eventType},
		{"require", b.require}, {"params", b.params},
		{"conflict_ignore", b.conflictIgnore}, {"ack", b.ack}, {"handshake", b.handshake}, {"", b.codeOnly},
	}
	for _, s := range steps {
		if err := s.run(); err != nil {
			return Scheme{}, recipeError(r.Name, s.field, err)
		}
	}
	p.ready = true
	return Scheme{p}, nil
}

type builder struct {
	p *program
	r *Recipe
}

var nameShape = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func (b *builder) name() error {
	if b.r.Name != "" && !nameShape.MatchString(b.r.Name) {
		return fmt.Errorf("%q is not lower-case letters, digits, dots, _ and -", b.r.Name)
	}
	return nil
}

func (b *builder) algo() error {
	a, ok := algorithms[b.r.Algo]
	switch {
	case b.r.Algo == "":
		return errors.New("is missing")
	case strings.HasPrefix(b.r.Algo, "code:"):
		return b.codeAlgo()
	case !ok:
		return fmt.Errorf("unknown value %q", b.r.Algo)
	}
	b.p.algo, b.p.sha1 = a, strings.Contains(b.r.Algo, "sha1")
	return nil
}

func (b *builder) secretSpec() error {
	s := &b.r.SecretSpec
	f := b.p.algo.family
	switch s.Encoding {
	case "":
	case "utf8", "base64", "hex", "whsec":
	case "pem", "spki-der-base64":
	case "raw-hex", "raw-base64":
		if f != familyEd25519 {
			return wrongf("encoding", "%s is for ed25519", s.Encoding)
		}
	default:
		return wrongf("encoding", "unknown value %q", s.Encoding)
	}
	public, encoding := false, cmp.Or(s.Encoding, b.p.defaultEncoding())
	switch encoding {
	case "pem", "spki-der-base64", "raw-hex", "raw-base64":
		public = true
	}
	if public == f.shared() {
		goes := "pem, spki-der-base64, and of ed25519 raw-hex and raw-base64 do"
		if public {
			goes = "utf8, base64, hex and whsec do"
		}
		return wrongf("encoding", "%s does not go with %s: %s", s.Encoding, b.r.Algo, goes)
	}
	if f == familyBasic && s.Encoding != "" && s.Encoding != "utf8" {
		return wrongf("encoding", "a secret for basic is the text user:password")
	}
	if s.MinLen < 0 || s.MinLen > maxSecret || s.MinLen > 0 && public {
		return wrongf("min_len", "%d is out of place", s.MinLen)
	}
	if len(s.StripPrefix) > 0 && slices.Contains([]string{"utf8", "whsec", "pem"}, encoding) {
		return wrongf("strip_prefix", "does not go with %s, which cuts none of these", encoding)
	}
	for i, prefix := range s.StripPrefix {
		if prefix == "" {
			return wrongf(fmt.Sprintf("strip_prefix[%d]", i), "is empty")
		}
	}
	return nil
}

// slot finds or makes the place of a header. Two names that differ only in _ and -
// could not be told apart.
func (b *builder) slot(name string, demanded bool) (int, error) {
	for i := range b.p.headers {
		h := &b.p.headers[i]
		switch spelled(h.name, name) {
		case spelledTwin:
			return 0, fmt.Errorf("headers %s and %s read the same", h.name, name)
		case spelledRight:
			if h.list || h.multi || i < b.signatureHeaders() {
				return 0, fmt.Errorf("header %s holds the signature", name)
			}
			h.demanded = h.demanded || demanded
			return i, nil
		}
	}
	if !validHeaderName(name) {
		return 0, fmt.Errorf("%q is no header name", name)
	}
	if len(b.p.headers) == maxHeaders {
		return 0, fmt.Errorf("more than %d headers", maxHeaders)
	}
	if len(name) < 64 {
		b.p.nameLengths |= 1 << len(name)
	} else {
		b.p.longNames = true
	}
	b.p.headers = append(b.p.headers, headerName{name: name, demanded: demanded})
	return len(b.p.headers) - 1, nil
}

func (b *builder) signatureHeaders() int {
	if b.p.signature.in != placeHeader {
		return 0
	}
	return len(b.p.signature.places)
}

// place parses a place and gives it its slot.
func (b *builder) place(s string, demanded bool, kinds ...placeKind) (place, error) {
	p, err := parsePlace(s)
	if err != nil {
		return place{}, err
	}
	return b.bind(p, demanded, kinds...)
}

func (b *builder) bind(p place, demanded bool, kinds ...placeKind) (place, error) {
	allowed := false
	for _, k := range kinds {
		allowed = allowed || k == p.kind
	}
	if !allowed {
		return place{}, fmt.Errorf("the value cannot stand in %s", p)
	}
	for i := range b.p.signature.places {
		// A signature does not sign itself, and a token that was read as an id
		// would be stored and logged. Headers are told apart by slot.
		if s := &b.p.signature.places[i]; s.kind == p.kind && p.kind != placeHeader && s.same(&p) {
			return place{}, fmt.Errorf("%s holds the signature", p)
		}
	}
	var err error
	switch p.kind {
	case placeHeader:
		p.slot, err = b.slot(p.name, demanded)
	case placeSig:
		p.slot, err = b.field(p.name)
	}
	return p, err
}

// field finds or makes the place of a {sig:…} value.
func (b *builder) field(tag string) (int, error) {
	if b.p.signature.kvSep == 0 || b.p.signature.listSep == 0 {
		return 0, fmt.Errorf("{sig:%s} needs signature.kv_sep, and list_sep to stand beside the signature", tag)
	}
	if !plainTag(tag) {
		return 0, fmt.Errorf("{sig:%s} is not 1 to 32 letters, digits, _ or -", tag)
	}
	if index(b.p.signature.tags, tag) >= 0 {
		return 0, fmt.Errorf("{sig:%s} is a signature itself", tag)
	}
	if i := index(b.p.fields, tag); i >= 0 {
		return i, nil
	}
	if len(b.p.fields) == maxFields {
		return 0, fmt.Errorf("more than %d {sig:…} values", maxFields)
	}
	b.p.fields = append(b.p.fields, tag)
	return len(b.p.fields) - 1, nil
}

func (b *builder) template() error {
	if b.p.code != nil {
		return nil
	}
	f := b.p.algo.family
	if f == familyToken || f == familyBasic {
		if b.r.Template != "" {
			return fmt.Errorf("%s signs nothing", b.r.Algo)
		}
		return nil
	}
	if b.r.Template == "" {
		return errors.New("is missing: the text that is signed, such as {body}")
	}
	parts, err := parseTemplate(b.r.Template)
	if err != nil {
		return err
	}
	variable, secret, selfSigned := false, false, false
	inBody := b.p.signature.in == placeJSON || b.p.signature.in == placeForm
	for i := range parts {
		p := &parts[i]
		switch p.kind {
		case partLiteral:
			continue
		case partSecret:
			secret = true
			continue
		case partPlace:
			p.place, err = b.bind(p.place, true, placeHeader, placeSig, placeJSON, placeForm, placeQuery)
			if err != nil {
				return err
			}
		case partPath, partHost:
			b.p.needsURL = true
		case partURL, partPathQuery:
			b.p.needsURL = true
			selfSigned = b.p.signature.in == placeQuery
		case partBody, partBodySHA256Hex, partBodySHA256Raw:
			b.p.bodySigned = true
			selfSigned = inBody
		case partFormSorted, partBodyCRC32:
			selfSigned = inBody
		case partQueryRaw:
			selfSigned = b.p.signature.in == placeQuery
		case partParam:
			if index(b.r.Params, p.text) < 0 {
				return fmt.Errorf("{param:%s} is not in params", p.text)
			}
		}
		if selfSigned {
			return fmt.Errorf("{%s} holds the signature", p.text)
		}
		variable = variable || !p.fixed()
	}
	if secret != (f == familyHash) {
		return fmt.Errorf("{secret} goes with hash-* and with nothing else")
	}
	if !variable {
		return errors.New("signs nothing of the request")
	}
	b.p.parts = parts
	return nil
}

// covered says whether the signature covers a value, and where it begins and ends:
// one among {form_sorted} can be cut in another place.
func (b *builder) covered(v *place) bool {
	if b.p.code != nil && b.p.code.covers != nil && b.p.code.covers(b, v) {
		return true
	}
	for i := range b.p.parts {
		p := &b.p.parts[i]
		if p.kind == partPlace && p.place.kind == v.kind {
			if v.kind == placeHeader && p.place.slot == v.slot || v.kind != placeHeader && p.place.same(v) {
				return true
			}
		}
		switch {
		case v.kind == placeQuery && p.kind == partQueryRaw:
			return true
		case v.kind == placeQuery && (p.kind == partURL || p.kind == partPathQuery):
			b.p.queryByURL = true
			return true
		}
	}
	inBody := v.kind == placeJSON || v.kind == placeForm || v.kind == placeBodySHA256
	return inBody && b.p.bodySigned
}

// same says whether two places outside the headers are one.
func (p *place) same(o *place) bool {
	if p.kind != placeJSON {
		return p.name == o.name
	}
	return slices.Equal(p.path, o.path)
}

func (b *builder) timestamp() error {
	r := b.r.Timestamp
	if r == nil {
		return nil
	}
	from, err := b.place(r.From, true, placeHeader, placeSig, placeJSON, placeForm, placeQuery)
	if err != nil {
		return in("from", err)
	}
	format, ok := timeFormats[cmp.Or(r.Format, "unix-s")]
	if !ok {
		return wrongf("format", "unknown value %q", r.Format)
	}
	if !b.covered(&from) {
		return wrongf("from", "%s is not signed, so a window over it protects nothing", from)
	}
	spec := &timestampSpec{from: from, format: format, pastOnly: r.PastOnly}
	switch {
	case r.ToleranceS == NoWindow && r.PastOnly:
		return wrongf("past_only", "needs a window")
	case r.ToleranceS == NoWindow:
	case r.ToleranceS == 0:
		spec.window = defaultTolerance
	case r.ToleranceS < 0 || r.ToleranceS > 1<<32:
		return wrongf("tolerance_s", "%d is out of range", r.ToleranceS)
	default:
		spec.window = time.Duration(r.ToleranceS) * time.Second
	}
	spec.stage = b.stage(&from)
	b.p.timestamp = spec
	return nil
}

// stage says when a place can be read.
func (b *builder) stage(p *place) stage {
	switch p.kind {
	case placeSig:
		if b.p.signature.in == placeJSON || b.p.signature.in == placeForm {
			return stageBody
		}
	case placeJSON, placeForm:
		for i := range b.p.parts {
			if q := &b.p.parts[i]; q.kind == partPlace && q.place.kind == p.kind && q.place.same(p) {
				return stageBody
			}
		}
		return stageLate
	case placeBodySHA256:
		return stageLate
	}
	return stageHeader
}
