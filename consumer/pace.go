package consumer

import (
	"time"

	"golang.org/x/time/rate"
)

// bucket holds the leave to begin attempts. A forward is claimed only when there is leave
// for it: none waits for that under a lease.
type bucket struct {
	limit *rate.Limiter // nil: no bound
	few   int           // what is waited for, so that a high rate costs few claims
}

// burstTime is how much of the rate may be used at once.
const burstTime = 100 * time.Millisecond

func newBucket(perSecond float64) *bucket {
	if perSecond == 0 {
		return &bucket{}
	}
	burst := max(int(perSecond*burstTime.Seconds()), 1)
	return &bucket{limit: rate.NewLimiter(rate.Limit(perSecond), burst), few: (burst + 1) / 2}
}

// room is how many attempts may begin now, at most n; where none may, wait is how long
// it takes until some do.
func (b *bucket) room(n int) (may int, wait time.Duration) {
	if b.limit == nil || n <= 0 {
		return n, 0
	}
	tokens := b.limit.Tokens()
	missing := float64(min(n, b.few)) - tokens
	if missing <= 0 {
		return min(n, int(tokens)), 0
	}
	// Rounded up, or the last look comes a moment too early again and again.
	return 0, time.Duration(missing/float64(b.limit.Limit())*float64(time.Second)) + time.Microsecond
}

// take is for one attempt that begins, within the room there was.
func (b *bucket) take() {
	if b.limit != nil {
		b.limit.Allow()
	}
}
