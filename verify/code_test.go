package verify

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"
)

// vectorNamed is a valid request that other code signed.
func vectorNamed(t testing.TB, name string) *vector {
	t.Helper()
	file, _, _ := strings.Cut(name, "/")
	for _, v := range readVectors(t, file+".json") {
		if v.Name == name {
			return &v
		}
	}
	t.Fatalf("no vector %s", name)
	return nil
}

// codeVectors are one request of each scheme that is read here.
var codeVectors = []string{
	"twilio/https-443-added", "twilio/json-bodySHA256-only", "adyen/item-event", "braintree/valid",
	"aws-sns/v2-notification", "aws-sns/v1-notification", "contentful/valid",
	"hook0/a-body-scheme-signature-verifies", "hook0/a-header-scheme-signature-verifies",
}

// otherSecret is as good as the vector's, but another.
func otherSecret(t testing.TB, v *vector) string {
	t.Helper()
	if !strings.HasPrefix(v.Secret, "-----BEGIN") {
		last := v.Secret[len(v.Secret)-1]
		return v.Secret[:len(v.Secret)-1] + string(last^1)
	}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pemText("PUBLIC KEY", der))
}

// The walk over keys and spans is that of all schemes.
func TestSchemesInCodeRotate(t *testing.T) {
	for _, name := range codeVectors {
		v := vectorNamed(t, name)
		s := compile(t, string(v.Scheme))
		now := time.Unix(v.NowUnix, 0)
		key := func(id, secret string, before, after time.Duration) Key {
			k, err := NewKey(id, []byte(secret), s.SecretSpec())
			if err != nil {
				t.Fatal(err)
			}
			if before != 0 {
				k.NotBefore = now.Add(before)
			}
			if after != 0 {
				k.NotAfter = now.Add(after)
			}
			return k
		}
		other := otherSecret(t, v)
		for _, test := range []struct {
			defect string
			keys   []Key
			reason Reason
			key    string
		}{
			{"the new key of two is not tried", []Key{key("old", other, 0, time.Hour), key("new", v.Secret, -time.Hour, 0)}, "", "new"},
			{"the old key of two is not tried", []Key{key("old", v.Secret, 0, time.Hour), key("new", other, -time.Hour, 0)}, "", "old"},
			{"an expired key is not named", []Key{key("old", v.Secret, 0, -1), key("new", other, 0, 0)}, ReasonKeyExpired, "old"},
			{"a coming key is not named", []Key{key("next", v.Secret, 1, 0), key("now", other, 0, 0)}, ReasonKeyNotYetValid, "next"},
			{"another key is taken", []Key{key("now", other, 0, 0)}, ReasonSignatureMismatch, ""},
		} {
			ver := Verifier{Scheme: s, Keys: testSet(t, test.keys...), URL: v.URL, Now: at(now)}
			if err := ver.Check(); err != nil {
				t.Errorf("%s: %s: %v", name, test.defect, err)
			}
			env, err := ver.Verify(v.request(t))
			if test.reason == "" {
				if err != nil || env.KeyID != test.key || env.Retiring != (test.key == "old") {
					t.Errorf("%s: %s: %+v, %v", name, test.defect, env, err)
				}
				continue
			}
			e, _ := err.(*Error)
			if e == nil || e.Reason != test.reason || e.KeyID != test.key || e.MACValid != (test.key != "") {
				t.Errorf("%s: %s: %v", name, test.defect, err)
			}
		}
	}
}

func TestFieldsThatCodeDoesNotRead(t *testing.T) {
	for text, field := range map[string]string{
		`{"algo":"code:nothing"}`: "algo",
		`{"algo":"code:twilio","signature":{"name":"X-Twilio-Signature"}}`:                 "signature",
		`{"algo":"code:twilio","template":"{body}"}`:                                       "template",
		`{"algo":"code:contentful","timestamp":{"from":"header:T"}}`:                       "timestamp",
		`{"algo":"code:twilio","tolerance_s":300}`:                                         "tolerance_s",
		`{"algo":"code:contentful","header":"X"}`:                                          "header",
		`{"algo":"code:hook0","header":"X Y"}`:                                             "header",
		`{"algo":"code:hook0","min_signature_version":2}`:                                  "min_signature_version",
		`{"algo":"code:sns","min_signature_version":3}`:                                    "min_signature_version",
		`{"algo":"code:sns","params":["webhook_id"]}`:                                      "params[0]",
		`{"algo":"code:sns","secret_spec":{"encoding":"utf8"}}`:                            "secret_spec.encoding",
		`{"algo":"code:plaid-jwt","key_id":{"from":"header:X"}}`:                           "key_id",
		`{"algo":"code:rfc9421","key_id":{"from":"header:X"}}`:                             "key_id",
		`{"algo":"code:adyen-item","secret_spec":{"encoding":"pem"}}`:                      "secret_spec.encoding",
		`{"algo":"code:hook0","id":{"from":"header:X-Event-Id","signed":true}}`:            "id.signed",
		`{"algo":"code:hook0","id":{"from":"header:X-Hook0-Signature"}}`:                   "id.from",
		`{"algo":"code:sns","id":{"from":"json:/Signature"}}`:                              "id.from",
		`{"algo":"code:adyen-item","id":{"from":"json:/live","signed":true}}`:              "id.signed",
		`{"algo":"code:braintree","event_type":{"from":"form:bt_signature"}}`:              "event_type.from",
		`{"algo":"code:contentful","id":{"from":"header:x-contentful_timestamp"}}`:         "id.from",
		`{"algo":"code:twilio","id":{"from":"header:I-Twilio-Token","signed":true}}`:       "id.signed",
		`{"algo":"code:braintree","id":{"from":"form:other","signed":true}}`:               "id.signed",
		`{"algo":"code:sns","id":{"from":"json:/Subject","signed":true}}`:                  "id.signed",
		`{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{body}","header":"X"}`: "header",
	} {
		r, err := ParseRecipe([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Compile()
		e, _ := err.(*RecipeError)
		if e == nil || e.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWhatSchemesInCodeSay(t *testing.T) {
	for _, test := range []struct {
		text, encoding, headers string
		url, body, time, id     bool
	}{
		{`{"algo":"code:twilio","id":{"from":"form:MessageSid"}}`, "utf8", "X-Twilio-Signature Content-Type", true, false, false, false},
		{`{"algo":"code:adyen-item","id":{"from":"json:/notificationItems/0/NotificationRequestItem/pspReference"}}`, "hex", "", false, false, false, true},
		{`{"algo":"code:braintree","id":{"from":"form:bt_payload"}}`, "utf8", "", false, false, false, true},
		{`{"algo":"code:sns","id":{"from":"json:/MessageId"}}`, "pem", "", false, false, false, true},
		{`{"algo":"code:contentful","id":{"from":"json:/sys/id"}}`, "utf8",
			"x-contentful-signature x-contentful-signed-headers x-contentful-timestamp", true, true, true, true},
		{`{"algo":"code:hook0","header":"X-Sig","id":{"from":"header:X-Event-Id"}}`, "utf8", "X-Sig X-Event-Id", false, true, true, false},
	} {
		s := compile(t, test.text)
		if got := s.SecretSpec().Encoding; got != test.encoding {
			t.Errorf("%s: encoding %s", test.text, got)
		}
		if got := strings.Join(s.Headers(), " "); got != test.headers {
			t.Errorf("%s: headers %s", test.text, got)
		}
		if s.NeedsURL() != test.url || s.BodySigned() != test.body || s.HasTimestamp() != test.time || s.IDSigned() != test.id {
			t.Errorf("%s: URL %t, body %t, timestamp %t, id %t", test.text, s.NeedsURL(), s.BodySigned(), s.HasTimestamp(), s.IDSigned())
		}
	}
	if w := compile(t, `{"algo":"code:sns"}`).Warnings(); len(w) != 1 || !strings.Contains(w[0], "topic_arn") {
		t.Errorf("a topic that nothing pins: %v", w)
	}
}

// Headers are judged before the body is there.
func TestSchemesInCodeRefuseByHeader(t *testing.T) {
	for _, test := range []struct {
		vector, defect string
		header, value  string
		reason         Reason
	}{
		{"twilio/https-443-added", "no base64", "X-Twilio-Signature", "#", ReasonSignatureMalformed},
		{"twilio/https-443-added", "nothing", "X-Twilio-Signature", "", ReasonSignatureMissing},
		{"contentful/valid", "upper case", "x-contentful-signature", strings.Repeat("A", 64), ReasonSignatureMalformed},
		{"contentful/valid", "a leading zero", "x-contentful-timestamp", "01700000000000", ReasonTimestampMalformed},
		{"contentful/valid", "old", "x-contentful-timestamp", "1699999969999", ReasonTimestampOutOfWindow},
		{"contentful/valid", "early", "x-contentful-timestamp", "1700000030001", ReasonTimestampOutOfWindow},
		{"contentful/valid", "no list", "x-contentful-signed-headers", "", ReasonHeaderMissing},
		{"contentful/valid", "a list without itself", "x-contentful-signed-headers", "x-contentful-timestamp", ReasonNotCovered},
		{"contentful/valid", "a list without the time", "x-contentful-signed-headers", "x-contentful-signed-headers", ReasonNotCovered},
		{"contentful/valid", "a name twice", "x-contentful-signed-headers", "x-contentful-signed-headers,x-contentful-timestamp,a,a", ReasonSignatureMalformed},
		{"contentful/valid", "no header name", "x-contentful-signed-headers", "x-contentful-signed-headers,x-contentful-timestamp,a b", ReasonSignatureMalformed},
		{"contentful/valid", "ten thousand names", "x-contentful-signed-headers", "x-contentful-signed-headers,x-contentful-timestamp" + manyNames(10000, ","), ReasonSignatureMalformed},
		{"contentful/valid", "33 names", "x-contentful-signed-headers", "x-contentful-signed-headers,x-contentful-timestamp" + manyNames(31, ","), ReasonSignatureMalformed},
		{"hook0/a-body-scheme-signature-verifies", "no time", "X-Hook0-Signature", "v0=" + strings.Repeat("0", 64), ReasonHeaderMissing},
		{"hook0/a-body-scheme-signature-verifies", "two times", "X-Hook0-Signature", "t=1800000000,t=1800000000,v0=" + strings.Repeat("0", 64), ReasonHeaderDuplicated},
		{"hook0/a-body-scheme-signature-verifies", "two lists", "X-Hook0-Signature", "t=1800000000,h=a,h=a,v1=" + strings.Repeat("0", 64), ReasonHeaderDuplicated},
		{"hook0/a-body-scheme-signature-verifies", "a plus sign", "X-Hook0-Signature", "t=+1800000000,v0=" + strings.Repeat("0", 64), ReasonTimestampMalformed},
		{"hook0/a-body-scheme-signature-verifies", "old", "X-Hook0-Signature", "t=1799999699,v0=" + strings.Repeat("0", 64), ReasonTimestampOutOfWindow},
		{"hook0/a-body-scheme-signature-verifies", "another scheme only", "X-Hook0-Signature", "t=1800000000,v2=" + strings.Repeat("0", 64), ReasonSignatureMalformed},
		{"hook0/a-body-scheme-signature-verifies", "no tag", "X-Hook0-Signature", "1800000000", ReasonSignatureMalformed},
		{"hook0/a-body-scheme-signature-verifies", "33 codes", "X-Hook0-Signature", "t=1800000000" + strings.Repeat(",v0="+strings.Repeat("0", 64), 33), ReasonSignatureMalformed},
		{"hook0/a-body-scheme-signature-verifies", "ten thousand codes", "X-Hook0-Signature", "t=1800000000" + strings.Repeat(",v0=0", 10000), ReasonSignatureMalformed},
		{"hook0/a-body-scheme-signature-verifies", "33 names", "X-Hook0-Signature", "t=1800000000,v1=" + strings.Repeat("0", 64) + ",h=a" + manyNames(32, " "), ReasonSignatureMalformed},
	} {
		v := vectorNamed(t, test.vector)
		ver, err := v.verifier(compile(t, string(v.Scheme)))
		if err != nil {
			t.Fatal(err)
		}
		r := v.request(t)
		r.Body = nil
		if err := ver.CheckHeader(r); err != nil {
			t.Errorf("%s: %v", test.vector, err)
		}
		r.Header[test.header] = []string{test.value}
		if err := ver.CheckHeader(r); reasonOf(err) != test.reason {
			t.Errorf("%s: %s: %v, want %s", test.vector, test.defect, err, test.reason)
		}
	}
}

func manyNames(n int, sep string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%sh%d", sep, i)
	}
	return b.String()
}

// What is signed by headers that the signature lists is not known before it is there.
func TestDeliveryIDIsSignedWhereItIsListed(t *testing.T) {
	for name, want := range map[string]bool{
		"hook0/a-body-scheme-signature-verifies":                             false,
		"hook0/a-header-scheme-signature-verifies":                           true,
		"hook0/the-covered-headers-are-read-in-the-order-the-signature-name": true,
	} {
		v := vectorNamed(t, name)
		ver, err := v.verifier(compile(t, `{"algo":"code:hook0","id":{"from":"header:X-Event-Id"}}`))
		if err != nil {
			t.Fatal(err)
		}
		env, err := ver.Verify(v.request(t))
		if err != nil || env.DeliveryID != "evt-1" || env.IDSigned != want {
			t.Errorf("%s: %+v, %v", name, env, err)
		}
	}
}
