package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
)

// The signed text of every token, written out by hand.
func TestTokens(t *testing.T) {
	sum := sha256.Sum256([]byte("a=1&b=2"))
	for _, c := range []struct {
		template, text string
		url, target    string
		body           string
	}{
		{"{method}|{body}", "POST|x", "", "", "x"},
		{"{url}", "https://h.example:8443/in?q=1", "https://h.example:8443/in", "/other?q=1", ""},
		{"{url}", "https://h.example/in?own=1", "https://h.example/in?own=1", "/in?q=1", ""},
		{"{url}", "https://h.example/in", "https://h.example/in", "/in", ""},
		{"{host}|{path}|{path_query}", "h.example:8443|/in/a|/in/a?q=1#f", "https://h.example:8443/in/a", "/x?q=1#f", ""},
		{"{host}|{path}|{path_query}", "h.example|/|/?q=1", "https://h.example", "/x?q=1", ""},
		{"{query_raw}|{body}", "b=%20+&a|x", "", "/in?b=%20+&a", "x"},
		{"{query_raw}|{body}", "|x", "", "/in", "x"},
		{"{query:a}|{body}", "1 2|x", "", "/in?b=0&a=1%202", "x"},
		{"{form:b}|{form:a}", "2|1", "", "", "a=1&b=2"},
		{"{form_sorted}", "a1a2b0", "", "", "b=0&a=2&a=1"},
		{"{json:a.b}|{json:/c/1}|{json:n}", "x|7|1.50", "", "", `{"a":{"b":"x"},"c":[5,7],"n":1.50}`},
		{"{param:p}|{body}", "value|x", "", "", "x"},
		{"{header:X-A}{body}{header:x-a}", "vxv", "", "", "x"},
		{"{body_sha256_hex}", hex.EncodeToString(sum[:]), "", "", "a=1&b=2"},
		{"{body_sha256_raw}", string(sum[:]), "", "", "a=1&b=2"},
		{"{body_crc32_dec}", "3421780262", "", "", "123456789"},
		{"{body}{body}", "xx", "", "", "x"},
	} {
		r := Recipe{Algo: "hmac-sha256", Signature: SignatureRecipe{Name: "X-Sig"}, Template: c.template}
		if strings.Contains(c.template, "{param:") {
			r.Params = []string{"p"}
		}
		s, err := r.Compile()
		if err != nil {
			t.Fatal(err)
		}
		v := Verifier{Scheme: s, Keys: oneKey(t), URL: c.url, Params: map[string]string{"p": "value"}}
		req := Request{Method: "POST", URL: c.target, Body: []byte(c.body),
			Header: http.Header{"X-Sig": {hexMAC(sha256.New, c.text)}, "X-A": {"v"}}}
		if _, err := v.Verify(req); err != nil {
			t.Errorf("%s over %s %s %q: %v", c.template, c.url, c.target, c.body, err)
		}
	}
}

// A token that has no value is a refusal: an empty string would be signed by
// whoever leaves the header out.
func TestMissingTokens(t *testing.T) {
	for _, c := range []struct {
		template, body, target string
		want                   Reason
	}{
		{"{header:X-A}{body}", "x", "", ReasonHeaderMissing},
		{"{query:a}{body}", "x", "/in?a=", ReasonHeaderMissing},
		{"{query:a}{body}", "x", "/in?a=1&a=1", ReasonHeaderDuplicated},
		{"{query:a}{body}", "x", "/in?a=%", ReasonBodyUnparsable},
		{"{form:a}", "b=1", "", ReasonHeaderMissing},
		{"{form:a}", "a=1&a=1", "", ReasonHeaderDuplicated},
		{"{form:a}", "a=%zz", "", ReasonBodyUnparsable},
		{"{form:a}", "a=1" + strings.Repeat("&b=1", 1024), "", ReasonBodyUnparsable},
		{"{form_sorted}", "%", "", ReasonBodyUnparsable},
		{"{json:a}", `{"b":1}`, "", ReasonHeaderMissing},
		{"{json:a}", `{"a":null}`, "", ReasonHeaderMissing},
		{"{json:a}", `{"a":""}`, "", ReasonHeaderMissing},
		{"{json:a}", `{"a":true}`, "", ReasonHeaderMissing},
		{"{json:a}", `{"a":{}}`, "", ReasonHeaderMissing},
		{"{json:a}", `{"a":1,"a":1}`, "", ReasonBodyUnparsable},
		{"{json:a}", `{"a":1`, "", ReasonBodyUnparsable},
		{"{json:a}", `{"a":1,"b":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "", ReasonBodyUnparsable},
		{"{url}", "x", "/in", ReasonPrecondition},
		{"{method}{body}", "x", "", ReasonHeaderMissing},
	} {
		s, err := (Recipe{Algo: "hmac-sha256", Signature: SignatureRecipe{Name: "X-Sig"}, Template: c.template}).Compile()
		if err != nil {
			t.Fatal(err)
		}
		v := Verifier{Scheme: s, Keys: oneKey(t)}
		_, err = v.Verify(Request{URL: c.target, Body: []byte(c.body), Header: http.Header{"X-Sig": {hexMAC(sha256.New, c.body)}}})
		if reasonOf(err) != c.want {
			t.Errorf("%s over %s %.40q: %v, want %s", c.template, c.target, c.body, err, c.want)
		}
	}
}

// {url} leaves the query of a request out where the public URL has its own. A
// timestamp that stands there would be signed by nobody.
func TestQueryThatNothingSigns(t *testing.T) {
	s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"X-Sig"},"template":"{url}{body}",
		"timestamp":{"from":"query:t"},"id":{"from":"query:id"}}`)
	for url, sound := range map[string]bool{"https://h/in": true, "https://h/in?t=1": false} {
		v := Verifier{Scheme: s, Keys: oneKey(t), URL: url, Now: at(t0)}
		signed := url
		if sound {
			signed += "?t=1760000000&id=a"
		}
		r := Request{Method: "POST", URL: "/in?t=1760000000&id=a", Header: http.Header{"X-Sig": {hexMAC(sha256.New, signed)}}}
		if _, err := v.Verify(r); (err == nil) != sound {
			t.Errorf("%s: %v", url, err)
		}
		if err := v.Check(); (err == nil) != sound {
			t.Errorf("%s: check: %v", url, err)
		}
	}
}
