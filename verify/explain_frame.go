package verify

import (
	"slices"
	"strings"
)

// Parts of a framing that a template has no token for: the request's timestamp and
// delivery id, wherever the scheme has them.
const (
	partTime partKind = iota + 64
	partID
)

// frame is a text that may have been signed, with the body and other values left open.
type frame struct {
	parts []part
	code  string // empty: the scheme's own
	shape string // parts as text
	body  bool   // anything in it depends on the body
	time  bool
	url   bool
}

// usualFrames are those that senders use although no scheme that is built in need
// have them; the schemes' own follow.
var usualFrames = []string{
	"{body}", "{timestamp}.{body}", "{id}.{timestamp}.{body}", "{timestamp}.{id}.{body}",
	"v1.{timestamp}.{id}.{body}", "v1.{timestamp}.{body}", "v1.{id}.{timestamp}.{body}",
	"{timestamp}:{body}", "v0:{timestamp}:{body}", "{timestamp},{body}",
	"{timestamp}{body}", "{id}{timestamp}{body}", "{body}{timestamp}", "{body}.{timestamp}",
	"{url}{body}", "{body}{url}",
}

// readFrames lists the scheme's own framing, then all others that this request has
// the values for, in the order of the causes.
func (x *explainer) readFrames() {
	p := x.c.p
	if len(p.parts) == 0 {
		x.frames = []frame{{}}
		return
	}
	own := frameOf(generalParts(p), "")
	x.frames = []frame{own}
	x.out.Frame = x.shown(&own)
	if p.algo.family == familyHash {
		for _, shape := range presetFacts().hashed {
			x.addFrame(shape)
		}
	}
	for _, shape := range append(usualFrames[:len(usualFrames):len(usualFrames)], presetFacts().frames...) {
		if p.algo.family == familyHash {
			shape = "{secret}" + shape
		}
		x.addFrame(shape)
	}
	slices.SortStableFunc(x.frames[1:], func(a, b frame) int { return rank(a.code) - rank(b.code) })
}

func (x *explainer) addFrame(shape string) {
	code := frameCode(strings.ReplaceAll(shape, "{secret}", ""))
	if code == "" || slices.ContainsFunc(x.frames, func(f frame) bool { return f.shape == shape }) {
		return
	}
	x.frames = append(x.frames, frameOf(parseShape(shape), code))
}

func frameOf(parts []part, code string) frame {
	f := frame{parts: parts, code: code, shape: shapeOf(parts)}
	for i := range parts {
		switch p := &parts[i]; p.kind {
		case partBody, partFormSorted, partBodySHA256Hex, partBodySHA256Raw, partBodyCRC32:
			f.body = true
		case partPlace:
			f.body = f.body || p.place.kind == placeJSON || p.place.kind == placeForm
		case partTime:
			f.time = true
		case partURL, partPath, partPathQuery, partHost:
			f.url = true
		}
	}
	return f
}

// generalParts are the parts of a scheme's template, with timestamp and id as such.
func generalParts(p *program) []part {
	parts := slices.Clone(p.parts)
	is := func(a, b *place) bool { return a.kind == b.kind && strings.EqualFold(a.String(), b.String()) }
	for i := range parts {
		q := &parts[i]
		if q.kind != partPlace {
			continue
		}
		if p.timestamp != nil && is(&q.place, &p.timestamp.from) {
			q.kind = partTime
		} else if p.id != nil && len(p.id.from) == 1 && !p.id.late && is(&q.place, &p.id.from[0]) {
			q.kind = partID
		}
	}
	return parts
}

// generalShape is a preset's signed text as a shape, empty if it has values that no
// other scheme has.
func generalShape(p *program) string {
	parts := generalParts(p)
	for i := range parts {
		switch parts[i].kind {
		case partPlace, partParam, partQueryRaw, partBodySHA256Hex, partBodySHA256Raw, partBodyCRC32:
			return ""
		}
	}
	return shapeOf(parts)
}

func shapeOf(parts []part) string {
	var b strings.Builder
	for i := range parts {
		switch p := &parts[i]; p.kind {
		case partLiteral:
			b.WriteString(p.text)
		case partTime:
			b.WriteString("{timestamp}")
		case partID:
			b.WriteString("{id}")
		case partParam:
			b.WriteString("{param:" + p.text + "}")
		default:
			b.WriteString("{" + p.text + "}")
		}
	}
	return b.String()
}

// parseShape is the reverse for shapes without places of their own.
func parseShape(s string) []part {
	s = strings.NewReplacer("{timestamp}", "{param:\x00t}", "{id}", "{param:\x00i}").Replace(s)
	parts, _ := parseTemplate(s)
	for i := range parts {
		switch p := &parts[i]; {
		case p.kind == partParam && p.text == "\x00t":
			p.kind = partTime
		case p.kind == partParam && p.text == "\x00i":
			p.kind = partID
		}
	}
	return parts
}

// frameCode names a shape; empty if there is no name, and so no advice, for it.
func frameCode(shape string) string {
	literal := strings.NewReplacer("{timestamp}", "", "{id}", "", "{body}", "").Replace(shape)
	switch {
	case strings.Contains(shape, "{url}"), strings.Contains(shape, "{path"), strings.Contains(shape, "{host}"), strings.Contains(shape, "{method}"):
		return "frame_url"
	case strings.Contains(literal, "{") || !strings.Contains(shape, "{body}"):
		return ""
	}
	switch shape {
	case "{body}":
		return "frame_body_only"
	case "{timestamp}.{body}":
		return "frame_ts_body"
	case "{id}.{timestamp}.{body}":
		return "frame_id_ts_body"
	case "{timestamp}.{id}.{body}":
		return "frame_no_version"
	}
	switch {
	case strings.HasPrefix(shape, "{body}"):
		return "frame_body_first"
	case literal == "":
		return "frame_joined"
	case strings.Contains(literal, ":"):
		return "frame_colon"
	case strings.Contains(literal, ","):
		return "frame_comma"
	case strings.HasPrefix(shape, "v"):
		return "frame_version"
	}
	return ""
}

// departure says what a framing means.
func (f *frame) departure(own *frame) departure {
	return departure{f.code, f.shape + " is signed", "the sender signed " + f.shape + ", the scheme is " + own.shape, "sign " + own.shape}
}

// shown is the scheme's signed text without the body and all that lies in it.
func (x *explainer) shown(f *frame) string {
	var b strings.Builder
	for i := range f.parts {
		p := &f.parts[i]
		value, ok := "", false
		switch p.kind {
		case partLiteral:
			value, ok = p.text, true
		case partTime:
			value, ok = x.out.Timestamp, x.out.Timestamp != ""
		case partID, partMethod, partURL, partPath, partPathQuery, partHost, partQueryRaw, partParam:
			value, ok = x.value(p, &signedText{})
		case partPlace:
			if p.place.kind == placeHeader || p.place.kind == placeSig || p.place.kind == placeQuery {
				value, ok = x.value(p, &signedText{})
			}
		}
		if !ok {
			value = shapeOf(f.parts[i : i+1])
		}
		b.WriteString(x.shortened(value))
	}
	return b.String()
}
