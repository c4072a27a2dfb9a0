package verify

import (
	"maps"
	"slices"
	"strings"
)

// headers fills the check with what is there, and names what is not, or is there
// twice.
func (x *explainer) headers() {
	x.names = slices.Sorted(maps.Keys(x.c.r.Header))
	for i := range x.c.p.headers {
		h := &x.c.p.headers[i]
		right, twins := 0, 0
		for _, name := range x.names {
			lines := x.c.r.Header[name]
			switch spelled(name, h.name) {
			case spelledRight:
				if len(lines) > 0 {
					x.c.lines[i] = append(x.c.lines[i], lines...)
					right++
				}
			case spelledTwin:
				twins += len(lines)
			}
		}
		several := len(x.c.lines[i]) > 1 && !h.list && !h.multi
		if right > 1 || several || right > 0 && twins > 0 {
			x.duplicated(h.name)
		}
	}
	x.signatureHeaders()
	for i := range x.c.p.headers {
		if h := &x.c.p.headers[i]; h.demanded && x.c.header(i) == "" {
			x.missing(h.name)
		}
	}
}

// signatureHeaders finds a signature that is not there, or another scheme's.
func (x *explainer) signatureHeaders() {
	spec := &x.c.p.signature
	if spec.in != placeHeader {
		return
	}
	for i := range spec.places {
		for _, line := range x.c.lines[spec.places[i].slot] {
			if line != "" {
				return
			}
		}
	}
	if header, schemes := x.foreignSignature(); header != "" {
		x.add("scheme_other", "let the source name the scheme of its sender, or the sender sign as the source expects",
			"the request has no signature of %s, but carries %s as in %s", x.c.p.title(), header, strings.Join(schemes, ", "))
	}
	x.missing(spec.places[0].name)
}

func (x *explainer) duplicated(field string) {
	x.unsure = true
	x.add("header_duplicated", "send it once; a proxy on the way may add a second one", "%s stands there twice", x.where(field))
}

// missing names a value that is not there, and headers whose names came close.
func (x *explainer) missing(field string) {
	x.unsure = true
	text, fix := x.where(field)+" is not there or empty", "send it"
	if near := x.near(field); len(near) > 0 {
		text += "; there is " + strings.Join(near, ", ")
		fix = "send the header under its name, or rename it in the source's configuration"
	}
	x.add("header_missing", fix, "%s", text)
}

// where says where a place or the field of an error is.
func (x *explainer) where(field string) string {
	switch kind, name, _ := strings.Cut(field, ":"); kind {
	case "sig":
		return "the field " + name + " of " + x.where(x.c.p.signature.places[0].String())
	case "json":
		return "the JSON field " + name
	case "form":
		return "the form field " + name
	case "query":
		return "the query parameter " + name
	}
	return "header " + field
}

const maxNear = 3

// near finds headers that read almost like name: other separators, a letter or two,
// a prefix more or less. Those that the scheme has itself are none.
func (x *explainer) near(name string) []string {
	var near []string
	want := squeezed(name)
	for _, got := range x.names[:min(len(x.names), 256)] {
		own := slices.ContainsFunc(x.c.p.headers, func(h headerName) bool { return spelled(got, h.name) == spelledRight })
		if own || !validHeaderName(got) || len(got) > 64 || len(near) == maxNear {
			continue
		}
		s := squeezed(got)
		short, long := s, want
		if len(short) > len(long) {
			short, long = long, short
		}
		if len(short) >= 9 && strings.HasSuffix(long, short) || len(want) > 4 && len(long)-len(short) <= 2 && edits(s, want) <= 2 {
			near = append(near, got)
		}
	}
	return near
}

// squeezed is a header name without case, separators and a leading X-.
func squeezed(name string) string {
	s := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	return strings.TrimPrefix(s, "x")
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := before
			if a[i-1] != b[j-1] {
				cost++
			}
			before = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

// preconditions judges what the recipe requires of other headers, and the length.
func (x *explainer) preconditions() {
	for i := range x.c.p.require {
		q := &x.c.p.require[i]
		name := x.c.p.headers[q.slot].name
		switch x.c.header(q.slot) {
		case q.equals:
		case "":
			x.missing(name)
		default:
			x.add(string(ReasonPrecondition), "send what the scheme demands", "header %s is not %q", name, q.equals)
		}
	}
	for _, name := range x.c.p.recipe.Params {
		if x.c.v.Params[name] == "" {
			x.add(string(ReasonPrecondition), "set it under params of the source", "the parameter %s has no value", name)
		}
	}
	if most := x.c.mostBody(); len(x.c.r.Body) > most {
		x.add(string(ReasonBodyTooLarge), "send less, or raise max_body of the source", "the body has %d bytes, at most %d are taken", len(x.c.r.Body), most)
	}
}

// readID finds the delivery id where it stands outside the body, or what other
// schemes would take for one: it may have been signed.
func (x *explainer) readID() {
	if spec := x.c.p.id; spec != nil && !spec.late {
		err := x.c.deliveryID()
		switch {
		case err == nil:
			x.id = x.c.envelope.DeliveryID
			x.out.DeliveryID = x.id
		case err.Reason == ReasonDeliveryIDInvalid:
			x.add(string(ReasonDeliveryIDInvalid), "use other delivery ids, or a wider pattern in the recipe",
				"the delivery id in %s is not 1 to 256 characters of ! to ~ that fit the scheme's pattern", err.Field)
			if spec.template == nil {
				x.id, _ = x.c.demand(&spec.from[0])
			}
		case !x.has("header_missing"):
			x.missing(err.Field)
		}
		return
	}
	x.id = x.firstHeader(presetFacts().ids)
}

// firstHeader is the value of the first of these headers that is there.
func (x *explainer) firstHeader(names []string) string {
	for _, name := range names {
		if value, ok, err := headerValue(x.c.r.Header, name); ok && err == nil {
			return value
		}
	}
	return ""
}

// foreignSignature finds the signature of a scheme that has none of our headers for it.
func (x *explainer) foreignSignature() (header string, schemes []string) {
	all := presetFacts().signatures
	var ours []string
	for _, s := range all {
		for _, p := range x.c.p.signature.places {
			if strings.EqualFold(s.name, p.name) {
				ours = append(ours, s.schemes...)
			}
		}
	}
	for _, s := range all {
		shared := slices.ContainsFunc(s.schemes, func(name string) bool { return slices.Contains(ours, name) })
		if !shared && x.firstHeader([]string{s.name}) != "" {
			if len(s.schemes) <= maxNear {
				return s.name, s.schemes
			}
			return s.name, append(s.schemes[:maxNear:maxNear], "and others")
		}
	}
	return "", nil
}
