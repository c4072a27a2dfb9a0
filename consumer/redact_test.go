package consumer

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const sentSignature = "5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd"

func TestT22_CredentialsThatTheAppEchoesAreNotKept(t *testing.T) {
	secret := secretOf(t, publishedSecret)
	secrets := map[string]string{
		"signature":  sentSignature,
		"token":      "ghp_ab12CD34",
		"cookie":     "c00kie-value",
		"base64":     base64.StdEncoding.EncodeToString(secret),
		"hex":        hex.EncodeToString(secret),
		"raw":        string(secret),
		"query":      "qu3ry/t0ken",
		"short head": "hm4c/Q+x9=",
		"password":   "pass:w0rd",
	}
	for name, echo := range map[string]func(r *http.Request) string{
		"the whole request": func(r *http.Request) string {
			dump, _ := httputil.DumpRequest(r, false)
			return string(dump)
		},
		"headers as JSON":   func(r *http.Request) string { text, _ := json.Marshal(r.Header); return string(text) },
		"slashes escaped":   func(r *http.Request) string { return strings.ReplaceAll(fmt.Sprint(r.Header, r.RequestURI), "/", `\/`) },
		"plus escaped":      func(r *http.Request) string { return strings.ReplaceAll(fmt.Sprint(r.Header), "+", `\u002B`) },
		"HTML":              func(r *http.Request) string { return template.HTMLEscapeString(fmt.Sprint(r.Header, r.RequestURI)) },
		"HTML of templates": func(r *http.Request) string { return strings.ReplaceAll(fmt.Sprint(r.Header), "+", "&#43;") },
		"a URL": func(r *http.Request) string {
			return url.QueryEscape(r.Header.Get("X-App-Hmac")) + "&" + r.URL.RawQuery
		},
		"what was expected": func(r *http.Request) string { return "expected v1=" + sentSignature + ", got …" },
		"our secrets":       func(*http.Request) string { return secrets["base64"] + " " + secrets["hex"] + " " + secrets["raw"] },
		"the token alone":   func(r *http.Request) string { return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") },
		"the password": func(r *http.Request) string {
			r.Header.Set("Authorization", r.Header.Get("X-Other-Authorization"))
			user, password, _ := r.BasicAuth()
			return user + " may not enter with " + password
		},
		"cut by the app": func(r *http.Request) string { return "bad signature " + sentSignature[:40] },
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewForwarder(ForwarderConfig{
				URL: newApp(t, func(rw http.ResponseWriter, r *http.Request) {
					rw.WriteHeader(400)
					io.WriteString(rw, "begin "+echo(r))
				}) + "/hook?tenant=a&token=qu3ry/t0ken",
				Sign: []SigningKey{{ID: "k", Secret: secret}},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Close)
			f := sample()
			f.Delivery.Header = map[string][]string{
				"Stripe-Signature": {"t=1760000000,v1=" + sentSignature}, "Authorization": {"Bearer ghp_ab12CD34"}, "Cookie": {"a=1; sid=c00kie-value"},
				"X-Other-Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("user:pass:w0rd"))}, "X-App-Hmac": {"hm4c/Q+x9="}, "X-Webhook-Key-Id": {"key-2026-12"}, "Idempotency-Key": {"idem-2026"},
			}
			fw := send(f)
			failure(t, w.Handle(t.Context(), fw))
			answer := string(fw.Report.Answer)
			if !strings.HasPrefix(answer, "begin ") || !strings.Contains(answer, redacted) {
				t.Errorf("kept %q", answer)
			}
			for what, leak := range secrets {
				if strings.Contains(answer, leak) || strings.Contains(answer, leak[:len(leak)-1]) || strings.Contains(answer, leak[:min(len(leak), 20)]) && len(leak) > 20 {
					t.Errorf("the %s is kept: %q", what, answer)
				}
			}
			if name == "the whole request" && !(strings.Contains(answer, "key-2026-12") && strings.Contains(answer, "idem-2026")) {
				t.Errorf("what is no secret is gone too: %q", answer)
			}
		})
	}
}

func TestTheWholeGoesBeforeItsParts(t *testing.T) {
	for _, all := range []hidden{{"abcdef", "abcdefgh12"}, {"abcdefgh12", "abcdef"}} {
		if got := string(all.redact([]byte("x abcdefgh12 y"))); got != "x "+redacted+" y" {
			t.Errorf("%v: %s", all, got)
		}
	}
}

// TestRedactionAcrossTheCut lets a credential begin anywhere near the end of what is kept.
func TestRedactionAcrossTheCut(t *testing.T) {
	for before := keptAnswer - len(sentSignature) - 3; before <= keptAnswer+3; before++ {
		w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(500)
			io.WriteString(rw, strings.Repeat("x", before)+r.Header.Get("X-Signature")+strings.Repeat("y", 100))
		}), 0)
		f := sample()
		f.Delivery.Header = map[string][]string{"X-Signature": {sentSignature}}
		fw := send(f)
		failure(t, w.Handle(t.Context(), fw))
		if answer := string(fw.Report.Answer); len(answer) != min(keptAnswer, before+len(redacted)+100) || strings.Contains(answer, sentSignature[:shortestHidden]) {
			t.Errorf("%d bytes before: kept %d that end %q", before, len(answer), answer[len(answer)-30:])
		}
	}
}

func TestRedactionOfErrors(t *testing.T) {
	app := newRawApp(t, func(head string, answer func(string)) {
		_, value, _ := strings.Cut(head, "X-Signature: ")
		value, _, _ = strings.Cut(value, "\r\n")
		answer("HTTP/1.1 " + value + "\r\n\r\n") // stands in the error of net/http
	})
	f := sample()
	f.Delivery.Header = map[string][]string{"X-Signature": {sentSignature}}
	failed := failure(t, newForwarder(t, app.url, 0).Handle(t.Context(), send(f)))
	if text := failed.Error(); strings.Contains(text, sentSignature[:20]) || !strings.Contains(text, redacted) {
		t.Errorf("the ledger would show %s", text)
	}
}

func TestRedactionHidesAllAndChangesNothingElse(t *testing.T) {
	part := rapid.StringMatching(`[a-cA-C0-9+/=]{6,12}`)
	rapid.Check(t, func(t *rapid.T) {
		var all hidden
		for _, v := range rapid.SliceOfN(part, 1, 4).Draw(t, "hidden") {
			all.add(v)
		}
		pieces := rapid.SliceOfN(rapid.OneOf(part, rapid.SampledFrom(append([]string{"-", "ok", "…"}, all...))), 0, 8).Draw(t, "text")
		text := strings.Join(pieces, " ")
		got := string(all.redact([]byte(text)))
		for _, v := range all {
			if strings.Contains(got, v) {
				t.Fatalf("%q is in %q", v, got)
			}
		}
		found := false
		for _, v := range all {
			found = found || strings.Contains(text, v) || strings.Contains(text, v[:shortestHidden])
		}
		if !found && got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}
