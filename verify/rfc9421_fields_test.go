package verify

import (
	"strings"
	"testing"
)

// spellOut writes a dictionary of inner lists and items in its canonical spelling.
func spellOut(members []sfMember) string {
	var parts []string
	for i := range members {
		m := &members[i]
		var b strings.Builder
		b.WriteString(m.key)
		switch {
		case m.list:
			b.WriteByte('=')
			m.writeInnerList(&b)
		case m.item.kind == sfBoolean && m.item.text == "?1":
			writeParams(&b, m.item.params)
		default:
			b.WriteByte('=')
			m.item.write(&b)
		}
		parts = append(parts, b.String())
	}
	return strings.Join(parts, ", ")
}

// The examples of RFC 8941 and what its grammar excludes.
func TestReadDictionary(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"strings and bytes", `en="Applepie", da=:w4ZibGV0w6ZydGU=:`, `en="Applepie", da=:w4ZibGV0w6ZydGU=:`},
		{"booleans", `a=?0, b, c; foo=bar`, `a=?0, b, c;foo=bar`},
		{"an item and an inner list", `rating=1.5, feelings=(joy sadness)`, `rating=1.5, feelings=(joy sadness)`},
		{"parameters inside and outside", `a=(1 2), b=3, c=4;aa=bb, d=(5 6);valid`, `a=(1 2), b=3, c=4;aa=bb, d=(5 6);valid`},
		{"blanks in an inner list", `a=(  "b"   "c"  );x=1`, `a=("b" "c");x=1`},
		{"an empty inner list", `a=()`, `a=()`},
		{"tabs about a comma", "a=1 \t,\t b=2", "a=1, b=2"},
		{"true, spelled out", `a=?1;x=?1`, `a;x`},
		{"numbers in other spellings", `a=00, b=-0, c=-01, d=1.500, e=-0.0, f=0.10`, `a=0, b=0, c=-1, d=1.5, e=0.0, f=0.1`},
		{"the longest numbers", `a=999999999999999, b=-999999999999.999`, `a=999999999999999, b=-999999999999.999`},
		{"escapes", `a="x\"y\\z"`, `a="x\"y\\z"`},
		{"a token with a colon", `a=text/html:x*`, `a=text/html:x*`},
		{"no bytes", `a=::`, `a=::`},
		{"keys", `*a.b-c_1=1`, `*a.b-c_1=1`},

		{"a key twice", `a=1, a=2`, "-"},
		{"a parameter twice", `a=1;b=1;b=2`, "-"},
		{"a comma at the end", `a=1,`, "-"},
		{"no comma", `a=1 b=2`, "-"},
		{"an upper-case key", `A=1`, "-"},
		{"no value", `a=`, "-"},
		{"an open list", `a=("b"`, "-"},
		{"no blank between items", `a=("b""c")`, "-"},
		{"a list in a list", `a=(("b"))`, "-"},
		{"a tab in an inner list", "a=(1\t2)", "-"},
		{"an open string", `a="b`, "-"},
		{"an unknown escape", `a="\n"`, "-"},
		{"a line break in a string", "a=\"b\nc\"", "-"},
		{"a letter beyond ASCII", `a="é"`, "-"},
		{"bytes without padding", `a=:w4ZibGV0w6ZydGU:`, "-"},
		{"bytes with loose last bits", `a=:QR==:`, "-"},
		{"url-safe bytes", `a=:_-8=:`, "-"},
		{"open bytes", `a=:QQ==`, "-"},
		{"16 digits", `a=1000000000000000`, "-"},
		{"four fraction digits", `a=1.0001`, "-"},
		{"13 digits before the point", `a=1000000000000.1`, "-"},
		{"13 digits before the point, most of them 0", `a=0000000000001.1`, "-"},
		{"no fraction digits", `a=1.`, "-"},
		{"a plus", `a=+1`, "-"},
		{"a boolean of two", `a=?2`, "-"},
		{"a NUL", "a=1\x00", "-"},
		{"too many members", "k0" + manyKeys(32), "-"},
		{"too many parameters", "a=1" + strings.Repeat(";x", 17), "-"},
		{"too many items", "a=(" + strings.Repeat("1 ", 33) + ")", "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			members, err := readDictionary(tt.text)
			got := spellOut(members)
			if err != nil {
				got = "-"
			}
			if got != tt.want {
				t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(", k" + strings.Repeat("x", i+1))
	}
	return b.String()
}

// What is read and written again reads the same.
func FuzzDictionary(f *testing.F) {
	f.Add(`sig1=("@method" "content-digest";req);created=1618884473;keyid="k", b=:AA==:;x=-1.5`)
	f.Add(`a=?0, b, c; foo=bar`)
	f.Fuzz(func(t *testing.T, text string) {
		members, err := readDictionary(text)
		if err != nil {
			return
		}
		once := spellOut(members)
		again, err := readDictionary(once)
		if err != nil || spellOut(again) != once {
			t.Errorf("%q is written as %q, which is read as %q, %v", text, once, spellOut(again), err)
		}
	})
}
