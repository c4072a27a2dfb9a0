package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
)

type partKind uint8

const (
	partLiteral partKind = iota
	partBody
	partSecret
	partPlace // header, sig, json, form or query
	partMethod
	partURL
	partPath
	partPathQuery
	partHost
	partQueryRaw
	partFormSorted
	partParam
	partBodySHA256Hex
	partBodySHA256Raw
	partBodyCRC32
)

var bareTokens = map[string]partKind{
	"body": partBody, "secret": partSecret, "method": partMethod, "url": partURL,
	"path": partPath, "path_query": partPathQuery, "host": partHost,
	"query_raw": partQueryRaw, "form_sorted": partFormSorted,
	"body_sha256_hex": partBodySHA256Hex, "body_sha256_raw": partBodySHA256Raw,
	"body_crc32_dec": partBodyCRC32,
}

// part is a literal or a token of a template.
type part struct {
	kind  partKind
	text  string // the literal, or the token as written
	place place
}

// fixed says whether every request has the same text here.
func (p *part) fixed() bool {
	switch p.kind {
	case partLiteral, partSecret, partParam, partPath, partHost:
		return true
	}
	return false
}

const maxParts = 16

// parseTemplate splits a template into literals and tokens.
func parseTemplate(s string) ([]part, error) {
	var parts []part
	for s != "" {
		open := strings.IndexAny(s, "{}")
		if open < 0 {
			open = len(s)
		}
		if open > 0 {
			parts = append(parts, part{kind: partLiteral, text: s[:open]})
			s = s[open:]
			continue
		}
		end := strings.IndexByte(s, '}')
		if s[0] == '}' || end < 0 {
			return nil, fmt.Errorf("a literal holds a brace")
		}
		p, err := parseToken(s[1:end])
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
		s = s[end+1:]
	}
	if len(parts) > maxParts {
		return nil, fmt.Errorf("more than %d literals and tokens", maxParts)
	}
	return parts, nil
}

func parseToken(s string) (part, error) {
	if kind, ok := bareTokens[s]; ok {
		return part{kind: kind, text: s}, nil
	}
	if name, ok := strings.CutPrefix(s, "param:"); ok && name != "" {
		return part{kind: partParam, text: name}, nil
	}
	p, err := parsePlace(s)
	switch {
	case errors.Is(err, errNoPlace):
		return part{}, fmt.Errorf("unknown token {%s}: {%s} {header:X} {sig:t} {json:a.b} {form:x} {query:x} {param:x} are known",
			s, strings.Join(slices.Sorted(maps.Keys(bareTokens)), "} {"))
	case err != nil:
		return part{}, fmt.Errorf("token {%s}: %w", s, err)
	}
	return part{kind: partPlace, text: s, place: p}, nil
}

// resolve finds the text of every token before the first hash runs. A missing one
// is a refusal, never an empty string.
func (c *check) resolve() *Error {
	for i := range c.p.parts {
		p := &c.p.parts[i]
		var err *Error
		switch p.kind {
		case partLiteral, partBody, partSecret:
			continue
		case partPlace:
			c.tokens[i], err = c.demand(&p.place)
		case partParam:
			c.tokens[i] = c.v.Params[p.text]
			if c.tokens[i] == "" {
				err = c.fail(ReasonPrecondition, "param:"+p.text)
			}
		case partMethod:
			if c.tokens[i] = c.r.Method; c.r.Method == "" {
				err = c.fail(ReasonHeaderMissing, "method")
			}
		case partURL, partPath, partPathQuery, partHost:
			c.tokens[i], err = c.urlToken(p.kind)
		case partQueryRaw:
			// A request without a query signs an empty one.
			c.tokens[i] = rawQuery(c.r.URL)
		case partFormSorted:
			c.tokens[i], err = c.formSorted()
		case partBodySHA256Hex, partBodySHA256Raw, partBodyCRC32:
			c.tokens[i] = bodyDigest(p.kind, c.r.Body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func bodyDigest(kind partKind, body []byte) string {
	if kind == partBodyCRC32 {
		return strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)
	}
	sum := sha256.Sum256(body)
	if kind == partBodySHA256Raw {
		return string(sum[:])
	}
	return hex.EncodeToString(sum[:])
}

// demand reads a place that must have a value, before the signature is checked.
func (c *check) demand(p *place) (string, *Error) {
	value := ""
	switch p.kind {
	case placeHeader:
		value = c.header(p.slot)
	case placeSig:
		value = c.fields[p.slot]
	case placeJSON:
		found, kind, err := jsonFind(c.r.Body, p.path, depthUnverified)
		if err != nil {
			return "", c.fail(ReasonBodyUnparsable, p.String())
		}
		if kind == jsonString || kind == jsonNumber {
			value = found
		}
	case placeForm, placeQuery:
		text := rawQuery(c.r.URL)
		if p.kind == placeForm {
			if !c.isForm() {
				return "", c.fail(ReasonNotCovered, "body")
			}
			text = string(c.r.Body)
		}
		found, _, err := soleFormValue(text, p.name)
		if err == errFieldTwice {
			return "", c.fail(ReasonHeaderDuplicated, p.String())
		}
		if err != nil {
			return "", c.fail(ReasonBodyUnparsable, p.String())
		}
		value = found
	case placeBodySHA256:
		sum := sha256.Sum256(c.r.Body)
		value = hex.EncodeToString(sum[:])
	}
	if value == "" {
		return "", c.fail(ReasonHeaderMissing, p.String())
	}
	return value, nil
}

const maxMediaType = 256 // what is longer costs more to parse than to sign

// isForm says whether the body is nothing else than a form. A JSON text can be read as
// one, as {"a":"&payload=x&"} is, and could borrow its signature.
func (c *check) isForm() bool {
	text, there, twice := headerValue(c.r.Header, "Content-Type")
	if twice != nil || len(text) > maxMediaType {
		return false
	}
	kind, _, err := mime.ParseMediaType(text)
	return !there || len(c.r.Body) == 0 || err == nil && kind == "application/x-www-form-urlencoded"
}

// urlToken is a part of the signed URL.
func (c *check) urlToken(kind partKind) (string, *Error) {
	full, err := c.fullURL()
	if err != nil {
		return "", err
	}
	return urlPart(full, kind), nil
}

// fullURL comes from the public URL alone. Host and X-Forwarded-* are the sender's
// to choose and are not looked at.
func (c *check) fullURL() (string, *Error) {
	full := c.v.URL
	if !strings.Contains(full, "://") {
		return "", c.fail(ReasonPrecondition, "url")
	}
	switch q := rawQuery(c.r.URL); {
	case strings.IndexByte(full, '?') < 0:
		if q != "" {
			full += "?" + q
		}
	case c.p.queryByURL: // nothing would sign what the request's query says
		return "", c.fail(ReasonPrecondition, "url")
	}
	return full, nil
}

func urlPart(full string, kind partKind) string {
	if kind == partURL {
		return full
	}
	rest := full[strings.Index(full, "://")+len("://"):]
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if kind == partHost {
		return rest[:end]
	}
	path := rest[end:]
	if kind == partPath {
		if q := strings.IndexAny(path, "?#"); q >= 0 {
			path = path[:q]
		}
	}
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	return path
}

// formSorted is name and value of each pair, sorted, joined by nothing.
func (c *check) formSorted() (string, *Error) {
	pairs, err := formPairs(string(c.r.Body))
	if err != nil {
		return "", c.fail(ReasonBodyUnparsable, "form_sorted")
	}
	return joinPairs(pairs, "", ""), nil
}

// joinPairs sorts pairs by name, then value, and joins them.
func joinPairs(pairs []pair, equals, between string) string {
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if n := strings.Compare(a.name, b.name); n != 0 {
			return n
		}
		return strings.Compare(a.value, b.value)
	})
	var b strings.Builder
	for i, p := range pairs {
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(p.name + equals + p.value)
	}
	return b.String()
}

// render gives the signed text to write, in pieces: the body is never copied.
func (c *check) render(st *state, secret []byte) {
	st.buf = st.buf[:0]
	for i := range c.p.parts {
		switch p := &c.p.parts[i]; p.kind {
		case partLiteral:
			st.buf = append(st.buf, p.text...)
		case partSecret:
			st.buf = append(st.buf, secret...)
		case partBody:
			st.flush()
			st.hash.Write(c.r.Body)
		default:
			st.buf = append(st.buf, c.tokens[i]...)
		}
	}
	st.flush()
}

// signedText is the signed text in one piece, for algorithms that want it so.
func (c *check) signedText() []byte {
	var text []byte
	for i := range c.p.parts {
		switch p := &c.p.parts[i]; p.kind {
		case partLiteral:
			text = append(text, p.text...)
		case partBody:
			text = append(text, c.r.Body...)
		default:
			text = append(text, c.tokens[i]...)
		}
	}
	return text
}
