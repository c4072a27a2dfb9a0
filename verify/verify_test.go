package verify

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

const testSecret = "0123456789abcdef0123456789abcdef"

func hexMAC(new func() hash.Hash, text string) string {
	mac := hmac.New(new, []byte(testSecret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func oneKey(t testing.TB) KeySet {
	t.Helper()
	k, err := NewKey("k1", []byte(testSecret), SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return testSet(t, k)
}

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

// The signed text of every token, written out by hand.
func TestTokens(t *testing.T) {
	sum := sha256.Sum256([]byte("a=1&b=2"))
	for _, c := range []struct {
		template, text string
		url, target    string
		body           string
	}{
		{"{method}|{body}", "POST|x", "", "", "x"},
		{"{url}", "https://h.example:8443/in?q=1", "https://h.example:8443/in", "/other?q=1", ""},
		{"{url}", "https://h.example/in?own=1", "https://h.example/in?own=1", "/in?q=1", ""},
		{"{url}", "https://h.example/in", "https://h.example/in", "/in", ""},
		{"{host}|{path}|{path_query}", "h.example:8443|/in/a|/in/a?q=1", "https://h.example:8443/in/a", "/x?q=1#f", ""},
		{"{host}|{path}|{path_query}", "h.example|/|/?q=1", "https://h.example", "/x?q=1", ""},
		{"{query_raw}|{body}", "b=%20+&a|x", "", "/in?b=%20+&a", "x"},
		{"{query_raw}|{body}", "|x", "", "/in", "x"},
		{"{query:a}|{body}", "1 2|x", "", "/in?b=0&a=1%202", "x"},
		{"{form:b}|{form:a}", "2|1", "", "", "a=1&b=2"},
		{"{form_sorted}", "a1a2b0", "", "", "b=0&a=2&a=1"},
		{"{json:a.b}|{json:/c/1}|{json:n}", "x|7|1.50", "", "", `{"a":{"b":"x"},"c":[5,7],"n":1.50}`},
		{"{param:p}|{body}", "value|x", "", "", "x"},
		{"{header:X-A}{body}{header:x-a}", "vxv", "", "", "x"},
		{"{body_sha256_hex}", hex.EncodeToString(sum[:]), "", "", "a=1&b=2"},
		{"{body_sha256_raw}", string(sum[:]), "", "", "a=1&b=2"},
		{"{body_crc32_dec}", "3421780262", "", "", "123456789"},
		{"{body}{body}", "xx", "", "", "x"},
	} {
		r := Recipe{Algo: "hmac-sha256", Signature: SignatureRecipe{Name: "X-Sig"}, Template: c.template}
		if strings.Contains(c.template, "{param:") {
			r.Params = []string{"p"}
		}
		s, err := r.Compile()
		if err != nil {
			t.Fatal(err)
		}
		v := Verifier{Scheme: s, Keys: oneKey(t), URL: c.url, Params: map[string]string{"p": "value"}}
		req := Request{Method: "POST", URL: c.target, Body: []byte(c.body),
			Header: http.Header{"X-Sig": {hexMAC(sha256.New, c.text)}, "X-A": {"v"}}}
		if _, err := v.Verify(req); err != nil {
			t.Errorf("%s over %s %s %q: %v", c.template, c.url, c.target, c.body, err)
		}
	}
}

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

// What is found first when several things are wrong: nothing about a key is said
// before the request is well formed, nothing is hashed before the window is judged.
func TestOrderOfSteps(t *testing.T) {
	s := compile(t, `{"preset":"zhisou-v1","require":[{"header":"X-Version","equals":"1"}]}`)
	v := Verifier{Scheme: s, Keys: oneKey(t), Now: at(t0), MaxBody: 10}
	r := Request{Method: "POST", Body: []byte("0123456789a"), Header: http.Header{
		"X-Webhook-Signature": {"zz"}, "X-Webhook-Timestamp": {"1"}, "X-Webhook-Delivery-Id": {"a.b"}, "X-Webhook-Key-Id": {"nobody"},
		"X-Version": {"2"}, "x-webhook-timestamp": {"1"},
	}}
	repair := []struct {
		want Reason
		then func()
	}{
		{ReasonHeaderDuplicated, func() { delete(r.Header, "x-webhook-timestamp"); delete(r.Header, "X-Webhook-Signature") }},
		{ReasonSignatureMissing, func() {
			r.Header["X-Webhook-Signature"] = []string{"zz"}
			delete(r.Header, "X-Webhook-Key-Id")
		}},
		{ReasonHeaderMissing, func() { r.Header["X-Webhook-Key-Id"] = []string{"nobody"} }},
		{ReasonPrecondition, func() { r.Header["X-Version"] = []string{"1"} }},
		{ReasonDeliveryIDInvalid, func() { r.Header["X-Webhook-Delivery-Id"] = []string{"dlv_1"} }},
		{ReasonSignatureMalformed, func() { r.Header["X-Webhook-Signature"] = []string{strings.Repeat("0", 64)} }},
		{ReasonTimestampOutOfWindow, func() { r.Header["X-Webhook-Timestamp"] = []string{"01"} }},
		{ReasonTimestampMalformed, func() { r.Header["X-Webhook-Timestamp"] = []string{"1760000000"} }},
		{ReasonBodyTooLarge, func() { r.Body = r.Body[:10] }},
		{ReasonKeyUnknown, func() { r.Header["X-Webhook-Key-Id"] = []string{"k1"} }},
		{ReasonSignatureMismatch, func() {
			r.Header["X-Webhook-Signature"] = []string{hexMAC(sha256.New, "v1.1760000000.dlv_1.0123456789")}
		}},
		{"", nil},
	}
	early := true
	for _, step := range repair {
		_, err := v.Verify(r)
		if reasonOf(err) != step.want || (err == nil) != (step.want == "") {
			t.Fatalf("want %s, got %v", step.want, err)
		}
		if step.want == ReasonBodyTooLarge {
			early = false
		}
		if got := reasonOf(v.CheckHeader(Request{Method: r.Method, Header: r.Header})); early && got != step.want || !early && got != "" {
			t.Errorf("%s: the headers alone give %q", step.want, got)
		}
		if step.then != nil {
			step.then()
		}
	}
}

func TestHostileHeaders(t *testing.T) {
	v := Verifier{Keys: oneKey(t), Now: at(t0)}
	v.Scheme, _ = Preset("zhisou-v1")
	good := http.Header{"X-Webhook-Signature": {hexMAC(sha256.New, "v1.1760000000.dlv_1.")},
		"X-Webhook-Timestamp": {"1760000000"}, "X-Webhook-Delivery-Id": {"dlv_1"}, "X-Webhook-Key-Id": {"k1"}}
	for _, c := range []struct {
		defect string
		change func(http.Header)
		want   Reason
	}{
		{"nothing", func(h http.Header) {}, ""},
		{"a nil slice", func(h http.Header) { h["x-webhook-key-id"] = nil }, ""},
		{"a nil slice under the right name", func(h http.Header) { h["X-Webhook-Key-Id"] = nil }, ReasonHeaderMissing},
		{"an empty line before the right one", func(h http.Header) { h["X-Webhook-Key-Id"] = []string{"", "k1"} }, ReasonHeaderDuplicated},
		{"an empty line behind it", func(h http.Header) { h["X-Webhook-Signature"] = append(h["X-Webhook-Signature"], "") }, ReasonHeaderDuplicated},
		{"three spellings", func(h http.Header) { h["x-webhook-key-id"], h["X-WEBHOOK-KEY-ID"] = []string{"k1"}, []string{"k1"} }, ReasonHeaderDuplicated},
		{"an empty twin", func(h http.Header) { h["X_Webhook-Key_Id"] = []string{""} }, ReasonHeaderDuplicated},
		{"a twin of the signature", func(h http.Header) { h["x_webhook_signature"] = []string{"x"} }, ReasonHeaderDuplicated},
		{"only the twin", func(h http.Header) { h["X_Webhook_Key_Id"] = h["X-Webhook-Key-Id"]; delete(h, "X-Webhook-Key-Id") }, ReasonHeaderMissing},
		{"the Kelvin sign for a K", func(h http.Header) { h["X-Webhoo\u212a-Key-Id"] = []string{"k1"}; delete(h, "X-Webhook-Key-Id") }, ReasonHeaderMissing},
		{"a NUL behind the name", func(h http.Header) { h["X-Webhook-Key-Id\x00"] = []string{"k9"} }, ""},
		{"a colon in the name", func(h http.Header) { h["X-Webhook-Key-Id:"] = []string{"k9"} }, ""},
		{"an empty name", func(h http.Header) { h[""] = []string{"k9"} }, ""},
		{"a very long name", func(h http.Header) { h[strings.Repeat("x", 1<<16)] = []string{"k9"} }, ""},
		{"a line feed in the timestamp", func(h http.Header) { h["X-Webhook-Timestamp"] = []string{"1760000000\n"} }, ReasonTimestampMalformed},
		{"a very long timestamp", func(h http.Header) { h["X-Webhook-Timestamp"] = []string{strings.Repeat("1", 1<<20)} }, ReasonTimestampMalformed},
		{"a very long id", func(h http.Header) { h["X-Webhook-Delivery-Id"] = []string{strings.Repeat("a", 1<<20)} }, ReasonDeliveryIDInvalid},
		{"a very long key id", func(h http.Header) { h["X-Webhook-Key-Id"] = []string{strings.Repeat("k", 1<<20)} }, ReasonKeyUnknown},
		{"a key id with a line feed", func(h http.Header) { h["X-Webhook-Key-Id"] = []string{"k1\nforged=1"} }, ReasonKeyUnknown},
		{"a NUL behind the signature", func(h http.Header) { h["X-Webhook-Signature"] = []string{h["X-Webhook-Signature"][0] + "\x00"} }, ReasonSignatureMalformed},
		{"full-width digits in the signature", func(h http.Header) { h["X-Webhook-Signature"] = []string{strings.Repeat("\uff10", 64)} }, ReasonSignatureMalformed},
		{"100,000 other headers", func(h http.Header) {
			for i := range 100000 {
				h[fmt.Sprintf("X-Webhook-Key-%06d", i)] = []string{"x"}
			}
		}, ""},
		{"100,000 lines", func(h http.Header) { h["X-Webhook-Key-Id"] = make([]string, 100000) }, ReasonHeaderDuplicated},
	} {
		h := good.Clone()
		c.change(h)
		_, err := v.Verify(Request{Method: "POST", Header: h})
		if reasonOf(err) != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s: %.200v, want %s", c.defect, err, c.want)
		}
		if e, ok := err.(*Error); ok && (len(e.Error()) > 300 || strings.ContainsAny(e.Error(), "\n\x00")) {
			t.Errorf("%s: %d bytes of error", c.defect, len(e.Error()))
		}
	}
	if _, err := v.Verify(Request{}); reasonOf(err) != ReasonSignatureMissing {
		t.Errorf("nothing at all: %v", err)
	}
}

func TestSignatureSpellings(t *testing.T) {
	body := "x"
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(body))
	raw := mac.Sum(nil)
	low, b64 := hex.EncodeToString(raw), base64.StdEncoding.EncodeToString(raw)
	zero := strings.Repeat("0", 64)
	for _, c := range []struct {
		name, signature string
		values          []string
		want            Reason
	}{
		{"a byte too many", `{"name":"S"}`, []string{low + "00"}, ReasonSignatureMalformed},
		{"a byte too few", `{"name":"S"}`, []string{low[2:]}, ReasonSignatureMalformed},
		{"base64 of a byte too many", `{"name":"S","encoding":"base64"}`, []string{base64.StdEncoding.EncodeToString(append(raw, 0))}, ReasonSignatureMalformed},
		{"any case", `{"name":"S","hex_case":"any"}`, []string{strings.ToUpper(low)}, ""},
		{"mixed case", `{"name":"S","hex_case":"any"}`, []string{strings.ToUpper(low[:10]) + low[10:]}, ""},
		{"url-safe", `{"name":"S","encoding":"base64url-nopad"}`, []string{base64.RawURLEncoding.EncodeToString(raw)}, ""},
		{"url-safe with padding", `{"name":"S","encoding":"base64url-nopad"}`, []string{base64.URLEncoding.EncodeToString(raw)}, ReasonSignatureMalformed},
		{"prefix", `{"name":"S","prefix":"sha256="}`, []string{"sha256=" + low}, ""},
		{"prefix in capitals", `{"name":"S","prefix":"sha256="}`, []string{"SHA256=" + low}, ReasonSignatureMalformed},
		{"prefix twice", `{"name":"S","prefix":"sha256="}`, []string{"sha256=sha256=" + low}, ReasonSignatureMalformed},
		{"prefix left out", `{"name":"S","prefix":"sha256="}`, []string{low}, ReasonSignatureMalformed},
		{"optional prefix left out", `{"name":"S","prefix":"sha256=","prefix_optional":true}`, []string{low}, ""},
		{"list", `{"name":"S","list_sep":","}`, []string{zero + "," + low}, ""},
		{"list with blanks", `{"name":"S","list_sep":","}`, []string{zero + " ,\t" + low + " "}, ""},
		{"list not trimmed", `{"name":"S","list_sep":",","trim":false}`, []string{zero + ", " + low}, ReasonSignatureMismatch},
		{"list with empty elements", `{"name":"S","list_sep":","}`, []string{",," + low + ","}, ""},
		{"list of nothing", `{"name":"S","list_sep":","}`, []string{",,"}, ReasonSignatureMalformed},
		{"list on two lines", `{"name":"S","list_sep":","}`, []string{zero, low}, ""},
		{"list of ; on two lines", `{"name":"S","list_sep":";"}`, []string{zero, low}, ReasonHeaderDuplicated},
		{"list of ;", `{"name":"S","list_sep":";"}`, []string{zero + ";" + low}, ""},
		{"list by blanks", `{"name":"S","list_sep":" "}`, []string{zero + " " + low}, ""},
		{"list by two blanks", `{"name":"S","list_sep":" "}`, []string{zero + "  " + low}, ""},
		{"each line a value", `{"name":"S","multi_value":true}`, []string{zero, low}, ""},
		{"each line a value, none good", `{"name":"S","multi_value":true}`, []string{zero, zero}, ReasonSignatureMismatch},
		{"tag and base64 with padding", `{"name":"S","kv_sep":"=","tags":["v1"],"encoding":"base64"}`, []string{"v1=" + b64}, ""},
		{"tag in capitals", `{"name":"S","kv_sep":"=","tags":["v1"]}`, []string{"V1=" + low}, ReasonSignatureMalformed},
		{"second tag", `{"name":"S","kv_sep":"=","list_sep":",","tags":["v1","v2"]}`, []string{"v2=" + low}, ""},
		{"two headers, the second", `{"names":["S","S-2"]}`, nil, ""},
	} {
		s := compile(t, `{"algo":"hmac-sha256","template":"{body}","signature":`+c.signature+`}`)
		v := Verifier{Scheme: s, Keys: oneKey(t)}
		h := http.Header{"S": c.values}
		if c.values == nil {
			h = http.Header{"S-2": {low}}
		}
		if _, err := v.Verify(Request{Body: []byte(body), Header: h}); reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestHashAlgorithms(t *testing.T) {
	plain := sha256.Sum256([]byte(testSecret + "x"))
	plain1 := sha1.Sum([]byte(testSecret + "x"))
	for algo, sig := range map[string]string{
		"hmac-sha1": hexMAC(sha1.New, "x"), "hmac-sha256": hexMAC(sha256.New, "x"), "hmac-sha512": hexMAC(sha512.New, "x"),
		"hash-sha1": hex.EncodeToString(plain1[:]), "hash-sha256": hex.EncodeToString(plain[:]),
	} {
		template := "{body}"
		if strings.HasPrefix(algo, "hash") {
			template = "{secret}{body}"
		}
		s := compile(t, `{"algo":"`+algo+`","template":"`+template+`","signature":{"name":"S"}}`)
		v := Verifier{Scheme: s, Keys: oneKey(t)}
		if _, err := v.Verify(Request{Body: []byte("x"), Header: http.Header{"S": {sig}}}); err != nil {
			t.Errorf("%s: %v", algo, err)
		}
		if _, err := v.Verify(Request{Body: []byte("y"), Header: http.Header{"S": {sig}}}); reasonOf(err) != ReasonSignatureMismatch {
			t.Errorf("%s over another body: %v", algo, err)
		}
	}
}

func TestTokensAndPasswords(t *testing.T) {
	pass, err := NewKey("k1", []byte("user:pa:ss"), SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	bearer := compile(t, `{"algo":"token","signature":{"name":"Authorization","prefix":"Bearer "}}`)
	query := compile(t, `{"algo":"token","signature":{"in":"query","name":"key"}}`)
	inBody := compile(t, `{"algo":"token","signature":{"in":"json","name":"/clientState"}}`)
	basic := compile(t, `{"algo":"basic"}`)
	auth := func(s string) Request { return Request{Header: http.Header{"Authorization": {s}}} }
	for _, c := range []struct {
		name   string
		scheme Scheme
		r      Request
		want   Reason
	}{
		{"bearer", bearer, auth("Bearer user:pa:ss"), ""},
		{"bearer, longer", bearer, auth("Bearer user:pa:ssx"), ReasonSignatureMismatch},
		{"bearer, shorter", bearer, auth("Bearer user"), ReasonSignatureMismatch},
		{"bearer, nothing", bearer, auth("Bearer "), ReasonSignatureMalformed},
		{"bearer in lower case", bearer, auth("bearer user:pa:ss"), ReasonSignatureMalformed},
		{"no header", bearer, Request{}, ReasonSignatureMissing},
		{"query", query, Request{URL: "/in?key=user%3Apa%3Ass"}, ""},
		{"query twice", query, Request{URL: "/in?key=user%3Apa%3Ass&key=x"}, ReasonHeaderDuplicated},
		{"query without it", query, Request{URL: "/in"}, ReasonSignatureMissing},
		{"body", inBody, Request{Body: []byte(`{"clientState":"user:pa:ss"}`)}, ""},
		{"body without it", inBody, Request{Body: []byte(`{}`)}, ReasonSignatureMissing},
		{"body that does not parse", inBody, Request{Body: []byte(`{`)}, ReasonBodyUnparsable},
		{"basic", basic, auth("Basic " + base64.StdEncoding.EncodeToString([]byte("user:pa:ss"))), ""},
		{"basic, other", basic, auth("Basic " + base64.StdEncoding.EncodeToString([]byte("user:pa"))), ReasonSignatureMismatch},
		{"basic, no base64", basic, auth("Basic user:pa:ss"), ReasonSignatureMalformed},
	} {
		v := Verifier{Scheme: c.scheme, Keys: testSet(t, pass)}
		if _, err := v.Verify(c.r); reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestTimestampFormats(t *testing.T) {
	at1700 := time.Unix(1700000000, 0).UTC() // Tue, 14 Nov 2023 22:13:20 GMT
	for _, c := range []struct {
		format, text string
		ok           bool
	}{
		{"unix-s", "1700000000", true},
		{"unix-s", "1700000000000", false},
		{"unix-ms", "1700000000000", true},
		{"unix-ms", "1700000000123", true},
		{"unix-ms", "01700000000000", false},
		{"unix-ms", "1700000000000000", false},
		{"rfc3339", "2023-11-14T22:13:20Z", true},
		{"rfc3339", "2023-11-14T23:13:20+01:00", true},
		{"rfc3339", "2023-11-14T22:13:20.123456789Z", true},
		{"rfc3339", "2023-11-14T22:13:20.1234567890Z", false},
		{"rfc3339", "2023-11-14T22:13:20.Z", false},
		{"rfc3339", "2023-11-14T22:13:20,5Z", false},
		{"rfc3339", "2023-11-14T22:13:20", false},
		{"rfc3339", "2023-11-14t22:13:20z", false},
		{"rfc3339", "2023-11-14 22:13:20Z", false},
		{"rfc3339", "2023-11-14T22:13:20+0100", false},
		{"rfc3339", "2023-11-14T22:13:20+25:00", false},
		{"rfc3339", "2023-13-14T22:13:20Z", false},
		{"rfc3339", "2023-02-30T22:13:20Z", false},
		{"rfc3339", "2023-11-14T22:13:60Z", false},
		{"rfc3339", "2023-11-14T22:13Z", false},
		{"rfc3339", "", false},
		{"http-date", "Tue, 14 Nov 2023 22:13:20 GMT", true},
		{"http-date", "Wed, 14 Nov 2023 22:13:20 GMT", false},
		{"http-date", "Tue, 14 Nov 2023 22:13:20 UTC", false},
		{"http-date", "Tuesday, 14-Nov-23 22:13:20 GMT", false},
		{"http-date", "tue, 14 nov 2023 22:13:20 GMT", false},
	} {
		got, ok := timeFormats[c.format].parse(c.text)
		if ok != c.ok || ok && got.Truncate(time.Second).Unix() != at1700.Unix() {
			t.Errorf("%s %q: %v, %v", c.format, c.text, got, ok)
		}
	}
}

func TestWindows(t *testing.T) {
	for _, c := range []struct {
		recipe    string
		tolerance time.Duration
		distance  int64
		ok        bool
	}{
		{`"tolerance_s":60`, 0, -60, true},
		{`"tolerance_s":60`, 0, -61, false},
		{`"tolerance_s":60`, 0, 60, true},
		{`"tolerance_s":60`, 0, 61, false},
		{`"format":"unix-s"`, 0, 300, true},
		{`"format":"unix-s"`, 0, -301, false},
		{`"tolerance_s":60`, 90 * time.Second, 90, true},
		{`"tolerance_s":60`, 30 * time.Second, 31, false},
		{`"tolerance_s":60`, -time.Second, 0, false},
		{`"tolerance_s":5,"past_only":true`, 0, -5, true},
		{`"tolerance_s":5,"past_only":true`, 0, -6, false},
		{`"tolerance_s":5,"past_only":true`, 0, 300, true},
		{`"tolerance_s":5,"past_only":true`, 0, 301, false},
		{`"tolerance_s":600,"past_only":true`, 0, 600, true},
		{`"tolerance_s":null`, 0, -1700000000, true},
		{`"tolerance_s":null`, 0, 900000000000, true},
		{`"tolerance_s":null`, 60 * time.Second, -61, false},
	} {
		s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{header:T}.{body}","timestamp":{"from":"header:T",`+c.recipe+`}}`)
		now := time.Unix(1700000000, 0)
		text := fmt.Sprint(1700000000 + c.distance)
		v := Verifier{Scheme: s, Keys: oneKey(t), Now: at(now), Tolerance: c.tolerance}
		env, err := v.Verify(Request{Header: http.Header{"T": {text}, "S": {hexMAC(sha256.New, text+".")}}})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrWindow) {
			t.Errorf("%s, tolerance %s, distance %d: %v", c.recipe, c.tolerance, c.distance, err)
		}
		if err == nil && (env.Timestamp != text || c.distance < 1e9 && c.distance > -1e9 && env.Distance != time.Duration(c.distance)*time.Second) {
			t.Errorf("%s: %+v", c.recipe, env)
		}
	}
	// Half a second beyond the end is beyond it.
	s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{header:T}.{body}","timestamp":{"from":"header:T"}}`)
	v := Verifier{Scheme: s, Keys: oneKey(t), Now: at(time.Unix(1700000300, 500e6))}
	if err := v.CheckHeader(Request{Header: http.Header{"T": {"1700000000"}, "S": {hexMAC(sha256.New, "1700000000.")}}}); !errors.Is(err, ErrWindow) {
		t.Errorf("300.5 s: %v", err)
	}
}

// Linear: the timestamp lies in the signed body, so it is read after the MAC.
func TestTimestampInTheBody(t *testing.T) {
	s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{body}","timestamp":{"from":"json:ts","format":"unix-ms","tolerance_s":60}}`)
	v := Verifier{Scheme: s, Keys: oneKey(t), Now: at(time.Unix(1700000000, 0))}
	for body, want := range map[string]Reason{
		`{"ts":1700000000000}`:   "",
		`{"ts":"1700000000000"}`: "",
		`{"ts":1700000061000}`:   ReasonTimestampOutOfWindow,
		`{"ts":1.7e12}`:          ReasonTimestampMalformed,
		`{"ts":true}`:            ReasonHeaderMissing,
		`{}`:                     ReasonHeaderMissing,
		`{"ts":1700000000000,"ts":1700000000000}`: ReasonTimestampMalformed,
		`no json`: ReasonTimestampMalformed,
	} {
		r := Request{Body: []byte(body), Header: http.Header{"S": {hexMAC(sha256.New, body)}}}
		if _, err := v.Verify(r); reasonOf(err) != want {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		// Unsigned, none of this is looked at.
		r.Header = http.Header{"S": {strings.Repeat("0", 64)}}
		if _, err := v.Verify(r); reasonOf(err) != ReasonSignatureMismatch {
			t.Errorf("%s, unsigned: %v", body, err)
		}
	}
}

func TestDeliveryIDs(t *testing.T) {
	sign := func(id string, h http.Header, body string) (Envelope, error) {
		s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{body}","id":`+id+`,"event_type":{"from":["header:Type","json:type"]}}`)
		v := Verifier{Scheme: s, Keys: oneKey(t)}
		if h == nil {
			h = http.Header{}
		}
		h["S"] = []string{hexMAC(sha256.New, body)}
		return v.Verify(Request{URL: "/in?q=7", Body: []byte(body), Header: h})
	}
	hashed := func(body string) string {
		sum := sha256.Sum256([]byte(body))
		return hex.EncodeToString(sum[:])
	}
	for _, c := range []struct {
		name, from string
		header     http.Header
		body       string
		id         string
		signed     bool
		meta       bool
		reason     Reason
	}{
		{"body", `{"from":"json:id"}`, nil, `{"id":"e1"}`, "e1", true, false, ""},
		{"a number", `{"from":"json:id"}`, nil, `{"id":12345678901234567890}`, "12345678901234567890", true, false, ""},
		{"not there", `{"from":"json:id"}`, nil, `{}`, "body:", true, true, ""},
		{"null", `{"from":"json:id"}`, nil, `{"id":null}`, "body:", true, true, ""},
		{"true", `{"from":"json:id"}`, nil, `{"id":true}`, "body:", true, true, ""},
		{"an object", `{"from":"json:id"}`, nil, `{"id":{}}`, "body:", true, true, ""},
		{"twice", `{"from":"json:id"}`, nil, `{"id":"a","id":"b"}`, "body:", true, true, ""},
		{"no JSON", `{"from":"json:id"}`, nil, `id=1`, "body:", true, true, ""},
		{"a blank inside", `{"from":"json:id"}`, nil, `{"id":"a b"}`, "body:", true, true, ""},
		{"a NUL inside", `{"from":"json:id"}`, nil, `{"id":"a\u0000"}`, "body:", true, true, ""},
		{"reserved", `{"from":"json:id"}`, nil, `{"id":"snap:1"}`, "body:", true, true, ""},
		{"257 characters", `{"from":"json:id"}`, nil, `{"id":"` + strings.Repeat("a", 257) + `"}`, "body:", true, true, ""},
		{"256 characters", `{"from":"json:id"}`, nil, `{"id":"` + strings.Repeat("a", 256) + `"}`, strings.Repeat("a", 256), true, false, ""},
		{"not of the pattern", `{"from":"json:id","pattern":"[0-9]+"}`, nil, `{"id":"a"}`, "body:", true, true, ""},
		{"body hash", `{"from":"body_sha256_hex"}`, nil, `x`, hashed("x"), true, false, ""},
		{"form", `{"from":"form:id"}`, nil, `a=1&id=e%2B1`, "e+1", true, false, ""},
		{"header", `{"from":"header:Id"}`, http.Header{"Id": {"h1"}}, ``, "h1", false, false, ""},
		{"no header", `{"from":"header:Id"}`, nil, ``, "", false, false, ReasonHeaderMissing},
		{"header, reserved", `{"from":"header:Id"}`, http.Header{"Id": {"snap:1"}}, ``, "", false, false, ReasonDeliveryIDInvalid},
		{"header with a blank", `{"from":"header:Id"}`, http.Header{"Id": {"a b"}}, ``, "", false, false, ReasonDeliveryIDInvalid},
		{"query", `{"from":"query:q"}`, nil, ``, "7", false, false, ""},
		{"second header", `{"from":["header:A","header:B"]}`, http.Header{"B": {"b1"}}, ``, "b1", false, false, ""},
		{"first header", `{"from":["header:A","header:B"]}`, http.Header{"A": {"a1"}, "B": {"b1"}}, ``, "a1", false, false, ""},
		{"neither header", `{"from":["header:A","header:B"]}`, nil, ``, "", false, false, ReasonHeaderMissing},
		{"header or body", `{"from":["header:A","json:id"]}`, nil, `{"id":"e1"}`, "e1", false, false, ""},
		{"joined", `{"from":"{header:Source}/{header:Id}"}`, http.Header{"Source": {"s"}, "Id": {"1"}}, ``, "s/1", false, false, ""},
		{"joined, one missing", `{"from":"{header:Source}/{header:Id}"}`, http.Header{"Source": {"s"}}, ``, "", false, false, ReasonHeaderMissing},
		{"joined from the body", `{"from":"{json:a}/{json:b}"}`, nil, `{"a":1,"b":"x"}`, "1/x", true, false, ""},
		{"joined from the body, one missing", `{"from":"{json:a}/{json:b}"}`, nil, `{"a":1}`, "body:", true, true, ""},
	} {
		env, err := sign(c.from, c.header, c.body)
		if reasonOf(err) != c.reason {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.id == "body:" {
			c.id += hashed(c.body)
		}
		if err == nil && (env.DeliveryID != c.id || env.IDSigned != c.signed || strings.Contains(env.MetaError, "delivery id") != c.meta) {
			t.Errorf("%s: %+v", c.name, env)
		}
		if strings.ContainsAny(env.MetaError, "\x00\n") {
			t.Errorf("%s: meta error %q", c.name, env.MetaError)
		}
	}
	// The type is metadata: nothing about it refuses a request.
	for body, want := range map[string]string{`{"id":1,"type":"a.b"}`: "a.b", `{"id":1,"type":5}`: "5", `{"id":1,"type":{}}`: "", `{"id":1}`: "",
		`{"id":1,"type":"a\nb"}`: "", `{"id":1,"type":"` + strings.Repeat("t", 300) + `"}`: ""} {
		if env, err := sign(`{"from":"json:id"}`, nil, body); err != nil || env.EventType != want {
			t.Errorf("%s: type %q, %v", body, env.EventType, err)
		}
	}
	if env, err := sign(`{"from":"json:id"}`, http.Header{"Type": {"h"}}, `{"id":1,"type":"b"}`); err != nil || env.EventType != "h" {
		t.Errorf("type in the header: %+v, %v", env, err)
	}
	if _, err := sign(`{"from":"json:id"}`, http.Header{"Type": {"h", "h"}}, `{"id":1}`); reasonOf(err) != ReasonHeaderDuplicated {
		t.Errorf("type header twice: %v", err)
	}
}

func TestPatternsMatchTheWholeValue(t *testing.T) {
	for _, c := range []struct {
		pattern, value string
		ok             bool
	}{
		{"[A-Za-z0-9_-]{1,128}", "a-_9", true},
		{"[A-Za-z0-9_-]{1,128}", "a.b", false},
		{"[A-Za-z0-9_-]{1,128}", "a\n", false},
		{"[A-Za-z0-9_-]{1,128}", "é", false},
		{"[A-Za-z0-9_-]{1,128}", "ñ", false}, // its bytes are C and 1 without their high bits
		{"[A-Za-z0-9_-]{1,128}", strings.Repeat("a", 129), false},
		{"[a-c]{3}", "abc", true},
		{"[a-c]{3}", "abca", false},
		{"[a-c]{2,}", "abcabc", true},
		{"[^a]+", "bcd", true},
		{"[^a]+", "bad", false},
		{"(?i)[a-c]+", "ABC", true},
		{"a|b", "b", true},
		{"a|b", "ab", false},
		{"evt_[0-9]+", "evt_12", true},
		{"evt_[0-9]+", "xevt_12", false},
		{"evt_[0-9]+", "evt_12x", false},
		{"(?m)evt$", "evt\nx", false},
		{"é+", "é", true},
	} {
		p, err := compilePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.match(c.value); got != c.ok {
			t.Errorf("%s against %q: %v", c.pattern, c.value, got)
		}
	}
}

// A request with an unknown key id is hashed like any other, so that time does not
// tell which ids there are.
func TestUnknownKeyIsHashedToo(t *testing.T) {
	v := benchVerifier(t, "zhisou-v1", 2)
	r := benchRequest(t, v, 1536)
	r.Header["X-Webhook-Key-Id"] = []string{"k9"}
	var c check
	if err := c.start(v, &r); err != nil {
		t.Fatal(err)
	}
	if err := c.run(); err == nil || err.Reason != ReasonKeyUnknown {
		t.Fatal(err)
	}
	if c.sums[0] == [maxDigest]byte{} {
		t.Error("no MAC was made")
	}
}

// A check with a public key is dear, so few are made.
func TestFewPublicKeyCandidates(t *testing.T) {
	s := compile(t, `{"algo":"ed25519","secret_spec":{"encoding":"raw-hex"},"signature":{"name":"S","list_sep":","},"template":"{body}"}`)
	v := Verifier{Scheme: s}
	sig := strings.Repeat("0", 128)
	for n, want := range map[int]Reason{4: ReasonKeyUnknown, 5: ReasonSignatureMalformed} {
		_, err := v.Verify(Request{Header: http.Header{"S": {strings.Repeat(sig+",", n)}}})
		if reasonOf(err) != want {
			t.Errorf("%d candidates: %v", n, err)
		}
	}
}

func TestVerifierIsSafeForConcurrentUse(t *testing.T) {
	v := benchVerifier(t, "zhisou-v1", 2)
	r := benchRequest(t, v, 1536)
	bad := r
	bad.Body = []byte("other")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if _, err := v.Verify(r); err != nil {
					t.Error(err)
				}
				if _, err := v.Verify(bad); reasonOf(err) != ReasonSignatureMismatch {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestReasonsAndCodes(t *testing.T) {
	seen := map[Reason]bool{}
	for _, r := range Reasons() {
		if seen[r] {
			t.Errorf("%s stands twice", r)
		}
		seen[r] = true
		e := &Error{Reason: r}
		kinds := 0
		for _, kind := range []error{ErrMalformed, ErrWindow, ErrSignature} {
			if errors.Is(e, kind) {
				kinds++
			}
		}
		if kinds != 1 {
			t.Errorf("%s is of %d kinds", r, kinds)
		}
		if hidden := errors.Is(e, ErrSignature) && r != ReasonHandshakeRefused; hidden != (r.Code() == "signature_invalid") {
			t.Errorf("%s has code %s", r, r.Code())
		}
	}
	if Reason("made up").Code() != "signature_invalid" {
		t.Error("an unknown reason gives itself away")
	}
	e := &Error{Reason: ReasonTimestampOutOfWindow, Scheme: "stripe", KeyID: "k1", Field: "sig:t", Distance: -301 * time.Second}
	if got := e.Error(); got != `verify stripe: timestamp_out_of_window (sig:t), key "k1", -5m1s from now` {
		t.Error(got)
	}
}
