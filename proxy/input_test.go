package proxy

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const body1 = `{"id":"evt_1","type":"invoice.paid"}`

// refusals sends each message to a fresh set-up and fails if one reaches the inbox.
func refusals(t *testing.T, cfg Config, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := &recorder{}
			g := start(t, setup{inbox: in, cfg: cfg})
			a := g.raw(c.wire)
			a.wants(t, c.status, c.code)
			if p := a.problem(t); p.Header != c.header {
				t.Errorf("header %q, want %q", p.Header, c.header)
			}
			if r := g.result(0); c.reason != "" && r.Reason != c.reason {
				t.Errorf("reason %q, want %q", r.Reason, c.reason)
			}
			if n := len(in.deliveries()); n != 0 {
				t.Errorf("%d deliveries reached the inbox", n)
			}
		})
	}
}

type refusal struct {
	name, wire   string
	status       int
	code, header string
	reason       string
}

func TestX01_DeclaredLengthAboveTheCap(t *testing.T) {
	t.Parallel()
	in := &recorder{}
	wide := src1(t)
	wide.Name, wide.Path, wide.MaxBody = "wide", "/in/wide", 1<<20
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{src1(t), wide}}})
	over := signed("dlv_over", strings.Repeat("x", 262145))

	// No byte of the body is sent: an answer that waits for one never comes.
	for _, framing := range [][]string{{"Content-Length: 262145"}, {"Content-Length: 262145", "Expect: 100-continue"}} {
		a := g.raw(over.head(framing...))
		a.wants(t, 413, "body_too_large")
		if p := a.problem(t); p.MaxBytes != 262144 {
			t.Errorf("max_bytes %d", p.MaxBytes)
		}
		if !a.close {
			t.Error("the connection stays open with a body that nobody will read")
		}
	}
	if r := g.result(0); r.Source != "src1" || r.BodyBytes != 262145 || r.BodyLimit != 262144 {
		t.Errorf("report %+v lacks source, size or limit", r)
	}
	if len(in.deliveries()) != 0 {
		t.Fatal("a body above the cap reached the inbox")
	}
	g.send(signed("dlv_cap", strings.Repeat("x", 262144))).wants(t, 202, "")
	g.send(over.to("POST", "/in/wide")).wants(t, 202, "")
}

func TestX02_ChunkedBodyCrossesTheCap(t *testing.T) {
	t.Parallel()
	in := &recorder{}
	over := signed("dlv_over", strings.Repeat("x", 262145))
	g := start(t, setup{inbox: in})
	a := g.raw(over.chunked(100_000))
	a.wants(t, 413, "body_too_large")

	h2 := start(t, setup{inbox: in, tls: true})
	h2.http2(over, io.MultiReader(bytes.NewReader(over.body))).wants(t, 413, "body_too_large")
	h2.http2(over, bytes.NewReader(over.body)).wants(t, 413, "body_too_large")
	if len(in.deliveries()) != 0 {
		t.Fatal("a body above the cap reached the inbox")
	}
	g.raw(signed("dlv_cap", strings.Repeat("x", 262144)).chunked(100_000)).wants(t, 202, "")
}

func TestX03_EmptyBody(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	m := signed("dlv_empty", "")
	for _, wire := range []string{m.wire(), m.head(), m.chunked(1)} {
		g.raw(wire).wants(t, 202, "")
	}
	for _, d := range in.deliveries() {
		if d.Body == nil || len(d.Body) != 0 {
			t.Errorf("body %v, want zero bytes", d.Body)
		}
		if got := hex.EncodeToString(d.BodyHash[:]); got != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
			t.Errorf("body hash %s", got)
		}
	}
	if n := len(in.deliveries()); n != 3 {
		t.Fatalf("%d deliveries", n)
	}
}

func TestX04_BodyCutShort(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	// The three bytes carry a right signature of their own.
	answers := g.all(signed("dlv_cut", "abc").head("Content-Length: 50") + "abc")
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	answers[0].wants(t, 400, "body_malformed")
	if !answers[0].close {
		t.Error("the connection stays open in the middle of a body")
	}
	if len(in.deliveries()) != 0 {
		t.Fatal("half a body was accepted")
	}
}

func TestX05_BrokenFraming(t *testing.T) {
	t.Parallel()
	m := signed("dlv_x05", "abc")
	chunked := m.head("Transfer-Encoding: chunked")
	refusals(t, Config{}, []refusal{
		{"chunk size is no hex", chunked + "zz\r\nabc\r\n0\r\n\r\n", 400, "body_malformed", "", ""},
		{"bare LF after the chunk size", chunked + "3\nabc\r\n0\r\n\r\n", 400, "body_malformed", "", ""},
		{"chunk extension over 4 KiB", chunked + "3;x=" + strings.Repeat("y", 5000) + "\r\nabc\r\n0\r\n\r\n", 400, "body_malformed", "", ""},
		{"chunk longer than its size", chunked + "3\r\nabcdef\r\n0\r\n\r\n", 400, "body_malformed", "", ""},
	})
	t.Run("HTTP/2 length above the data", func(t *testing.T) {
		in := &recorder{}
		g := start(t, setup{inbox: in, tls: true})
		c := newFramer(g.tlsConn())
		c.headers(1, m, false, "content-length", "10")
		c.data(1, "abc", true)
		if status, _ := c.answer(1); status != "400" {
			t.Errorf("status %s", status)
		}
		if r := g.result(0); r.Code != "body_malformed" || len(in.deliveries()) != 0 {
			t.Errorf("report %+v, %d deliveries", r, len(in.deliveries()))
		}
	})
	t.Run("HTTP/2 length below the data", func(t *testing.T) {
		in := &recorder{}
		g := start(t, setup{inbox: in, tls: true})
		c := newFramer(g.tlsConn())
		c.headers(1, m, false, "content-length", "2")
		c.data(1, "abc", true)
		status, reset := c.answer(1)
		if status == "202" || !reset || len(in.deliveries()) != 0 {
			t.Errorf("status %s, reset %t, %d deliveries", status, reset, len(in.deliveries()))
		}
	})
}

// badSignatures are the spellings of X06, by defect.
func badSignatures(right string) map[string][]string {
	return map[string][]string{
		"absent":               nil,
		"empty":                {""},
		"63 characters":        {right[:63]},
		"65 characters":        {right + "0"},
		"upper case":           {strings.ToUpper(right)},
		"prefix":               {"sha256=" + right},
		"base64":               {"NK8hY5LqMKDGHKDKyS5vMM1E6Q3mmhG0M7KgwAIyAgE="},
		"64 z":                 {strings.Repeat("z", 64)},
		"two joined by comma":  {right + "," + right},
		"e acute":              {right[:62] + "é"},
		"one MiB is another's": {strings.Repeat("a", 4096)},
	}
}

// TestX06_SharedRefusal sends everything that must look alike: X06 and X11 to X13.
func TestX06_SharedRefusal(t *testing.T) {
	ok := signed("dlv_x06", body1)
	sig := ok.get("X-Webhook-Signature")
	bad := map[string]*message{}
	for name, values := range badSignatures(sig) {
		bad["X06 "+name] = ok.set("X-Webhook-Signature", values...)
	}
	flip := ok.clone()
	flip.body = []byte(strings.Replace(body1, "evt_1", "evt_2", 1))
	bad["X11 body byte flipped"] = flip
	printed := ok.clone()
	printed.body = []byte(strings.ReplaceAll(body1, `":"`, `": "`))
	bad["X11 body printed again"] = printed
	crlf := signed("dlv_x06", body1+"\r\n")
	crlf.body = []byte(body1)
	bad["X11 trailing CRLF removed"] = crlf
	bad["X11 timestamp changed"] = ok.set("X-Webhook-Timestamp", "1760000001")
	bad["X11 id changed"] = ok.set("X-Webhook-Delivery-Id", "dlv_other")
	plain := sha256.Sum256([]byte(secretK1 + "v1.1760000000.dlv_x06." + body1))
	bad["X11 plain hash"] = ok.set("X-Webhook-Signature", hex.EncodeToString(plain[:]))
	bad["X12 key unknown"] = ok.set("X-Webhook-Key-Id", "k9")
	bad["X12 key expired"] = signedAt(t0, "old", secretK2, "dlv_x06", body1)
	bad["X12 key not yet valid"] = signedAt(t0, "new", secretK2, "dlv_x06", body1)
	bad["X13 key of another tenant"] = signedAt(t0, "k1", secretK2+"t2", "dlv_x06", `{"tenant":"t2"}`)

	old, next := key(t, "old", secretK2), key(t, "new", secretK2)
	old.NotAfter, next.NotBefore = clock(t0)(), clock(t0+1)()
	one, two := src1(t), src1(t)
	one.Verifier = verifier(t, "zhisou-v1", key(t, "k1", secretK1), old, next)
	two.Name, two.Tenant, two.Path = "src2", "t2", "/in/src2"
	two.Verifier = verifier(t, "zhisou-v1", key(t, "k1", secretK2+"t2"))
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{one, two}}})

	want := ""
	seen := 0
	for name, m := range bad {
		a := g.send(m)
		if a.status != 401 || a.header.Get("WWW-Authenticate") != "Webhook-Signature" {
			t.Errorf("%s: status %d, header %v", name, a.status, a.header)
		}
		p := a.problem(t)
		got := strings.Replace(string(a.body), p.Instance, "INSTANCE", 1)
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%s: answers differ:\n%s%s", name, got, want)
		}
		r := g.result(seen)
		seen++
		if strings.HasPrefix(name, "X06") && r.BodyHash != [32]byte{} {
			t.Errorf("%s: the body was read", name)
		}
		if strings.HasPrefix(name, "X06") && r.Reason != "signature_missing" && r.Reason != "signature_malformed" {
			t.Errorf("%s: reason %s", name, r.Reason)
		}
	}
	if n := len(in.deliveries()); n != 0 {
		t.Fatalf("%d deliveries reached the inbox", n)
	}
	g.send(ok).wants(t, 202, "")
}

func TestX12_ReasonsOfKeys(t *testing.T) {
	old, next := key(t, "old", secretK2), key(t, "new", secretK2)
	old.NotAfter, next.NotBefore = clock(t0)(), clock(t0+1)()
	s := src1(t)
	s.Verifier = verifier(t, "zhisou-v1", key(t, "k1", secretK1), old, next)
	const shared = "signature_invalid"
	refusals(t, Config{Sources: []Source{s}}, []refusal{
		{"unknown", signedAt(t0, "k9", secretK1, "d", body1).wire(), 401, shared, "", "key_unknown"},
		{"expired at this second", signedAt(t0, "old", secretK2, "d", body1).wire(), 401, shared, "", "key_expired"},
		{"not yet valid", signedAt(t0, "new", secretK2, "d", body1).wire(), 401, shared, "", "key_not_yet_valid"},
		{"other key's MAC", signedAt(t0, "k1", secretK2, "d", body1).wire(), 401, shared, "", "signature_mismatch"},
	})
}

func TestX07_HeaderTwice(t *testing.T) {
	ok := signed("dlv_x07", body1)
	var cases []refusal
	for _, name := range []string{"X-Webhook-Key-Id", "X-Webhook-Timestamp", "X-Webhook-Delivery-Id", "X-Webhook-Signature"} {
		for defect, m := range map[string]*message{
			"equal values":  ok.add(name, ok.get(name)),
			"other value":   ok.add(name, "1"),
			"other case":    ok.add(strings.ToLower(name), ok.get(name)),
			"underscores":   ok.add(strings.ReplaceAll(name, "-", "_"), ok.get(name)),
			"mixed strokes": ok.add(strings.Replace(name, "-", "_", 1), "x"),
		} {
			cases = append(cases, refusal{name + " " + defect, m.wire(), 400, "header_duplicated", name, "header_duplicated"})
		}
	}
	refusals(t, Config{}, cases)
	refusals(t, Config{}, []refusal{{"only the underscore spelling is absent",
		ok.set("X-Webhook-Delivery-Id").add("X_Webhook_Delivery_Id", "dlv_x07").wire(), 400, "header_missing", "X-Webhook-Delivery-Id", ""}})
}

func TestX08_DeliveryIDGrammar(t *testing.T) {
	name := "X-Webhook-Delivery-Id"
	var cases []refusal
	for _, id := range []string{strings.Repeat("a", 129), "a.b", "a b", "é", "a%b", "snap:a", `a"b`} {
		cases = append(cases, refusal{id, signed(id, body1).wire(), 400, "delivery_id_invalid", "", "delivery_id_invalid"})
	}
	ok := signed("dlv_x08", body1)
	cases = append(cases,
		refusal{"absent", ok.set(name).wire(), 400, "header_missing", name, ""},
		refusal{"empty", ok.set(name, "").wire(), 400, "header_missing", name, ""})
	refusals(t, Config{}, cases)

	g := start(t, setup{})
	g.send(signed(strings.Repeat("a", 128), body1)).wants(t, 202, "")
	if a := g.send(signed("hostile<b>", body1)); strings.Contains(string(a.body), "hostile") {
		t.Errorf("the received value is in the answer: %s", a.body)
	}
}

func TestX09_TimestampGrammar(t *testing.T) {
	ok := signed("dlv_x09", body1)
	var cases []refusal
	for _, ts := range []string{"+1760000000", "01760000000", "1.7e9", "-1", "1760000000000", "abc", "17600000٠٠", "1_760_000_000"} {
		cases = append(cases, refusal{ts, ok.set("X-Webhook-Timestamp", ts).wire(), 400, "timestamp_malformed", "", ""})
	}
	for _, name := range []string{"X-Webhook-Timestamp", "X-Webhook-Key-Id"} {
		cases = append(cases,
			refusal{name + " absent", ok.set(name).wire(), 400, "header_missing", name, ""},
			refusal{name + " empty", ok.set(name, "").wire(), 400, "header_missing", name, ""})
	}
	refusals(t, Config{}, cases)

	g := start(t, setup{})
	if p := g.send(ok.set("X-Webhook-Timestamp", "1760000000000")).problem(t); !strings.Contains(p.Detail, "milliseconds?") {
		t.Errorf("detail %q", p.Detail)
	}
	if p := g.send(ok.set("X-Webhook-Timestamp", "17600000000000")).problem(t); strings.Contains(p.Detail, "milliseconds?") {
		t.Errorf("detail of 14 digits %q", p.Detail)
	}
	if p := g.send(ok.set("X-Webhook-Timestamp", "abc")).problem(t); strings.Contains(p.Detail, "milliseconds?") {
		t.Errorf("detail %q", p.Detail)
	}
}

func TestX10_TimestampOutOfWindow(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	for i, offset := range []int64{-301, 301} {
		// The body is never sent, so the answer cannot have waited for it.
		a := g.raw(signedAt(t0+offset, "k1", secretK1, "dlv_x10", body1).head("Content-Length: 36", "Expect: 100-continue"))
		a.wants(t, 401, "timestamp_out_of_window")
		p := a.problem(t)
		if p.ServerTime != t0 || p.ToleranceS != 300 || !p.Retryable || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%+v %v", p, a.header)
		}
		if r := g.result(i); r.Distance.Seconds() != float64(offset) {
			t.Errorf("distance %s, want %d s", r.Distance, offset)
		}
	}
	if len(in.deliveries()) != 0 {
		t.Fatal("an old timestamp was accepted")
	}
	for _, offset := range []int64{-300, 0, 300} {
		g.send(signedAt(t0+offset, "k1", secretK1, "dlv_x10", body1)).wants(t, 202, "")
	}
}

func TestX13_TenantComesFromTheRoute(t *testing.T) {
	two := src1(t)
	two.Name, two.Tenant, two.Path = "src2", "t2", "/in/src2"
	two.Verifier = verifier(t, "zhisou-v1", key(t, "k1", secretK2))
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{src1(t), two}}})
	m := signedAt(t0, "k1", secretK2, "dlv_x13", `{"tenant":"t1","source":"src1"}`)
	g.send(m).wants(t, 401, "signature_invalid")
	g.send(m.to("POST", "/in/src2?tenant=t1").add("Hooklatch-Tenant", "t1")).wants(t, 202, "")
	got := in.deliveries()
	if len(got) != 1 || got[0].Tenant != "t2" || got[0].Source != "src2" {
		t.Fatalf("stored %+v", got)
	}
}

func TestX15_EveryByteSurvives(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	n := 0
	for _, body := range []string{string(all), "a\x00b", "caf\xe9", "\xef\xbb\xbf{}", "a=1&b=%zz"} {
		for _, contentType := range []string{"application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
			m := signed(fmt.Sprintf("dlv_%d", n), body)
			if contentType != "" {
				m = m.add("Content-Type", contentType)
			}
			g.send(m).wants(t, 202, "")
			if d := in.deliveries()[n]; string(d.Body) != body {
				t.Errorf("%s: stored %q, want %q", contentType, d.Body, body)
			}
			n++
		}
	}
}

func TestX16_NothingIsInflated(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(make([]byte, 20<<20))
	w.Close()
	in := &recorder{}
	g := start(t, setup{inbox: in})
	g.send(signed("dlv_gzip", b.String()).add("Content-Encoding", "gzip")).wants(t, 202, "")
	if d := in.deliveries()[0]; !bytes.Equal(d.Body, b.Bytes()) {
		t.Fatalf("stored %d bytes, sent %d", len(d.Body), b.Len())
	}
}

func TestX17_OtherMethods(t *testing.T) {
	g := start(t, setup{})
	for _, method := range []string{"GET", "HEAD", "PUT", "OPTIONS", "DELETE"} {
		m := signed("dlv_x17", "").to(method, "/in/src1?challenge=xyz")
		c := g.dial()
		io.WriteString(c, m.head())
		// A HEAD request has no body in its answer, so the reader must know.
		res, err := http.ReadResponse(newReader(c), &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		if res.StatusCode != 405 || res.Header.Get("Allow") != "POST" || strings.Contains(string(text), "xyz") {
			t.Errorf("%s: status %d, Allow %q: %s", method, res.StatusCode, res.Header.Get("Allow"), text)
		}
		if method != "HEAD" && !strings.Contains(string(text), `"method_not_allowed"`) {
			t.Errorf("%s: %s", method, text)
		}
	}
}

func TestX18_PathIsExact(t *testing.T) {
	var cases []refusal
	for _, target := range []string{
		"/unknown", "//in/src1", "/in//src1", "/in/./src1", "/in/x/../src1", "/in/%2e%2e/src1", "/in/src1/", "/IN/src1",
		"/in/src%31", "/in%2Fsrc1", "/in/src1;a=1", "/", "/in", "http://hooks.example.com", "http://hooks.example.com/in/src1/",
	} {
		cases = append(cases, refusal{target, signed("dlv_x18", body1).to("POST", target).wire(), 404, "source_unknown", "", ""})
	}
	cases = append(cases, refusal{"asterisk", signed("dlv_x18", "").to("OPTIONS", "*").wire(), 404, "source_unknown", "", ""})
	refusals(t, Config{}, cases)

	g := start(t, setup{})
	if a := g.send(signed("dlv_x18", body1).to("POST", "//in/src1")); a.header.Get("Location") != "" {
		t.Error("a redirect")
	}
	g.send(signed("dlv_x18", body1).to("POST", "http://hooks.example.com/in/src1?a=/b")).wants(t, 202, "")
}

func TestX19_HostNotServed(t *testing.T) {
	other := src1(t)
	other.Name, other.Host = "own", "Own.example.com"
	other.Verifier = verifier(t, "zhisou-v1", key(t, "k1", secretK2))
	cfg := Config{Hosts: []string{"Hooks.example.com", "127.0.0.1", "::1"}, Sources: []Source{src1(t), other}}
	m := signed("dlv_x19", body1)
	refusals(t, cfg, []refusal{
		{"foreign host", m.add("Host", "evil.example.com").wire(), 421, "host_not_allowed", "", ""},
		{"foreign host with port", m.add("Host", "evil.example.com:443").wire(), 421, "host_not_allowed", "", ""},
		{"absolute form", m.to("POST", "http://evil.example.com/in/src1").wire(), 421, "host_not_allowed", "", ""},
		{"suffix of a served one", m.add("Host", "x.hooks.example.com").wire(), 421, "host_not_allowed", "", ""},
		{"HTTP/1.0 without Host", strings.Replace(strings.Replace(m.wire(), "Host: hooks.example.com\r\n", "", 1), "HTTP/1.1", "HTTP/1.0", 1),
			421, "host_not_allowed", "", ""},
		{"path of the other host's keys", m.add("Host", "own.example.com").wire(), 401, "signature_invalid", "", ""},
	})
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: cfg})
	for _, host := range []string{"hooks.example.com", "HOOKS.example.com:8443", "127.0.0.1:80", "[::1]:80"} {
		g.send(m.add("Host", host)).wants(t, 202, "")
	}
	g.send(signedAt(t0, "k1", secretK2, "dlv_own", body1).add("Host", "OWN.example.com")).wants(t, 202, "")
	if d := in.deliveries(); d[len(d)-1].Source != "own" {
		t.Errorf("source %s", d[len(d)-1].Source)
	}
	any := start(t, setup{})
	any.send(m.add("Host", "whatever.example.com")).wants(t, 202, "")
}

func TestX24_QueryTrailerAndForeignBytes(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	m := signed("dlv_x24", "abc").to("POST", "/in/src1?tenant=other&x=1;y=2&z=%zz&q=\xe9").add("User-Agent", "\xf1a;F")
	wire := m.head("Transfer-Encoding: chunked", "Trailer: X-Webhook-Signature") + "3\r\nabc\r\n0\r\nX-Webhook-Signature: 00\r\n\r\n"
	g.raw(wire).wants(t, 202, "")
	d := in.deliveries()[0]
	if d.Tenant != "t1" || d.RawQuery != "tenant=other&x=1;y=2&z=%zz&q=\xe9" || d.Header["User-Agent"][0] != "\xf1a;F" {
		t.Errorf("stored %q %q %q", d.Tenant, d.RawQuery, d.Header["User-Agent"])
	}
	if got := d.Header["X-Webhook-Signature"]; !slices.Equal(got, []string{m.get("X-Webhook-Signature")}) {
		t.Errorf("signature header %q: a trailer got in", got)
	}
}

func TestX25_HeaderFields(t *testing.T) {
	m := signed("dlv_x25", "")
	for i := len(m.header); i < 128; i++ {
		m = m.add(fmt.Sprintf("X-%d", i%100), "1") // some of them repeated
	}
	g := start(t, setup{})
	g.raw(m.head()).wants(t, 202, "")
	g.raw(m.add("X-One-More", "1").head()).wants(t, 400, "header_invalid")
}
