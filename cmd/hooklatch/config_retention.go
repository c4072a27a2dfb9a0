package main

import (
	"maps"
	"slices"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

type retentionConfig struct {
	Body     duration `json:"body,omitzero" jsonschema:"how long bodies and headers are kept after receipt; their hash and size stay as long as the identity. Defaults to 30d"`
	Identity duration `json:"identity,omitzero" jsonschema:"how long a delivery is known, so that a repeat is told from a new one. Defaults to 90d"`
	Attempts duration `json:"attempts,omitzero" jsonschema:"how long attempts and the answers to them are kept. Defaults to 30d"`
}

type refusalsConfig struct {
	_ struct{} `later:"explain"`

	Keep    duration `json:"keep,omitzero" jsonschema:"how long counts of refused requests are kept; defaults to 7d"`
	MaxRows int      `json:"max_rows,omitempty" jsonschema:"most rows of them, of which the oldest go first; defaults to 100000"`
}

const (
	defaultBodyAge     = 30 * 24 * time.Hour
	defaultIdentityAge = 90 * 24 * time.Hour
	// resentWithin is how long after the first try people send deliveries again by
	// hand, and some days more.
	resentWithin = 35 * 24 * time.Hour

	minRefusalRows = 1000
	maxRefusalRows = 10_000_000
)

// fillRetention sets what was left out. Nothing outlives the delivery it belongs to.
func (c *config) fillRetention() {
	setDefault(c, "retention.identity", &c.Retention.Identity, duration(defaultIdentityAge))
	most := min(c.Retention.Identity, duration(defaultBodyAge))
	setDefault(c, "retention.body", &c.Retention.Body, most)
	setDefault(c, "retention.attempts", &c.Retention.Attempts, most)
	setDefault(c, "refusals.keep", &c.Refusals.Keep, duration(7*24*time.Hour))
	setDefault(c, "refusals.max_rows", &c.Refusals.MaxRows, 100_000)
}

func (ch *checker) retention() {
	c := ch.c
	r := c.Retention
	ch.positive("retention.body", time.Duration(r.Body))
	ch.positive("retention.identity", time.Duration(r.Identity))
	ch.positive("retention.attempts", time.Duration(r.Attempts))
	ch.positive("refusals.keep", time.Duration(c.Refusals.Keep))
	if n := c.Refusals.MaxRows; n < minRefusalRows || n > maxRefusalRows {
		ch.problem("refusals.max_rows", "max_rows must be %d to %d", minRefusalRows, maxRefusalRows)
	}
	if r.Identity <= 0 {
		return
	}
	window, source := c.replayWindow()
	switch {
	case time.Duration(r.Identity) < window:
		ch.problem("retention.identity", "identity must be %s at least: within that time a captured request of source %s verifies, and it would be taken as new", duration(window), source)
	case time.Duration(r.Identity) < resentWithin:
		ch.warn("retention.identity", "below %s: senders let people send deliveries again for 30 days, and what is forgotten by then is taken as new", duration(resentWithin))
	}
	if r.Body > r.Identity {
		ch.problem("retention.body", "body must not be longer than identity, %s: a body goes with its delivery", r.Identity)
	}
	if r.Attempts > r.Identity {
		ch.problem("retention.attempts", "attempts must not be longer than identity, %s: they go with their delivery", r.Identity)
	}
}

// replayWindow is how long a captured request may verify at most, and at which source:
// from as far as its timestamp may lie ahead until as far as it may lie behind. What
// is wrong with a scheme is said elsewhere.
func (c *config) replayWindow() (window time.Duration, source string) {
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		s := c.Sources[name]
		schemes, err := s.compile()
		if err != nil {
			continue
		}
		for _, scheme := range schemes {
			if w := 2 * c.window(s, scheme); w > window {
				window, source = w, name
			}
		}
	}
	return window, source
}

// retention is what is old by now. An age that was never filled in is no age of 0.
func (c *config) retention(now time.Time) inbox.Retention {
	before := func(d duration) time.Time {
		if d <= 0 {
			return time.Time{}
		}
		return now.Add(-time.Duration(d))
	}
	return inbox.Retention{
		Bodies: before(c.Retention.Body), Attempts: before(c.Retention.Attempts), Identities: before(c.Retention.Identity),
		Refusals: before(c.Refusals.Keep), MaxRefusals: c.Refusals.MaxRows,
		KeyUses: now.Add(-inbox.KeyUseAge),
	}
}
