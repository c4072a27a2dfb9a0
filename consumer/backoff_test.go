package consumer

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestPauseStaysInItsInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Retry{
			Base: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base")),
			Cap:  time.Duration(rapid.Int64Range(1, 1<<63-1).Draw(t, "cap")),
		}
		n := rapid.IntRange(0, 200).Draw(t, "n")
		limit := r.Cap
		if n < 62 && r.Base <= (1<<63-1)>>n {
			limit = min(limit, r.Base<<n)
		}
		if got := r.pause(n, func() float64 { return rapid.Float64Range(0, 1).Draw(t, "random") }); got < 0 || got > limit {
			t.Fatalf("pause %v outside [0, %v]", got, limit)
		}
	})
}

func TestPauseReachesBothEnds(t *testing.T) {
	r := Retry{Base: time.Second, Cap: 15 * time.Minute}
	for n, limit := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if got := r.pause(n, func() float64 { return 0 }); got != 0 {
			t.Errorf("n=%d: least pause %v", n, got)
		}
		if got := r.pause(n, func() float64 { return 1 - 1e-12 }); limit-got > time.Microsecond {
			t.Errorf("n=%d: longest pause %v, want %v", n, got, limit)
		}
	}
}

func TestCaseE16_RetriesAreSpreadOverTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		q.add(1000)
		stop := launch(t, newFake(t, q, failing(&AttemptError{Status: 500}), func(c *Config) {
			c.Rand = seeded(1)
			c.Retry = Retry{Base: 10 * time.Second, Cap: time.Minute}
			c.Breaker.Failures = -1
		}))
		synctest.Wait()
		stop()
		var tenths [10]int
		for _, s := range q.settled {
			tenths[min(int(s.Delay/time.Second), 9)]++
		}
		for i, n := range tenths {
			if n < 50 || n > 200 {
				t.Errorf("tenth %d of the interval holds %d of 1000 retries: %v", i, n, tenths)
			}
		}
	})
}

// seeded is a source that several goroutines may use.
func seeded(seed uint64) func() float64 {
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(seed, 0))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	}
}

func TestRetryAfterForms(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"120":                            2 * time.Minute,
		" 7 ":                            7 * time.Second,
		"99999":                          99999 * time.Second,
		"99999999999999999999999999":     365 * 24 * time.Hour,
		"Sun, 01 Mar 2026 12:02:00 GMT":  2 * time.Minute,
		"Sunday, 01-Mar-26 12:02:00 GMT": 2 * time.Minute,
		"Sun, 01 Mar 2026 11:00:00 GMT":  0, // over
		"":                               0,
		"0":                              0,
		"-1":                             0,
		"+5":                             0,
		"1.5":                            0,
		"soon":                           0,
		"5, 6":                           0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", value, got, want)
		}
	}
}

func TestRetryAfterIsNeverCutShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Retry{Base: time.Second, Cap: 15 * time.Minute}
		asked := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "asked"))
		got := r.after(asked, func() float64 { return rapid.Float64Range(0, 1).Draw(t, "random") })
		if least := min(asked, r.Cap); got < least || got > least+r.Base {
			t.Fatalf("asked for %v, pause %v", asked, got)
		}
	})
}
