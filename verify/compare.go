package verify

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Ignored are the parts of a body that do not count when two deliveries of one id are
// compared: a counter of attempts, a time of sending, a live field. The zero Ignored
// ignores nothing.
type Ignored struct{ paths [][]string }

// maxIgnored bounds the work on a body.
const maxIgnored = 32

// ParseIgnored reads JSON pointers such as /attempt or /data/0/sent_at, at most 32.
func ParseIgnored(pointers ...string) (Ignored, error) {
	if len(pointers) > maxIgnored {
		return Ignored{}, fmt.Errorf("verify: parse ignored: %d pointers are more than %d", len(pointers), maxIgnored)
	}
	var g Ignored
	for _, s := range pointers {
		path, err := ignoredPath(s)
		if err != nil {
			return Ignored{}, fmt.Errorf("verify: parse ignored: %w", err)
		}
		g.paths = append(g.paths, path)
	}
	return g, nil
}

func ignoredPath(s string) ([]string, error) {
	if !strings.HasPrefix(s, "/") {
		return nil, fmt.Errorf("%q is no JSON pointer", s)
	}
	return parsePath(s)
}

// CompareHash is the SHA-256 of body with null in place of the values at the pointers,
// and every other byte as it came. A pointer that leads nowhere changes nothing. ok is
// false, and bodies are to be compared whole, where nothing is ignored, where body is
// not JSON (a form, say) or nests deeper than 512, and where a name stands twice on the
// way to a value: another reader may see the other one.
func (g Ignored) CompareHash(body []byte) (hash [32]byte, ok bool) {
	values, ok := g.find(body)
	if !ok {
		return hash, false
	}
	h := sha256.New()
	at := 0
	for _, v := range values {
		h.Write(body[at:v.start])
		h.Write([]byte("null"))
		at = v.end
	}
	h.Write(body[at:])
	h.Sum(hash[:0])
	return hash, true
}

// find returns where the ignored values stand, in their order, none inside another.
func (g Ignored) find(body []byte) ([]jsonTarget, bool) {
	if len(g.paths) == 0 {
		return nil, false
	}
	targets := make([]jsonTarget, len(g.paths))
	for i, path := range g.paths {
		targets[i].path = path
	}
	s := jsonScanner{text: body, depth: depthVerified, targets: targets, live: 1<<len(targets) - 1, unread: true}
	s.scan()
	found := targets[:0]
	for _, t := range targets {
		switch {
		case t.err != nil:
			return nil, false
		case t.kind != jsonAbsent:
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b jsonTarget) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	outer := found[:0]
	for _, t := range found {
		if n := len(outer); n == 0 || t.start >= outer[n-1].end {
			outer = append(outer, t)
		}
	}
	return outer, true
}
