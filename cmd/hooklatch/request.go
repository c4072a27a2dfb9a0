package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

// maxRequestFile bounds what is read of one file or of stdin.
const maxRequestFile = 256 << 20

// requestOptions say where a request stands: in one raw file, or in parts.
type requestOptions struct {
	request       string // file with request line, headers, blank line and body
	headers, body string // files
	method, url   string
}

func requestFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "headers", TakesFile: true, Usage: "`FILE` of Name: value lines; - is stdin"},
		&cli.StringFlag{Name: "body", TakesFile: true, Usage: "`FILE` with the body, every byte of it; - is stdin"},
		&cli.StringFlag{Name: "method", Value: "POST", Usage: "`METHOD` of the request"},
		&cli.StringFlag{Name: "url", Usage: "`URL` as the sender knows it"},
	}
}

func readRequestOptions(c *cli.Context) requestOptions {
	return requestOptions{
		request: c.String("request"), headers: c.String("headers"), body: c.String("body"),
		method: c.String("method"), url: c.String("url"),
	}
}

// read returns the request. What is odd but harmless is a note.
func (o requestOptions) read(ctx context.Context, s *stdio) (verify.Request, error) {
	if o.request != "" {
		if o.headers != "" || o.body != "" {
			return verify.Request{}, usagef("leave --headers and --body out", "--request holds headers and body already")
		}
		raw, err := readInput(ctx, s, o.request)
		if err != nil {
			return verify.Request{}, err
		}
		r, err := parseRequest(s, raw)
		if err != nil {
			return r, fail(exitUsage, fmt.Errorf("read request %s: %w", o.request, err), "--headers FILE and --body FILE")
		}
		if o.url != "" {
			r.URL = o.url
		}
		return r, nil
	}
	if o.body == "" {
		return verify.Request{}, usagef("--body FILE, or - for stdin", "no body is named")
	}
	r := verify.Request{Method: o.method, URL: o.url, Header: http.Header{}}
	if o.headers != "" {
		text, err := readInput(ctx, s, o.headers)
		if err != nil {
			return r, err
		}
		if r.Header, _, err = parseHeader(text); err != nil {
			return r, fail(exitUsage, fmt.Errorf("read headers %s: %w", o.headers, err), "")
		}
	}
	var err error
	r.Body, err = readInput(ctx, s, o.body)
	return r, err
}

// readInput reads a file, or stdin for "-".
func readInput(ctx context.Context, s *stdio, file string) ([]byte, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = s.readIn(ctx, maxRequestFile+1)
	} else {
		text, err = readFile(file, maxRequestFile+1)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fail(exitUsage, err, "")
	case len(text) > maxRequestFile:
		return nil, fail(exitUsage, fmt.Errorf("read %s: larger than %s", file, size(maxRequestFile)), "")
	}
	return text, nil
}

func readFile(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

var errStdinTwice = errors.New("stdin was read already: of all files one can be -")

// readIn reads stdin to its end, or until ctx ends: who typed a command that waits
// for stdin must be able to leave it. The read itself cannot be ended; it goes with
// the process.
func (s *stdio) readIn(ctx context.Context, most int64) ([]byte, error) {
	if s.inRead {
		return nil, errStdinTwice
	}
	s.inRead = true
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(s.in, most))
		read <- result{text, err}
	}()
	select {
	case r := <-read:
		return r.text, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// parseRequest reads a raw request. Lines of its head end in LF or CRLF; the
// body is every byte behind the blank line.
func parseRequest(s *stdio, raw []byte) (verify.Request, error) {
	line, rest, _ := bytes.Cut(raw, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/") {
		return verify.Request{}, errors.New("the first line is no request line such as POST /in/billing HTTP/1.1")
	}
	header, body, err := parseHeader(rest)
	if err != nil {
		return verify.Request{}, err
	}
	if _, chunked := header["Transfer-Encoding"]; chunked {
		return verify.Request{}, errors.New("Transfer-Encoding: the body must stand as it was signed, without chunk sizes")
	}
	if length := header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(body)) {
		s.note("note: Content-Length says %s, but %d bytes follow the blank line", length, len(body))
	}
	target := words[1]
	if host := header.Get("Host"); host != "" && strings.HasPrefix(target, "/") {
		target = "https://" + host + target
	}
	// As a server sees it: Host is no field of the header.
	header.Del("Host")
	return verify.Request{Method: words[0], URL: target, Header: header, Body: body}, nil
}

// parseHeader reads Name: value lines up to a blank line. What follows is rest.
func parseHeader(text []byte) (header http.Header, rest []byte, err error) {
	header = http.Header{}
	for n := 1; len(text) > 0; n++ {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			return header, text, nil
		}
		name, value, ok := strings.Cut(string(line), ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, nil, fmt.Errorf("header line %d is no Name: value", n)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		header[name] = append(header[name], strings.Trim(value, " \t"))
	}
	return header, nil, nil
}
