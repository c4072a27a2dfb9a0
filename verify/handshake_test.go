package verify

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// signedBySender are the pairs whose sender signs the request, although it stands
// there without a signature.
var signedBySender = []string{
	"slack/url_verification", "twitch/callback_verification", "azure-eventgrid/validation",
	"discord/webhook-ping", "discord/interaction-ping", "aws-sns/subscription",
}

var handshakeTime = time.Unix(1700000000, 0)

// shaker is a verifier that answers the handshakes of a preset.
func shaker(t testing.TB, preset, secret string) *Verifier {
	t.Helper()
	s, ok := Preset(preset)
	if !ok {
		t.Fatalf("there is no preset %s", preset)
	}
	v := &Verifier{Scheme: s, Now: func() time.Time { return handshakeTime }, URL: "https://hooks.example.com/in"}
	v.Handshakes.Origins = []string{"other.example.com", "eventemitter.example.com", "shop.example.com"}
	if s.HasHandshake("enrol") {
		v.Handshakes.EnrolUntil = handshakeTime.Add(time.Minute)
		return v
	}
	if secret == "" {
		secret = strings.Repeat("s", 40)
	}
	text, spec := []byte(secret), s.SecretSpec()
	switch preset {
	case "discord":
		text, spec.Encoding = ed25519PEM(t), "pem"
	case "aws-sns":
		text = rsaPEM(t)
		v.Params = map[string]string{"topic_arn": "arn:aws:sns:us-west-2:123456789012:MyTopic"}
	}
	k, err := NewKey("k1", text, spec)
	if err != nil {
		t.Fatal(err)
	}
	if v.Keys, err = NewKeySet(k); err != nil {
		t.Fatal(err)
	}
	token, err := NewKey("", []byte(secret), SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	v.Handshakes.Token = token.Secret
	return v
}

func ed25519PEM(t testing.TB) []byte {
	t.Helper()
	return privatePEM(t, ed25519.NewKeyFromSeed(make([]byte, 32)))
}

func rsaPEM(t testing.TB) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return privatePEM(t, key)
}

func privatePEM(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// bySender adds what the sender adds.
func bySender(t testing.TB, v *Verifier, r Request) Request {
	t.Helper()
	if v.Scheme.Name() == "azure-event-grid" {
		r.URL += "?key=" + strings.Repeat("s", 40)
		return r
	}
	if v.Scheme.Name() == "aws-sns" { // the body of the pair stands for another
		r.Body = []byte(`{"Type":"SubscriptionConfirmation","Token":"t","Message":"m","SubscribeURL":"https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription"}`)
	}
	r, err := v.SignRequest(r, SignOptions{DeliveryID: "msg_1", Time: handshakeTime})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// How one request comes to be refused, or to be no handshake.
func TestHandshakesAreBounded(t *testing.T) {
	const in = "https://hooks.example.com/in"
	get := func(query string) Request { return Request{Method: "GET", URL: in + "?" + query} }
	post := func(body string) Request { return Request{Method: "POST", URL: in, Body: []byte(body)} }
	for _, c := range []struct {
		defect, preset string
		request        Request
		sign           bool
		want           Reason // "": it is no handshake
	}{
		{"script in the challenge", "dropbox", get("challenge=%3Cscript%3E"), false, ReasonHandshakeRefused},
		{"quote in the challenge", "dropbox", get("challenge=a%22b"), false, ReasonHandshakeRefused},
		{"line end in the challenge", "dropbox", get("challenge=a%0d%0aSet-Cookie:x"), false, ReasonHandshakeRefused},
		{"é in the challenge", "dropbox", get("challenge=%C3%A9"), false, ReasonHandshakeRefused},
		{"257 characters", "dropbox", get("challenge=" + strings.Repeat("a", 257)), false, ReasonHandshakeRefused},
		{"challenge twice", "dropbox", get("challenge=a&challenge=b"), false, ReasonHandshakeRefused},
		{"broken escape", "dropbox", get("challenge=%zz"), false, ReasonHandshakeRefused},
		{"challenge empty", "dropbox", get("challenge="), false, ReasonHandshakeRefused},
		{"challenge absent", "dropbox", get("chal=1"), false, ""},
		{"another method", "dropbox", Request{Method: "HEAD", URL: in + "?challenge=a"}, false, ""},
		{"a scheme without handshakes", "github", get("challenge=abc"), false, ""},
		{"no token", "meta-whatsapp", get("hub.mode=subscribe&hub.challenge=1"), false, ReasonHandshakeRefused},
		{"token with more behind", "meta-whatsapp", get("hub.mode=subscribe&hub.challenge=1&hub.verify_token=" + strings.Repeat("s", 41)), false, ReasonHandshakeRefused},
		{"token twice", "meta-whatsapp", get("hub.mode=subscribe&hub.challenge=1&hub.verify_token=a&hub.verify_token=" + strings.Repeat("s", 40)), false, ReasonHandshakeRefused},
		{"another mode", "meta-whatsapp", get("hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=" + strings.Repeat("s", 40)), false, ""},
		{"token in the body differs", "lark-feishu", post(`{"type":"url_verification","token":"x","challenge":"c"}`), false, ReasonHandshakeRefused},
		{"JSON as token", "x-twitter", get("crc_token=%7B%22a%22%3A1%7D"), false, ReasonHandshakeRefused},
		{"list as token", "x-twitter", get("crc_token=%5B%5D"), false, ReasonHandshakeRefused},
		{"signed text of another scheme as token", "x-twitter", get("crc_token=v0:1700000000:a"), false, ReasonHandshakeRefused},
		{"129 characters", "x-twitter", get("crc_token=" + strings.Repeat("a", 129)), false, ReasonHandshakeRefused},
		{"a form as token", "x-twitter", get("crc_token=a%26b"), false, ReasonHandshakeRefused},
		{"zoom's signed text as token", "zoom", post(`{"event":"endpoint.url_validation","payload":{"plainToken":"v0:1700000000:{}"}}`), true, ReasonHandshakeRefused},
		{"zoom unsigned", "zoom", post(`{"event":"endpoint.url_validation","payload":{"plainToken":"abc"}}`), false, ReasonSignatureMissing},
		{"challenge too long, rightly signed", "slack", post(`{"type":"url_verification","challenge":"` + strings.Repeat("a", 257) + `"}`), true, ReasonHandshakeRefused},
		{"challenge of markup, rightly signed", "slack", post(`{"type":"url_verification","challenge":"<b>"}`), true, ReasonHandshakeRefused},
		{"challenge is true", "monday", post(`{"challenge":true}`), false, ReasonHandshakeRefused},
		{"challenge stands twice", "lark-feishu", post(`{"type":"url_verification","token":"` + strings.Repeat("s", 40) + `","challenge":"a","challenge":"b"}`), false, ""},
		{"origin of another", "cloudevents", Request{Method: "OPTIONS", URL: in, Header: http.Header{"Webhook-Request-Origin": {"evil.example.com"}}}, false, ReasonHandshakeRefused},
		// ſ is an s to whom compares without case.
		{"origin in other letters", "cloudevents", Request{Method: "OPTIONS", URL: in, Header: http.Header{"Webhook-Request-Origin": {"\u017fhop.example.com"}}}, false, ReasonHandshakeRefused},
		{"origin twice", "cloudevents", Request{Method: "OPTIONS", URL: in, Header: http.Header{"Webhook-Request-Origin": {"other.example.com", "other.example.com"}}}, false, ReasonHandshakeRefused},
		{"rate is no number", "cloudevents", Request{Method: "OPTIONS", URL: in, Header: http.Header{
			"Webhook-Request-Origin": {"other.example.com"}, "Webhook-Request-Rate": {"12\r\nX: y"}}}, false, ReasonHandshakeRefused},
		{"no origin", "cloudevents", Request{Method: "OPTIONS", URL: in}, false, ""},
	} {
		t.Run(c.defect, func(t *testing.T) {
			v := shaker(t, c.preset, "")
			r := c.request
			if c.sign {
				r = bySender(t, v, r)
			}
			a, ok, err := v.Handshake(r)
			var refused *Error
			switch {
			case errors.As(err, &refused):
				if refused.Reason != c.want {
					t.Errorf("%v, want %q", err, c.want)
				}
			case ok:
				t.Errorf("answered %d %s", a.Status, a.Body)
			case c.want != "":
				t.Errorf("is no handshake, want %s", c.want)
			}
		})
	}
}

// What looks like a handshake and is a delivery is not swallowed.
func TestDeliveriesAreNoHandshakes(t *testing.T) {
	for preset, bodies := range map[string][]string{
		"discord":         {`{"type":1,"event":{"type":"ENTITLEMENT_CREATE"}}`, `{"type":2}`, `{"event":{"type":1}}`, `not JSON`, `{"type":1,"type":1}`},
		"xero":            {`{"events":[{"eventId":1}],"lastEventSequence":1}`, `{"events":[{}],"lastEventSequence":0}`, `{"lastEventSequence":7}`, `[]`, ``},
		"slack":           {`{"type":"event_callback","challenge":"abc"}`, `{"event":{"type":"url_verification"},"challenge":"abc"}`, `{"type":"url_verification"}`},
		"zoom":            {`{"event":"meeting.started","payload":{"plainToken":"abc"}}`},
		"twitch-eventsub": {`{"challenge":"abc"}`},
	} {
		v := shaker(t, preset, "")
		for _, body := range bodies {
			r := bySender(t, v, Request{Method: "POST", URL: "https://hooks.example.com/in", Body: []byte(body)})
			if a, ok, err := v.Handshake(r); ok || err != nil {
				t.Errorf("%s: %s: answered %+v, %v", preset, body, a, err)
			}
			if env, a, err := v.Receive(r); err != nil || a.Kind != "" || env.KeyID != "k1" {
				t.Errorf("%s: %s: Receive gives %+v, %+v, %v", preset, body, env, a, err)
			}
		}
	}
}

// A MAC that anybody can ask for signs no body: not the challenge itself, which
// may be a JSON number, and nothing else, since it is a MAC of the challenge.
func TestKeyedAnswersSignNoDelivery(t *testing.T) {
	v := shaker(t, "x-twitter", "")
	for _, token := range []string{"1", "123", "true", "null", "abc", "a=b", strings.Repeat("a", 128), "9b4507b3-9040-4669-9ca3-6b94edb50553"} {
		a, ok, err := v.Handshake(Request{Method: "GET", URL: "/in?crc_token=" + token})
		if !ok || err != nil {
			t.Fatalf("%s: %v %v", token, ok, err)
		}
		var answer struct {
			Token string `json:"response_token"`
		}
		if err := json.Unmarshal(a.Body, &answer); err != nil {
			t.Fatal(err)
		}
		forged := Request{Method: "POST", URL: "/in", Body: []byte(token), Header: http.Header{"X-Twitter-Webhooks-Signature": {answer.Token}}}
		var refused *Error
		if env, err := v.Verify(forged); !errors.As(err, &refused) || refused.Reason != ReasonSignatureMismatch {
			t.Errorf("a delivery %s was taken on a keyed answer: %+v, %v", token, env, err)
		}
	}
	// What no answer can sign is a delivery still.
	for _, body := range []string{`{}`, `[]`, `"a"`, "1 ", strings.Repeat("a", 129), "1.5", ""} {
		r := Request{Method: "POST", URL: "/in", Body: []byte(body)}
		if _, err := v.Verify(bySender(t, v, r)); err != nil {
			t.Errorf("body %.20q: %v", body, err)
		}
	}
}

func TestEnrolmentNeedsAnOpenTime(t *testing.T) {
	v := shaker(t, "asana", "")
	const secret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81"
	offer := func(secret string) Request {
		return Request{Method: "POST", URL: "/in", Header: http.Header{"X-Hook-Secret": {secret}}, Body: []byte("{}")}
	}
	a, ok, err := v.Handshake(offer(secret))
	if !ok || err != nil || string(a.Offer()) != secret {
		t.Fatalf("%v %v, offer %q", ok, err, a.Offer())
	}
	for defect, change := range map[string]func(*Verifier, *Request){
		"never opened":       func(v *Verifier, _ *Request) { v.Handshakes.EnrolUntil = time.Time{} },
		"over":               func(v *Verifier, _ *Request) { v.Handshakes.EnrolUntil = handshakeTime },
		"a secret of 15":     func(_ *Verifier, r *Request) { *r = offer(secret[:15]) },
		"a secret of 257":    func(_ *Verifier, r *Request) { *r = offer(strings.Repeat("a", 257)) },
		"blank in a secret":  func(_ *Verifier, r *Request) { *r = offer(secret[:20] + " " + secret[21:]) },
		"two secrets":        func(_ *Verifier, r *Request) { r.Header["X-Hook-Secret"] = []string{secret, secret} },
		"line end in secret": func(_ *Verifier, r *Request) { *r = offer(secret + "\n") },
	} {
		w, r := *v, offer(secret)
		change(&w, &r)
		var refused *Error
		if a, ok, err := w.Handshake(r); !ok || !errors.As(err, &refused) || refused.Reason != ReasonHandshakeRefused || a.Offer() != nil {
			t.Errorf("%s: %v, %v", defect, ok, err)
		}
	}
	// Who signs has a key; this is a delivery, and here one that does not verify.
	r := offer(secret)
	r.Header["X-Hook-Signature"] = []string{strings.Repeat("0", 64)}
	if _, ok, _ := v.Handshake(r); ok {
		t.Error("a signed request was taken for the hand-over of a secret")
	}
	if _, err := v.Verify(offer(secret)); err == nil {
		t.Error("without keys something verified")
	}
	for defect, change := range map[string]func(*Verifier){
		"open for more than an hour":   func(v *Verifier) { v.Handshakes.EnrolUntil = handshakeTime.Add(time.Hour + 1) },
		"open and off":                 func(v *Verifier) { v.Handshakes.Off = true },
		"no keys, and not open either": func(v *Verifier) { v.Handshakes.EnrolUntil = time.Time{} },
		"a scheme that hands over none": func(v *Verifier) {
			v.Scheme, _ = Preset("github")
		},
	} {
		w := *v
		if change(&w); w.Check() == nil {
			t.Errorf("%s was taken", defect)
		}
	}
}

func TestConfirmOnlyKnownHosts(t *testing.T) {
	for _, good := range []string{
		"https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&Token=1",
		"https://sns.cn-north-1.amazonaws.com.cn/?Action=ConfirmSubscription",
		"https://rp-eastus2.eventgrid.azure.net:553/eventsubscriptions/a/validate?id=1",
	} {
		if !confirmable(good) {
			t.Errorf("%s was refused", good)
		}
	}
	for _, bad := range []string{
		"http://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription",
		"https://sns.us-west-2.amazonaws.com.evil.example/", "https://evil.example/?sns.us-west-2.amazonaws.com",
		"https://sns.us-west-2.amazonaws.com@evil.example/", "https://sns.us-west-2.amazonaws.com:22/",
		"https://evil.example#.eventgrid.azure.net", "https://evil.example\\.eventgrid.azure.net/",
		"https://169.254.169.254/", "https://eventgrid.azure.net/", "https://xeventgrid.azure.net/", "//sns.us-west-2.amazonaws.com/",
		"https://sns.us-west-2.amazonaws.com/ x", "https://sns.us-west-2.amazonaws.com/" + strings.Repeat("a", 2048), "",
		"https://user:word@sns.us-west-2.amazonaws.com/", "https://@sns.us-west-2.amazonaws.com/",
		`https://sns.us-west-2.amazonaws.com/\evil.example`,
		"https://sns.us-west-2.amazonaws.com/#f", "https:sns.us-west-2.amazonaws.com",
	} {
		if confirmable(bad) {
			t.Errorf("%s would be called", bad)
		}
	}
	v := shaker(t, "azure-event-grid", "")
	post := func(url string) Request {
		return bySender(t, v, Request{Method: "POST", URL: "/in", Header: http.Header{"Aeg-Event-Type": {"SubscriptionValidation"}},
			Body: []byte(`[{"data":{"validationUrl":"` + url + `"}}]`)})
	}
	const validate = "https://rp-eastus2.eventgrid.azure.net:553/validate?id=1"
	if a, ok, err := v.Handshake(post(validate)); !ok || err != nil || a.Confirm != validate || a.Status != 200 || len(a.Body) > 0 {
		t.Errorf("%v %v %+v", ok, err, a)
	}
	// A host of another sender is not in the preset's pattern.
	if a, ok, err := v.Handshake(post("https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&Token=1")); err == nil {
		t.Errorf("%v %+v", ok, a)
	}
}

func TestHandshakesCanBeOff(t *testing.T) {
	v := shaker(t, "dropbox", "")
	r := Request{Method: "GET", URL: "/in?challenge=abc"}
	if !v.MayHandshake(r) {
		t.Error("MayHandshake denies one")
	}
	v.Handshakes.Off = true
	if _, ok, err := v.Handshake(r); ok || err != nil || v.MayHandshake(r) {
		t.Errorf("answered although off: %v, %v", ok, err)
	}
	var zero Verifier
	if _, ok, err := zero.Handshake(r); ok || err == nil || zero.MayHandshake(r) {
		t.Error("the zero Verifier answers")
	}
}

// Whether the body must be read before an unsigned request is refused.
func TestMayHandshakeReadsNoBody(t *testing.T) {
	post := Request{Method: "POST", URL: "/in"}
	for _, c := range []struct {
		preset  string
		request Request
		want    bool
	}{
		{"lark-feishu", post, true},
		{"notion", post, true},
		{"slack", post, false}, // signed, so its header decides
		{"asana", post, false},
		{"asana", Request{Method: "POST", Header: http.Header{"x-hook-secret": {"x"}}}, true},
		{"microsoft-graph", post, false},
		{"microsoft-graph", Request{Method: "POST", URL: "/in?validationToken=a"}, true},
		{"github", post, false},
		{"trello", Request{Method: "HEAD", URL: "/in"}, true},
		{"trello", Request{Method: "GET", URL: "/in"}, false},
	} {
		if got := shaker(t, c.preset, "").MayHandshake(c.request); got != c.want {
			t.Errorf("%s %s %s: %v, want %v", c.preset, c.request.Method, c.request.URL, got, c.want)
		}
	}
	v := shaker(t, "notion", "")
	long := Request{Method: "POST", URL: "/in", Body: []byte(`{"verification_token":"` + strings.Repeat("a", 32) + `","x":"` + strings.Repeat("x", MaxHandshakeBody) + `"}`)}
	if _, ok, _ := v.Handshake(long); ok {
		t.Error("a body beyond MaxHandshakeBody was looked at")
	}
}

// The pair of handshakes.json names this vector in place of a body.
func TestSubscriptionOfSNSIsConfirmed(t *testing.T) {
	for _, vec := range readVectors(t, "aws-sns.json") {
		if vec.Name != "aws-sns/subscription" {
			continue
		}
		s, _ := Preset("aws-sns")
		v, err := vec.verifier(s)
		if err != nil {
			t.Fatal(err)
		}
		a, ok, err := v.Handshake(vec.request(t))
		if !ok || err != nil || a.Status != 200 || len(a.Body) != 0 || a.Confirm != "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription" {
			t.Errorf("%v %v %+v", ok, err, a)
		}
		v.Params = map[string]string{"topic_arn": "arn:aws:sns:us-west-2:210987654321:Other"}
		if a, _, err := v.Handshake(vec.request(t)); err == nil {
			t.Errorf("the topic of another account would be confirmed: %+v", a)
		}
		return
	}
	t.Fatal("no vector aws-sns/subscription")
}

// A key that the scheme does not take answers nothing either.
func TestKeyedAnswerNeedsAUsableKey(t *testing.T) {
	v := shaker(t, "x-twitter", "short")
	r := Request{Method: "GET", URL: "/in?crc_token=abc"}
	if _, ok, err := v.Handshake(r); !ok || err != nil {
		t.Fatal(ok, err)
	}
	v.Scheme = compile(t, `{"preset":"x-twitter","secret_spec":{"min_len":32}}`)
	if a, _, err := v.Handshake(r); err == nil {
		t.Errorf("answered with a short key: %s", a.Body)
	}
}

// Braintree's payload is base64, and so is a challenge.
func TestKeyedAnswerSignsNoPayload(t *testing.T) {
	v := shaker(t, "braintree", "integration_public_key|integration_private_key")
	const challenge = "20f9f8ed05f77439fe955c977e4c8a53"
	a, ok, err := v.Handshake(Request{Method: "GET", URL: "/in?bt_challenge=" + challenge})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, bad := range []string{challenge + "0", "20F9F8ED05F77439FE955C977E4C8A53", challenge[:19], "PG5vdGlmaWNhdGlvbj48a2luZA=="} {
		if a, _, err := v.Handshake(Request{Method: "GET", URL: "/in?bt_challenge=" + bad}); err == nil {
			t.Errorf("%s was answered: %s", bad, a.Body)
		}
	}
	// Nor does a recipe without a pattern make it an oracle.
	loose := *v
	loose.Scheme = compile(t, `{"preset":"braintree","handshake":[{"kind":"keyed_answer","method":"GET","from":"query:bt_challenge","answer":{"body":"{public}|{mac_hex}"}}]}`)
	if a, _, err := loose.Handshake(Request{Method: "GET", URL: "/in?bt_challenge=PG5vdGlmaWNhdGlvbj48a2luZA=="}); err == nil {
		t.Errorf("a payload was signed: %s", a.Body)
	}
	form := url.Values{"bt_signature": {string(a.Body)}, "bt_payload": {challenge}}
	r := Request{Method: "POST", URL: "/in", Body: []byte(form.Encode())}
	var refused *Error
	if env, err := v.Verify(r); !errors.As(err, &refused) || refused.Reason != ReasonSignatureMismatch {
		t.Errorf("a payload was taken on a keyed answer: %+v, %v", env, err)
	}
}
