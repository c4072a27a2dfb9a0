package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/verify"
)

// ran is what a server got of a line for the shell.
type ran struct {
	method, target, host string
	header               http.Header
	body                 []byte
}

// curlBodies are bodies that a shell or curl could spoil.
func curlBodies() map[string][]byte {
	return map[string][]byte{
		"JSON":                     []byte(`{"a":"it's","b":"$HOME ` + "`id`" + ` \\n"}`),
		"several lines":            []byte("{\n  \"a\": 1\n}\n"),
		"empty":                    {},
		"one newline":              []byte("\n"),
		"an @ in front":            []byte("@/etc/hostname"),
		"NUL":                      []byte("a\x00b"),
		"every byte":               everyByte(),
		"percent and octal":        []byte("\x01%s%d%%\\n\\0011"),
		"carriage return":          []byte("a\r\nb\r\n"),
		"no UTF-8":                 []byte("\xff\xfe"),
		"escape of terminals":      []byte("\x1b[2J"),
		"more than one word holds": bytes.Repeat([]byte("0123456789abcdef"), 10_000),
		"the same in binary":       append(bytes.Repeat([]byte("0123456789abcde\x00"), 10_000), 1),
		"begins with a dash":       []byte("-n hello"),
	}
}

func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// A line that the shell reads otherwise than it was meant posts other bytes, and the
// signature is blamed.
func TestCurlLinesPostTheSameBytes(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	var got ran
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = ran{r.Method, r.RequestURI, r.Host, r.Header, body}
	}))
	defer server.Close()
	dir := t.TempDir()
	for name, body := range curlBodies() {
		for _, file := range []string{"", "it's the body.bin"} {
			if file != "" {
				if err := os.WriteFile(filepath.Join(dir, file), body, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := verify.Request{Method: "PUT", URL: server.URL + "/in/[a]/../{b,c}?x=1&y='&z=%20", Body: body, Header: http.Header{
				"X-Quote": {"it's \"$HOME\""}, "X-Empty": {""}, "X-Twice": {"1", "2"}, "Content-Type": {"text/x"}, "X-Star": {"*?~ #!"},
			}}
			line := curlLine(r, "hooks.example.com", file)
			script := filepath.Join(dir, "script") // no argument is as long as a script may be
			if err := os.WriteFile(script, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", script)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			if !bytes.Equal(got.body, body) || got.method != "PUT" || got.target != "/in/[a]/../{b,c}?x=1&y='&z=%20" || got.host != "hooks.example.com" {
				t.Errorf("%s: got %s %s at %s, %d bytes of %d", name, got.method, got.target, got.host, len(got.body), len(body))
			}
			for header, values := range r.Header {
				if !slices.Equal(got.header[header], values) {
					t.Errorf("%s: header %s: got %q, want %q", name, header, got.header[header], values)
				}
			}
		}
	}
}

func TestCurlLinesShowNothingThatMovesTheTerminal(t *testing.T) {
	for name, body := range curlBodies() {
		line := curlLine(verify.Request{Method: "POST", URL: "http://h/", Body: body}, "", "")
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == '\ufffd' }) {
			t.Errorf("%s: %q", name, line)
		}
	}
}
