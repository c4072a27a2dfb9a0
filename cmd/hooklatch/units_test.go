package main

import (
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       time.Duration
		ok         bool
	}{
		{"seconds", "300s", 300 * time.Second, true},
		{"days", "30d", 720 * time.Hour, true},
		{"two units", "1h30m", 90 * time.Minute, true},
		{"milliseconds are not minutes and seconds", "5ms", 5 * time.Millisecond, true},
		{"zero", "0s", 0, true},
		{"no unit", "300", 0, false},
		{"no unit at the end", "1h30", 0, false},
		{"empty", "", 0, false},
		{"negative", "-1s", 0, false},
		{"fraction", "1.5h", 0, false},
		{"blank", "10 s", 0, false},
		{"unit alone", "s", 0, false},
		{"unknown unit", "1w", 0, false},
		{"product overflows", "99999999999d", 0, false},
		{"sum overflows", "106751d106751d", 0, false},
		{"number overflows", "99999999999999999999s", 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseDuration(test.text)
			if got != test.want && err == nil || (err == nil) != test.ok {
				t.Errorf("%q: %v, %v", test.text, got, err)
			}
			if err == nil {
				var again duration
				if err := again.UnmarshalText([]byte(duration(got).String())); err != nil || time.Duration(again) != got {
					t.Errorf("%q is written as %q, which is read as %v, %v", test.text, duration(got), time.Duration(again), err)
				}
			}
		})
	}
}

func TestSizes(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       size
		ok         bool
	}{
		{"bytes", "262144", 262144, true},
		{"binary unit", "256KiB", 262144, true},
		{"decimal unit", "1MB", 1000000, true},
		{"bytes with their unit", "12B", 12, true},
		{"blank", "256 KiB", 0, false},
		{"lower case", "256kib", 0, false},
		{"negative", "-1", 0, false},
		{"unit alone", "KiB", 0, false},
		{"overflow", "9999999999GiB", 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got size
			err := got.UnmarshalText([]byte(test.text))
			if err == nil && got != test.want || (err == nil) != test.ok {
				t.Errorf("%q: %d, %v", test.text, got, err)
			}
			var again size
			if err == nil && (again.UnmarshalText([]byte(got.String())) != nil || again != got) {
				t.Errorf("%q is written as %q", test.text, got)
			}
		})
	}
}
