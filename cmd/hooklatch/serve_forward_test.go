package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// destinations puts lines in place of the site's only destination, and names into the
// route of its source.
func (s *site) destinations(names string, lines ...string) {
	s.t.Helper()
	file := filepath.Join(s.dir, "hooklatch.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "destinations:\n")
	head = regexp.MustCompile(`forward: \[.*\]`).ReplaceAllString(head, "forward: ["+names+"]")
	s.write("hooklatch.yaml", head+"destinations:\n  "+strings.Join(lines, "\n  ")+"\n")
}

// signedSite hands each delivery to three apps: one that checks our signature, one that
// checks our certificate, one behind a socket.
func signedSite(t *testing.T) (s *site, secrets map[string][]byte, signed, certified, local *app) {
	t.Helper()
	signed, signedURL := startApp(t)
	s = newSite(t)
	s.config(signedURL)

	secrets = map[string][]byte{}
	for i, encoding := range signEncodings {
		secrets[encoding] = bytes.Repeat([]byte{'a' + byte(i)}, 24+i)
	}
	s.write("utf8", string(secrets["utf8"])+"\n")
	s.write("hex", hex.EncodeToString(secrets["hex"]))
	s.write("base64", base64.StdEncoding.EncodeToString(secrets["base64"]))
	s.write("whsec", "whsec_"+base64.StdEncoding.EncodeToString(secrets["whsec"])+"\n")

	s.certificate("server", "localhost")
	clients := x509.NewCertPool()
	clients.AddCert(s.certificate("client", "hooklatch"))
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.dir, "server.crt"), filepath.Join(s.dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	certified = &app{}
	server := httptest.NewUnstartedServer(certified)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())

	local = &app{}
	l, err := net.Listen("unix", filepath.Join(s.dir, "app.sock"))
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewUnstartedServer(local)
	behind.Listener.Close()
	behind.Listener = l
	behind.Start()
	t.Cleanup(behind.Close)

	s.destinations("app, certified, local",
		`app:`,
		`  url: `+signedURL+`/hook`,
		`  responses: {409: accepted}`,
		`  sign:`,
		`    - {id: fwd-utf8, secret: {file: utf8}, encoding: utf8}`,
		`    - {id: fwd-hex, secret: {file: hex}, encoding: hex}`,
		`    - {id: fwd-base64, secret: {file: base64}, encoding: base64, not_after: 2099-01-01T00:00:00Z}`,
		`    - {id: fwd-whsec, secret: {file: whsec}}`,
		`    - {id: fwd-later, secret: {exec: [printf, "whsec_%s", bGF0ZXJsYXRlcmxhdGVybGF0ZXJsYXRlcg==]}, not_before: 2099-01-01T00:00:00Z}`,
		`certified: {url: "https://localhost:`+port+`/hook", tls: {ca: server.crt, cert: client.crt, key: client.key}, addresses: [127.0.0.1, "::1"]}`,
		`local: {url: "http://app.example/hook", socket: app.sock}`,
	)
	return s, secrets, signed, certified, local
}

func TestT12_ServeSignsAndConnectsAsADestinationSays(t *testing.T) {
	t.Parallel()
	s, secrets, signed, certified, local := signedSite(t)
	sv := startServe(t, s, inboxtest.URL(t))
	r := s.request(sv.url, "dlv_1", `{"id":"evt_1"}`)
	r.Header.Set("Webhook-Signature", "v1,forged")
	if a := do(t, http.DefaultClient, r); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, name := range []string{"app", "certified", "local"} {
		sv.line(`"msg":"attempt"`, `"destination":"`+name+`"`, `"outcome":"accepted"`)
	}
	for name, a := range map[string]*app{"app": signed, "certified": certified, "local": local} {
		got := a.requests()
		if len(got) != 1 || string(got[0].body) != `{"id":"evt_1"}` || got[0].path != "/hook" {
			t.Fatalf("%s got %+v", name, got)
		}
		if id := got[0].header.Get("Webhook-Id"); (id != "") != (name == "app") {
			t.Errorf("%s: webhook-id %q", name, id)
		}
	}
	got := signed.requests()[0]
	for encoding, secret := range secrets {
		wh, err := standardwebhooks.NewWebhookRaw(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := wh.Verify(got.body, got.header); err != nil {
			t.Errorf("%s: %v in %v", encoding, err, got.header)
		}
	}
	if n := len(strings.Fields(got.header.Get("Webhook-Signature"))); n != len(secrets) {
		t.Errorf("%d signatures, want %d: a key whose time has not come does not sign", n, len(secrets))
	}
	sv.end()
	for _, secret := range secrets {
		if out := sv.output(); strings.Contains(out, string(secret)) || strings.Contains(out, base64.StdEncoding.EncodeToString(secret)) {
			t.Errorf("the log holds a secret:\n%s", out)
		}
	}
}

func TestDoctorLooksAtSigningKeysAndClientCertificates(t *testing.T) {
	t.Parallel()
	s, _, _, _, _ := signedSite(t)
	_, out := doctorOf(t, s, inboxtest.LoginURL(t, inboxtest.URL(t)))
	for _, want := range []string{
		"fwd-utf8 of destination app: 24 bytes, valid for ever; the line end of its file is no part of it",
		"fwd-base64 of destination app: 26 bytes, valid for another",
		"fwd-later of destination app: 25 bytes, valid in",
		"certificate   client.crt: ",
		"app: answers in", "certified: answers in", "local: answers in",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
}

func TestDoctorSaysThatAClientCertificateIsMissing(t *testing.T) {
	t.Parallel()
	s, _, _, _, _ := signedSite(t)
	file := filepath.Join(s.dir, "hooklatch.yaml")
	for _, missing := range []string{"client.crt", "server.crt"} {
		os.Rename(filepath.Join(s.dir, missing), filepath.Join(s.dir, "away"))
		cfg, err := readConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		f := checkDestination(t.Context(), cfg, "certified")
		if f.level != wrong || !strings.HasPrefix(f.what, "certified: open ") || !strings.Contains(f.what, missing) {
			t.Errorf("without %s: %+v", missing, f) // and not that the app refuses us
		}
		os.Rename(filepath.Join(s.dir, "away"), filepath.Join(s.dir, missing))
	}
	cfg, err := readConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	if f := checkDestination(t.Context(), cfg, "certified"); f.level != fine {
		t.Errorf("with both: %+v", f)
	}
}

func TestConfigShowHidesHowSigningKeysAreFetched(t *testing.T) {
	s, _, _, _, _ := signedSite(t)
	for _, asJSON := range []string{"--json", "--json=false"} {
		code, out, messages := hooklatch(t, "config", "show", asJSON, "-c", filepath.Join(s.dir, "hooklatch.yaml"))
		if code != 0 || strings.Contains(out, "bGF0ZXJ") || !strings.Contains(out, "fwd-later") || !strings.Contains(out, redacted) {
			t.Errorf("%d %s\n%s", code, messages, out)
		}
	}
}

func TestSigningKeysThatCannotBeUsed(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://localhost/none")
	for name, c := range map[string]struct {
		sign     string
		code     int
		want     string
		messages []string
	}{
		"as it should be": {sign: `sign: {id: f, secret: {file: whsec}}`},
		"missing": {sign: `sign: {id: f, secret: {file: gone}}`, code: exitConfig,
			messages: []string{"key f: open", "Try: hooklatch keygen --format whsec -o ", "gone   and give it to the app"}},
		"missing, as text": {sign: `sign: {id: f, secret: {file: gone}, encoding: utf8}`, code: exitConfig, messages: []string{"Try: hooklatch keygen --format hex -o "}},
		"not in the environment": {sign: `sign: {id: f, secret: {env: HOOKLATCH_TEST_GONE}}`, code: exitConfig,
			messages: []string{"key f: environment variable HOOKLATCH_TEST_GONE is not set", "Try: export HOOKLATCH_TEST_GONE=…"}},
		"of another encoding": {sign: `sign: {id: f, secret: {file: hex}}`, code: exitConfig, messages: []string{`the secret does not begin with "whsec_" (file hex)`}},
		"too short":           {sign: `sign: {id: f, secret: {file: short}, encoding: utf8}`, code: exitConfig, messages: []string{"23 bytes after decoding, at least 24 are demanded"}},
		"that of a source": {sign: `sign: {id: f, secret: {file: k1}, encoding: utf8}`, code: exitConfig,
			messages: []string{"key f is also key k1 of source billing: the sender could speak to the app in our name"}},
		"that of another destination": {sign: `sign: [{id: f, secret: {file: whsec}}, {id: g, secret: {file: hex}, encoding: hex}]` + "\n  other: {url: http://127.0.0.1:2/, sign: {id: o, secret: {file: hex}, encoding: hex}}",
			messages: []string{"warning: key o is also key g of destination app: what one was sent, it could send to the other"}},
		"no authority":        {sign: `tls: {ca: gone.crt}`, code: exitConfig, messages: []string{"gone.crt: no such file"}},
		"authority not PEM":   {sign: `tls: {ca: whsec}`, code: exitConfig, messages: []string{"whsec holds no certificate in PEM"}},
		"certificate missing": {sign: `tls: {cert: gone.crt, key: client.key}`, code: exitConfig, messages: []string{"gone.crt: no such file"}},
		"key of another":      {sign: `tls: {cert: client.crt, key: server.key}`, code: exitConfig, messages: []string{"private key does not match public key"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _, _, _ := signedSite(t)
			s.write("short", strings.Repeat("x", 23))
			s.destinations("app", "app:", "  url: https://127.0.0.1:1/", "  "+c.sign)
			code, _, messages := hooklatch(t, "config", "check", "-c", filepath.Join(s.dir, "hooklatch.yaml"))
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.messages {
				if !strings.Contains(messages, want) {
					t.Errorf("lacks %q:\n%s", want, messages)
				}
			}
			if len(c.messages) == 0 && messages != "" {
				t.Error(messages)
			}
		})
	}
}
