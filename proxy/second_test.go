package proxy

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// changing is a source whose sender goes over from one scheme to another.
func changing(t testing.TB, first, second string) Source {
	s := src1(t)
	s.Verifier = verifier(t, first, key(t, "old-1", secretK1))
	s.Second = verifier(t, second, key(t, "new-1", secretK2))
	return s
}

// headersBy signs a body as the sender does under one of the two schemes.
func headersBy(t testing.TB, v *verify.Verifier, id, body string) http.Header {
	t.Helper()
	h, err := v.Sign(verify.Request{Method: "POST", URL: "/in/src1", Body: []byte(body)},
		verify.SignOptions{DeliveryID: id, Time: time.Unix(t0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Each request is judged by the scheme that it is of, and the answer is that of the
// last one asked.
func TestTwoSchemesDuringAChange(t *testing.T) {
	const body = `{"id":"e1"}`
	s := changing(t, "zhisou-v1", "timestamped-sha256")
	old := headersBy(t, s.Verifier, "d1", body)
	fresh := headersBy(t, s.Second, "d1", body)
	// The signature's header has one name in both: a request is of one scheme alone.
	with := func(h http.Header, name, value string) http.Header {
		h = h.Clone()
		h[http.CanonicalHeaderKey(name)] = []string{value}
		return h
	}
	other := func(h http.Header) http.Header {
		text := h.Get("X-Webhook-Signature")
		digit := "0"
		if strings.HasSuffix(text, "0") {
			digit = "1"
		}
		return with(h, "X-Webhook-Signature", text[:len(text)-1]+digit)
	}
	for _, test := range []struct {
		name   string
		header http.Header
		status int
		scheme string // of the report
		key    string
		reason string
	}{
		{"the first scheme", old, 202, "zhisou-v1", "old-1", ""},
		{"the second scheme", fresh, 202, "timestamped-sha256", "new-1", ""},
		{"the first, forged", other(old), 401, "zhisou-v1", "old-1", "signature_mismatch"},
		{"the second, forged", other(fresh), 401, "timestamped-sha256", "", "signature_mismatch"},
		{"the second, late", with(fresh, "X-Webhook-Timestamp", "1759999000"), 401, "timestamped-sha256", "", "timestamp_out_of_window"},
		{"a key id that the first does not know", with(old, "X-Webhook-Key-Id", "new-1"), 401, "zhisou-v1", "new-1", "key_unknown"},
		{"none applies: the first one's answer", with(fresh, "X-Webhook-Signature", strings.Repeat("0", 64)), 400, "zhisou-v1", "", "header_missing"},
		{"nothing signed at all", http.Header{}, 401, "zhisou-v1", "", "signature_missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := &recorder{}
			g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
			a := g.do("POST", "/in/src1", test.header.Clone(), []byte(body))
			if a.status != test.status {
				t.Fatalf("status %d, want %d: %s", a.status, test.status, a.body)
			}
			got := g.result(0)
			if got.Scheme != test.scheme || got.KeyID != test.key || got.Reason != test.reason {
				t.Errorf("reported as %s, key %q, %s; want %s, key %q, %s", got.Scheme, got.KeyID, got.Reason, test.scheme, test.key, test.reason)
			}
			stored := in.deliveries()
			if (len(stored) == 1) != (test.status == 202) {
				t.Fatalf("%d deliveries were stored", len(stored))
			}
			if len(stored) == 1 && (stored[0].DeliveryID != "d1" || stored[0].Scheme != test.scheme || stored[0].KeyID != test.key) {
				t.Errorf("stored as %+v", stored[0])
			}
		})
	}
}

// A request may be signed under both schemes while the sender changes: the first one
// that verifies counts, in the listed order, and a fault in one does not spoil the
// other.
func TestRequestsOfBothSchemes(t *testing.T) {
	const body = `{"id":"e1"}`
	s := changing(t, "delivery-timestamp", "svix")
	one, two := headersBy(t, s.Verifier, "d1", body), headersBy(t, s.Second, "d1", body)
	both := func(change func(h http.Header)) http.Header {
		h := one.Clone()
		for name, values := range two {
			h[name] = slices.Clone(values)
		}
		change(h)
		return h
	}
	forged := "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	for _, test := range []struct {
		name   string
		header http.Header
		status int
		scheme string
		reason string
	}{
		{"both right", both(func(http.Header) {}), 202, "delivery-timestamp", ""},
		{"the first forged", both(func(h http.Header) { h.Set("X-Webhook-Signature", strings.Repeat("0", 64)) }), 202, "svix", ""},
		{"the first malformed", both(func(h http.Header) { h.Set("X-Webhook-Timestamp", "01") }), 202, "svix", ""},
		{"the first late", both(func(h http.Header) { h.Set("X-Webhook-Timestamp", "1") }), 202, "svix", ""},
		{"a header of the first twice", both(func(h http.Header) { h.Add("X-Webhook-Timestamp", "1") }), 202, "svix", ""},
		{"the second forged", both(func(h http.Header) { h.Set("Svix-Signature", forged) }), 202, "delivery-timestamp", ""},
		{"both forged: the last one's answer", both(func(h http.Header) {
			h.Set("X-Webhook-Signature", strings.Repeat("0", 64))
			h.Set("Svix-Signature", forged)
		}), 401, "svix", "signature_mismatch"},
		{"the first forged, the second malformed", both(func(h http.Header) {
			h.Set("X-Webhook-Signature", strings.Repeat("0", 64))
			h.Set("Svix-Timestamp", "01")
		}), 400, "svix", "timestamp_malformed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := &recorder{}
			g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
			a := g.do("POST", "/in/src1", test.header, []byte(body))
			if got := g.result(0); a.status != test.status || got.Scheme != test.scheme || got.Reason != test.reason {
				t.Errorf("%d %s %s, want %d %s %s: %s", a.status, got.Scheme, got.Reason, test.status, test.scheme, test.reason, a.body)
			}
			if n := len(in.deliveries()); (n == 1) != (test.status == 202) {
				t.Errorf("%d deliveries were stored", n)
			}
		})
	}
}

func TestSecondSchemesThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		second *verify.Verifier
		want   string
	}{
		"no keys":              {verifier(t, "timestamped-sha256"), "no keys"},
		"no delivery id":       {verifier(t, "asana", key(t, "k", secretK2)), "carries a delivery id"},
		"no public URL":        {verifier(t, "square", key(t, "k", secretK2)), "public URL"},
		"a secret handed over": {enrolling(t), "handed over to Verifier alone"},
	} {
		s := src1(t)
		s.Second = test.second
		if _, err := New(&recorder{}, Config{Sources: []Source{s}}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", name, err, test.want)
		}
	}
}

func enrolling(t testing.TB) *verify.Verifier {
	v := verifier(t, "notion", key(t, "k", secretK2))
	v.Handshakes.EnrolUntil = time.Unix(t0+60, 0)
	return v
}

// The handshakes of the second scheme are answered too.
func TestHandshakesOfTheSecondScheme(t *testing.T) {
	s := src1(t)
	s.Second = verifier(t, "notion", key(t, "k", secretK2))
	s.Second.Handshakes.Off = true
	g := start(t, setup{cfg: Config{Sources: []Source{s}}})
	if a := g.do("GET", "/in/src1?challenge=abc", nil, nil); a.status != 405 {
		t.Errorf("neither has one by GET: %d %s", a.status, a.body)
	}
	two := s
	two.Verifier = verifier(t, "asana", key(t, "k1", secretK1))
	two.Second = verifier(t, "dropbox", key(t, "k", secretK2))
	two.EventID = field(t, "/id")
	g = start(t, setup{cfg: Config{Sources: []Source{two}}})
	if a := g.do("GET", "/in/src1?challenge=abc", nil, nil); a.status != 200 || string(a.body) != "abc" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := g.result(0); got.Outcome != OutcomeHandshake || got.Scheme != "dropbox" {
		t.Errorf("reported as %+v", got)
	}
}

// What bounds a source bounds both schemes.
func TestTheCapIsTheSourcesForTheSecondScheme(t *testing.T) {
	s := changing(t, "zhisou-v1", "timestamped-sha256")
	body := `{"pad":"` + strings.Repeat("x", 100) + `"}`
	h := headersBy(t, s.Second, "d1", body)
	s.Second.MaxBody = 10
	g := start(t, setup{cfg: Config{Sources: []Source{s}}})
	if a := g.do("POST", "/in/src1", h, []byte(body)); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A challenge of the second scheme has no event id, which deliveries have in a header.
func TestChallengesOfTheSecondSchemeNeedNoEventID(t *testing.T) {
	s := changing(t, "onfido", "monday")
	s.Second.URL = "https://hooks.example.com/in/src1"
	s.EventID = field(t, "header:X-Event-Id")
	const challenge = `{"challenge":"xyz"}`
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
	for name, h := range map[string]http.Header{"unsigned": {}, "signed": headersBy(t, s.Second, "", challenge)} {
		if a := g.do("POST", "/in/src1", h, []byte(challenge)); a.status != 200 || string(a.body) != challenge {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if len(in.deliveries()) != 0 {
		t.Error("a challenge was stored")
	}
}

// Any POST may be a challenge of monday's. Neither deliveries nor challenges of the
// first scheme are.
func TestWhatIsOfTheFirstSchemeIsNoChallengeOfTheSecond(t *testing.T) {
	s := changing(t, "onfido", "monday")
	s.Second.URL = "https://hooks.example.com/in/src1"
	s.EventID = field(t, "/id")
	const body = `{"id":"e1"}`
	g := start(t, setup{cfg: Config{Sources: []Source{s}}})
	if a := g.do("POST", "/in/src1", headersBy(t, s.Verifier, "", body), []byte(body)); a.status != 202 {
		t.Errorf("a delivery: %d %s", a.status, a.body)
	}
	enrolling := preset(t, "asana", "")
	enrolling.Second = s.Second
	g = start(t, setup{cfg: Config{Sources: []Source{enrolling}}})
	secret := strings.Repeat("f", 64)
	if a := g.do("POST", enrolling.Path, http.Header{"X-Hook-Secret": {secret}}, []byte("{}")); a.status != 200 || a.header.Get("X-Hook-Secret") != secret {
		t.Errorf("a challenge: %d %s", a.status, a.body)
	}
}
