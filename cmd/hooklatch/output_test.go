package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPrintableEscapesWhatMovesTheTerminal(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"plain", "dlv_1 é 你好", "dlv_1 é 你好"},
		{"newline and tab stay", "a\n\tb", "a\n\tb"},
		{"escape sequence", "\x1b]0;title\x07", `\u001b]0;title\u0007`},
		{"carriage return", "paid\rfake", `paid\u000dfake`},
		{"C1 control", "\u009b2J", `\u009b2J`},
		{"right to left override", "txt\u202egpj", `txt\u202egpj`},
		{"isolate", "\u2066a\u2069", `\u2066a\u2069`},
		{"line separator", "a\u2028b", `a\u2028b`},
		{"broken UTF-8", "a\xffb", `a\ufffdb`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := printable(test.text, true); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := printable(test.text, false); got != test.text {
				t.Errorf("into a file: got %q, want the bytes as they are", got)
			}
		})
	}
}

func TestColourOnlyWhereItIsWanted(t *testing.T) {
	table := func(s *stdio) string {
		var out bytes.Buffer
		s.out = &out
		s.printTable([]string{"name"}, [][]string{{"a\tb\nc"}})
		return out.String()
	}
	for _, name := range []string{"NO_COLOR", "FORCE_COLOR"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	if got := table(&stdio{}); got != "NAME\na\\tb\\nc\n" {
		t.Errorf("into a pipe: %q", got)
	}
	t.Setenv("FORCE_COLOR", "1")
	if got := table(&stdio{}); !strings.Contains(got, "\x1b[") {
		t.Errorf("FORCE_COLOR: %q", got)
	}
	if got := table(&stdio{noColor: true}); strings.Contains(got, "\x1b[") {
		t.Errorf("--no-color: %q", got)
	}
	t.Setenv("NO_COLOR", "1")
	if got := table(&stdio{}); strings.Contains(got, "\x1b[") {
		t.Errorf("NO_COLOR: %q", got)
	}
}

// Lines that a terminal breaks are no table.
func TestTablesAreCutAtTheWidthOfATerminal(t *testing.T) {
	var out bytes.Buffer
	s := &stdio{out: &out}
	s.printCut([]string{"scheme", "covers"}, [][]string{{"paypal", strings.Repeat("x", 90)}, {"slack", "body"}}, 40)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 40 {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	if !strings.Contains(out.String(), "xx…\n") || !strings.Contains(out.String(), "slack   body  ") {
		t.Error(out.String())
	}
}
