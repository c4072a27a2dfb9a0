package verify

import (
	"encoding/base64"
	"strings"
)

const (
	maxSignature     = 8 << 10 // bytes of signature text
	maxCandidates    = 32
	maxPublicKeySigs = 4 // a public-key check is dear
	maxFields        = 4 // {sig:…} tokens of one recipe
	maxDigest        = 64
)

type sigEncoding uint8

const (
	encHex sigEncoding = iota
	encHexAny
	encBase64
	encBase64URL
	encRaw
)

// signatureSpec is the compiled form of SignatureRecipe.
type signatureSpec struct {
	in             placeKind
	places         []place
	listSep        byte // 0: no list
	kvSep          byte // 0: no tags
	tags           []string
	prefix         string
	prefixOptional bool
	encoding       sigEncoding
	trim           bool
	least, most    int // decoded length
	candidates     int // how many are looked at
}

func (s *signatureSpec) inBody() bool { return s.in == placeJSON || s.in == placeForm }

// signaturePresent says whether a signature outside the body is there at all. A
// request without one is told so before anything else: it is not malformed, it
// is unsigned.
func (c *check) signaturePresent() bool {
	for i := range c.p.signature.places {
		p := &c.p.signature.places[i]
		if p.kind != placeHeader {
			return true // signature looks there
		}
		for _, line := range c.lines[p.slot] {
			if line != "" {
				return true
			}
		}
	}
	return false
}

// signature finds the candidates and the {sig:…} fields. Step 4 of the order.
func (c *check) signature() *Error {
	spec := &c.p.signature
	present := false
	for i := range spec.places {
		p := &spec.places[i]
		if p.kind != placeHeader {
			text, err := c.demand(p)
			if err != nil {
				if err.Reason == ReasonHeaderMissing {
					err.Reason = ReasonSignatureMissing
				}
				return err
			}
			present = true
			if err := c.value(text); err != nil {
				return err
			}
			continue
		}
		for _, line := range c.lines[p.slot] {
			if line == "" {
				continue
			}
			present = true
			if err := c.value(line); err != nil {
				return err
			}
		}
	}
	if !present {
		return c.fail(ReasonSignatureMissing, spec.places[0].String())
	}
	for i, name := range c.p.fields {
		if c.fields[i] == "" {
			return c.fail(ReasonHeaderMissing, "sig:"+name)
		}
	}
	return c.decodable()
}

// value splits one line into its items.
func (c *check) value(text string) *Error {
	spec := &c.p.signature
	if c.sigBytes += len(text); c.sigBytes > maxSignature {
		return c.malformed()
	}
	if spec.listSep == 0 {
		return c.item(text)
	}
	for {
		end := strings.IndexByte(text, spec.listSep)
		item := text
		if end >= 0 {
			item = text[:end]
		}
		if spec.trim {
			item = strings.Trim(item, " \t")
		}
		// RFC 9110 lets a comma list have empty elements; elsewhere they are faults.
		if item != "" || spec.listSep != ',' {
			if err := c.item(item); err != nil {
				return err
			}
		}
		if end < 0 {
			return nil
		}
		text = text[end+1:]
	}
}

// item is a candidate, a field, or of a tag that is not ours.
func (c *check) item(item string) *Error {
	spec := &c.p.signature
	if spec.kvSep != 0 {
		sep := strings.IndexByte(item, spec.kvSep)
		if sep <= 0 {
			return c.malformed()
		}
		tag := item[:sep]
		item = item[sep+1:]
		if i := index(c.p.fields, tag); i >= 0 {
			if c.fieldSeen&(1<<i) != 0 {
				return c.fail(ReasonHeaderDuplicated, "sig:"+tag)
			}
			c.fieldSeen |= 1 << i
			c.fields[i] = item
			return nil
		}
		if index(spec.tags, tag) < 0 {
			return nil
		}
	}
	if c.count == spec.candidates {
		return c.malformed()
	}
	c.candidates[c.count] = item
	c.count++
	return nil
}

func index(list []string, s string) int {
	for i := range list {
		if list[i] == s {
			return i
		}
	}
	return -1
}

func (c *check) malformed() *Error {
	return c.fail(ReasonSignatureMalformed, c.p.signature.places[0].String())
}

// decodable keeps the candidates that have the spelling and the length of a
// signature. One of them must.
func (c *check) decodable() *Error {
	spec := &c.p.signature
	kept := 0
	for i := 0; i < c.count; i++ {
		text, ok := spec.cut(c.candidates[i])
		if !ok || !spec.spelled(text) {
			continue
		}
		c.candidates[kept] = text
		kept++
	}
	if c.count = kept; kept == 0 {
		return c.malformed()
	}
	return nil
}

func (s *signatureSpec) cut(text string) (string, bool) {
	if s.prefix == "" {
		return text, true
	}
	rest, ok := strings.CutPrefix(text, s.prefix)
	return rest, ok || s.prefixOptional
}

// spelled checks alphabet, padding and decoded length without decoding.
func (s *signatureSpec) spelled(text string) bool {
	n := len(text)
	switch s.encoding {
	case encHex, encHexAny:
		if n%2 != 0 || n/2 < s.least || n/2 > s.most {
			return false
		}
		for i := 0; i < n; i++ {
			if hexDigit(text[i], s.encoding == encHexAny) > 15 {
				return false
			}
		}
		return true
	case encRaw:
		return n >= s.least && n <= s.most
	}
	// One decoder decides for base64: it is strict in the last bits, and line
	// breaks, which it skips, are no part of the alphabet here.
	if n > base64.StdEncoding.EncodedLen(s.most) {
		return false
	}
	var buf [1100]byte
	got := s.decode(buf[:0], text)
	return got != nil && len(got) >= s.least && len(got) <= s.most
}

// decode appends the bytes of a signature to dst; nil if it is misspelled.
func (s *signatureSpec) decode(dst []byte, text string) []byte {
	switch s.encoding {
	case encHex, encHexAny:
		for i := 0; i+1 < len(text); i += 2 {
			dst = append(dst, hexDigit(text[i], true)<<4|hexDigit(text[i+1], true))
		}
		return dst
	case encRaw:
		return append(dst, text...)
	}
	return decodeBase64(dst, text, s.encoding == encBase64URL)
}

// decodeBase64 takes the one canonical spelling; nil for any other.
func decodeBase64(dst []byte, text string, url bool) []byte {
	enc := base64.StdEncoding
	if url {
		enc = base64.RawURLEncoding
	}
	if strings.ContainsAny(text, "\r\n") {
		return nil
	}
	var src [1500]byte
	dst, err := enc.Strict().AppendDecode(dst, append(src[:0], text...))
	if err != nil {
		return nil
	}
	return dst
}

// hexDigit is 255 for what is no digit.
func hexDigit(c byte, upper bool) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case upper && c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
