package verify

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// leastMillis tells the units of a Unix time apart: as seconds it lies in the year
// 5138, as milliseconds in 1973.
const leastMillis = 100_000_000_000

// timeReading is a text of the timestamp that may have been signed.
type timeReading struct{ text, code string }

// readTimes finds the timestamp and, where it is in another unit or format than the
// scheme's, what it would be in others.
func (x *explainer) readTimes() {
	spec := x.c.p.timestamp
	if spec == nil {
		x.times = []timeReading{{text: x.firstHeader(presetFacts().times)}}
		return
	}
	text, err := x.c.demand(&spec.from)
	if err != nil {
		if spec.from.kind != placeHeader {
			x.missing(spec.from.String())
		}
		x.times = []timeReading{{}}
		return
	}
	x.times = []timeReading{{text: text}}
	x.out.Tolerance, _ = x.c.windows()
	at, code := spec.unit(text)
	if code == "" || spec.from.kind != placeJSON && spec.from.kind != placeForm {
		x.out.Timestamp = x.shortened(text)
	}
	if code != "" {
		x.add(code, "send "+spec.format.example()+", and sign just that", "the timestamp in %s %s", x.where(spec.from.String()), unitText[code])
	}
	if at.IsZero() {
		return
	}
	x.out.Distance = at.Sub(x.c.now)
	if code == "" {
		return
	}
	for _, format := range []timeFormat{spec.format, unixSeconds, unixMillis} {
		reading := timeReading{format.format(at), code}
		known := false
		for _, t := range x.times {
			known = known || t.text == reading.text
		}
		if !known {
			x.times = append(x.times, reading)
		}
	}
}

var unitText = map[string]string{
	"ts_millis":  "is in milliseconds, the scheme's is in seconds",
	"ts_seconds": "is in seconds, the scheme's is in milliseconds",
	"ts_format":  "is not written as the scheme says",
}

func (f timeFormat) example() string {
	switch f {
	case unixSeconds:
		return "Unix time in seconds, such as 1700000000"
	case unixMillis:
		return "Unix time in milliseconds, such as 1700000000000"
	case rfc3339:
		return "a time such as 2023-11-14T22:13:20Z"
	}
	return "a date such as Tue, 14 Nov 2023 22:13:20 GMT"
}

// unit reads a timestamp whatever its format; the code says what is wrong with that.
func (s *timestampSpec) unit(text string) (time.Time, string) {
	at, ok := s.format.parse(text)
	switch n, number := digits(text, 15); {
	case s.format == unixSeconds && number && n >= leastMillis:
		return time.UnixMilli(n), "ts_millis"
	case s.format == unixMillis && number && n < leastMillis && n > 0:
		return time.Unix(n, 0), "ts_seconds"
	case ok:
		return at, ""
	}
	return looseTime(strings.TrimSpace(text)), "ts_format"
}

// looseTime is zero for what is no time at all.
func looseTime(text string) time.Time {
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		switch a := math.Abs(f); {
		case !(a < leastMillis*1000):
			return time.Time{}
		case a >= leastMillis:
			return time.UnixMilli(int64(f))
		}
		return time.Unix(int64(f), 0)
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", http.TimeFormat, time.RFC1123Z} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

// judgeTime adds the window's verdict on the moment that was meant.
func (x *explainer) judgeTime() {
	if x.c.p.timestamp == nil || x.out.Timestamp == "" && x.out.Distance == 0 {
		return
	}
	past, future := x.c.windows()
	if d := x.out.Distance; past != 0 && (d < -past || d > future) {
		x.addWindow(d, past)
	}
}

func (x *explainer) addWindow(d, past time.Duration) {
	way, fix := "ahead of", "set the sender's clock (NTP)"
	if d <= 0 {
		way, fix = "behind", "set both clocks (NTP); sign each attempt afresh, with its own timestamp"
	}
	text := "the timestamp is too far from our clock"
	switch far := inWords(d.Abs()); {
	case d == 0:
	case far == inWords(past):
		text = "the timestamp is more than " + far + " " + way + " our clock"
	default:
		text = "the timestamp is " + far + " " + way + " our clock"
	}
	if past != 0 {
		text += ", " + inWords(past) + " are allowed"
	}
	x.add("ts_window", fix, "%s", text)
}

// inWords is a duration in whole seconds, or in a unit that people read at a glance.
func inWords(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Hour:
		return strconv.FormatInt(int64(d/time.Second), 10) + " s"
	case d < 48*time.Hour:
		return strconv.FormatInt(int64(d/time.Hour), 10) + " h"
	}
	return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + " days"
}
