package main

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func TestServeRidesOutADatabaseThatGoesAndComes(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	cluster := inboxtest.NewCluster(t)
	wholeAtEnd(t, cluster.URL())
	sv := startServe(t, s, cluster.URL())
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", "{}")); a.status != 202 {
		t.Fatalf("before: %d %s", a.status, a.body)
	}
	sv.line(`"msg":"attempt"`, "dlv_1")

	cluster.Stop()
	a := do(t, http.DefaultClient, s.request(sv.url, "dlv_2", "{}"))
	seconds, _ := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != 503 || !strings.Contains(a.body, `"code":"store_unavailable"`) || seconds < 5 || seconds > 10 {
		t.Errorf("while it is down: %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	eventually(t, "not ready", func() bool { return get(t, sv.admin+"/readyz").status == 503 })
	if verbose := get(t, sv.admin+"/readyz?verbose").body; !strings.Contains(verbose, "[-] database: not writable for ") || !strings.Contains(verbose, "[+] process ok") {
		t.Errorf("/readyz?verbose:\n%s", verbose)
	}
	if a := get(t, sv.admin+"/livez"); a.status != 200 {
		t.Errorf("/livez: %d", a.status)
	}
	if a := get(t, sv.admin+"/metrics"); a.status != 200 || !strings.Contains(a.body, `hooklatch_refusals_total{reason="store_unavailable",source="billing"} `) {
		t.Errorf("/metrics: %d", a.status)
	}
	sv.line(`"level":"ERROR"`, `"msg":"not ready"`, `"check":"database"`)

	cluster.Start()
	eventually(t, "ready again", func() bool { return get(t, sv.admin+"/readyz").status == 200 })
	// What was refused is sent again by its sender.
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_2", "{}")); a.status != 202 || !strings.Contains(a.body, `"duplicate":false`) {
		t.Errorf("after: %d %s", a.status, a.body)
	}
	sv.line(`"msg":"attempt"`, "dlv_2", `"outcome":"accepted"`)
	sv.line(`"msg":"ready again"`)
	if n := len(app.requests()); n != 2 {
		t.Errorf("the app got %d, want 2", n)
	}
	sv.end()
}
