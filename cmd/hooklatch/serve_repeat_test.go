package main

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// D1 as an operator meets it: what the file says about repeats holds in the program,
// and the metrics, the log and the commands tell of it.
func TestServeKeepsTheFirstOfRepeatsThatDiffer(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	file := s.config(appURL)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.write("hooklatch.yaml", strings.Replace(string(text), "    scheme: zhisou-v1\n",
		"    scheme: zhisou-v1\n    on_conflict: accept_first\n    conflict_ignore: [/attempt]\n    body_guard: on\n", 1))
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	sv := startServe(t, s, database)
	for _, c := range []struct {
		id, body, answer string
	}{
		{"e1", `{"attempt":1,"v":7}`, `"delivery_id":"e1","duplicate":false`},
		{"e1", `{"attempt":2,"v":7}`, `"delivery_id":"e1","duplicate":true`},
		{"e1", `{"attempt":3,"v":8}`, `"delivery_id":"e1","duplicate":true`},
		{"e1", `{"attempt":3,"v":8}`, `"delivery_id":"e1","duplicate":true`},
		{"e2", `{"attempt":1,"v":7}`, `"delivery_id":"e1","duplicate":true`},
		{"e2", `{"attempt":1,"v":9}`, `"delivery_id":"e2","duplicate":false`},
	} {
		if a := do(t, http.DefaultClient, s.request(sv.url, c.id, c.body)); a.status != 202 || !strings.Contains(a.body, c.answer) {
			t.Errorf("%s %s: %d %s, want %s", c.id, c.body, a.status, a.body, c.answer)
		}
	}
	metrics := get(t, sv.admin+"/metrics").body
	for _, want := range []string{
		`hooklatch_requests_total{outcome="accepted",source="billing"} 2`,
		`hooklatch_requests_total{outcome="duplicate",source="billing"} 4`,
		`hooklatch_requests_total{outcome="conflict",source="billing"} 0`,
		`hooklatch_conflicts_total{first="true",source="billing"} 1`,
		`hooklatch_conflicts_total{first="false",source="billing"} 1`,
		`hooklatch_body_guard_total{source="billing"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if line := sv.entry(`"alarm":true`); line["delivery_id"] != "e1" || line["outcome"] != "duplicate" || line["level"] != "WARN" {
		t.Errorf("the alarm: %v", line)
	}
	if line := sv.entry(`"kept_as":"e1"`); line["delivery_id"] != "e2" {
		t.Errorf("what the guard found: %v", line)
	}
	sv.end()
	if n := strings.Count(sv.output(), `"alarm":true`); n != 1 {
		t.Errorf("%d alarms, want 1", n)
	}

	p := start(t, []string{"DATABASE_URL=" + database}, "events", "diff", "--conflict", "e1")
	code := p.wait()
	for _, want := range []string{"seen 2 ×", "  differs      /attempt: 1 → 3\n  differs      /v: 7 → 8\n", "conflict_ignore: [/attempt, /v]"} {
		if code != exitOK || !strings.Contains(p.output(), want) {
			t.Errorf("events diff: exit code %d, want %q in\n%s", code, want, p.output())
		}
	}
	p = start(t, []string{"DATABASE_URL=" + database}, "trace", "e1")
	if code := p.wait(); code != exitOK || !strings.Contains(p.output(), "other bytes, body hash") {
		t.Errorf("trace: exit code %d\n%s", code, p.output())
	}
}
