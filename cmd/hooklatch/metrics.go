package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// metrics is every metric of the process, in a registry of its own. Labels are
// names from the configuration or words from a closed set: never an id, an
// address, or a text that a sender chose.
type metrics struct {
	registry *prometheus.Registry

	requests, refusals, keyUses         *prometheus.CounterVec
	verified                            *prometheus.CounterVec
	explained, explainDropped           *prometheus.CounterVec
	refusalsDropped, keyUsesDropped     prometheus.Counter
	handshakes, unrouted                *prometheus.CounterVec
	duration, bodyBytes, distance       *prometheus.HistogramVec
	lastAccepted, keyNotAfter, notAfter *prometheus.GaugeVec

	conflicts, guarded *prometheus.CounterVec
	upstream           *prometheus.CounterVec

	commitDuration, commitRows prometheus.Histogram

	attempts, leaseLost            *prometheus.CounterVec
	superseded, revisionConflicts  *prometheus.CounterVec
	attemptDuration, claimDuration *prometheus.HistogramVec

	breakerState *prometheus.GaugeVec

	pruned *prometheus.CounterVec

	clockOffset prometheus.Gauge
}

var outcomes = []proxy.Outcome{
	proxy.OutcomeAccepted, proxy.OutcomeDuplicate, proxy.OutcomeConflict, proxy.OutcomeRefused, proxy.OutcomeUnavailable,
	proxy.OutcomeHandshake,
}

// attemptClasses is the closed set of kinds of an attempt's end.
var attemptClasses = []string{"2xx", "3xx", "4xx", "429", "5xx", "timeout", "network", "unknown", "error"}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hooklatch_" + name, Help: help}, labels)
	}
	single := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "hooklatch_" + name, Help: help})
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "hooklatch_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "hooklatch_" + name, Help: help, Buckets: buckets}, labels)
	}
	commit := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "hooklatch_" + name, Help: help, Buckets: buckets})
	}
	latency := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &metrics{
		registry: prometheus.NewRegistry(),

		requests:   counter("requests_total", "Requests by what became of them.", "source", "outcome"),
		refusals:   counter("refusals_total", "Requests that were not accepted, by the precise reason.", "source", "reason"),
		handshakes: counter("handshakes_total", "Challenges and pings that were answered; nothing is stored for one.", "source", "kind"),
		conflicts:  counter("conflicts_total", "Rightly signed requests with other bytes than are stored under their delivery id, refused or not; first: no such was seen before under that id.", "source", "first"),
		guarded:    counter("body_guard_total", "Requests under a new delivery id whose body was known, and of which nothing was stored.", "source"),
		keyUses:    counter("key_uses_total", "Requests that a key has verified, and whether a later key was active then.", "source", "key_id", "retiring"),

		upstream: counter("upstream_answers_total", "Requests for no source that were passed to the upstream, by how they ended.", "class"),
		unrouted: counter("unrouted_total", "Deliveries that were accepted and that no destination takes, by their type.", "source"),
		verified: counter("verified_total", "Requests that a key has verified, by the scheme: a source has two while its sender changes.", "source", "scheme"),

		explained:       counter("explain_results_total", "Refused requests that were looked into, by the first cause found.", "source", "cause"),
		explainDropped:  counter("explain_dropped_total", "Requests whose MAC failed and that were not looked into.", "source"),
		refusalsDropped: single("refusals_dropped_total", "Refusals that are missing in the database: there were too many kinds to remember."),
		keyUsesDropped:  single("key_uses_dropped_total", "Uses of keys that are missing in the database, for the same reason."),

		duration: histogram("request_duration_seconds", "Time from the end of a request's header to the answer.", latency, "source"),
		bodyBytes: histogram("request_body_bytes", "Size of bodies, read or declared.",
			prometheus.ExponentialBuckets(256, 4, 10), "source"),
		distance: histogram("timestamp_distance_seconds", "Signed timestamp minus now; below zero is the past.",
			[]float64{-3600, -900, -300, -120, -60, -30, -10, -5, -2, -1, 0, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3600}, "source"),
		lastAccepted: gauge("last_accepted_timestamp_seconds", "When the last new delivery was accepted.", "source"),
		keyNotAfter:  gauge("key_not_after_timestamp_seconds", "When a key ends.", "source", "key_id"),
		notAfter:     gauge("certificate_not_after_timestamp_seconds", "When a certificate ends.", "domain"),

		commitDuration: commit("commit_duration_seconds", "Time of an accept transaction, from its connection to COMMIT's answer.", latency),
		commitRows:     commit("commit_batch_rows", "Deliveries in an accept transaction.", prometheus.ExponentialBuckets(1, 2, 9)),

		attempts:   counter("attempts_total", "Attempts by how they ended.", "destination", "class"),
		leaseLost:  counter("lease_lost_total", "Attempts whose lease was gone when they ended.", "destination"),
		superseded: counter("superseded_total", "Forwards that were not sent because a later revision was.", "destination"),
		revisionConflicts: counter("revision_conflicts_total", "Deliveries whose revision of a resource had come before with another body.",
			"source"),
		attemptDuration: histogram("attempt_duration_seconds", "Time of an attempt.", latency, "destination"),
		claimDuration:   histogram("claim_duration_seconds", "Time of a look for what is due.", latency, "destination"),

		breakerState: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "hooklatch_breaker_state",
			Help: "1 for the state in which the breaker of the destination is in this process: closed, half_open or open."}, []string{"destination", "state"}),

		pruned: counter("pruned_rows_total", "Rows that retention has removed; of conflicts only their bodies.", "kind"),

		clockOffset: prometheus.NewGauge(prometheus.GaugeOpts{Name: "hooklatch_database_clock_offset_seconds",
			Help: "How far the database's clock is ahead of this machine's."}),
	}
	v := readVersion()
	m.registry.MustRegister(
		m.requests, m.refusals, m.handshakes, m.unrouted, m.conflicts, m.guarded, m.upstream, m.keyUses, m.verified, m.explained, m.explainDropped, m.refusalsDropped, m.keyUsesDropped, m.duration, m.bodyBytes, m.distance, m.lastAccepted, m.keyNotAfter, m.notAfter,
		m.commitDuration, m.commitRows, m.attempts, m.leaseLost, m.superseded, m.revisionConflicts, m.attemptDuration, m.claimDuration, m.breakerState, m.pruned, m.clockOffset,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hooklatch_build_info", Help: "Always 1; the labels say what runs.",
			ConstLabels: prometheus.Labels{"version": v.Version, "commit": v.Commit, "go_version": v.Go}}, func() float64 { return 1 }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// configure makes every series that the configuration foresees, so that a rate
// counts from the first event on, and none is missing because it is zero.
func (m *metrics) configure(c *config, from *secrets) {
	for name := range c.Sources {
		for _, o := range outcomes {
			m.requests.WithLabelValues(name, string(o))
		}
		m.duration.WithLabelValues(name)
		m.bodyBytes.WithLabelValues(name)
		m.explainDropped.WithLabelValues(name)
		m.revisionConflicts.WithLabelValues(name)
		m.unrouted.WithLabelValues(name)
		m.guarded.WithLabelValues(name)
		for _, first := range []string{"false", "true"} {
			m.conflicts.WithLabelValues(name, first)
		}
		for _, v := range []*verify.Verifier{from.Verifiers[name], from.Seconds[name]} {
			if v != nil {
				m.configureScheme(name, v)
			}
		}
	}
	if c.Upstream != "" {
		for _, class := range upstreamClasses {
			m.upstream.WithLabelValues(class)
		}
	}
	for name := range c.Destinations {
		for _, class := range attemptClasses {
			m.attempts.WithLabelValues(name, class)
		}
		m.leaseLost.WithLabelValues(name)
		m.superseded.WithLabelValues(name)
		m.attemptDuration.WithLabelValues(name)
		m.claimDuration.WithLabelValues(name)
	}
	for _, kind := range inbox.PruneKinds() {
		m.pruned.WithLabelValues(kind)
	}
	for _, cert := range from.Certificates {
		for _, domain := range cert.Leaf.DNSNames {
			m.notAfter.WithLabelValues(domain).Set(unixSeconds(cert.Leaf.NotAfter))
		}
	}
}

// configureScheme makes the series of one scheme of a source.
func (m *metrics) configureScheme(source string, v *verify.Verifier) {
	m.verified.WithLabelValues(source, v.Scheme.Name())
	for _, kind := range verify.HandshakeKinds() {
		if v.Scheme.HasHandshake(kind) && !v.Handshakes.Off {
			m.handshakes.WithLabelValues(source, kind)
		}
	}
	if v.Scheme.HasTimestamp() {
		m.distance.WithLabelValues(source)
	}
	for _, k := range v.Keys.Keys() {
		m.configureKey(source, k)
	}
}

// configureKey makes the series of one key of a source.
func (m *metrics) configureKey(source string, k verify.Key) {
	m.keyUses.WithLabelValues(source, k.ID, "false")
	if !k.NotAfter.IsZero() {
		m.keyUses.WithLabelValues(source, k.ID, "true")
		m.keyNotAfter.WithLabelValues(source, k.ID).Set(unixSeconds(k.NotAfter))
	}
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// request counts one request.
func (m *metrics) request(r *proxy.Result) {
	m.requests.WithLabelValues(r.Source, string(r.Outcome)).Inc()
	if r.Outcome == proxy.OutcomePassed {
		m.upstream.WithLabelValues(upstreamClass(r)).Inc()
		return
	}
	m.duration.WithLabelValues(r.Source).Observe(r.Duration.Seconds())
	if r.Source == "" {
		m.refusals.WithLabelValues("", r.Reason).Inc()
		return
	}
	m.bodyBytes.WithLabelValues(r.Source).Observe(float64(r.BodyBytes))
	if r.Distance != 0 {
		m.distance.WithLabelValues(r.Source).Observe(r.Distance.Seconds())
	}
	if r.Unexplained {
		m.explainDropped.WithLabelValues(r.Source).Inc()
	}
	switch r.Outcome {
	case proxy.OutcomeRefused, proxy.OutcomeUnavailable:
		m.refusals.WithLabelValues(r.Source, r.Reason).Inc()
		return
	case proxy.OutcomeHandshake:
		m.handshakes.WithLabelValues(r.Source, r.Handshake).Inc()
		if r.KeyID == "" {
			return // it was not signed
		}
	case proxy.OutcomeAccepted:
		m.lastAccepted.WithLabelValues(r.Source).Set(unixSeconds(time.Now()))
		if r.Forwards == 0 {
			m.unrouted.WithLabelValues(r.Source).Inc()
		}
	}
	if r.Conflict {
		m.conflicts.WithLabelValues(r.Source, strconv.FormatBool(r.FirstConflict)).Inc()
	}
	if r.KeptAs != "" {
		m.guarded.WithLabelValues(r.Source).Inc()
	}
	m.keyUses.WithLabelValues(r.Source, r.KeyID, strconv.FormatBool(r.Retiring)).Inc()
	m.verified.WithLabelValues(r.Source, r.Scheme).Inc()
}

// upstreamClasses is the closed set of ends of a request to the upstream.
var upstreamClasses = []string{"1xx", "2xx", "3xx", "4xx", "5xx", "unreachable", "timeout", "cut", "disconnected", "malformed"}

func upstreamClass(r *proxy.Result) string {
	switch {
	case r.Disconnected:
		return "disconnected"
	case r.Code == "body_malformed":
		return "malformed"
	case r.Code != "":
		return strings.TrimPrefix(r.Code, "upstream_")
	case r.Err != nil:
		return "cut"
	}
	return fmt.Sprintf("%dxx", min(max(r.Status/100, 1), 5)) // 1xx is an upgraded connection
}

// explanation counts one request that was to be looked into.
func (m *metrics) explanation(e *proxy.Explained) {
	cause := "none"
	switch {
	case e.Dropped:
		m.explainDropped.WithLabelValues(e.Source).Inc()
		return
	case e.Fault != nil:
		cause = "internal"
	case len(e.Causes) > 0:
		cause = e.Causes[0].Code
	}
	m.explained.WithLabelValues(e.Source, cause).Inc()
}

// batch counts one accept transaction.
func (m *metrics) batch(rows int, took time.Duration) {
	m.commitDuration.Observe(took.Seconds())
	m.commitRows.Observe(float64(rows))
}

// attempt counts one attempt.
func (m *metrics) attempt(r *consumer.AttemptResult) {
	destination, class := r.Forward.Destination, r.Settlement.Class
	if !slices.Contains(attemptClasses, class) {
		class = "error"
	}
	m.attempts.WithLabelValues(destination, class).Inc()
	m.attemptDuration.WithLabelValues(destination).Observe(r.Settlement.Duration.Seconds())
	if r.LeaseLost {
		m.leaseLost.WithLabelValues(destination).Inc()
	}
}

func (m *metrics) claim(destination string, took time.Duration) {
	m.claimDuration.WithLabelValues(destination).Observe(took.Seconds())
}

// breaker says in which state a breaker is now.
func (m *metrics) breaker(destination string, state consumer.BreakerState) {
	for _, s := range []consumer.BreakerState{consumer.BreakerClosed, consumer.BreakerHalfOpen, consumer.BreakerOpen} {
		value := 0.0
		if s == state {
			value = 1
		}
		m.breakerState.WithLabelValues(destination, string(s)).Set(value)
	}
}
