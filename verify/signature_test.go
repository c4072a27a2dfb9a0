package verify

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
)

func TestSignatureSpellings(t *testing.T) {
	body := "x"
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(body))
	raw := mac.Sum(nil)
	low, b64 := hex.EncodeToString(raw), base64.StdEncoding.EncodeToString(raw)
	zero := strings.Repeat("0", 64)
	for _, c := range []struct {
		name, signature string
		values          []string
		want            Reason
	}{
		{"a byte too many", `{"name":"S"}`, []string{low + "00"}, ReasonSignatureMalformed},
		{"a byte too few", `{"name":"S"}`, []string{low[2:]}, ReasonSignatureMalformed},
		{"base64 of a byte too many", `{"name":"S","encoding":"base64"}`, []string{base64.StdEncoding.EncodeToString(append(raw, 0))}, ReasonSignatureMalformed},
		{"any case", `{"name":"S","hex_case":"any"}`, []string{strings.ToUpper(low)}, ""},
		{"mixed case", `{"name":"S","hex_case":"any"}`, []string{strings.ToUpper(low[:10]) + low[10:]}, ""},
		{"url-safe", `{"name":"S","encoding":"base64url-nopad"}`, []string{base64.RawURLEncoding.EncodeToString(raw)}, ""},
		{"url-safe with padding", `{"name":"S","encoding":"base64url-nopad"}`, []string{base64.URLEncoding.EncodeToString(raw)}, ReasonSignatureMalformed},
		{"prefix", `{"name":"S","prefix":"sha256="}`, []string{"sha256=" + low}, ""},
		{"prefix in capitals", `{"name":"S","prefix":"sha256="}`, []string{"SHA256=" + low}, ReasonSignatureMalformed},
		{"prefix twice", `{"name":"S","prefix":"sha256="}`, []string{"sha256=sha256=" + low}, ReasonSignatureMalformed},
		{"prefix left out", `{"name":"S","prefix":"sha256="}`, []string{low}, ReasonSignatureMalformed},
		{"optional prefix left out", `{"name":"S","prefix":"sha256=","prefix_optional":true}`, []string{low}, ""},
		{"list", `{"name":"S","list_sep":","}`, []string{zero + "," + low}, ""},
		{"list with blanks", `{"name":"S","list_sep":","}`, []string{zero + " ,\t" + low + " "}, ""},
		{"list not trimmed", `{"name":"S","list_sep":",","trim":false}`, []string{zero + ", " + low}, ReasonSignatureMismatch},
		{"list with empty elements", `{"name":"S","list_sep":","}`, []string{",," + low + ","}, ""},
		{"list of nothing", `{"name":"S","list_sep":","}`, []string{",,"}, ReasonSignatureMalformed},
		{"list on two lines", `{"name":"S","list_sep":","}`, []string{zero, low}, ""},
		{"list of ; on two lines", `{"name":"S","list_sep":";"}`, []string{zero, low}, ReasonHeaderDuplicated},
		{"list of ;", `{"name":"S","list_sep":";"}`, []string{zero + ";" + low}, ""},
		{"list of ; is not trimmed", `{"name":"S","list_sep":";"}`, []string{zero + "; " + low}, ReasonSignatureMismatch},
		{"list by blanks", `{"name":"S","list_sep":" "}`, []string{zero + " " + low}, ""},
		{"list by two blanks", `{"name":"S","list_sep":" "}`, []string{zero + "  " + low}, ""},
		{"each line a value", `{"name":"S","multi_value":true}`, []string{zero, low}, ""},
		{"each line a value, none good", `{"name":"S","multi_value":true}`, []string{zero, zero}, ReasonSignatureMismatch},
		{"tag and base64 with padding", `{"name":"S","kv_sep":"=","tags":["v1"],"encoding":"base64"}`, []string{"v1=" + b64}, ""},
		{"tag in capitals", `{"name":"S","kv_sep":"=","tags":["v1"]}`, []string{"V1=" + low}, ReasonSignatureMalformed},
		{"second tag", `{"name":"S","kv_sep":"=","list_sep":",","tags":["v1","v2"]}`, []string{"v2=" + low}, ""},
		{"two headers, the second", `{"names":["S","S-2"]}`, nil, ""},
	} {
		s := compile(t, `{"algo":"hmac-sha256","template":"{body}","signature":`+c.signature+`}`)
		v := Verifier{Scheme: s, Keys: oneKey(t)}
		h := http.Header{"S": c.values}
		if c.values == nil {
			h = http.Header{"S-2": {low}}
		}
		if _, err := v.Verify(Request{Body: []byte(body), Header: h}); reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestHashAlgorithms(t *testing.T) {
	plain := sha256.Sum256([]byte(testSecret + "x"))
	plain1 := sha1.Sum([]byte(testSecret + "x"))
	for algo, sig := range map[string]string{
		"hmac-sha1": hexMAC(sha1.New, "x"), "hmac-sha256": hexMAC(sha256.New, "x"), "hmac-sha512": hexMAC(sha512.New, "x"),
		"hash-sha1": hex.EncodeToString(plain1[:]), "hash-sha256": hex.EncodeToString(plain[:]),
	} {
		template := "{body}"
		if strings.HasPrefix(algo, "hash") {
			template = "{secret}{body}"
		}
		s := compile(t, `{"algo":"`+algo+`","template":"`+template+`","signature":{"name":"S"}}`)
		v := Verifier{Scheme: s, Keys: oneKey(t)}
		if _, err := v.Verify(Request{Body: []byte("x"), Header: http.Header{"S": {sig}}}); err != nil {
			t.Errorf("%s: %v", algo, err)
		}
		if _, err := v.Verify(Request{Body: []byte("y"), Header: http.Header{"S": {sig}}}); reasonOf(err) != ReasonSignatureMismatch {
			t.Errorf("%s over another body: %v", algo, err)
		}
	}
}

func TestTokensAndPasswords(t *testing.T) {
	pass, err := NewKey("k1", []byte("user:pa:ss"), SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	bearer := compile(t, `{"algo":"token","signature":{"name":"Authorization","prefix":"Bearer "}}`)
	query := compile(t, `{"algo":"token","signature":{"in":"query","name":"key"}}`)
	inBody := compile(t, `{"algo":"token","signature":{"in":"json","name":"/clientState"}}`)
	basic := compile(t, `{"algo":"basic"}`)
	auth := func(s string) Request { return Request{Header: http.Header{"Authorization": {s}}} }
	for _, c := range []struct {
		name   string
		scheme Scheme
		r      Request
		want   Reason
	}{
		{"bearer", bearer, auth("Bearer user:pa:ss"), ""},
		{"bearer, longer", bearer, auth("Bearer user:pa:ssx"), ReasonSignatureMismatch},
		{"bearer, shorter", bearer, auth("Bearer user"), ReasonSignatureMismatch},
		{"bearer, nothing", bearer, auth("Bearer "), ReasonSignatureMalformed},
		{"bearer in lower case", bearer, auth("bearer user:pa:ss"), ReasonSignatureMalformed},
		{"no header", bearer, Request{}, ReasonSignatureMissing},
		{"query", query, Request{URL: "/in?key=user%3Apa%3Ass"}, ""},
		{"query twice", query, Request{URL: "/in?key=user%3Apa%3Ass&key=x"}, ReasonHeaderDuplicated},
		{"query without it", query, Request{URL: "/in"}, ReasonSignatureMissing},
		{"body", inBody, Request{Body: []byte(`{"clientState":"user:pa:ss"}`)}, ""},
		{"body without it", inBody, Request{Body: []byte(`{}`)}, ReasonSignatureMissing},
		{"body that does not parse", inBody, Request{Body: []byte(`{`)}, ReasonBodyUnparsable},
		{"basic", basic, auth("Basic " + base64.StdEncoding.EncodeToString([]byte("user:pa:ss"))), ""},
		{"basic, other", basic, auth("Basic " + base64.StdEncoding.EncodeToString([]byte("user:pa"))), ReasonSignatureMismatch},
		{"basic, no base64", basic, auth("Basic user:pa:ss"), ReasonSignatureMalformed},
	} {
		v := Verifier{Scheme: c.scheme, Keys: testSet(t, pass)}
		if _, err := v.Verify(c.r); reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Lengths of names are looked at first, so that most headers cost nothing.
func TestHeaderNamesOfAnyLength(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 127, 128} {
		name := strings.Repeat("s", n)
		v := Verifier{Scheme: compile(t, `{"algo":"hmac-sha256","template":"{body}","signature":{"name":"`+name+`"}}`), Keys: oneKey(t)}
		mac := hexMAC(sha256.New, "x")
		for reason, h := range map[Reason]http.Header{
			"": {strings.ToUpper(name): {mac}}, ReasonHeaderDuplicated: {name: {mac}, strings.ToUpper(name): {mac}},
		} {
			if _, err := v.Verify(Request{Header: h, Body: []byte("x")}); reasonOf(err) != reason {
				t.Errorf("%d characters: %v, want %q", n, err, reason)
			}
		}
	}
}

// A check with a public key is dear, so few are made.
func TestFewPublicKeyCandidates(t *testing.T) {
	s := compile(t, `{"algo":"ed25519","secret_spec":{"encoding":"raw-hex"},"signature":{"name":"S","list_sep":","},"template":"{body}"}`)
	v := Verifier{Scheme: s}
	sig := strings.Repeat("0", 128)
	for n, want := range map[int]Reason{4: ReasonKeyUnknown, 5: ReasonSignatureMalformed} {
		_, err := v.Verify(Request{Header: http.Header{"S": {strings.Repeat(sig+",", n)}}})
		if reasonOf(err) != want {
			t.Errorf("%d candidates: %v", n, err)
		}
	}
}

// Commas may leave elements of a list empty (RFC 9110); blanks and semicolons not.
func TestEmptyElementsOfAList(t *testing.T) {
	for sep, taken := range map[string]bool{",": true, ";": false, " ": false} {
		s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"X-Sig","list_sep":"`+sep+`"},"template":"{body}"}`)
		v := Verifier{Scheme: s, Keys: oneKey(t)}
		r := Request{Header: http.Header{"X-Sig": {strings.Repeat("0", 64) + sep + sep + hexMAC(sha256.New, "x")}}, Body: []byte("x")}
		if _, err := v.Verify(r); err != nil {
			t.Errorf("%q: %v", sep, err) // the good one counts, whatever stands before it
		}
		// With tags an item that is none is a fault.
		s = compile(t, `{"algo":"hmac-sha256","signature":{"name":"X-Sig","list_sep":"`+sep+`","kv_sep":"=","tags":["v1"]},"template":"{body}"}`)
		v.Scheme = s
		r.Header = http.Header{"X-Sig": {"v0=a" + sep + sep + "v1=" + hexMAC(sha256.New, "x")}}
		if _, err := v.Verify(r); (err == nil) != taken {
			t.Errorf("%q: empty element: %v", sep, err)
		}
	}
}
