package verify

import (
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errNotUnicode = errors.New("value is not Unicode text")
	errNUL        = errors.New("value holds a NUL")
)

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
