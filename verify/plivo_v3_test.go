package verify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

func plivoMAC(text string) string {
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// The signed text for each combination of method, query and form.
func TestPlivoText(t *testing.T) {
	s := compile(t, `{"algo":"code:plivo-v3"}`)
	v := &Verifier{Scheme: s, Keys: oneKey(t), URL: "https://example.com/in"}
	other := plivoMAC("other")
	for _, tt := range []struct {
		name, method, query, body, text string
		signatures                      []string
		want                            Reason
	}{
		{"neither query nor form", "POST", "", "", "https://example.com/in.n1", nil, ""},
		{"query", "POST", "?b=2&a=1", "", "https://example.com/in?a=1&b=2.n1", nil, ""},
		{"form", "POST", "", "b=2&a=1", "https://example.com/in?a1b2.n1", nil, ""},
		{"query and form", "POST", "?b=2&a=1", "d=4&c=3", "https://example.com/in?a=1&b=2.c3d4.n1", nil, ""},
		{"a name twice", "POST", "", "a=2&a=1", "https://example.com/in?a1a2.n1", nil, ""},
		{"escapes", "GET", "?To=sip%3Ax+y", "", "https://example.com/in?To=sip:x y.n1", nil, ""},
		{"all in the query of a GET", "GET", "?b=2&a=1", "c=3", "https://example.com/in?a=1&b=2&c=3.n1", nil, ""},
		{"a broken escape", "POST", "", "a=%zz", "https://example.com/in?a%zz.n1", nil, ReasonBodyUnparsable},
		{"another nonce", "POST", "", "", "https://example.com/in.n2", nil, ReasonSignatureMismatch},
		{"another value", "POST", "", "a=1", "https://example.com/in?a2.n1", nil, ReasonSignatureMismatch},
		{"the second of two", "POST", "", "", "https://example.com/in.n1", []string{other}, ""},
		{"33 of them", "POST", "", "", "https://example.com/in.n1", strings.Fields(strings.Repeat(other+" ", 32)), ReasonSignatureMalformed},
		{"one that is none", "POST", "", "", "https://example.com/in.n1", []string{"AA=="}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Request{Method: tt.method, URL: "/in" + tt.query, Body: []byte(tt.body), Header: http.Header{
				plivoNonce: {"n1"}, plivoSignature: {strings.Join(append(tt.signatures, plivoMAC(tt.text)), ", ")},
			}}
			if _, err := v.Verify(r); reasonOf(err) != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			r.Header[plivoNonce] = []string{"5.n1"}
			if _, err := v.Verify(r); reasonOf(err) != ReasonSignatureMalformed {
				t.Errorf("a nonce that may hold the end of the form: %v", err)
			}
			delete(r.Header, plivoNonce)
			if _, err := v.Verify(r); reasonOf(err) != ReasonHeaderMissing {
				t.Errorf("without a nonce: %v", err)
			}
		})
	}
}

func TestSignPlivo(t *testing.T) {
	s := compile(t, `{"algo":"code:plivo-v3","id":{"from":"form:CallUUID"}}`)
	v := &Verifier{Scheme: s, Keys: oneKey(t), URL: "https://example.com/in", Now: at(t0)}
	r := Request{Method: "POST", URL: "/in?a=1", Header: http.Header{}, Body: []byte("CallUUID=c1&b=2")}
	h, err := v.Sign(r, SignOptions{})
	if err != nil || len(h) != 2 {
		t.Fatalf("%v, %v", h, err)
	}
	r.Header = h
	env, err := v.Verify(r)
	if err != nil || env.DeliveryID != "c1" || env.IDSigned || !s.NeedsURL() || s.BodySigned() {
		t.Errorf("%+v, %v", env, err)
	}
	if covers, w := s.Covers(), s.Weaknesses(); len(covers) != 3 || !strings.Contains(w[0].Text, "form fields only") {
		t.Errorf("covers %v, leaves open %v", covers, w)
	}
	if s := compile(t, `{"algo":"code:plivo-v3","id":{"from":"header:`+plivoNonce+`"}}`); !s.IDSigned() {
		t.Error("a nonce in which nothing else can stand is not called signed")
	}
	r.Header = http.Header{plivoNonce: {"n1"}}
	if h, err = v.Sign(r, SignOptions{}); err != nil || len(h) != 1 || h.Get(plivoSignature) != plivoMAC("https://example.com/in?a=1.CallUUIDc1b2.n1") {
		t.Errorf("%v, %v", h, err)
	}
}
