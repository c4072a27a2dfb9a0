package verify

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonSpaced puts a blank behind each comma and colon of compact JSON, as Python does.
func jsonSpaced(compact []byte) []byte {
	out := make([]byte, 0, len(compact)+len(compact)/8)
	inString, escaped := false, false
	for _, c := range compact {
		out = append(out, c)
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case !inString && (c == ',' || c == ':'):
			out = append(out, ' ')
		}
	}
	return out
}

// jsonSlashes escapes each / that is not, as PHP does; it can only stand in strings.
func jsonSlashes(text []byte) []byte {
	plain := bytes.ReplaceAll(text, []byte(`\/`), []byte("/"))
	return bytes.ReplaceAll(plain, []byte("/"), []byte(`\/`))
}

// jsonASCII escapes all that is not ASCII. Text that is not UTF-8 stays as it is.
func jsonASCII(text []byte, upper bool) []byte {
	if !utf8.Valid(text) {
		return text
	}
	format := `\u%04x`
	if upper {
		format = `\u%04X`
	}
	out := make([]byte, 0, len(text)+len(text)/4)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r <= 0xffff:
			out = fmt.Appendf(out, format, r)
		default:
			a, b := utf16.EncodeRune(r)
			out = fmt.Appendf(out, format+format, a, b)
		}
		text = text[size:]
	}
	return out
}

// jsonUTF8 writes those escaped letters out for which which is true.
func jsonUTF8(text []byte, which func(rune) bool) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			i++
			continue
		}
		r, size := escapedRune(text[i:])
		if size == 0 || !which(r) {
			size = max(size, 2)
			out = append(out, text[i:i+size]...)
		} else {
			out = utf8.AppendRune(out, r)
		}
		i += size
	}
	return out
}

// escapedRune reads \uXXXX, or two of them that are one letter; size 0 for anything
// else, half a letter too.
func escapedRune(text []byte) (r rune, size int) {
	unit := func(b []byte) (rune, bool) {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return 0, false
		}
		return hex4(b[2:6])
	}
	r, ok := unit(text)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if low, ok := unit(text[6:]); ok {
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, 12
		}
	}
	return 0, 0
}
