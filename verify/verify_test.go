package verify

import (
	"crypto/hmac"
	"crypto/sha256"
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
	e = &Error{Reason: ReasonTimestampOutOfWindow, Field: "claim:exp"}
	if got := e.Error(); got != "verify: timestamp_out_of_window (claim:exp)" {
		t.Error(got)
	}
}
