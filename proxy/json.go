package proxy

import (
	"encoding/json"
	"unicode/utf8"
)

// isJSON says whether every reader of JSON can read b. Keys that are there twice,
// halves of surrogates and numbers beyond 64 bits are JSON, if not wise: a delivery
// that its signature proves is not turned away for them.
func isJSON(b []byte) bool {
	// Valid takes one value and bounds its depth; of what is no UTF-8 it sees nothing.
	return utf8.Valid(b) && json.Valid(b)
}

const hexDigits = "0123456789abcdef"

// appendJSON appends s as a JSON string that no reader can take for anything
// else: control characters, quotes and what HTML reacts to are escaped, bytes
// that are no UTF-8 are replaced.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == '\u2028' || r == '\u2029' {
				b = append(b, `\u202`...)
				b = append(b, hexDigits[r&0xf])
			} else {
				b = utf8.AppendRune(b, r) // RuneError for what is no UTF-8
			}
			i += size
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f || c == '<' || c == '>' || c == '&':
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
