package verify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const redacted = "[redacted]"

// ErrKeyUnusable is wrapped by every error about a secret or key that can never
// verify anything: empty, too short, misspelled, of the wrong kind.
var ErrKeyUnusable = errors.New("key unusable")

// Secret is a decoded secret or public key. It prints as [redacted] under every
// verb, in JSON, as text and in slog.
//
// In an unexported field of another struct fmt does not call Format, and follows
// pointers for some verbs. So what it holds stands behind a function, which nothing
// can print.
type Secret struct{ open func() *secretData }

func newSecret(d *secretData) Secret {
	return Secret{func() *secretData { return d }}
}

func (s Secret) data() *secretData {
	if s.open == nil {
		return nil
	}
	return s.open()
}

type secretData struct {
	raw    []byte // of a shared secret
	text   []byte // as configured, for Explain: a sender may have read it otherwise
	spec   SecretSpec
	public publicKey
	states [len(hashes)]sync.Pool // keyed HMAC states, by algorithm.hash
}

// Format implements [fmt.Formatter] for every verb and flag.
func (Secret) Format(s fmt.State, _ rune) { io.WriteString(s, redacted) }

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// MarshalText returns "[redacted]"; JSON and YAML use it too.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// IsZero says whether there is no secret at all.
func (s Secret) IsZero() bool { return s.open == nil }

// Len is the length of a shared secret, in bytes after decoding. 0: there is none, or
// it is a public key.
func (s Secret) Len() int {
	if s.IsZero() {
		return 0
	}
	return len(s.data().raw)
}

// Equal says in constant time whether two secrets hold the same bytes, so that a
// configuration with one secret in two places can be found.
func (s Secret) Equal(o Secret) bool {
	if s.IsZero() || o.IsZero() || s.data().raw == nil || o.data().raw == nil {
		return false
	}
	a, b := sha256.Sum256(s.data().raw), sha256.Sum256(o.data().raw)
	return hmac.Equal(a[:], b[:])
}

// state is a keyed hash that is used again: making one costs more than the hash
// of a small body.
type state struct {
	hash hash.Hash
	buf  []byte
	sum  [maxDigest]byte
}

func (st *state) flush() {
	if len(st.buf) > 0 {
		st.hash.Write(st.buf)
		st.buf = st.buf[:0]
	}
}

func (d *secretData) state(h int) *state {
	if st, ok := d.states[h].Get().(*state); ok {
		st.hash.Reset()
		return st
	}
	return &state{hash: hmac.New(hashes[h].new, d.raw), buf: make([]byte, 0, 256)}
}

func (d *secretData) release(h int, st *state) { d.states[h].Put(st) }

// SecretSpec says how the text of a secret becomes bytes. It is explicit and
// never guessed from the text.
type SecretSpec struct {
	// Encoding is utf8, base64, hex or whsec for secrets ("whsec_" must be there
	// and is cut, then base64); pem, spki-der-base64, raw-hex or raw-base64 for
	// public keys. Defaults to utf8, in recipes of public-key algorithms to pem. With
	// utf8 the text is taken whole.
	Encoding string `json:"encoding,omitempty"`
	// StripPrefix is cut before decoding where present; the first that fits.
	StripPrefix []string `json:"strip_prefix,omitempty"`
	// MinLen is the least number of bytes after decoding. Defaults to 1.
	MinLen int `json:"min_len,omitempty"`
}

const (
	maxSecret = 4096
	maxPEM    = 65536
)

// NewKey decodes the text of a secret strictly. An error wraps [ErrKeyUnusable]
// and names the key and the rule that it breaks, never the secret. White space at
// either end is a fault; [TrimSecretFile] cuts the newline that a file ends with.
func NewKey(id string, text []byte, spec SecretSpec) (Key, error) {
	fault := func(format string, a ...any) (Key, error) {
		return Key{}, fmt.Errorf("verify: key %q: %w: %s", id, ErrKeyUnusable, fmt.Sprintf(format, a...))
	}
	if rule := keyIDRule(id); rule != "" {
		return fault("%s", rule)
	}
	d := &secretData{}
	switch spec.Encoding {
	case "pem", "spki-der-base64", "raw-hex", "raw-base64":
		public, rule := decodePublicKey(text, spec)
		if rule != "" {
			return fault("%s", rule)
		}
		d.public = public
	default:
		raw, rule := decodeSecret(text, spec)
		if rule != "" {
			return fault("%s", rule)
		}
		if least := max(spec.MinLen, 1); len(raw) < least {
			return fault("%d bytes after decoding, at least %d are demanded", len(raw), least)
		}
		d.raw, d.text, d.spec = raw, bytes.Clone(text), spec
	}
	return Key{ID: id, Secret: newSecret(d)}, nil
}

// TrimSecretFile cuts exactly one final LF or CRLF, which editors and echo leave
// in a file. Nothing else at either end is ever cut.
func TrimSecretFile(text []byte) []byte {
	if t, ok := bytes.CutSuffix(text, []byte("\n")); ok {
		return bytes.TrimSuffix(t, []byte("\r"))
	}
	return text
}

func keyIDRule(id string) string {
	if len(id) > 128 {
		return "the key id is longer than 128 bytes"
	}
	for i := 0; i < len(id); i++ {
		if id[i] < '!' || id[i] > '~' {
			return "the key id holds other characters than ! to ~"
		}
	}
	return ""
}

// textRule finds what makes a secret differ from what the sender was given.
func textRule(text []byte, most int) string {
	if len(text) == 0 {
		return "the secret is empty"
	}
	if len(text) > most {
		return fmt.Sprintf("the secret is longer than %d bytes", most)
	}
	first, _ := utf8.DecodeRune(text)
	last, _ := utf8.DecodeLastRune(text)
	switch {
	case blank(first):
		return "white space before the secret"
	case last == '\n':
		return "a newline after the secret"
	case blank(last):
		return "white space after the secret"
	case last == 0:
		return "a NUL after the secret"
	}
	return ""
}

func blank(r rune) bool {
	return unicode.IsSpace(r) || r == '\ufeff' || r == '\u200b'
}

func decodeSecret(text []byte, spec SecretSpec) (raw []byte, rule string) {
	if rule := textRule(text, maxSecret); rule != "" {
		return nil, rule
	}
	s := string(text)
	switch spec.Encoding {
	case "", "utf8":
		return bytes.Clone(text), ""
	case "whsec":
		rest, ok := strings.CutPrefix(s, "whsec_")
		if !ok {
			return nil, `the secret does not begin with "whsec_"`
		}
		s = rest
	case "base64", "hex":
		s = stripPrefix(s, spec.StripPrefix)
	default:
		return nil, fmt.Sprintf("unknown encoding %q", spec.Encoding)
	}
	if s == "" {
		return nil, "the secret is empty behind its prefix"
	}
	if spec.Encoding == "hex" {
		raw, err := hex.DecodeString(s)
		if err != nil {
			return nil, "the secret is not hex"
		}
		return raw, ""
	}
	if raw = decodeBase64(nil, s, false); raw == nil {
		return nil, "the secret is not base64 (standard alphabet, padded)"
	}
	return raw, ""
}

func stripPrefix(s string, prefixes []string) string {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(s, p); ok {
			return rest
		}
	}
	return s
}
