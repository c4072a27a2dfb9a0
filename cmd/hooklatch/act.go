package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/urfave/cli/v2"
)

// What people do to deliveries goes into the audit: who, and why. The reason is
// never invented.

// actFlags belong to every command that changes deliveries for a person.
func actFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "reason", Usage: "`TEXT` that says why, for the audit; asked for on a terminal if left out"},
		&cli.BoolFlag{Name: "dry-run", Usage: "say what would be done, and do nothing"},
		&cli.BoolFlag{Name: "yes", Usage: "do not ask for confirmation"},
	}
}

// actor is who runs this process, for the audit.
func actor() string {
	name := fmt.Sprint("uid ", os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if before := os.Getenv("SUDO_USER"); before != "" && before != name {
		return before + " as " + name
	}
	return name
}

// asks says whether a person can be asked.
func (s *stdio) asks() bool { return isTerminal(s.in) && isTerminal(s.err) }

// reason is the one that was given, else what a person at the terminal answers.
func (s *stdio) reason(ctx context.Context, command, given string) (string, error) {
	reason := strings.TrimSpace(given)
	if reason == "" && s.asks() {
		answer, err := s.ask(ctx, "reason, for the audit: ")
		if err != nil {
			return "", err
		}
		reason = answer
	}
	if reason == "" {
		return "", usagef("--reason 'order 17 was mended by hand'", "%s: a reason is demanded: it stands in the audit", command)
	}
	return reason, nil
}

// confirm asks whether to go on, unless yes was said before. Where nobody can be
// asked, it must have been.
func (s *stdio) confirm(ctx context.Context, command, question string, yes bool) error {
	if yes {
		return nil
	}
	if !s.asks() {
		return usagef("--yes, or --dry-run to see what would be done", "%s: nobody can be asked for confirmation here", command)
	}
	answer, err := s.ask(ctx, question+" [y/N] ")
	if err != nil {
		return err
	}
	if a := strings.ToLower(answer); a != "y" && a != "yes" {
		return fail(exitNo, fmt.Errorf("%s: nothing was done", command), "")
	}
	return nil
}

// ask reads one line. The read cannot be ended: it goes with the process.
func (s *stdio) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(s.err, printable(question, isTerminal(s.err)))
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := readLine(s.in)
		read <- result{line, err}
	}()
	select {
	case r := <-read:
		return strings.TrimSpace(r.line), r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// readLine takes one line and nothing behind it: the next question wants that.
func readLine(in io.Reader) (string, error) {
	var line []byte
	for c := make([]byte, 1); len(line) < 4<<10; {
		n, err := in.Read(c)
		if n == 1 && c[0] == '\n' || err == io.EOF {
			return string(line), nil
		}
		if err != nil {
			return "", err
		}
		line = append(line, c[:n]...)
	}
	return string(line), nil
}
