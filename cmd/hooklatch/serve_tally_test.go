package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

// rotating is a site in the middle of a rotation, and a way to sign with each key.
func rotating(t *testing.T, appURL string) (s *site, sign func(keyID string) *site) {
	t.Helper()
	s = newSite(t)
	text := map[string]string{}
	for _, id := range []string{"k0", "k2", "k9"} {
		text[id] = strings.Repeat(id, 20)
		s.write(id, text[id])
	}
	s.config(appURL)
	file := s.dir + "/hooklatch.yaml"
	yaml, err := readSecretFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keys := `keys:
      - {id: k0, secret: {file: k0}, not_after: 2020-01-01T00:00:00Z}
      - {id: k1, secret: {file: k1}, not_after: 2096-01-01T00:00:00Z}
      - {id: k2, secret: {file: k2}, not_before: 2020-02-01T00:00:00Z}
      - {id: k9, secret: {file: k9}, not_before: 2095-01-01T00:00:00Z}`
	s.write("hooklatch.yaml", strings.Replace(string(yaml), `keys: [{id: k1, secret: {file: k1}}]`, keys, 1))
	return s, func(id string) *site {
		if id == "k1" {
			return s
		}
		key, err := verify.NewKey(id, []byte(text[id]), s.v.Scheme.SecretSpec())
		if err != nil {
			t.Fatal(err)
		}
		set, err := verify.NewKeySet(key)
		if err != nil {
			t.Fatal(err)
		}
		other, v := *s, *s.v
		v.Keys = set
		other.v = &v
		return &other
	}
}

func TestRefusalsAndKeysAreToldApartInLogTallyAndCommands(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s, sign := rotating(t, appURL)
	database := inboxtest.URL(t)
	sv := startServe(t, s, database)
	for _, c := range []struct {
		keyID, id string
		status    int
		reason    string
	}{
		{"k1", "dlv_1", 202, ""}, {"k1", "dlv_1", 202, ""}, {"k2", "dlv_2", 202, ""}, {"k2", "dlv_3", 202, ""}, {"k2", "dlv_4", 202, ""},
		{"k0", "dlv_expired", 401, "key_expired"},
		{"k9", "dlv_early", 401, "key_not_yet_valid"},
	} {
		a := do(t, http.DefaultClient, sign(c.keyID).request(sv.url, c.id, `{"n":1}`))
		if a.status != c.status {
			t.Fatalf("%s: %d %s", c.id, a.status, a.body)
		}
		if c.reason == "" {
			continue
		}
		if line := sv.entry(`"msg":"request"`, c.id); line["reason"] != c.reason || line["key_id"] != c.keyID || line["code"] != "signature_invalid" {
			t.Errorf("log of %s: %v", c.id, line)
		}
		if strings.Contains(a.body, c.reason) || strings.Contains(a.body, c.keyID) {
			t.Errorf("the sender is told: %s", a.body)
		}
	}
	// At most one a second is looked into: these two came at once, so one of them was.
	sv.line(`"msg":"explained"`, `"reason":"key_expired"`, `"causes":"key_expired"`)
	metrics := get(t, sv.admin+"/metrics").body
	for _, want := range []string{
		`hooklatch_key_uses_total{key_id="k1",retiring="true",source="billing"} 2`,
		`hooklatch_key_uses_total{key_id="k2",retiring="false",source="billing"} 3`,
		`hooklatch_explain_results_total{cause="key_expired",source="billing"} 1`,
		`hooklatch_explain_dropped_total{source="billing"} 1`,
		`hooklatch_refusals_dropped_total 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	sv.end() // writes what was counted

	command := func(args ...string) string {
		p := start(t, []string{"DATABASE_URL=" + database}, append(args, "-c", s.dir+"/hooklatch.yaml")...)
		if code := p.wait(); code != 0 {
			t.Errorf("%v: exit code %d", args, code)
		}
		return p.output()
	}
	out := command("keys", "list", "--json")
	for _, want := range []string{
		`"key_id":"k0","scheme":"zhisou-v1","state":"expired"`,
		`"key_id":"k9","scheme":"zhisou-v1","state":"not yet valid"`,
		`"accepted":1,"source_accepted":4,"retiring":1,"safe_to_retire":false,"verdict":"k1 still signs 25 %: do not retire"`,
		`"accepted":3,"source_accepted":4,"retiring":0,"safe_to_retire":false,"verdict":"the newest key, in use"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("keys list lacks %s:\n%s", want, out)
		}
	}
	// No window is named that reaches beyond what is kept.
	year := time.Now().AddDate(-1, 0, 0).UTC().Format("2006")
	for _, args := range [][]string{{"keys", "list"}, {"refusals"}} {
		if out := command(append(args, "--since", "366d")...); strings.Contains(strings.ToLower(out), "since "+year) {
			t.Errorf("%v: the window is of a year:\n%s", args, out)
		}
	}
	out = command("refusals", "--json")
	for _, want := range []string{
		`"reason":"key_expired","key_id":"k0","causes":["key_expired"],"count":1,`, `"reason":"key_not_yet_valid","key_id":"k9","count":1,`,
		`"delivery_id":"dlv_expired"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("refusals lacks %s:\n%s", want, out)
		}
	}
	p := start(t, []string{"DATABASE_URL=" + database}, "trace", "dlv_early")
	if code := p.wait(); code != exitNo || !strings.Contains(p.output(), "key_not_yet_valid   key k9") {
		t.Errorf("trace: exit code %d\n%s", code, p.output())
	}
}

// Counting is a service to people: without it requests are answered and a stop is
// in order all the same.
func TestTalliesThatCannotBeWrittenStopNothing(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	database := inboxtest.URL(t)
	sv := startServe(t, s, database)
	execute(t, database, `ALTER TABLE hooklatch.refusal RENAME TO elsewhere`, `ALTER TABLE hooklatch.key_use RENAME TO elsewhere_too`)
	wrong := s.request(sv.url, "dlv_1", "{}")
	wrong.Header.Set("X-Webhook-Signature", strings.Repeat("0", 64))
	if a := do(t, http.DefaultClient, wrong); a.status != 401 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_2", "{}")); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
	sv.end()
	sv.line(`"level":"WARN"`, "tallies of refusals and keys are lost")
}
