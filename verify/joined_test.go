package verify

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"testing"
)

// What is joined by nothing, or by what a value may hold, can be cut in another place
// under the same signature. No value of it is called signed, and none is a timestamp.
func TestWhereJoinedValuesEndIsNotSigned(t *testing.T) {
	b64 := func(new func() hash.Hash, text string) string {
		raw, err := hex.DecodeString(hexMAC(new, text))
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(raw)
	}
	form := b64(sha1.New, "https://x/ina1id2z3")
	for _, tt := range []struct {
		name, recipe, header, signature string
		honest, forged                  [2]string // query and body
	}{
		{"form_sorted", `{"algo":"hmac-sha1","signature":{"name":"S","encoding":"base64"},"template":"{url}{form_sorted}","id":{"from":"form:id"}}`,
			"S", form, [2]string{"", "a=1&id=2&z=3"}, [2]string{"", "a=1&id=2z3"}},
		{"form of twilio", `{"preset":"twilio","id":{"from":"form:id"}}`,
			twilioSignature, form, [2]string{"", "a=1&id=2&z=3"}, [2]string{"", "a=1&id=2z3"}},
		{"query of twilio", `{"preset":"twilio","id":{"from":"query:id"}}`,
			twilioSignature, b64(sha1.New, "https://x/in?id=1z3"), [2]string{"?id=1", "z=3"}, [2]string{"?id=1z3", ""}},
		{"form of plivo-v3", `{"preset":"plivo-v3","id":{"from":"form:id"}}`,
			plivoSignature, plivoMAC("https://x/in?a1id2z3.n"), [2]string{"", "a=1&id=2&z=3"}, [2]string{"", "a=1&id=2z3"}},
		{"query of plivo-v3", `{"preset":"plivo-v3","id":{"from":"query:id"}}`,
			plivoSignature, plivoMAC("https://x/in?id=2&z=3.n"), [2]string{"?id=2&z=3", ""}, [2]string{"?id=2%26z%3D3", ""}},
	} {
		s := compile(t, tt.recipe)
		v := &Verifier{Scheme: s, Keys: oneKey(t), URL: "https://x/in"}
		ids := map[string]bool{}
		for _, sent := range [][2]string{tt.honest, tt.forged} {
			env, err := v.Verify(Request{Method: "POST", URL: "/in" + sent[0], Body: []byte(sent[1]),
				Header: http.Header{tt.header: {tt.signature}, plivoNonce: {"n"}}})
			if err != nil || env.IDSigned || s.IDSigned() {
				t.Errorf("%s: %q: id %q is called signed, or %v", tt.name, sent, env.DeliveryID, err)
			}
			ids[env.DeliveryID] = true
		}
		if len(ids) != 2 {
			t.Errorf("%s: not two ids: %v", tt.name, ids)
		}
	}
	r := mustParse(t, `{"algo":"hmac-sha1","signature":{"name":"S"},"template":"{form_sorted}","timestamp":{"from":"form:t"}}`)
	if _, err := r.Compile(); err == nil {
		t.Error("t=1 beside a value that holds t2 reads as t=2 beside a field named t1")
	}
}
