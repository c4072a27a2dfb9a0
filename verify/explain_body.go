package verify

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
)

// bodyForm is the body as it may have been when it was signed.
type bodyForm struct {
	text   []byte
	change departure
	values []bodyValue // of tokens that lie in it
}

type bodyValue struct {
	token, text string
	ok          bool
}

const bom = "\xef\xbb\xbf"

// readBodies makes the forms of the body. Each stands once, that which arrived first.
func (x *explainer) readBodies() {
	body := x.c.r.Body
	x.bodies = []bodyForm{{text: body}}
	if f := x.c.p.algo.family; f == familyToken || f == familyBasic {
		return
	}
	most := int(min(x.most/formShare, 1<<30))
	if len(body) > most {
		x.formsLeft = true
		return
	}
	add := func(text []byte, code string, said ...string) {
		if len(text) > most {
			return
		}
		for i := range x.bodies {
			if string(x.bodies[i].text) == string(text) {
				return
			}
		}
		d := departure{code: code}
		if len(said) == 2 {
			d.once, d.means = said[0], said[1]
		}
		x.bodies = append(x.bodies, bodyForm{text: text, change: d})
	}
	lineForms(body, add)
	jsonForms(body, add)
	if text, ok, err := formValue(string(body), "payload"); err == nil && ok {
		add([]byte(text), "body_form_field")
	}
	if text := decodedBody(body); text != nil {
		add(text, "body_base64")
	}
	limit := min(most, x.c.mostBody())
	if text := inflated(body, limit); text != nil {
		add(text, "body_inflated")
	}
	add(nil, "body_empty")
}

// lineForms are changes of line ends and blanks.
func lineForms(body []byte, add func([]byte, string, ...string)) {
	if cut, ok := bytes.CutSuffix(body, []byte("\r\n")); ok {
		add(cut, "body_extra_newline", "the final CRLF is removed", `the sender signed the body without the "\r\n" that arrived`)
	}
	add(bytes.TrimSuffix(body, []byte("\n")), "body_extra_newline")
	add(bytes.TrimRight(body, "\r\n"), "body_extra_newline", "the final newlines are removed", "the sender signed the body without the newlines at its end")
	add(withEnd(body, "\n"), "body_missing_newline")
	add(withEnd(body, "\r\n"), "body_missing_newline", "a final CRLF is added", `the sender signed a final "\r\n" that did not arrive`)
	add(bytes.TrimRight(body, " \t"), "body_extra_blank")
	add(bytes.TrimSpace(body), "body_extra_blank")
	lf := bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
	add(lf, "body_crlf")
	add(bytes.ReplaceAll(lf, []byte("\n"), []byte("\r\n")), "body_lf")
	if rest, ok := bytes.CutPrefix(body, []byte(bom)); ok {
		add(rest, "body_bom", "the byte order mark is removed", "a byte order mark was added on the way")
	} else {
		add(append([]byte(bom), body...), "body_bom", "a byte order mark is added", "a byte order mark was signed that did not arrive")
	}
}

func withEnd(body []byte, end string) []byte {
	return append(body[:len(body):len(body)], end...)
}

// jsonForms are other ways to print the same JSON.
func jsonForms(body []byte, add func([]byte, string, ...string)) {
	var b bytes.Buffer
	if json.Compact(&b, body) != nil {
		return
	}
	compact := b.Bytes()
	add(compact, "body_compacted")
	spaced := jsonSpaced(compact)
	add(spaced, "body_python_spacing")
	if len(spaced) > len(compact) {
		add(jsonASCII(spaced, false), "body_python_spacing", "the JSON is spaced and escaped as Python does",
			`JSON was signed with ", " and ": " and "\uXXXX" (Python's default), another spelling arrived`)
	}
	slashes := jsonSlashes(body)
	add(slashes, "body_slash_unescaped")
	if len(slashes) > len(body) {
		add(jsonASCII(slashes, false), "body_slash_unescaped", "the JSON is escaped as PHP does",
			`"\/" and "\uXXXX" were signed (PHP's default), "/" and UTF-8 arrived: the JSON was parsed and written again`)
	}
	add(jsonASCII(body, false), "body_ascii_escaped")
	add(jsonASCII(body, true), "body_ascii_escaped")
	add(jsonUTF8(body, func(r rune) bool { return r >= 0x80 }), "body_ascii_unescaped")
	b = bytes.Buffer{}
	json.HTMLEscape(&b, body)
	add(b.Bytes(), "body_html_escaped", `<, > and & are written "\u003c", "\u003e" and "\u0026"`,
		`"\u0026" was signed (Go's default), "&" arrived: the JSON was parsed and written again`)
	add(jsonUTF8(body, func(r rune) bool { return r == '<' || r == '>' || r == '&' }), "body_html_escaped",
		`"\u003c", "\u003e" and "\u0026" are written <, > and &`,
		`"&" was signed, "\u0026" arrived (Go's default): the JSON was parsed and written again`)
}

// decodedBody is what a body is in base64, nil if it is none.
func decodedBody(body []byte) []byte {
	s := strings.TrimRight(strings.TrimSpace(string(body)), "=")
	s = strings.NewReplacer("-", "+", "_", "/").Replace(s)
	text, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil || len(text) == 0 {
		return nil
	}
	return text
}

// inflated is what a gzip holds, nil if it is none or holds more than most bytes.
func inflated(body []byte, most int) []byte {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(z, int64(most)+1))
	if err != nil || len(text) > most {
		return nil
	}
	return text
}

// bodyValue is that of a token which lies in the body, for one form of it.
func (x *explainer) bodyValue(p *part, form int) (string, bool) {
	b := &x.bodies[form]
	for i := range b.values {
		if v := &b.values[i]; v.token == p.text {
			return v.text, v.ok
		}
	}
	c := check{v: x.c.v, p: x.c.p, r: x.c.r}
	c.r.Body = b.text
	var err *Error
	v := bodyValue{token: p.text}
	switch p.kind {
	case partFormSorted:
		v.text, err = c.formSorted()
	case partPlace:
		v.text, err = c.demand(&p.place)
	default:
		v.text = bodyDigest(p.kind, b.text)
	}
	v.ok = err == nil
	b.values = append(b.values, v)
	return v.text, v.ok
}
