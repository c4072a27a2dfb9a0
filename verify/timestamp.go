package verify

import (
	"cmp"
	"net/http"
	"strconv"
	"time"
)

type timeFormat uint8

const (
	unixSeconds timeFormat = iota
	unixMillis
	rfc3339
	httpDate
)

var timeFormats = map[string]timeFormat{
	"unix-s": unixSeconds, "unix-ms": unixMillis, "rfc3339": rfc3339, "http-date": httpDate,
}

// leastFuture is what a past-only window still allows the sender's clock to run ahead.
const leastFuture = 300 * time.Second

type timestampSpec struct {
	from     place
	format   timeFormat
	window   time.Duration // 0: none
	pastOnly bool
	stage    stage
}

// parse checks the grammar before any conversion: the library functions take
// signs, leading zeros and fractions that no sender of this format writes.
func (f timeFormat) parse(s string) (time.Time, bool) {
	switch f {
	case unixSeconds:
		n, ok := digits(s, 12)
		return time.Unix(n, 0), ok
	case unixMillis:
		n, ok := digits(s, 15)
		return time.UnixMilli(n), ok
	case rfc3339:
		if !rfc3339Shape(s) {
			return time.Time{}, false
		}
		t, err := time.Parse(time.RFC3339Nano, s)
		return t, err == nil
	}
	t, err := time.Parse(http.TimeFormat, s)
	return t, err == nil && t.Format(http.TimeFormat) == s
}

// format is the reverse of parse.
func (f timeFormat) format(t time.Time) string {
	switch f {
	case unixSeconds:
		return strconv.FormatInt(t.Unix(), 10)
	case unixMillis:
		return strconv.FormatInt(t.UnixMilli(), 10)
	case rfc3339:
		return t.UTC().Format(time.RFC3339Nano)
	}
	return t.UTC().Format(http.TimeFormat)
}

// digits reads 0|[1-9][0-9]* of at most max digits.
func digits(s string, max int) (int64, bool) {
	if s == "" || len(s) > max || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// rfc3339Shape is 2006-01-02T15:04:05, up to nine fraction digits, and a zone.
func rfc3339Shape(s string) bool {
	const shape = "0000-00-00T00:00:00"
	if len(s) < len(shape)+1 || !shaped(s[:len(shape)], shape) {
		return false
	}
	s = s[len(shape):]
	if s[0] == '.' {
		n := 1
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		if n == 1 || n > 10 {
			return false
		}
		s = s[n:]
	}
	return s == "Z" || shaped(s, "+00:00") || shaped(s, "-00:00")
}

func shaped(s, shape string) bool {
	if len(s) != len(shape) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if shape[i] == '0' {
			if s[i] < '0' || s[i] > '9' {
				return false
			}
		} else if s[i] != shape[i] {
			return false
		}
	}
	return true
}

// judge reads and judges the text; what is signed stays the text.
func (c *check) judge(text string) *Error {
	spec := c.p.timestamp
	t, ok := spec.format.parse(text)
	if !ok {
		return c.fail(ReasonTimestampMalformed, spec.from.String())
	}
	c.envelope.Timestamp, c.envelope.Time = text, t
	d := t.Sub(c.now) // saturates, so a far date stays far
	c.envelope.Distance = d
	if past, future := c.windows(); past != 0 && (d > future || d < -past) {
		return c.fail(ReasonTimestampOutOfWindow, spec.from.String())
	}
	return nil
}

// windows are how far the timestamp may be from now either way; 0: no limit.
func (c *check) windows() (past, future time.Duration) {
	past = cmp.Or(c.v.Tolerance, c.p.timestamp.window)
	if future = past; past != 0 && c.p.timestamp.pastOnly {
		future = max(past, leastFuture)
	}
	return past, future
}

// stage is when a value can be had.
type stage uint8

const (
	stageHeader stage = iota // before the body
	stageBody                // from the body, but the signature needs it
	stageLate                // from the body, once the signature is known to be right
	stageCode                // a scheme in code reads and judges it
)
