package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestFieldReadsJSON(t *testing.T) {
	const body = `{"id":"evt_1","n":12345678901234567890,"f":1.0,"e":1E+2,"t":true,"no":false,"nil":null,
		"a":{"b":["x",{"c":"deep"}],"b.c":"dotted","~/":"odd","":"empty"},"esc\u0061ped":"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude0a",
		"lone":"\ud83d!","low":"\ude0a","nul":"a\u0000b","empty":"","latin":"` + "\xe9" + `"}`
	for _, c := range []struct {
		field, want string
		ok          bool
		err         error
	}{
		{"json:id", "evt_1", true, nil},
		{"/id", "evt_1", true, nil},
		{"/n", "12345678901234567890", true, nil},
		{"/f", "1.0", true, nil},
		{"/e", "1E+2", true, nil},
		{"/t", "true", true, nil},
		{"/no", "false", true, nil},
		{"/nil", "", false, nil},
		{"/missing", "", false, nil},
		{"/id/x", "", false, nil},
		{"/a/b/0", "x", true, nil},
		{"json:a.b.1.c", "deep", true, nil},
		{"/a/b/01", "", false, nil},
		{"/a/b/2", "", false, nil},
		{"/a/b/-1", "", false, nil},
		{"/a/b.c", "dotted", true, nil},
		{"/a/~0~1", "odd", true, nil},
		{"/a/", "empty", true, nil},
		{"/escaped", "a\"\\/\b\f\n\r\té😊", true, nil},
		{"/a", "", false, errNotScalar},
		{"/a/b", "", false, errNotScalar},
		{"/lone", "", false, errNotUnicode},
		{"/low", "", false, errNotUnicode},
		{"/nul", "", false, errNUL},
		{"/latin", "", false, errNotUnicode},
		{"/empty", "", true, nil},
	} {
		f, err := ParseField(c.field)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := f.Read(Request{Body: []byte(body)})
		if got != c.want || ok != c.ok || !errors.Is(err, c.err) || err != nil && c.err == nil {
			t.Errorf("%s: %q, %v, %v", c.field, got, ok, err)
		}
	}
}

func TestFieldRefusesWhatAnotherParserReadsOtherwise(t *testing.T) {
	f, err := ParseField("/a/b")
	if err != nil {
		t.Fatal(err)
	}
	for defect, c := range map[string]struct {
		body string
		err  error
	}{
		"name twice at the end":    {`{"a":{"b":1,"b":2}}`, errTwice},
		"name twice on the way":    {`{"a":{"b":1},"a":{"c":2}}`, errTwice},
		"name twice, one escaped":  {`{"a":{"b":1,"\u0062":2}}`, errTwice},
		"trailing rubbish":         {`{"a":{"b":1}}x`, errNotJSON},
		"two texts":                {`{"a":{"b":1}} {}`, errNotJSON},
		"trailing comma":           {`{"a":{"b":1},}`, errNotJSON},
		"trailing comma in a list": {`{"a":{"b":1},"c":[1,]}`, errNotJSON},
		"comment":                  {`{"a":{"b":1}/**/}`, errNotJSON},
		"single quotes":            {`{'a':{'b':1}}`, errNotJSON},
		"name without quotes":      {`{a:{"b":1}}`, errNotJSON},
		"leading zero":             {`{"a":{"b":01}}`, errNotJSON},
		"bare point":               {`{"a":{"b":1.}}`, errNotJSON},
		"bare exponent":            {`{"a":{"b":1e}}`, errNotJSON},
		"plus sign":                {`{"a":{"b":+1}}`, errNotJSON},
		"minus alone":              {`{"a":{"b":-}}`, errNotJSON},
		"NaN":                      {`{"a":{"b":NaN}}`, errNotJSON},
		"capital word":             {`{"a":{"b":True}}`, errNotJSON},
		"half a word":              {`{"a":{"b":tru`, errNotJSON},
		"raw control character":    {"{\"a\":{\"b\":\"\n\"}}", errNotJSON},
		"raw NUL":                  {"{\"a\":{\"b\":\"\x00\"}}", errNotJSON},
		"unknown escape":           {`{"a":{"b":"\x41"}}`, errNotJSON},
		"short escape":             {`{"a":{"b":"\u00"}}`, errNotJSON},
		"open string":              {`{"a":{"b":"x`, errNotJSON},
		"backslash at the end":     {`{"a":{"b":"x\`, errNotJSON},
		"byte order mark":          {"\ufeff" + `{"a":{"b":1}}`, errNotJSON},
		"vertical tab":             {"{\"a\":\v{\"b\":1}}", errNotJSON},
		"nothing":                  {``, errNotJSON},
		"blanks":                   {`  `, errNotJSON},
		"600 levels":               {`{"x":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `,"a":{"b":1}}`, errTooDeep},
		"open levels":              {strings.Repeat(`{"a":`, 100000), errTooDeep},
		"form":                     {`a=1`, errNotJSON},
	} {
		if got, ok, err := f.Read(Request{Body: []byte(c.body)}); !errors.Is(err, c.err) || ok || got != "" {
			t.Errorf("%s: %q, %v, %v", defect, got, ok, err)
		}
	}
	// A name that stands twice elsewhere is nobody's business here.
	if got, ok, err := f.Read(Request{Body: []byte(`{"c":1,"c":2,"a":{"b":"v"},"d":{"b":3}}`)}); got != "v" || !ok || err != nil {
		t.Errorf("twice elsewhere: %q, %v, %v", got, ok, err)
	}
}

func TestFieldOutsideJSON(t *testing.T) {
	r := Request{
		URL:    "/in?x=1&y=a%20b+c&twice=1&twice=2&bad=%zz",
		Header: http.Header{"x-event": {"paid"}, "X-Two": {"a", "b"}, "X-Empty": {""}, "X-Latin": {"\xe9"}, "X_Event": {"other"}, "X_Alone": {"v"}},
		Body:   []byte("a=1&b=%C3%A9&c=x%00y&latin=%E9&d"),
	}
	clean := r
	clean.URL = "/in?x=1&y=a%20b+c&twice=1&twice=2&latin=%e9&f=1#g"
	for _, c := range []struct {
		field, want string
		ok, bad     bool
		r           Request
	}{
		{"header:X-Two", "", false, true, r},
		{"header:X-Latin", "", false, true, r},
		{"form:latin", "", false, true, r},
		{"query:latin", "", false, true, clean},
		{"query:f", "1#g", true, false, clean}, // nothing is cut that a signature would not cover
		{"header:X-Empty", "", false, false, r},
		{"header:X-None", "", false, false, r},
		{"header:X-Event", "", false, true, r}, // its underscore twin is there
		{"header:X-Alone", "", false, false, r},
		{"query:x", "", false, true, r}, // an escape is broken somewhere
		{"query:x", "1", true, false, clean},
		{"query:y", "a b c", true, false, clean},
		{"query:z", "", false, false, clean},
		{"query:twice", "", false, true, clean},
		{"form:a", "1", true, false, r},
		{"form:b", "é", true, false, r},
		{"form:c", "", false, true, r},
		{"form:d", "", true, false, r},
		{"form:e", "", false, false, r},
		{"body_sha256_hex", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", true, false, Request{}},
	} {
		f, err := ParseField(c.field)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := f.Read(c.r)
		if got != c.want || ok != c.ok || (err != nil) != c.bad {
			t.Errorf("%s: %q, %v, %v", c.field, got, ok, err)
		}
	}
	for _, bad := range []string{"", "x", "header:", "header:a b", "json:", "json:.", "/a~", "sig:t", "cookie:x", "{body}", "json:" + strings.Repeat("a.", 40) + "a"} {
		if _, err := ParseField(bad); err == nil {
			t.Errorf("field %q was taken", bad)
		}
	}
	if got, ok, err := (Field{}).Read(r); got != "" || ok || err != nil || !(Field{}).IsZero() || (Field{}).String() != "" {
		t.Error("the zero field reads something")
	}
	if f, _ := ParseField("/a/b"); f.String() != "/a/b" || f.IsZero() {
		t.Errorf("field prints as %q", f)
	}
}

// FuzzField: what we call JSON, encoding/json calls JSON, and both read one value.
func FuzzField(f *testing.F) {
	for _, s := range []string{`{"a":{"b":1}}`, `{"a":{"b":"\u00e9\ud83d\ude0a"}}`, `{"a":{"b":1,"b":2}}`, `[1,2,{"a":null}]`,
		`{"a":{"b":"x"}}x`, `{"a":{"b":-1.5e+3}}`, "{\"a\":{\"b\":\"\xff\"}}", `{"a":{"b":"\ud800"}}`, `{"a":[{"b":1}]}`, `{"\u0061":{"b":true}}`} {
		f.Add([]byte(s))
	}
	field, err := ParseField("/a/b")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok, err := field.Read(Request{Body: body})
		if errors.Is(err, errTooDeep) {
			return
		}
		// Other faults end the scan early, so they say nothing of the rest.
		if valid := json.Valid(body); errors.Is(err, errNotJSON) && valid || err == nil && !valid {
			t.Fatalf("%q: %v, encoding/json says %v", body, err, valid)
		}
		if err != nil || !ok {
			return
		}
		var doc map[string]json.RawMessage
		var inner map[string]json.RawMessage
		if json.Unmarshal(body, &doc) != nil || json.Unmarshal(doc["a"], &inner) != nil {
			t.Fatalf("%q: read %q, encoding/json reads no object", body, got)
		}
		want := string(inner["b"])
		if want[0] == '"' {
			if err := json.Unmarshal(inner["b"], &want); err != nil {
				t.Fatal(err)
			}
		}
		if got != want {
			t.Fatalf("%q: %q, encoding/json reads %q", body, got, want)
		}
	})
}

func fieldsOf(t testing.TB, names ...string) (fields []Field) {
	t.Helper()
	for _, name := range names {
		f, err := ParseField(name)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, f)
	}
	return fields
}

// A number is told from a string of digits, and one field's fault is not another's.
func TestReadFieldsInOneScan(t *testing.T) {
	r := Request{
		Header: http.Header{"X-Rev": {"11"}},
		Body: []byte(`{"s":"11","n":11,"b":true,"nil":null,"o":{},"twice":1,"twice":2,"lone":"\ud800",
			"a":{"x":1,"y":{"z":"deep"},"list":[{"v":5},{"v":6}],"t":1,"t":{"u":2}}}`),
	}
	names := []string{"/s", "/n", "/b", "/nil", "/o", "/twice", "/lone", "/a", "/a/x", "json:a.y.z", "/a/list/1/v", "/a/list/0/v",
		"/a/t", "/a/t/u", "/n", "/none", "header:X-Rev", "header:X-None", "body_sha256_hex"}
	got := ReadFields(r, append(fieldsOf(t, names...), Field{})...)
	for i, want := range []Value{{"11", KindString, nil}, {"11", KindNumber, nil}, {"true", KindBool, nil}, {}, {Err: errNotScalar}, {Err: errTwice},
		{Err: errNotUnicode}, {Err: errNotScalar}, {"1", KindNumber, nil}, {"deep", KindString, nil}, {"6", KindNumber, nil}, {"5", KindNumber, nil},
		{Err: errTwice}, {Err: errTwice}, {"11", KindNumber, nil}, {}, {"11", KindText, nil}, {}} {
		if v := got[i]; v.Text != want.Text || v.Kind != want.Kind || !errors.Is(v.Err, want.Err) || (v.Err == nil) != (want.Err == nil) {
			t.Errorf("%s: %+v, want %+v", names[i], v, want)
		}
	}
	if got[len(names)] != (Value{}) || len(got[len(names)-1].Text) != 64 {
		t.Errorf("the zero field and the hash: %+v", got[len(names)-1:])
	}
	// A fault of the text is everybody's.
	r.Body = append(r.Body, 'x')
	for i, v := range ReadFields(r, fieldsOf(t, names[:5]...)...) {
		if !errors.Is(v.Err, errNotJSON) || v.Text != "" || v.Kind != KindAbsent {
			t.Errorf("%s before rubbish: %+v", names[i], v)
		}
	}
}

func TestReadMoreFieldsThanOneScanTakes(t *testing.T) {
	var names, members []string
	for i := range 3*maxTargets + 1 {
		names = append(names, fmt.Sprintf("/k%d", i))
		members = append(members, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	for i, v := range ReadFields(Request{Body: []byte("{" + strings.Join(members, ",") + "}")}, fieldsOf(t, names...)...) {
		if v.Err != nil || v.Text != fmt.Sprint(i) {
			t.Errorf("%s: %+v", names[i], v)
		}
	}
}

// FuzzReadFields: a field reads the same alone and among others.
func FuzzReadFields(f *testing.F) {
	for _, s := range []string{`{"a":{"b":1,"c":[1,{"d":"x"}]},"e":true}`, `{"a":1,"a":{"b":2},"e":"\ud800"}`, `[{"a":1}]`, `{"a":{"b":1,"b":2},"e":null}x`, `{"a":{"b":[`} {
		f.Add([]byte(s))
	}
	fields := fieldsOf(f, "/a", "/a/b", "/a/c/1/d", "/e", "/0/a")
	f.Fuzz(func(t *testing.T, body []byte) {
		r := Request{Body: body}
		for i, v := range ReadFields(r, fields...) {
			alone := ReadFields(r, fields[i])[0]
			if alone.Text != v.Text || alone.Kind != v.Kind {
				t.Fatalf("%q: %s is %+v alone and %+v among others", body, fields[i], alone, v)
			}
			// A fault behind the first one goes unseen where nobody else looks further.
			if (alone.Err == nil) != (v.Err == nil) {
				t.Fatalf("%q: %s: %v alone, %v among others", body, fields[i], alone.Err, v.Err)
			}
		}
	})
}

func TestDepthAtTheBorder(t *testing.T) {
	for levels, taken := range map[int]bool{depthVerified: true, depthVerified + 1: false} {
		body := `{"x":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `,"a":1}`
		if v := ReadFields(Request{Body: []byte(body)}, fieldsOf(t, "/a")...)[0]; (v.Text == "1") != taken || errors.Is(v.Err, errTooDeep) == taken {
			t.Errorf("%d levels: %+v", levels, v)
		}
	}
}
