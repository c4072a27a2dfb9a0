package verify

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"
)

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
