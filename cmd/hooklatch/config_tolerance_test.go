package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The default is for recipes without a window of their own. It must not widen the 5
// seconds of Paddle, nor refuse retries of a sender whose window is none.
func TestDefaultToleranceLeavesTheWindowsOfSchemes(t *testing.T) {
	const own = `{name: own, algo: hmac-sha256, signature: {name: X-Sig}, template: "{header:X-T}.{body}", id: {from: "json:id"}, timestamp: {from: "header:X-T"%s}}`
	dir := t.TempDir()
	for file, text := range map[string]string{"k": good32, "public": ed25519PEM} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOOKLATCH_TEST_DB", "postgres://localhost/db")
	for _, test := range []struct {
		name, scheme, source string
		want                 time.Duration
	}{
		{"a recipe without a window", fmt.Sprintf(own, ""), "", 60 * time.Second},
		{"a recipe with one", fmt.Sprintf(own, ", tolerance_s: 120"), "", 120 * time.Second},
		{"a recipe with none by intent", fmt.Sprintf(own, ", tolerance_s: null"), "", 0},
		{"a preset with a narrow window", "paddle", "", 5 * time.Second},
		{"a preset with a wide one", "elevenlabs", "", 1800 * time.Second},
		{"a preset with a field replaced", "{preset: stripe, timestamp: {tolerance_s: 120}}", "", 120 * time.Second},
		{"a preset with none", "discord", "", 0},
		{"a preset in code", "bird-jwt", "", time.Second},
		{"the source's own", "paddle", "    tolerance: 10s\n", 10 * time.Second},
		{"the source's own where there is none", "discord", "    tolerance: 10s\n", 10 * time.Second},
	} {
		key := "{file: k}"
		if test.scheme == "discord" {
			key = "{file: public}, encoding: pem"
		}
		text := "version: 1\nlisten: {http: \"127.0.0.1:0\"}\ndatabase: {url: {env: HOOKLATCH_TEST_DB}}\ndefaults: {tolerance: 60s}\nsources:\n  s:\n    tenant: a\n    path: /in\n" +
			"    public_url: https://hooks.example.com/in\n    event: {id: /id}\n    scheme: " + test.scheme + "\n    keys: [{id: k, secret: " + key + "}]\n" + test.source
		c, err := parseConfig(filepath.Join(dir, "hooklatch.yaml"), []byte(text), configNow)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		found, err := c.loadSecrets(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		v := found.Verifiers["s"]
		got := v.Tolerance
		if got == 0 {
			got = v.Scheme.Tolerance()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	c, err := parseConfig("f", []byte(strings.Replace(minimal, "listen:", "defaults: {tolerance: 20m}\nlisten:", 1)), configNow)
	if err != nil || !strings.Contains(shortly(c.warnings), "a tolerance above 15m") {
		t.Errorf("a wide default: %v, %v", err, c.warnings)
	}
}
