package proxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hooklatch/hooklatch/verify"
)

// FuzzHeaders sends any header at all: no panic, no fault of ours, and no delivery
// unless the request is the right one.
func FuzzHeaders(f *testing.F) {
	ok := signed("dlv_fuzz", "abc")
	right := ok.get("X-Webhook-Signature")
	f.Add("X-Webhook-Signature", right, "/in/src1", "hooks.example.com", "POST")
	f.Add("x-webhook-signature", "", "//in/src1", "", "GET")
	f.Add("X_Webhook_Key_Id", "k1", "/in/src1?a=%zz", "[::1]:80", "POST")
	f.Add("X-Webhook-Timestamp", "1760000000000", "http://a/in/src1", "a:b:c", "POST")
	f.Add("Transfer-Encoding", "chunked", "*", "[", "PRI")
	f.Fuzz(func(t *testing.T, name, value, target, host, method string) {
		in := &recorder{}
		var results []Result
		p := newProxy(t, in, &results)
		r := httptest.NewRequest("POST", "/in/src1", strings.NewReader("abc"))
		r.Method, r.RequestURI, r.Host = method, target, host
		for _, h := range ok.header {
			r.Header[h[0]] = []string{h[1]}
		}
		r.Header[name] = append(r.Header[name], value)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)

		if w.Code >= 500 || len(results) != 1 {
			t.Fatalf("status %d, %d reports: %s", w.Code, len(results), w.Body)
		}
		if w.Code != 202 {
			if len(in.got) != 0 || !json.Valid(w.Body.Bytes()) && w.Body.Len() > 0 {
				t.Fatalf("status %d, %d stored: %s", w.Code, len(in.got), w.Body)
			}
			return
		}
		if len(in.got) != 1 || method != "POST" || in.got[0].DeliveryID != "dlv_fuzz" || r.Header.Get("X-Webhook-Signature") != right {
			t.Fatalf("accepted %s %s with %q: %q", method, target, name, value)
		}
	})
}

func newProxy(t testing.TB, in Inbox, results *[]Result) *Proxy {
	t.Helper()
	p, err := New(in, Config{Sources: []Source{src1(t)}, OnResult: collect(results)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// FuzzProblem: whatever stands in the variable parts of a problem, the body is
// JSON with exactly these values.
func FuzzProblem(f *testing.F) {
	f.Add(0, "X-Webhook-Key-Id", `a"b\c`)
	f.Add(11, "", "\u2028<script>\x00\x7f")
	f.Add(7, "\xff\xfe", "é\xc3")
	f.Fuzz(func(t *testing.T, line int, header, id string) {
		p := &catalogue[uint(line)%uint(len(catalogue))]
		x := &exchange{source: &source{maxBody: 7, now: clock(t0)}, verifier: &verify.Verifier{Tolerance: 300 * time.Second}, r: &http.Request{Header: http.Header{}}}
		x.result = Result{Status: p.status, Field: header, DeliveryID: id}
		out := x.appendProblem(nil, p, "0199c7a5-0000-7000-8000-000000000000", 5)
		var got map[string]any
		dec := json.NewDecoder(bytes.NewReader(out))
		if err := dec.Decode(&got); err != nil || dec.More() {
			t.Fatalf("%v: %s", err, out)
		}
		for member, want := range map[string]string{"code": p.code, "title": p.title, "header": header, "delivery_id": id} {
			if v, ok := got[member]; ok && v != strings.ToValidUTF8(want, "\ufffd") && utf8.ValidString(want) {
				t.Fatalf("%s is %q, want %q", member, v, want)
			}
		}
		if i := bytes.IndexFunc(out[:len(out)-1], func(r rune) bool { return r < ' ' || r == '<' || r == 0x7f || r == '\u2028' }); i >= 0 {
			t.Fatalf("unescaped at %d: %q", i, out)
		}
	})
}
