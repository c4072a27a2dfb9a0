package main

import (
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// A key is called safe to retire on evidence alone.
func TestVerdictsOnKeys(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	from, long := now.Add(-7*24*time.Hour), now.Add(-60*24*time.Hour)
	span := func(id string, notBefore, notAfter time.Time) keyConfig {
		return keyConfig{ID: id, NotBefore: notBefore, NotAfter: notAfter}
	}
	none := time.Time{}
	of := func(scheme string, k keyConfig) keyConfig { k.Scheme = scheme; return k }
	change := []keyConfig{of("zhisou-v1", span("old", long, none)), of("timestamped-sha256", span("new", none, none))}
	rotation := []keyConfig{span("old", none, now.Add(time.Hour)), span("new", long, none)}
	use := func(id string, first, last time.Time, accepted int64) inbox.KeyUsage {
		return inbox.KeyUsage{Tenant: "acme", Source: "billing", KeyID: id, Scheme: "zhisou-v1", FirstHour: first, LastUsed: last, Accepted: accepted}
	}
	const safe = "safe to retire: it has signed nothing since then"
	for _, c := range []struct {
		name  string
		keys  []keyConfig
		uses  []inbox.KeyUsage
		state string // of the first key
		want  string
	}{
		{"unused since the window began", rotation, []inbox.KeyUsage{use("old", long, from.Add(-time.Second), 0), use("new", long, now, 10)}, keyRetiring, safe},
		{"never seen", rotation, []inbox.KeyUsage{use("new", long, now, 10)}, keyRetiring, safe},
		{"used at the window's first instant", rotation, []inbox.KeyUsage{use("old", long, from, 1), use("new", long, now, 7)}, keyRetiring,
			"old still signs 12 %: do not retire"},
		{"used once in many", rotation, []inbox.KeyUsage{use("old", long, now, 1), use("new", long, now, 99999)}, keyRetiring,
			"old still signs under 0.1 %: do not retire"},
		{"signs nearly everything", rotation, []inbox.KeyUsage{use("old", long, now, 999), use("new", long, now, 1)}, keyRetiring,
			"old still signs 99.9 %: do not retire"},
		{"repeats alone", rotation, []inbox.KeyUsage{use("old", long, now, 0), use("new", long, now, 10)}, keyRetiring, "old still signs repeats: do not retire"},
		{"uses are known for less than the window", rotation, []inbox.KeyUsage{use("new", from.Add(time.Hour), now, 10)}, keyRetiring,
			"cannot tell yet: uses are known since 2026-11-23T13:00:00Z only"},
		{"silent source", rotation, []inbox.KeyUsage{use("old", long, long, 0), use("new", long, long, 0)}, keyRetiring,
			"cannot tell: nothing was accepted since then"},
		{"only key", rotation[:1], nil, keyActive, "the only active key: do not retire"},
		{"successor not yet valid", []keyConfig{rotation[0], span("new", now.Add(time.Second), none)}, []inbox.KeyUsage{use("old", long, long, 0)}, keyActive,
			"the only active key: do not retire"},
		{"successor expired", []keyConfig{rotation[0], span("new", long, now)}, nil, keyActive, "the only active key: do not retire"},
		{"newest, unused", []keyConfig{rotation[1], rotation[0]}, []inbox.KeyUsage{use("old", long, now, 10)}, keyActive, "the newest key, not in use yet"},
		{"newest, used", []keyConfig{rotation[1], rotation[0]}, []inbox.KeyUsage{use("new", long, now, 10)}, keyActive, "the newest key, in use"},
		{"between an older and a newer", []keyConfig{span("mid", long, now.Add(time.Hour)), span("new", now.Add(-time.Hour), none), span("old", none, none)},
			[]inbox.KeyUsage{use("mid", long, now, 1), use("new", long, now, 3)}, keyRetiring, "mid still signs 25 %: do not retire"},
		{"older key of the new scheme", []keyConfig{change[1], of("timestamped-sha256", span("newer", long, none)), change[0]},
			[]inbox.KeyUsage{use("newer", long, now, 10)}, keyActive, safe},
		{"used under two schemes", rotation, []inbox.KeyUsage{use("old", long, now, 1), use("old", long, long, 1), use("new", long, now, 8)}, keyRetiring,
			"old still signs 20 %: do not retire"},
		{"two without a span", []keyConfig{span("a", none, none), span("b", none, none)}, []inbox.KeyUsage{use("b", long, now, 10)}, keyActive, safe},
		{"one names the only scheme", []keyConfig{rotation[0], of("zhisou-v1", rotation[1])}, []inbox.KeyUsage{use("new", long, now, 10)}, keyRetiring, safe},
		{"the other scheme has taken over", change, []inbox.KeyUsage{use("old", long, from.Add(-time.Second), 0), use("new", long, now, 10)}, keyActive, safe},
		{"the other scheme has not yet", change, []inbox.KeyUsage{use("old", long, now, 10)}, keyActive, "old still signs 100 %: do not retire"},
		{"new scheme, unused", []keyConfig{change[1], change[0]}, []inbox.KeyUsage{use("old", long, now, 10)}, keyActive, "the newest key, not in use yet"},
		{"expired at this instant", []keyConfig{span("old", none, now), rotation[1]}, nil, keyExpired, "expired 0 s ago: refused"},
		{"expired", []keyConfig{span("old", none, now.Add(-3*time.Hour)), rotation[1]}, nil, keyExpired, "expired 3 h ago: refused"},
		{"valid from this instant", []keyConfig{span("old", now, none)}, nil, keyActive, "the only active key: do not retire"},
		{"not yet valid", []keyConfig{span("old", now.Add(time.Hour), none), rotation[1]}, nil, keyNotYetValid, "valid from 2026-11-30T13:00:00Z"},
	} {
		scheme := schemeConfig{name: "zhisou-v1"}
		if c.keys[0].Scheme != "" {
			scheme.second = &schemeConfig{name: "timestamped-sha256"}
		}
		cfg := &config{Sources: map[string]*sourceConfig{"billing": {Tenant: "acme", Keys: c.keys, Scheme: scheme}}}
		r := newKeyReport(cfg, "billing", from, now)
		for _, u := range c.uses {
			r.used(u)
		}
		k := r.keys[0]
		if r.judge(k); k.State != c.state || k.Verdict != c.want || k.SafeToRetire != (c.want == safe) {
			t.Errorf("%s: %s, %q, safe: %v; want %s, %q", c.name, k.State, k.Verdict, k.SafeToRetire, c.state, c.want)
		}
		if len(r.keys) != len(c.keys) {
			t.Errorf("%s: %d keys", c.name, len(r.keys))
		}
	}
	// The same id elsewhere is another key.
	cfg := &config{Sources: map[string]*sourceConfig{"billing": {Tenant: "acme", Keys: rotation, Scheme: schemeConfig{name: "zhisou-v1"}}}}
	r := newKeyReport(cfg, "", from, now)
	tenant, source := use("old", long, now, 1), use("old", long, now, 1)
	tenant.Tenant, source.Source = "globex", "shop"
	for _, u := range []inbox.KeyUsage{tenant, source} {
		r.used(u)
		if k := r.keys[len(r.keys)-1]; k.State != keyRemoved || k.Tenant != u.Tenant || k.Source != u.Source || r.keys[0].LastUsed != nil {
			t.Errorf("a use of %s %s is one of %s %s", u.Tenant, u.Source, k.Tenant, k.Source)
		}
	}
}
