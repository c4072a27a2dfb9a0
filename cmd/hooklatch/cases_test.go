package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

// caseFixture is an entry of cases-fixtures.json: a request that went wrong for others.
type caseFixture struct {
	Name, Scheme string
	Headers      http.Header
	BodyHex      string `json:"body_hex"`
	Keys         []struct {
		ID        string
		SecretHex string `json:"secret_hex"`
	}
	Now    int64
	Expect int
}

const (
	caseKey1 = "hooklatch-test-secret-0123456789abcdef"
	caseNow  = 1760000000
)

func caseFixtures(t *testing.T) map[string]caseFixture {
	t.Helper()
	text, err := os.ReadFile("../../testdata/vectors/cases-fixtures.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Fixtures []caseFixture }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]caseFixture{}
	for _, f := range file.Fixtures {
		all[f.Name] = f
	}
	return all
}

func (f caseFixture) body(t *testing.T) []byte {
	t.Helper()
	body, err := hex.DecodeString(f.BodyHex)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// caseSite is a folder with the files of one case.
type caseSite struct {
	t   *testing.T
	dir string
}

func newCaseSite(t *testing.T) *caseSite { return &caseSite{t, t.TempDir()} }

func (s *caseSite) write(name string, text []byte) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// request writes the fixture's request and names its files.
func (s *caseSite) request(f caseFixture) []string {
	s.t.Helper()
	var lines strings.Builder
	for name, values := range f.Headers {
		for _, value := range values {
			lines.WriteString(name + ": " + value + "\r\n")
		}
	}
	return []string{"--headers", s.write("headers", []byte(lines.String())), "--body", s.write("body", f.body(s.t)), "--now", strconv.FormatInt(f.Now, 10)}
}

// verify judges a fixture with the secret of a file and says how it would be answered.
func (s *caseSite) verify(f caseFixture, secretFile string, more ...string) (status int, v verdict) {
	s.t.Helper()
	args := append([]string{"verify", "--json", "--secret-file", secretFile}, more...)
	code, out, messages := hooklatch(s.t, append(args, s.request(f)...)...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		s.t.Fatalf("%s: exit code %d: %s", f.Name, code, messages)
	}
	if v.Valid != (code == 0) || !v.Valid && code != 1 {
		s.t.Errorf("%s: exit code %d, valid: %v", f.Name, code, v.Valid)
	}
	if v.Valid {
		return http.StatusAccepted, v
	}
	return verify.Reason(v.Reason).Status(), v
}

// explain returns the first cause.
func (s *caseSite) explain(f caseFixture, secretFile, scheme string) verify.Cause {
	s.t.Helper()
	args := []string{"explain", "--json", "--secret-file", "k1=" + secretFile, "--scheme", scheme}
	code, out, messages := hooklatch(s.t, append(args, s.request(f)...)...)
	var e explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != 1 || len(e.Causes) == 0 {
		s.t.Fatalf("%s: exit code %d: %s%s", f.Name, code, out, messages)
	}
	return e.Causes[0]
}

func TestCaseA3_B1_B4_B5_B8_C2_Explained(t *testing.T) {
	s := newCaseSite(t)
	all := caseFixtures(t)
	key, text := s.write("k1", []byte(caseKey1)), s.write("w", []byte("whsec"+"_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="))
	for _, c := range []struct{ fixture, secret, code, says string }{
		{"A3-crlf-lost", key, "body_missing_newline", ""},
		{"B1-twice-sig-bad-good", key, "header_duplicated", "X-Webhook-Signature"},
		{"B1-twice-timestamp", key, "header_duplicated", "X-Webhook-Timestamp"},
		{"B1-twice-id", key, "header_duplicated", "X-Webhook-Delivery-Id"},
		{"B1-twice-key-id", key, "header_duplicated", "X-Webhook-Key-Id"},
		{"B1-underscore-id", key, "header_duplicated", "X-Webhook-Delivery-Id"},
		{"B4-upper", key, "sig_uppercase", ""},
		{"B4-mixed", key, "sig_uppercase", ""},
		{"B5-stripe-decoded", text, "key_base64", ""},
		{"B5-standard-text", text, "key_base64", ""},
		{"B8-signed-with-newline", key, "key_sender_newline", ""},
		{"C2-milliseconds", key, "ts_millis", ""},
	} {
		if got := s.explain(all[c.fixture], c.secret, all[c.fixture].Scheme); got.Code != c.code || !strings.Contains(got.Text, c.says) {
			t.Errorf("%s: %+v, want %s and %q", c.fixture, got, c.code, c.says)
		}
	}
}

// The commands read bodies, headers and secrets as the server does: each fixture of
// these cases has its verdict on the command line too.
func TestCaseA3_B1_B2_B4_B6_C1_C2_C5_OnTheCommandLine(t *testing.T) {
	s := newCaseSite(t)
	n := 0
	for name, f := range caseFixtures(t) {
		number, _, _ := strings.Cut(name, "-")
		if strings.HasPrefix(number, "B5") || strings.HasPrefix(number, "B9") || number > "D" || len(f.Keys) != 1 {
			continue
		}
		want := f.Expect
		if name == "C1-space" {
			want = http.StatusUnauthorized // blanks around a value are no part of it in a file either
		}
		key, err := hex.DecodeString(f.Keys[0].SecretHex)
		if err != nil {
			t.Fatal(err)
		}
		if f.Scheme == "standard-webhooks" {
			key = []byte(base64.StdEncoding.EncodeToString(key))
		}
		got, v := s.verify(f, f.Keys[0].ID+"="+s.write("key", key), "--scheme", f.Scheme)
		if got != want {
			t.Errorf("%s: %d (%s), want %d", name, got, v.Reason, want)
		}
		sum := sha256.Sum256(f.body(t))
		if v.BodyHash != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: the body was changed", name)
		}
		n++
	}
	if n < 65 {
		t.Errorf("only %d fixtures", n)
	}
}

// The reading of whsec_ is the scheme's or the key's encoding, never a guess.
func TestCaseB5_OnTheCommandLineAndInTheConfiguration(t *testing.T) {
	s := newCaseSite(t)
	all := caseFixtures(t)
	const text = "whsec" + "_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	secret := s.write("w", []byte(text))
	for _, c := range []struct {
		fixture, scheme string
		want            int
	}{
		{"B5-standard-decoded", "standard-webhooks", 202},
		{"B5-standard-text", "standard-webhooks", 401},
		{"B5-stripe-text", "stripe", 202},
		{"B5-stripe-decoded", "stripe", 401},
	} {
		if got, v := s.verify(all[c.fixture], "k1="+secret, "--scheme", c.scheme); got != c.want {
			t.Errorf("%s: %d (%s), want %d", c.fixture, got, v.Reason, c.want)
		}
	}
	asText := s.write("utf8.yaml", []byte("preset: standard-webhooks\nsecret_spec: {encoding: utf8, strip_prefix: []}\n"))
	if got, v := s.verify(all["B5-standard-utf8"], "k1="+secret, "--recipe", asText); got != 202 {
		t.Errorf("text in a recipe: %d (%s)", got, v.Reason)
	}
	config := s.config("standard-webhooks", "[{id: k1, secret: {file: w}, encoding: utf8}]", "")
	args := append([]string{"verify", "-c", config, "--source", "src1"}, s.request(all["B5-standard-utf8"])...)
	if code, _, messages := hooklatch(s.t, args...); code != 0 {
		t.Errorf("encoding: utf8 of a key: %d %s", code, messages)
	}
	for _, bad := range []string{"v1," + text, "whsec" + "_", "whsec" + "_AAEC!"} {
		s.write("w", []byte(bad))
		s.refused(s.config("standard-webhooks", "[{id: k1, secret: {file: w}}]", ""), bad, `key "k1"`, "file w")
		code, out, messages := hooklatch(s.t, append([]string{"verify", "--scheme", "standard-webhooks", "--secret-file", "k1=" + secret},
			s.request(all["B5-standard-decoded"])...)...)
		if code != exitConfig || strings.Contains(out+messages, bad) {
			t.Errorf("verify: exit code %d: %s", code, messages)
		}
	}
}

// config writes a configuration with one source.
func (s *caseSite) config(scheme, keys, more string) string {
	s.t.Helper()
	s.write("db", []byte("postgres://nobody@127.0.0.1:1/none"))
	return s.write("hooklatch.yaml", []byte(`version: 1
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}
database: {url: {file: db}}
sources:
  src1:
    tenant: t1
    path: /in/src1
    scheme: `+scheme+`
    keys: `+keys+`
    forward: [app]
`+more+`
destinations:
  app: {url: "http://127.0.0.1:1/hook"}
`))
}

// refused demands that neither config check nor serve takes a configuration, that both
// say why, and that the secret is in neither.
func (s *caseSite) refused(config, secret string, says ...string) {
	s.t.Helper()
	for _, args := range [][]string{{"config", "check", "-c", config}, {"serve", "-c", config}} {
		code, out, messages := hooklatch(s.t, args...)
		if code != exitConfig || !containsAll(messages, says) {
			s.t.Errorf("%v: exit code %d, want %d and %q: %s%s", args[:1], code, exitConfig, says, out, messages)
		}
		if len(secret) > 8 && strings.Contains(out+messages, secret) {
			s.t.Errorf("%v shows the secret: %s", args[:1], messages)
		}
	}
}

func TestCaseB7_NoSecretIsAConfigurationError(t *testing.T) {
	s := newCaseSite(t)
	for _, text := range []string{"", "\n", "\r\n"} {
		s.write("k", []byte(text))
		s.refused(s.config("zhisou-v1", "[{id: key-7, secret: {file: k}}]", ""), "", `key "key-7"`, "empty")
	}
	t.Setenv("HOOKLATCH_TEST_EMPTY", "")
	s.refused(s.config("zhisou-v1", "[{id: key-7, secret: {env: HOOKLATCH_TEST_EMPTY}}]", ""), "", "key key-7", "is empty")
	s.refused(s.config("zhisou-v1", "[{id: key-7, secret: {env: HOOKLATCH_TEST_NOWHERE}}]", ""), "", "key key-7", "is not set")
	s.refused(s.config("zhisou-v1", "[]", ""), "", "keys")
	for _, skip := range []string{"verify: false", "insecure: true", "skip_verification: true", "scheme: none"} {
		s.refused(s.config("zhisou-v1", "[{id: k1, secret: {env: X}}]", "    "+skip), "")
	}
}

func TestCaseB8_NewlineInAKeyFile(t *testing.T) {
	s := newCaseSite(t)
	f := caseFixtures(t)["B8-plain"]
	for _, end := range []string{"", "\n", "\r\n"} {
		file := s.write("k", []byte(caseKey1+end))
		if got, v := s.verify(f, "k1="+file, "--scheme", "zhisou-v1"); got != 202 {
			t.Errorf("file that ends in %q: %d (%s)", end, got, v.Reason)
		}
		config := s.config("zhisou-v1", "[{id: k1, secret: {file: k}}]", "")
		if code, _, messages := hooklatch(s.t, append([]string{"verify", "-c", config, "--source", "src1"}, s.request(f)...)...); code != 0 {
			t.Errorf("file that ends in %q, configured: %d %s", end, code, messages)
		}
	}
	for text, fault := range map[string]string{
		caseKey1 + "\n\n":   "a newline after the secret",
		" " + caseKey1:      "white space before the secret",
		caseKey1 + "\u00a0": "white space after the secret",
		caseKey1 + "\x00":   "a NUL after the secret",
	} {
		s.write("k", []byte(text))
		s.refused(s.config("zhisou-v1", "[{id: k1, secret: {file: k}}]", ""), caseKey1, `key "k1"`, fault, "file k")
	}
	file := s.write("k", []byte(caseKey1))
	if got, v := s.verify(caseFixtures(t)["B8-signed-with-newline"], "k1="+file, "--scheme", "zhisou-v1"); got != 401 {
		t.Errorf("signed with a newline: %d (%s)", got, v.Reason)
	}
}

// Spans of the configuration, judged by the clock.
func TestCaseB9_SpansOfTheConfiguration(t *testing.T) {
	s := newCaseSite(t)
	all := caseFixtures(t)
	for _, k := range all["B9-k1-last-second"].Keys {
		secret, err := hex.DecodeString(k.SecretHex)
		if err != nil {
			t.Fatal(err)
		}
		s.write(k.ID, secret)
	}
	end, begin := time.Unix(caseNow, 0).UTC().Format(time.RFC3339), time.Unix(caseNow-3600, 0).UTC().Format(time.RFC3339)
	config := s.config("zhisou-v1", fmt.Sprintf(`
      - {id: k1, secret: {file: k1}, not_after: %q}
      - {id: k2, secret: {file: k2}, not_before: %q}`, end, begin), "")
	for name, want := range map[string]string{
		"B9-k1-last-second": "ok", "B9-k1-at-end": "key_expired", "B9-k1-late": "key_expired", "B9-k2-retry": "ok",
		"B9-k2-early": "key_not_yet_valid", "B9-swapped": "signature_mismatch", "B9-unknown": "key_unknown", "B9-no-key-id": "header_missing",
	} {
		_, out, messages := hooklatch(s.t, append([]string{"verify", "--json", "-c", config, "--source", "src1"}, s.request(all[name])...)...)
		var v verdict
		if err := json.Unmarshal([]byte(out), &v); err != nil || v.Reason != want {
			t.Errorf("%s: %s, want %s: %s", name, v.Reason, want, messages)
		}
	}
}

func TestCaseC4_ToleranceOfZeroIsNoTolerance(t *testing.T) {
	s := newCaseSite(t)
	s.write("k", []byte(caseKey1))
	const keys = "[{id: k1, secret: {file: k}}]"
	for _, tolerance := range []string{"0", "0s", "-1s", "-1", `""`} {
		s.refused(s.config("zhisou-v1", keys, "    tolerance: "+tolerance), caseKey1, "tolerance")
	}
	config := s.config("zhisou-v1", keys, "")
	all := caseFixtures(t)
	for name, want := range map[string]int{"C1-minus-300": 0, "C1-minus-301": 1, "C1-plus-300": 0, "C1-plus-301": 1} {
		if code, _, messages := hooklatch(s.t, append([]string{"verify", "-c", config, "--source", "src1"}, s.request(all[name])...)...); code != want {
			t.Errorf("%s without a tolerance: exit code %d, want %d: %s", name, code, want, messages)
		}
	}
}

// seenByApp is what the app got of one delivery.
type seenByApp struct {
	body     []byte
	length   int64
	chunked  bool
	encoding string
}

// From the sender's bytes to the app's, with Postgres between: none is changed, and
// the framing is made anew.
func TestCaseA1_A2_A3_A4_A5_A6_A7_AppGetsTheBytes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]seenByApp{}
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen[r.Header.Get("Hooklatch-Delivery-Id")] = seenByApp{body, r.ContentLength, len(r.TransferEncoding) > 0, r.Header.Get("Content-Encoding")}
	}))
	defer app.Close()
	s := newSite(t)
	s.config(app.URL)
	sv := startServe(t, s, inboxtest.URL(t))

	sent := map[string][]byte{}
	for name, f := range caseFixtures(t) {
		if name[0] != 'A' || f.Expect != 202 || strings.HasPrefix(name, "A8") {
			continue
		}
		body := f.body(t)
		r := s.request(sv.url, name, string(body))
		for _, header := range []string{"Content-Type", "Content-Encoding"} {
			if value := f.Headers.Get(header); value != "" {
				r.Header.Set(header, value)
			}
		}
		if name == "A5-chunked" {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), -1
		}
		if a := do(t, http.DefaultClient, r); a.status != 202 || !strings.Contains(a.body, `"duplicate":false`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		sent[name] = body
	}
	if len(sent) < 15 {
		t.Errorf("only %d bodies", len(sent))
	}
	eventually(t, "the app has every body", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == len(sent) })
	for name, body := range sent {
		got := seen[name]
		if !bytes.Equal(got.body, body) || got.length != int64(len(body)) || got.chunked {
			t.Errorf("%s: the app got %d bytes %.60q, length %d, chunked: %v; sent %d", name, len(got.body), got.body, got.length, got.chunked, len(body))
		}
		if name == "A4-wire" && got.encoding != "gzip" {
			t.Errorf("%s: Content-Encoding %q", name, got.encoding)
		}
	}
	sv.end()
}
