package main

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// A sender goes over from one scheme to another without a delivery lost: both are
// taken, each with its own key, and counted, and the commands sign with either.
func TestServeTakesBothSchemesOfASource(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	file := s.config(appURL)
	s.write("k2", strings.Repeat("fedcba9876543210", 4))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.write("hooklatch.yaml", strings.Replace(string(text), "    scheme: zhisou-v1\n    keys: [{id: k1, secret: {file: k1}}]",
		"    scheme: [zhisou-v1, timestamped-sha256]\n    keys:\n      - {id: k1, secret: {file: k1}, scheme: zhisou-v1}\n      - {id: k2, secret: {file: k2}, scheme: timestamped-sha256}", 1))
	sv := startServe(t, s, inboxtest.URL(t))

	send := func(want string, args ...string) {
		t.Helper()
		p := start(t, nil, append([]string{"send", "--url", sv.url, "-c", file, "--source", "billing"}, args...)...)
		if code := p.wait(); code != exitOK || !strings.Contains(p.output(), want) {
			t.Errorf("send %v: exit code %d\n%s", args, code, p.output())
		}
	}
	send("202 accepted")
	send("202 accepted", "--scheme", "zhisou-v1", "--id", "d1")
	send("202 accepted", "--scheme", "timestamped-sha256", "--id", "d2")
	send("401 signature_invalid", "--scheme", "timestamped-sha256", "--break", "sig")
	if line := sv.entry(`"msg":"request"`, `"delivery_id":"d2"`); line["scheme"] != "timestamped-sha256" || line["key_id"] != "k2" {
		t.Errorf("log of the second scheme: %v", line)
	}
	if line := sv.entry(`"msg":"scheme leaves open"`); line["source"] != "billing" || line["scheme"] != "timestamped-sha256" || line["weaknesses"] != "id_unsigned" {
		t.Errorf("log of what is left open: %v", line)
	}
	// The key of one scheme does not sign for the other.
	mixed := s.request(sv.url, "d3", "{}")
	mixed.Header.Set("X-Webhook-Key-Id", "k2")
	if a := do(t, http.DefaultClient, mixed); a.status != 401 {
		t.Errorf("the other scheme's key id: %d %s", a.status, a.body)
	}
	metrics := get(t, sv.admin+"/metrics").body
	for _, want := range []string{
		`hooklatch_verified_total{scheme="zhisou-v1",source="billing"} 2`,
		`hooklatch_verified_total{scheme="timestamped-sha256",source="billing"} 1`,
		`hooklatch_key_uses_total{key_id="k2",retiring="false",source="billing"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	sv.end()

	p := start(t, nil, "sign", "-c", file, "--source", "billing", "--scheme", "timestamped-sha256", "--body", file)
	if code := p.wait(); code != exitOK || !strings.Contains(p.output(), "X-Webhook-Signature: sha256=") {
		t.Errorf("sign: exit code %d\n%s", code, p.output())
	}
	p = start(t, nil, "sign", "-c", file, "--source", "billing", "--scheme", "github", "--body", file)
	if code := p.wait(); code != exitUsage || !strings.Contains(p.output(), `source billing has no scheme "github": zhisou-v1, timestamped-sha256`) {
		t.Errorf("sign with a scheme of neither: exit code %d\n%s", code, p.output())
	}
}
