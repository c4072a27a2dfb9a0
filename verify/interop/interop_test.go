// Package interop holds verify against libraries that others wrote: what they sign
// verifies here, what is signed here verifies there, and where the two differ over a
// hostile request, it is over a rule that stands in the table.
//
// It has tests only, in a folder of its own, so that those of verify build without
// these libraries, and no program links them.
package interop

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"
	"pgregory.net/rapid"

	"github.com/hooklatch/hooklatch/verify"
)

// peer is a library of others beside our preset for the same scheme.
type peer struct {
	preset string
	// sign makes the headers of a request.
	sign func(secret, id string, at time.Time, body []byte) (http.Header, error)
	// check judges a request as the library's documentation says to; timeless leaves
	// the window out.
	check func(secret string, r verify.Request, timeless bool) error
}

func peers() []peer {
	return []peer{{
		preset: "stripe",
		sign: func(secret, _ string, at time.Time, body []byte) (http.Header, error) {
			p := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: body, Secret: secret, Timestamp: at})
			return http.Header{"Stripe-Signature": {p.Header}}, nil
		},
		check: func(secret string, r verify.Request, timeless bool) error {
			value := r.Header.Get("Stripe-Signature")
			if timeless {
				return webhook.ValidatePayloadIgnoringTolerance(r.Body, value, secret)
			}
			return webhook.ValidatePayload(r.Body, value, secret)
		},
	}, {
		preset: "standard-webhooks",
		sign: func(secret, id string, at time.Time, body []byte) (http.Header, error) {
			w, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				return nil, err
			}
			sig, err := w.Sign(id, at, body)
			h := http.Header{}
			h.Set(standardwebhooks.HeaderWebhookID, id)
			h.Set(standardwebhooks.HeaderWebhookTimestamp, unix(at))
			h.Set(standardwebhooks.HeaderWebhookSignature, sig)
			return h, err
		},
		check: func(secret string, r verify.Request, timeless bool) error {
			w, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				return err
			}
			if timeless {
				return w.VerifyIgnoringTimestamp(r.Body, r.Header)
			}
			return w.Verify(r.Body, r.Header)
		},
	}}
}

// fataler is what *testing.T and *rapid.T have in common here.
type fataler interface{ Fatal(...any) }

// ours is a Verifier with the key of that secret.
func (p peer) ours(t fataler, secret string) *verify.Verifier {
	s, ok := verify.Preset(p.preset)
	if !ok {
		t.Fatal("no preset " + p.preset)
	}
	k, err := verify.NewKey("k1", []byte(secret), s.SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := verify.NewKeySet(k)
	if err != nil {
		t.Fatal(err)
	}
	return &verify.Verifier{Scheme: s, Keys: keys}
}

// drawSecret is a secret of the peer's kind.
func (p peer) drawSecret(t *rapid.T) string {
	if p.preset == "stripe" {
		return "whsec" + rapid.StringMatching(`[!-~]{30,60}`).Draw(t, "secret")
	}
	raw := rapid.SliceOfN(rapid.Byte(), 24, 64).Draw(t, "secret")
	prefix := rapid.SampledFrom([]string{"", "whsec" + "_"}).Draw(t, "prefix")
	return prefix + base64.StdEncoding.EncodeToString(raw)
}

func TestEachTakesWhatTheOtherSigned(t *testing.T) {
	for _, p := range peers() {
		t.Run(p.preset, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				secret := p.drawSecret(t)
				body := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "body")
				id := rapid.StringMatching(`[!-\-/-~]{1,100}`).Draw(t, "id")
				if strings.HasPrefix(id, "snap:") {
					return // ours alone
				}
				at := time.Unix(rapid.Int64Range(0, 999999999999).Draw(t, "time"), 0)
				v := p.ours(t, secret)
				v.Now = func() time.Time { return at }

				h, err := p.sign(secret, id, at, body)
				if err != nil {
					t.Fatal(err)
				}
				env, err := v.Verify(verify.Request{Method: "POST", Header: h, Body: body})
				if err != nil || env.Timestamp != unix(at) || p.preset != "stripe" && env.DeliveryID != id {
					t.Fatalf("signed by them: %+v, %v", env, err)
				}
				own, err := v.Sign(verify.Request{Method: "POST", Body: body}, verify.SignOptions{DeliveryID: id})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.check(secret, verify.Request{Header: own, Body: body}, true); err != nil {
					t.Fatalf("signed by us: %v", err)
				}
				for name := range own {
					if own.Get(name) != h.Get(name) {
						t.Errorf("%s is %q, theirs %q", name, own.Get(name), h.Get(name))
					}
				}
			})
		})
	}
}

// Of an edited request nobody may say more than the other, but where a rule of ours
// refuses a spelling: then the reason is that rule, not a MAC that differs.
func TestEditsDivideUsOnlyByOurRules(t *testing.T) {
	for _, p := range peers() {
		t.Run(p.preset, func(t *testing.T) {
			both, divided := 0, 0
			rapid.Check(t, func(t *rapid.T) {
				secret := p.drawSecret(t)
				v := p.ours(t, secret)
				at := time.Unix(1760000000, 0)
				v.Now = func() time.Time { return at }
				for range 30 { // most edits leave nothing to agree on
					r := verify.Request{Method: "POST", Body: []byte(`{"id":"evt_1"}`)}
					var err error
					if r.Header, err = p.sign(secret, "msg_1", at, r.Body); err != nil {
						t.Fatal(err)
					}
					for range rapid.IntRange(1, 3).Draw(t, "edits") {
						edit(t, &r)
					}
					_, ours := v.Verify(r)
					theirs := p.check(secret, r, true)
					switch {
					case ours == nil && theirs == nil:
						both++
					case ours == nil:
						if p.preset != "stripe" || !looseList(r.Header.Get("Stripe-Signature")) {
							t.Fatalf("we alone take %q: %v", r.Header, theirs)
						}
						divided++
					case theirs == nil:
						if !spellingRule(ours, r.Header) {
							t.Fatalf("they alone take %q: %v", r.Header, ours)
						}
						divided++
					}
				}
			})
			t.Logf("both took %d, one of us %d", both, divided)
			if both == 0 || divided == 0 {
				t.Error("the edits never left a request that one takes")
			}
		})
	}
}

// spellingRule says whether we refused for a spelling. Beside a well-spelled candidate
// a misspelled one is skipped, which leaves a MAC that differs.
func spellingRule(err error, h http.Header) bool {
	e, ok := err.(*verify.Error)
	if !ok {
		return false
	}
	switch e.Reason {
	case verify.ReasonSignatureMalformed, verify.ReasonHeaderDuplicated, verify.ReasonTimestampMalformed, verify.ReasonDeliveryIDInvalid:
		return true
	case verify.ReasonSignatureMismatch:
		for item := range strings.FieldsFuncSeq(h.Get("Webhook-Signature"), func(r rune) bool { return r == ' ' }) {
			mac, ok := strings.CutPrefix(item, "v1,")
			if raw, err := base64.StdEncoding.Strict().DecodeString(mac); ok && (err != nil || len(raw) != 32) {
				return true
			}
		}
		for item := range strings.SplitSeq(h.Get("Stripe-Signature"), ",") {
			mac, ok := strings.CutPrefix(item, "v1=")
			if raw, err := hex.DecodeString(mac); ok && (err != nil || hex.EncodeToString(raw) != mac) {
				return true
			}
		}
	}
	return false
}

// looseList says whether a list has blanks around items, empty items, or an item of
// a foreign shape, which we skip and stripe-go refuses as a whole.
func looseList(value string) bool {
	for item := range strings.SplitSeq(value, ",") {
		if strings.Count(item, "=") != 1 || strings.TrimSpace(item) != item {
			return true
		}
	}
	return false
}

// edit changes one header value or the body.
func edit(t *rapid.T, r *verify.Request) {
	names := []string{"body"}
	for name := range r.Header {
		names = append(names, name)
	}
	names = sorted(names)
	name := rapid.SampledFrom(names).Draw(t, "where")
	text := string(r.Body)
	if name != "body" {
		text = r.Header.Get(name)
	}
	at := rapid.IntRange(0, len(text)).Draw(t, "at")
	switch rapid.IntRange(0, 5).Draw(t, "how") {
	case 0:
		text = text[:at] + rapid.StringMatching(`[ -~\t]`).Draw(t, "insert") + text[at:]
	case 1:
		text = text[:at] + text[min(at+1, len(text)):]
	case 2:
		text = text[:at] + rapid.StringMatching(`[ -~\t]`).Draw(t, "replace") + text[min(at+1, len(text)):]
	case 3:
		text = text[:at] + strings.ToUpper(text[at:])
	case 4:
		text += rapid.SampledFrom([]string{",", " ", ", ", "="}).Draw(t, "glue") + text[at:]
	case 5:
		text = rapid.SampledFrom([]string{"+", "0", ",", " ", "v0=00,", "v1=00,", "v1=AB==,", "v1,AA== ", "x "}).Draw(t, "before") + text
	}
	if name == "body" {
		r.Body = []byte(text)
	} else {
		r.Header.Set(name, text)
	}
}

// The whole of stripe-go's way, with the event read from the body.
func TestStripeConstructsTheEventThatWeSigned(t *testing.T) {
	p := peers()[0]
	secret := "whsec" + "_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	body, err := json.Marshal(map[string]any{"id": "evt_1", "object": "event", "type": "invoice.paid", "api_version": stripe.APIVersion})
	if err != nil {
		t.Fatal(err)
	}
	v := p.ours(t, secret)
	h, err := v.Sign(verify.Request{Body: body}, verify.SignOptions{})
	if err != nil {
		t.Fatal(err)
	}
	event, err := webhook.ConstructEvent(body, h.Get("Stripe-Signature"), secret)
	if err != nil {
		t.Fatal(err)
	}
	env, err := v.Verify(verify.Request{Header: h, Body: body})
	if err != nil || env.DeliveryID != event.ID || env.EventType != string(event.Type) {
		t.Errorf("%+v, %v; theirs %s %s", env, err, event.ID, event.Type)
	}
}
