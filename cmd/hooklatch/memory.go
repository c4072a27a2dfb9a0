package main

import (
	"os"
	"runtime/debug"
)

// tuneCollector lets the garbage collector rest: with the few MB that serve needs
// when bodies are small it would run dozens of times a second. The limit makes it
// work again before memory grows beyond what the configuration allows. GOGC and
// GOMEMLIMIT, where they are set, decide instead.
func tuneCollector(c *config) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(c.memoryLimit())
	}
}

// memoryLimit is what the configuration allows to be in use at once, in bytes:
// bodies on their way in, once more as they are written to the database, a body
// for each attempt, and a base for everything else.
func (c *config) memoryLimit() int64 {
	const base = 64 << 20
	largest := int64(c.Defaults.MaxBody)
	for _, s := range c.Sources {
		largest = max(largest, int64(s.MaxBody))
	}
	limit := int64(base) + 2*int64(c.Limits.BodyBytes)
	for _, d := range c.Destinations {
		limit += int64(d.Concurrency) * largest
	}
	return limit
}
