package verify

import (
	"fmt"
	"net/http"
	"testing"
)

func TestApplies(t *testing.T) {
	digits := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	zhisou := http.Header{"X-Webhook-Signature": {digits}, "X-Webhook-Timestamp": {"1"}, "X-Webhook-Delivery-Id": {"d"}, "X-Webhook-Key-Id": {"k"}}
	without := func(name string) http.Header {
		h := zhisou.Clone()
		delete(h, name)
		return h
	}
	with := func(name string, values ...string) http.Header {
		h := zhisou.Clone()
		h[name] = values
		return h
	}
	for _, test := range []struct {
		name, scheme string
		header       http.Header
		url          string
		want         bool
	}{
		{"all there", `{"preset":"zhisou-v1"}`, zhisou, "", true},
		{"names in another case", `{"preset":"zhisou-v1"}`, http.Header{"x-webhook-signature": {digits}, "x-webhook-TIMESTAMP": {"1"}, "X-WEBHOOK-DELIVERY-ID": {"d"}, "x-webhook-key-id": {"k"}}, "", true},
		{"no timestamp", `{"preset":"zhisou-v1"}`, without("X-Webhook-Timestamp"), "", false},
		{"empty timestamp", `{"preset":"zhisou-v1"}`, with("X-Webhook-Timestamp", ""), "", false},
		{"no key id", `{"preset":"zhisou-v1"}`, without("X-Webhook-Key-Id"), "", false},
		{"no signature", `{"preset":"zhisou-v1"}`, without("X-Webhook-Signature"), "", false},
		{"empty signature", `{"preset":"zhisou-v1"}`, with("X-Webhook-Signature", ""), "", false},
		{"a header twice is there", `{"preset":"zhisou-v1"}`, with("X-Webhook-Timestamp", "1", "1"), "", true},
		{"a misspelled signature is one", `{"preset":"zhisou-v1"}`, with("X-Webhook-Signature", "rubbish"), "", true},
		{"prefix missing", `{"preset":"timestamped-sha256"}`, with("X-Webhook-Id", "d"), "", false},
		{"prefix there", `{"preset":"timestamped-sha256"}`, http.Header{"X-Webhook-Signature": {"sha256=x"}, "X-Webhook-Timestamp": {"1"}, "X-Webhook-Id": {"d"}}, "", true},
		{"optional prefix missing", `{"preset":"mollie"}`, http.Header{"X-Mollie-Signature": {digits}}, "", true},
		{"tag there", `{"preset":"stripe"}`, http.Header{"Stripe-Signature": {"t=1,v1=x"}}, "", true},
		{"other tags alone", `{"preset":"stripe"}`, http.Header{"Stripe-Signature": {"t=1,v0=x"}}, "", false},
		{"tag on a second line", `{"preset":"stripe"}`, http.Header{"Stripe-Signature": {"t=1", "v1=x"}}, "", true},
		{"no tags at all", `{"preset":"stripe"}`, http.Header{"Stripe-Signature": {"x"}}, "", false},
		{"one header of several", `{"preset":"docusign"}`, http.Header{"X-Docusign-Signature-2": {"x"}}, "", true},
		{"precondition missing", `{"preset":"box"}`, http.Header{"Box-Signature-Primary": {"x"}, "Box-Delivery-Timestamp": {"x"}, "Box-Delivery-Id": {"x"}}, "", false},
		{"token in the query", `{"preset":"azure-event-grid"}`, nil, "/in?key=x", true},
		{"no token in the query", `{"preset":"azure-event-grid"}`, nil, "/in?k=x", false},
		{"signature in the body", `{"preset":"mailgun"}`, nil, "", true},
		{"code", `{"preset":"twilio"}`, http.Header{"X-Twilio-Signature": {"x"}}, "", true},
		{"code, no signature", `{"preset":"twilio"}`, nil, "", false},
	} {
		v := Verifier{Scheme: compile(t, test.scheme)}
		if got := v.Applies(Request{Method: "POST", URL: test.url, Header: test.header}); got != test.want {
			t.Errorf("%s: got %t", test.name, got)
		}
	}
	if (&Verifier{}).Applies(Request{Header: zhisou}) {
		t.Error("the zero Verifier applies")
	}
}

// A choice between schemes costs no memory on the way of every request.
func TestAppliesAllocatesNothing(t *testing.T) {
	v := Verifier{Scheme: compile(t, `{"preset":"stripe"}`)}
	r := Request{Header: http.Header{"Stripe-Signature": {"t=1,v1=x"}}}
	if n := testing.AllocsPerRun(100, func() { v.Applies(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A sender goes over from one scheme to another: each request says by its headers
// which one it is of.
func ExampleVerifier_Applies() {
	older, _ := Preset("zhisou-v1")
	newer, _ := Preset("standard-webhooks")
	r := Request{Method: "POST", Header: http.Header{
		"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {"1700000000"}, "Webhook-Signature": {"v1,AAAA"},
	}}
	for _, s := range []Scheme{older, newer} {
		v := Verifier{Scheme: s}
		fmt.Println(s.Name(), v.Applies(r))
	}
	// Output:
	// zhisou-v1 false
	// standard-webhooks true
}
