package proxy

import (
	"fmt"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

// What a source takes for a repeat, where it does not say so, is its scheme's.
func TestRepeatsDefaultToTheScheme(t *testing.T) {
	const retention = 90 * 24 * time.Hour
	for _, c := range []struct {
		name, scheme, second string
		change               func(*Source)
		acceptFirst          bool
		guard, guardSecond   time.Duration
		ignored              string // of these bytes /attempts and /pending_webhooks
	}{
		{name: "signed id", scheme: "zhisou-v1"},
		{name: "unsigned id, bodies with an id", scheme: "timestamped-sha256", guard: 10 * time.Minute},
		{name: "tolerance of the source", scheme: "timestamped-sha256", change: func(s *Source) { s.Verifier.Tolerance = time.Minute }, guard: 2 * time.Minute},
		{name: "off", scheme: "timestamped-sha256", change: func(s *Source) { s.BodyGuard = "off" }},
		{name: "unsigned id, bodies without", scheme: "github"},
		{name: "on, and no timestamp", scheme: "github", change: func(s *Source) { s.BodyGuard = "on" }, guard: retention},
		{name: "on, and another retention", scheme: "github", change: func(s *Source) { s.BodyGuard, s.IdentityRetention = "on", time.Hour }, guard: time.Hour},
		{name: "on, whatever is signed", scheme: "zhisou-v1", change: func(s *Source) { s.BodyGuard = "on" }, guard: 10 * time.Minute},
		{name: "a timestamp without a window", scheme: "paypal", guard: retention},
		{name: "one scheme after the other", scheme: "zhisou-v1", second: "timestamped-sha256", guardSecond: 10 * time.Minute},
		{name: "pointers of the scheme", scheme: "stripe", ignored: `{"attempts":1,"pending_webhooks":null}`},
		{name: "pointers of both schemes", scheme: "stripe", second: "mux", ignored: `{"attempts":null,"pending_webhooks":null}`},
		{name: "pointers of the source", scheme: "stripe", change: func(s *Source) { s.ConflictIgnore = []string{"/attempts"} }, ignored: `{"attempts":null,"pending_webhooks":2}`},
		{name: "no pointers", scheme: "stripe", change: func(s *Source) { s.ConflictIgnore = []string{} }},
		{name: "acknowledgement of the scheme", scheme: "woocommerce", acceptFirst: true},
		{name: "rule of the source", scheme: "woocommerce", change: func(s *Source) { s.OnConflict = "reject" }},
	} {
		s := src1(t)
		s.Verifier = verifier(t, c.scheme, key(t, "k1", secretK1))
		if c.second != "" {
			s.Second = verifier(t, c.second, key(t, "k1", secretK1))
		}
		if c.change != nil {
			c.change(&s)
		}
		r, err := newRepeats(s, s.Verifier, s.Second)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if r.acceptFirst != c.acceptFirst || r.guard != c.guard || r.guardSecond != c.guardSecond {
			t.Errorf("%s: accept first %v, guard %s and %s; want %v, %s, %s", c.name, r.acceptFirst, r.guard, r.guardSecond, c.acceptFirst, c.guard, c.guardSecond)
		}
		hash, ok := r.ignored.CompareHash([]byte(`{"attempts":1,"pending_webhooks":2}`))
		if ok != (c.ignored != "") || ok && fmt.Sprintf("%x", hash) != hashOf(c.ignored) {
			t.Errorf("%s: compare hash %x, %v; want that of %q", c.name, hash, ok, c.ignored)
		}
	}
}

// T06: the id of a captured request is not signed, and is changed.
func TestCapturedRequestUnderANewID(t *testing.T) {
	pool := inboxtest.New(t)
	src := src1(t)
	src.Verifier = verifier(t, "timestamped-sha256", key(t, "k1", secretK1))
	open := src
	open.Name, open.Path, open.BodyGuard = "open", "/in/open", "off"
	g := start(t, setup{inbox: newStore(t, pool), cfg: Config{Sources: []Source{src, open}}})
	captured := func(path, id string) *message {
		m := &message{method: "POST", target: path, body: []byte(`{"id":"evt_1"}`)}
		for name, values := range headersBy(t, src.Verifier, id, string(m.body)) {
			m.header = append(m.header, [2]string{name, values[0]})
		}
		return m
	}
	first := g.send(captured("/in/src1", "dlv_1"))
	first.wants(t, 202, "")
	for i, id := range []string{"dlv_2", "dlv_1", "dlv_3"} {
		a := g.send(captured("/in/src1", id))
		a.wants(t, 202, "")
		r := a.receipt(t)
		if !r.Duplicate || r.DeliveryID != "dlv_1" || !r.ReceivedAt.Equal(first.receipt(t).ReceivedAt) {
			t.Errorf("%s: %s", id, a.body)
		}
		if res := g.result(i + 1); res.Outcome != OutcomeDuplicate || res.DeliveryID != id || (res.KeptAs == "dlv_1") != (id != "dlv_1") {
			t.Errorf("%s: reported as %+v", id, res)
		}
	}
	wantRows(t, pool, 1, 0)
	g.send(captured("/in/open", "dlv_4")).wants(t, 202, "")
	g.send(captured("/in/open", "dlv_5")).wants(t, 202, "")
	wantRows(t, pool, 3, 0)
}

// While a sender goes over to another scheme, only the one that leaves the id open is
// guarded.
func TestGuardOfTheSecondScheme(t *testing.T) {
	src := changing(t, "zhisou-v1", "timestamped-sha256")
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{src}}})
	for i, v := range []*verify.Verifier{src.Verifier, src.Second} {
		m := &message{method: "POST", target: "/in/src1", body: []byte("x")}
		for name, values := range headersBy(t, v, fmt.Sprint("dlv_", i), "x") {
			m.header = append(m.header, [2]string{name, values[0]})
		}
		g.send(m).wants(t, 202, "")
		if d := in.deliveries()[i]; (d.BodyGuard > 0) != (i == 1) {
			t.Errorf("%s: guard %s", v.Scheme.Name(), d.BodyGuard)
		}
	}
}
