package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// pointerDiff is a value that two bodies of JSON do not have in common. nil: it is not
// there at all.
type pointerDiff struct {
	Pointer string          `json:"pointer"`
	First   json.RawMessage `json:"first,omitempty"`
	Other   json.RawMessage `json:"other,omitempty"`
}

// maxPointers bounds the list: with more, the bodies have nothing in common.
const maxPointers = 1000

// differingValues lists the values that differ, the deepest ones that hold the whole
// difference. Of a name that stands twice the last counts.
func differingValues(first, other []byte) []pointerDiff {
	var w valueWalk
	w.compare("", first, other)
	return w.found
}

type valueWalk struct{ found []pointerDiff }

func (w *valueWalk) add(pointer string, first, other json.RawMessage) {
	if len(w.found) < maxPointers {
		w.found = append(w.found, pointerDiff{pointer, first, other})
	}
}

// compare looks at two values as they are written.
func (w *valueWalk) compare(at string, first, other json.RawMessage) {
	first, other = bytes.TrimSpace(first), bytes.TrimSpace(other)
	if bytes.Equal(first, other) || len(w.found) == maxPointers {
		return
	}
	switch {
	case first[0] == '{' && other[0] == '{':
		var a, b map[string]json.RawMessage
		if json.Unmarshal(first, &a) != nil || json.Unmarshal(other, &b) != nil {
			return
		}
		names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			w.pair(at+"/"+pointerName(name), a[name], b[name])
		}
	case first[0] == '[' && other[0] == '[':
		var a, b []json.RawMessage
		if json.Unmarshal(first, &a) != nil || json.Unmarshal(other, &b) != nil {
			return
		}
		for i := range max(len(a), len(b)) {
			var x, y json.RawMessage
			if i < len(a) {
				x = a[i]
			}
			if i < len(b) {
				y = b[i]
			}
			w.pair(at+"/"+strconv.Itoa(i), x, y)
		}
	case first[0] == '"' && other[0] == '"':
		var a, b string
		if json.Unmarshal(first, &a) == nil && json.Unmarshal(other, &b) == nil && a == b && !strings.ContainsRune(a, '\ufffd') {
			return // spelled in two ways
		}
		w.add(at, first, other)
	default:
		w.add(at, first, other)
	}
}

func (w *valueWalk) pair(at string, first, other json.RawMessage) {
	if first == nil || other == nil {
		w.add(at, first, other)
		return
	}
	w.compare(at, first, other)
}

func pointerName(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
