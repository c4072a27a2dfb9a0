package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The exit codes. Scripts branch on them.
const (
	exitOK          = 0
	exitNo          = 1 // the answer is no
	exitUsage       = 2 // the command line is wrong
	exitConfig      = 3 // the configuration, a key or a recipe is wrong
	exitUnreachable = 4 // the database or the server cannot be reached
	exitPartly      = 5 // done in part
	exitInterrupted = 130
)

// failure is an error as the person at the terminal meets it: what and why, the
// exit code, and the next thing to try.
type failure struct {
	code int
	err  error  // nil: all has been said already
	try  string // a command or a sentence; empty: nothing comes to mind
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// oneLine joins the lines of an error, each of them once: pgx lists every attempt
// to connect, and with a server that is away all say the same.
func oneLine(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// shortError is err in one line.
type shortError struct{ error }

func (e shortError) Error() string { return oneLine(e.error.Error()) }
func (e shortError) Unwrap() error { return e.error }

// fail gives err an exit code and a next step.
func fail(code int, err error, try string) error {
	return &failure{code: code, err: err, try: try}
}

// answerNo ends a command whose output has said no.
func answerNo() error { return &failure{code: exitNo} }

// usagef makes a usage error: what to try, then what is wrong.
func usagef(try, format string, args ...any) error {
	return fail(exitUsage, fmt.Errorf(format, args...), try)
}

// report prints err and returns the exit code that goes with it.
func report(ctx context.Context, s *stdio, err error) int {
	if err == nil {
		return exitOK
	}
	var f *failure
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		fmt.Fprintln(s.err, "hooklatch: interrupted")
		return exitInterrupted
	}
	if !errors.As(err, &f) {
		f = &failure{code: exitNo, err: err}
	}
	if f.err != nil {
		// What was wrapped around the failure is printed too.
		fmt.Fprintf(s.err, "hooklatch: %s\n", printable(err.Error(), isTerminal(s.err)))
	}
	if f.try != "" {
		fmt.Fprintf(s.err, "Try: %s\n", printable(f.try, isTerminal(s.err)))
	}
	return f.code
}
