package proxy

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/verify"
)

// withMetadata is src1 with every kind of metadata.
func withMetadata(t testing.TB) Source {
	s := src1(t)
	s.EventID, s.EventType = field(t, "/event_id"), field(t, "/type")
	s.ResourceType, s.ResourceID = field(t, "/resource/type"), field(t, "/resource/id")
	s.Revision, s.Deleted = field(t, "/resource/revision"), field(t, "/resource/deleted")
	return s
}

func TestX14_BodyThatDoesNotParse(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{withMetadata(t)}}})
	for i, body := range []string{
		`not json`, `{"type":"a","type":"b"}`, `{"type":"a\u0000b"}`, `{"type":"\ud800"}`, `{"resource":{"revision":1e400000}}`,
		strings.Repeat(`{"resource":`, 10_000) + `1` + strings.Repeat(`}`, 10_000), `{"type":{"a":1}}`, `{"resource":{"deleted":"perhaps"}}`,
		"\xef\xbb\xbf" + `{"type":"a"}`, `{"type":"` + strings.Repeat("x", 600) + `"}`,
	} {
		a := g.send(signed(fmt.Sprintf("dlv_%d", i), body))
		if a.status != 202 {
			t.Errorf("%.40q: status %d", body, a.status)
			continue
		}
		d := in.deliveries()[len(in.deliveries())-1]
		if d.MetaError == "" || d.EventType != "" || d.Revision != nil || d.Deleted {
			t.Errorf("%.40q: meta error %q, type %q, revision %v", body, d.MetaError, d.EventType, d.Revision)
		}
		if string(d.Body) != body || d.BodyHash != sha256.Sum256([]byte(body)) {
			t.Errorf("%.40q: stored %.40q", body, d.Body)
		}
	}
}

func TestX14_MetadataIsRead(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{withMetadata(t)}, ConfigRevision: 7}})
	m := signed("dlv_meta", `{"event_id":"ev_1","type":"report.updated","resource":{"type":"report","id":12,"revision":9223372036854775807,"deleted":true}}`)
	g.send(m.to("POST", "/in/src1?a=%zz;b")).wants(t, 202, "")
	d := in.deliveries()[0]
	if d.EventID != "ev_1" || d.EventType != "report.updated" || d.ResourceType != "report" || d.ResourceID != "12" ||
		d.Revision == nil || *d.Revision != 1<<63-1 || !d.Deleted || d.MetaError != "" {
		t.Errorf("metadata %+v", d)
	}
	if d.Method != "POST" || d.RawQuery != "a=%zz;b" || d.Scheme != "zhisou-v1" || d.KeyID != "k1" || d.Peer != "127.0.0.1" || d.ConfigRevision != 7 {
		t.Errorf("facts %+v", d)
	}
	if http.Header(d.Header).Get("X-Webhook-Signature") != m.get("X-Webhook-Signature") {
		t.Errorf("headers %v", d.Header)
	}
}

func TestRevisionHasOneSpelling(t *testing.T) {
	s := src1(t)
	s.Revision = field(t, "header:X-Revision")
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
	for i, text := range []string{"0", "7", "9223372036854775807", "007", "+7", "-1", "1e2", "12.0", "9223372036854775808", "7 8"} {
		g.send(signed("dlv_rev", "x").add("X-Revision", text)).wants(t, 202, "")
		d := in.deliveries()[i]
		if good := i < 3; good != (d.Revision != nil) || good != (d.MetaError == "") {
			t.Errorf("%q: revision %v, meta error %q", text, d.Revision, d.MetaError)
		}
	}
}

// A source whose scheme has no delivery id takes the event's.
func TestEventIDTakesThePlaceOfTheDeliveryID(t *testing.T) {
	recipe := verify.Recipe{
		Name: "plain", Algo: "hmac-sha256", Template: "{body}",
		Signature: verify.SignatureRecipe{Name: "X-Sig"},
	}
	scheme, err := recipe.Compile()
	if err != nil {
		t.Fatal(err)
	}
	send := func(t *testing.T, eventID string, m *message) (answer, *recorder) {
		s := src1(t)
		s.Verifier = verifier(t, "zhisou-v1", key(t, "k1", secretK1))
		s.Verifier.Scheme = scheme
		s.EventID = field(t, eventID)
		in := &recorder{}
		return start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}}).send(m), in
	}
	plain := func(body string) *message {
		return &message{method: "POST", target: "/in/src1", body: []byte(body), header: [][2]string{{"X-Sig", macOf(secretK1, body)}}}
	}
	for _, c := range []struct {
		name, field string
		m           *message
		status      int
		code, id    string
	}{
		{"in the body", "/id", plain(`{"id":"e1"}`), 202, "", "e1"},
		{"in a header", "header:X-Id", plain("x").add("X-Id", "h1"), 202, "", "h1"},
		{"header absent", "header:X-Id", plain("x"), 400, "header_missing", ""},
		{"header empty", "header:X-Id", plain("x").add("X-Id", ""), 400, "header_missing", ""},
		{"header twice", "header:X-Id", plain("x").add("X-Id", "a").add("X-Id", "a"), 400, "header_duplicated", ""},
		{"header and its underscore twin", "header:X-Id", plain("x").add("X-Id", "a").add("X_Id", "b"), 400, "header_duplicated", ""},
		{"header with a blank", "header:X-Id", plain("x").add("X-Id", "a b"), 400, "delivery_id_invalid", ""},
		{"header of a snapshot", "header:X-Id", plain("x").add("X-Id", "snap:1"), 400, "delivery_id_invalid", ""},
		{"body without it", "/id", plain(`{}`), 202, "", "body:" + hashOf(`{}`)},
		{"body that does not parse", "/id", plain(`{`), 202, "", "body:" + hashOf(`{`)},
		{"body's is no id", "/id", plain(`{"id":"a b"}`), 202, "", "body:" + hashOf(`{"id":"a b"}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, in := send(t, c.field, c.m)
			a.wants(t, c.status, c.code)
			if c.status != 202 {
				if len(in.deliveries()) != 0 {
					t.Error("a refusal reached the inbox")
				}
				return
			}
			d := in.deliveries()[0]
			if d.DeliveryID != c.id || a.receipt(t).DeliveryID != c.id {
				t.Errorf("delivery id %q, answer %q, want %q", d.DeliveryID, a.receipt(t).DeliveryID, c.id)
			}
			if strings.HasPrefix(c.id, "body:") != (d.MetaError != "") {
				t.Errorf("meta error %q", d.MetaError)
			}
		})
	}
}

func TestIDInTheBodyOfAScheme(t *testing.T) {
	stripe := func(body string) *message {
		mac := macOf("whsec_0123456789abcdef0123456789abcdef", "1760000000."+body)
		return &message{method: "POST", target: "/in/src1", body: []byte(body), header: [][2]string{{"Stripe-Signature", "t=1760000000,v1=" + mac}}}
	}
	s := src1(t)
	s.Verifier = verifier(t, "stripe", key(t, "k1", "whsec_0123456789abcdef0123456789abcdef"))
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
	for i, c := range []struct{ body, id, eventType string }{
		{`{"id":"evt_1","type":"invoice.paid"}`, "evt_1", "invoice.paid"},
		{`{"type":"invoice.paid"}`, "", "invoice.paid"},
		{`{"id":"a b"}`, "", ""},
		{`{"id":"snap:1"}`, "", ""},
		{`no json`, "", ""},
	} {
		if c.id == "" {
			c.id = "body:" + hashOf(c.body)
		}
		r := g.send(stripe(c.body)).receipt(t)
		d := in.deliveries()[i]
		if r.DeliveryID != c.id || d.DeliveryID != c.id || d.EventType != c.eventType {
			t.Errorf("%s: delivery id %q, type %q", c.body, d.DeliveryID, d.EventType)
		}
		if strings.HasPrefix(c.id, "body:") != (d.MetaError != "") {
			t.Errorf("%s: meta error %q", c.body, d.MetaError)
		}
	}
}

// D7: each of these is flagged, and the delivery goes on without a revision.
func TestD7_RevisionInTheBodyIsANumber(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{withMetadata(t)}}})
	for i, c := range []struct {
		json  string
		taken bool
		meta  bool
	}{
		{"9", true, false}, {"10", true, false}, {"0", true, false}, {"9223372036854775807", true, false},
		{"9223372036854775808", false, true}, {`"11"`, false, true}, {"12.0", false, true}, {"1e2", false, true},
		{"-1", false, true}, {"-0", false, true}, {"true", false, true}, {`""`, false, true}, {"{}", false, true}, {"null", false, true},
	} {
		g.send(signed("dlv_d7", `{"type":"a","resource":{"id":"r","revision":`+c.json+`}}`)).wants(t, 202, "")
		d := in.deliveries()[i]
		if c.taken != (d.Revision != nil) || c.meta != (d.MetaError != "") || d.EventType != "a" || d.ResourceID != "r" {
			t.Errorf("%s: revision %v, meta error %q", c.json, d.Revision, d.MetaError)
		}
	}
	for body, meta := range map[string]string{`{"resource":{"id":"r"}}`: "revision is missing", `{"resource":{"id":""}}`: "", `{"type":"ping"}`: ""} {
		g.send(signed("dlv_d7", body)).wants(t, 202, "")
		if d := in.deliveries()[len(in.deliveries())-1]; d.Revision != nil || d.MetaError != meta {
			t.Errorf("%s: revision %v, meta error %q, want %q", body, d.Revision, d.MetaError, meta)
		}
	}
}
