package verify

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What SignRequest makes equals what the senders' own code made.
func TestSchemesInCodeSignTheVectors(t *testing.T) {
	for _, name := range []string{
		"twilio/https-443-added", "twilio/http-port", "twilio/multi-values-deduped", "twilio/json-bodySHA256-only",
		"adyen/item-event", "braintree/valid", "hook0/a-body-scheme-signature-verifies",
	} {
		v := vectorNamed(t, name)
		ver, err := v.verifier(compile(t, string(v.Scheme)))
		if err != nil {
			t.Fatal(err)
		}
		want := v.request(t)
		r := v.request(t)
		if v.Name == "twilio/https-443-added" {
			ver.URL = strings.Replace(ver.URL, ".com", ".com:443", 1) // signed as configured
		}
		r.Header = http.Header{"Content-Type": r.Header["Content-Type"]}
		r.Body = bytes.Replace(r.Body, []byte(`"hmacSignature":"ipnxGCaUZ4l8TUW75a71/ghd2Fe5ffvX0pV4TLTntIc="`), nil, 1)
		r.Body = bytes.Replace(r.Body, []byte("bt_signature=integration_public_key%7Cfde05ee185871053c6185af6a90b62ac0b4fa5d3&"), nil, 1)
		got, err := ver.SignRequest(r, SignOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, header := range []string{"X-Twilio-Signature", "X-Hook0-Signature"} {
			a, _, _ := headerValue(got.Header, header)
			if b, _, _ := headerValue(want.Header, header); a != b {
				t.Errorf("%s: %s, want %s", name, a, b)
			}
		}
		if len(got.Body) != len(want.Body) || got.URL != want.URL {
			t.Errorf("%s: %s %s", name, got.URL, got.Body)
		}
		if _, err := ver.SignRequest(got, SignOptions{}); err == nil {
			t.Errorf("%s: was signed twice", name)
		}
	}
}

func TestSchemesInCodeSignWhatTheyVerify(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := x509.MarshalPKCS8PrivateKey(private)
	pem := string(pemText("PRIVATE KEY", der))
	json, form := http.Header{"Content-Type": {"application/json"}}, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	payload := base64.StdEncoding.EncodeToString([]byte("<n/>"))
	for _, test := range []struct {
		recipe, secret string
		r              Request
		id             string // what Verify finds
	}{
		{`{"algo":"code:twilio"}`, testSecret, Request{Header: form, Body: []byte("b=2&a=1"), URL: "/in?q=1"}, ""},
		{`{"algo":"code:twilio"}`, testSecret, Request{Header: json, Body: []byte(`{"a":1}`), URL: "/in?q=1"}, ""},
		{`{"algo":"code:twilio"}`, testSecret, Request{Header: json, Body: []byte(`{"a":1}`)}, ""},
		{`{"algo":"code:adyen-item"}`, strings.Repeat("aB", 32), Request{Body: adyenItemsBody(`{"pspReference":"a","merchantReference":"a:b","amount":{"value":10}}`, `{"additionalData":{"x":"y"},"success":true}`)}, ""},
		{`{"algo":"code:braintree"}`, "public|private", Request{Body: []byte("bt_payload=" + payload + "%0A")}, ""},
		{`{"algo":"code:sns","params":["topic_arn"],"id":{"from":"json:/MessageId"}}`, pem, Request{Body: []byte(`{"Message":"<é>"}`)}, "dlv_1"},
		{`{"algo":"code:sns","id":{"from":"json:/MessageId"}}`, pem, Request{Body: []byte(`{"Message":"m","Subject":"s","SignatureVersion":"1","MessageId":"own"}`)}, "own"},
		{`{"algo":"code:contentful"}`, testSecret, Request{Method: "POST", Body: []byte(`{}`), URL: "/in?q=1", Header: http.Header{"X-Contentful-Topic": {"a"}}}, ""},
		{`{"algo":"code:contentful","id":{"from":"header:X-Id"}}`, testSecret, Request{Method: "POST", Body: []byte(`{}`)}, "dlv_1"},
		{`{"algo":"code:hook0"}`, testSecret, Request{Body: []byte(`{}`)}, ""},
		{`{"algo":"code:hook0","header":"X-Sig","id":{"from":"header:X-Event-Id"}}`, testSecret, Request{Body: []byte(`{}`)}, "dlv_1"},
	} {
		s := compile(t, test.recipe)
		k, err := NewKey("k1", []byte(test.secret), s.SecretSpec())
		if err != nil {
			t.Fatal(err)
		}
		ver := Verifier{
			Scheme: s, Keys: testSet(t, k), Now: at(t0), URL: "https://hooks.example.com/in",
			Params: map[string]string{snsTopic: "arn:aws:sns:eu-west-1:1:t"},
		}
		before := fmt.Sprint(test.r)
		r, err := ver.SignRequest(test.r, SignOptions{DeliveryID: "dlv_1"})
		if err != nil {
			t.Errorf("%s: %v", test.recipe, err)
			continue
		}
		env, err := ver.Verify(r)
		if err != nil || env.DeliveryID != test.id || s.HasTimestamp() && !env.Time.Equal(t0) {
			t.Errorf("%s: %+v, %v", test.recipe, env, err)
		}
		if fmt.Sprint(test.r) != before {
			t.Errorf("%s: the request was changed", test.recipe)
		}
	}
}
