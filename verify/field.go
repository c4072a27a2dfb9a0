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

// Read returns the value as text: strings decoded, numbers as they are written,
// true and false as words. ok is false if it is not there, null, or an empty
// header. It is an error if the header, the form field or a JSON name on the
// path stands twice, if the body is not JSON, if the value is no scalar or no
// Unicode text, or if it holds a NUL.
func (f Field) Read(r Request) (value string, ok bool, err error) {
	if f.p == nil {
		return "", false, nil
	}
	value, ok, err = f.p.read(&r)
	if err == nil {
		err = textFault(value)
	}
	if err != nil {
		return "", false, fmt.Errorf("verify: read %s: %w", f.p.text, err)
	}
	return value, ok, nil
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

func (p *fieldPlace) read(r *Request) (string, bool, error) {
	switch p.kind {
	case placeHeader:
		return headerValue(r.Header, p.name)
	case placeJSON:
		value, kind, err := jsonFind(r.Body, p.path, depthVerified)
		if err != nil {
			return "", false, err
		}
		if kind == jsonOther {
			return "", false, errNotScalar
		}
		if kind == jsonNull {
			return "", false, nil
		}
		return value, kind != jsonAbsent, nil
	case placeForm:
		return formValue(string(r.Body), p.name)
	case placeQuery:
		return formValue(rawQuery(r.URL), p.name)
	}
	sum := sha256.Sum256(r.Body)
	return hex.EncodeToString(sum[:]), true, nil
}
