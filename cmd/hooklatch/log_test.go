package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/proxy"
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

// One alarm an id, whatever the sender is told.
func TestLogOfRepeats(t *testing.T) {
	for _, c := range []struct {
		name       string
		result     proxy.Result
		has, lacks string // words
	}{
		{"duplicate", proxy.Result{Outcome: proxy.OutcomeDuplicate}, `"level":"INFO"`, `"conflict": "alarm": kept_as`},
		{"guarded", proxy.Result{Outcome: proxy.OutcomeDuplicate, KeptAs: "dlv_0"}, `"level":"INFO" "kept_as":"dlv_0"`, `"conflict":`},
		{"refused", proxy.Result{Outcome: proxy.OutcomeConflict, Conflict: true, FirstConflict: true}, `"level":"WARN" "conflict":true "alarm":true`, "kept_as"},
		{"refused again", proxy.Result{Outcome: proxy.OutcomeConflict, Conflict: true}, `"level":"WARN" "conflict":true`, `"alarm":`},
		{"accept_first", proxy.Result{Outcome: proxy.OutcomeDuplicate, Conflict: true, FirstConflict: true}, `"level":"WARN" "outcome":"duplicate" "conflict":true "alarm":true`, "kept_as"},
	} {
		var b strings.Builder
		logRequest(t.Context(), newLogger(&b, "info", "json"), &c.result)
		for _, word := range strings.Fields(c.has) {
			if !strings.Contains(b.String(), word) {
				t.Errorf("%s: lacks %s: %s", c.name, word, b.String())
			}
		}
		for _, word := range strings.Fields(c.lacks) {
			if strings.Contains(b.String(), word) {
				t.Errorf("%s: has %s: %s", c.name, word, b.String())
			}
		}
	}
}
