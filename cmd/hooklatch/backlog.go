package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hooklatch/hooklatch/inbox"
)

// openStates are the states whose forwards are counted: the others only grow.
var openStates = []inbox.State{inbox.Pending, inbox.RetryWait, inbox.Held, inbox.Blocked}

const (
	statsPatience = 2 * time.Second
	statsAge      = 5 * time.Second
)

// backlog is the collector of what waits in the database. However often it is
// asked, it looks every few seconds. While it cannot look, it says nothing.
type backlog struct {
	sources []string
	stats   func(context.Context) ([]inbox.DestinationStats, error)
	count   func(context.Context) (map[string]int, error) // the open gaps, by source
	log     *slog.Logger

	forwards, inFlight, oldest, dead, paused, gaps *prometheus.Desc

	mu   sync.Mutex
	at   time.Time
	last []inbox.DestinationStats
	open map[string]int
}

func newBacklog(l *slog.Logger, sources []string, stats func(context.Context) ([]inbox.DestinationStats, error),
	gaps func(context.Context) (map[string]int, error)) *backlog {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("hooklatch_"+name, help, labels, nil)
	}
	return &backlog{
		sources: sources, stats: stats, count: gaps, log: l,
		forwards: desc("forwards", "Forwards in an open state.", "destination", "state"),
		oldest:   desc("oldest_due_age_seconds", "How long the oldest due forward has waited, never tried or to be tried again.", "destination", "kind"),
		inFlight: desc("forwards_in_flight", "Forwards that are being tried: of those that are pending or retry_wait, the thousand of each tenant that have been due longest are looked at.", "destination"),
		dead:     desc("dead_letter_oldest_age_seconds", "How long the oldest dead letter has been one; 0 where there is none.", "destination"),
		paused:   desc("destination_paused", "1 while the destination is paused.", "destination"),
		gaps:     desc("gaps", "Jumps in the revisions of resources for which later ones are held.", "source"),
	}
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	ch <- b.forwards
	ch <- b.inFlight
	ch <- b.oldest
	ch <- b.dead
	ch <- b.paused
	ch <- b.gaps
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	stats, gaps := b.look()
	if gaps != nil {
		for _, source := range b.sources {
			gauge(b.gaps, float64(gaps[source]), source)
		}
	}
	for _, d := range stats {
		for _, state := range openStates {
			gauge(b.forwards, float64(d.Open[state]), d.Destination, string(state))
		}
		gauge(b.oldest, d.OldestNew.Seconds(), d.Destination, "new")
		gauge(b.oldest, d.OldestRetry.Seconds(), d.Destination, "retry")
		gauge(b.inFlight, float64(d.InFlight), d.Destination)
		gauge(b.dead, d.OldestDead.Seconds(), d.Destination)
		paused := 0.0
		if d.Paused {
			paused = 1
		}
		gauge(b.paused, paused, d.Destination)
	}
}

func (b *backlog) look() ([]inbox.DestinationStats, map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.at) < statsAge {
		return b.last, b.open
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsPatience)
	defer cancel()
	last, err := b.stats(ctx)
	open, gapErr := b.count(ctx)
	if err := errors.Join(err, gapErr); err != nil {
		b.log.Warn("metrics of the backlog are missing", "error", err)
	}
	// A failure counts as a look, so that scrapes do not queue up behind it.
	b.at, b.last, b.open = time.Now(), last, open
	return last, open
}
