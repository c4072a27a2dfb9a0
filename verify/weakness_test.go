package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestWeaknessesFollowFromTheRecipe(t *testing.T) {
	for _, test := range []struct{ text, weaknesses, covers string }{
		{`{"preset":"zhisou-v1"}`, "", "timestamp, id, body"},
		{`{"preset":"timestamped-sha256"}`, "id_unsigned", "timestamp, body"},
		{`{"preset":"delivery-timestamp"}`, "", "id, timestamp, body"},
		{`{"preset":"stripe"}`, "", "timestamp, body"},
		{`{"preset":"stripe","timestamp":{"tolerance_s":null}}`, "no_window", "timestamp, body"},
		{`{"preset":"github"}`, "id_unsigned no_timestamp", "body"},
		{`{"algo":"token","signature":{"name":"X-Token"},"id":{"from":"header:X-Id"}}`, "static_token", ""},
		{`{"algo":"basic"}`, "static_token", ""},
		{`{"algo":"hash-sha1","signature":{"name":"S"},"template":"{secret}{body}"}`, "no_timestamp sha1 plain_hash", "body"},
		{`{"algo":"hmac-sha1","signature":{"name":"S"},"template":"{url}{form_sorted}"}`, "body_not_covered no_timestamp sha1", "URL, form"},
		{`{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{header:I}|{body_crc32_dec}","id":{"from":"json:id"}}`,
			"body_crc32 id_unsigned no_timestamp", "I, CRC-32 of the body"},
		{`{"algo":"hmac-sha256","signature":{"in":"json","name":"a.sig"},"template":"{json:a.t}{json:a.id}","timestamp":{"from":"json:a.t"},"id":{"from":"json:a.id"}}`,
			"body_not_covered", "timestamp, id"},
		{`{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{method}{host}{path}?{query_raw}{header:ce-id}","id":{"from":"{header:ce-id}/{header:ce-x}"}}`,
			"body_not_covered id_unsigned no_timestamp", "method, host, path, query, id"},
		{`{"algo":"code:twilio"}`, "body_not_covered no_timestamp sha1", "URL, form"},
		{`{"algo":"code:braintree","id":{"from":"body_sha256_hex"}}`, "body_not_covered id_unsigned no_timestamp sha1", "form:bt_payload"},
		{`{"algo":"code:adyen-item"}`, "body_not_covered no_timestamp", "eight fields of each item"},
		{`{"algo":"code:sns","id":{"from":"json:/MessageId"}}`, "body_not_covered no_timestamp sha1", "id, topic, time, message"},
		{`{"algo":"code:sns","min_signature_version":2}`, "body_not_covered no_timestamp", "id, topic, time, message"},
		{`{"algo":"code:contentful"}`, "", "method, path, timestamp, listed headers, body"},
		{`{"algo":"code:contentful","tolerance_s":null}`, "no_window", "method, path, timestamp, listed headers, body"},
		{`{"algo":"code:hook0","id":{"from":"header:X-Event-Id"}}`, "id_unsigned", "timestamp, listed headers, body"},
		{`{"algo":"code:plaid-jwt"}`, "", "timestamp, body"},
		{`{"algo":"code:monday-jwt"}`, "body_not_covered", "timestamp, URL"},
	} {
		s := compile(t, test.text)
		var codes []string
		for _, w := range s.Weaknesses() {
			codes = append(codes, w.Code)
			if w.Text == "" {
				t.Errorf("%s: %s has no text", test.text, w.Code)
			}
		}
		if got := strings.Join(codes, " "); got != test.weaknesses {
			t.Errorf("%s: got %q, want %q", test.text, got, test.weaknesses)
		}
		if got := strings.Join(s.Covers(), ", "); got != test.covers {
			t.Errorf("%s: covers %q, want %q", test.text, got, test.covers)
		}
	}
	if (Scheme{}).Weaknesses() != nil || (Scheme{}).Covers() != nil {
		t.Error("the zero scheme has weaknesses")
	}
}

// A weakness that a preset has and does not show would be trusted.
func TestPresetsShowTheirWeaknesses(t *testing.T) {
	for name, want := range map[string]string{
		"paypal": "body_crc32", "mailgun": "body_not_covered", "plivo-v2": "body_not_covered", "gitlab-token": "static_token",
		"postmark": "static_token", "hubspot-v1": "plain_hash", "sellsy": "plain_hash", "vercel": "sha1", "discord": "no_window",
		"shopify": "id_unsigned", "line": "no_timestamp",
	} {
		s, ok := Preset(name)
		if !ok {
			t.Errorf("no preset %s", name)
			continue
		}
		if !slices.ContainsFunc(s.Weaknesses(), func(w Weakness) bool { return w.Code == want }) {
			t.Errorf("%s: %v, want %s among them", name, s.Weaknesses(), want)
		}
	}
}

func ExampleScheme_Weaknesses() {
	s, _ := Preset("github")
	fmt.Println("covers", s.Covers(), "at", s.SignatureAt(), "window", s.Tolerance())
	for _, w := range s.Weaknesses() {
		fmt.Println(w.Code)
	}
	// Output:
	// covers [body] at [header:X-Hub-Signature-256] window 0s
	// id_unsigned
	// no_timestamp
}
