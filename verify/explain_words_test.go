package verify

import (
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What is said must be true of the scheme, the header and the direction, and can be done.
func TestExplainSaysWhatCanBeDone(t *testing.T) {
	w := publishedSecret(t)
	both := func(c Cause) string { return c.Text + " / " + c.Fix }
	for _, c := range []struct {
		name, scheme, secret string
		headers              map[string]string
		want                 string // of the first cause
	}{
		{"the sender decodes, we do not", "stripe", w, stripe("v1", unbase64(w[6:]), "1700000000.{}")(),
			"the sender used the bytes that the secret is in base64, we use the text of the secret / set encoding: whsec for our key, or use the whole text of the secret at the sender"},
		{"we decode, the sender does not", "standard-webhooks", w, standard(w, "msg_1.1700000000.{}", b64, "")(),
			"the sender used the text of the secret, we use the bytes that the secret is in base64 / set encoding: utf8 for our key, or decode the secret without its prefix from base64 at the sender"},
		{"hash", "github", explainK1, map[string]string{"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(macOf(hashes[0].new, false, explainK1, "{}"))},
			"the sender signed with SHA-1, the scheme's hash is SHA-256 / sign with SHA-256 at the sender"},
		{"framing", "slack", explainK1, slack("1700000000.{}")(), "the scheme is v0:{timestamp}:{body} / sign v0:{timestamp}:{body}"},
		{"spelling in hex", "slack", explainK1, map[string]string{"X-Slack-Request-Timestamp": explainTime, "X-Slack-Signature": "v0=" + b64(macOf(hashes[1].new, false, explainK1, "v0:1700000000:{}"))},
			`the signature is in base64, the scheme's is in hex / send "v0=" and 64 characters of lower-case hex in header X-Slack-Signature`},
		{"spelling in base64", "standard-webhooks", w, standard(unbase64(w[6:]), "msg_1.1700000000.{}", hex.EncodeToString, "")(),
			`the signature is in hex, the scheme's is in base64 / send "v1," and 44 characters of padded base64 in header webhook-signature`},
		{"unit", "standard-webhooks", w, standard(unbase64(w[6:]), "msg_1.1700000000.{}", b64, "000")(),
			"the timestamp in header webhook-timestamp is in milliseconds, the scheme's is in seconds / send Unix time in seconds, such as 1700000000, and sign just that"},
		{"no field", "stripe", w, map[string]string{"Stripe-Signature": "v1=00"}, "the field t of header Stripe-Signature is not there or empty / send it"},
		{"a header of the scheme is not what came close", "paypal", "", map[string]string{"PAYPAL-TRANSMISSION-ID": "1"}, "header PAYPAL-TRANSMISSION-SIG is not there or empty / send it"},
		{"wrong token", "telegram", explainK1, map[string]string{"X-Telegram-Bot-Api-Secret-Token": "another"}, "what was sent is the secret of no key, however that is read / give the sender the secret"},
		{"cut password", "postmark", "user:" + explainK1, map[string]string{"Authorization": "Basic x"},
			`the signature (7 characters) cannot be read: it is cut, or none at all / send "Basic " and base64 of user:password in header Authorization`},
	} {
		s, _ := Preset(c.scheme)
		v := &Verifier{Scheme: s, URL: "https://h.example/in", Now: func() time.Time { return time.Unix(1700000010, 0) }}
		if c.secret != "" {
			v.Keys = explainKeys(t, explainKey(t, "", c.secret, s.SecretSpec()))
		}
		r := Request{Method: "POST", Header: http.Header{}, Body: []byte("{}")}
		for name, value := range c.headers {
			r.Header.Set(name, value)
		}
		if c.scheme == "github" {
			r.Header.Set("X-GitHub-Delivery", "dlv_1")
		}
		e := v.Explain(r)
		if len(e.Causes) == 0 || !strings.Contains(both(e.Causes[0]), c.want) {
			t.Errorf("%s: %+v, want %s", c.name, e.Causes, c.want)
		}
		if n := len(e.Causes); n > 1 && e.Causes[0] == e.Causes[1] {
			t.Errorf("%s: said twice: %+v", c.name, e.Causes)
		}
	}
}

func TestExplainNamesTheLineEndThatCame(t *testing.T) {
	v, r := mistake{signed: framed(zhisouFrame), body: explainBody + "\r\n"}.zhisou(t)
	if e := v.Explain(r); codes(e) != "body_extra_newline" || !strings.Contains(e.Causes[0].Text, `without the "\r\n" that arrived`) {
		t.Errorf("%+v", e.Causes)
	}
}

func TestExplainJudgesAMomentBeyondTheWindow(t *testing.T) {
	v, r := mistake{ahead: 290*time.Second + time.Millisecond}.zhisou(t)
	if e := v.Explain(r); codes(e) != "ts_window" || !strings.Contains(e.Causes[0].Text, "is more than 300 s behind our clock") {
		t.Errorf("%+v", e.Causes)
	}
}

// Of a value that is there twice one is tried: that it does not match says nothing.
func TestExplainDoesNotSayThatOneOfTwoValuesFails(t *testing.T) {
	v, r := mistake{}.zhisou(t)
	r.Header["X-Webhook-Timestamp"] = []string{"1700000001", explainTime}
	if e := v.Explain(r); codes(e) != "header_duplicated" {
		t.Errorf("%s, want header_duplicated", codes(e))
	}
}
