package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestCompareBodies(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		name, first, other, contentType string
		kind                            string
		pointers                        string // "pointer first other", a line each
		ignore                          string
		text                            string // a part of the diff; "": there is none
	}{
		{"a counter", `{"a":{"n":1},"b":2}`, `{"a":{"n":2},"b":2}`, "", "json", "/a/n 1 2", "/a/n", "-    \"n\": 1\n+    \"n\": 2\n"},
		{"a value that is there once", `{"a":{"n":1}}`, `{"a":{"n":1,"m":2}}`, "", "json", "/a/m - 2", "/a", "+    \"m\": 2"},
		{"a value that is there once, at the top", `{"n":1}`, `{"n":1,"m":2}`, "", "json", "/m - 2", "", "+  \"m\": 2"},
		{"a longer array", `[1,2]`, `[1,2,3]`, "", "json", "/2 - 3", "", "+  3"},
		{"another kind", `{"a":1}`, `{"a":"1"}`, "", "json", `/a 1 "1"`, "/a", `"1"`},
		{"null is not absent", `{"a":null}`, `{}`, "", "json", "/a null -", "", `-  "a": null`},
		{"names with slashes", `{"a/b":{"~":1}}`, `{"a/b":{"~":2}}`, "", "json", "/a~1b/~0 1 2", "/a~1b/~0", "2"},
		{"an empty name", `{"":1}`, `{"":2}`, "", "json", "/ 1 2", "/", "2"},
		{"a number in two spellings", `{"a":1.0}`, `{"a":1}`, "", "json", "/a 1.0 1", "/a", "1.0"},
		{"a number beyond 64 bits", `{"a":12345678901234567890}`, `{"a":12345678901234567891}`, "", "json", "/a 12345678901234567890 12345678901234567891", "/a", "12345678901234567891"},
		{"a counter and blanks", `{"a":1,"b":2}`, `{"a":2, "b":2}`, "", "json", "/a 1 2", "", `"a": 2`},
		{"two counters", `{"a":1,"b":[{"c":1}]}`, `{"a":2,"b":[{"c":3}]}`, "", "json", "/a 1 2\n/b/0/c 1 3", "/a /b/0/c", `"c": 3`},
		{"a name that stands twice", `{"a":1,"a":2}`, `{"a":1,"a":3}`, "", "json", "/a 2 3", "", `"a": 3`},
		{"only blanks", `{"a":1}`, `{ "a": 1 }`, "", "json", "", "", ""},
		{"only the order", `{"a":1,"b":2}`, `{"b":2,"a":1}`, "", "json", "", "", `+  "b": 2,`},
		{"only the spelling", `{"a":"\u00e9"}`, `{"a":"é"}`, "", "json", "", "", `+  "a": "é"`},
		{"two lone surrogates", `{"a":"\ud800"}`, `{"a":"\udfff"}`, "", "json", `/a "\ud800" "\udfff"`, "/a", `\udfff`},
		{"whole values", `1`, `2`, "", "json", " 1 2", "", "+2"},
		{"JSON against none", `{"a":1}`, `{"a":1`, "", "text", "", "", `+{"a":1`},
		{"a form", "a=1&b=2&c=3", "a=1&b=9&c=3", form + "; charset=utf-8", "form", "", "", "-b=2&\n+b=9&\n"},
		{"text", "one\ntwo\n", "one\nthree\n", "text/plain", "text", "", "", "-two\n+three\n"},
		{"bytes", "ab\x00c", "ab\x00d", "", "binary", "", "", ""},
		{"JSON in another encoding", "{\"a\":\"\xe9\"}", "{\"a\":\"\xe8\"}", "", "binary", "", "", ""},
		{"nothing", "", "x", "", "text", "", "", "+x"},
	} {
		d := compareBodies([]byte(c.first), []byte(c.other), c.contentType)
		var pointers []string
		for _, p := range d.Pointers {
			value := func(v json.RawMessage) string {
				if v == nil {
					return "-"
				}
				return string(v)
			}
			pointers = append(pointers, p.Pointer+" "+value(p.First)+" "+value(p.Other))
		}
		if got := strings.Join(pointers, "\n"); d.Kind != c.kind || got != c.pointers || strings.Join(d.Ignore, " ") != c.ignore {
			t.Errorf("%s: %s, pointers %q, ignore %v; want %s, %q, %q", c.name, d.Kind, got, d.Ignore, c.kind, c.pointers, c.ignore)
		}
		if !strings.Contains(d.Text, c.text) || c.text == "" && d.Text != "" {
			t.Errorf("%s: diff\n%s\nwant\n%s", c.name, d.Text, c.text)
		}
	}
}

func TestBytesThatDiffer(t *testing.T) {
	first := bytes.Repeat([]byte{0xff}, 1000)
	other := append(append(bytes.Clone(first[:100]), "\x00\x01"...), first[101:]...)
	d := compareBodies(first, other, "")
	if d.Before != 100 || d.After != 899 {
		t.Errorf("%d the same before, %d after", d.Before, d.After)
	}
	for _, want := range []string{"first, from byte 96\n00000060  ff ff ff ff ff", "other, from byte 96\n00000060  ff ff ff ff 00 01 ff", "|................|\n", "… 648 more bytes\n", "… 649 more bytes\n"} {
		if !strings.Contains(d.clipped(), want) {
			t.Errorf("lacks %q:\n%s", want, d.clipped())
		}
	}
}

// The hint can be copied into the configuration as it is.
func TestHintOfADiffIsYAML(t *testing.T) {
	d := compareBodies([]byte(`{"a, b]: #":1,"c~d_e-f":{"":1},"g":1}`), []byte(`{"a, b]: #":2,"c~d_e-f":{"":2},"g":2}`), "")
	var hint string
	d.describe(func(name, format string, args ...any) {
		if name == "hint" {
			hint = fmt.Sprintf(format, args...)
		}
	}, "billing")
	const want = `conflict_ignore: ["/a, b]: #", "/c~0d_e-f/", /g] of source billing`
	if !strings.HasPrefix(hint, want) {
		t.Errorf("got\n%s\nwant\n%s", hint, want)
	}
}

// What a sender wrote reaches a terminal only as text, and only so much of it.
func TestDiffOfHostileBodies(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for name, bodies := range map[string][2]string{
		"escapes":           {`{"a":"1"}`, "{\"a\":\"\u009b2J\u202e\"}"},
		"control bytes":     {"a", "\x1b[2J"},
		"a long line":       {long + "1", long + "2"},
		"many lines":        {strings.Repeat("a\n", 5000), strings.Repeat("b\n", 5000)},
		"deep":              {strings.Repeat("[", 9000) + "1" + strings.Repeat("]", 9000), strings.Repeat("[", 9000) + "2" + strings.Repeat("]", 9000)},
		"many values":       {"[" + strings.Repeat("1,", 100_000) + "1]", "[" + strings.Repeat("2,", 100_000) + "2]"},
		"larger than shown": {strings.Repeat("a", maxDiffBody+1), "b"},
	} {
		d := compareBodies([]byte(bodies[0]), []byte(bodies[1]), "")
		var b strings.Builder
		d.describe(func(name, format string, args ...any) {
			fmt.Fprintf(&b, "%s %s\n", name, cell(fmt.Sprintf(format, args...), true))
		}, "billing")
		b.WriteString(printable(d.clipped(), true))
		if out := b.String(); strings.ContainsAny(out, "\x1b\u009b\u202e") || len(out) > 1<<20 {
			t.Errorf("%s: %d bytes, %.300q", name, len(out), out)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := compareBodies(bytes.Repeat([]byte("a"), maxDiffBody+1), []byte("b"), "")
	if !d.TooLarge || d.Text != "" {
		t.Errorf("a large body: %+v", d)
	}
}
