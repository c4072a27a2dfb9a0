package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// filledMetrics has every series that a busy process has.
func filledMetrics(t *testing.T) *metrics {
	t.Helper()
	m := newMetrics()
	key, err := verify.NewKey("k1", []byte(strings.Repeat("k", 32)), verify.SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	key.NotAfter = time.Unix(1_800_000_000, 0)
	keys, err := verify.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	scheme, _ := verify.Preset("zhisou-v1")
	c := &config{Sources: map[string]*sourceConfig{"billing": {}}, Destinations: map[string]*destinationConfig{"app": {}}}
	m.configure(c, &secrets{Verifiers: map[string]*verify.Verifier{"billing": {Scheme: scheme, Keys: keys}}})
	m.registry.MustRegister(newBacklog(slog.New(slog.DiscardHandler), []string{"billing"}, func(context.Context) ([]inbox.DestinationStats, error) {
		return []inbox.DestinationStats{{Destination: "app", Open: map[inbox.State]int{inbox.Pending: 3}, OldestNew: 2 * time.Second, Paused: true}}, nil
	}, func(context.Context) (map[string]int, error) { return map[string]int{"billing": 2, "canary": 1}, nil }))
	for _, o := range outcomes {
		m.request(&proxy.Result{Source: "billing", Outcome: o, Handshake: "status", Reason: "key_unknown", KeyID: "k1", BodyBytes: 100, Distance: -time.Second,
			DeliveryID: "dlv_canary", EventType: "type.canary", Peer: "192.0.2.77"})
	}
	m.explanation(&proxy.Explained{Result: proxy.Result{Source: "billing", KeyID: "canary"}, Causes: []verify.Cause{{Code: "body_crlf", Text: "canary"}}})
	m.explanation(&proxy.Explained{Result: proxy.Result{Source: "billing"}, Dropped: true})
	m.request(&proxy.Result{Outcome: proxy.OutcomeRefused, Reason: "source_unknown", Code: "source_unknown"})
	m.batch(3, time.Millisecond)
	m.claim("app", time.Millisecond)
	m.attempt(&consumer.AttemptResult{Forward: inbox.Forward{Destination: "app"}, Settlement: inbox.Settlement{Class: "5xx", Duration: time.Second}, LeaseLost: true})
	m.attempt(&consumer.AttemptResult{Forward: inbox.Forward{Destination: "app"}, Settlement: inbox.Settlement{Class: "a class that nobody knows"}})
	m.clockOffset.Set(1)
	m.notAfter.WithLabelValues("hooks.example.com").Set(1)
	return m
}

func TestMetricsAreNamedAsPrometheusWants(t *testing.T) {
	problems, err := testutil.GatherAndLint(filledMetrics(t).registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// labelsOf are the metrics of this version with their labels, as the operator's
// dashboards and alerts know them.
var labelsOf = map[string]string{
	"hooklatch_requests_total":                          "outcome source",
	"hooklatch_refusals_total":                          "reason source",
	"hooklatch_handshakes_total":                        "kind source",
	"hooklatch_request_duration_seconds":                "source",
	"hooklatch_request_body_bytes":                      "source",
	"hooklatch_timestamp_distance_seconds":              "source",
	"hooklatch_commit_duration_seconds":                 "",
	"hooklatch_commit_batch_rows":                       "",
	"hooklatch_key_uses_total":                          "key_id retiring source",
	"hooklatch_verified_total":                          "scheme source",
	"hooklatch_unrouted_total":                          "source",
	"hooklatch_conflicts_total":                         "first source",
	"hooklatch_body_guard_total":                        "source",
	"hooklatch_key_uses_dropped_total":                  "",
	"hooklatch_refusals_dropped_total":                  "",
	"hooklatch_explain_results_total":                   "cause source",
	"hooklatch_explain_dropped_total":                   "source",
	"hooklatch_key_not_after_timestamp_seconds":         "key_id source",
	"hooklatch_certificate_not_after_timestamp_seconds": "domain",
	"hooklatch_last_accepted_timestamp_seconds":         "source",
	"hooklatch_forwards":                                "destination state",
	"hooklatch_forwards_in_flight":                      "destination",
	"hooklatch_oldest_due_age_seconds":                  "destination kind",
	"hooklatch_dead_letter_oldest_age_seconds":          "destination",
	"hooklatch_destination_paused":                      "destination",
	"hooklatch_attempts_total":                          "class destination",
	"hooklatch_attempt_duration_seconds":                "destination",
	"hooklatch_claim_duration_seconds":                  "destination",
	"hooklatch_lease_lost_total":                        "destination",
	"hooklatch_superseded_total":                        "destination",
	"hooklatch_revision_conflicts_total":                "source",
	"hooklatch_gaps":                                    "source",
	"hooklatch_pruned_rows_total":                       "kind",
	"hooklatch_database_clock_offset_seconds":           "",
	"hooklatch_build_info":                              "commit go_version version",
}

func TestMetricsHaveTheirNamesAndNoOtherLabels(t *testing.T) {
	families, err := filledMetrics(t).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "hooklatch_") {
			continue
		}
		seen[f.GetName()] = true
		for _, metric := range f.GetMetric() {
			var names, content []string
			for _, l := range metric.GetLabel() {
				names, content = append(names, l.GetName()), append(content, l.GetValue())
			}
			labels, values := strings.Join(names, " "), strings.Join(content, " ")
			if want, known := labelsOf[f.GetName()]; !known || labels != want {
				t.Errorf("%s{%s}: want labels %q, known: %v", f.GetName(), labels, want, known)
			}
			for _, canary := range []string{"canary", "192.0.2.77", "nobody knows"} {
				if strings.Contains(values, canary) {
					t.Errorf("%s has a label value from outside: %s", f.GetName(), values)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(labelsOf)) {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// A series that begins with its first event has a rate without that event, and one
// that nothing can move is one too many.
func TestSeriesOfSchemesAndHandshakes(t *testing.T) {
	of := func(preset, keyID string, off bool) *verify.Verifier {
		key, err := verify.NewKey(keyID, []byte(strings.Repeat("k", 32)), verify.SecretSpec{})
		if err != nil {
			t.Fatal(err)
		}
		if keyID == "old" {
			key.NotAfter = time.Unix(1_800_000_000, 0)
		}
		v := &verify.Verifier{Handshakes: verify.Handshakes{Off: off}}
		v.Scheme, _ = verify.Preset(preset)
		if v.Keys, err = verify.NewKeySet(key); err != nil {
			t.Fatal(err)
		}
		return v
	}
	m := newMetrics()
	m.configure(&config{Sources: map[string]*sourceConfig{"changing": {}, "off": {}}}, &secrets{
		Verifiers: map[string]*verify.Verifier{"changing": of("zhisou-v1", "old", false), "off": of("zoom", "k1", true)},
		Seconds:   map[string]*verify.Verifier{"changing": of("zoom", "new", false)},
	})
	count := func(when string, handshakes, keyUses, verified int) {
		t.Helper()
		h, k, v := testutil.CollectAndCount(m.handshakes), testutil.CollectAndCount(m.keyUses), testutil.CollectAndCount(m.verified)
		if h != handshakes || k != keyUses || v != verified {
			t.Errorf("%s: %d series of handshakes, %d of keys, %d of schemes", when, h, k, v)
		}
	}
	count("at the start", 1, 4, 3) // old may be used while it retires
	shaken := proxy.Result{Source: "changing", Outcome: proxy.OutcomeHandshake, Handshake: "keyed_answer", Scheme: "zoom"}
	m.request(&shaken)
	count("after a handshake that nobody signed", 1, 4, 3)
	shaken.KeyID = "new"
	m.request(&shaken)
	m.request(&proxy.Result{Source: "changing", Outcome: proxy.OutcomeDuplicate, Scheme: "zoom", KeyID: "new"})
	m.explanation(&proxy.Explained{Result: proxy.Result{Source: "changing"}, Fault: errors.New("panic")})
	m.explanation(&proxy.Explained{Result: proxy.Result{Source: "changing"}, Dropped: true})
	for name, got := range map[string][2]float64{
		"handshakes": {testutil.ToFloat64(m.handshakes.WithLabelValues("changing", "keyed_answer")), 2},
		"key uses":   {testutil.ToFloat64(m.keyUses.WithLabelValues("changing", "new", "false")), 2},
		"verified":   {testutil.ToFloat64(m.verified.WithLabelValues("changing", "zoom")), 2},
		"faults":     {testutil.ToFloat64(m.explained.WithLabelValues("changing", "internal")), 1},
		"dropped":    {testutil.ToFloat64(m.explainDropped.WithLabelValues("changing")), 1},
		"explained":  {float64(testutil.CollectAndCount(m.explained)), 1},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %v, want %v", name, got[0], got[1])
		}
	}
}

// What nobody takes is counted when it comes in, and not again when it is repeated.
func TestDeliveriesWithoutARouteAreCounted(t *testing.T) {
	m := newMetrics()
	m.configure(&config{Sources: map[string]*sourceConfig{"billing": {}}}, &secrets{})
	if n := testutil.CollectAndCount(m.unrouted); n != 1 {
		t.Errorf("%d series at the start, want 1", n)
	}
	for _, r := range []proxy.Result{
		{Outcome: proxy.OutcomeAccepted}, {Outcome: proxy.OutcomeAccepted, Forwards: 1}, {Outcome: proxy.OutcomeDuplicate},
		{Outcome: proxy.OutcomeRefused}, {Outcome: proxy.OutcomeConflict},
	} {
		r.Source = "billing"
		m.request(&r)
	}
	if n := testutil.ToFloat64(m.unrouted.WithLabelValues("billing")); n != 1 {
		t.Errorf("%v unrouted deliveries, want 1", n)
	}
}

// A conflict that the sender hears of as a success is counted like any other, and so is
// what the body guard has found.
func TestConflictsAndGuardedAreCounted(t *testing.T) {
	m := newMetrics()
	m.configure(&config{Sources: map[string]*sourceConfig{"billing": {}}}, &secrets{})
	if n := testutil.CollectAndCount(m.conflicts) + testutil.CollectAndCount(m.guarded); n != 3 {
		t.Errorf("%d series at the start, want 3", n)
	}
	for _, r := range []proxy.Result{
		{Outcome: proxy.OutcomeConflict, Conflict: true, FirstConflict: true}, {Outcome: proxy.OutcomeDuplicate, Conflict: true},
		{Outcome: proxy.OutcomeDuplicate, Conflict: true}, {Outcome: proxy.OutcomeDuplicate, KeptAs: "dlv_0"}, {Outcome: proxy.OutcomeDuplicate},
	} {
		r.Source = "billing"
		m.request(&r)
	}
	for want, c := range map[float64]prometheus.Counter{
		1: m.conflicts.WithLabelValues("billing", "true"), 2: m.conflicts.WithLabelValues("billing", "false"),
		4: m.requests.WithLabelValues("billing", "duplicate"),
	} {
		if n := testutil.ToFloat64(c); n != want {
			t.Errorf("%s: %v, want %v", c.Desc(), n, want)
		}
	}
	if n := testutil.ToFloat64(m.guarded.WithLabelValues("billing")); n != 1 {
		t.Errorf("%v guarded, want 1", n)
	}
}

func TestScrapesDoNotHammerTheDatabase(t *testing.T) {
	looks := 0
	var failure error
	b := newBacklog(slog.New(slog.DiscardHandler), []string{"billing"}, func(context.Context) ([]inbox.DestinationStats, error) {
		looks++
		return []inbox.DestinationStats{{Destination: "app"}}, failure
	}, func(context.Context) (map[string]int, error) {
		if failure != nil {
			return nil, failure
		}
		return map[string]int{}, nil
	})
	for range 5 {
		if n := testutil.CollectAndCount(b); n != 10 {
			t.Fatalf("%d metrics, want 10", n)
		}
	}
	if looks != 1 {
		t.Errorf("%d looks for 5 scrapes, want 1", looks)
	}
	// Old numbers would be worse than none.
	b.at, failure = time.Time{}, errors.New("away")
	b.stats = func(context.Context) ([]inbox.DestinationStats, error) { looks++; return nil, failure }
	for range 5 {
		if n := testutil.CollectAndCount(b); n != 0 {
			t.Errorf("%d metrics while the database is away, want 0", n)
		}
	}
	if looks != 2 {
		t.Errorf("%d looks, want 2", looks)
	}
}
