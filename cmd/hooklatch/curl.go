package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hooklatch/hooklatch/verify"
)

// maxWord is the longest argument of a program on Linux, with room to spare; what
// the shell writes itself has no such bound.
const maxWord = 96 << 10

// curlLine writes a request as a line for a POSIX shell. host is that of the Host
// header where it is not the URL's; file holds the body, where one does.
func curlLine(r verify.Request, host, file string) string {
	words := []string{"curl", "-i", "-X", shellQuote(r.Method)}
	if strings.ContainsAny(r.URL, "[]{}") {
		words = append(words, "-g") // else each is a range or a list to curl
	}
	if strings.Contains(r.URL, "/.") {
		words = append(words, "--path-as-is")
	}
	if host != "" {
		words = append(words, "-H", shellQuote("Host: "+host))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			field := name + ": " + value
			if value == "" {
				field = name + ";" // a colon alone takes the header away
			}
			words = append(words, "-H", shellQuote(field))
		}
	}
	before, body := curlBody(r.Body, file)
	words = append(words, body...)
	return before + strings.Join(append(words, shellQuote(r.URL)), " ")
}

// curlBody says how curl gets the body, every byte of it: --data would cut newlines
// of a file.
func curlBody(body []byte, file string) (before string, words []string) {
	switch {
	case file != "":
		return "", []string{"--data-binary", shellQuote("@" + file)}
	case plainText(body) && len(body) <= maxWord:
		option := "--data-binary"
		if bytes.HasPrefix(body, []byte("@")) {
			option = "--data-raw" // else it names a file
		}
		return "", []string{option, shellQuote(string(body))}
	case plainText(body):
		return "printf %s " + shellQuote(string(body)) + " | ", []string{"--data-binary", "@-"}
	}
	return "printf '" + octal(body) + "' | ", []string{"--data-binary", "@-"}
}

// plainText says whether a shell keeps the text, and a terminal shows it as it is.
func plainText(body []byte) bool {
	return utf8.Valid(body) && !bytes.ContainsFunc(body, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
	})
}

// octal writes bytes as the format of printf.
func octal(body []byte) string {
	var b strings.Builder
	for _, c := range body {
		if c > ' ' && c < 0x7f && c != '%' && c != '\\' && c != '\'' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "\\%03o", c)
		}
	}
	return b.String()
}

// shellQuote writes a word so that a POSIX shell reads it back.
func shellQuote(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+=:,./-", r)
	}) < 0
	if plain && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
