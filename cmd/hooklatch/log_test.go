package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestLogLevelOfTheEnvironmentGoesFirst(t *testing.T) {
	for _, test := range []struct{ env, configured, want string }{
		{"", "warn", "warn"},
		{"debug", "warn", "debug"},
		{"loud", "warn", ""},
	} {
		t.Setenv("HOOKLATCH_LOG_LEVEL", test.env)
		got, err := logLevel(test.configured)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("HOOKLATCH_LOG_LEVEL=%s: %q, %v, want %q", test.env, got, err, test.want)
		}
	}
}

// pgx has a line for each attempt to connect.
func TestLogTellsAnErrorInOneLine(t *testing.T) {
	var out bytes.Buffer
	newLogger(&out, "info", "json").Warn("x", "error", errors.New("connect:\n\ta: refused\n\ta: refused\n\tb: refused"))
	if !strings.Contains(out.String(), `"error":"connect: a: refused b: refused"`) {
		t.Error(out.String())
	}
}
