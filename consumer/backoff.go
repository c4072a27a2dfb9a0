package consumer

import (
	"net/http"
	"strings"
	"time"
)

// Retry says when, and how often, a failed forward is tried again.
type Retry struct {
	// Base is the longest pause after the first attempt; it doubles with each
	// further one. Defaults to 1 second.
	Base time.Duration
	// Cap is the longest pause at all, also for Retry-After. Defaults to 15
	// minutes.
	Cap time.Duration
	// MaxAttempts is how many attempts that count a forward gets before it is
	// blocked. Defaults to 12; negative means no limit.
	MaxAttempts int
}

// trouble paces what is tried again because of the database.
var trouble = Retry{Base: 100 * time.Millisecond, Cap: 4 * time.Second}

// pause is full jitter: uniform in [0, min(Cap, Base·2ⁿ)]. Whatever failed
// together does not come back together.
func (r Retry) pause(n int, random func() float64) time.Duration {
	return spread(r.ceiling(n), random)
}

func (r Retry) ceiling(n int) time.Duration {
	d := r.Base
	for ; n > 0; n-- {
		if d > r.Cap/2 { // and never an overflow
			return r.Cap
		}
		d *= 2
	}
	return min(d, r.Cap)
}

// after is the pause that a destination asked for: never less than it asked,
// but for the cap, plus up to Base, because it may have told everyone the same.
func (r Retry) after(asked time.Duration, random func() float64) time.Duration {
	return min(asked, r.Cap) + r.pause(0, random)
}

// spread is uniform in [0, limit].
func spread(limit time.Duration, random func() float64) time.Duration {
	d := time.Duration(random() * float64(limit))
	if d < 0 || d > limit { // a limit near the largest Duration is more as a float
		return limit
	}
	return d
}

// retryAfter reads the value of a Retry-After header, seconds or an HTTP date.
// Nonsense, and a time that is over, are 0: not said.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, ok := parseSeconds(value); ok {
		return seconds
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}

// parseSeconds reads digits and nothing else. Numbers beyond a year all mean the
// same here, since the cap is far below, so they cannot overflow either.
func parseSeconds(value string) (time.Duration, bool) {
	const year = 365 * 24 * time.Hour
	if value == "" {
		return 0, false
	}
	var d time.Duration
	for _, c := range []byte(value) {
		if c < '0' || c > '9' {
			return 0, false
		}
		d = min(d*10+time.Duration(c-'0')*time.Second, year)
	}
	return d, true
}
