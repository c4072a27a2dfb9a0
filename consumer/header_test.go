package consumer

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hooklatch/hooklatch/inbox"
)

// hostile is F3-nominated of the shared fixtures and everything else that must
// not get through, beside what must.
func hostile() map[string][]string {
	return map[string][]string{
		"Connection":             {"X-Webhook-Key-Id, Hooklatch-Delivery-Id", "x_secret_hop"},
		"X-Webhook-Key-Id":       {"k1"},
		"X-Secret-Hop":           {"named by Connection in the other spelling"},
		"X-Webhook-Timestamp":    {"1760000000"},
		"X-Webhook-Delivery-Id":  {"dlv_F3_nominated"},
		"Hooklatch-Delivery-Id":  {"forged", "twice"},
		"Hooklatch_Tenant":       {"t2"},
		"hooklatch-anything-new": {"forged"},
		"X-Forwarded-For":        {"192.0.2.1"},
		"X_Forwarded_Proto":      {"https"},
		"X-Real-Ip":              {"192.0.2.1"},
		"X_real_IP":              {"192.0.2.2"},
		"Forwarded":              {"for=192.0.2.1"},
		"Via":                    {"1.1 other"},
		"Host":                   {"hooks.example.com"},
		"Content-Length":         {"9999"},
		"Content_Length":         {"9999"},
		"Transfer-Encoding":      {"chunked"},
		"Te":                     {"trailers"},
		"Trailer":                {"X-Late"},
		"Upgrade":                {"websocket"},
		"Keep-Alive":             {"timeout=5"},
		"Proxy-Connection":       {"keep-alive"},
		"Proxy-Authorization":    {"Basic eDp5"},
		"Expect":                 {"100-continue"},
		"Accept-Encoding":        {"gzip, br"},
		"X-Event-Id":             {"right"},
		"X_Event_Id":             {"shadow"},
		"X.Event.Id":             {"shadow"},
		"X.Real.Ip":              {"192.0.2.1"},
		"Hooklatch.Tenant":       {"forged"},
		"X_Only_Spelling":        {"kept"},
		"Content-Type":           {"application/json; charset=utf-8"},
		"Content-Encoding":       {"gzip"},
		"Accept":                 {"*/*"},
		"User-Agent":             {"\xf1a;F"},
		"X-Multi":                {"a", "b"},
		"X-Control":              {"a\x01b"},
		"X Space":                {"no token"},
	}
}

func sample() inbox.Forward {
	revision := int64(0)
	return inbox.Forward{
		ID: 3, Attempt: 2, Token: 5,
		Delivery: inbox.Delivery{
			Tenant: "t1", Source: "src1", DeliveryID: "dlv_1", EventID: "evt_1", EventType: "invoice.paid",
			KeyID: "k1", Revision: &revision, Method: "POST", RawQuery: "x=1;y=2&z=%zz",
			ReceivedAt: time.Date(2026, 3, 1, 13, 0, 0, 120_000_000, time.FixedZone("", 3600)),
			Header:     hostile(), Body: []byte(`{"a":1}`),
		},
	}
}

// wireGolden is every byte that the app sees before the body, but for the port.
const wireGolden = `POST /webhooks?own=1 HTTP/1.1
Host: app
User-Agent: ` + "\xf1a;F" + `
Content-Length: 7
Accept: */*
Content-Encoding: gzip
Content-Type: application/json; charset=utf-8
Hooklatch-Attempt: 2
Hooklatch-Delivery-Id: dlv_1
Hooklatch-Event-Id: evt_1
Hooklatch-Event-Type: invoice.paid
Hooklatch-Key-Id: k1
Hooklatch-Origin: push
Hooklatch-Received-At: 2026-03-01T12:00:00.12Z
Hooklatch-Revision: 0
Hooklatch-Source: src1
Hooklatch-Tenant: t1
X-Event-Id: right
X-Multi: a
X-Multi: b
X-Webhook-Delivery-Id: dlv_F3_nominated
X-Webhook-Timestamp: 1760000000
X_only_spelling: kept

`

func TestCaseF3_EveryHeaderTheAppSees(t *testing.T) {
	app := newRawApp(t, func(_ string, answer func(string)) { answer("HTTP/1.1 204 No Content\r\n\r\n") })
	w := newForwarder(t, app.url+"/webhooks?own=1", 0)
	if err := w.Handle(t.Context(), send(sample())); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll((<-app.seen).head, "\r\n", "\n")
	got = strings.Replace(got, strings.TrimPrefix(app.url, "http://"), "app", 1)
	if got != wireGolden {
		t.Errorf("the app saw\n%q\nwant\n%q", got, wireGolden)
	}
}

// signedGolden is what a signing destination gets in place of the lines that begin alike.
var signedGolden = strings.NewReplacer(
	"X-Event-Id: right\n", `Webhook-Id: dlv_1
Webhook-Signature: v1,SIGNATURE
Webhook-Timestamp: 1760000000
X-Event-Id: right
`)

func TestCaseF3_EveryHeaderThatASigningDestinationSees(t *testing.T) {
	app := newRawApp(t, func(_ string, answer func(string)) { answer("HTTP/1.1 204 No Content\r\n\r\n") })
	secret := secretOf(t, publishedSecret)
	w, err := NewForwarder(ForwarderConfig{
		URL: app.url + "/webhooks?own=1", Sign: []SigningKey{{ID: "fwd-1", Secret: secret}},
		Now: func() time.Time { return time.Unix(1_760_000_000, 999_999_999) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	f := sample()
	for _, name := range []string{"webhook-id", "Webhook-Timestamp", "WEBHOOK_SIGNATURE", "webhook-anything-new", "Webhook_Id"} {
		f.Delivery.Header[name] = []string{"forged", "twice"}
	}
	if err := w.Handle(t.Context(), send(f)); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll((<-app.seen).head, "\r\n", "\n")
	got = strings.Replace(got, strings.TrimPrefix(app.url, "http://"), "app", 1)
	// The signature itself is compared with what another library makes of it.
	got = strings.Replace(got, webhookSignature(secret, "dlv_1", "1760000000", f.Delivery.Body), "SIGNATURE", 1)
	if want := signedGolden.Replace(wireGolden); got != want {
		t.Errorf("the app saw\n%q\nwant\n%q", got, want)
	}
}

func TestWebhookHeadersOfTheSenderStayWhereWeDoNotSign(t *testing.T) {
	f := sample()
	f.Delivery.Header = map[string][]string{"Webhook-Id": {"msg_1"}, "Webhook-Signature": {"v1,x"}}
	if h := Header(f); h.Get("webhook-id") != "msg_1" || h.Get("webhook-signature") != "v1,x" {
		t.Errorf("%v: the app could not check the sender's own signature", h)
	}
}

func TestHeadersWithoutAValueAreLeftOut(t *testing.T) {
	bare := inbox.Forward{Attempt: 1, Delivery: inbox.Delivery{DeliveryID: "d", Source: "s", Tenant: "t"}}
	var got []string
	for name := range Header(bare) {
		got = append(got, name)
	}
	slices.Sort(got)
	want := "Hooklatch-Attempt Hooklatch-Delivery-Id Hooklatch-Origin Hooklatch-Source Hooklatch-Tenant"
	if strings.Join(got, " ") != want {
		t.Errorf("headers %v, want %s", got, want)
	}
}

func TestMetadataThatNoHeaderCanHoldIsLeftOut(t *testing.T) {
	f := sample()
	f.Delivery.EventID = "a\r\nHooklatch-Tenant: other"
	f.Delivery.EventType = strings.Repeat("x", longestValue+1)
	h := Header(f)
	if v, ok := h["Hooklatch-Event-Id"]; ok {
		t.Errorf("event id with a line break became %q", v)
	}
	if _, ok := h["Hooklatch-Event-Type"]; ok {
		t.Error("an event type longer than apps accept was sent")
	}
}

func TestNoReceivedHeaderGetsPast(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) string {
		base := rapid.SampledFrom([]string{
			"connection", "hooklatch-tenant", "hooklatch-new", "x-forwarded-for", "x-real-ip", "via", "host",
			"transfer-encoding", "content-length", "expect", "te", "x-plain", "x-other",
		}).Draw(t, "base")
		out := []byte(base)
		for i, c := range out {
			switch {
			case c == '-' && rapid.Bool().Draw(t, "underscore"):
				out[i] = '_'
			case c != '-' && rapid.Bool().Draw(t, "upper"):
				out[i] = strings.ToUpper(base)[i]
			}
		}
		return string(out)
	})
	rapid.Check(t, func(t *rapid.T) {
		received := rapid.MapOfN(name, rapid.SliceOfN(rapid.SampledFrom([]string{"forged", "x-plain", "X_Other , y"}), 1, 2), 0, 12).Draw(t, "received")
		f := sample()
		f.Delivery.Header = received
		h := Header(f)
		seen := map[string]string{}
		for name, values := range h {
			folded := fold(name)
			if other, twice := seen[folded]; twice && strings.Contains(name+other, "_") {
				t.Fatalf("%s beside %s", name, other)
			}
			seen[folded] = name
			if connectionNamed(received)[folded] && !strings.HasPrefix(folded, "hooklatch-") {
				t.Fatalf("%s was named by Connection", name)
			}
			if strings.HasPrefix(folded, "hooklatch-") && (len(values) != 1 || values[0] == "forged") {
				t.Fatalf("%s: %q", name, values)
			}
			if reserved(folded) && !strings.HasPrefix(name, "Hooklatch-") {
				t.Fatalf("%s got past", name)
			}
			if name != http.CanonicalHeaderKey(name) {
				t.Fatalf("%s is not canonical: two spellings could reach the app", name)
			}
		}
	})
}
