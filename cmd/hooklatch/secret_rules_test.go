package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good32 = "0123456789abcdef0123456789abcdef"

const ed25519PEM = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n-----END PUBLIC KEY-----\n"

// secretFaults are texts of secrets that could never verify, or would differ from
// what the sender has, and the rule that each breaks.
func secretFaults() []struct{ name, scheme, encoding, text, rule string } {
	return []struct{ name, scheme, encoding, text, rule string }{
		{"empty", "github", "", "", "the secret is empty"},
		{"a newline alone", "github", "", "\n", "the secret is empty"},
		{"two newlines", "github", "", good32 + "\n\n", "a newline after the secret"},
		{"CRLF twice", "github", "", good32 + "\r\n\r\n", "a newline after the secret"},
		{"blank in front", "github", "", " " + good32, "white space before the secret"},
		{"blank behind", "github", "", good32 + " ", "white space after the secret"},
		{"tab behind", "github", "", good32 + "\t\n", "white space after the secret"},
		{"no-break space behind", "github", "", good32 + "\u00a0", "white space after the secret"},
		{"no-break space in front", "github", "", "\u00a0" + good32, "white space before the secret"},
		{"byte order mark", "github", "", "\ufeff" + good32, "white space before the secret"},
		{"NUL behind", "github", "", good32 + "\x00", "a NUL after the secret"},
		{"NUL before the newline", "github", "", good32 + "\x00\n", "a NUL after the secret"},
		{"more than 4096 bytes", "github", "", strings.Repeat("k", 4097), "the secret is longer than 4096 bytes"},
		{"31 bytes under a native scheme", "zhisou-v1", "", good32[:31], "31 bytes after decoding, at least 32 are demanded"},
		{"31 bytes in hex", "zhisou-v1", "hex", strings.Repeat("0a", 31), "31 bytes after decoding, at least 32 are demanded"},
		{"31 bytes in base64", "timestamped-sha256", "base64", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==", "31 bytes after decoding, at least 32 are demanded"},
		{"prefix alone", "standard-webhooks", "", "whsec_", "the secret is empty behind its prefix"},
		{"prefix alone, demanded", "github", "whsec", "whsec_", "the secret is empty behind its prefix"},
		{"no base64 behind the prefix", "standard-webhooks", "", "whsec_!!!!", "the secret is not base64 (standard alphabet, padded)"},
		{"the signature's tag in front", "standard-webhooks", "", "v1,whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "the secret is not base64 (standard alphabet, padded)"},
		{"base64 without padding", "standard-webhooks", "", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", "the secret is not base64 (standard alphabet, padded)"},
		{"base64 of the other alphabet", "smallstep", "", "-_-_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBka", "the secret is not base64 (standard alphabet, padded)"},
		{"base64 with a line break", "standard-webhooks", "", "whsec_AAECAwQFBgcICQoLDA0ODxAR\nEhMUFRYXGBkaGxwdHh8=", "the secret is not base64 (standard alphabet, padded)"},
		{"demanded prefix missing", "github", "whsec", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", `the secret does not begin with "whsec_"`},
		{"odd number of hex digits", "adyen", "", "0a0", "the secret is not hex"},
		{"no hex", "github", "hex", "no hex at all", "the secret is not hex"},
		{"no PEM", "wise", "", good32, "not one PEM block"},
		{"a secret for a public key", "discord", "", good32, "the public key has 16 bytes, not 32"},
		{"PEM where hex is read", "discord", "", ed25519PEM, "the public key is not hex"},
		{"a key of another kind", "wise", "", ed25519PEM, "not of the kind or length that wise demands"},
		{"no separator", "braintree", "", good32, "not of the kind or length that braintree demands"},
	}
}

// oneKey is a configuration with one key, k-7 in line 11, and its file.
func oneKey(t *testing.T, scheme, encoding, secret string) (*config, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "key-1")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if encoding != "" {
		encoding = ", encoding: " + encoding
	}
	t.Setenv("HOOKLATCH_TEST_DB", "postgres://localhost/db")
	c, err := parseConfig(filepath.Join(dir, "hooklatch.yaml"), fmt.Appendf(nil, `version: 1
listen: {http: "127.0.0.1:0"}
database: {url: {env: HOOKLATCH_TEST_DB}}
sources:
  s:
    tenant: a
    path: /in
    scheme: %s
    event: {id: /id}
    keys:
      - {id: k-7, secret: {file: key-1}%s}
`, scheme, encoding), configNow)
	if err != nil {
		t.Fatal(err)
	}
	return c, file
}

// A secret that can never verify is refused when it is read, with the key, the file
// and the rule, and is never shown.
func TestSecretsThatCouldNeverVerify(t *testing.T) {
	for _, test := range secretFaults() {
		t.Run(test.name, func(t *testing.T) {
			c, file := oneKey(t, test.scheme, test.encoding, test.text)
			_, err := c.loadSecrets(t.Context())
			var message string
			for _, p := range problemsOf(err) {
				message += fmt.Sprintf("%d %s\n", p.Line, p.Message)
			}
			want := fmt.Sprintf("11 key \"k-7\": key unusable: %s (file key-1)\n", test.rule)
			if message != want {
				t.Errorf("got  %swant %s", message, want)
			}
			if secret := strings.TrimSpace(test.text); len(secret) > 8 && strings.Contains(fmt.Sprint(err), secret) {
				t.Errorf("the secret is shown: %v", err)
			}
			if test.encoding != "" || strings.HasPrefix(test.rule, "not of the kind") {
				return
			}
			code, _, messages := hooklatch(t, "verify", "--scheme", test.scheme, "--secret-file", "k-7="+file, "--body", file)
			if code != exitConfig || !strings.Contains(messages, fmt.Sprintf("hooklatch: key \"k-7\": key unusable: %s (%s)\n", test.rule, file)) {
				t.Errorf("verify: exit code %d\n%s", code, messages)
			}
		})
	}
}

// What looks odd and is right is taken: the reading of a secret is never guessed.
func TestSecretsThatAreTakenAsTheyAre(t *testing.T) {
	for _, test := range []struct{ name, scheme, encoding, text, warning string }{
		{"one newline", "github", "", good32 + "\n", ""},
		{"one CRLF", "github", "", good32 + "\r\n", ""},
		{"a blank inside", "github", "", "correct horse battery staple", ""},
		{"whsec_ as text for Stripe", "stripe", "", "whsec_AAECAwQFBgcICQoLDA0ODxAR", ""},
		{"base64 that is not decoded", "zhisou-v1", "", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", ""},
		{"4096 bytes", "github", "", strings.Repeat("k", 4096), ""},
		{"32 bytes", "zhisou-v1", "", good32, ""},
		{"whsec for a scheme of text", "github", "whsec", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", ""},
		{"text for a scheme of base64", "openai", "utf8", "a text of more than 24 bytes !", ""},
		{"PEM in place of hex", "discord", "pem", "", ""},
		{"23 bytes", "github", "", good32[:23], "11 the secret of key k-7 has fewer than 24 bytes: 32 random ones are good, as keygen makes them"},
		{"16 bytes in 32 hex digits", "github", "hex", good32, "11 the secret of key k-7 has fewer than 24 bytes: 32 random ones are good, as keygen makes them"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.encoding == "pem" {
				key, err := makeKey("ed25519", signingSpec(presetOf(t, "wise")))
				if err != nil {
					t.Fatal(err)
				}
				test.text = key.public
			}
			c, _ := oneKey(t, test.scheme, test.encoding, test.text)
			c.warnings = nil
			if _, err := c.loadSecrets(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range c.warnings {
				got = append(got, fmt.Sprintf("%d %s", w.Line, w.Message))
			}
			if strings.Join(got, "\n") != test.warning {
				t.Errorf("warnings %q, want %q", got, test.warning)
			}
		})
	}
}
