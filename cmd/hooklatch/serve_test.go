package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// serving is a running serve.
type serving struct {
	*process
	site          *site
	url, adminURL string // url of source billing
}

func startServe(t *testing.T, s *site, database string, args ...string) *serving {
	t.Helper()
	p := start(t, []string{"DATABASE_URL=" + database}, append([]string{"serve", "-c", s.dir + "/hooklatch.yaml"}, args...)...)
	ready := p.entry(`"msg":"ready"`)
	sv := &serving{process: p, site: s, adminURL: "http://" + ready["admin"].(string)}
	if address, ok := ready["http"].(string); ok {
		sv.url = "http://" + address + "/in/billing"
	}
	if address, ok := ready["https"].(string); ok {
		sv.url = "https://" + address + "/in/billing"
	}
	return sv
}

func startApp(t *testing.T) (*app, string) {
	a := &app{}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return a, server.URL
}

func TestServeCommitsAndHandsOn(t *testing.T) {
	app, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	sv := startServe(t, s, inboxtest.URL(t))

	a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", `{"id":"evt_1","type":"t.x"}`))
	if a.status != 202 || !strings.Contains(a.body, `"duplicate":false`) {
		t.Fatalf("first: %d %s", a.status, a.body)
	}
	line := sv.entry(`"msg":"attempt"`, "dlv_1")
	if line["outcome"] != "accepted" || line["status"] != 200.0 {
		t.Errorf("attempt: %v", line)
	}
	if got := app.requests(); len(got) != 1 || string(got[0].body) != `{"id":"evt_1","type":"t.x"}` || got[0].id != "dlv_1" {
		t.Errorf("the app got %+v", got)
	}
	sv.signal(syscall.SIGTERM)
	if code := sv.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
