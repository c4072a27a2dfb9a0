package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// Two questions in a row get a line each, also where both were typed ahead.
func TestQuestionsTakeOneLineEach(t *testing.T) {
	var asked bytes.Buffer
	s := &stdio{in: strings.NewReader("  because \nyes\nlast"), err: &asked}
	for _, want := range []string{"because", "yes", "last", ""} {
		if got, err := s.ask(t.Context(), "? "); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if asked.String() != "? ? ? ? " {
		t.Errorf("asked %q", &asked)
	}
}

// Who is asked and leaves has left.
func TestQuestionsEndWithTheirContext(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&stdio{in: in, err: io.Discard}).ask(ctx, "? "); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestNobodyToAskIsAUsageError(t *testing.T) {
	s := &stdio{in: strings.NewReader("y\n"), err: io.Discard}
	var f *failure
	if _, err := s.reason(t.Context(), "release", " "); !errors.As(err, &f) || f.code != exitUsage {
		t.Errorf("reason: %v", err)
	}
	if err := s.confirm(t.Context(), "release", "sure?", false); !errors.As(err, &f) || f.code != exitUsage {
		t.Errorf("confirm: %v", err)
	}
	if reason, err := s.reason(t.Context(), "release", " mended "); err != nil || reason != "mended" {
		t.Errorf("%q, %v", reason, err)
	}
	if err := s.confirm(t.Context(), "release", "sure?", true); err != nil {
		t.Error(err)
	}
}
