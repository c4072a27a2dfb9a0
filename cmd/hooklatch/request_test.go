package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

func TestParseRequest(t *testing.T) {
	for _, test := range []struct {
		name, raw string
		body, err string
		note      string
	}{
		{"LF", "POST /in HTTP/1.1\nHost: h\nA: 1\n\nbody", "body", "", ""},
		{"CRLF", "POST /in HTTP/1.1\r\nHost: h\r\nA: 1\r\n\r\nbody", "body", "", ""},
		{"CRLF in the body stays", "POST /in HTTP/1.1\r\nA: 1\r\n\r\nbo\r\n\r\ndy\n", "bo\r\n\r\ndy\n", "", ""},
		{"no body", "POST /in HTTP/1.1\nA: 1\n\n", "", "", ""},
		{"no blank line", "POST /in HTTP/1.1\nA: 1\n", "", "", ""},
		{"length that differs", "POST / HTTP/1.1\nA: 1\nContent-Length: 5\n\nbody", "body", "", "Content-Length says 5, but 4 bytes follow"},
		{"chunked", "POST / HTTP/1.1\nA: 1\ntransfer-encoding: chunked\n\n4\nbody\n0\n\n", "", "Transfer-Encoding", ""},
		{"no request line", "A: 1\n\nbody", "", "no request line", ""},
		{"folded header", "POST / HTTP/1.1\nA: 1\n  2\n\n", "", "header line 2", ""},
		{"line without a colon", "POST / HTTP/1.1\nA: 1\nB\n\n", "", "header line 2", ""},
		{"blank before the colon", "POST / HTTP/1.1\nA : 1\n\n", "", "header line 1", ""},
		{"empty", "", "", "no request line", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var notes bytes.Buffer
			r, err := parseRequest(&stdio{err: &notes}, []byte(test.raw))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error with %q", err, test.err)
				}
				return
			}
			if err != nil || string(r.Body) != test.body || r.Method != "POST" || r.Header.Get("A") != "1" || r.Header.Get("Host") != "" {
				t.Errorf("got %+v, %v", r, err)
			}
			if !strings.Contains(notes.String(), test.note) || test.note == "" && notes.Len() > 0 {
				t.Errorf("note %q, want %q", notes.String(), test.note)
			}
		})
	}
	r, err := parseRequest(&stdio{}, []byte("POST /in?a=%41 HTTP/1.1\nHost: hooks.example.com\nB: x\nb:  y \n\n"))
	if err != nil || r.URL != "https://hooks.example.com/in?a=%41" || strings.Join(r.Header["B"], "|") != "x|y" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestShellQuote(t *testing.T) {
	for text, want := range map[string]string{
		"plain-1.2": "plain-1.2", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME`id`": "'$HOME`id`'", "ü": "'ü'",
	} {
		if got := shellQuote(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// The second of two files that are - would be empty, and the error about that.
func TestStdinIsReadForOneFileOnly(t *testing.T) {
	for _, args := range []string{"--secret-file - --request -", "--secret-file a=- --secret-file b=- --request f", "--secret-file - --headers - --body f"} {
		var out bytes.Buffer
		s := &stdio{in: strings.NewReader("a secret"), out: &out, err: &out}
		code := run(t.Context(), s, append([]string{"verify", "--scheme", "github"}, strings.Fields(args)...))
		if code != exitUsage || !strings.Contains(out.String(), errStdinTwice.Error()) {
			t.Errorf("%s: exit code %d\n%s", args, code, out.String())
		}
	}
}

// A command that waits for stdin ends with the first Ctrl-C.
func TestInterruptWhileStdinIsOpen(t *testing.T) {
	in, keyboard := io.Pipe()
	defer keyboard.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int)
	var out, messages bytes.Buffer
	go func() {
		code <- run(ctx, &stdio{in: in, out: &out, err: &messages}, []string{"verify", "--scheme", "github", "--secret-file", "-", "--request", "x"})
	}()
	if _, err := keyboard.Write([]byte("half a secret")); err != nil {
		t.Fatal(err)
	}
	interrupt()
	if got := <-code; got != exitInterrupted || messages.String() != "hooklatch: interrupted\n" {
		t.Errorf("exit code %d, %q", got, messages.String())
	}
}
