package verify

import (
	"encoding/base64"
	"errors"
	"strings"
)

// Structured fields (RFC 8941), as far as message signatures need them: a dictionary
// of inner lists or items, with parameters. What is read can be written again in the
// one canonical spelling, which is what a signature covers. Stricter than the RFC in
// one point: a key that stands twice is refused, where the RFC takes the last.

var errNotStructured = errors.New("not a structured field")

// Bounds of a field before anybody is known to have signed it.
const (
	maxMembers = 32 // of a dictionary or an inner list
	maxSFParam = 16 // of one member
)

type sfKind uint8

const (
	sfBoolean sfKind = iota
	sfInteger
	sfDecimal
	sfString
	sfToken
	sfBytes
)

// sfItem is a bare item with its parameters.
type sfItem struct {
	kind   sfKind
	text   string // canonical spelling; of strings and byte sequences what they hold
	params []sfParam
}

type sfParam struct {
	key   string
	value sfItem // without parameters
}

// sfMember is a member of a dictionary: an item, or an inner list.
type sfMember struct {
	key   string
	list  bool
	item  sfItem // of an inner list only the parameters
	inner []sfItem
}

// param finds a parameter.
func (i *sfItem) param(key string) (sfItem, bool) {
	for _, p := range i.params {
		if p.key == key {
			return p.value, true
		}
	}
	return sfItem{}, false
}

// readDictionary reads a field whose lines were joined by commas.
func readDictionary(text string) ([]sfMember, error) {
	s := sfScanner{text: strings.Trim(text, " ")}
	var members []sfMember
	for s.i < len(s.text) {
		m, err := s.member()
		if err != nil {
			return nil, err
		}
		for i := range members {
			if members[i].key == m.key {
				return nil, errNotStructured
			}
		}
		if members = append(members, m); len(members) > maxMembers {
			return nil, errNotStructured
		}
		s.skip(" \t")
		if s.i == len(s.text) {
			return members, nil
		}
		if !s.take(',') {
			return nil, errNotStructured
		}
		if s.skip(" \t"); s.i == len(s.text) {
			return nil, errNotStructured // a comma at the end
		}
	}
	return members, nil
}

type sfScanner struct {
	text string
	i    int
}

// peek is 0 at the end; a NUL is of no grammar here.
func (s *sfScanner) peek() byte {
	if s.i == len(s.text) {
		return 0
	}
	return s.text[s.i]
}

func (s *sfScanner) take(c byte) bool {
	if s.peek() != c || s.i == len(s.text) {
		return false
	}
	s.i++
	return true
}

func (s *sfScanner) skip(set string) {
	for s.i < len(s.text) && strings.IndexByte(set, s.text[s.i]) >= 0 {
		s.i++
	}
}

func (s *sfScanner) member() (m sfMember, err error) {
	if m.key, err = s.key(); err != nil {
		return m, err
	}
	if !s.take('=') { // true, with parameters
		m.item.text = "?1"
		m.item.params, err = s.params()
		return m, err
	}
	if s.peek() != '(' {
		m.item, err = s.item()
		return m, err
	}
	m.list = true
	if m.inner, err = s.innerList(); err != nil {
		return m, err
	}
	m.item.params, err = s.params()
	return m, err
}

func (s *sfScanner) innerList() ([]sfItem, error) {
	s.i++
	var items []sfItem
	for {
		s.skip(" ")
		if s.take(')') {
			return items, nil
		}
		item, err := s.item()
		if err != nil {
			return nil, err
		}
		if items = append(items, item); len(items) > maxMembers {
			return nil, errNotStructured
		}
		if c := s.peek(); c != ' ' && c != ')' {
			return nil, errNotStructured
		}
	}
}

func (s *sfScanner) item() (sfItem, error) {
	item, err := s.bare()
	if err == nil {
		item.params, err = s.params()
	}
	return item, err
}

func (s *sfScanner) params() ([]sfParam, error) {
	var params []sfParam
	for s.take(';') {
		s.skip(" ")
		p := sfParam{value: sfItem{text: "?1"}}
		var err error
		if p.key, err = s.key(); err != nil {
			return nil, err
		}
		for i := range params {
			if params[i].key == p.key {
				return nil, errNotStructured
			}
		}
		if s.take('=') {
			if p.value, err = s.bare(); err != nil {
				return nil, err
			}
		}
		if params = append(params, p); len(params) > maxSFParam {
			return nil, errNotStructured
		}
	}
	return params, nil
}

func (s *sfScanner) key() (string, error) {
	start := s.i
	if c := s.peek(); c != '*' && !(c >= 'a' && c <= 'z') {
		return "", errNotStructured
	}
	for s.i < len(s.text) {
		c := s.text[s.i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("_-.*", c) >= 0) {
			break
		}
		s.i++
	}
	return s.text[start:s.i], nil
}

// bare reads an item without its parameters.
func (s *sfScanner) bare() (sfItem, error) {
	switch c := s.peek(); {
	case c == '"':
		return s.quoted()
	case c == ':':
		return s.bytes()
	case c == '?':
		s.i++
		if s.take('0') {
			return sfItem{text: "?0"}, nil
		}
		if s.take('1') {
			return sfItem{text: "?1"}, nil
		}
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == '*' || c|0x20 >= 'a' && c|0x20 <= 'z':
		start := s.i
		for s.i < len(s.text) && (s.text[s.i] == ':' || s.text[s.i] == '/' || validHeaderName(s.text[s.i:s.i+1])) {
			s.i++
		}
		return sfItem{kind: sfToken, text: s.text[start:s.i]}, nil
	}
	return sfItem{}, errNotStructured
}

func (s *sfScanner) quoted() (sfItem, error) {
	s.i++
	var b strings.Builder
	for s.i < len(s.text) {
		c := s.text[s.i]
		s.i++
		if c == '"' {
			return sfItem{kind: sfString, text: b.String()}, nil
		}
		if c == '\\' {
			if c = s.peek(); c != '"' && c != '\\' {
				break
			}
			s.i++
		}
		if c < ' ' || c > '~' {
			break
		}
		b.WriteByte(c)
	}
	return sfItem{}, errNotStructured
}

func (s *sfScanner) bytes() (sfItem, error) {
	s.i++
	end := strings.IndexByte(s.text[s.i:], ':')
	if end < 0 {
		return sfItem{}, errNotStructured
	}
	raw := decodeBase64([]byte{}, s.text[s.i:s.i+end], false)
	if raw == nil {
		return sfItem{}, errNotStructured
	}
	s.i += end + 1
	return sfItem{kind: sfBytes, text: string(raw)}, nil
}

// number reads an integer of at most 15 digits, or a decimal of at most 12 and 3.
// Their canonical spelling has no leading and no trailing zero.
func (s *sfScanner) number() (sfItem, error) {
	sign := ""
	if s.take('-') {
		sign = "-"
	}
	whole := s.digits()
	if whole == "" || len(whole) > 15 || len(whole) > 12 && s.peek() == '.' {
		return sfItem{}, errNotStructured
	}
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if !s.take('.') {
		if whole == "0" {
			sign = ""
		}
		return sfItem{kind: sfInteger, text: sign + whole}, nil
	}
	part := s.digits()
	if part == "" || len(part) > 3 {
		return sfItem{}, errNotStructured
	}
	if part = strings.TrimRight(part, "0"); part == "" {
		part = "0"
	}
	if whole == "0" && part == "0" {
		sign = ""
	}
	return sfItem{kind: sfDecimal, text: sign + whole + "." + part}, nil
}

func (s *sfScanner) digits() string {
	start := s.i
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.i++
	}
	return s.text[start:s.i]
}

// writeInnerList is the canonical spelling of an inner list with its parameters.
func (m *sfMember) writeInnerList(b *strings.Builder) {
	b.WriteByte('(')
	for i := range m.inner {
		if i > 0 {
			b.WriteByte(' ')
		}
		m.inner[i].write(b)
	}
	b.WriteByte(')')
	writeParams(b, m.item.params)
}

func (i *sfItem) write(b *strings.Builder) {
	switch i.kind {
	case sfString:
		b.WriteByte('"')
		b.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(i.text))
		b.WriteByte('"')
	case sfBytes:
		b.WriteString(":" + base64.StdEncoding.EncodeToString([]byte(i.text)) + ":")
	default:
		b.WriteString(i.text)
	}
	writeParams(b, i.params)
}

func writeParams(b *strings.Builder, params []sfParam) {
	for i := range params {
		p := &params[i]
		b.WriteString(";" + p.key)
		if p.value.kind != sfBoolean || p.value.text != "?1" {
			b.WriteByte('=')
			p.value.write(b)
		}
	}
}
