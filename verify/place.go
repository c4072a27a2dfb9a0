package verify

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

type placeKind uint8

const (
	placeNone placeKind = iota
	placeHeader
	placeSig
	placeJSON
	placeForm
	placeQuery
	placeBodySHA256
)

// place is where a value stands in a request.
type place struct {
	kind placeKind
	name string   // header, tag, field, or the JSON path as written
	path []string // JSON path, split
	slot int      // index into program.headers, .fields or .late
}

func (p place) String() string {
	switch p.kind {
	case placeHeader:
		return p.name
	case placeSig:
		return "sig:" + p.name
	case placeJSON:
		return "json:" + p.name
	case placeForm:
		return "form:" + p.name
	case placeQuery:
		return "query:" + p.name
	case placeBodySHA256:
		return "body_sha256_hex"
	}
	return ""
}

var errNoPlace = errors.New("is no place in a request: header:X, json:a.b, form:x, query:x and sig:t are")

// parsePlace reads header:X, sig:t, json:a.b, form:x, query:x or body_sha256_hex.
func parsePlace(s string) (place, error) {
	if s == "body_sha256_hex" {
		return place{kind: placeBodySHA256, name: s}, nil
	}
	kind, name, ok := strings.Cut(s, ":")
	if !ok || name == "" {
		return place{}, fmt.Errorf("%q %w", s, errNoPlace)
	}
	p := place{name: name}
	switch kind {
	case "header":
		p.kind = placeHeader
		if !validHeaderName(name) {
			return place{}, fmt.Errorf("%q is no header name", name)
		}
	case "sig":
		p.kind = placeSig
	case "json":
		p.kind = placeJSON
		path, err := parsePath(name)
		if err != nil {
			return place{}, err
		}
		p.path = path
	case "form":
		p.kind = placeForm
	case "query":
		p.kind = placeQuery
	default:
		return place{}, fmt.Errorf("%q %w", s, errNoPlace)
	}
	return p, nil
}

// parsePath splits names and indexes joined by dots, or an RFC 6901 pointer.
func parsePath(s string) ([]string, error) {
	if !strings.HasPrefix(s, "/") {
		parts := strings.Split(s, ".")
		for _, p := range parts {
			if p == "" {
				return nil, fmt.Errorf("JSON path %q has an empty name", s)
			}
		}
		if len(parts) > depthUnverified {
			return nil, fmt.Errorf("JSON path %q is longer than %d names", s, depthUnverified)
		}
		return parts, nil
	}
	parts := strings.Split(s[1:], "/")
	if len(parts) > depthUnverified {
		return nil, fmt.Errorf("JSON pointer %q is longer than %d names", s, depthUnverified)
	}
	for i, p := range parts {
		for j := 0; j < len(p); j++ {
			if p[j] == '~' && (j+1 == len(p) || p[j+1] != '0' && p[j+1] != '1') {
				return nil, fmt.Errorf("JSON pointer %q holds a ~ that is neither ~0 nor ~1", s)
			}
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

// validHeaderName follows the token grammar of RFC 9110.
func validHeaderName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' {
			continue
		}
		if strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}

// maxPairs bounds a form or query that is parsed before anybody is known to have
// signed it.
const maxPairs = 1024

var (
	errNotForm      = errors.New("not form-encoded")
	errTooManyPairs = errors.New("too many form fields")
	errFieldTwice   = errors.New("field stands twice")
)

type pair struct{ name, value string }

// formPairs decodes name=value pairs joined by &. A broken escape is an error.
func formPairs(s string) ([]pair, error) {
	var pairs []pair
	for s != "" {
		var item string
		item, s, _ = strings.Cut(s, "&")
		if item == "" {
			continue
		}
		if len(pairs) == maxPairs {
			return nil, errTooManyPairs
		}
		name, value, _ := strings.Cut(item, "=")
		n, err := url.QueryUnescape(name)
		if err != nil {
			return nil, errNotForm
		}
		v, err := url.QueryUnescape(value)
		if err != nil {
			return nil, errNotForm
		}
		pairs = append(pairs, pair{n, v})
	}
	return pairs, nil
}

// formValue returns the one value of a field.
func formValue(s, name string) (string, bool, error) {
	pairs, err := formPairs(s)
	if err != nil {
		return "", false, err
	}
	value, ok := "", false
	for _, p := range pairs {
		if p.name != name {
			continue
		}
		if ok {
			return "", false, errFieldTwice
		}
		value, ok = p.value, true
	}
	return value, ok, nil
}

var phpName = strings.NewReplacer(" ", "_", ".", "_", "[", "_")

// soleFormValue is formValue where the rest of the form may not be signed. A field that
// another reader takes for this one counts as this one: PHP drops blanks in front of a
// name, reads blanks, dots and a bracket in it as _, and ends it at a NUL or at the
// index of a list; others do not tell case, or part the fields at a semicolon too.
func soleFormValue(s, name string) (string, bool, error) {
	if strings.Contains(s, ";") { // senders write %3B
		return "", false, errNotForm
	}
	value, ok, err := formValue(s, name)
	if err != nil {
		return "", false, err
	}
	pairs, _ := formPairs(s)
	for _, p := range pairs {
		if p.name == name {
			continue
		}
		read := strings.TrimLeft(p.name, " ")
		if n := len(name); len(read) > n && (read[n] == '[' || read[n] == 0) {
			read = read[:n]
		}
		if strings.EqualFold(phpName.Replace(read), name) {
			return "", false, errFieldTwice
		}
	}
	return value, ok, nil
}

// rawQuery is what stands after the first question mark, as received. A # in it
// is no fragment: on the wire there is none, and what was cut would not be signed.
func rawQuery(target string) string {
	_, q, _ := strings.Cut(target, "?")
	return q
}
