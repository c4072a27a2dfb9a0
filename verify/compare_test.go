package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func mustIgnore(t testing.TB, pointers ...string) Ignored {
	t.Helper()
	g, err := ParseIgnored(pointers...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestCompareHashIsOverTheBytesWithNulls(t *testing.T) {
	deep := strings.Repeat("[", 511) + `{"attempt":1}` + strings.Repeat("]", 511)
	for _, c := range []struct {
		name, body string
		pointers   []string
		want       string // hashed; "": none
	}{
		{"a number", `{"attempt":3,"v":7}`, []string{"/attempt"}, `{"attempt":null,"v":7}`},
		{"every other byte stays", " {\"v\" : 1.0e0,\n\"attempt\":\t 3 ,\"s\":\"\\u00e9é\"}\r\n", []string{"/attempt"},
			" {\"v\" : 1.0e0,\n\"attempt\":\t null ,\"s\":\"\\u00e9é\"}\r\n"},
		{"an object", `{"a":{"b":[1,{"c":2}]},"v":7}`, []string{"/a"}, `{"a":null,"v":7}`},
		{"an empty array", `{"a":[]}`, []string{"/a"}, `{"a":null}`},
		{"true and null", `{"a":true,"b":null}`, []string{"/a", "/b"}, `{"a":null,"b":null}`},
		{"a string that is no Unicode", `{"a":"\ud800","v":7}`, []string{"/a"}, `{"a":null,"v":7}`},
		{"a string of any bytes", "{\"a\":\"\xff\"}", []string{"/a"}, `{"a":null}`},
		{"inside an array", `[{"n":1},{"n":2}]`, []string{"/1/n"}, `[{"n":1},{"n":null}]`},
		{"pointers in any order", `{"a":1,"b":2,"c":3}`, []string{"/c", "/a"}, `{"a":null,"b":2,"c":null}`},
		{"one inside another", `{"a":{"b":1},"c":2}`, []string{"/a/b", "/a"}, `{"a":null,"c":2}`},
		{"the same twice", `{"a":1}`, []string{"/a", "/a"}, `{"a":null}`},
		{"escaped pointer", `{"a/b":{"~":1}}`, []string{"/a~1b/~0"}, `{"a/b":{"~":null}}`},
		{"escaped name", `{"\u0061ttempt":1}`, []string{"/attempt"}, `{"\u0061ttempt":null}`},
		{"other case", `{"Attempt":1}`, []string{"/attempt"}, `{"Attempt":1}`},
		{"pointer absent", `{"v":7}`, []string{"/attempt"}, `{"v":7}`},
		{"pointer through a scalar", `{"a":1}`, []string{"/a/b"}, `{"a":1}`},
		{"one absent, one there", `{"a":1}`, []string{"/b", "/a"}, `{"a":null}`},
		{"a name twice elsewhere", `{"v":1,"v":2,"a":1}`, []string{"/a"}, `{"v":1,"v":2,"a":null}`},
		{"512 deep", deep, []string{"/attempt"}, deep},

		{"nothing ignored", `{"a":1}`, nil, ""},
		{"not JSON", `a=1&b=2`, []string{"/a"}, ""},
		{"empty", ``, []string{"/a"}, ""},
		{"cut", `{"a":1`, []string{"/a"}, ""},
		{"trailing rubbish", `{"a":1}x`, []string{"/a"}, ""},
		{"repeated", `{"a":1,"a":2}`, []string{"/a"}, ""},
		{"repeated in another spelling", `{"a":1,"\u0061":2}`, []string{"/a"}, ""},
		{"repeated on the way", `{"a":{"b":1},"a":{}}`, []string{"/a/b"}, ""},
		{"repeated for one of two", `{"a":1,"a":2,"b":3}`, []string{"/a", "/b"}, ""},
		{"too deep", "[" + deep + "]", []string{"/attempt"}, ""},
	} {
		hash, ok := mustIgnore(t, c.pointers...).CompareHash([]byte(c.body))
		want := [32]byte{}
		if c.want != "" {
			want = sha256.Sum256([]byte(c.want))
		}
		if ok != (c.want != "") || hash != want {
			t.Errorf("%s: %x, %v; want the hash of %q", c.name, hash, ok, c.want)
		}
	}
}

func TestParseIgnoredRefuses(t *testing.T) {
	for _, pointers := range [][]string{{""}, {"attempt"}, {"json:attempt"}, {"/a", "/b~2"}, {strings.Repeat("/a", 33)}, make([]string, 33)} {
		if _, err := ParseIgnored(pointers...); err == nil {
			t.Errorf("%q is taken", pointers)
		}
	}
}

// 256 KiB of the worst kind cost about what reading them costs.
func TestCompareHashOfHostileBodies(t *testing.T) {
	var pointers []string
	for i := range maxIgnored {
		pointers = append(pointers, fmt.Sprintf("/a%s/%d", strings.Repeat("/0", i%30), i))
	}
	g := mustIgnore(t, pointers...)
	const size = 256 << 10
	for name, body := range map[string]string{
		"open arrays":  strings.Repeat("[", size),
		"open objects": strings.Repeat(`{"a":`, size/5),
		"one string":   `"` + strings.Repeat("a", size-2) + `"`,
		"escapes":      `{"a":"` + strings.Repeat(`\u0061`, size/6-4) + `"}`,
		"many names":   `{` + strings.Repeat(`"b":1,`, size/6-2) + `"a":1}`,
		"the name":     `{` + strings.Repeat(`"a":1,`, size/6-2) + `"a":1}`,
		"long array":   `{"a":[` + strings.Repeat("1,", size/2-8) + `1]}`,
		"one number":   strings.Repeat("1", size),
		"zeros":        strings.Repeat("\x00", size),
	} {
		best := time.Hour
		for range 3 {
			start := time.Now()
			g.CompareHash([]byte(body))
			best = min(best, time.Since(start))
		}
		if best > 200*time.Millisecond { // 14 ms for the long array, 10 for the names
			t.Errorf("%s: %v", name, best)
		}
	}
}

func FuzzCompareHash(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,2]},"c":"x"}`), "/a/b/1", "/c")
	f.Add([]byte(`[{"a":1},{"a":"\ud800"}]`), "/1/a", "/1")
	f.Add([]byte(`{"a":1,"a":2}`), "/a", "/")
	f.Fuzz(func(t *testing.T, body []byte, one, two string) {
		g, err := ParseIgnored(one, two)
		if err != nil {
			return
		}
		values, ok := g.find(body)
		hash, same := g.CompareHash(body)
		if ok != same {
			t.Fatalf("found %v, hashed %v", ok, same)
		}
		if !ok {
			return
		}
		var replaced []byte
		at := 0
		for _, v := range values {
			if v.start < at || v.end <= v.start || v.end > len(body) || !json.Valid(body[v.start:v.end]) {
				t.Fatalf("value at %d to %d, after %d", v.start, v.end, at)
			}
			replaced = append(append(replaced, body[at:v.start]...), "null"...)
			at = v.end
		}
		replaced = append(replaced, body[at:]...)
		if hash != sha256.Sum256(replaced) {
			t.Fatalf("hash is not that of %q", replaced)
		}
		if !json.Valid(body) || !json.Valid(replaced) {
			t.Fatalf("%q became %q", body, replaced)
		}
		if again, ok := g.CompareHash(replaced); !ok || again != hash {
			t.Fatalf("%q has another hash than %q", replaced, body)
		}
		if len(values) == 0 && !bytes.Equal(replaced, body) {
			t.Fatal("changed without a value")
		}
	})
}
