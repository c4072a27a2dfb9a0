package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asking is minimal with a source of another scheme.
func asking(lines ...string) string {
	return strings.Replace(minimal, "    scheme: zhisou-v1\n", "    event: {id: body_sha256_hex}\n    "+strings.Join(lines, "\n    ")+"\n", 1)
}

func TestAnswersThatCannotBe(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"all that can be", asking("scheme: github", "success_status: 201", "success_body: ok", "success_type: text/plain", "refusal_status: 403", "conflict_status: 422"), ""},
		{"no body at all", asking("scheme: github", `success_body: ""`), ""},
		{"status that is no success", asking("scheme: github", "success_status: 301"), "9:21 success_status must be 200 to 299"},
		{"body of a 204", asking("scheme: github", "success_status: 204", "success_body: ok"), "10:19 the answer is 204, which has no body: set success_status too"},
		{"body of the scheme's 204", asking("scheme: discord", "success_body: ok"), "9:19 the answer is 204, which has no body: set success_status too"},
		{"body and status in place of the scheme's 204", asking("scheme: discord", "success_status: 200", "success_body: ok"), ""},
		{"large body", asking("scheme: github", "success_body: "+strings.Repeat("a", 4097)), "9:19 success_body must be at most 4KiB"},
		{"type of no body", asking("scheme: github", "success_type: text/plain"), "9:19 success_type is that of success_body, and there is none"},
		{"type of an empty body", asking("scheme: github", `success_body: ""`, "success_type: text/plain"), "10:19 success_type is that of success_body, and there is none"},
		{"type of the scheme's body", asking("scheme: adyen", "success_type: text/html"), ""},
		{"type that is none", asking("scheme: github", "success_body: ok", "success_type: plain"), `10:19 "plain" is no media type such as text/plain`},
		{"type with a line end", asking("scheme: github", "success_body: ok", `success_type: "text/plain\r\nX: y"`), `10:19 "text/plain\r\nX: y" is no media type such as text/plain`},
		{"type with a control character", asking("scheme: github", "success_body: ok", `success_type: "text/plain; a=\"\x07\""`), `10:19 "text/plain; a=\"\a\"" is no media type such as text/plain`},
		{"refusal that looks like a success", asking("scheme: github", "refusal_status: 200"), "9:21 refusal_status must be 400, 401 or 403"},
		{"refusal that drops the hook", asking("scheme: github", "refusal_status: 410"), "9:21 refusal_status must be 400, 401 or 403"},
		{"conflict that drops the hook", asking("scheme: github", "conflict_status: 410"), "9:22 conflict_status must be 400 to 499, and not 410, on which senders drop the hook"},
		{"conflict as a success", asking("scheme: github", "conflict_status: 200"), "9:22 conflict_status must be 400 to 499, and not 410, on which senders drop the hook"},
		{"conflict of zero", asking("scheme: github", "conflict_status: 0"), "9:22 conflict_status must be 400 to 499, and not 410, on which senders drop the hook"},
	} {
		_, err := parseConfig("f", []byte(c.text), configNow)
		if got := shortly(problemsOf(err)); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestHandshakesThatCannotBe(t *testing.T) {
	enrol := func(until, secret string) string {
		return strings.Replace(asking("scheme: asana"), "secret: {file: keys/k1}", "secret: "+secret+", enrol_until: "+until, 1)
	}
	two := func(first, second string, lines ...string) string {
		return strings.Replace(asking(append([]string{"scheme: [" + first + ", " + second + "]"}, lines...)...), "- {id: k1, secret: {file: keys/k1}}",
			"- {id: k1, secret: {file: k1}, scheme: "+first+"}\n      - {id: k2, secret: {file: k2}, scheme: "+second+"}", 1)
	}
	sns := []string{"scheme: aws-sns", "params: {topic_arn: a}"}
	for _, c := range []struct{ name, text, want, warning string }{
		{"scheme without any", asking("scheme: github", "handshake: {off: true}"), "9:5 scheme github has no handshake", ""},
		{"off", asking("scheme: dropbox", "handshake: {off: true}"), "", ""},
		{"off is a word", asking("scheme: dropbox", "handshake: {off: yes}"), `9:22 "yes" is neither true nor false`, ""},
		{"off and more", asking("scheme: meta-whatsapp", "handshake: {off: true, token: {env: T}}"), "9:5 handshakes are off: the other settings are of no use", ""},
		{"token", asking("scheme: meta-whatsapp", "handshake: {token: {env: T}}"), "", ""},
		{"token in clear text", asking("scheme: meta-whatsapp", "handshake: {token: hunter2}"), "9:24 a secret does not stand in the file: write {file: F}, {env: NAME} or {exec: [PROGRAM, ARGUMENT]}", ""},
		{"no token", asking("scheme: meta-whatsapp"), "", "4:3 scheme meta-whatsapp asks for a token when a hook is made: without handshake.token this is refused"},
		{"token that nobody asks for", asking("scheme: dropbox", "handshake: {token: {env: T}}"), "9:17 scheme dropbox has no handshake that uses token", ""},
		{"origin", asking("scheme: cloudevents", "handshake: {origins: [a.example.com]}"), "", ""},
		{"no origin", asking("scheme: cloudevents"), "", "4:3 scheme cloudevents asks whether it may send: without handshake.origins the answer is no"},
		{"any origin", asking("scheme: cloudevents", `handshake: {origins: ["*"]}`), `9:27 "*" is no origin such as eventemitter.example.com`, ""},
		{"empty origin", asking("scheme: cloudevents", `handshake: {origins: [""]}`), `9:27 "" is no origin such as eventemitter.example.com`, ""},
		{"origins that nobody asks for", asking("scheme: slack", "handshake: {origins: [a]}"), "9:26 scheme slack has no handshake that uses origins", ""},
		{"manual", asking(append(sns, "handshake: {confirm: manual}")...), "", ""},
		{"another way to confirm", asking(append(sns, "handshake: {confirm: never}")...), `10:26 "never" is not one of auto, manual`, ""},
		{"nothing to confirm", asking("scheme: slack", "handshake: {confirm: auto}"), "9:26 scheme slack has no handshake that uses confirm", ""},
		{"an hour", enrol("2026-12-01T01:00:00Z", "{file: k}"), "", ""},
		{"past", enrol("2026-11-01T01:00:00Z", "{file: k}"), "", ""},
		{"more than an hour", enrol("2026-12-01T01:00:01Z", "{file: k}"), "10:50 enrol_until must lie at most 1h ahead: whoever calls first in that time names the key", ""},
		{"into the environment", enrol("2026-12-01T00:30:00Z", "{env: K}"), "10:49 the secret is written to a file: secret must be {file: F}", ""},
		{"a scheme that hands over nothing", strings.Replace(enrol("2026-12-01T00:30:00Z", "{file: k}"), "asana", "github", 1),
			"10:50 scheme github hands over no secret: keygen makes one, or the sender shows it", ""},
		{"off, and still waiting", strings.Replace(enrol("2026-12-01T00:30:00Z", "{file: k}"), "scheme: asana", "scheme: asana\n    handshake: {off: true}", 1),
			"11:50 handshakes are off: no secret can be handed over", ""},
		{"of one scheme of two", strings.Replace(two("asana", "dropbox"), "{file: k1}", "{file: k1}, enrol_until: 2026-12-01T00:30:00Z", 1),
			"10:51 a secret is handed over to a source of one scheme alone", ""},
		{"handshakes of the second scheme", two("github", "slack", "handshake: {off: true}"), "",
			"8:13 scheme github: delivery id not signed: a captured request is valid under another id; a source is as strong as its weaker scheme"},
		{"two that wait", strings.Replace(enrol("2026-12-01T00:30:00Z", "{file: k}"), "    forward: [app]", "      - {id: k2, secret: {file: k2}, enrol_until: 2026-12-01T00:30:00Z}\n    forward: [app]", 1),
			"11:51 key k1 waits for a secret too: one at a time", ""},
	} {
		config, err := parseConfig("f", []byte(c.text), configNow)
		got, warning := shortly(problemsOf(err)), ""
		if err == nil {
			warning = shortly(config.warnings)
		}
		if got != c.want || warning != c.warning {
			t.Errorf("%s: got\n%s\n%s\nwant\n%s\n%s", c.name, got, warning, c.want, c.warning)
		}
	}
}

// load reads a configuration in a folder of its own, with its secrets.
func load(t *testing.T, text string, files map[string]string) (*config, *secrets, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := parseConfig(filepath.Join(dir, "hooklatch.yaml"), []byte(text), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.loadSecrets(t.Context())
	return c, s, err
}

func TestKeyThatIsStillToBeHandedOver(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://localhost/x")
	config := func(until time.Duration) string {
		return strings.Replace(asking("scheme: asana"), "secret: {file: keys/k1}",
			"secret: {file: k1}, enrol_until: "+time.Now().Add(until).UTC().Format(time.RFC3339), 1)
	}
	_, s, err := load(t, config(30*time.Minute), nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := s.Verifiers["billing"]; len(v.Keys.Keys()) != 0 || v.Handshakes.EnrolUntil.IsZero() {
		t.Errorf("%+v", v)
	}
	_, s, err = load(t, config(30*time.Minute), map[string]string{"k1": strings.Repeat("a", 64)})
	if err != nil {
		t.Fatal(err)
	}
	if v := s.Verifiers["billing"]; len(v.Keys.Keys()) != 1 || !v.Handshakes.EnrolUntil.IsZero() {
		t.Errorf("a secret may be handed over although there is one: %+v", v)
	}
	if _, _, err := load(t, config(-time.Minute), nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("the time is over, and there is no file: %v", err)
	}
}

// A secret that is handed over is the key that the next start would read, and is
// refused where that start would refuse it.
func TestEnrolledKeyIsThatOfTheNextStart(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://localhost/x")
	secret := strings.Repeat("0a", 32)
	text := strings.Replace(asking("scheme: asana"), "secret: {file: keys/k1}", "secret: {file: k1}, encoding: hex, not_before: 2026-01-01T00:00:00Z, "+
		"not_after: 2096-01-01T00:00:00Z, enrol_until: "+time.Now().Add(30*time.Minute).UTC().Format(time.RFC3339), 1)
	// Another source has the secret, under the first scheme of two or under the second.
	beside := func(tenant, first, second string) string {
		return strings.Replace(text, "destinations:", "  other:\n    tenant: "+tenant+"\n    path: /in/other\n    scheme: [asana, dropbox]\n    event: {id: body_sha256_hex}\n    keys:\n"+
			"      - {id: a, secret: {file: "+first+"}, encoding: hex, scheme: asana}\n      - {id: b, secret: {file: "+second+"}, encoding: hex, scheme: dropbox}\n    forward: [app]\ndestinations:", 1)
	}
	files := map[string]string{"same": secret, "own": strings.Repeat("0b", 32)}
	for _, c := range []struct {
		name, text string
		refused    bool
	}{
		{"alone", text, false},
		{"nobody has it", beside("globex", "own", "own"), false},
		{"another tenant has it", beside("globex", "same", "own"), true},
		{"another tenant has it for a second scheme", beside("globex", "own", "same"), true},
		{"the tenant itself has it", beside("acme", "same", "same"), false},
	} {
		cfg, secrets, err := load(t, c.text, files)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		s := &server{cfg: cfg, secrets: secrets, metrics: newMetrics(), log: slog.New(slog.DiscardHandler)}
		keys, err := s.enrolment("billing")(t.Context(), []byte(secret))
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, missing := os.Stat(cfg.path("k1")); (missing != nil) != c.refused {
			t.Errorf("%s: the file: %v", c.name, missing)
		}
		if c.refused {
			continue
		}
		if secrets, err = cfg.loadSecrets(t.Context()); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, want := keys.Keys(), secrets.Verifiers["billing"].Keys.Keys()
		if len(got) != 1 || got[0].ID != "k1" || !got[0].Secret.Equal(want[0].Secret) || !got[0].NotBefore.Equal(want[0].NotBefore) || !got[0].NotAfter.Equal(want[0].NotAfter) {
			t.Errorf("%s: %+v, and after a start %+v", c.name, got, want)
		}
		if s.foreign("acme", got[0]) || !s.foreign("globex", got[0]) {
			t.Errorf("%s: the key is not that of its tenant from now on", c.name)
		}
		if cfg.Sources["other"] != nil && s.enrolment("other") != nil {
			t.Errorf("%s: a source that waits for no secret would take one", c.name)
		}
	}
}

func TestTokenOfHandshakesIsASecret(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://localhost/x")
	text := strings.Replace(asking("scheme: meta-whatsapp", "handshake: {token: {file: token}}"), "keys/k1", "k1", 1)
	k1 := strings.Repeat("k", 40)
	c, s, err := load(t, text, map[string]string{"k1": k1, "token": "hunter2\n"})
	if err != nil || s.Verifiers["billing"].Handshakes.Token.IsZero() || len(c.warnings) != 0 {
		t.Errorf("%v %v", err, c.warnings)
	}
	for name, content := range map[string]string{"empty": "", "with a blank": "hunter2 ", "of two lines": "hunter2\n\n"} {
		_, _, err := load(t, text, map[string]string{"k1": k1, "token": content})
		if err == nil || !strings.Contains(err.Error(), "handshake.token: ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := load(t, text, map[string]string{"k1": k1}); err == nil || !strings.Contains(err.Error(), "handshake.token: ") {
		t.Errorf("no file: %v", err)
	}
	c, _, err = load(t, text, map[string]string{"k1": k1, "token": k1})
	if err != nil || !strings.Contains(shortly(c.warnings), "handshake.token is the secret of key k1") {
		t.Errorf("the key as token: %v %s", err, shortly(c.warnings))
	}
}

// Who asks for the MAC of a timestamp and a token has all that Mailgun's scheme signs.
func TestKeyOfAnswersSignsNothingElse(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://localhost/x")
	secret := strings.Repeat("k", 40)
	files := map[string]string{"k1": secret, "k2": secret, "k3": strings.Repeat("o", 40)}
	two := func(first, handshake, second, key string) string {
		text := strings.Replace(asking("scheme: "+first, handshake), "keys/k1", "k1", 1)
		return strings.Replace(text, "destinations:", "  other:\n    tenant: acme\n    path: /in/other\n    scheme: "+second+
			"\n    event: {id: body_sha256_hex}\n    keys: [{id: k2, secret: {file: "+key+"}}]\n    forward: [app]\ndestinations:", 1)
	}
	const raw = `{name: mine, algo: hmac-sha256, signature: {name: X-Sig}, template: "{body}"}`
	for _, c := range []struct{ name, text, want string }{
		{"the tokens of another scheme", two("x-twitter", "", "mailgun", "k2"), "source billing"},
		{"the whole body", two("x-twitter", "", raw, "k2"), "source billing"},
		{"a key of its own", two("x-twitter", "", "mailgun", "k3"), ""},
		{"no answers", two("x-twitter", "handshake: {off: true}", "mailgun", "k2"), ""},
		{"answers to the sender alone", two("zoom", "", "mailgun", "k2"), ""},
		{"answers in both", two("x-twitter", "", "x-twitter", "k2"), ""},
		{"the second scheme of the source", strings.Replace(asking("scheme: [x-twitter, "+raw+"]"), "- {id: k1, secret: {file: keys/k1}}",
			"- {id: k1, secret: {file: k1}, scheme: x-twitter}\n      - {id: k2, secret: {file: k2}, scheme: mine}", 1), "source billing"},
	} {
		_, _, err := load(t, c.text, files)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), "answers challenges of anybody") || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
