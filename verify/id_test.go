package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
)

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
	if env, err := sign(`{"from":"json:id"}`, http.Header{"Type": {"\xe9"}}, `{"id":1}`); err != nil || env.EventType != "" || env.MetaError == "" {
		t.Errorf("type in Latin-1: %+v, %v", env, err)
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

// The stand-in of an id is signed only as far as the body is.
func TestStandInForAnIDOfAnUnsignedBody(t *testing.T) {
	s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"X-Sig"},"template":"{header:X-Nonce}","id":{"from":"json:id"}}`)
	v := Verifier{Scheme: s, Keys: oneKey(t)}
	r := Request{Header: http.Header{"X-Nonce": {"n"}, "X-Sig": {hexMAC(sha256.New, "n")}}, Body: []byte("no json")}
	if env, err := v.Verify(r); err != nil || !strings.HasPrefix(env.DeliveryID, "body:") || env.IDSigned {
		t.Errorf("%+v, %v", env, err)
	}
}
