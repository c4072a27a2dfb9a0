package main

import (
	"fmt"
	"time"
)

// goneText says why a body that was received at that time is no longer there, and
// since when. It is removed soon after its time, and no row remembers the minute; only
// a person takes it earlier.
func (c *config) goneText(receivedAt, now time.Time) string {
	age := c.Retention.Body
	due := receivedAt.Add(time.Duration(age)).UTC().Format(time.DateOnly)
	if receivedAt.Add(time.Duration(age)).After(now) {
		return fmt.Sprintf("removed by a person, before %s, when it would have been %s old", due, age)
	}
	return fmt.Sprintf("removed by retention on %s, %s after its receipt", due, age)
}
