package proxy

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hooklatch/hooklatch/inbox"
)

// described is the forwards on one line.
func described(forwards []inbox.NewForward) string {
	var all []string
	for _, f := range forwards {
		text := f.Destination
		if f.Deadline != 0 {
			text += " " + f.Deadline.String()
		}
		if f.Hold {
			text += " held"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestRoutes(t *testing.T) {
	typed := src1(t)
	typed.EventType = field(t, "/type")
	typed.Forwards = []Route{
		{Destination: "shop", Types: []string{"invoice.*", "charge.paid"}, Deadline: time.Hour},
		{Destination: "audit"},
		{Destination: "shop", Types: []string{"order.paid"}, Deadline: time.Minute},
	}
	none := typed
	none.Name, none.Path, none.Forwards = "none", "/in/none", []Route{{Destination: "shop", Types: []string{"invoice.*"}}}
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{typed, none}}})
	for i, c := range []struct{ path, body, want string }{
		{"/in/src1", `{"type":"invoice.paid"}`, "shop 1h0m0s, audit"},
		{"/in/src1", `{"type":"charge.paid"}`, "shop 1h0m0s, audit"},
		{"/in/src1", `{"type":"order.paid"}`, "audit, shop 1m0s"},
		{"/in/src1", `{"type":"invoices"}`, "audit"},
		{"/in/src1", `no type at all`, "audit"},
		{"/in/src1", `{"type":["invoice.paid"]}`, "audit"},
		{"/in/none", `{"type":"order.paid"}`, ""}, // stored all the same
	} {
		g.send(signed("dlv_route", c.body).to("POST", c.path)).wants(t, 202, "")
		forwards := in.deliveries()[i].Forwards
		if got := described(forwards); got != c.want {
			t.Errorf("%s %s: forwards %q, want %q", c.path, c.body, got, c.want)
		}
		if r := g.result(i); r.Forwards != len(forwards) || r.Outcome != OutcomeAccepted {
			t.Errorf("report %+v", r)
		}
	}
}

func TestNoTypeIsTakenForAnother(t *testing.T) {
	for _, c := range []struct {
		pattern, eventType string
		want               bool
	}{
		{"invoice.paid", "invoice.paid", true},
		{"invoice.paid", "Invoice.paid", false},
		{"invoice.paid", "invoice.paid ", false},
		{"invoice.paid", "invoice.paid.v2", false},
		{"invoice.paid", "invoice.pai", false},
		{"invoice.paid", "", false},
		{"invoice.*", "invoice.paid", true},
		{"invoice.*", "invoice.paid.v2", true},
		{"invoice.*", "invoice", false},
		{"invoice.*", "invoice.", false},
		{"invoice.*", "invoices.paid", false},
		{"invoice.*", "INVOICE.paid", false},
		{"invoice.paid.*", "invoice.paid", false},
		{"*", "invoice.paid", true},
		{"*", "é", true},
		{"*", "*", true},
		{"*", "", false}, // no type is none
		{"*", "hooklatch.snapshot", false},
		{"hooklatch.*", "hooklatch.snapshot", false},
		{"hooklatch.snapshot", "hooklatch.snapshot", true},
		{"hooklatch.*", "hooklatch.test", true},
	} {
		if err := CheckType(c.pattern); err != nil {
			t.Error(err)
		}
		if got := matchType(c.pattern, c.eventType); got != c.want {
			t.Errorf("%q fits %q: %t", c.eventType, c.pattern, got)
		}
	}
}

func TestPatternsThatWouldFitTooMuchAreRefused(t *testing.T) {
	for _, pattern := range []string{"", "*.paid", "inv*", "**", "a.**", "a.*.b", ".*", "*.*", "* "} {
		if CheckType(pattern) == nil {
			t.Errorf("%q is taken", pattern)
		}
		s := src1(t)
		s.Forwards = []Route{{Destination: "app", Types: []string{pattern}}}
		if _, err := New(&recorder{}, Config{Sources: []Source{s}}); err == nil {
			t.Errorf("a route with type %q is taken", pattern)
		}
		s = src1(t)
		s.Types.Allow = []string{pattern}
		if _, err := New(&recorder{}, Config{Sources: []Source{s}}); err == nil {
			t.Errorf("a rule with type %q is taken", pattern)
		}
	}
}

// A snapshot is no event of the sender's: only who names it gets it.
func TestSnapshotsGoOnlyWhereTheyAreNamed(t *testing.T) {
	s := src1(t)
	for _, c := range []struct {
		routes []Route
		want   string
	}{
		{[]Route{{Destination: "a"}}, ""},
		{[]Route{{Destination: "a"}, {Destination: "b", Types: []string{"*", "hooklatch.*"}}}, ""},
		{[]Route{{Destination: "a"}, {Destination: "b", Types: []string{"hooklatch.snapshot"}}}, "b"},
	} {
		s.Forwards = c.routes
		forwards, err := s.Route("hooklatch.snapshot")
		if got := described(forwards); err != nil || got != c.want {
			t.Errorf("%v: forwards %q (%v), want %q", c.routes, got, err, c.want)
		}
	}
}

func TestTypesThatAreNotAllowed(t *testing.T) {
	rule := func(refuse bool) Source {
		s := src1(t)
		s.EventType = field(t, "/type")
		s.Types = TypeRule{Allow: []string{"invoice.*"}, Refuse: refuse}
		s.Forwards = []Route{{Destination: "app"}, {Destination: "shop", Types: []string{"order.*"}}}
		return s
	}
	bodies := []struct{ body, hold string }{
		{`{"type":"invoice.paid"}`, "app"},
		{`{"type":"order.paid"}`, "app held, shop held"},
		{`{"type":"Invoice.paid"}`, "app held"},
		{`{}`, "app held"},          // no type is not in the list
		{`not JSON`, "app held"},    // nor is one that cannot be read
		{`{"type":7}`, "app held"},  // nor a number
		{`{"type":""}`, "app held"}, // nor an empty one
	}
	for i, c := range bodies {
		in := &recorder{}
		g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{rule(false)}}})
		g.send(signed("d", c.body)).wants(t, 202, "")
		if got := described(in.deliveries()[0].Forwards); got != c.hold {
			t.Errorf("%s: forwards %q, want %q", c.body, got, c.hold)
		}
		in = &recorder{}
		g = start(t, setup{inbox: in, cfg: Config{Sources: []Source{rule(true)}}})
		a := g.send(signed("d", c.body))
		if i == 0 {
			a.wants(t, 202, "")
			continue
		}
		a.wants(t, 400, "type_not_allowed")
		if len(in.deliveries()) != 0 {
			t.Errorf("%s: stored", c.body)
		}
		if r := g.result(0); r.Outcome != OutcomeRefused || r.Reason != "type_not_allowed" || r.DeliveryID != "d" || r.KeyID != "k1" {
			t.Errorf("report %+v", r)
		}
		// Who cannot sign learns nothing of the list.
		g.send(signed("d", c.body).set("X-Webhook-Signature", strings.Repeat("0", 64))).wants(t, 401, "signature_invalid")
	}
	s := src1(t)
	s.Types.Refuse = true
	if _, err := New(&recorder{}, Config{Sources: []Source{s}}); err == nil {
		t.Error("a source that refuses everything is taken")
	}
}

func TestRouteOfADeliveryThatWasKept(t *testing.T) {
	s := src1(t)
	s.Forwards = []Route{{Destination: "app", Types: []string{"b.*"}}}
	s.Types.Allow = []string{"a.*"}
	if got, err := s.Route("b.c"); err != nil || described(got) != "app held" {
		t.Errorf("%s %v", described(got), err)
	}
	if got, err := s.Route("c.d"); err != nil || len(got) != 0 {
		t.Errorf("%s %v", described(got), err)
	}
	s.Forwards[0].Destination = ""
	if _, err := s.Route("b.c"); err == nil || !strings.Contains(err.Error(), "src1") {
		t.Errorf("%v", err)
	}
}

// FuzzType compares with what a regular expression makes of the pattern.
func FuzzType(f *testing.F) {
	f.Add("invoice.*", "invoice.paid")
	f.Add("*", "")
	f.Add("a.b", "a.b")
	f.Add("hooklatch.*", "hooklatch.snapshot")
	f.Fuzz(func(t *testing.T, pattern, eventType string) {
		if CheckType(pattern) != nil || !utf8.ValidString(pattern) || !utf8.ValidString(eventType) {
			return
		}
		expr, star := strings.CutSuffix(pattern, "*")
		expr = regexp.QuoteMeta(expr)
		if star {
			expr += ".+"
		}
		want := regexp.MustCompile("(?s)^"+expr+"$").MatchString(eventType) && (eventType != "hooklatch.snapshot" || pattern == eventType)
		if got := matchType(pattern, eventType); got != want {
			t.Fatalf("matchType(%q, %q) = %t", pattern, eventType, got)
		}
	})
}
