package verify

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The keys of RFC 9421, appendix B.1.
const (
	rfcRSAPSS = `-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAr4tmm3r20Wd/PbqvP1s2
+QEtvpuRaV8Yq40gjUR8y2Rjxa6dpG2GXHbPfvMs8ct+Lh1GH45x28Rw3Ry53mm+
oAXjyQ86OnDkZ5N8lYbggD4O3w6M6pAvLkhk95AndTrifbIFPNU8PPMO7OyrFAHq
gDsznjPFmTOtCEcN2Z1FpWgchwuYLPL+Wokqltd11nqqzi+bJ9cvSKADYdUAAN5W
Utzdpiy6LbTgSxP7ociU4Tn0g5I6aDZJ7A8Lzo0KSyZYoA485mqcO0GVAdVw9lq4
aOT9v6d+nb4bnNkQVklLQ3fVAvJm+xdDOp9LCNCN48V2pnDOkFV6+U9nV5oyc6XI
2wIDAQAB
-----END PUBLIC KEY-----`
	rfcP256 = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqIVYZVLCrPZHGHjP17CTW0/+D9Lf
w0EkjqF7xB4FivAxzic30tMM4GF+hR6Dxh71Z50VGGdldkkDXZCnTNnoXQ==
-----END PUBLIC KEY-----`
	rfcEd25519 = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=
-----END PUBLIC KEY-----`
)

// The examples of RFC 9421, appendix B, that are requests; B.2.5 is a vector.
func TestMessageSignatureExamples(t *testing.T) {
	test := http.Header{
		"Date": {"Tue, 20 Apr 2021 02:07:55 GMT"}, "Content-Type": {"application/json"}, "Content-Length": {"18"},
		"Content-Digest": {"sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"},
	}
	accept := func(lines ...string) http.Header { return http.Header{"Accept": lines} }
	const (
		b21   = `sig-b21=();created=1618884473;keyid="test-key-rsa-pss";nonce="b3k2pp5k7z-50gnwp.yemd"`
		b22   = `sig-b22=("@authority" "content-digest" "@query-param";name="Pet");created=1618884473;keyid="test-key-rsa-pss";tag="header-example"`
		b23   = `sig-b23=("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-rsa-pss"`
		b26   = `sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`
		b3    = `ttrp=("@path" "@query" "@method" "@authority" "client-cert");created=1618884473;keyid="test-key-ecc-p256"`
		b4    = `transform=("@method" "@path" "@authority" "accept");created=1618884473;keyid="test-key-ed25519"`
		b4Sig = `transform=:ZT1kooQsEHpZ0I1IjCqtQppOmIqlJPeo7DHR3SoMn0s5JZ1eRGS0A+vyYP9t/LXlh5QMFFQ6cpLt2m0pmj3NDA==:`
		b4URL = "https://example.org/demo?name1=Value1&Name2=value2"
		url   = "https://example.com/foo?param=Value&Pet=dog"
		cert  = `:MIIBqDCCAU6gAwIBAgIBBzAKBggqhkjOPQQDAjA6MRswGQYDVQQKDBJMZXQncyBBdXRoZW50aWNhdGUxGzAZBgNVBAMMEkxBIEludGVybWVkaWF0ZSBDQTAeFw0yMDAxMTQyMjU1MzNaFw0yMTAxMjMyMjU1MzNaMA0xCzAJBgNVBAMMAkJDMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8YnXXfaUgmnMtOXU/IncWalRhebrXmckC8vdgJ1p5Be5F/3YC8OthxM4+k1M6aEAEFcGzkJiNy6J84y7uzo9M6NyMHAwCQYDVR0TBAIwADAfBgNVHSMEGDAWgBRm3WjLa38lbEYCuiCPct0ZaSED2DAOBgNVHQ8BAf8EBAMCBsAwEwYDVR0lBAwwCgYIKwYBBQUHAwIwHQYDVR0RAQH/BBMwEYEPYmRjQGV4YW1wbGUuY29tMAoGCCqGSM49BAMCA0gAMEUCIBHda/r1vaL6G3VliL4/Di6YK0Q6bMjeSkC3dFCOOB8TAiEAx/kHSB4urmiZ0NX5r5XarmPk0wmuydBVoU4hBVZ1yhk=:`
	)
	for _, tt := range []struct {
		name, alg, key, method, url string
		header                      http.Header
		input, signature            string
		want                        Reason
	}{
		{"B.2.1", "rsa-pss-sha512", rfcRSAPSS, "POST", url, test, b21, `sig-b21=:d2pmTvmbncD3xQm8E9ZV2828BjQWGgiwAaw5bAkgibUopemLJcWDy/lkbbHAve4cRAtx31Iq786U7it++wgGxbtRxf8Udx7zFZsckzXaJMkA7ChG52eSkFxykJeNqsrWH5S+oxNFlD4dzVuwe8DhTSja8xxbR/Z2cOGdCbzR72rgFWhzx2VjBqJzsPLMIQKhO4DGezXehhWwE56YCE+O6c0mKZsfxVrogUvA4HELjVKWmAvtl6UnCh8jYzuVG5WSb/QEVPnP5TmcAnLH1g+s++v6d4s8m0gCw1fV5/SITLq9mhho8K3+7EPYTU8IU1bLhdxO5Nyt8C8ssinQ98Xw9Q==:`, ""},
		{"B.2.2", "rsa-pss-sha512", rfcRSAPSS, "POST", url, test, b22, `sig-b22=:LjbtqUbfmvjj5C5kr1Ugj4PmLYvx9wVjZvD9GsTT4F7GrcQEdJzgI9qHxICagShLRiLMlAJjtq6N4CDfKtjvuJyE5qH7KT8UCMkSowOB4+ECxCmT8rtAmj/0PIXxi0A0nxKyB09RNrCQibbUjsLS/2YyFYXEu4TRJQzRw1rLEuEfY17SARYhpTlaqwZVtR8NV7+4UKkjqpcAoFqWFQh62s7Cl+H2fjBSpqfZUJcsIk4N6wiKYd4je2U/lankenQ99PZfB4jY3I5rSV2DSBVkSFsURIjYErOs0tFTQosMTAoxk//0RoKUqiYY8Bh0aaUEb0rQl3/XaVe4bXTugEjHSw==:`, ""},
		{"B.2.3", "rsa-pss-sha512", rfcRSAPSS, "POST", url, test, b23, `sig-b23=:bbN8oArOxYoyylQQUU6QYwrTuaxLwjAC9fbY2F6SVWvh0yBiMIRGOnMYwZ/5MR6fb0Kh1rIRASVxFkeGt683+qRpRRU5p2voTp768ZrCUb38K0fUxN0O0iC59DzYx8DFll5GmydPxSmme9v6ULbMFkl+V5B1TP/yPViV7KsLNmvKiLJH1pFkh/aYA2HXXZzNBXmIkoQoLd7YfW91kE9o/CCoC1xMy7JA1ipwvKvfrs65ldmlu9bpG6A9BmzhuzF8Eim5f8ui9eH8LZH896+QIF61ka39VBrohr9iyMUJpvRX2Zbhl5ZJzSRxpJyoEZAFL2FUo5fTIztsDZKEgM4cUA==:`, ""},
		{"B.2.6", "ed25519", rfcEd25519, "POST", url, test, b26, `sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:`, ""},
		{"B.3", "ecdsa-p256-sha256", rfcP256, "POST", "https://service.internal.example/foo?param=Value&Pet=dog", http.Header{"Client-Cert": {cert}}, b3, `ttrp=:xVMHVpawaAC/0SbHrKRs9i8I3eOs5RtTMGCWXm/9nvZzoHsIg6Mce9315T6xoklyy0yzhD9ah4JHRwMLOgmizw==:`, ""},
		{"B.4", "ed25519", rfcEd25519, "GET", b4URL, accept("application/json", "*/*"), b4, b4Sig, ""},
		{"B.4, a query that is not covered", "ed25519", rfcEd25519, "GET", b4URL + "&param=added", accept("application/json", "*/*"), b4, b4Sig, ""},
		{"B.4, lines joined", "ed25519", rfcEd25519, "GET", b4URL, accept("application/json, */*"), b4, b4Sig, ""},
		{"B.4, another method and authority", "ed25519", rfcEd25519, "POST", "https://example.com/demo", accept("application/json", "*/*"), b4, b4Sig, ReasonSignatureMismatch},
		{"B.4, lines in another order", "ed25519", rfcEd25519, "GET", b4URL, accept("*/*", "application/json"), b4, b4Sig, ReasonSignatureMismatch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := compile(t, `{"algo":"code:rfc9421","sig_alg":"`+tt.alg+`"}`)
			k, err := NewKey("", []byte(tt.key), s.SecretSpec())
			if err != nil {
				t.Fatal(err)
			}
			v := &Verifier{Scheme: s, Keys: testSet(t, k), URL: tt.url, Now: at(time.Unix(1618884473, 0))}
			if err := v.Check(); err != nil {
				t.Fatal(err)
			}
			h := tt.header.Clone()
			h["Signature-Input"], h["Signature"] = []string{tt.input}, []string{tt.signature}
			_, err = v.Verify(Request{Method: tt.method, URL: "/", Header: h, Body: []byte(`{"hello": "world"}`)})
			if got := reasonOf(err); got != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

const messageURL = "https://Hooks.Example.com:443/in"

// hmacMessage signs a base that the test wrote itself.
func hmacMessage(input, base string) http.Header {
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(base + `"@signature-params": ` + input))
	return http.Header{
		"Signature-Input": {"sig1=" + input},
		"Signature":       {"sig1=:" + base64.StdEncoding.EncodeToString(mac.Sum(nil)) + ":"},
	}
}

func messageVerifier(t testing.TB, fields string) *Verifier {
	t.Helper()
	s := compile(t, `{"algo":"code:rfc9421","secret_spec":{"encoding":"utf8"}`+fields+`}`)
	k, err := NewKey("", []byte(testSecret), s.SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	v := &Verifier{Scheme: s, Keys: testSet(t, k), URL: messageURL, Now: at(t0)}
	if err := v.Check(); err != nil {
		t.Fatal(err)
	}
	return v
}

// t0 is 1760000000.
const created = `;created=1760000000`

func TestMessageComponents(t *testing.T) {
	for _, tt := range []struct {
		name, input, base string
		want              Reason
	}{
		{"nothing but the parameters", `()` + created, "", ""},
		{"what the URL says", `("@method" "@authority" "@scheme" "@path" "@query" "@request-target" "@target-uri")` + created,
			"\"@method\": POST\n\"@authority\": hooks.example.com\n\"@scheme\": https\n\"@path\": /in\n\"@query\": ?a=b+c&d=%c3%a9&e=1&E=2\n" +
				"\"@request-target\": /in?a=b+c&d=%c3%a9&e=1&E=2\n\"@target-uri\": https://Hooks.Example.com:443/in?a=b+c&d=%c3%a9&e=1&E=2\n", ""},
		{"fields of the query in one spelling", `("@query-param";name="a" "@query-param";name="d")` + created,
			"\"@query-param\";name=\"a\": b%20c\n\"@query-param\";name=\"d\": %C3%A9\n", ""},
		{"a header", `("x-one")` + created, "\"x-one\": 1\n", ""},
		{"a header in several lines", `("x-many")` + created, "\"x-many\": 1, 2, 3\n", ""},
		{"blanks that are signed otherwise", `( "x-one"  )` + created, "\"x-one\": 1\n", ReasonSignatureMismatch},
		{"a header that is not there", `("x-none")` + created, "\"x-none\": \n", ReasonHeaderMissing},
		{"an empty header", `("x-empty")` + created, "\"x-empty\": \n", ReasonHeaderMissing},
		{"a header with a twin", `("x-twin")` + created, "\"x-twin\": 1\n", ReasonHeaderDuplicated},
		{"a header with a line break", `("x-break")` + created, "\"x-break\": 1\n\"x-one\": 1\n", ReasonSignatureMalformed},
		{"a header beyond ASCII", `("x-latin")` + created, "\"x-latin\": \xe9\n", ReasonSignatureMalformed},
		{"an upper-case name", `("X-One")` + created, "\"X-One\": 1\n", ReasonSignatureMalformed},
		{"a component twice", `("x-one" "x-one")` + created, "\"x-one\": 1\n\"x-one\": 1\n", ReasonSignatureMalformed},
		{"a token for a component", `(x-one)` + created, "x-one: 1\n", ReasonSignatureMalformed},
		{"sf", `("x-one";sf)` + created, "\"x-one\";sf: 1\n", ReasonSignatureMalformed},
		{"bs", `("x-one";bs)` + created, "\"x-one\";bs: :MQ==:\n", ReasonSignatureMalformed},
		{"key", `("x-dict";key="a")` + created, "\"x-dict\";key=\"a\": 1\n", ReasonSignatureMalformed},
		{"req", `("@method";req)` + created, "\"@method\";req: POST\n", ReasonSignatureMalformed},
		{"tr", `("x-one";tr)` + created, "\"x-one\";tr: 1\n", ReasonSignatureMalformed},
		{"@status", `("@status")` + created, "\"@status\": 200\n", ReasonSignatureMalformed},
		{"@signature-params", `("@signature-params")` + created, "\"@signature-params\": ()\n", ReasonSignatureMalformed},
		{"an unknown derived component", `("@body")` + created, "\"@body\": x\n", ReasonSignatureMalformed},
		{"@query-param without a name", `("@query-param")` + created, "\"@query-param\": 1\n", ReasonSignatureMalformed},
		{"@query-param in another spelling", `("@query-param";name="%61")` + created, "\"@query-param\";name=\"%61\": b%20c\n", ReasonSignatureMalformed},
		{"@query-param that other readers find twice", `("@query-param";name="e")` + created, "\"@query-param\";name=\"e\": 1\n", ReasonHeaderDuplicated},
		{"@query-param that is not there", `("@query-param";name="z")` + created, "\"@query-param\";name=\"z\": \n", ReasonHeaderMissing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := hmacMessage(tt.input, tt.base)
			for k, lines := range (http.Header{
				"X-One": {" 1\t"}, "X-Many": {"1", " 2 ", "3"}, "X-Empty": {" "}, "X-Twin": {"1"}, "X_Twin": {"2"},
				"X-Break": {"1\n\"x-one\": 1"}, "X-Latin": {"\xe9"}, "X-Dict": {"a=1"},
			}) {
				h[k] = lines
			}
			_, err := messageVerifier(t, "").Verify(Request{Method: "POST", URL: "/other?a=b+c&d=%c3%a9&e=1&E=2", Header: h})
			if got := reasonOf(err); got != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestMessageParameters(t *testing.T) {
	day := `;created=1760000000;expires=`
	for _, tt := range []struct {
		name, fields, params string
		want                 Reason
	}{
		{"created now", "", created, ""},
		{"300 s ago", "", `;created=1759999700`, ""},
		{"301 s ago", "", `;created=1759999699`, ReasonTimestampOutOfWindow},
		{"300 s ahead", "", `;created=1760000300`, ""},
		{"301 s ahead", "", `;created=1760000301`, ReasonTimestampOutOfWindow},
		{"a window of its own", `,"tolerance_s":10`, `;created=1759999989`, ReasonTimestampOutOfWindow},
		{"no window", `,"tolerance_s":null`, `;created=1`, ""},
		{"no window, no created", `,"tolerance_s":null`, ``, ""},
		{"no created", "", ``, ReasonHeaderMissing},
		{"created is a text", "", `;created="1760000000"`, ReasonSignatureMalformed},
		{"created is a decimal", "", `;created=1760000000.0`, ReasonSignatureMalformed},
		{"created before 1970", "", `;created=-1`, ReasonTimestampMalformed},
		{"created twice", "", `;created=1;created=1760000000`, ReasonSignatureMalformed},
		{"expires now", "", day + `1760000000`, ""},
		{"expires a second ago", "", day + `1759999999`, ReasonTimestampOutOfWindow},
		{"expires out of range", "", day + `999999999999999`, ReasonTimestampMalformed},
		{"alg as demanded", "", created + `;alg="hmac-sha256"`, ""},
		{"another alg", "", created + `;alg="ed25519"`, ReasonAlgorithmRefused},
		{"alg none", "", created + `;alg="none"`, ReasonAlgorithmRefused},
		{"alg is a token", "", created + `;alg=hmac-sha256`, ReasonSignatureMalformed},
		{"an empty keyid", "", created + `;keyid=""`, ReasonKeyUnknown},
		{"a parameter of the sender's own", "", created + `;x-own=1`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := hmacMessage(`("@method")`+tt.params, "\"@method\": POST\n")
			_, err := messageVerifier(t, tt.fields).Verify(Request{Method: "POST", URL: "/", Header: h})
			if got := reasonOf(err); got != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Which of several signatures is looked at, and what makes none of them one.
func TestMessageLabels(t *testing.T) {
	good := hmacMessage(`("@method")`+created, "\"@method\": POST\n")
	input, sig := good["Signature-Input"][0], good["Signature"][0]
	for _, tt := range []struct {
		name, fields     string
		input, signature []string
		want             Reason
	}{
		{"the only one", "", []string{input}, []string{sig}, ""},
		{"by its label", `,"label":"sig1"`, []string{`other=()`, input}, []string{`other=:AA==:`, sig}, ""},
		{"in one line", `,"label":"sig1"`, []string{`other=(), ` + input}, []string{sig + `, other=:AA==:`}, ""},
		{"two and no label", "", []string{`other=()`, input}, []string{`other=:AA==:`, sig}, ReasonSignatureMalformed},
		{"not of the label", `,"label":"sig2"`, []string{input}, []string{sig}, ReasonSignatureMissing},
		{"the label twice", `,"label":"sig1"`, []string{input, input}, []string{sig}, ReasonSignatureMalformed},
		{"input without a signature", `,"label":"sig1"`, []string{input}, []string{`other=:AA==:`}, ReasonSignatureMissing},
		{"signature without input", `,"label":"sig1"`, []string{`other=()`}, []string{sig}, ReasonSignatureMalformed},
		{"no input", "", nil, []string{sig}, ReasonHeaderMissing},
		{"no signature", "", []string{input}, nil, ReasonSignatureMissing},
		{"input is no list", "", []string{`sig1=1`}, []string{sig}, ReasonSignatureMalformed},
		{"signature is a list", "", []string{input}, []string{`sig1=(:AA==:)`}, ReasonSignatureMalformed},
		{"signature is a text", "", []string{input}, []string{`sig1="AA=="`}, ReasonSignatureMalformed},
		{"signature is cut", "", []string{input}, []string{sig[:len(sig)-5] + ":"}, ReasonSignatureMalformed},
		{"one byte of the signature", "", []string{input}, []string{sig[:10] + flip(sig[10:11]) + sig[11:]}, ReasonSignatureMismatch},
		{"one byte of the input", "", []string{input + ";x"}, []string{sig}, ReasonSignatureMismatch},
		{"1 MiB", "", []string{input + strings.Repeat(" ", 1<<20)}, []string{sig}, ReasonSignatureMalformed},
		{"1 MiB of signature", "", []string{input}, []string{sig + strings.Repeat(", a", 1<<19)}, ReasonSignatureMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			if tt.input != nil {
				h["Signature-Input"] = tt.input
			}
			if tt.signature != nil {
				h["Signature"] = tt.signature
			}
			_, err := messageVerifier(t, tt.fields).Verify(Request{Method: "POST", URL: "/", Header: h})
			if got := reasonOf(err); got != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// A digest counts where it is covered, and then it must be the body's.
func TestMessageDigest(t *testing.T) {
	const body = `{"hello": "world"}`
	right := "sha-256=:" + base64SHA256(body) + ":"
	wrong := "sha-256=:" + base64SHA256("x") + ":"
	const sha512 = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"
	for _, tt := range []struct {
		name, digest string
		want         Reason
	}{
		{"SHA-256", right, ""},
		{"SHA-512", sha512, ""},
		{"both", sha512 + ", " + right, ""},
		{"one of two is wrong", sha512 + ", " + wrong, ReasonSignatureMismatch},
		{"wrong", wrong, ReasonSignatureMismatch},
		{"one more that nobody knows", "md5=:AA==:, " + right, ""},
		{"only one that nobody knows", "md5=:AA==:", ReasonAlgorithmRefused},
		{"a text", `sha-256="` + base64SHA256(body) + `"`, ReasonSignatureMismatch},
		{"cut", "sha-256=:AA==:", ReasonSignatureMismatch},
		{"no dictionary", base64SHA256(body), ReasonSignatureMalformed},
		{"twice", right + ", " + right, ReasonSignatureMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := hmacMessage(`("content-digest")`+created, `"content-digest": `+tt.digest+"\n")
			h["Content-Digest"] = []string{tt.digest}
			_, err := messageVerifier(t, `,"required_components":["content-digest"]`).Verify(Request{Method: "POST", URL: "/", Header: h, Body: []byte(body)})
			if got := reasonOf(err); got != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// keyid selects; a request without one tries what is active.
func TestMessageKeys(t *testing.T) {
	v := messageVerifier(t, "")
	key := func(id, secret string, after time.Time) Key {
		k, err := NewKey(id, []byte(secret), SecretSpec{})
		if err != nil {
			t.Fatal(err)
		}
		k.NotAfter = after
		return k
	}
	right, other := key("k1", testSecret, time.Time{}), key("k2", strings.Repeat("x", 32), time.Time{})
	for _, tt := range []struct {
		name, keyid string
		keys        []Key
		want        Reason
		id          string
	}{
		{"named", `;keyid="k1"`, []Key{other, right}, "", "k1"},
		{"not named", ``, []Key{other, right}, "", "k1"},
		{"the other's name", `;keyid="k2"`, []Key{other, right}, ReasonSignatureMismatch, "k2"},
		{"nobody's name", `;keyid="k3"`, []Key{other, right}, ReasonKeyUnknown, "k3"},
		{"expired and named", `;keyid="k1"`, []Key{other, key("k1", testSecret, t0)}, ReasonKeyExpired, "k1"},
		{"expired and not named", ``, []Key{other, key("k1", testSecret, t0)}, ReasonKeyExpired, "k1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v.Keys = testSet(t, tt.keys...)
			h := hmacMessage(`("@method")`+created+tt.keyid, "\"@method\": POST\n")
			env, err := v.Verify(Request{Method: "POST", URL: "/", Header: h})
			id := env.KeyID
			if e, ok := err.(*Error); ok {
				id = e.KeyID
			}
			if got := reasonOf(err); got != tt.want || id != tt.id {
				t.Errorf("got %v of %q, want %q of %q", err, id, tt.want, tt.id)
			}
		})
	}
}

// What is covered decides whether an id in a header is signed.
func TestMessageCoversTheID(t *testing.T) {
	for _, tt := range []struct {
		fields, input, base string
		always, here        bool
	}{
		{"", `()`, "", false, false},
		{"", `("x-id")`, "\"x-id\": dlv_1\n", false, true},
		{`,"required_components":["x-id"]`, `("x-id")`, "\"x-id\": dlv_1\n", true, true},
	} {
		v := messageVerifier(t, tt.fields+`,"id":{"from":"header:X-Id"}`)
		h := hmacMessage(tt.input+created, tt.base)
		h["X-Id"] = []string{"dlv_1"}
		env, err := v.Verify(Request{Method: "POST", URL: "/", Header: h})
		if err != nil || env.IDSigned != tt.here || v.Scheme.IDSigned() != tt.always || env.DeliveryID != "dlv_1" {
			t.Errorf("%s %s: %+v, %v, always %v", tt.fields, tt.input, env, err, v.Scheme.IDSigned())
		}
	}
}

func TestSignMessage(t *testing.T) {
	keys := map[string]func() (any, error){
		"ed25519":           func() (any, error) { _, k, err := ed25519.GenerateKey(rand.Reader); return k, err },
		"ecdsa-p256-sha256": func() (any, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
		"rsa-v1_5-sha256":   func() (any, error) { return rsa.GenerateKey(rand.Reader, 2048) },
		"rsa-pss-sha512":    func() (any, error) { return rsa.GenerateKey(rand.Reader, 2048) },
	}
	signs := func(alg string, k Key) {
		t.Helper()
		s := compile(t, `{"algo":"code:rfc9421","sig_alg":"`+alg+`","required_components":["@method","@authority","@path","content-digest","x-id"]}`)
		v := &Verifier{Scheme: s, Keys: testSet(t, k), URL: messageURL, Now: at(t0)}
		r := Request{Method: "POST", URL: "/", Header: http.Header{"X-Id": {"dlv_1"}}, Body: []byte("body")}
		h, err := v.Sign(r, SignOptions{})
		if err != nil || len(h) != 3 {
			t.Fatalf("%s: %v, %v", alg, h, err)
		}
		r.Header = join(r.Header, h)
		env, err := v.Verify(r)
		if err != nil || env.KeyID != k.ID || !env.Time.Equal(t0) || env.Timestamp != "1760000000" {
			t.Errorf("%s: %+v, %v", alg, env, err)
		}
		r.Body = []byte("bodi")
		if _, err := v.Verify(r); reasonOf(err) != ReasonSignatureMismatch {
			t.Errorf("%s: another body: %v", alg, err)
		}
		if _, err := v.Sign(r, SignOptions{}); err == nil {
			t.Errorf("%s: a signed request was signed again", alg)
		}
	}
	k, err := NewKey("k1", []byte(base64.StdEncoding.EncodeToString([]byte(testSecret))), compile(t, `{"algo":"code:rfc9421"}`).SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	signs("hmac-sha256", k)
	for alg, make := range keys {
		private, err := make()
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		if k, err = NewKey("k1", pemText("PRIVATE KEY", der), SecretSpec{Encoding: "pem"}); err != nil {
			t.Fatal(err)
		}
		signs(alg, k)
	}
	r := Request{Method: "POST", URL: "/", Header: http.Header{}}
	var e *Error
	if _, err := messageVerifier(t, `,"required_components":["x-none"]`).Sign(r, SignOptions{}); !errors.As(err, &e) || e.Reason != ReasonHeaderMissing {
		t.Errorf("a header that only the sender knows: %v", err)
	}
}

func TestMessageRecipesThatMakeNoSense(t *testing.T) {
	for name, fields := range map[string]string{
		"unknown algorithm":  `"sig_alg":"hmac-sha512"`,
		"no label":           `"label":"Sig 1"`,
		"unknown component":  `"required_components":["@body"]`,
		"upper-case name":    `"required_components":["X-Id"]`,
		"component twice":    `"required_components":["x-id","x-id"]`,
		"a parameter":        `"required_components":["x-id;sf"]`,
		"a template":         `"template":"{body}"`,
		"a signature":        `"signature":{"name":"Signature"}`,
		"encoding of others": `"sig_alg":"ed25519","secret_spec":{"encoding":"base64"}`,
		"id is a signature":  `"id":{"from":"header:Signature-Input"}`,
	} {
		if _, err := mustParse(t, `{"algo":"code:rfc9421",`+fields+`}`).Compile(); err == nil {
			t.Errorf("%s: %s compiled", name, fields)
		}
	}
}

// Whatever the two fields hold: no panic, and never valid without the key.
func FuzzMessageSignature(f *testing.F) {
	good := hmacMessage(`("@method" "content-digest" "@query-param";name="a");created=1760000000;keyid="k1"`, "\"@method\": POST\n")
	f.Add(good["Signature-Input"][0], good["Signature"][0], "sha-256=:AA==:", "/?a=1")
	for _, v := range readVectors(f, "rfc9421.json") {
		f.Add(v.Headers["Signature-Input"][0], v.Headers["Signature"][0], v.Headers["Content-Digest"][0], v.URL)
	}
	v := messageVerifier(f, `,"tolerance_s":null`)
	k, err := NewKey("", []byte(strings.Repeat("x", 32)), SecretSpec{})
	if err != nil {
		f.Fatal(err)
	}
	v.Keys = testSet(f, k)
	f.Fuzz(func(t *testing.T, input, signature, digest, url string) {
		h := http.Header{"Signature-Input": {input}, "Signature": {signature}, "Content-Digest": {digest}}
		if _, err := v.Verify(Request{Method: "POST", URL: url, Header: h}); err == nil {
			t.Errorf("valid without the key: %q %q", input, signature)
		}
	})
}
