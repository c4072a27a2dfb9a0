package verify

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// headerOf reads lines of "Name: value" into a map as they stand, without making
// the names canonical.
func headerOf(text string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			h[name] = append(h[name], value)
		}
	}
	return h
}

func textOf(h http.Header) string {
	var b strings.Builder
	for k, lines := range h {
		for _, v := range lines {
			b.WriteString(k + ": " + v + "\n")
		}
	}
	return b.String()
}

// FuzzVerify: whatever comes under any preset, no panic, and nothing verifies that the
// holder of the key did not sign.
func FuzzVerify(f *testing.F) {
	goods := goodRequests(f)
	signed := map[string]bool{} // scheme and body
	for i, g := range goods {
		f.Add(i, g.r.URL, textOf(g.r.Header), g.r.Body)
		signed[g.v.Scheme.Name()+" "+string(g.r.Body)] = true
	}
	for i := range goods {
		f.Add(i, "/in?%zz&&=;", "X-Webhook-Id: a\nX_Webhook_Id: b\nx-webhook-id: c", []byte("x"))
		f.Add(i, "", "Stripe-Signature: t=1,v1=,v1,=,t=2,,", []byte(`{`))
	}
	for name, fx := range caseFixtures(f) {
		if fx.Repeat == nil {
			f.Add(len(name), fx.Path, textOf(fx.Headers), []byte(fx.BodyHex))
		}
	}
	stranger := Key{Secret: newSecret(&secretData{raw: []byte("public|nobody ever signed anything with this key, which is long")})}
	none := testSet(f, stranger)
	f.Fuzz(func(t *testing.T, i int, url, headers string, body []byte) {
		g := goods[uint(i)%uint(len(goods))]
		r := Request{Method: g.r.Method, URL: url, Header: headerOf(headers), Body: body}
		early := g.v.CheckHeader(Request{Method: r.Method, URL: r.URL, Header: r.Header})
		env, err := g.v.Verify(r)
		if err == nil && early != nil {
			t.Fatalf("verifies, but its headers do not: %v", early)
		}
		if err != nil && reasonOf(err) == "" {
			t.Fatalf("an error of another type: %v", err)
		}
		if err == nil && g.v.Scheme.BodySigned() && !signed[g.v.Scheme.Name()+" "+string(body)] {
			t.Fatalf("accepted a body that nobody signed: %+v", env)
		}
		if err == nil && g.v.Scheme.IDSigned() && !env.IDSigned {
			t.Fatalf("the id is signed, but not this one: %+v", env)
		}
		if again, errAgain := g.v.Verify(r); again != env || !reflect.DeepEqual(err, errAgain) {
			t.Fatalf("%+v %v, then %+v %v", env, err, again, errAgain)
		}
		if g.v.Scheme.p.algo.family.shared() {
			v := *g.v
			v.Keys = none
			if _, err := v.Verify(r); err == nil {
				t.Fatal("accepted under a key that signed nothing")
			}
		}
	})
}

// FuzzSigningInput: two requests of a native scheme never have one signed text.
func FuzzSigningInput(f *testing.F) {
	f.Add("1760000000", "dlv", []byte("X.{}"), "1760000000", "dlv.X", []byte("{}"))
	f.Add("1", "1", []byte("1"), "1", "1", []byte(".1"))
	f.Add("0", "a", []byte{}, "0", "a", []byte(nil))
	f.Fuzz(func(t *testing.T, t1, id1 string, b1 []byte, t2, id2 string, b2 []byte) {
		for _, name := range []string{"zhisou-v1", "delivery-timestamp", "timestamped-sha256"} {
			s, _ := Preset(name)
			if !s.IDSigned() {
				id1, id2 = "dlv", "dlv"
			}
			for _, in := range [][2]string{{t1, id1}, {t2, id2}} {
				if _, ok := unixSeconds.parse(in[0]); !ok || !s.p.id.valid(in[1]) {
					return
				}
			}
			same := t1 == t2 && id1 == id2 && string(b1) == string(b2)
			a, b := signedTextOf(t, s, t1, id1, b1), signedTextOf(t, s, t2, id2, b2)
			if (string(a) == string(b)) != same {
				t.Fatalf("%s: %q for two requests", name, a)
			}
		}
	})
}

// FuzzHeaders: the one walk over the map agrees with a look for each name.
func FuzzHeaders(f *testing.F) {
	for _, fx := range caseFixtures(f) {
		f.Add(textOf(fx.Headers))
	}
	f.Add("X-Webhook-Id: \nx-webhook-id: a")
	f.Add("X_Webhook_Signature: a\nX-Webhook-Timestamp: b\nX-Webhook-Timestamp: ")
	s, _ := Preset("zhisou-v1")
	f.Fuzz(func(t *testing.T, text string) {
		r := Request{Header: headerOf(text)}
		c := check{v: &Verifier{Scheme: s}, p: s.p, r: r}
		err := c.headers()
		twice := false
		for i, name := range s.Headers() {
			value, ok, lookErr := headerValue(r.Header, name)
			twice = twice || lookErr != nil
			if err == nil && (value != c.header(i) || ok != (c.header(i) != "")) {
				t.Fatalf("%s: %q and %q", name, value, c.header(i))
			}
		}
		if twice != (err != nil) {
			t.Fatalf("%q: %v, looked up: %v", text, err, twice)
		}
	})
}

// FuzzRecipe: a recipe that compiles is printed and read back equal, and a request
// under it makes no panic.
func FuzzRecipe(f *testing.F) {
	f.Add([]byte(goodRecipe))
	for _, name := range Presets() {
		s, _ := Preset(name)
		text, err := json.Marshal(s.Recipe())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add([]byte(`{"preset":"` + name + `","timestamp":{"tolerance_s":null}}`))
	}
	for _, text := range []string{
		`{"algo":"basic"}`, `{"algo":"token","signature":{"in":"query","name":"k"}}`,
		`{"algo":"hash-sha256","signature":{"name":"S"},"template":"{secret}{json:/a/0}{form:b}{query:c}{form_sorted}"}`,
		`{"algo":"ed25519","signature":{"names":["A","B"],"encoding":"base64"},"template":"{url}{host}{path}{path_query}{query_raw}{method}"}`,
		`{"algo":"hmac-sha1","signature":{"name":"S","multi_value":true},"template":"{param:p}{body_crc32_dec}{body_sha256_raw}","params":["p"],"id":{"from":["json:a","header:B"]}}`,
	} {
		f.Add([]byte(text))
	}
	k, err := NewKey("k1", []byte(testSecret), SecretSpec{})
	if err != nil {
		f.Fatal(err)
	}
	set := testSet(f, k)
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseRecipe(text)
		if err != nil {
			return
		}
		s, err := r.Compile()
		if err != nil {
			return
		}
		printed, err := json.Marshal(s.Recipe())
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseRecipe(printed)
		if err != nil {
			t.Fatalf("%s does not read back: %v", printed, err)
		}
		again, err := back.Compile()
		if err != nil {
			t.Fatalf("%s does not compile again: %v", printed, err)
		}
		if reprinted, _ := json.Marshal(again.Recipe()); string(reprinted) != string(printed) || !reflect.DeepEqual(again.Headers(), s.Headers()) {
			t.Fatalf("%s is printed as %s", printed, reprinted)
		}
		h := http.Header{}
		for _, name := range s.Headers() {
			h[name] = []string{"1"}
		}
		v := Verifier{Scheme: s, Keys: set, URL: "https://h/in?x=1", Params: map[string]string{"p": "1"}, Now: at(t0)}
		v.Verify(Request{Method: "POST", URL: "/in?c=1", Header: h, Body: []byte(`{"a":[1]}`)})
		v.Sign(Request{Method: "POST", URL: "/in?c=1", Body: []byte("a=1&b=2")}, SignOptions{DeliveryID: "d"})
		_ = v.Check()
		_ = s.Warnings()
	})
}
