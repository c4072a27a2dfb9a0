package verify

import (
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

const (
	explainK1   = "0123456789abcdef0123456789abcdef"
	explainK2   = "ffffffffffffffffffffffffffffffff_2"
	explainTime = "1700000000"
	explainBody = `{"id":"evt_1","url":"https://x/y","n":12345678901234567890}`
	mixedBody   = `{"id":"evt_1","url":"https://x/y","n":12345678901234567890,"t":"é & ü"}`
)

// mistake is a request of a sender that does something else than the scheme says.
// The zero value is a right one.
type mistake struct {
	key     string // what the sender signs with
	keys    []Key  // of the source; nil: k1 and k2
	hash    func() hash.Hash
	plain   bool
	signed  string // the text that is signed; empty: what the scheme says
	body    string // what arrives
	spell   func(sum []byte) string
	headers map[string]string // "" takes one away
	ahead   time.Duration     // of our clock, beyond 10 s
}

func explainKey(t testing.TB, id, text string, spec SecretSpec) Key {
	t.Helper()
	k, err := NewKey(id, []byte(text), spec)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func explainKeys(t testing.TB, keys ...Key) KeySet {
	t.Helper()
	set, err := NewKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func macOf(new func() hash.Hash, plain bool, key, text string) []byte {
	if plain {
		h := new()
		h.Write([]byte(key + text))
		return h.Sum(nil)
	}
	h := hmac.New(new, []byte(key))
	h.Write([]byte(text))
	return h.Sum(nil)
}

// zhisou is a request of that mistake.
func (m mistake) zhisou(t testing.TB) (*Verifier, Request) {
	t.Helper()
	if m.key == "" {
		m.key = explainK1
	}
	if m.hash == nil {
		m.hash = sha256.New
	}
	if m.body == "" {
		m.body = explainBody
	}
	if m.signed == "" {
		m.signed = "v1." + explainTime + ".dlv_1." + m.body
	}
	if m.spell == nil {
		m.spell = hex.EncodeToString
	}
	s, _ := Preset("zhisou-v1")
	if m.keys == nil {
		m.keys = []Key{explainKey(t, "k1", explainK1, SecretSpec{}), explainKey(t, "k2", explainK2, SecretSpec{})}
	}
	h := http.Header{}
	h.Set("X-Webhook-Key-Id", "k1")
	h.Set("X-Webhook-Timestamp", explainTime)
	h.Set("X-Webhook-Delivery-Id", "dlv_1")
	h.Set("X-Webhook-Signature", m.spell(macOf(m.hash, m.plain, m.key, m.signed)))
	for name, value := range m.headers {
		if h.Set(name, value); value == "" {
			h.Del(name)
		}
	}
	v := &Verifier{Scheme: s, Keys: explainKeys(t, m.keys...), Now: func() time.Time { return time.Unix(1700000010, 0).Add(m.ahead) }}
	return v, Request{Method: "POST", URL: "/in/src1", Header: h, Body: []byte(m.body)}
}

func codes(e Explanation) string {
	var list []string
	for _, c := range e.Causes {
		list = append(list, c.Code)
	}
	return strings.Join(list, ", ")
}

func framed(prefix string) string { return prefix + explainBody }

func b64(sum []byte) string { return base64.StdEncoding.EncodeToString(sum) }

func unhex(s string) string {
	b, _ := hex.DecodeString(s)
	return string(b)
}

func unbase64(s string) string {
	b, _ := base64.StdEncoding.DecodeString(s)
	return string(b)
}

func zipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(s))
	w.Close()
	return b.String()
}

// withNewline is a key whose secret was not read from a file, which would have lost
// the newline, and not by NewKey, which refuses it.
func withNewline(id, text string) Key {
	return Key{ID: id, Secret: newSecret(&secretData{raw: []byte(text + "\n"), text: []byte(text + "\n")})}
}

var (
	hexKey    = Key{ID: "k1", Secret: newSecret(&secretData{raw: []byte(unhex(explainK1)), text: []byte(explainK1), spec: SecretSpec{Encoding: "hex"}})}
	base64Key = Key{ID: "k1", Secret: newSecret(&secretData{raw: []byte(unbase64(explainK1)), text: []byte(explainK1), spec: SecretSpec{Encoding: "base64"}})}
)

const (
	zhisouFrame  = "v1." + explainTime + ".dlv_1."
	indentedBody = "{\n  \"id\": \"evt_1\",\n  \"url\": \"https://x/y\",\n  \"n\": 12345678901234567890\n}"
	spacedBody   = `{"id": "evt_1", "url": "https://x/y", "n": 12345678901234567890}`
)

type zhisouMistake struct {
	name string
	mistake
	want string
}

var zhisouMistakes = []zhisouMistake{
	{"1 nothing is wrong", mistake{}, ""},
	{"2 signed with another key", mistake{key: explainK2}, "key_other"},
	{"3 our secret ends with a newline", mistake{keys: []Key{withNewline("k1", explainK1)}}, "key_trailing_newline"},
	{"4 the sender decodes the secret from hex", mistake{key: unhex(explainK1)}, "key_hex"},
	{"5 SHA-1", mistake{hash: sha1.New}, "hash_sha1"},
	{"6 the body alone", mistake{signed: explainBody}, "frame_body_only"},
	{"7 as Stripe does", mistake{signed: framed("1700000000.")}, "frame_ts_body"},
	{"8 as Standard Webhooks does", mistake{signed: framed("dlv_1.1700000000.")}, "frame_id_ts_body"},
	{"9 a newline behind the body", mistake{signed: framed(zhisouFrame), body: explainBody + "\n"}, "body_extra_newline"},
	{"10 indented on the way", mistake{signed: framed(zhisouFrame), body: indentedBody}, "body_compacted"},
	{"11 signed with Python's blanks", mistake{signed: zhisouFrame + spacedBody}, "body_python_spacing"},
	{"12 signed with PHP's slashes", mistake{signed: strings.ReplaceAll(framed(zhisouFrame), "/", `\/`)}, "body_slash_unescaped"},
	{"13 base64 by a gateway", mistake{signed: framed(zhisouFrame), body: b64([]byte(explainBody))}, "body_base64"},
	{"14 a prefix before the signature", mistake{spell: func(s []byte) string { return "sha256=" + hex.EncodeToString(s) }}, "sig_prefix"},
	{"15 upper case", mistake{spell: func(s []byte) string { return strings.ToUpper(hex.EncodeToString(s)) }}, "sig_uppercase"},
	{"16 base64", mistake{spell: b64}, "sig_base64"},
	{"17 an hour of drift", mistake{ahead: 990 * time.Second}, "ts_window"},
	{"18 milliseconds in the header", mistake{headers: map[string]string{"X-Webhook-Timestamp": "1700000000000"}}, "ts_millis"},
	{"19 three at once", mistake{key: explainK2, signed: explainBody, body: explainBody + "\n"}, "key_other, frame_body_only, body_extra_newline"},
	{"20 a key that nobody knows", mistake{key: "nope"}, "no_match"},
	{"21 one bit of the body", mistake{signed: framed(zhisouFrame), body: explainBody[:5] + "e" + explainBody[6:]}, "no_match"},

	{"our secret was base64 of text with a newline", mistake{keys: []Key{{ID: "k1", Secret: newSecret(&secretData{
		raw: []byte(explainK1 + "\n"), text: []byte(b64([]byte(explainK1 + "\n"))), spec: SecretSpec{Encoding: "base64"}})}}}, "key_trailing_newline"},
	{"the sender's secret ends with LF", mistake{key: explainK1 + "\n"}, "key_sender_newline"},
	{"the sender's secret ends with CRLF", mistake{key: explainK1 + "\r\n"}, "key_sender_newline"},
	{"the sender uses the text of a secret that we decode from hex", mistake{keys: []Key{hexKey}}, "key_hex"},
	{"the sender uses the text of a secret that we decode from base64", mistake{keys: []Key{base64Key}}, "key_base64"},
	{"the sender decodes the secret from base64", mistake{key: unbase64(explainK1)}, "key_base64"},
	{"SHA-512", mistake{hash: sha512.New}, "hash_sha512"},
	{"SHA-512 without HMAC", mistake{hash: sha512.New, plain: true}, "hash_sha512, hash_plain"},
	{"the version is forgotten", mistake{signed: framed("1700000000.dlv_1.")}, "frame_no_version"},
	{"as Slack does", mistake{signed: framed("v0:1700000000:")}, "frame_colon"},
	{"the version, but no id", mistake{signed: framed("v1.1700000000.")}, "frame_version"},
	{"a comma", mistake{signed: framed("1700000000,")}, "frame_comma"},
	{"nothing between", mistake{signed: framed("1700000000")}, "frame_joined"},
	{"the body first", mistake{signed: explainBody + "1700000000"}, "frame_body_first"},
	{"several newlines behind the body", mistake{signed: framed(zhisouFrame), body: explainBody + "\n\n"}, "body_extra_newline"},
	{"a newline was cut", mistake{signed: framed(zhisouFrame) + "\n"}, "body_missing_newline"},
	{"a CRLF was cut", mistake{signed: framed(zhisouFrame) + "\r\n"}, "body_missing_newline"},
	{"a blank behind the body", mistake{signed: framed(zhisouFrame), body: explainBody + " "}, "body_extra_blank"},
	{"line ends became CRLF", mistake{signed: zhisouFrame + "a\nb\nc", body: "a\r\nb\r\nc"}, "body_crlf"},
	{"line ends became LF", mistake{signed: zhisouFrame + "a\r\nb\r\nc", body: "a\nb\nc"}, "body_lf"},
	{"a byte order mark was added", mistake{signed: framed(zhisouFrame), body: bom + explainBody}, "body_bom"},
	{"a byte order mark was cut", mistake{signed: framed(zhisouFrame + bom)}, "body_bom"},
	{"an empty body was signed", mistake{signed: zhisouFrame}, "body_empty"},
	{"Python's default in full", mistake{signed: zhisouFrame + `{"t": "\u00e9", "u": "\ud83d\ude0a"}`, body: `{"t":"é","u":"😊"}`}, "body_python_spacing"},
	{"PHP's default in full", mistake{signed: zhisouFrame + `{"t":"\u00e9","u":"\/"}`, body: `{"t":"é","u":"/"}`}, "body_slash_unescaped"},
	{"escaped in upper case", mistake{signed: zhisouFrame + `{"t":"\u00E9"}`, body: `{"t":"é"}`}, "body_ascii_escaped"},
	{"Go escaped it on the way", mistake{signed: zhisouFrame + `{"t":"a & b"}`, body: `{"t":"a \u0026 b"}`}, "body_html_escaped"},
	{"blanks around the signature", mistake{spell: func(s []byte) string { return " " + hex.EncodeToString(s) + " " }}, "sig_blank"},
	{"a line break inside the signature", mistake{spell: func(s []byte) string { t := hex.EncodeToString(s); return t[:32] + "\r\n" + t[32:] }}, "sig_blank"},
	{"a list where there is none", mistake{spell: func(s []byte) string { return "v0=aa, v1=" + hex.EncodeToString(s) }}, "sig_prefix"},
	{"a timestamp with a fraction", mistake{headers: map[string]string{"X-Webhook-Timestamp": "1700000000.5"}}, "ts_format"},
	{"a date, and seconds signed", mistake{headers: map[string]string{"X-Webhook-Timestamp": "2023-11-14T22:13:20Z"}}, "ts_format"},
	{"milliseconds, an hour of drift", mistake{headers: map[string]string{"X-Webhook-Timestamp": "1700000000000"}, ahead: 990 * time.Second}, "ts_millis, ts_window"},
	{"a far future", mistake{ahead: -990 * time.Second}, "ts_window"},
	{"a timestamp that is none", mistake{headers: map[string]string{"X-Webhook-Timestamp": "soon"}}, "ts_format, no_match"},
	{"a blank in the delivery id", mistake{signed: framed("v1.1700000000.dlv 1."), headers: map[string]string{"X-Webhook-Delivery-Id": "dlv 1"}}, "delivery_id_invalid"},
	{"the key that is named is not the one", mistake{key: explainK2, headers: map[string]string{"X-Webhook-Key-Id": "k3"}}, "key_unknown, key_other"},
	{"no delivery id", mistake{headers: map[string]string{"X-Webhook-Delivery-Id": ""}}, "header_missing"},
	{"no signature", mistake{headers: map[string]string{"X-Webhook-Signature": ""}}, "header_missing"},
	{"a signature of blanks", mistake{headers: map[string]string{"X-Webhook-Signature": "  "}}, "sig_undecodable"},
	{"spelling, key, framing, body and clock", mistake{key: explainK2 + "\n", signed: explainBody, body: explainBody + "\n", ahead: time.Hour,
		spell: func(s []byte) string { return "sha256=" + strings.ToUpper(hex.EncodeToString(s)) }},
		"key_other, key_sender_newline, frame_body_only, body_extra_newline, sig_prefix, sig_uppercase, ts_window"},

	{"SHA-256 without HMAC", mistake{plain: true}, "hash_plain"},
	{"compressed on the way", mistake{signed: framed(zhisouFrame), body: zipped(explainBody)}, "body_inflated"},
	{"signed as Go escapes", mistake{signed: zhisouFrame + strings.ReplaceAll(mixedBody, "&", `\u0026`), body: mixedBody}, "body_html_escaped"},
	{"signed escaped, UTF-8 arrives", mistake{signed: zhisouFrame + escapedMixed, body: mixedBody}, "body_ascii_escaped"},
	{"signed in UTF-8, escaped arrives", mistake{signed: zhisouFrame + mixedBody, body: escapedMixed}, "body_ascii_unescaped"},
	{"base64 of the hex text", mistake{spell: func(s []byte) string { return b64([]byte(hex.EncodeToString(s))) }}, "sig_base64_of_hex"},
	{"63 characters", mistake{spell: func(s []byte) string { return hex.EncodeToString(s)[:63] }}, "sig_undecodable"},
	{"no key id", mistake{headers: map[string]string{"X-Webhook-Key-Id": ""}}, "header_missing"},
}

var escapedMixed = strings.NewReplacer("é", `\u00e9`, "ü", `\u00fc`).Replace(mixedBody)

func TestExplainNamesTheMistake(t *testing.T) {
	for _, m := range zhisouMistakes {
		t.Run(m.name, func(t *testing.T) {
			v, r := m.zhisou(t)
			e := v.Explain(r)
			if got := codes(e); got != m.want {
				t.Errorf("%s, want %s", got, m.want)
			}
			if _, err := v.Verify(r); (err == nil) != (e.Error == nil) || (err == nil) != (len(e.Causes) == 0) {
				t.Errorf("Verify says %v, Explain %v", err, e.Error)
			}
			for _, c := range e.Causes {
				if c.Text == "" || c.Fix == "" {
					t.Errorf("%s says nothing: %+v", c.Code, c)
				}
			}
		})
	}
}

func TestExplainJudgesTheSpanOfAKey(t *testing.T) {
	now := time.Unix(1700000010, 0)
	k1, k2 := explainKey(t, "k1", explainK1, SecretSpec{}), explainKey(t, "k2", explainK2, SecretSpec{})
	expired, early := k1, k1
	expired.NotAfter = now.Add(-3 * time.Hour)
	early.NotBefore = now.Add(3 * time.Hour)
	for _, c := range []struct {
		name   string
		m      mistake
		others []KeySet
		want   string
	}{
		{"expired", mistake{keys: []Key{expired, k2}}, nil, "key_expired"},
		{"not yet valid", mistake{keys: []Key{early, k2}}, nil, "key_not_yet_valid"},
		{"expired, and another one signed", mistake{keys: []Key{expired, k2}, key: explainK2}, nil, "key_expired, key_other"},
		{"another one signed that is expired", mistake{keys: []Key{expired, k2}, headers: map[string]string{"X-Webhook-Key-Id": "k2"}}, nil, "key_expired, key_other"},
		{"another source's", mistake{keys: []Key{k2}, headers: map[string]string{"X-Webhook-Key-Id": "k2"}}, []KeySet{explainKeys(t, k1)}, "key_other_source"},
		{"another source's, of the name of one of ours", mistake{keys: []Key{k2}, headers: map[string]string{"X-Webhook-Key-Id": "k2"}}, []KeySet{{}, explainKeys(t, explainKey(t, "k2", explainK1, SecretSpec{}))}, "key_other_source"},
		{"ours, which another source has too", mistake{}, []KeySet{explainKeys(t, k1)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, r := c.m.zhisou(t)
			if got := codes(v.Explain(r, c.others...)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// schemeMistake is one under another scheme; header gives what arrives.
type schemeMistake struct {
	name, scheme, secret string
	url, body            string
	ahead                time.Duration
	header               func() map[string]string
	want                 string
}

func schemeMistakes(w string) []schemeMistake {
	bytes := unbase64(w[6:]) // as standard-webhooks reads it
	return []schemeMistake{
		{"github: no prefix", "github", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-Hub-Signature-256": hexOf(explainK1, mixedBody)}
		}, "sig_no_prefix"},
		{"github: SHA-1 under sha256=", "github", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(macOf(sha1.New, false, explainK1, mixedBody))}
		}, "hash_sha1"},
		{"intercom: SHA-256 under sha1=", "intercom", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-Hub-Signature": "sha1=" + hexOf(explainK1, mixedBody)}
		}, "hash_sha256"},
		{"github: newline at the sender", "github", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-Hub-Signature-256": "sha256=" + hexOf(explainK1+"\n", mixedBody)}
		}, "key_sender_newline"},
		{"github: a form arrives", "github", explainK1, "", "payload=" + url.QueryEscape(mixedBody), 0, func() map[string]string {
			return map[string]string{"X-Hub-Signature-256": "sha256=" + hexOf(explainK1, mixedBody)}
		}, "body_form_field"},
		{"github: Stripe's arrives", "github", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"Stripe-Signature": "t=1700000000,v1=" + hexOf(explainK1, "1700000000."+mixedBody)}
		}, "scheme_other"},
		{"stripe: secret decoded", "stripe", w, "", mixedBody, 0, stripe("v1", bytes, "1700000000."+mixedBody), "key_base64"},
		{"stripe: text behind the prefix", "stripe", w, "", mixedBody, 0, stripe("v1", w[6:], "1700000000."+mixedBody), "key_prefix"},
		{"stripe: body alone", "stripe", w, "", mixedBody, 0, stripe("v1", w, mixedBody), "frame_body_only"},
		{"stripe: comma", "stripe", w, "", mixedBody, 0, stripe("v1", w, "1700000000,"+mixedBody), "frame_comma"},
		{"stripe: under v0", "stripe", w, "", mixedBody, 0, stripe("v0", w, "1700000000."+mixedBody), "sig_label"},
		{"stripe: late", "stripe", w, "", mixedBody, 990 * time.Second, stripe("v1", w, "1700000000."+mixedBody), "ts_window"},
		{"standard: text", "standard-webhooks", w, "", mixedBody, 0, standard(w, "msg_1.1700000000."+mixedBody, b64, ""), "key_base64"},
		{"standard: text behind the prefix", "standard-webhooks", w, "", mixedBody, 0, standard(w[6:], "msg_1.1700000000."+mixedBody, b64, ""), "key_prefix"},
		{"standard: hex", "standard-webhooks", w, "", mixedBody, 0, standard(bytes, "msg_1.1700000000."+mixedBody, hex.EncodeToString, ""), "sig_hex"},
		{"standard: no id", "standard-webhooks", w, "", mixedBody, 0, standard(bytes, "1700000000."+mixedBody, b64, ""), "frame_ts_body"},
		{"standard: id behind", "standard-webhooks", w, "", mixedBody, 0, standard(bytes, "1700000000.msg_1."+mixedBody, b64, ""), "frame_no_version"},
		{"standard: 000, seconds signed", "standard-webhooks", w, "", mixedBody, 0, standard(bytes, "msg_1.1700000000."+mixedBody, b64, "000"), "ts_millis"},
		{"standard: 000, milliseconds signed", "standard-webhooks", w, "", mixedBody, 0, standard(bytes, "msg_1.1700000000000."+mixedBody, b64, "000"), "ts_millis"},
		{"standard: no tag", "standard-webhooks", w, "", mixedBody, 0, func() map[string]string {
			h := standard(bytes, "msg_1.1700000000."+mixedBody, b64, "")()
			h["webhook-signature"] = h["webhook-signature"][3:]
			return h
		}, "sig_no_prefix"},
		{"shopify: hex", "shopify", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-Shopify-Hmac-Sha256": hexOf(explainK1, mixedBody)}
		}, "sig_hex"},
		{"shopify: base64 of the hex text", "shopify", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-Shopify-Hmac-Sha256": b64([]byte(hexOf(explainK1, mixedBody)))}
		}, "sig_base64_of_hex"},
		{"shopify: no padding", "shopify", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-Shopify-Hmac-Sha256": strings.TrimRight(b64(macOf(sha256.New, false, explainK1, mixedBody)), "=")}
		}, "sig_base64url"},
		{"slack: as Stripe", "slack", explainK1, "", mixedBody, 0, slack("1700000000." + mixedBody), "frame_ts_body"},
		{"slack: v0 forgotten", "slack", explainK1, "", mixedBody, 0, slack("1700000000:" + mixedBody), "frame_colon"},
		{"square: http", "square", explainK1, "https://h.example/in", mixedBody, 0, square("http://h.example/in" + mixedBody), "url_other"},
		{"square: final slash", "square", explainK1, "https://h.example/in", mixedBody, 0, square("https://h.example/in/" + mixedBody), "url_other"},
		{"square: port", "square", explainK1, "https://h.example/in", mixedBody, 0, square("https://h.example:443/in" + mixedBody), "url_other"},
		{"square: no URL", "square", explainK1, "https://h.example/in", mixedBody, 0, square(mixedBody), "frame_body_only"},
		{"square: body first", "square", explainK1, "https://h.example/in", mixedBody, 0, square(mixedBody + "https://h.example/in"), "frame_url"},
		{"hubspot-v3: seconds", "hubspot-v3", explainK1, "https://h.example/in", mixedBody, 0, func() map[string]string {
			return map[string]string{
				"X-HubSpot-Request-Timestamp": explainTime,
				"X-HubSpot-Signature-v3":      b64(macOf(sha256.New, false, explainK1, "POSThttps://h.example/in"+mixedBody+explainTime)),
			}
		}, "ts_seconds"},
		{"postmark: wrong password", "postmark", "user:" + explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"Authorization": "Basic " + b64([]byte("user:x"))}
		}, "no_match"},
		{"postmark: newline", "postmark", "user:" + explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"Authorization": "Basic " + b64([]byte("user:"+explainK1+"\n"))}
		}, "key_sender_newline"},
		{"telegram: wrong token", "telegram", explainK1, "", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-Telegram-Bot-Api-Secret-Token": "another"}
		}, "no_match"},
		{"hubspot-v1: method and URL signed too", "hubspot-v1", explainK1, "https://h.example/in", mixedBody, 0, func() map[string]string {
			return map[string]string{"X-HubSpot-Signature": hex.EncodeToString(macOf(sha256.New, true, explainK1, "POSThttps://h.example/in"+mixedBody))}
		}, "frame_url"},
	}
}

func hexOf(key, text string) string { return hex.EncodeToString(macOf(sha256.New, false, key, text)) }

func stripe(tag, key, text string) func() map[string]string {
	return func() map[string]string {
		return map[string]string{"Stripe-Signature": "t=1700000000," + tag + "=" + hexOf(key, text)}
	}
}

func standard(key, text string, spell func([]byte) string, behindTime string) func() map[string]string {
	return func() map[string]string {
		return map[string]string{
			"webhook-id": "msg_1", "webhook-timestamp": explainTime + behindTime,
			"webhook-signature": "v1," + spell(macOf(sha256.New, false, key, text)),
		}
	}
}

func slack(text string) func() map[string]string {
	return func() map[string]string {
		return map[string]string{"X-Slack-Request-Timestamp": explainTime, "X-Slack-Signature": "v0=" + hexOf(explainK1, text)}
	}
}

func square(text string) func() map[string]string {
	return func() map[string]string {
		return map[string]string{"x-square-hmacsha256-signature": b64(macOf(sha256.New, false, explainK1, text))}
	}
}

func TestExplainKnowsTheMistakesOfEveryScheme(t *testing.T) {
	for _, m := range schemeMistakes(publishedSecret(t)) {
		t.Run(m.name, func(t *testing.T) {
			s, ok := Preset(m.scheme)
			if !ok {
				t.Fatal("no preset")
			}
			r := Request{Method: "POST", URL: "/in", Header: http.Header{}, Body: []byte(m.body)}
			for name, value := range m.header() {
				r.Header.Set(name, value)
			}
			// What the scheme reads beside, so that only the mistake is wrong.
			for _, name := range []string{"X-GitHub-Delivery", "X-Shopify-Webhook-Id"} {
				r.Header.Set(name, "dlv_1")
			}
			v := &Verifier{Scheme: s, Keys: explainKeys(t, explainKey(t, "k1", m.secret, s.SecretSpec())), URL: m.url,
				Now: func() time.Time { return time.Unix(1700000010, 0).Add(m.ahead) }}
			e := v.Explain(r)
			if first, _, _ := strings.Cut(codes(e), ", "); first != m.want {
				t.Errorf("%s, want %s first", codes(e), m.want)
			}
		})
	}
}
