package verify

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// signableRecipes are all recipes of the vectors and the presets whose requests can
// be signed with a shared secret, and made from nothing.
func signableRecipes(t testing.TB) []Scheme {
	t.Helper()
	var all []Scheme
	seen := map[string]bool{}
	add := func(s Scheme) {
		if s.p.algo.family.shared() && (s.p.code == nil || s.p.signature.in == placeHeader) {
			all = append(all, s)
		}
	}
	for _, name := range Presets() {
		s, _ := Preset(name)
		add(s)
	}
	for _, file := range vectorFiles(t) {
		for _, v := range readVectors(t, file) {
			if text := string(v.Scheme); !seen[text] && !strings.Contains(text, `"code:`) {
				seen[text] = true
				add(compile(t, text))
			}
		}
	}
	return all
}

type signedRequest struct {
	v *Verifier
	r Request
}

func drawSigned(t *rapid.T, schemes []Scheme) signedRequest {
	s := rapid.SampledFrom(schemes).Draw(t, "scheme")
	spec := s.SecretSpec()
	spec.Encoding = "utf8"
	secret := "s" + rapid.StringMatching(`[!-~]{40,60}`).Draw(t, "secret") + "e"
	if s.p.algo.family == familyBasic {
		secret = "user:" + secret
	}
	k, err := NewKey("k1", []byte(secret), spec)
	if err != nil {
		t.Fatal(err)
	}
	set, err := NewKeySet(k)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "time"), 0)
	v := &Verifier{Scheme: s, Keys: set, URL: "https://hooks.example.com/in", Now: at(now)}
	r := Request{Method: "POST", URL: "/in?a=1", Header: http.Header{"Other": {"x"}}}
	r.Body = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body")
	for i := range s.p.parts {
		p := &s.p.parts[i]
		switch {
		case p.kind == partFormSorted:
			r.Body = []byte("a=" + rapid.StringMatching(`[a-z0-9]{1,20}`).Draw(t, "form"))
		case p.kind == partPlace && p.place.kind == placeHeader && (s.p.timestamp == nil || s.p.timestamp.from.slot != p.place.slot) &&
			(s.p.id == nil || s.p.id.template != nil || s.p.id.from[0].slot != p.place.slot):
			r.Header[p.place.name] = []string{rapid.StringMatching(`[!-~]{1,20}`).Draw(t, "nonce")}
		}
	}
	if s.p.id != nil {
		for _, p := range s.p.id.template {
			if p.kind == partPlace {
				r.Header[p.place.name] = []string{rapid.StringMatching(`[a-z/]{1,20}`).Draw(t, "part of the id")}
			}
		}
	}
	switch {
	case strings.HasPrefix(s.p.recipe.Algo, "code:twilio"), strings.HasPrefix(s.p.recipe.Algo, "code:plivo"):
		r.Body = []byte("a=" + rapid.StringMatching(`[a-z0-9]{1,20}`).Draw(t, "form"))
	case s.p.keyedAnswers:
		r.Body = append([]byte("{"), r.Body...) // a word alone may be a challenge, and is never signed
	}
	if s.p.timestamp != nil && s.p.timestamp.stage == stageLate {
		r.Body = fmt.Appendf(nil, `{"%s":%d,"x":"%x"}`, s.p.timestamp.from.name, now.UnixMilli(), r.Body)
	}
	if s.p.signature.in == placeJSON {
		r.Body = fmt.Appendf(nil, `{"value":[{"x":"%x"}],"signature":{"token":"nonce"}}`, r.Body)
	}
	signed, err := v.SignRequest(r, SignOptions{DeliveryID: rapid.StringMatching(`[A-Za-z0-9_-]{1,100}`).Draw(t, "id")})
	if err != nil {
		t.Fatalf("sign %s: %v", s.Recipe().Template, err)
	}
	return signedRequest{v, signed}
}

func TestSignThenVerifyAndNoByteMayChange(t *testing.T) {
	schemes := signableRecipes(t)
	if len(schemes) < 60 {
		t.Fatalf("only %d recipes", len(schemes))
	}
	rapid.Check(t, func(t *rapid.T) {
		s := drawSigned(t, schemes)
		if _, err := s.v.Verify(s.r); err != nil {
			t.Fatalf("signed, then refused: %v", err)
		}
		if err := s.v.CheckHeader(Request{Method: s.r.Method, URL: s.r.URL, Header: s.r.Header}); err != nil {
			t.Fatalf("verifies, but its headers do not: %v", err)
		}
		broken := func(what string, r Request) {
			if _, err := s.v.Verify(r); err == nil {
				t.Fatalf("%s changed, and it verifies", what)
			}
		}
		p := s.v.Scheme.p
		if p.bodySigned && len(s.r.Body) > 0 {
			r := s.r
			r.Body = slices.Clone(r.Body)
			r.Body[rapid.IntRange(0, len(r.Body)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			broken("body", r)
			r.Body = append(slices.Clone(s.r.Body), rapid.Byte().Draw(t, "more"))
			broken("end of the body", r)
			r.Body = s.r.Body[:len(s.r.Body)-1]
			broken("length of the body", r)
		}
		change := func(what, name string, f func(string) string) {
			r := s.r
			r.Header = r.Header.Clone()
			for k, lines := range r.Header {
				if strings.EqualFold(k, name) {
					changed := f(lines[0])
					if changed == lines[0] || p.signature.encoding == encHexAny && strings.EqualFold(changed, lines[0]) {
						return
					}
					r.Header[k] = []string{changed}
				}
			}
			broken(what, r)
		}
		one := func(v string) string {
			i := rapid.IntRange(0, len(v)-1).Draw(t, "char")
			return v[:i] + rapid.StringMatching(`[ -~]`).Draw(t, "to") + v[i+1:]
		}
		if p.signature.in == placeHeader {
			change("signature", p.signature.places[0].name, one)
		}
		for i := range p.parts {
			if q := &p.parts[i]; q.kind == partPlace && q.place.kind == placeHeader {
				change("signed header "+q.place.name, q.place.name, one)
			}
		}
		other, err := NewKey("k1", []byte("another secret of enough bytes: with a colon"), SecretSpec{})
		if err != nil {
			t.Fatal(err)
		}
		v := *s.v
		if v.Keys, err = NewKeySet(other); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(s.r); err == nil {
			t.Fatal("another key verifies it")
		}
	})
}

// The alphabets of timestamp and id make the signed text of the native schemes
// unambiguous: it can be taken apart again.
func TestSignedTextIsUnambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, name := range []string{"zhisou-v1", "delivery-timestamp", "timestamped-sha256"} {
			s, _ := Preset(name)
			id := rapid.StringMatching(`[A-Za-z0-9_-]{1,128}`).Draw(t, "id")
			stamp := rapid.StringMatching(`0|[1-9][0-9]{0,11}`).Draw(t, "timestamp")
			body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
			text := string(signedTextOf(t, s, stamp, id, body))
			parts := map[string][]string{
				"zhisou-v1": {"v1", stamp, id, string(body)}, "delivery-timestamp": {id, stamp, string(body)},
				"timestamped-sha256": {stamp, string(body)},
			}[name]
			if got := strings.SplitN(text, ".", len(parts)); !slices.Equal(got, parts) {
				t.Fatalf("%s: %q reads as %q", name, text, got)
			}
		}
	})
}

func signedTextOf(t interface{ Fatal(...any) }, s Scheme, stamp, id string, body []byte) []byte {
	c := check{v: &Verifier{Scheme: s}, p: s.p}
	r := Request{Body: body, Header: http.Header{}}
	for _, name := range s.Headers() {
		r.Header[name] = []string{"x"}
	}
	r.Header[s.p.timestamp.from.name] = []string{stamp}
	r.Header[s.p.id.from[0].name] = []string{id}
	c.r = r
	if err := c.headers(); err != nil {
		t.Fatal(err)
	}
	if err := c.resolve(); err != nil {
		t.Fatal(err)
	}
	return c.signedText()
}
