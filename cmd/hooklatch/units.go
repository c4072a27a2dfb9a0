package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// duration is a length of time as people write it in the configuration and on
// flags: whole numbers with a unit, such as 300s, 1h30m or 30d. The unit is
// demanded: 300 alone has been seconds to one reader and milliseconds to another.
type duration time.Duration

var durationUnits = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := parseDuration(string(text))
	*d = duration(v)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String writes the duration in the largest unit that divides it.
func (d duration) String() string {
	v := time.Duration(d)
	for _, unit := range []string{"d", "h", "m", "s", "ms"} {
		if size := durationUnits[unit]; v != 0 && v%size == 0 {
			return fmt.Sprintf("%d%s", v/size, unit)
		}
	}
	return v.String()
}

func parseDuration(s string) (time.Duration, error) {
	rest, total := s, time.Duration(0)
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no duration such as 300s, 15m or 30d", s)
		}
		rest = rest[digits:]
		letters := len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))
		unit, known := durationUnits[rest[:letters]]
		if !known {
			if letters == 0 && rest == "" {
				return 0, fmt.Errorf("%q has no unit: write %ss for seconds (ms, s, m, h, d)", s, s)
			}
			return 0, fmt.Errorf("%q is no duration such as 300s, 15m or 30d", s)
		}
		if n > math.MaxInt64/int64(unit) || total > math.MaxInt64-time.Duration(n)*unit {
			return 0, fmt.Errorf("%q is too long", s)
		}
		total += time.Duration(n) * unit
		rest = rest[letters:]
	}
	if s == "" {
		return 0, errors.New("the duration is empty")
	}
	return total, nil
}

// size is a number of bytes as people write it: 262144, 256KiB, 25MiB.
type size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1}, {"", 1},
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (z *size) UnmarshalText(text []byte) error {
	s := string(text)
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	n, err := strconv.ParseInt(s[:digits], 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no size such as 262144, 256KiB or 25MiB", s)
	}
	for _, unit := range sizeUnits {
		if s[digits:] == unit.name {
			if n > math.MaxInt64/unit.bytes {
				return fmt.Errorf("%q is too large", s)
			}
			*z = size(n * unit.bytes)
			return nil
		}
	}
	return fmt.Errorf("%q is no size such as 262144, 256KiB or 25MiB", s)
}

// MarshalText implements encoding.TextMarshaler.
func (z size) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// String writes the size in the largest binary unit that divides it.
func (z size) String() string {
	for _, unit := range sizeUnits[:3] {
		if z != 0 && int64(z)%unit.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(z)/unit.bytes, unit.name)
		}
	}
	return strconv.FormatInt(int64(z), 10)
}

// pace is so many in a time: 50/s, 600/m, 1000/h. Zero: no bound.
type pace struct {
	n   int
	per time.Duration
}

var paceUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *pace) UnmarshalText(text []byte) error {
	count, unit, _ := strings.Cut(string(text), "/")
	n, err := strconv.ParseUint(count, 10, 31)
	per, known := paceUnits[unit]
	if err != nil || n == 0 || !known {
		return fmt.Errorf("%q is no rate such as 50/s, 600/m or 1000/h", text)
	}
	p.n, p.per = int(n), per
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (p pace) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String writes the pace as it is read; empty where there is none.
func (p pace) String() string {
	for unit, per := range paceUnits {
		if p.n != 0 && p.per == per {
			return fmt.Sprintf("%d/%s", p.n, unit)
		}
	}
	return ""
}

// perSecond is 0 where there is no bound.
func (p pace) perSecond() float64 {
	if p.n == 0 {
		return 0
	}
	return float64(p.n) / p.per.Seconds()
}
