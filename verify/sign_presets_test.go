package verify

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// signer makes keys for every algorithm, the slow ones once.
type signer struct{ private, public map[family]Key }

func newSigner(t *testing.T) *signer {
	t.Helper()
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{map[family]Key{}, map[family]Key{}}
	for f, private := range map[family]any{familyEd25519: ed, familyECDSA: ec, familyRSA: rs} {
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		if s.private[f], err = NewKey("k1", pemText("PRIVATE KEY", der), SecretSpec{Encoding: "pem"}); err != nil {
			t.Fatal(err)
		}
		if der, err = x509.MarshalPKIXPublicKey(s.private[f].Secret.data().public.key); err != nil {
			t.Fatal(err)
		}
		if s.public[f], err = NewKey("k1", pemText("PUBLIC KEY", der), SecretSpec{Encoding: "pem"}); err != nil {
			t.Fatal(err)
		}
	}
	for f := familyHMAC; f <= familyBasic; f++ {
		k, err := NewKey("k1", []byte("user:01|23456789abcdef0123456789abcdef"), SecretSpec{})
		if err != nil {
			t.Fatal(err)
		}
		s.private[f], s.public[f] = k, k
	}
	return s
}

// unsigned is a request with all that only the sender of this scheme knows.
func unsigned(s Scheme) Request {
	r := Request{Method: "POST", URL: "/in?a=1", Header: http.Header{"Other": {"x"}}}
	r.Body = fmt.Appendf(nil, `{"id": "evt_1", "webhookTimestamp": %d, "value": [{"s": 1}], "type": "a.b"}`, t0.UnixMilli())
	for i := range s.p.parts {
		p := &s.p.parts[i]
		switch {
		case p.kind == partFormSorted, p.kind == partPlace && p.place.kind == placeForm:
			r.Body = []byte("payload=%7B%22id%22%3A1%7D&b=2+3")
		case p.kind == partPlace && p.place.kind == placeHeader && !s.p.makes(&p.place):
			r.Header.Set(p.place.name, "nonce_1")
		}
	}
	switch s.Name() {
	case "adyen":
		r.Body = []byte(`{"notificationItems":[{"NotificationRequestItem":{"pspReference":"p1","amount":{"value":1}}},{"NotificationRequestItem":{"success":"true"}}]}`)
	case "aws-sns":
		r.Body = []byte(`{"Message":"m1"}`)
	case "braintree":
		r.Body = []byte("bt_payload=YWJj%0A")
	case "plivo-v3":
		r.Body = []byte("To=1&From=2")
	case "twilio":
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// coveredByCode are places, besides the signature and a body that is signed whole,
// that schemes in code cover.
var coveredByCode = map[string][]string{
	"adyen": {
		"json:notificationItems.0.NotificationRequestItem.pspReference", "json:notificationItems.0.NotificationRequestItem.amount.value",
		"json:notificationItems.1.NotificationRequestItem.success", "json:notificationItems.1.NotificationRequestItem.additionalData.hmacSignature",
	},
	"aws-sns":    {"json:Message", "json:MessageId", "json:TopicArn", "json:Timestamp", "json:Type"},
	"braintree":  {"form:bt_payload"},
	"contentful": {"header:x-contentful-timestamp", "header:x-contentful-signed-headers"},
	"hook0":      {"header:X-Event-Id"},
	"plivo-v3":   {"header:X-Plivo-Signature-V3-Nonce", "form:To", "form:From"},
	"rfc9421":    {"header:Signature-Input", "header:Content-Digest"},
	"twilio":     {"query:bodySHA256"},
}

// makes says whether Sign makes a header.
func (p *program) makes(h *place) bool {
	return p.timestamp != nil && p.timestamp.from.kind == placeHeader && p.timestamp.from.slot == h.slot ||
		p.id != nil && p.id.template == nil && p.id.from[0].kind == placeHeader && p.id.from[0].slot == h.slot
}

// What SignRequest makes for a preset verifies, and no byte of it that is covered
// can change.
func TestEveryPresetSigns(t *testing.T) {
	keys := newSigner(t)
	signed := 0
	for _, name := range Presets() {
		s, _ := Preset(name)
		if s.p.code != nil && s.p.code.sign == nil {
			continue
		}
		signed++
		t.Run(name, func(t *testing.T) {
			sender := Verifier{
				Scheme: s, Keys: testSet(t, keys.private[s.p.algo.family]), Now: at(t0),
				URL: "https://hooks.example.com/in", Params: map[string]string{"webhook_id": "WH-1", "topic_arn": "arn:x"},
			}
			base := unsigned(s)
			before := fmt.Sprint(base)
			r, err := sender.SignRequest(base, SignOptions{DeliveryID: idFor(s)})
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(base) != before {
				t.Errorf("the request was changed: %v", base)
			}
			receiver := sender
			receiver.Keys = testSet(t, keys.public[s.p.algo.family])
			if err := receiver.Check(); err != nil {
				t.Fatal(err)
			}
			env, err := receiver.Verify(r)
			if err != nil {
				t.Fatal(err)
			}
			if env.MetaError == "" && s.HasDeliveryID() && env.DeliveryID == "" || s.HasTimestamp() && !env.Time.Equal(t0) {
				t.Errorf("%+v", env)
			}
			flipAll(t, &receiver, r)
			sameHeaders(t, &sender, base, r)
		})
	}
	if signed < 109 {
		t.Errorf("only %d presets sign", signed)
	}
}

// idFor is a delivery id of which any byte can change into one of another.
func idFor(s Scheme) string {
	if s.p.id != nil && s.p.id.template != nil {
		return "https://src/dlv1"
	}
	return "dlv1"
}

// sameHeaders holds that Sign and SignRequest agree, or Sign has no signer.
func sameHeaders(t *testing.T, v *Verifier, base, signed Request) {
	t.Helper()
	h, err := v.Sign(base, SignOptions{DeliveryID: idFor(v.Scheme)})
	if signed.URL != base.URL || !bytes.Equal(signed.Body, base.Body) {
		if !errors.Is(err, ErrNoSigner) {
			t.Errorf("signature in body or URL: %v", err)
		}
		return
	}
	if err != nil || len(h)+len(base.Header) != len(signed.Header) {
		t.Errorf("headers %v, %v, in the request %v", h, err, signed.Header)
	}
}

// flipAll changes each covered byte, and some that are not covered.
func flipAll(t *testing.T, v *Verifier, r Request) {
	t.Helper()
	p := v.Scheme.p
	try := func(what string, covered bool, changed Request) {
		t.Helper()
		if _, err := v.Verify(changed); (err == nil) == covered {
			t.Errorf("%s changed: %v", what, err)
		}
	}
	header := func(name string, covered bool) {
		value := r.Header.Get(name)
		for i := range value {
			c := r
			c.Header = r.Header.Clone()
			c.Header.Set(name, flipAt(value, i))
			try(fmt.Sprintf("%s at %d", name, i), covered, c)
		}
	}
	body := func(from, to int, covered bool) {
		for i := from; i < to; i++ {
			c := r
			c.Body = []byte(flipAt(string(r.Body), i))
			try(fmt.Sprintf("body at %d", i), covered, c)
		}
	}
	value := func(q *place) { // in the body or the query
		switch q.kind {
		case placeJSON:
			text, _, err := jsonFind(r.Body, q.path, depthVerified)
			at := bytes.Index(r.Body, []byte(`"`+text+`"`)) + 1
			if at == 0 {
				at = bytes.LastIndex(r.Body, []byte(text))
			}
			if err != nil || at < 0 {
				t.Fatalf("%s: %v", q, err)
			}
			body(at, at+len(text), true)
		case placeForm:
			at := bytes.Index(r.Body, []byte(q.name+"=")) + len(q.name) + 1
			body(at, at+bytes.IndexByte(append(r.Body[at:len(r.Body):len(r.Body)], '&'), '&'), true)
		case placeQuery:
			at := strings.Index(r.URL, q.name+"=") + len(q.name) + 1
			for i := at; i < len(r.URL); i++ {
				c := r
				c.URL = flipAt(r.URL, i)
				try(fmt.Sprintf("URL at %d", i), true, c)
			}
		}
	}
	sig := &p.signature.places[0]
	if sig.kind == placeHeader {
		header(sig.name, true)
	} else {
		value(sig)
	}
	whole, parts, query := p.bodySigned, false, p.code != nil && p.needsURL && v.Scheme.Name() != "rfc9421" // which covers the path
	if v.Scheme.Name() == "twilio" {
		whole = true // by its hash in the URL
	}
	for _, text := range coveredByCode[v.Scheme.Name()] {
		q, err := parsePlace(text)
		if err != nil {
			t.Fatal(err)
		}
		if parts = true; q.kind == placeHeader {
			header(q.name, true)
		} else {
			value(&q)
		}
	}
	for i := range p.parts {
		switch q := &p.parts[i]; q.kind {
		case partFormSorted, partBodyCRC32:
			whole = true
		case partURL, partQueryRaw:
			query = true
		case partMethod:
			c := r
			c.Method = "PUT"
			try("method", true, c)
		case partPlace:
			parts = parts || q.place.kind != placeHeader && q.place.kind != placeSig
			if q.place.kind == placeHeader {
				header(q.place.name, true)
			} else {
				value(&q.place)
			}
		}
	}
	if whole {
		body(0, len(r.Body), true)
	} else if !parts {
		c := r
		c.Body = append(slices.Clone(r.Body), ' ')
		try("body", false, c)
	}
	c := r
	c.URL = strings.Replace(r.URL, "a=1", "a=2", 1)
	try("query", query, c)
	if p.id != nil && p.id.template == nil && p.id.from[0].kind == placeHeader && !p.id.signed && p.code == nil {
		header(p.id.from[0].name, false)
	}
}

// flipAt changes a byte so that a hexadecimal digit stays none of its other case.
func flipAt(s string, i int) string { return s[:i] + string(s[i]^1) + s[i+1:] }
