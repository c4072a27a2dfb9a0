package verify

import (
	"errors"
	"math/bits"
	"strings"
)

// How deep a body may nest: little before the signature is known to be right,
// more after it.
const (
	depthUnverified = 32
	depthVerified   = 512
)

var (
	errNotJSON   = errors.New("body is not JSON")
	errTooDeep   = errors.New("body nests too deep")
	errTwice     = errors.New("name stands twice on the path")
	errNotScalar = errors.New("value is not a string, number, true or false")
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

// jsonTarget is a path that is looked for, and what stands there.
type jsonTarget struct {
	path       []string
	found      string
	kind       jsonKind
	start, end int // of its bytes
	err        error
}

// jsonFind returns the scalar at path.
func jsonFind(text []byte, path []string, depth int) (string, jsonKind, error) {
	t := [1]jsonTarget{{path: path}}
	jsonScan(text, t[:], depth)
	return t[0].found, t[0].kind, t[0].err
}

// jsonScan finds the scalars at all targets in one pass. It reads the whole text:
// trailing rubbish and a second occurrence of a name on a path would let another
// parser see another value. Only the target on whose path a name stands twice
// suffers from it; what is wrong with the text is wrong for all.
func jsonScan(text []byte, targets []jsonTarget, depth int) {
	for ; len(targets) > maxTargets; targets = targets[maxTargets:] {
		jsonScan(text, targets[:maxTargets], depth)
	}
	s := jsonScanner{text: text, depth: depth, targets: targets, live: 1<<len(targets) - 1}
	s.scan()
}

// jsonScanSigned is jsonScan for a body of which only the targets, at most maxTargets,
// are signed. What another reader could take in their place, it could be made to: many
// do not tell case in names, and some walk over an object as over an array. So on the
// path of a target neither is let stand.
func jsonScanSigned(text []byte, targets []jsonTarget) {
	s := jsonScanner{text: text, depth: depthUnverified, targets: targets, live: 1<<len(targets) - 1, exact: true}
	s.scan()
}

func (s *jsonScanner) scan() {
	if s.live == 0 {
		return
	}
	s.blanks()
	err := s.value(s.live, 0)
	if err == nil {
		if s.blanks(); s.i != len(s.text) {
			err = errNotJSON
		}
	}
	for i := range s.targets {
		t := &s.targets[i]
		if t.err == nil {
			t.err = err
		}
		if t.err != nil {
			t.found, t.kind = "", jsonAbsent
		}
	}
}

const maxTargets = 63

// targetSet has a bit for each of at most maxTargets targets.
type targetSet uint64

type jsonScanner struct {
	text    []byte
	i       int
	depth   int
	targets []jsonTarget
	live    targetSet // those without an error of their own
	unique  bool      // no name stands twice in any object, on a path or not
	exact   bool      // nothing on a path that another reader could take for it
	unread  bool      // only where the values stand is asked, not what they are
}

// errAllFailed ends a scan that can find nothing more.
var errAllFailed = errors.New("all targets have failed")

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

// value reads one value. It is the next step for the targets in on, and where
// these end there; for the others only its grammar is checked.
func (s *jsonScanner) value(on targetSet, level int) error {
	if s.i >= len(s.text) {
		return errNotJSON
	}
	var here targetSet
	for t := on; t != 0; t &= t - 1 {
		if i := bits.TrailingZeros64(uint64(t)); len(s.targets[i].path) == level {
			here |= 1 << i
		}
	}
	start := s.i
	err := s.oneValue(on&^here, here, level)
	for ; here != 0 && err == nil; here &= here - 1 {
		t := &s.targets[bits.TrailingZeros64(uint64(here))]
		t.start, t.end = start, s.i
	}
	return err
}

func (s *jsonScanner) oneValue(on, here targetSet, level int) error {
	start := s.i
	switch c := s.text[s.i]; {
	case c == '{' || c == '[':
		if level >= s.depth {
			return errTooDeep
		}
		s.set(here, "", jsonOther)
		if c == '{' {
			return s.object(on, level)
		}
		return s.array(on, level)
	case c == '"':
		raw, escaped, err := s.stringToken()
		if err != nil || here == 0 || s.unread {
			s.set(here, "", jsonString)
			return err
		}
		text, err := jsonText(raw, escaped)
		if err != nil {
			return s.failAll(here, err)
		}
		s.set(here, text, jsonString)
		return nil
	case c == '-' || c >= '0' && c <= '9':
		if !s.number() {
			return errNotJSON
		}
		if here != 0 {
			s.set(here, string(s.text[start:s.i]), jsonNumber)
		}
		return nil
	case c == 't':
		return s.word("true", jsonBool, here)
	case c == 'f':
		return s.word("false", jsonBool, here)
	case c == 'n':
		return s.word("null", jsonNull, here)
	}
	return errNotJSON
}

func (s *jsonScanner) set(here targetSet, found string, kind jsonKind) {
	for ; here != 0; here &= here - 1 {
		t := &s.targets[bits.TrailingZeros64(uint64(here))]
		t.found, t.kind = found, kind
	}
}

// failAll ends the search for some targets, and the scan once none is left.
func (s *jsonScanner) failAll(which targetSet, err error) error {
	s.live &^= which
	for ; which != 0; which &= which - 1 {
		s.targets[bits.TrailingZeros64(uint64(which))].err = err
	}
	if s.live == 0 {
		return errAllFailed
	}
	return nil
}

func (s *jsonScanner) word(w string, kind jsonKind, here targetSet) error {
	if len(s.text)-s.i < len(w) || string(s.text[s.i:s.i+len(w)]) != w {
		return errNotJSON
	}
	s.i += len(w)
	s.set(here, w, kind)
	return nil
}

func (s *jsonScanner) object(on targetSet, level int) error {
	s.i++
	s.blanks()
	if s.i < len(s.text) && s.text[s.i] == '}' {
		s.i++
		return nil
	}
	var seen targetSet
	var names map[string]bool
	for {
		if s.i >= len(s.text) || s.text[s.i] != '"' {
			return errNotJSON
		}
		raw, escaped, err := s.stringToken()
		if err != nil {
			return err
		}
		if s.unique {
			if names, err = addName(names, raw, escaped); err != nil {
				return err
			}
		}
		hit, alike := s.hits(on&s.live, level, raw, escaped)
		if twice := hit&seen | alike; twice != 0 {
			if err := s.failAll(twice, errTwice); err != nil {
				return err
			}
			hit &^= twice
		}
		seen |= hit
		s.blanks()
		if s.i >= len(s.text) || s.text[s.i] != ':' {
			return errNotJSON
		}
		s.i++
		s.blanks()
		if err := s.value(hit, level+1); err != nil {
			return err
		}
		more, err := s.next('}')
		if err != nil || !more {
			return err
		}
	}
}

// hits are the targets whose next step is the name, and, where that matters, those
// for which another reader could take it.
func (s *jsonScanner) hits(on targetSet, level int, raw []byte, escaped bool) (hit, alike targetSet) {
	if on == 0 {
		return 0, 0
	}
	name := ""
	if escaped || s.exact {
		var err error
		if name, err = jsonText(raw, escaped); err != nil {
			return 0, 0
		}
		raw = []byte(name)
	}
	for t := on; t != 0; t &= t - 1 {
		i := bits.TrailingZeros64(uint64(t))
		switch want := s.targets[i].path[level]; {
		case s.exact && (arrayIndex(want) >= 0 || string(raw) != want && strings.EqualFold(name, want)):
			alike |= 1 << i
		case string(raw) == want:
			hit |= 1 << i
		}
	}
	return hit, alike
}

// addName is for texts whose every name counts; a map, since they are many.
func addName(names map[string]bool, raw []byte, escaped bool) (map[string]bool, error) {
	name, err := jsonText(raw, escaped)
	if err != nil {
		return nil, err
	}
	if names[name] {
		return nil, errTwice
	}
	if names == nil {
		names = map[string]bool{}
	}
	names[name] = true
	return names, nil
}

func (s *jsonScanner) array(on targetSet, level int) error {
	s.i++
	s.blanks()
	if s.i < len(s.text) && s.text[s.i] == ']' {
		s.i++
		return nil
	}
	for n := 0; ; n++ {
		var hit targetSet
		for t := on; t != 0; t &= t - 1 {
			if i := bits.TrailingZeros64(uint64(t)); arrayIndex(s.targets[i].path[level]) == n {
				hit |= 1 << i
			}
		}
		if err := s.value(hit, level+1); err != nil {
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
