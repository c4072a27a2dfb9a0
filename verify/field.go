package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Field names where a value stands in a request. The zero Field is nowhere.
type Field struct{ p *fieldPlace }

type fieldPlace struct {
	place
	text string
}

// ParseField reads header:X, json:a.b, a JSON pointer such as /a/b, form:x,
// query:x or body_sha256_hex.
func ParseField(s string) (Field, error) {
	text := s
	if strings.HasPrefix(s, "/") {
		s = "json:" + s
	}
	p, err := parsePlace(s)
	if err == nil && p.kind == placeSig {
		err = fmt.Errorf("%q is no place in a request", s)
	}
	if err != nil {
		return Field{}, fmt.Errorf("verify: parse field: %w", err)
	}
	return Field{&fieldPlace{p, text}}, nil
}

// IsZero says whether the field is nowhere.
func (f Field) IsZero() bool { return f.p == nil }

// String returns the text that was parsed.
func (f Field) String() string {
	if f.p == nil {
		return ""
	}
	return f.p.text
}

// Kind says how a value is written in the request.
type Kind uint8

const (
	// KindAbsent: it is not there, or null, or an empty header.
	KindAbsent Kind = iota
	// KindText: in a header, a form or a query, where nothing has a type.
	KindText
	// KindString: a JSON string.
	KindString
	// KindNumber: a JSON number.
	KindNumber
	// KindBool: true or false in JSON.
	KindBool
)

// Value is what stands at a field.
type Value struct {
	// Text is the value: strings decoded, numbers as they are written, true and
	// false as words.
	Text string
	Kind Kind
	// Err says why it cannot be read; Kind is KindAbsent then.
	Err error
}

// Read returns the value as text: strings decoded, numbers as they are written,
// true and false as words. ok is false if it is not there, null, or an empty
// header. It is an error if the header, the form field or a JSON name on the
// path stands twice, if the body is not JSON, if the value is no scalar or no
// Unicode text, or if it holds a NUL.
func (f Field) Read(r Request) (value string, ok bool, err error) {
	v := ReadFields(r, f)[0]
	return v.Text, v.Kind != KindAbsent, v.Err
}

// ReadFields returns the values of several fields, in their order, by the rules of
// [Field.Read]. However many of them stand in JSON, the body is scanned once.
func ReadFields(r Request, fields ...Field) []Value {
	return readFields(r, depthVerified, fields)
}

// readFields is ReadFields for a body that nests no deeper than depth.
func readFields(r Request, depth int, fields []Field) []Value {
	values := make([]Value, len(fields))
	var buf [8]jsonTarget
	targets := buf[:0]
	for i, f := range fields {
		switch {
		case f.p == nil:
		case f.p.kind == placeJSON:
			targets = append(targets, jsonTarget{path: f.p.path})
		default:
			text, ok, err := f.p.read(&r)
			if values[i] = (Value{Text: text, Err: err}); ok {
				values[i].Kind = KindText
			}
		}
	}
	jsonScan(r.Body, targets, depth)
	for i, f := range fields {
		if f.p == nil {
			continue
		}
		v := &values[i]
		if f.p.kind == placeJSON {
			*v = targets[0].value()
			targets = targets[1:]
		}
		if v.Err == nil {
			v.Err = textFault(v.Text)
		}
		if v.Err != nil {
			*v = Value{Err: fmt.Errorf("verify: read %s: %w", f.p.text, v.Err)}
		}
	}
	return values
}

func (t *jsonTarget) value() Value {
	switch t.kind {
	case jsonString:
		return Value{Text: t.found, Kind: KindString}
	case jsonNumber:
		return Value{Text: t.found, Kind: KindNumber}
	case jsonBool:
		return Value{Text: t.found, Kind: KindBool}
	case jsonOther:
		return Value{Err: errNotScalar}
	}
	return Value{Err: t.err} // absent or null, where there is no error
}

// textFault finds what a database cannot hold as text. Headers, forms and queries
// can hold any byte.
func textFault(s string) error {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return errNUL
	case !utf8.ValidString(s):
		return errNotUnicode
	}
	return nil
}

// read is for places outside JSON.
func (p *fieldPlace) read(r *Request) (string, bool, error) {
	switch p.kind {
	case placeHeader:
		return headerValue(r.Header, p.name)
	case placeForm:
		return formValue(string(r.Body), p.name)
	case placeQuery:
		return formValue(rawQuery(r.URL), p.name)
	}
	sum := sha256.Sum256(r.Body)
	return hex.EncodeToString(sum[:]), true, nil
}
