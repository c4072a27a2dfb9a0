package proxy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

var jsonBodies = []struct {
	name, body string
	want       bool
}{
	{"an object", `{"a":1}`, true},
	{"a number", `7`, true},
	{"null", `null`, true},
	{"white space around it", "\r\n\t {} \n", true},
	// What readers differ in is JSON, and a signed delivery is worth more.
	{"a key that is there twice", `{"a":1,"a":2}`, true},
	{"an escaped NUL", `{"a":"\u0000"}`, true},
	{"half of a surrogate", `{"a":"\ud800"}`, true},
	{"a number beyond every range", `1e400000`, true},
	{"10,000 levels", strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), true},
	{"10,001 levels", strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), false},
	{"nothing", ``, false},
	{"white space alone", " \n", false},
	{"two values", `{} {}`, false},
	{"a line for each value", "{}\n{}\n", false},
	{"text", `hello`, false},
	{"a form", `a=1&b=2`, false},
	{"half of an object", `{"a":1`, false},
	{"a comma at the end", `{"a":1,}`, false},
	{"a comment", `{"a":1} // b`, false},
	{"single quotes", `{'a':1}`, false},
	{"a leading zero", `01`, false},
	{"NaN", `NaN`, false},
	{"a raw control character", "{\"a\":\"\x01\"}", false},
	{"a raw NUL behind it", "{}\x00", false},
	{"a byte order mark", "\ufeff{}", false},
	{"Latin-1", "{\"a\":\"\xe9\"}", false},
	{"a surrogate in the bytes", "{\"a\":\"\xed\xa0\x80\"}", false},
	{"UTF-16", "{\x00}\x00", false},
}

func TestWhatIsJSON(t *testing.T) {
	demanding := src1(t)
	demanding.RequireJSON = true
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{demanding}}})
	taken := 0
	for _, c := range jsonBodies {
		a := g.send(signed("d", c.body))
		if !c.want {
			a.wants(t, 400, "body_not_json")
			// Who cannot sign learns nothing of the rule.
			g.send(signed("d", c.body).set("X-Webhook-Signature", strings.Repeat("0", 64))).wants(t, 401, "signature_invalid")
			continue
		}
		taken++
		a.wants(t, 202, "")
		if got := in.deliveries(); len(got) != taken || string(got[taken-1].Body) != c.body {
			t.Fatalf("%s: %d deliveries of %d, or other bytes", c.name, len(got), taken)
		}
	}
	if n := len(in.deliveries()); n != taken {
		t.Errorf("%d deliveries, want %d", n, taken)
	}
}

// The accept path inflates nothing, so it cannot look into what is compressed.
func TestCompressedJSONIsNotLookedInto(t *testing.T) {
	demanding := src1(t)
	demanding.RequireJSON = true
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	z.Write([]byte(`{}`))
	z.Close()
	g := start(t, setup{cfg: Config{Sources: []Source{demanding}}})
	g.send(signed("d", body.String()).add("Content-Encoding", "gzip")).wants(t, 400, "body_not_json")
}

// FuzzJSON checks that what passes has one reading as far as the grammar goes: it is
// one value, it can be written again, and no part or doubling of it passes for it.
func FuzzJSON(f *testing.F) {
	for _, c := range jsonBodies {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ok := isJSON(b)
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		var v any
		err := dec.Decode(&v)
		whole := err == nil && len(bytes.TrimLeft(b[dec.InputOffset():], " \t\r\n")) == 0
		if want := whole && utf8.Valid(b); ok != want {
			t.Fatalf("isJSON(%q) = %t, and it decodes to %v, %v", b, ok, v, err)
		}
		if !ok {
			return
		}
		if !isJSON(append([]byte(" [\n"), append(bytes.Clone(b), "\t] "...)...)) && bytes.Count(b, []byte{'['})+bytes.Count(b, []byte{'{'}) < 9_999 {
			t.Fatalf("%q alone is JSON, and not in an array", b)
		}
		if isJSON(append(append(bytes.Clone(b), ' '), b...)) {
			t.Fatalf("%q twice is JSON", b)
		}
	})
}
