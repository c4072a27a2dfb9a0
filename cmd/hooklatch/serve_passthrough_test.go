package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// webApp answers pages, and echoes on an upgraded connection. What it is asked for
// at /hook is none of its pages: only forwards come there.
func webApp(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
			io.Copy(c, rw)
		case r.URL.Path == "/broken":
			panic(http.ErrAbortHandler)
		default:
			io.WriteString(w, r.Method+" "+r.URL.Path+" for "+r.Header.Get("X-Forwarded-For"))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestServePassesWhatIsForNoSource(t *testing.T) {
	t.Parallel()
	app := webApp(t)
	s := newSite(t)
	s.config(app, "upstream: "+app, "trusted_proxies: [127.0.0.1]", "stop: {lame_duck: 1ms, shutdown: 300ms}")
	database := inboxtest.URL(t)
	sv := startServe(t, s, database)
	if line := sv.line("configuration: the destination lies at upstream and has no sign"); !strings.Contains(line, "WARN") {
		t.Error(line)
	}
	base := strings.TrimSuffix(sv.url, "/in/billing")

	r, err := http.NewRequest("GET", base+"/page", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 192.0.2.1")
	if a := do(t, http.DefaultClient, r); a.status != 200 || a.body != "GET /page for 192.0.2.1" || a.header.Get("X-Request-Id") != "" {
		t.Errorf("page: %d %s %v", a.status, a.body, a.header)
	}
	if a := get(t, base+"/in/billing"); a.status != 405 {
		t.Errorf("GET of a source: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/hook", "/x/..;/HOOK/", "/%2568ook"} {
		if a := get(t, base+path); a.status != 404 || !strings.Contains(a.body, "source_unknown") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := get(t, base+"/broken"); a.status != 502 || !strings.Contains(a.body, "upstream_unreachable") {
		t.Errorf("broken: %d %s", a.status, a.body)
	}
	if line := sv.entry(`"code":"upstream_unreachable"`); line["level"] != "WARN" || line["outcome"] != "passed" || line["error"] == nil {
		t.Errorf("log line: %v", line)
	}

	forged := s.request(sv.url, "dlv_1", `{"id":"evt_1"}`)
	forged.Header.Set("X-Forwarded-For", "192.0.2.7")
	if a := do(t, http.DefaultClient, forged); a.status != 202 {
		t.Fatalf("delivery: %d %s", a.status, a.body)
	}
	if line := sv.entry(`"delivery_id":"dlv_1"`, `"msg":"request"`); line["peer"] != "192.0.2.7" {
		t.Errorf("log line: %v", line)
	}
	sv.entry(`"msg":"attempt"`, "dlv_1", `"outcome":"accepted"`) // the app is reached at /hook by the forward
	if n := count(t, openPoolOf(t, database), `SELECT count(*) FROM hooklatch.inbox`); n != 1 {
		t.Errorf("%d deliveries are stored, want 1", n)
	}
	metrics := get(t, sv.admin+"/metrics").body
	for _, want := range []string{
		`hooklatch_upstream_answers_total{class="2xx"} 1`, `hooklatch_upstream_answers_total{class="unreachable"} 1`, `hooklatch_upstream_answers_total{class="timeout"} 0`,
		`hooklatch_requests_total{outcome="passed",source=""} 2`, `hooklatch_refusals_total{reason="source_unknown",source=""} 3`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}

	// An upgraded connection has the time of the stop, and no more.
	c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	up := bufio.NewReader(c)
	io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if res, err := http.ReadResponse(up, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%+v, %v", res, err)
	}
	sv.signal(syscall.SIGTERM)
	sv.line(`"msg":"stopping"`)
	io.WriteString(c, "still\n")
	if line, err := up.ReadString('\n'); line != "still\n" {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := up.ReadByte(); err == nil {
		t.Error("the upgraded connection is still open")
	}
	if code := sv.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	sv.line("stop: requests were cut")
	if strings.Contains(sv.output(), `"outcome":"passed","status":200`) {
		t.Error("the log has a line of an ordinary request")
	}
}
