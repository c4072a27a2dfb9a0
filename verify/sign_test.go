package verify

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each signature equals one that other code made, for every shared secret.
func TestSignMakesTheVectors(t *testing.T) {
	unmade := map[string]string{
		"box":     "writes its time in another zone",
		"mailgun": "has a test of its own, for the body",
	}
	for _, name := range Presets() {
		preset, _ := Preset(name)
		if p := preset.p; slices.Contains(noVectors, name) || !p.algo.family.shared() || p.code != nil || unmade[name] != "" {
			continue
		}
		made := 0
		for _, v := range readVectors(t, name+".json") {
			if v.Expect != "valid" || len(v.ExtraSecrets) > 0 || strings.HasPrefix(v.Class, "unsigned") || v.Class == "edge" || v.Name == "docusign/second-key" {
				continue
			}
			made += v.signAgain(t)
		}
		if made == 0 {
			t.Errorf("%s: nothing was signed", name)
		}
	}
}

// signAgain is 1 if Sign makes the signature that the vector has.
func (v *vector) signAgain(t *testing.T) int {
	t.Helper()
	s := compile(t, string(v.Scheme))
	ver, err := v.verifier(s)
	if err != nil {
		t.Fatal(err)
	}
	env, err := ver.Verify(v.request(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.p.timestamp != nil && s.p.timestamp.format.format(env.Time) != env.Timestamp {
		return 0 // the sender writes time in another way
	}
	req := v.request(t)
	req.Header = http.Header{}
	var lines []string
	for k, values := range v.Headers {
		i := index(lowered(s.Headers()), strings.ToLower(k))
		switch {
		case i >= 0 && i < len(s.p.signature.places):
			lines = append(lines, values...)
		case i < 0 || !s.p.makes(&place{slot: i}):
			req.Header[k] = values // what only the sender knows
		}
	}
	h, err := ver.Sign(req, SignOptions{DeliveryID: env.DeliveryID, Time: timeOr(env.Time, t0)})
	if err != nil {
		t.Errorf("%s: %v", v.Name, err)
		return 0
	}
	plain := func(text string) string {
		text = strings.TrimPrefix(text, s.p.signature.prefix)
		if s.p.signature.encoding == encHexAny {
			text = strings.ToLower(text)
		}
		return text
	}
	sign, _, _ := headerValue(h, s.Headers()[0])
	want := strings.Join(lines, ",")
	if !strings.Contains(plain(want), plain(sign)) && len(strings.FieldsFunc(want, func(r rune) bool { return r == ',' || r == ' ' })) == 1 {
		t.Errorf("%s: %s, want %s", v.Name, sign, want)
		return 0
	}
	return 1
}

func timeOr(t, other time.Time) time.Time {
	if t.IsZero() {
		return other
	}
	return t
}

func lowered(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, strings.ToLower(s))
	}
	return out
}

func TestSignRefusesWhatVerifyWould(t *testing.T) {
	zhisou, _ := Preset("zhisou-v1")
	good := testKey(t, "k1", 0, 0)
	v := Verifier{Scheme: zhisou, Keys: testSet(t, good), Now: at(t0)}
	short, _ := NewKey("k1", []byte("short"), SecretSpec{})
	base := Request{Method: "POST", Header: http.Header{"Content-Type": {"text/plain"}}}
	with := func(k, value string) Request {
		r := base
		r.Header = http.Header{k: {value}}
		return r
	}
	for _, c := range []struct {
		defect string
		v      Verifier
		r      Request
		o      SignOptions
		want   error
	}{
		{"no delivery id", v, base, SignOptions{}, nil},
		{"an id with a dot", v, base, SignOptions{DeliveryID: "a.b"}, ErrMalformed},
		{"an id of 129 characters", v, base, SignOptions{DeliveryID: strings.Repeat("a", 129)}, ErrMalformed},
		{"a signature that is there", v, with("x-webhook-signature", "0"), SignOptions{DeliveryID: "a"}, ErrMalformed},
		{"a timestamp that is there", v, with("X-Webhook-Timestamp", "0"), SignOptions{DeliveryID: "a"}, ErrMalformed},
		{"an underscore twin", v, with("X_Webhook_Timestamp", "0"), SignOptions{DeliveryID: "a"}, ErrMalformed},
		{"a time before 1970", v, base, SignOptions{DeliveryID: "a", Time: time.Unix(-1, 0)}, ErrMalformed},
		{"a body over the cap", Verifier{Scheme: zhisou, Keys: v.Keys, MaxBody: 3}, Request{Method: "POST", Body: []byte("1234")}, SignOptions{DeliveryID: "a"}, ErrMalformed},
		{"a short key", v, base, SignOptions{DeliveryID: "a", Key: short}, ErrKeyUnusable},
		{"an expired key", v, base, SignOptions{DeliveryID: "a", Key: testKey(t, "k1", 0, -1)}, ErrSignature},
		{"a key without id", v, base, SignOptions{DeliveryID: "a", Key: testKey(t, "", 0, 0)}, nil},
		{"no active key", Verifier{Scheme: zhisou, Keys: testSet(t, testKey(t, "k1", 0, -1)), Now: at(t0)}, base, SignOptions{DeliveryID: "a"}, nil},
		{"no keys", Verifier{Scheme: zhisou}, base, SignOptions{DeliveryID: "a"}, nil},
		{"no scheme", Verifier{Keys: v.Keys}, base, SignOptions{DeliveryID: "a"}, ErrSignature},
		{"a signature in the body", Verifier{Scheme: compile(t, `{"algo":"hmac-sha256","signature":{"in":"json","name":"sig"},"template":"{json:t}"}`), Keys: v.Keys},
			base, SignOptions{}, ErrNoSigner},
		{"a nonce in the signature", Verifier{Scheme: compile(t, `{"algo":"hmac-sha256","signature":{"name":"S","kv_sep":"=","list_sep":",","tags":["v1"]},"template":"{sig:n}{body}"}`), Keys: v.Keys},
			base, SignOptions{}, ErrNoSigner},
		{"no public URL", Verifier{Scheme: compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{url}{body}"}`), Keys: v.Keys},
			base, SignOptions{}, ErrSignature},
		{"a header that only the sender knows", Verifier{Scheme: compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{header:Nonce}{body}"}`), Keys: v.Keys},
			base, SignOptions{}, ErrMalformed},
		{"a required header of another value", Verifier{Scheme: compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{body}","require":[{"header":"V","equals":"1"}]}`), Keys: v.Keys},
			with("V", "2"), SignOptions{}, ErrSignature},
	} {
		h, err := c.v.Sign(c.r, c.o)
		if err == nil || h != nil {
			t.Errorf("%s: signed %v", c.defect, h)
		} else if c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.defect, err, c.want)
		}
	}
	h, err := v.Sign(base, SignOptions{DeliveryID: "a"})
	if err != nil || len(h) != 4 || len(base.Header) != 1 {
		t.Errorf("%v, %v, request %v", h, err, base.Header)
	}
}

// The newest active key signs.
func TestSignChoosesTheNewestKey(t *testing.T) {
	zhisou, _ := Preset("zhisou-v1")
	v := Verifier{Scheme: zhisou, Now: at(t0), Keys: testSet(t, testKey(t, "old", 0, 100), testKey(t, "new", -10, 0), testKey(t, "next", 10, 0))}
	h, err := v.Sign(Request{}, SignOptions{DeliveryID: "a"})
	if err != nil || h.Get("X-Webhook-Key-Id") != "new" {
		t.Errorf("%v, %v", h, err)
	}
}

func TestSignWithRequiredHeadersAndRenames(t *testing.T) {
	s := compile(t, `{"algo":"hmac-sha256","signature":{"names":["S","S-2"],"encoding":"base64"},"template":"{body}{header:T}",
		"timestamp":{"from":"header:T","format":"rfc3339"},"require":[{"header":"V","equals":"1"}]}`)
	v := Verifier{Scheme: s, Keys: oneKey(t), Now: at(t0)}
	h, err := v.Sign(Request{}, SignOptions{})
	if err != nil || h.Get("V") != "1" || h.Get("T") != "2025-10-09T08:53:20Z" || h.Get("S") == "" {
		t.Errorf("%v, %v", h, err)
	}
}

func TestSignWithPrivateKeys(t *testing.T) {
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for algo, private := range map[string]any{"ed25519": ed, "ecdsa-p256-sha256": ec, "rsa-pkcs1-sha256": rs, "rsa-pkcs1-sha1": rs} {
		s := compile(t, `{"algo":"`+algo+`","signature":{"name":"S","encoding":"base64"},"template":"{header:T}.{body}","timestamp":{"from":"header:T"}}`)
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		k, err := NewKey("k1", pemText("PRIVATE KEY", der), s.SecretSpec())
		if err != nil {
			t.Fatal(err)
		}
		v := Verifier{Scheme: s, Keys: testSet(t, k), Now: at(t0)}
		r := Request{Body: []byte("x")}
		if r.Header, err = v.Sign(r, SignOptions{}); err != nil {
			t.Errorf("%s: %v", algo, err)
			continue
		}
		pub, err := x509.MarshalPKIXPublicKey(k.Secret.data().public.key)
		if err != nil {
			t.Fatal(err)
		}
		public, err := NewKey("k1", pemText("PUBLIC KEY", pub), s.SecretSpec())
		if err != nil {
			t.Fatal(err)
		}
		v.Keys = testSet(t, public)
		if _, err := v.Verify(r); err != nil {
			t.Errorf("%s: %v", algo, err)
		}
		r.Body = []byte("y")
		if _, err := v.Verify(r); reasonOf(err) != ReasonSignatureMismatch {
			t.Errorf("%s over another body: %v", algo, err)
		}
		if _, err := v.Sign(Request{}, SignOptions{}); !errors.Is(err, ErrNoSigner) {
			t.Errorf("%s with a public key: %v", algo, err)
		}
		// A key of another kind never verifies anything.
		other := compile(t, `{"algo":"ed25519","signature":{"name":"S","encoding":"base64"},"template":"{body}"}`)
		if algo != "ed25519" {
			if err := (&Verifier{Scheme: other, Keys: v.Keys}).Check(); !errors.Is(err, ErrKeyUnusable) {
				t.Errorf("%s under ed25519: %v", algo, err)
			}
		}
	}
}
