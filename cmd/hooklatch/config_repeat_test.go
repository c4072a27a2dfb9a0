package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// What a guard can lose, and what it cannot see, is said at load.
func TestWarningsOfRepeats(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"default", asking("scheme: github"), ""},
		{"default, where the id is open and bodies have one", asking("scheme: timestamped-sha256"), ""},
		{"honest equal bodies", asking("scheme: github", "body_guard: on"),
			"9:17 bodies of scheme github need no id of their own: of two events with equal bodies within 90d the second is lost"},
		{"honest equal bodies, within the window", asking("scheme: zhisou-v1", "tolerance: 60s", "body_guard: on"),
			"10:17 bodies of scheme zhisou-v1 need no id of their own: of two events with equal bodies within 2m the second is lost"},
		{"body that is not signed", asking("scheme: paypal", "params: {webhook_id: w}", "body_guard: on"),
			"10:17 scheme paypal does not sign the whole body: who sends a captured request again can change it, and the guard knows equal bodies only"},
		{"ignored in a form", asking("scheme: mandrill", "public_url: https://h.example.com/x", "conflict_ignore: [/a]"),
			"10:22 bodies of scheme mandrill may be forms: these are no JSON, and are compared whole"},
		{"nothing ignored in a form", asking("scheme: mandrill", "public_url: https://h.example.com/x", "conflict_ignore: []"), ""},
	} {
		cfg, err := parseConfig("f", []byte(c.text), configNow)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, w := range cfg.warnings {
			if strings.Contains(w.Message, "bodies") || strings.Contains(w.Message, "guard") {
				got = append(got, shortly([]problem{w}))
			}
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), c.want)
		}
	}
}

// The note on an id that is not signed says what becomes of it.
func TestNoteOfAnUnsignedIDSaysWhetherItIsGuarded(t *testing.T) {
	for guard, guarded := range map[string]bool{"": true, "body_guard: off": false} {
		cfg, err := parseConfig("f", []byte(asking("scheme: timestamped-sha256", guard)), configNow)
		if err != nil {
			t.Fatal(err)
		}
		notes := shortly(cfg.notes)
		if !strings.Contains(notes, "delivery id not signed") || strings.Contains(notes, "body_guard takes it for a duplicate") != guarded {
			t.Errorf("%q: %s", guard, notes)
		}
	}
}

// What the file says reaches the source; what it leaves out is left to the scheme.
func TestRepeatsReachTheSource(t *testing.T) {
	build := func(lines ...string) (onConflict, guard string, ignore []string, retention time.Duration) {
		cfg, err := parseConfig("f", []byte(asking(lines...)), configNow)
		if err != nil {
			t.Fatal(err)
		}
		s := cfg.proxyConfig(&secrets{Verifiers: map[string]*verify.Verifier{}}).Sources[0]
		return s.OnConflict, s.BodyGuard, s.ConflictIgnore, s.IdentityRetention
	}
	if rule, guard, ignore, retention := build("scheme: github"); rule != "" || guard != "" || ignore != nil || retention != 90*24*time.Hour {
		t.Errorf("left out: %q, %q, %v, %s", rule, guard, ignore, retention)
	}
	rule, guard, ignore, _ := build("scheme: github", "on_conflict: accept_first", "conflict_ignore: [/a, /b]", "body_guard: on")
	if rule != "accept_first" || guard != "on" || strings.Join(ignore, " ") != "/a /b" {
		t.Errorf("given: %q, %q, %v", rule, guard, ignore)
	}
	if _, _, ignore, _ := build("scheme: stripe", "conflict_ignore: []"); ignore == nil || len(ignore) != 0 {
		t.Errorf("none: %v, which is left to the scheme", ignore)
	}
}
