package main

import (
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// serving is a running serve.
type serving struct {
	*process
	site       *site
	url, admin string // of source billing, of the private listener
}

// startServe runs serve with a login that has no more rights than a server needs.
func startServe(t *testing.T, s *site, database string, args ...string) *serving {
	t.Helper()
	return startMigrating(t, s, inboxtest.LoginURL(t, database), args...)
}

// startMigrating runs serve with the login of the address.
func startMigrating(t *testing.T, s *site, database string, args ...string) *serving {
	t.Helper()
	p := start(t, []string{"DATABASE_URL=" + database}, append([]string{"serve", "-c", s.dir + "/hooklatch.yaml"}, args...)...)
	ready := p.entry(`"msg":"ready"`)
	sv := &serving{process: p, site: s, admin: "http://" + ready["admin"].(string)}
	for _, scheme := range []string{"http", "https"} {
		if address, ok := ready[scheme].(string); ok {
			sv.url = scheme + "://" + address + "/in/billing"
		}
	}
	return sv
}

// end stops the process and demands exit code 0.
func (sv *serving) end() {
	sv.t.Helper()
	sv.signal(syscall.SIGTERM)
	if code := sv.wait(); code != 0 {
		sv.t.Errorf("exit code %d, want 0", code)
	}
	sv.line(`"msg":"stopped"`)
}

func startApp(t *testing.T) (*app, string) {
	t.Helper()
	a := &app{}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return a, server.URL
}

func openPoolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func count(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func TestServeCommitsHandsOnAndTells(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	database := inboxtest.URL(t)
	sv := startServe(t, s, database)

	const body = `{"id":"evt_1","type":"t.x","card":"4242-4242"}`
	r := s.request(sv.url, "dlv_1", body)
	signature := r.Header.Get("X-Webhook-Signature")
	a := do(t, http.DefaultClient, r)
	if a.status != 202 || !strings.Contains(a.body, `"duplicate":false`) {
		t.Fatalf("accepted: %d %s", a.status, a.body)
	}
	line := sv.entry(`"msg":"request"`, a.header.Get("X-Request-Id"))
	for key, want := range map[string]any{"level": "INFO", "source": "billing", "tenant": "acme", "outcome": "accepted", "status": 202.0,
		"delivery_id": "dlv_1", "key_id": "k1", "bytes": float64(len(body)), "forwards": 1.0, "peer": "127.0.0.1"} {
		if line[key] != want {
			t.Errorf("log line of the request: %s is %v, want %v", key, line[key], want)
		}
	}
	if attempt := sv.entry(`"msg":"attempt"`, "dlv_1"); attempt["outcome"] != "accepted" || attempt["status"] != 200.0 || attempt["class"] != "2xx" {
		t.Errorf("log line of the attempt: %v", attempt)
	}
	if got := app.requests(); len(got) != 1 || string(got[0].body) != body || got[0].id != "dlv_1" || got[0].attempt != "1" {
		t.Errorf("the app got %+v", got)
	}

	// The same again, other bytes, and a forgery.
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", body)); a.status != 202 || !strings.Contains(a.body, `"duplicate":true`) {
		t.Errorf("duplicate: %d %s", a.status, a.body)
	}
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", body+" ")); a.status != 409 {
		t.Errorf("conflict: %d %s", a.status, a.body)
	}
	if line := sv.entry(`"msg":"request"`, `"outcome":"conflict"`); line["level"] != "WARN" || line["alarm"] != true {
		t.Errorf("log line of the conflict: %v", line)
	}
	forged := s.request(sv.url, "dlv_2", body)
	forged.Header.Set("X-Webhook-Signature", strings.Repeat("0", 64))
	if a := do(t, http.DefaultClient, forged); a.status != 401 {
		t.Errorf("forged: %d %s", a.status, a.body)
	}
	if line := sv.entry(`"msg":"request"`, `"outcome":"refused"`); line["reason"] != "signature_mismatch" || line["code"] != "signature_invalid" {
		t.Errorf("log line of the forgery: %v", line)
	}

	pool := openPoolOf(t, database)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox i JOIN hooklatch.config_revision c ON c.id = i.config_revision
		WHERE c.redacted LIKE '%/in/billing%'`); n != 1 {
		t.Errorf("%d deliveries that name the configuration they came under, want 1", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.destination WHERE name = 'app' AND url = '`+appURL+`/hook'`); n != 1 {
		t.Errorf("the destination is not in the database")
	}
	metrics := get(t, sv.admin+"/metrics").body
	for _, want := range []string{
		`hooklatch_requests_total{outcome="accepted",source="billing"} 1`,
		`hooklatch_requests_total{outcome="duplicate",source="billing"} 1`,
		`hooklatch_requests_total{outcome="conflict",source="billing"} 1`,
		`hooklatch_requests_total{outcome="unavailable",source="billing"} 0`,
		`hooklatch_refusals_total{reason="signature_mismatch",source="billing"} 1`,
		`hooklatch_key_uses_total{key_id="k1",retiring="false",source="billing"} 3`,
		`hooklatch_attempts_total{class="2xx",destination="app"} 1`,
		`hooklatch_forwards{destination="app",state="blocked"} 0`,
		`hooklatch_oldest_due_age_seconds{destination="app",kind="new"} 0`,
		`hooklatch_destination_paused{destination="app"} 0`,
		`hooklatch_commit_batch_rows_count `, `hooklatch_claim_duration_seconds_count{destination="app"} `, `hooklatch_database_clock_offset_seconds `, `hooklatch_build_info{`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	sv.end()
	secret, _ := readSecretFile(s.dir + "/k1")
	for what, canary := range map[string]string{"the secret": string(secret), "the secret in hex": hex.EncodeToString(secret), "a signature": signature, "the body": "4242-4242"} {
		if strings.Contains(sv.output(), canary) || strings.Contains(metrics, canary) {
			t.Errorf("%s is in the log or in the metrics", what)
		}
	}
}

func TestPrivateListenerAnswersItsRoutesAndNoOthers(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	sv := startServe(t, s, inboxtest.URL(t))
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/readyz?verbose": 200, "/metrics": 200,
		"/": 404, "/livez/": 404, "//livez": 404, "/x/../livez": 404, "/in/billing": 404, "/debug/pprof/": 404,
	} {
		r, err := http.NewRequest("GET", sv.admin, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Opaque = path
		if a := do(t, http.DefaultClient, r); a.status != want {
			t.Errorf("GET %s: %d, want %d", path, a.status, want)
		}
	}
	verbose := get(t, sv.admin+"/readyz?verbose").body
	for _, check := range []string{"process", "database", "schema", "clock", "disk"} {
		if !strings.Contains(verbose, "[+] "+check+" ok\n") {
			t.Errorf("/readyz?verbose lacks %s:\n%s", check, verbose)
		}
	}
	r := s.request(sv.admin+"/livez", "dlv_1", "{}")
	if a := do(t, http.DefaultClient, r); a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST /livez: %d %v", a.status, a.header)
	}
	// The public listener has none of them.
	if a := get(t, strings.TrimSuffix(sv.url, "/in/billing")+"/metrics"); a.status != 404 {
		t.Errorf("GET /metrics on the public listener: %d, want 404", a.status)
	}
	sv.end()
}

func TestPrivateListenerOnASocketThatWasLeftBehind(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	socket := s.dir + "/admin.sock"
	left, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	_, appURL := startApp(t)
	s.config(appURL, `listen: {http: "127.0.0.1:0", admin: "unix:`+socket+`"}`)
	database := inboxtest.URL(t)
	sv := startServe(t, s, database)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	// A second process must not take it from the first.
	if second := start(t, []string{"DATABASE_URL=" + database}, "serve", "-c", s.dir+"/hooklatch.yaml"); second.wait() != exitNo {
		t.Errorf("second process: exit code %d, want %d", second.code, exitNo)
	}
	sv.end()
	if _, err := net.Dial("unix", socket); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestRolesShareTheWorkOverTwoProcesses(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	database := inboxtest.URL(t)
	receive := startServe(t, s, database, "--role", "receive")
	if a := do(t, http.DefaultClient, s.request(receive.url, "dlv_1", "{}")); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n := len(app.requests()); n != 0 {
		t.Fatalf("role receive handed on %d", n)
	}
	forward := startServe(t, s, database, "--role", "forward")
	if forward.url != "" {
		t.Errorf("role forward listens for senders on %s", forward.url)
	}
	forward.line(`"msg":"attempt"`, "dlv_1", `"outcome":"accepted"`)
	// Nobody wakes it: the poll has to find the next one.
	if a := do(t, http.DefaultClient, s.request(receive.url, "dlv_2", "{}")); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	forward.line(`"msg":"attempt"`, "dlv_2", `"outcome":"accepted"`)
	receive.end()
	forward.end()
}

func TestACommitWakesTheConsumer(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	sv := startServe(t, s, inboxtest.URL(t))
	begun := time.Now()
	for i := range 6 {
		id := "dlv_" + strconv.Itoa(i)
		if a := do(t, http.DefaultClient, s.request(sv.url, id, "{}")); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		sv.line(`"msg":"attempt"`, id)
	}
	// Each would have waited for half a second or more for the poll.
	if took := time.Since(begun); took > 2500*time.Millisecond {
		t.Errorf("6 deliveries, one after the other, took %s", took)
	}
	sv.end()
}

func TestPoolForATransactionPoolerPreparesNothing(t *testing.T) {
	t.Parallel()
	pool, err := openPool(t.Context(), "postgres://u@127.0.0.1:1/x", "pgbouncer", "test", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if c := pool.Config().ConnConfig; c.DefaultQueryExecMode != pgx.QueryExecModeExec || len(c.RuntimeParams) > 0 {
		t.Errorf("mode %s, start-up parameters %v", c.DefaultQueryExecMode, c.RuntimeParams)
	}
}

func TestHangupEndsNothing(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	sv := startServe(t, s, inboxtest.URL(t))
	sv.signal(syscall.SIGHUP)
	sv.line(`"level":"WARN"`, "SIGHUP")
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", "{}")); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
	sv.end()
}
