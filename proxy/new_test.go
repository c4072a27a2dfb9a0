package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

func TestNewRefuses(t *testing.T) {
	recipe := verify.Recipe{Name: "plain", Algo: "hmac-sha256", Template: "{body}", Signature: verify.SignatureRecipe{Name: "X-Sig"}}
	noID, err := recipe.Compile()
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*Source)) Config {
		s := src1(t)
		f(&s)
		return Config{Sources: []Source{s}}
	}
	twin := func(f func(*Source)) Config {
		s := src1(t)
		f(&s)
		return Config{Sources: []Source{src1(t), s}}
	}
	for _, c := range []struct {
		name string
		cfg  Config
		want string // part of the error
	}{
		{"no sources", Config{}, "no sources"},
		{"no name", change(func(s *Source) { s.Name = "" }), "Name is empty"},
		{"no tenant", change(func(s *Source) { s.Tenant = "" }), `"src1": Tenant is empty`},
		{"relative path", change(func(s *Source) { s.Path = "in" }), "does not begin with a slash"},
		{"path with a query", change(func(s *Source) { s.Path = "/in?a" }), "spelled as on the wire"},
		{"path that is not encoded", change(func(s *Source) { s.Path = "/in/é" }), "spelled as on the wire"},
		{"no verifier", change(func(s *Source) { s.Verifier = nil }), "Verifier is missing"},
		{"zero verifier", change(func(s *Source) { s.Verifier = &verify.Verifier{} }), `"src1": verify`},
		{"no keys", change(func(s *Source) { s.Verifier.Keys = verify.KeySet{} }), `"src1": verify`},
		{"tolerance below zero", change(func(s *Source) { s.Verifier.Tolerance = -time.Second }), `"src1": verify`},
		{"no delivery id anywhere", change(func(s *Source) { s.Verifier.Scheme = noID }), "EventID is missing"},
		{"cap above the hard one", change(func(s *Source) { s.MaxBody = 26 << 20 }), "MaxBody"},
		{"cap below zero", change(func(s *Source) { s.MaxBody = -1 }), "MaxBody"},
		{"cap above the bytes in flight", func() Config { c := change(func(s *Source) { s.MaxBody = 2 << 20 }); c.BodyBytes = 1 << 20; return c }(), "MaxBody"},
		{"success that is none", change(func(s *Source) { s.SuccessStatus = 302 }), "SuccessStatus 302"},
		{"refusal as success", change(func(s *Source) { s.RefusalStatus = 200 }), "200 is not between"},
		{"conflict as gone", change(func(s *Source) { s.ConflictStatus = 410 }), "410"},
		{"rule for conflicts that nobody knows", change(func(s *Source) { s.OnConflict = "overwrite" }), `OnConflict "overwrite" is neither`},
		{"pointer that is none", change(func(s *Source) { s.ConflictIgnore = []string{"attempt"} }), `ConflictIgnore: verify: parse ignored: "attempt" is no JSON pointer`},
		{"guard that is neither", change(func(s *Source) { s.BodyGuard = "yes" }), `BodyGuard "yes" is neither on nor off`},
		{"retention below zero", change(func(s *Source) { s.IdentityRetention = -1 }), "IdentityRetention"},
		{"route to nowhere", change(func(s *Source) { s.Forwards = []Route{{}} }), "Destination is empty"},
		{"empty type", change(func(s *Source) { s.Forwards = []Route{{Destination: "app", Types: []string{""}}} }), "a type is empty"},
		{"deadline below zero", change(func(s *Source) { s.Forwards = []Route{{Destination: "app", Deadline: -1}} }), "Deadline"},
		{"ordering that nobody knows", change(func(s *Source) { s.Ordering = "newest" }), `Ordering "newest" is unknown`},
		{"ordering without a revision", change(func(s *Source) { s.Ordering, s.ResourceID = inbox.OrderLatest, field(t, "/id") }), "Ordering latest needs ResourceID and Revision"},
		{"ordering without a resource", change(func(s *Source) { s.Ordering, s.Revision = inbox.OrderLatest, field(t, "/rev") }), "Ordering latest needs ResourceID and Revision"},
		{"timeout of gaps where there are none", change(func(s *Source) { s.GapTimeout = time.Minute }), "GapTimeout"},
		{"host with a port", change(func(s *Source) { s.Host = "a:80" }), "not a plain name"},
		{"host list with a path", Config{Sources: []Source{src1(t)}, Hosts: []string{"a/b"}}, "Hosts"},
		{"same name", twin(func(s *Source) { s.Path = "/other" }), "Name stands twice"},
		{"same host and path", twin(func(s *Source) { s.Name = "b" }), `source "src1" has the same host and path`},
		{"the secret of another tenant", twin(func(s *Source) { s.Name, s.Path, s.Tenant = "b", "/b", "t2" }),
			`source "b": key k1 has the secret of k1, a key of tenant t1`},
		{"the key of answers to anybody", twin(func(s *Source) {
			s.Name, s.Path = "b", "/b"
			s.Verifier, s.EventID = verifier(t, "x-twitter", src1(t).Verifier.Keys.Keys()...), field(t, "body_sha256_hex")
		}), `source "src1": key k1 is that of source b, which answers challenges`},
		{"too many in flight", Config{Sources: []Source{src1(t)}, InFlight: 1 << 20}, "InFlight"},
		{"too many bytes", Config{Sources: []Source{src1(t)}, BodyBytes: 1 << 40}, "BodyBytes"},
		{"nothing in flight", Config{Sources: []Source{src1(t)}, InFlight: -1}, "InFlight"},
	} {
		if _, err := New(&recorder{}, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := New(nil, Config{Sources: []Source{src1(t)}}); err == nil {
		t.Error("no inbox is taken")
	}
	apart := twin(func(s *Source) { s.Name, s.Host = "b", "b.example.com" })
	if _, err := New(&recorder{}, apart); err != nil {
		t.Errorf("one path on two hosts: %v", err)
	}
}

// The verifier belongs to the caller.
func TestNewLeavesTheVerifierAlone(t *testing.T) {
	s := src1(t)
	s.MaxBody = 5
	if _, err := New(&recorder{}, Config{Sources: []Source{s}}); err != nil {
		t.Fatal(err)
	}
	if s.Verifier.MaxBody != 0 {
		t.Errorf("MaxBody became %d", s.Verifier.MaxBody)
	}
}

// Every forward of an ordered source says so, whatever its route.
func TestForwardsSayTheirOrdering(t *testing.T) {
	plain := withMetadata(t)
	plain.Ordering, plain.GapTimeout = inbox.OrderStrict, time.Hour
	typed := plain
	typed.Name, typed.Path, typed.Forwards = "typed", "/in/typed", []Route{{Destination: "app", Types: []string{"a"}, Deadline: time.Minute}}
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{plain, typed}}})
	for i, path := range []string{"/in/src1", "/in/typed"} {
		g.send(signed("dlv_order", `{"type":"a","resource":{"id":"r","revision":1}}`).to("POST", path)).wants(t, 202, "")
		f := in.deliveries()[i].Forwards
		if len(f) != 1 || f[0].Destination != "app" || f[0].Ordering != inbox.OrderStrict || f[0].GapTimeout != time.Hour || i == 1 && f[0].Deadline != time.Minute {
			t.Errorf("%s: forwards %+v", path, f)
		}
	}
}

// Forwards that do not depend on the type are shared between deliveries.
func TestForwardsAreNotAppendedTo(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	g.send(signed("a", "x")).wants(t, 202, "")
	first := in.deliveries()[0].Forwards
	_ = append(first, inbox.NewForward{Destination: "spy"})
	g.send(signed("b", "x")).wants(t, 202, "")
	if got := in.deliveries()[1].Forwards; len(got) != 1 || got[0].Destination != "app" {
		t.Errorf("forwards %v", got)
	}
}
