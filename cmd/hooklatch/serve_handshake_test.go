package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

// handshaking writes a configuration with sources that ask before they send.
func handshaking(s *site, app string) {
	s.write("verify-token", "meatyhamhock\n")
	s.config(app)
	file := filepath.Join(s.dir, "hooklatch.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("hooklatch.yaml", strings.Replace(string(text), "destinations:", `  meta:
    tenant: acme
    path: /in/meta
    scheme: meta-whatsapp
    keys: [{id: app, secret: {file: k1}}]
    handshake: {token: {file: verify-token}}
    success_status: 201
    success_body: taken
    success_type: text/plain
    refusal_status: 403
    conflict_status: 422
    forward: [app]
  asana:
    tenant: acme
    path: /in/asana
    scheme: asana
    keys: [{id: asana-1, secret: {file: keys/asana}, enrol_until: `+time.Now().Add(30*time.Minute).UTC().Format(time.RFC3339)+`}]
    event: {id: body_sha256_hex}
    forward: [app]
destinations:`, 1))
}

func (sv *serving) send(method, path string, header http.Header, body string) answer {
	sv.t.Helper()
	r, err := http.NewRequest(method, strings.TrimSuffix(sv.url, "/in/billing")+path, strings.NewReader(body))
	if err != nil {
		sv.t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	return do(sv.t, http.DefaultClient, r)
}

func signAs(t *testing.T, preset, secret, body string) http.Header {
	t.Helper()
	scheme, _ := verify.Preset(preset)
	key, err := verify.NewKey("", []byte(secret), scheme.SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	h, err := (&verify.Verifier{Scheme: scheme}).Sign(verify.Request{Method: "POST", Body: []byte(body)}, verify.SignOptions{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestServeAnswersHandshakes(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	handshaking(s, appURL)
	database := inboxtest.URL(t)
	sv := startServe(t, s, database)

	a := sv.send("GET", "/in/meta?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=meatyhamhock", nil, "")
	if a.status != 200 || a.body != "1158201444" || a.header.Get("Content-Type") != "text/plain" {
		t.Errorf("challenge: %d %v %s", a.status, a.header, a.body)
	}
	if line := sv.entry(`"outcome":"handshake"`); line["handshake"] != "echo_query" || line["source"] != "meta" || line["status"] != 200.0 {
		t.Errorf("log line: %v", line)
	}
	if a := sv.send("GET", "/in/meta?hub.mode=subscribe&hub.challenge=1&hub.verify_token=hunter2", nil, ""); a.status != 403 {
		t.Errorf("wrong token: %d %s", a.status, a.body)
	}
	sv.line(`"code":"handshake_refused"`, `"source":"meta"`)

	// The answers that the source has in place of the scheme's.
	const body = `{"object":"page"}`
	h := signAs(t, "meta-whatsapp", strings.Repeat("0123456789abcdef", 4), body)
	if a := sv.send("POST", "/in/meta", h, body); a.status != 201 || a.body != "taken" || a.header.Get("Content-Type") != "text/plain" {
		t.Errorf("delivery: %d %v %s", a.status, a.header, a.body)
	}
	if a := sv.send("POST", "/in/meta", h, body+" "); a.status != 403 || !strings.Contains(a.body, `"signature_invalid"`) {
		t.Errorf("forged: %d %s", a.status, a.body)
	}

	sv.enrols()
	pool := openPoolOf(t, database)
	if n := count(t, pool, "SELECT count(*) FROM hooklatch.inbox"); n != 2 {
		t.Errorf("%d rows: a handshake was stored, or a delivery was not", n)
	}
	metrics := get(t, sv.admin+"/metrics").body
	for _, want := range []string{
		`hooklatch_handshakes_total{kind="echo_query",source="meta"} 1`, `hooklatch_handshakes_total{kind="enrol",source="asana"} 1`,
		`hooklatch_requests_total{outcome="handshake",source="meta"} 1`, `hooklatch_refusals_total{reason="handshake_refused",source="meta"} 1`,
		`hooklatch_key_uses_total{key_id="asana-1",retiring="false",source="asana"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no metric %s", want)
		}
	}
	if strings.Contains(sv.output(), "meatyhamhock") || strings.Contains(sv.output(), asanaSecret) {
		t.Error("a secret is in the log")
	}
	sv.end()

	// The key holds after a restart, and none can be handed over any more.
	sv = startServe(t, s, database)
	const later = `{"events":[2]}`
	if a := sv.send("POST", "/in/asana", signAs(t, "asana", asanaSecret, later), later); a.status != 202 {
		t.Errorf("after a restart: %d %s", a.status, a.body)
	}
	if a := sv.send("POST", "/in/asana", http.Header{"X-Hook-Secret": {strings.Repeat("f", 64)}}, "{}"); a.status != 403 {
		t.Errorf("a second secret: %d %s", a.status, a.body)
	}
	sv.end()
}

const asanaSecret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81"

// enrols hands over a secret and delivers with it.
func (sv *serving) enrols() {
	t := sv.t
	t.Helper()
	const body = `{"events":[]}`
	h := signAs(t, "asana", asanaSecret, body)
	if a := sv.send("POST", "/in/asana", h.Clone(), body); a.status != 401 {
		t.Errorf("before there is a key: %d %s", a.status, a.body)
	}
	a := sv.send("POST", "/in/asana", http.Header{"X-Hook-Secret": {asanaSecret}}, "{}")
	if a.status != 200 || a.header.Get("X-Hook-Secret") != asanaSecret || a.body != "" {
		t.Fatalf("hand-over: %d %v %s", a.status, a.header, a.body)
	}
	if line := sv.entry(`"msg":"enrolled`); line["source"] != "asana" || line["key_id"] != "asana-1" {
		t.Errorf("log line: %v", line)
	}
	file := filepath.Join(sv.site.dir, "keys", "asana")
	stat, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != asanaSecret || stat.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, mode %v", err, stat.Mode())
	}
	if a := sv.send("POST", "/in/asana", h, body); a.status != 202 {
		t.Errorf("with the new key: %d %s", a.status, a.body)
	}
	if a := sv.send("POST", "/in/asana", http.Header{"X-Hook-Secret": {strings.Repeat("f", 64)}}, "{}"); a.status != 403 {
		t.Errorf("a second secret: %d %s", a.status, a.body)
	}
}

// A file that has come to be meanwhile is not written over, and the sender is not
// told that its secret is kept.
func TestEnrolmentWritesOverNoFile(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	handshaking(s, appURL)
	sv := startServe(t, s, inboxtest.URL(t))
	if err := os.MkdirAll(filepath.Join(s.dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("keys/asana", "mine")
	if a := sv.send("POST", "/in/asana", http.Header{"X-Hook-Secret": {asanaSecret}}, "{}"); a.status != 403 || a.header.Get("X-Hook-Secret") != "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if text, err := os.ReadFile(filepath.Join(s.dir, "keys", "asana")); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	sv.line(`"code":"handshake_refused"`, "is there already")
	sv.end()
}

// Nobody may hand one secret to two tenants: the next start would refuse both.
func TestEnrolledSecretIsOfOneTenant(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	handshaking(s, appURL)
	text, err := os.ReadFile(filepath.Join(s.dir, "hooklatch.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, asana, _ := strings.Cut(string(text), "  asana:\n")
	asana, _, _ = strings.Cut(asana, "destinations:")
	other := strings.NewReplacer("tenant: acme", "tenant: globex", "/in/asana", "/in/other", "keys/asana", "keys/other").Replace("  other:\n" + asana)
	s.write("hooklatch.yaml", strings.Replace(string(text), "destinations:", other+"destinations:", 1))
	sv := startServe(t, s, inboxtest.URL(t))
	sv.enrols()
	if a := sv.send("POST", "/in/other", http.Header{"X-Hook-Secret": {asanaSecret}}, "{}"); a.status != 403 {
		t.Errorf("the secret of another tenant: %d %s", a.status, a.body)
	}
	if a := sv.send("POST", "/in/other", http.Header{"X-Hook-Secret": {strings.Repeat("f", 64)}}, "{}"); a.status != 200 {
		t.Errorf("a secret of its own: %d %s", a.status, a.body)
	}
	sv.end()
}
