package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// failing is an inbox whose every answer is err.
func failing(err error) *recorder {
	return &recorder{accept: func(context.Context, inbox.Delivery) (inbox.Receipt, error) { return inbox.Receipt{}, err }}
}

// provoke has for each code of the catalogue a way to get it from a running
// proxy.
var provoke = map[string]func(t *testing.T) answer{
	"header_missing":          spoiled(func(m *message) *message { return m.set("X-Webhook-Key-Id") }),
	"header_duplicated":       spoiled(func(m *message) *message { return m.add("X-Webhook-Key-Id", "k1") }),
	"header_invalid":          spoiled(func(m *message) *message { return many(m, 129) }),
	"delivery_id_invalid":     spoiled(func(m *message) *message { return m.set("X-Webhook-Delivery-Id", "a.b") }),
	"timestamp_malformed":     spoiled(func(m *message) *message { return m.set("X-Webhook-Timestamp", "01") }),
	"signature_invalid":       spoiled(func(m *message) *message { return m.set("X-Webhook-Signature", strings.Repeat("0", 64)) }),
	"timestamp_out_of_window": spoiled(func(m *message) *message { return m.set("X-Webhook-Timestamp", "1") }),
	"source_unknown":          spoiled(func(m *message) *message { return m.to("POST", "/nowhere") }),
	"method_not_allowed":      spoiled(func(m *message) *message { return m.to("PUT", m.target) }),
	"body_malformed": func(t *testing.T) answer {
		return start(t, setup{}).raw(signed("d", "abc").head("Transfer-Encoding: chunked") + "zz\r\n")
	},
	"body_not_json": func(t *testing.T) answer {
		s := src1(t)
		s.RequireJSON = true
		return start(t, setup{cfg: Config{Sources: []Source{s}}}).send(signed("d", "abc"))
	},
	"type_not_allowed": func(t *testing.T) answer {
		s := src1(t)
		s.Types = TypeRule{Allow: []string{"invoice.*"}, Refuse: true}
		return start(t, setup{cfg: Config{Sources: []Source{s}}}).send(signed("d", "abc"))
	},
	"body_too_large": func(t *testing.T) answer {
		return start(t, setup{}).raw(signed("d", "abc").head("Content-Length: 300000"))
	},
	"body_timeout": func(t *testing.T) answer {
		return start(t, setup{}).raw(signed("d", "abc").head("Content-Length: 3"))
	},
	"host_not_allowed": func(t *testing.T) answer {
		return start(t, setup{cfg: Config{Hosts: []string{"other.example.com"}}}).send(signed("d", "abc"))
	},
	"overloaded": func(t *testing.T) answer {
		g := start(t, setup{})
		if err := g.proxy.budget.take(t.Context(), &reading{bytes: 64 << 20}); err != nil {
			t.Fatal(err)
		}
		return g.send(signed("d", "abc"))
	},
	"shutting_down": func(t *testing.T) answer {
		g := start(t, setup{})
		g.proxy.Drain()
		return g.send(signed("d", "abc"))
	},
	"handshake_refused": func(t *testing.T) answer {
		g := start(t, setup{cfg: Config{Sources: []Source{preset(t, "dropbox", "")}}})
		return g.raw((&message{method: "GET", target: "/in?challenge=%3Cscript%3E"}).head())
	},
	"rate_limited": func(t *testing.T) answer {
		g := start(t, setup{cfg: Config{Sources: []Source{preset(t, "x-twitter", "")}}})
		var a answer
		for range 6 {
			a = g.raw((&message{method: "GET", target: "/in?crc_token=abc"}).head())
		}
		return a
	},
	"upstream_unreachable": func(t *testing.T) answer {
		app := startWireApp(t, func(net.Conn, *bufio.Reader, int) {}) // hangs up
		return passingToURL(t, app.url).raw(get("/page"))
	},
	"upstream_timeout": func(t *testing.T) answer {
		app := startWireApp(t, func(_ net.Conn, r *bufio.Reader, _ int) { r.ReadByte() })
		g := passingToURL(t, app.url)
		g.proxy.passthrough.reusing.ResponseHeaderTimeout = 10 * time.Millisecond
		return g.raw(get("/page"))
	},
	"delivery_conflict":     stored(&inbox.ConflictError{Tenant: "t1", Source: "src1", DeliveryID: "d"}),
	"store_unavailable":     stored(inbox.ErrUnavailable),
	"store_outcome_unknown": stored(inbox.ErrOutcomeUnknown),
	"store_busy":            stored(inbox.ErrBusy),
	"store_full":            stored(inbox.ErrFull),
	"internal":              stored(inbox.ErrInternal),
}

func spoiled(spoil func(*message) *message) func(*testing.T) answer {
	return func(t *testing.T) answer { return start(t, setup{}).send(spoil(signed("d", "abc"))) }
}

func stored(err error) func(*testing.T) answer {
	return func(t *testing.T) answer {
		return start(t, setup{inbox: failing(fmt.Errorf("accept: %w: the cause", err))}).send(signed("d", "abc"))
	}
}

func many(m *message, fields int) *message {
	for i := len(m.header) + 1; i < fields; i++ { // one more is Content-Length
		m = m.add("X-Fill", "1")
	}
	return m
}

func TestEveryCodeOfTheCatalogue(t *testing.T) {
	schema := problemSchema(t)
	for _, p := range catalogue {
		t.Run(p.code, func(t *testing.T) {
			t.Parallel()
			get, ok := provoke[p.code]
			if !ok {
				t.Fatal("no test provokes this code")
			}
			a := get(t)
			a.wants(t, p.status, p.code)
			var instance any
			if err := json.Unmarshal(a.body, &instance); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(instance); err != nil {
				t.Errorf("%v: %s", err, a.body)
			}
			body := a.problem(t)
			if body.Type != "urn:hooklatch:problem:"+strings.ReplaceAll(p.code, "_", "-") || body.Status != a.status {
				t.Errorf("%+v", body)
			}
			id := strings.TrimPrefix(body.Instance, "urn:hooklatch:request:")
			if u, err := uuid.Parse(id); err != nil || u.Version() != 7 || a.header.Get("X-Request-Id") != id {
				t.Errorf("instance %s, X-Request-Id %s", body.Instance, a.header.Get("X-Request-Id"))
			}
			if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("header %v", a.header)
			}
			retry, _ := strconv.Atoi(a.header.Get("Retry-After"))
			if retry != body.RetryAfterS || retry < p.retryAfter[0] || retry > p.retryAfter[1] {
				t.Errorf("Retry-After %q, retry_after_s %d, want %v", a.header.Get("Retry-After"), body.RetryAfterS, p.retryAfter)
			}
			if p.status == 503 && retry == 0 {
				t.Error("503 without Retry-After")
			}
		})
	}
}

func problemSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text, err := os.ReadFile("testdata/problem.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// A code that stands anywhere else could drift from the catalogue.
func TestCodesStandInTheCatalogueOnly(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, p := range catalogue {
		if codes[p.code] {
			t.Errorf("code %s stands twice", p.code)
		}
		codes[p.code] = true
		if p.title == "" || p.detail == "" || p.status < 400 || p.status > 599 || p.status == 410 {
			t.Errorf("code %s: %+v", p.code, p)
		}
	}
	for _, name := range files {
		if name == "respond.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, _ := strconv.Unquote(lit.Value); codes[s] {
					t.Errorf("%s: code %s as a literal", name, s)
				}
			}
			return true
		})
	}
}

// Every refusal of verify has a line; none may fall through to a fault of ours.
func TestEveryReasonOfVerifyHasAnAnswer(t *testing.T) {
	for _, r := range verify.Reasons() {
		p := problemOf(fmt.Errorf("wrapped: %w", &verify.Error{Reason: r}))
		if p.status >= 500 {
			t.Errorf("reason %s answers %d", r, p.status)
		}
		if r.Code() != p.code && r != verify.ReasonHandshakeRefused {
			t.Errorf("reason %s answers %s, want %s", r, p.code, r.Code())
		}
	}
}

func TestErrorsOfTheInbox(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		code string
	}{
		{"nobody knows it", io.ErrShortBuffer, "internal"},
		{"deadline of ours", context.DeadlineExceeded, "store_outcome_unknown"},
		{"deadline before it was taken", fmt.Errorf("accept: %w: %w", inbox.ErrUnavailable, context.DeadlineExceeded), "store_unavailable"},
		{"lock wait", fmt.Errorf("accept: %w: %w", inbox.ErrBusy, context.DeadlineExceeded), "store_busy"},
		{"refused values", fmt.Errorf("accept: %w: %w", inbox.ErrInternal, context.Canceled), "internal"},
	} {
		if got := problemOf(c.err).code; got != c.code {
			t.Errorf("%s: code %s, want %s", c.name, got, c.code)
		}
	}
}

func TestAcknowledgementOfTheSource(t *testing.T) {
	s := src1(t)
	s.SuccessStatus, s.SuccessBody, s.SuccessType = 200, []byte("[accepted]"), "text/plain"
	s.RefusalStatus, s.ConflictStatus = 403, 422
	g := start(t, setup{cfg: Config{Sources: []Source{s}}})
	a := g.send(signed("d", "x"))
	if a.status != 200 || string(a.body) != "[accepted]" || a.header.Get("Content-Type") != "text/plain" || a.header.Get("X-Request-Id") == "" {
		t.Errorf("%d %q %v", a.status, a.body, a.header)
	}
	bad := g.send(signed("d", "x").set("X-Webhook-Signature"))
	bad.wants(t, 403, "signature_invalid")
	if bad.problem(t).Status != 403 || bad.header.Get("WWW-Authenticate") != "" {
		t.Errorf("%s %v", bad.body, bad.header)
	}
	// The window is no failure of key or signature.
	g.send(signed("d", "x").set("X-Webhook-Timestamp", "1")).wants(t, 401, "timestamp_out_of_window")
	start(t, setup{cfg: Config{Sources: []Source{s}}, inbox: failing(&inbox.ConflictError{})}).send(signed("d", "x")).wants(t, 422, "delivery_conflict")

	s.SuccessStatus, s.SuccessBody = 204, nil
	none := start(t, setup{cfg: Config{Sources: []Source{s}}}).send(signed("d", "x"))
	if none.status != 204 || len(none.body) != 0 || none.header.Get("Content-Type") != "" {
		t.Errorf("%d %q %v", none.status, none.body, none.header)
	}
}

func TestAnswerOfACommit(t *testing.T) {
	g := start(t, setup{})
	a := g.send(signed("dlv_1", "x").add("X-Request-Id", "forged"))
	want := `{"status":"accepted","delivery_id":"dlv_1","duplicate":false,"received_at":"2025-10-09T08:53:20.123456Z"}`
	if a.status != 202 || strings.TrimSpace(string(a.body)) != want || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	if id := a.header.Get("X-Request-Id"); id != g.result(0).RequestID.String() || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", a.header)
	}
	if a.close {
		t.Error("a good request closes the connection")
	}
}

// What some schemes allow in an id must not break out of the JSON.
func TestDeliveryIDIsEscaped(t *testing.T) {
	recipe := verify.Recipe{Name: "wide", Algo: "hmac-sha256", Template: "{header:X-Id}{body}",
		Signature: verify.SignatureRecipe{Name: "X-Sig"}, ID: &verify.IDRecipe{From: verify.Sources{"header:X-Id"}}}
	scheme, err := recipe.Compile()
	if err != nil {
		t.Fatal(err)
	}
	s := src1(t)
	s.Verifier.Scheme = scheme
	id := `"},{"<script>\'&`
	m := &message{method: "POST", target: "/in/src1", body: []byte("x"), header: [][2]string{{"X-Id", id}, {"X-Sig", macOf(secretK1, id+"x")}}}
	if r := start(t, setup{cfg: Config{Sources: []Source{s}}}).send(m).receipt(t); r.DeliveryID != id {
		t.Errorf("delivery id %q, want %q", r.DeliveryID, id)
	}
	a := start(t, setup{cfg: Config{Sources: []Source{s}}, inbox: failing(&inbox.ConflictError{DeliveryID: id})}).send(m)
	if p := a.problem(t); p.DeliveryID != id || strings.Contains(string(a.body), "<script>") {
		t.Errorf("%s", a.body)
	}
}

func TestAnswersHoldNothingReceived(t *testing.T) {
	canary := "canary7f3a"
	key := "X-Webhook-Key-Id"
	g := start(t, setup{cfg: Config{Hosts: []string{"hooks.example.com"}}})
	ok := signed("dlv_1", canary)
	for _, m := range []*message{
		ok.set(key, canary), ok.set("X-Webhook-Timestamp", canary), ok.set("X-Webhook-Delivery-Id", canary+"."),
		ok.set("X-Webhook-Signature", canary), ok.to(canary, "/in/src1"), ok.to("POST", "/"+canary), ok.add("Host", canary),
		ok.set("X-Webhook-Signature", strings.Repeat("0", 64)),
	} {
		if a := g.send(m); strings.Contains(string(a.body)+fmt.Sprint(a.header), canary) {
			t.Errorf("%v: %s", a.header, a.body)
		}
	}
}

func TestRetryAfterIsJittered(t *testing.T) {
	seen := map[string]bool{}
	g := start(t, setup{inbox: failing(inbox.ErrUnavailable)})
	for range 60 {
		a := g.send(signed("d", "x"))
		if !regexp.MustCompile(`^([5-9]|10)$`).MatchString(a.header.Get("Retry-After")) {
			t.Fatalf("Retry-After %q", a.header.Get("Retry-After"))
		}
		seen[a.header.Get("Retry-After")] = true
	}
	if len(seen) < 3 {
		t.Errorf("60 answers named only %v", seen)
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	in := &recorder{accept: func(context.Context, inbox.Delivery) (inbox.Receipt, error) { panic("boom") }}
	g := start(t, setup{inbox: in, cfg: Config{InFlight: 1}})
	for i := range 3 { // the slot comes back, the process lives
		a := g.send(signed("d", "x"))
		a.wants(t, 500, "internal")
		if strings.Contains(string(a.body), "boom") {
			t.Errorf("the sender reads %s", a.body)
		}
		if r := g.result(i); r.Err == nil || !strings.Contains(r.Err.Error(), "boom") || r.Outcome != OutcomeUnavailable {
			t.Errorf("report %+v", r)
		}
	}
}
