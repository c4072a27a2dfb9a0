package consumer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"
)

const (
	publishedSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of the scheme's own tests
	nextSecret      = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

func secretOf(t testing.TB, text string) Secret {
	t.Helper()
	s, err := ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPublishedVectorsOfStandardWebhooks(t *testing.T) {
	text, err := os.ReadFile("../testdata/vectors/standard-webhooks.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, Secret, Expect string
		Headers              map[string][]string
		Body                 []byte `json:"body_base64"`
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, v := range vectors {
		if v.Expect != "valid" {
			continue
		}
		checked++
		h := http.Header{}
		for name, values := range v.Headers {
			h[http.CanonicalHeaderKey(name)] = values
		}
		got := "v1," + webhookSignature(secretOf(t, v.Secret), h.Get("webhook-id"), h.Get("webhook-timestamp"), v.Body)
		if !strings.Contains(h.Get("webhook-signature"), got) {
			t.Errorf("%s: %s, want one of %s", v.Name, got, h.Get("webhook-signature"))
		}
	}
	if checked < 3 {
		t.Errorf("%d vectors were checked", checked)
	}
}

// signing is an app that hands each request, its body beside it, to a channel, and a
// Forwarder that signs with keys.
func signing(t *testing.T, now func() time.Time, keys ...SigningKey) (*Forwarder, <-chan rawSigned) {
	t.Helper()
	seen := make(chan rawSigned, 1)
	url := newApp(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- rawSigned{r.Header, body}
	})
	w, err := NewForwarder(ForwarderConfig{URL: url, Sign: keys, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, seen
}

type rawSigned struct {
	header http.Header
	body   []byte
}

func verifies(t testing.TB, secret string, r rawSigned) error {
	t.Helper()
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return wh.Verify(r.body, r.header)
}

func TestT12_AnyLibraryCanCheckThatARequestCameFromUs(t *testing.T) {
	w, seen := signing(t, nil, SigningKey{ID: "k", Secret: secretOf(t, publishedSecret)})
	rapid.Check(t, func(rt *rapid.T) {
		f := sample()
		f.Delivery.DeliveryID = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
			"dlv_1", "a.b", " a", "a ", "a\tb", "\u00e9", "\x00", "", strings.Repeat("x", 300), strings.Repeat("x", longestValue+1), "sha256-1",
		})).Draw(rt, "id")
		f.Delivery.Body = rapid.SliceOf(rapid.Byte()).Draw(rt, "body")
		f.Delivery.Header["Webhook-Id"] = []string{"forged"}
		f.Delivery.Header["webhook_signature"] = []string{"v1,forged"}
		if err := w.Handle(t.Context(), send(f)); err != nil {
			rt.Fatal(err)
		}
		r := <-seen
		if err := verifies(t, publishedSecret, r); err != nil {
			rt.Fatalf("%v: %v", r.header, err)
		}
		if verifies(t, nextSecret, r) == nil {
			rt.Fatal("a request that was signed for another is taken")
		}
		if strings.ContainsAny(r.header.Get("webhook-id"), ". ") {
			rt.Fatalf("webhook-id %q", r.header.Get("webhook-id"))
		}
	})
}

func TestWebhookIDIsTheSameForEachAttemptAndHoldsNoDot(t *testing.T) {
	for id, want := range map[string]string{
		"dlv_1":     "dlv_1",
		"snap:1/~!": "snap:1/~!",
		"a.b":       "sha256-2e7336dc8eba87ef472df568c35482ab",
		"":          "sha256-e3b0c44298fc1c149afbf4c8996fb924",
		"é":         "sha256-4a99557e4033c3539de2eb65472017ca",
		" a":        "sha256-7de598b3ff8a99638e1f9bf49260baa0", // a header loses the space on its way
		"a\r\nB: c": "sha256-bc142c8255e7b4f20379cbcd1a0c4748",
	} {
		if got := webhookID(id); got != want {
			t.Errorf("%q became %s, want %s", id, got, want)
		}
	}
}

func TestKeysThatAreValidNowSign(t *testing.T) {
	begin := time.Unix(1_760_000_000, 0)
	var now time.Time
	old := SigningKey{ID: "old", Secret: secretOf(t, publishedSecret), NotAfter: begin.Add(2 * time.Hour)}
	next := SigningKey{ID: "next", Secret: secretOf(t, nextSecret), NotBefore: begin.Add(time.Hour), NotAfter: begin.Add(3 * time.Hour)}
	w, seen := signing(t, func() time.Time { return now }, old, next)
	for _, tc := range []struct {
		at         time.Duration
		old, fresh bool
	}{
		{0, true, false},
		{time.Hour - 1, true, false},
		{time.Hour, true, true}, // NotBefore is included
		{2*time.Hour - 1, true, true},
		{2 * time.Hour, false, true}, // NotAfter is not
		{3*time.Hour - 1, false, true},
	} {
		now = begin.Add(tc.at)
		if err := w.Handle(t.Context(), send(sample())); err != nil {
			t.Fatal(err)
		}
		r := <-seen
		for secret, want := range map[string]bool{publishedSecret: tc.old, nextSecret: tc.fresh} {
			wh, _ := standardwebhooks.NewWebhook(secret)
			if err := wh.VerifyIgnoringTimestamp(r.body, r.header); (err == nil) != want {
				t.Errorf("after %v, signed by %s: %v, want %v", tc.at, secret, err, want)
			}
		}
		if got := len(r.header["Webhook-Signature"]); got != 1 {
			t.Errorf("%d fields of webhook-signature: libraries read the first", got)
		}
		if got, want := r.header.Get("webhook-timestamp"), fmt.Sprint(now.Unix()); got != want {
			t.Errorf("timestamp %s, want %s", got, want)
		}
	}
	now = begin.Add(3 * time.Hour)
	if failed := failure(t, w.Handle(t.Context(), send(sample()))); failed.Permanent || failed.Err != (silent{errNoSigningKey}) {
		t.Errorf("%+v, want a retry: nothing may be sent unsigned", failed)
	}
	if len(seen) != 0 {
		t.Error("a request without a signature was sent")
	}
}

func TestSigningKeysThatAreRefused(t *testing.T) {
	at := time.Unix(1_760_000_000, 0)
	for name, k := range map[string]SigningKey{
		"no secret":    {ID: "k"},
		"short secret": {ID: "k", Secret: bytes.Repeat([]byte("s3cret."), 3)},
		"never valid":  {ID: "k", Secret: secretOf(t, publishedSecret), NotBefore: at, NotAfter: at},
	} {
		_, err := NewForwarder(ForwarderConfig{URL: "http://app", Sign: []SigningKey{k}})
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{
		"", "whsec_!!!!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjU\nPD8ILPZIo2LaLaSw", publishedSecret + "\n", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-_", "whsec_AAF",
	} {
		if s, err := ParseSecret(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
}

func TestP13_SigningSecretsPrintNowhere(t *testing.T) {
	secret := Secret("s3cret-s3cret-s3cret-s3cret")
	cfg := ForwarderConfig{URL: "http://app", Sign: []SigningKey{{ID: "k", Secret: secret}}}
	w, err := NewForwarder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	cfg.Now = nil // a function has no JSON
	var log bytes.Buffer
	var printed []string
	for _, v := range []any{secret, &secret, cfg.Sign, cfg.Sign[0], &cfg.Sign[0], cfg, &cfg, w, *w} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%c", "%U"} {
			printed = append(printed, fmt.Sprintf(verb, v))
		}
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
	}
	text, err := json.Marshal(cfg.Sign)
	if err != nil || !strings.Contains(string(text), redacted) {
		t.Errorf("%s, %v", text, err)
	}
	all := strings.Join(append(printed, string(text), log.String()), "\n")
	for _, leak := range []string{string(secret), "s3cret", fmt.Sprintf("%x", "s3cret"), fmt.Sprintf("%X", "s3cret"), "115 51 99 114", "czNjcmV0"} {
		if i := strings.Index(all, leak); i >= 0 {
			t.Errorf("%q is printed: …%s", leak, all[max(0, i-80):min(len(all), i+40)])
		}
	}
}

func TestKeysAreCopied(t *testing.T) {
	keys := []SigningKey{{ID: "k", Secret: secretOf(t, publishedSecret)}}
	w, seen := signing(t, nil, keys...)
	clear(keys[0].Secret) // as who wants it out of memory
	if err := w.Handle(t.Context(), send(sample())); err != nil {
		t.Fatal(err)
	}
	if err := verifies(t, publishedSecret, <-seen); err != nil {
		t.Error(err)
	}
}
