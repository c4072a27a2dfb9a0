package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/hooklatch/hooklatch/verify"
)

// bodyDiff is how two bodies differ.
type bodyDiff struct {
	Kind string `json:"kind"` // json, form, text or binary
	// Before and After are the bytes at the two ends that are the same.
	Before int `json:"same_bytes_before"`
	After  int `json:"same_bytes_after"`
	// Pointers are the values of JSON that differ.
	Pointers []pointerDiff `json:"pointers,omitempty"`
	// Ignore is the conflict_ignore under which the two are one delivery.
	Ignore []string `json:"conflict_ignore,omitempty"`
	// Text is a unified diff, of lines that a person can read; empty where only blanks
	// of JSON differ.
	Text string `json:"diff,omitempty"`
	// TooLarge bodies are only compared as bytes.
	TooLarge bool `json:"too_large,omitempty"`

	first, other []byte
}

// maxDiffBody bounds the bodies that are compared as more than bytes.
const maxDiffBody = 1 << 20

func compareBodies(first, other []byte, contentType string) *bodyDiff {
	d := &bodyDiff{Kind: "binary", first: first, other: other}
	most := min(len(first), len(other))
	for d.Before < most && first[d.Before] == other[d.Before] {
		d.Before++
	}
	for d.After < most-d.Before && first[len(first)-1-d.After] == other[len(other)-1-d.After] {
		d.After++
	}
	if max(len(first), len(other)) > maxDiffBody {
		d.TooLarge = true
		return d
	}
	mediaType, _, _ := mime.ParseMediaType(contentType)
	a, okA := prettyJSON(first)
	b, okB := prettyJSON(other)
	switch {
	case okA && okB:
		d.Kind = "json"
		d.Pointers = differingValues(first, other)
		d.Ignore = ignorable(first, other, d.Pointers)
	case !isReadable(first) || !isReadable(other):
		return d
	case mediaType == "application/x-www-form-urlencoded":
		d.Kind = "form"
		a, b = strings.ReplaceAll(string(first), "&", "&\n"), strings.ReplaceAll(string(other), "&", "&\n")
	default:
		d.Kind, a, b = "text", string(first), string(other)
	}
	d.Text = udiff.Unified("first", "other", a, b)
	return d
}

// maxPretty is how deep JSON may nest that is indented: below, the blanks outweigh it.
const maxPretty = 64

// prettyJSON indents JSON, and leaves its values as they are written.
func prettyJSON(body []byte) (string, bool) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return "", false
	}
	level, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if level++; level > maxPretty {
				return "", false
			}
		case c == '}' || c == ']':
			level--
		}
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, bytes.TrimSpace(body), "", "  ") != nil {
		return "", false
	}
	pretty.WriteByte('\n')
	return pretty.String(), true
}

// isReadable says whether a person can read the bytes as text.
func isReadable(body []byte) bool {
	return utf8.Valid(body) && !bytes.ContainsFunc(body, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' })
}

// ignorable returns the pointers that conflict_ignore would have to hold, and proves
// them. Where a value is in one body alone, what it stands in must be ignored.
func ignorable(first, other []byte, differing []pointerDiff) []string {
	var pointers []string
	for _, p := range differing {
		pointer := p.Pointer
		if p.First == nil || p.Other == nil {
			pointer = pointer[:strings.LastIndexByte(pointer, '/')]
		}
		if pointer == "" || len(pointers) > 0 && pointers[len(pointers)-1] == pointer {
			continue
		}
		pointers = append(pointers, pointer)
	}
	ignored, err := verify.ParseIgnored(pointers...)
	if err != nil {
		return nil
	}
	a, okA := ignored.CompareHash(first)
	b, okB := ignored.CompareHash(other)
	if !okA || !okB || a != b {
		return nil
	}
	return pointers
}

// shownPointers is how many values are printed; --json has more.
const shownPointers = 20

func (d *bodyDiff) describe(line func(name, format string, args ...any), source string) {
	line("bytes", "the first %d are the same, then %d of the first became %d of the other, and the last %d are the same",
		d.Before, len(d.first)-d.Before-d.After, len(d.other)-d.Before-d.After, d.After)
	for i, p := range d.Pointers {
		if i == shownPointers {
			line("differs", "… and %d more", len(d.Pointers)-i)
			break
		}
		line("differs", "%s: %s → %s", p.Pointer, short(p.First), short(p.Other))
	}
	switch {
	case d.TooLarge:
		line("bodies", "are too large to be compared as more than bytes")
	case d.Kind == "json" && len(d.Pointers) == 0 && d.Text == "":
		line("differs", "no value: only blanks between them")
	case d.Kind == "json" && len(d.Pointers) == 0:
		line("differs", "no value: only their order, or how they are spelled")
	case len(d.Ignore) > 0:
		line("hint", "conflict_ignore: [%s] of source %s would have made these one delivery", pointerList(d.Ignore), source)
	}
}

// barePointer is a pointer that YAML takes without quotes.
var barePointer = regexp.MustCompile(`^(/[A-Za-z0-9_.~-]+)+$`)

// pointerList writes pointers as a list of YAML has them.
func pointerList(pointers []string) string {
	var all []string
	for _, p := range pointers {
		if !barePointer.MatchString(p) {
			p = yamlText(p)
		}
		all = append(all, p)
	}
	return strings.Join(all, ", ")
}

// short is a value in one line.
func short(v json.RawMessage) string {
	if v == nil {
		return "(absent)"
	}
	const most = 60
	runes := []rune(string(v))
	if len(runes) <= most {
		return string(runes)
	}
	return fmt.Sprintf("%s… (%d bytes)", string(runes[:most]), len(v))
}

// maxShownLine is how much of one line is printed, maxShownLines how many.
const (
	maxShownLine  = 500
	maxShownLines = 2000
)

// clipped is the difference for a person: lines, or bytes where there are none.
func (d *bodyDiff) clipped() string {
	if d.Kind == "binary" || d.Text == "" {
		return d.bytes()
	}
	var b strings.Builder
	n := 0
	for line := range strings.Lines(d.Text) {
		if n++; n > maxShownLines {
			b.WriteString("… more in --json\n")
			break
		}
		if len(line) > maxShownLine {
			line = fmt.Sprintf("%s… %d more bytes\n", strings.ToValidUTF8(line[:maxShownLine], ""), len(line)-maxShownLine)
		}
		b.WriteString(line)
	}
	return b.String()
}

// shownBytes is how many bytes of each body are printed as hex, from the row of the
// first one that differs.
const shownBytes = 256

func (d *bodyDiff) bytes() string {
	from := d.Before &^ 15
	var b strings.Builder
	for _, side := range []struct {
		name string
		body []byte
	}{{"first", d.first}, {"other", d.other}} {
		end := min(len(side.body), from+shownBytes)
		fmt.Fprintf(&b, "%s, from byte %d\n", side.name, from)
		for at := from; at < end; at += 16 {
			row := side.body[at:min(at+16, end)]
			dump := hex.Dump(row)
			fmt.Fprintf(&b, "%08x%s", at, dump[8:strings.IndexByte(dump, '\n')+1])
		}
		if end < len(side.body) {
			fmt.Fprintf(&b, "… %d more bytes\n", len(side.body)-end)
		}
	}
	return b.String()
}
