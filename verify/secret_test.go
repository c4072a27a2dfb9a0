package verify

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const plainSecret = "correct-horse-battery-staple-0123456789"

// leaks looks for the secret as text, hex, and as fmt prints byte slices.
func leaks(s string) bool {
	raw := []byte(plainSecret)
	for _, form := range []string{
		plainSecret, hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw)),
		base64.StdEncoding.EncodeToString(raw), strings.Trim(fmt.Sprint(raw), "[]"),
		strings.Trim(fmt.Sprintf("%#v", raw), "[]byte{}"), strings.Trim(fmt.Sprintf("%x", raw[:8]), "[]"),
	} {
		if strings.Contains(s, form) {
			return true
		}
	}
	return false
}

func TestSecretIsNeverPrinted(t *testing.T) {
	key, err := NewKey("k1", []byte(plainSecret), SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	scheme, _ := Preset("zhisou-v1")
	v := Verifier{Scheme: scheme, Keys: set}
	r := Request{Method: "POST"}
	if _, err := v.Sign(r, SignOptions{DeliveryID: "d"}); err != nil { // fills the pool of states
		t.Fatal(err)
	}
	type hidden struct {
		name   string
		secret Secret
		key    Key
		keys   []Key
		set    KeySet
		byName map[string]Secret
		any    any
		ptr    *Secret
	}
	nested := hidden{"n", key.Secret, key, []Key{key}, set, map[string]Secret{"a": key.Secret}, key.Secret, &key.Secret}
	values := map[string]any{
		"secret": key.Secret, "pointer": &key.Secret, "key": key, "key pointer": &key, "set": set,
		"verifier": v, "verifier pointer": &v, "nested": nested, "nested pointer": &nested,
		"options": SignOptions{Key: key}, "list": []Secret{key.Secret},
	}
	for name, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%t", "%e", "%p", "%T", "% x", "%#x"} {
			if got := fmt.Sprintf(verb, value); leaks(got) {
				t.Errorf("%s under %s: %s", name, verb, got)
			}
		}
		if text, err := json.Marshal(value); err == nil && leaks(string(text)) {
			t.Errorf("%s in JSON: %s", name, text)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value)
		if leaks(log.String()) {
			t.Errorf("%s in slog: %s", name, log.String())
		}
		var enc bytes.Buffer
		if gob.NewEncoder(&enc).Encode(value) == nil && leaks(enc.String()) {
			t.Errorf("%s in gob", name)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb, key.Secret); got != "[redacted]" {
			t.Errorf("%s prints %s", verb, got)
		}
	}
	text, err := json.Marshal(map[string]any{"s": key.Secret})
	if err != nil || string(text) != `{"s":"[redacted]"}` {
		t.Errorf("JSON: %s, %v", text, err)
	}
	if got := fmt.Sprint(Secret{}); got != "[redacted]" {
		t.Errorf("zero secret prints %s", got)
	}
}

func TestSecretsAreDecodedStrictly(t *testing.T) {
	b32 := base64.StdEncoding.EncodeToString([]byte(plainSecret))
	for _, c := range []struct {
		defect, text string
		spec         SecretSpec
		ok           bool
	}{
		{"text", plainSecret, SecretSpec{}, true},
		{"text with a prefix is taken whole", "whsec_abc", SecretSpec{Encoding: "utf8", StripPrefix: []string{"whsec_"}}, true},
		{"blanks inside", "two words", SecretSpec{}, true},
		{"base64", b32, SecretSpec{Encoding: "base64"}, true},
		{"base64 behind a prefix", "whsec_" + b32, SecretSpec{Encoding: "base64", StripPrefix: []string{"whpk_", "whsec_"}}, true},
		{"base64 behind another prefix", "whpk_" + b32, SecretSpec{Encoding: "base64", StripPrefix: []string{"whsec_"}}, false},
		{"base64 without padding", strings.TrimRight("YWI=", "="), SecretSpec{Encoding: "base64"}, false},
		{"base64 with free bits set", "YWJ=", SecretSpec{Encoding: "base64"}, false},
		{"base64 with a line feed inside", b32[:8] + "\n" + b32[8:], SecretSpec{Encoding: "base64"}, false},
		{"url-safe base64", "_-_-", SecretSpec{Encoding: "base64"}, false},
		{"hex", "00ff", SecretSpec{Encoding: "hex"}, true},
		{"upper-case hex", "00FF", SecretSpec{Encoding: "hex"}, true},
		{"odd hex", "00f", SecretSpec{Encoding: "hex"}, false},
		{"no hex", "zz", SecretSpec{Encoding: "hex"}, false},
		{"too short after decoding", "00ff", SecretSpec{Encoding: "hex", MinLen: 3}, false},
		{"exactly long enough", "00ff", SecretSpec{Encoding: "hex", MinLen: 2}, true},
		{"4096 bytes", strings.Repeat("k", 4096), SecretSpec{}, true},
		{"4097 bytes", strings.Repeat("k", 4097), SecretSpec{}, false},
		{"unknown encoding", plainSecret, SecretSpec{Encoding: "base32"}, false},
		{"zero-width space behind it", plainSecret + "\u200b", SecretSpec{}, false},
		{"long base64", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 3000)), SecretSpec{Encoding: "base64"}, true},
	} {
		_, err := NewKey("k1", []byte(c.text), c.spec)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.defect, err)
		}
		if err != nil && (!errors.Is(err, ErrKeyUnusable) || !strings.Contains(err.Error(), `"k1"`) || strings.Contains(err.Error(), c.text)) {
			t.Errorf("%s: error %v", c.defect, err)
		}
	}
	for _, id := range []string{"a b", "é", "a\n", strings.Repeat("k", 129)} {
		if _, err := NewKey(id, []byte(plainSecret), SecretSpec{}); err == nil {
			t.Errorf("key id %q was taken", id)
		}
	}
}

func TestTrimSecretFileCutsOneNewline(t *testing.T) {
	for file, want := range map[string]string{
		"k": "k", "k\n": "k", "k\r\n": "k", "k\n\n": "k\n", "k\r\n\r\n": "k\r\n", "k\r": "k\r", " k \n": " k ", "\n": "", "": "",
	} {
		if got := string(TrimSecretFile([]byte(file))); got != want {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}

func pemText(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestPublicKeysAreCheckedWhenRead(t *testing.T) {
	edPub, edPriv, _ := ed25519.GenerateKey(rand.Reader)
	edDER, _ := x509.MarshalPKIXPublicKey(edPub)
	edKey, _ := x509.MarshalPKCS8PrivateKey(edPriv)
	ec, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	ecDER, _ := x509.MarshalPKIXPublicKey(&ec.PublicKey)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	smallDER, _ := x509.MarshalPKIXPublicKey(&small.PublicKey)
	pemSpec := SecretSpec{Encoding: "pem"}
	for _, c := range []struct {
		defect string
		text   []byte
		spec   SecretSpec
		ok     bool
	}{
		{"Ed25519 as PEM", pemText("PUBLIC KEY", edDER), pemSpec, true},
		{"Ed25519 private", pemText("PRIVATE KEY", edKey), pemSpec, true},
		{"Ed25519 as base64 SPKI", []byte(base64.StdEncoding.EncodeToString(edDER)), SecretSpec{Encoding: "spki-der-base64"}, true},
		{"raw hex", []byte(hex.EncodeToString(edPub)), SecretSpec{Encoding: "raw-hex"}, true},
		{"raw base64 behind a prefix", []byte("whpk_" + base64.StdEncoding.EncodeToString(edPub)), SecretSpec{Encoding: "raw-base64", StripPrefix: []string{"whpk_"}}, true},
		{"31 bytes", []byte(hex.EncodeToString(edPub[:31])), SecretSpec{Encoding: "raw-hex"}, false},
		{"no hex", []byte("zz"), SecretSpec{Encoding: "raw-hex"}, false},
		{"very long base64", bytes.Repeat([]byte("AAAA"), 9000), SecretSpec{Encoding: "raw-base64"}, false},
		{"P-384", pemText("PUBLIC KEY", ecDER), pemSpec, false},
		{"RSA of 1024 bits", pemText("PUBLIC KEY", smallDER), pemSpec, false},
		{"two blocks", append(pemText("PUBLIC KEY", edDER), pemText("PUBLIC KEY", edDER)...), pemSpec, false},
		{"text behind the block", append(pemText("PUBLIC KEY", edDER), "x"...), pemSpec, false},
		{"a block that is no key", pemText("MESSAGE", edDER), pemSpec, false},
		{"a block that does not parse", pemText("PUBLIC KEY", edDER[1:]), pemSpec, false},
		{"no PEM", []byte("secret"), pemSpec, false},
		{"nothing", nil, pemSpec, false},
	} {
		if _, err := NewKey("k1", c.text, c.spec); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.defect, err)
		}
	}
}

func TestSecretEqual(t *testing.T) {
	a, _ := NewKey("a", []byte(plainSecret), SecretSpec{})
	b, _ := NewKey("b", []byte(hex.EncodeToString([]byte(plainSecret))), SecretSpec{Encoding: "hex"})
	c, _ := NewKey("c", []byte(plainSecret+"!"), SecretSpec{})
	if !a.Secret.Equal(b.Secret) || a.Secret.Equal(c.Secret) || a.Secret.Equal(Secret{}) || (Secret{}).Equal(Secret{}) {
		t.Error("secrets compare wrongly")
	}
}
