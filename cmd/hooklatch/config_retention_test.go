package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

func TestRetentionThatIsLeftOut(t *testing.T) {
	for _, test := range []struct {
		text string
		want retentionConfig
	}{
		{"", retentionConfig{Body: duration(30 * day), Identity: duration(90 * day), Attempts: duration(30 * day)}},
		{"retention: {body: 3d}", retentionConfig{Body: duration(3 * day), Identity: duration(90 * day), Attempts: duration(30 * day)}},
		{"retention: {identity: 20d}", retentionConfig{Body: duration(20 * day), Identity: duration(20 * day), Attempts: duration(20 * day)}},
	} {
		c, err := parseConfig("f", []byte(minimal+test.text+"\n"), configNow)
		if err != nil {
			t.Fatal(err)
		}
		if c.Retention != test.want {
			t.Errorf("%q: %+v", test.text, c.Retention)
		}
		if c.Refusals.Keep != duration(7*day) || c.Refusals.MaxRows != 100_000 {
			t.Errorf("%q: %+v", test.text, c.Refusals)
		}
		r := c.retention(configNow)
		if !r.Bodies.Equal(configNow.Add(-time.Duration(test.want.Body))) || !r.Identities.Equal(configNow.Add(-time.Duration(test.want.Identity))) ||
			!r.Attempts.Equal(configNow.Add(-time.Duration(test.want.Attempts))) || !r.Refusals.Equal(configNow.Add(-7*day)) || r.MaxRefusals != 100_000 {
			t.Errorf("%q: %+v", test.text, r)
		}
	}
}

// I10: a source with a tolerance of its own, for a sender that keeps its first
// timestamp, is covered by the identity. D5 demands exit code 3.
func TestCaseD5_IdentityMustCoverTheReplayWindow(t *testing.T) {
	for _, test := range []struct {
		name, old, new string
		window         string // "": it fits
	}{
		{"preset", "", "", "10m"},
		{"source's own", "scheme: zhisou-v1", "scheme: zhisou-v1\n    tolerance: 5h", "10h"},
		{"recipe's", "scheme: zhisou-v1", "scheme: {preset: zhisou-v1, timestamp: {tolerance_s: 3600}}", "2h"},
		{"default of a recipe that names none", "scheme: zhisou-v1", "scheme: {preset: stripe, timestamp: {tolerance_s: null}}\n    tolerance: 15m\n    event: {id: /id}", "30m"},
		{"no timestamp", "scheme: zhisou-v1", "scheme: github", ""},
	} {
		text := strings.Replace(minimal, test.old, test.new, 1)
		_, err := parseConfig("f", []byte(text+"retention: {identity: 9m}\n"), configNow)
		found := strings.Contains(shortly(problemsOf(err)), "identity must be "+test.window+" at least")
		if test.window == "" && err != nil || test.window != "" && !found {
			t.Errorf("%s: %v", test.name, err)
		}
		var f *failure
		if err != nil && (!errors.As(err, &f) || f.code != exitConfig) {
			t.Errorf("%s: %v has another exit code than 3", test.name, err)
		}
	}
	for identity, warned := range map[string]bool{"34d": true, "35d": false} {
		c, err := parseConfig("f", []byte(minimal+"retention: {identity: "+identity+"}\n"), configNow)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(shortly(c.warnings), "below 35d"); got != warned {
			t.Errorf("%s: warned %v", identity, got)
		}
	}
}
