package consumer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Secret is a shared secret, decoded. It prints as [redacted] under every verb, in
// JSON, as text and in slog.
type Secret []byte

// shortestSecret is what Standard Webhooks demands.
const shortestSecret = 24

// ParseSecret reads a secret in the form of Standard Webhooks: whsec_ and base64.
func ParseSecret(text string) (Secret, error) {
	rest, ok := strings.CutPrefix(text, "whsec_")
	if !ok {
		return nil, errors.New(`consumer: the secret does not begin with "whsec_"`)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(rest)
	if err != nil || strings.ContainsAny(rest, "\r\n") { // which DecodeString skips
		return nil, errors.New("consumer: the secret is not base64 (standard alphabet, padded)")
	}
	return raw, nil
}

// Format implements [fmt.Formatter] for every verb and flag.
func (Secret) Format(s fmt.State, _ rune) { io.WriteString(s, redacted) }

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// MarshalText returns "[redacted]"; JSON and YAML use it too.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// SigningKey signs what an app gets, from NotBefore, included, to NotAfter, excluded,
// by our clock. A zero time is no bound.
type SigningKey struct {
	ID        string // for people: it is not sent
	Secret    Secret // at least 24 bytes
	NotBefore time.Time
	NotAfter  time.Time
}

func (k *SigningKey) active(t time.Time) bool {
	return !t.Before(k.NotBefore) && (k.NotAfter.IsZero() || t.Before(k.NotAfter))
}

// The headers of Standard Webhooks, as net/http spells them.
const (
	headerWebhookID        = "Webhook-Id"
	headerWebhookTimestamp = "Webhook-Timestamp"
	headerWebhookSignature = "Webhook-Signature"
)

var errNoSigningKey = errors.New("no signing key is valid now, and nothing is sent unsigned")

// signer sets the headers by which an app knows that a request came from us, and when.
// It is a function, because what stands in one cannot be printed.
type signer func(h http.Header, deliveryID string, body []byte, now time.Time) error

// newSigner returns nil where there are no keys.
func newSigner(keys []SigningKey) (signer, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys = slices.Clone(keys)
	for i := range keys {
		k := &keys[i]
		if len(k.Secret) < shortestSecret {
			return nil, fmt.Errorf("consumer: signing key %q has %d bytes, at least %d are demanded", k.ID, len(k.Secret), shortestSecret)
		}
		if !k.NotAfter.IsZero() && !k.NotBefore.Before(k.NotAfter) {
			return nil, fmt.Errorf("consumer: signing key %q is never valid: NotAfter does not lie behind NotBefore", k.ID)
		}
		k.Secret = slices.Clone(k.Secret)
	}
	return func(h http.Header, deliveryID string, body []byte, now time.Time) error {
		for name := range h {
			if strings.HasPrefix(fold(name), "webhook-") {
				delete(h, name)
			}
		}
		id, timestamp := webhookID(deliveryID), strconv.FormatInt(now.Unix(), 10)
		var signatures []string
		for i := range keys {
			if keys[i].active(now) {
				signatures = append(signatures, "v1,"+webhookSignature(keys[i].Secret, id, timestamp, body))
			}
		}
		if len(signatures) == 0 {
			return errNoSigningKey
		}
		h[headerWebhookID] = []string{id}
		h[headerWebhookTimestamp] = []string{timestamp}
		h[headerWebhookSignature] = []string{strings.Join(signatures, " ")}
		return nil
	}, nil
}

func webhookSignature(secret []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	io.WriteString(mac, id+"."+timestamp+".")
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// webhookID is the delivery id, the same for each attempt. The scheme forbids a dot in
// it, and what a header does not carry to every app unchanged would not verify there:
// such ids go as a hash.
func webhookID(deliveryID string) string {
	plain := deliveryID != "" && len(deliveryID) <= longestValue
	for _, c := range []byte(deliveryID) {
		plain = plain && c > ' ' && c < 0x7f && c != '.'
	}
	if plain {
		return deliveryID
	}
	sum := sha256.Sum256([]byte(deliveryID))
	return "sha256-" + hex.EncodeToString(sum[:])[:32]
}
