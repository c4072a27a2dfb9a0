package verify

import (
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// How deep a body may nest: little before the signature is known to be right,
// more after it.
const (
	depthUnverified = 32
	depthVerified   = 512
)

var (
	errNotJSON    = errors.New("body is not JSON")
	errTooDeep    = errors.New("body nests too deep")
	errTwice      = errors.New("name stands twice on the path")
	errNotScalar  = errors.New("value is not a string, number, true or false")
	errNotUnicode = errors.New("value is not Unicode text")
	errNUL        = errors.New("value holds a NUL")
)

type jsonKind uint8

const (
	jsonAbsent jsonKind = iota
	jsonString
	jsonNumber
	jsonBool
	jsonNull
	jsonOther
)

// jsonFind returns the scalar at path. It reads the whole text: trailing rubbish
// and a second occurrence of a name on the path would let another parser see
// another value.
func jsonFind(text []byte, path []string, depth int) (string, jsonKind, error) {
	s := jsonScanner{text: text, depth: depth}
	s.blanks()
	if err := s.value(path, true, 0); err != nil {
		return "", jsonAbsent, err
	}
	s.blanks()
	if s.i != len(s.text) {
		return "", jsonAbsent, errNotJSON
	}
	return s.found, s.kind, nil
}

type jsonScanner struct {
	text  []byte
	i     int
	depth int
	found string
	kind  jsonKind
}

func (s *jsonScanner) blanks() {
	for s.i < len(s.text) {
		switch s.text[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// value reads one value. On the path it looks for the rest of it, else it only
// checks the grammar.
func (s *jsonScanner) value(path []string, on bool, level int) error {
	if s.i >= len(s.text) {
		return errNotJSON
	}
	wanted := on && len(path) == 0
	switch c := s.text[s.i]; {
	case c == '{' || c == '[':
		if level >= s.depth {
			return errTooDeep
		}
		if wanted {
			s.kind = jsonOther
			on = false
		}
		if c == '{' {
			return s.object(path, on, level+1)
		}
		return s.array(path, on, level+1)
	case c == '"':
		raw, escaped, err := s.stringToken()
		if err != nil || !wanted {
			return err
		}
		s.found, err = jsonText(raw, escaped)
		s.kind = jsonString
		return err
	case c == '-' || c >= '0' && c <= '9':
		start := s.i
		if !s.number() {
			return errNotJSON
		}
		if wanted {
			s.found, s.kind = string(s.text[start:s.i]), jsonNumber
		}
		return nil
	case c == 't':
		return s.word("true", jsonBool, wanted)
	case c == 'f':
		return s.word("false", jsonBool, wanted)
	case c == 'n':
		return s.word("null", jsonNull, wanted)
	}
	return errNotJSON
}

func (s *jsonScanner) word(w string, kind jsonKind, wanted bool) error {
	if len(s.text)-s.i < len(w) || string(s.text[s.i:s.i+len(w)]) != w {
		return errNotJSON
	}
	s.i += len(w)
	if wanted {
		s.found, s.kind = w, kind
	}
	return nil
}

func (s *jsonScanner) object(path []string, on bool, level int) error {
	s.i++
	s.blanks()
	if s.i < len(s.text) && s.text[s.i] == '}' {
		s.i++
		return nil
	}
	seen := false
	for {
		if s.i >= len(s.text) || s.text[s.i] != '"' {
			return errNotJSON
		}
		raw, escaped, err := s.stringToken()
		if err != nil {
			return err
		}
		hit := on && nameIs(raw, escaped, path[0])
		if hit && seen {
			return errTwice
		}
		seen = seen || hit
		s.blanks()
		if s.i >= len(s.text) || s.text[s.i] != ':' {
			return errNotJSON
		}
		s.i++
		s.blanks()
		rest := path
		if hit {
			rest = path[1:]
		}
		if err := s.value(rest, hit, level); err != nil {
			return err
		}
		more, err := s.next('}')
		if err != nil || !more {
			return err
		}
	}
}

func (s *jsonScanner) array(path []string, on bool, level int) error {
	index := -1
	if on {
		index = arrayIndex(path[0])
	}
	s.i++
	s.blanks()
	if s.i < len(s.text) && s.text[s.i] == ']' {
		s.i++
		return nil
	}
	for n := 0; ; n++ {
		rest := path
		if n == index {
			rest = path[1:]
		}
		if err := s.value(rest, n == index, level); err != nil {
			return err
		}
		more, err := s.next(']')
		if err != nil || !more {
			return err
		}
	}
}

// next steps over a comma (true) or the closing bracket (false).
func (s *jsonScanner) next(end byte) (bool, error) {
	s.blanks()
	if s.i >= len(s.text) {
		return false, errNotJSON
	}
	c := s.text[s.i]
	s.i++
	if c == end {
		return false, nil
	}
	if c != ',' {
		return false, errNotJSON
	}
	s.blanks()
	return true, nil
}

// arrayIndex reads 0 or digits without a leading zero, else -1.
func arrayIndex(s string) int {
	if s == "" || len(s) > 6 || s[0] == '0' && len(s) > 1 {
		return -1
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}

func (s *jsonScanner) number() bool {
	if s.text[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.text) && s.text[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return false
	}
	if s.i < len(s.text) && s.text[s.i] == '.' {
		s.i++
		if !s.digits() {
			return false
		}
	}
	if s.i < len(s.text) && s.text[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.text) && (s.text[s.i] == '+' || s.text[s.i] == '-') {
			s.i++
		}
		return s.digits()
	}
	return true
}

func (s *jsonScanner) digits() bool {
	start := s.i
	for s.i < len(s.text) && s.text[s.i] >= '0' && s.text[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

// stringToken steps over a string and returns what stands between its quotes.
// The escapes are checked, not decoded.
func (s *jsonScanner) stringToken() (raw []byte, escaped bool, err error) {
	s.i++
	start := s.i
	for s.i < len(s.text) {
		switch c := s.text[s.i]; {
		case c == '"':
			raw = s.text[start:s.i]
			s.i++
			return raw, escaped, nil
		case c == '\\':
			escaped = true
			if !s.escape() {
				return nil, false, errNotJSON
			}
		case c < 0x20:
			return nil, false, errNotJSON
		default:
			s.i++
		}
	}
	return nil, false, errNotJSON
}

func (s *jsonScanner) escape() bool {
	if s.i+1 >= len(s.text) {
		return false
	}
	switch s.text[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return true
	case 'u':
		if s.i+6 > len(s.text) {
			return false
		}
		if _, ok := hex4(s.text[s.i+2 : s.i+6]); !ok {
			return false
		}
		s.i += 6
		return true
	}
	return false
}

func hex4(b []byte) (r rune, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func nameIs(raw []byte, escaped bool, name string) bool {
	if !escaped {
		return string(raw) == name
	}
	text, err := jsonText(raw, true)
	return err == nil && text == name
}

// jsonText decodes a string whose escapes are well formed. A lone surrogate is
// refused, not replaced: two ids would become one.
func jsonText(raw []byte, escaped bool) (string, error) {
	if !escaped {
		if !utf8.Valid(raw) {
			return "", errNotUnicode
		}
		return string(raw), nil
	}
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			b.WriteByte(raw[i])
			i++
			continue
		}
		if raw[i+1] != 'u' {
			b.WriteByte(unescape(raw[i+1]))
			i += 2
			continue
		}
		r, _ := hex4(raw[i+2 : i+6])
		i += 6
		if utf16.IsSurrogate(r) {
			if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
				return "", errNotUnicode
			}
			low, _ := hex4(raw[i+2 : i+6])
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return "", errNotUnicode
			}
			i += 6
		}
		b.WriteRune(r)
	}
	if !utf8.ValidString(b.String()) {
		return "", errNotUnicode
	}
	return b.String(), nil
}

func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}
