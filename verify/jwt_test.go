package verify

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	jwtBody = `{"event":{"id":"evt_1"}}`
	jwtURL  = "https://hooks.example.com/in"
)

// compactJWS is written here without the code under test.
func compactJWS(header, claims string, mac func() hash.Hash) string {
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(header)) + "." + enc.EncodeToString([]byte(claims))
	h := mac()
	h.Write([]byte(text))
	return text + "." + enc.EncodeToString(h.Sum(nil))
}

func hs256(header, claims string) string {
	return compactJWS(header, claims, func() hash.Hash { return hmac.New(sha256.New, []byte(testSecret)) })
}

func hexSHA256(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func base64SHA256(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// jwtVerifier has the clock t0 and, where none are given, the one shared key.
func jwtVerifier(t testing.TB, scheme string, keys ...Key) *Verifier {
	t.Helper()
	s := compile(t, scheme)
	if len(keys) == 0 {
		k, err := NewKey("", []byte(testSecret), s.SecretSpec())
		if err != nil {
			t.Fatal(err)
		}
		keys = []Key{k}
	}
	v := &Verifier{Scheme: s, Keys: testSet(t, keys...), URL: jwtURL, Now: at(t0)}
	if err := v.Check(); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *Verifier) judgeToken(header, token, body string) error {
	_, err := v.Verify(Request{Method: "POST", URL: "/in", Header: http.Header{header: {token}}, Body: []byte(body)})
	return err
}

const (
	fusionAuth = `{"algo":"code:fusionauth-jwt"}`
	bird       = `{"algo":"code:messagebird-jwt"}`
	monday     = `{"algo":"code:monday-jwt"}`
	plaid      = `{"algo":"code:plaid-jwt"}`

	fusionAuthHeader = "X-FusionAuth-Signature-JWT"
	birdHeader       = "MessageBird-Signature-JWT"
	plaidHeader      = "Plaid-Verification"
)

func fusionAuthClaims() string { return `{"request_body_sha256":"` + base64SHA256(jwtBody) + `"}` }

func TestReadJWT(t *testing.T) {
	v := jwtVerifier(t, fusionAuth)
	good := hs256(`{"alg":"HS256","typ":"JWT"}`, fusionAuthClaims())
	parts := strings.Split(good, ".")
	head, claims, sig := parts[0], parts[1], parts[2]
	header := func(h string) string { return hs256(h, fusionAuthClaims()) }
	deep := strings.Repeat("[", 100000) + strings.Repeat("]", 100000)
	for _, tt := range []struct {
		name, token string
		want        Reason
	}{
		{"as it should be", good, ""},
		{"a kid that nobody asked for", header(`{"alg":"HS256","kid":"other"}`), ""},
		{"alg none, no signature", noneToken(fusionAuthClaims()), ReasonAlgorithmRefused},
		{"alg none, right HMAC", header(`{"alg":"none"}`), ReasonAlgorithmRefused},
		{"alg nOnE", header(`{"alg":"nOnE"}`), ReasonAlgorithmRefused},
		{"alg in other case", header(`{"alg":"hs256"}`), ReasonAlgorithmRefused},
		{"another HMAC than the scheme's", compactJWS(`{"alg":"HS512"}`, fusionAuthClaims(), func() hash.Hash { return hmac.New(sha512.New, []byte(testSecret)) }), ReasonAlgorithmRefused},
		{"alg is no string", header(`{"alg":256}`), ReasonSignatureMalformed},
		{"no alg", header(`{"typ":"JWT"}`), ReasonSignatureMalformed},
		{"alg null", header(`{"alg":null}`), ReasonSignatureMalformed},
		{"alg twice", header(`{"alg":"HS256","alg":"HS256"}`), ReasonSignatureMalformed},
		{"alg twice, once escaped", header(`{"alg":"HS256","\u0061lg":"none"}`), ReasonSignatureMalformed},
		{"another name twice", header(`{"alg":"HS256","x":1,"x":1}`), ReasonSignatureMalformed},
		{"a name twice further down", header(`{"alg":"HS256","x":{"y":1,"y":1}}`), ReasonSignatureMalformed},
		{"kid is no string", header(`{"alg":"HS256","kid":1}`), ReasonSignatureMalformed},
		{"crit", header(`{"alg":"HS256","crit":["exp"],"exp":1}`), ReasonAlgorithmRefused},
		{"crit null", header(`{"alg":"HS256","crit":null}`), ReasonAlgorithmRefused},
		{"b64", header(`{"alg":"HS256","b64":false}`), ReasonAlgorithmRefused},
		{"header is no object", header(`["alg","HS256"]`), ReasonSignatureMalformed},
		{"text behind the header", header(`{"alg":"HS256"}{}`), ReasonSignatureMalformed},
		{"deep header", header(`{"alg":"HS256","x":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + `}`), ReasonSignatureMalformed},
		{"very deep header", header(`{"alg":"HS256","x":` + deep + `}`), ReasonSignatureMalformed},
		{"1 MiB, rightly signed", header(`{"alg":"HS256","x":"` + strings.Repeat("x", 1<<20) + `"}`), ReasonSignatureMalformed},
		{"1 MiB", good + strings.Repeat("A", 1<<20), ReasonSignatureMalformed},
		{"1 MiB of dots", strings.Repeat(".", 1<<20), ReasonSignatureMalformed},
		{"two parts", head + "." + claims, ReasonSignatureMalformed},
		{"four parts", good + ".", ReasonSignatureMalformed},
		{"five parts, an encrypted token", good + "." + sig + "." + sig, ReasonSignatureMalformed},
		{"Bearer in front", "Bearer " + good, ReasonSignatureMalformed},
		{"padding", head + "." + claims + "." + sig + "=", ReasonSignatureMalformed},
		{"a line break in base64", head + "." + claims[:4] + "\n" + claims[4:] + "." + sig, ReasonSignatureMalformed},
		{"standard alphabet", head + "." + claims + "." + "+/" + sig[2:], ReasonSignatureMalformed},
		{"last bits of the signature", head + "." + claims + "." + twinSpelling(sig), ReasonSignatureMalformed},
		{"last bits of the claims", head + "." + twinSpelling(claims) + "." + sig, ReasonSignatureMalformed},
		{"signature cut", head + "." + claims + "." + sig[:40], ReasonSignatureMalformed},
		{"no claims", head + ".." + sig, ReasonSignatureMalformed},
		{"one byte of the header", "f" + good[1:], ReasonSignatureMalformed},
		{"one byte of the claims", head + "." + claims[:30] + flip(claims[30:31]) + claims[31:] + "." + sig, ReasonSignatureMismatch},
		{"one byte of the signature", head + "." + claims + "." + flip(sig[:1]) + sig[1:], ReasonSignatureMismatch},
		{"claims twice", hs256(`{"alg":"HS256"}`, fusionAuthClaims()[:1]+`"a":1,"a":2,`+fusionAuthClaims()[1:]), ReasonClaimMismatch},
		{"claims are no object", hs256(`{"alg":"HS256"}`, `"x"`), ReasonClaimMismatch},
		{"claims are deep", hs256(`{"alg":"HS256"}`, `{"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+`}`), ReasonClaimMismatch},
		{"claim of another type", hs256(`{"alg":"HS256"}`, `{"request_body_sha256":1}`), ReasonClaimMismatch},
		{"claim is missing", hs256(`{"alg":"HS256"}`, `{}`), ReasonClaimMismatch},
		{"hash of another body", hs256(`{"alg":"HS256"}`, `{"request_body_sha256":"`+base64SHA256("x")+`"}`), ReasonSignatureMismatch},
		{"hash in hex", hs256(`{"alg":"HS256"}`, `{"request_body_sha256":"`+hexSHA256(jwtBody)+`"}`), ReasonSignatureMismatch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := reasonOf(v.judgeToken(fusionAuthHeader, tt.token, jwtBody)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func noneToken(claims string) string {
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." + enc.EncodeToString([]byte(claims)) + "."
}

// flip changes a character of the alphabet into another one.
func flip(s string) string {
	if s == "A" {
		return "B"
	}
	return "A"
}

// twinSpelling is another text that lax decoders read as the same bytes.
func twinSpelling(s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	i := strings.IndexByte(alphabet, s[len(s)-1])
	return s[:len(s)-1] + alphabet[i^1:i^1+1]
}

func ecdsaKey(t testing.TB, id string) (private, public Key) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	if private, err = NewKey(id, pemText("PRIVATE KEY", der), SecretSpec{Encoding: "pem"}); err != nil {
		t.Fatal(err)
	}
	if der, err = x509.MarshalPKIXPublicKey(&priv.PublicKey); err != nil {
		t.Fatal(err)
	}
	if public, err = NewKey(id, pemText("PUBLIC KEY", der), SecretSpec{Encoding: "pem"}); err != nil {
		t.Fatal(err)
	}
	return private, public
}

// kid selects among the pinned keys and does nothing else.
func TestKidSelectsAPinnedKey(t *testing.T) {
	private1, public1 := ecdsaKey(t, "k1")
	private2, public2 := ecdsaKey(t, "k2")
	expired := public2
	expired.NotAfter = t0
	r := Request{Method: "POST", URL: "/in", Header: http.Header{}, Body: []byte(jwtBody)}
	sign := func(k Key) string {
		t.Helper()
		h, err := jwtVerifier(t, plaid, k).Sign(r, SignOptions{Key: k})
		if err != nil {
			t.Fatal(err)
		}
		return h.Get(plaidHeader)
	}
	token1, token2 := sign(private1), sign(private2)
	claims := `{"iat":` + fmt.Sprint(t0.Unix()) + `,"request_body_sha256":"` + hexSHA256(jwtBody) + `"}`
	withKid := private1
	withKid.ID = "k2"
	for _, tt := range []struct {
		name, token string
		keys        []Key
		want        Reason
	}{
		{"the first of two", token1, []Key{public1, public2}, ""},
		{"the second of two", token2, []Key{public1, public2}, ""},
		{"a key without an id answers to every kid", token1, []Key{{Secret: public1.Secret}}, ""},
		{"kid of nobody", token2, []Key{public1}, ReasonKeyUnknown},
		{"kid of the other key", sign(withKid), []Key{public1, public2}, ReasonSignatureMismatch},
		{"kid of an expired key", token2, []Key{public1, expired}, ReasonKeyExpired},
		{"no kid", es256(t, `{"alg":"ES256"}`, claims, private1), []Key{public1}, ReasonKeyUnknown},
		{"a key that comes along", es256(t, `{"alg":"ES256","kid":"k3","jku":"https://evil.example/k","jwk":{"kty":"EC"}}`, claims, private2), []Key{public1}, ReasonKeyUnknown},
		{"signature in DER", derSpelling(token1), []Key{public1}, ReasonSignatureMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := jwtVerifier(t, plaid, tt.keys...).judgeToken(plaidHeader, tt.token, jwtBody)
			if got := reasonOf(err); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func es256(t testing.TB, header, claims string, k Key) string {
	t.Helper()
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(header)) + "." + enc.EncodeToString([]byte(claims))
	sig, err := k.Secret.data().public.signRS([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + enc.EncodeToString(sig)
}

// derSpelling has as many bytes as a signature in DER.
func derSpelling(token string) string {
	return token[:strings.LastIndexByte(token, '.')+1] + base64.RawURLEncoding.EncodeToString(make([]byte, 70))
}

// The public key's text, used as an HMAC secret, is what everybody knows.
func TestPublicKeyIsNoHMACSecret(t *testing.T) {
	private, public := ecdsaKey(t, "k1")
	der, err := x509.MarshalPKIXPublicKey(private.Secret.data().public.key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	claims := `{"iat":` + fmt.Sprint(t0.Unix()) + `,"request_body_sha256":"` + hexSHA256(jwtBody) + `"}`
	for _, secret := range [][]byte{text, text[:len(text)-1], der, nil} {
		for _, alg := range []string{"HS256", "ES256"} {
			token := compactJWS(`{"alg":"`+alg+`","kid":"k1"}`, claims, func() hash.Hash { return hmac.New(sha256.New, secret) })
			want := ReasonAlgorithmRefused
			if alg == "ES256" {
				want = ReasonSignatureMalformed // 32 bytes are no ES256 signature
			}
			if got := reasonOf(jwtVerifier(t, plaid, public).judgeToken(plaidHeader, token, jwtBody)); got != want {
				t.Errorf("%s: got %q, want %q", alg, got, want)
			}
		}
	}
	// Nor is a public key a secret where one got into the key set by mistake.
	v := &Verifier{Scheme: compile(t, fusionAuth), Keys: testSet(t, public), Now: at(t0)}
	token := compactJWS(`{"alg":"HS256"}`, fusionAuthClaims(), func() hash.Hash { return hmac.New(sha256.New, nil) })
	if got := reasonOf(v.judgeToken(fusionAuthHeader, token, jwtBody)); got != ReasonSignatureMismatch {
		t.Errorf("empty secret: got %q", got)
	}
}

// Both ends of each window, and one second beyond.
func TestJWTTimes(t *testing.T) {
	now := t0.Unix()
	birdClaims := func(nbf, exp string) string {
		return `{"iss":"MessageBird","jti":"j1",` + nbf + exp + `"url_hash":"` + hexSHA256(jwtURL) + `","payload_hash":"` + hexSHA256(jwtBody) + `"}`
	}
	nbf := func(d int64) string { return fmt.Sprintf(`"nbf":%d,`, now+d) }
	exp := func(d int64) string { return fmt.Sprintf(`"exp":%d,`, now+d) }
	mondayClaims := func(s string) string { return `{` + s + `"aud":"` + jwtURL + `"}` }
	for _, tt := range []struct {
		name, scheme, header, claims string
		tolerance                    time.Duration
		want                         Reason
	}{
		{"bird: now", bird, birdHeader, birdClaims(nbf(0), exp(60)), 0, ""},
		{"bird: nbf a second ahead", bird, birdHeader, birdClaims(nbf(1), exp(60)), 0, ""},
		{"bird: nbf two seconds ahead", bird, birdHeader, birdClaims(nbf(2), exp(60)), 0, ReasonTimestampOutOfWindow},
		{"bird: exp now", bird, birdHeader, birdClaims(nbf(-60), exp(0)), 0, ""},
		{"bird: exp a second ago", bird, birdHeader, birdClaims(nbf(-60), exp(-1)), 0, ReasonTimestampOutOfWindow},
		{"bird: nbf at the source's tolerance", bird, birdHeader, birdClaims(nbf(30), exp(60)), 30 * time.Second, ""},
		{"bird: nbf beyond it", bird, birdHeader, birdClaims(nbf(31), exp(60)), 30 * time.Second, ReasonTimestampOutOfWindow},
		{"bird: exp within it", bird, birdHeader, birdClaims(nbf(-90), exp(-29)), 30 * time.Second, ""},
		{"bird: exp at its end", bird, birdHeader, birdClaims(nbf(-90), exp(-30)), 30 * time.Second, ReasonTimestampOutOfWindow},
		{"bird: no nbf", bird, birdHeader, birdClaims("", exp(60)), 0, ReasonClaimMismatch},
		{"bird: no exp", bird, birdHeader, birdClaims(nbf(0), ""), 0, ReasonClaimMismatch},
		{"bird: exp a text", bird, birdHeader, birdClaims(nbf(0), `"exp":"9999999999",`), 0, ReasonTimestampMalformed},
		{"bird: exp with an exponent", bird, birdHeader, birdClaims(nbf(0), `"exp":1e12,`), 0, ReasonTimestampMalformed},
		{"bird: exp out of any range", bird, birdHeader, birdClaims(nbf(0), `"exp":9999999999999,`), 0, ReasonTimestampMalformed},
		{"bird: exp null", bird, birdHeader, birdClaims(nbf(0), `"exp":null,`), 0, ReasonTimestampMalformed},
		{"bird: exp negative", bird, birdHeader, birdClaims(nbf(0), `"exp":-1,`), 0, ReasonTimestampMalformed},
		{"monday: a second before exp", monday, "Authorization", mondayClaims(exp(1)), 0, ""},
		{"monday: exp now", monday, "Authorization", mondayClaims(exp(0)), 0, ReasonTimestampOutOfWindow},
		{"monday: no exp", monday, "Authorization", mondayClaims(""), 0, ReasonClaimMismatch},
		{"monday: nbf ahead, though none is demanded", monday, "Authorization", mondayClaims(nbf(1) + exp(9)), 0, ReasonTimestampOutOfWindow},
		{"fusionauth: exp is honoured", fusionAuth, fusionAuthHeader, `{` + exp(0) + fusionAuthClaims()[1:], 0, ReasonTimestampOutOfWindow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := jwtVerifier(t, tt.scheme)
			v.Tolerance = tt.tolerance
			if got := reasonOf(v.judgeToken(tt.header, hs256(`{"alg":"HS256"}`, tt.claims), jwtBody)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// iat of Plaid: 300 seconds both ways, ends included.
func TestPlaidTime(t *testing.T) {
	private, public := ecdsaKey(t, "k1")
	for d, want := range map[int64]Reason{
		-301: ReasonTimestampOutOfWindow, -300: "", 0: "", 300: "", 301: ReasonTimestampOutOfWindow,
	} {
		claims := fmt.Sprintf(`{"iat":%d,"request_body_sha256":"%s"}`, t0.Unix()+d, hexSHA256(jwtBody))
		token := es256(t, `{"alg":"ES256","kid":"k1"}`, claims, private)
		if got := reasonOf(jwtVerifier(t, plaid, public).judgeToken(plaidHeader, token, jwtBody)); got != want {
			t.Errorf("iat %d s from now: got %q, want %q", d, got, want)
		}
	}
	token := es256(t, `{"alg":"ES256","kid":"k1"}`, `{"request_body_sha256":"`+hexSHA256(jwtBody)+`"}`, private)
	if got := reasonOf(jwtVerifier(t, plaid, public).judgeToken(plaidHeader, token, jwtBody)); got != ReasonClaimMismatch {
		t.Errorf("no iat: got %q", got)
	}
}

func TestBirdAndMondayClaims(t *testing.T) {
	now := t0.Unix()
	claims := func(iss, jti, url, hash string) string {
		return fmt.Sprintf(`{"iss":%q,"nbf":%d,"exp":%d,"jti":%q,"url_hash":%q%s}`, iss, now, now+60, jti, hexSHA256(url), hash)
	}
	payload := func(s string) string { return `,"payload_hash":"` + hexSHA256(s) + `"` }
	for _, tt := range []struct {
		name, claims, body string
		want               Reason
	}{
		{"as it should be", claims("MessageBird", "j1", jwtURL, payload(jwtBody)), jwtBody, ""},
		{"no body, no hash", claims("MessageBird", "j1", jwtURL, ""), "", ""},
		{"no body, hash of nothing", claims("MessageBird", "j1", jwtURL, payload("")), "", ReasonClaimMismatch},
		{"body without a hash", claims("MessageBird", "j1", jwtURL, ""), jwtBody, ReasonClaimMismatch},
		{"another body", claims("MessageBird", "j1", jwtURL, payload("x")), jwtBody, ReasonSignatureMismatch},
		{"another URL", claims("MessageBird", "j1", jwtURL+"?a=1", payload(jwtBody)), jwtBody, ReasonSignatureMismatch},
		{"another issuer", claims("Bird", "j1", jwtURL, payload(jwtBody)), jwtBody, ReasonClaimMismatch},
		{"no jti", claims("MessageBird", "", jwtURL, payload(jwtBody)), jwtBody, ReasonClaimMismatch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := jwtVerifier(t, bird)
			if got := reasonOf(v.judgeToken(birdHeader, hs256(`{"alg":"HS256"}`, tt.claims), tt.body)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for aud, want := range map[string]Reason{
		jwtURL: "", jwtURL + "/": ReasonClaimMismatch, "http" + jwtURL[5:]: ReasonClaimMismatch, "": ReasonClaimMismatch,
	} {
		token := hs256(`{"alg":"HS256"}`, fmt.Sprintf(`{"aud":%q,"exp":%d}`, aud, now+1))
		if got := reasonOf(jwtVerifier(t, monday).judgeToken("Authorization", token, jwtBody)); got != want {
			t.Errorf("aud %q: got %q, want %q", aud, got, want)
		}
	}
}

// Two secrets at once, as during a rotation, and one that is past.
func TestJWTRotation(t *testing.T) {
	k := func(id, secret string, before, after time.Time) Key {
		k, err := NewKey(id, []byte(secret), SecretSpec{})
		if err != nil {
			t.Fatal(err)
		}
		k.NotBefore, k.NotAfter = before, after
		return k
	}
	old := k("old", testSecret, time.Time{}, t0.Add(time.Hour))
	next := k("next", strings.Repeat("n", 32), t0.Add(-time.Hour), time.Time{})
	past := k("past", testSecret, time.Time{}, t0)
	coming := k("coming", testSecret, t0.Add(time.Second), time.Time{})
	token := hs256(`{"alg":"HS256","kid":"next"}`, fusionAuthClaims())
	r := Request{Method: "POST", Header: http.Header{fusionAuthHeader: {token}}, Body: []byte(jwtBody)}
	env, err := jwtVerifier(t, fusionAuth, old, next).Verify(r)
	if err != nil || env.KeyID != "old" || !env.Retiring {
		t.Errorf("two keys: %+v, %v", env, err)
	}
	for _, tt := range []struct {
		keys []Key
		want Reason
		id   string
	}{
		{[]Key{past, next}, ReasonKeyExpired, "past"},
		{[]Key{coming, next}, ReasonKeyNotYetValid, "coming"},
		{[]Key{next}, ReasonSignatureMismatch, ""},
	} {
		_, err := jwtVerifier(t, fusionAuth, tt.keys...).Verify(r)
		if e, ok := err.(*Error); !ok || e.Reason != tt.want || e.KeyID != tt.id || e.MACValid != (tt.id != "") {
			t.Errorf("want %s of %q, got %+v", tt.want, tt.id, err)
		}
	}
}

// What Sign makes verifies, and says what it was made of.
func TestSignJWT(t *testing.T) {
	private, _ := ecdsaKey(t, "k1")
	for _, tt := range []struct {
		scheme, id string
		keys       []Key
		stamped    bool
	}{
		{plaid, "", []Key{private}, true}, {fusionAuth, "", nil, false}, {bird, "evt-1", nil, true}, {monday, "", nil, true},
	} {
		v := jwtVerifier(t, tt.scheme, tt.keys...)
		r := Request{Method: "POST", URL: "/in?a=1&b=2", Header: http.Header{"X-Other": {"1"}}, Body: []byte(jwtBody)}
		h, err := v.Sign(r, SignOptions{DeliveryID: "evt-1"})
		if err != nil || len(h) != 1 {
			t.Fatalf("%s: %v, %v", tt.scheme, h, err)
		}
		r.Header = join(r.Header, h)
		env, err := v.Verify(r)
		if err != nil || env.DeliveryID != tt.id || env.IDSigned != (tt.id != "") || env.Time.Equal(t0) != tt.stamped {
			t.Errorf("%s: %+v, %v", tt.scheme, env, err)
		}
		if _, err := v.Sign(r, SignOptions{DeliveryID: "evt-1"}); err == nil {
			t.Errorf("%s: a signed request was signed again", tt.scheme)
		}
		r.URL = "/in?a=1&b=3"
		if _, err := v.Verify(r); (err != nil) != v.Scheme.NeedsURL() {
			t.Errorf("%s: another query: %v", tt.scheme, err)
		}
	}
	if _, err := jwtVerifier(t, bird).Sign(Request{Method: "POST", Header: http.Header{}}, SignOptions{}); err == nil {
		t.Error("bird: signed without a delivery id")
	}
}

// What a scheme says of itself follows from its claims.
func TestJWTSchemes(t *testing.T) {
	for scheme, want := range map[string][5]bool{ // body, URL, key id, timestamp, delivery id
		plaid: {true, false, true, true, false}, fusionAuth: {true, false, false, false, false},
		bird: {true, true, false, true, true}, monday: {false, true, false, true, false},
	} {
		s := compile(t, scheme)
		if got := [5]bool{s.BodySigned(), s.NeedsURL(), s.UsesKeyID(), s.HasTimestamp(), s.HasDeliveryID() && s.IDSigned()}; got != want {
			t.Errorf("%s: got %v, want %v", scheme, got, want)
		}
	}
}

func FuzzJWT(f *testing.F) {
	f.Add(hs256(`{"alg":"HS256"}`, fusionAuthClaims()))
	f.Add(noneToken(fusionAuthClaims()))
	for _, file := range []string{"plaid.json", "bird-jwt.json", "monday.json", "fusionauth.json"} {
		for _, v := range readVectors(f, file) {
			for _, lines := range v.Headers {
				f.Add(lines[0])
			}
		}
	}
	other, err := NewKey("", []byte(strings.Repeat("x", 32)), SecretSpec{})
	if err != nil {
		f.Fatal(err)
	}
	_, public := ecdsaKey(f, "test-key-ecc-p256")
	f.Fuzz(func(t *testing.T, token string) {
		for _, tt := range []struct {
			scheme, header string
			key            Key
		}{
			{plaid, plaidHeader, public}, {fusionAuth, fusionAuthHeader, other}, {bird, birdHeader, other}, {monday, "Authorization", other},
		} {
			if err := jwtVerifier(t, tt.scheme, tt.key).judgeToken(tt.header, token, jwtBody); err == nil {
				t.Errorf("%s: valid without the key: %q", tt.scheme, token)
			}
		}
	})
}
