package main

import "testing"

func TestMemoryLimitFollowsTheConfiguration(t *testing.T) {
	c := &config{}
	c.fill()
	if got, want := c.memoryLimit(), int64(192<<20); got != want {
		t.Errorf("defaults: %d, want %d", got, want)
	}
	c.Sources = map[string]*sourceConfig{"big": {MaxBody: 25 << 20}, "small": {MaxBody: 1 << 10}}
	c.Destinations = map[string]*destinationConfig{"a": {Concurrency: 16}, "b": {Concurrency: 4}}
	if got, want := c.memoryLimit(), int64(192<<20+20*25<<20); got != want {
		t.Errorf("large bodies: %d, want %d", got, want)
	}
}
