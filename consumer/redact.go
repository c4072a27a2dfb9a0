package consumer

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	redacted = "[redacted]"
	// shortestHidden bounds what is looked for in an answer: shorter values stand
	// there by chance.
	shortestHidden = 6
)

// redactor hides in what an app said what it must not have said: many an error page
// shows the request, and more people read the ledger than may hold a credential.
// It is a function, because what stands in one cannot be printed.
type redactor func(text []byte, sent http.Header) []byte

// newRedactor makes one that knows our secrets: those of the keys, and the query of
// the destination's URL, where tokens like to stand.
func newRedactor(keys []SigningKey, to *url.URL) redactor {
	ours := hidden{}
	for _, k := range keys {
		ours.add(string(k.Secret))
		ours.add(strings.TrimRight(base64.StdEncoding.EncodeToString(k.Secret), "="))
		ours.add(hex.EncodeToString(k.Secret))
	}
	ours.add(to.RawQuery)
	for part := range strings.SplitSeq(to.RawQuery, "&") {
		_, value, _ := strings.Cut(part, "=")
		ours.add(value)
		if plain, err := url.QueryUnescape(value); err == nil {
			ours.add(plain)
		}
	}
	return func(text []byte, sent http.Header) []byte {
		if len(text) < shortestHidden {
			return text
		}
		all := slices.Clone(ours)
		for name, values := range sent {
			if holdsCredential(name) {
				for _, v := range values {
					all.header(v)
				}
			}
		}
		return all.redact(text)
	}
}

// holdsCredential goes by the name: what lets its holder do something, or shows that
// the sender knew a secret.
func holdsCredential(name string) bool {
	name = fold(name)
	if strings.HasSuffix(name, "key-id") || strings.HasSuffix(name, "idempotency-key") {
		return false
	}
	return slices.ContainsFunc([]string{
		"signature", "authorization", "token", "secret", "password", "hmac", "cookie", "credential", "jwt", "-key", "-sig", "-auth", "-verification",
	}, func(word string) bool { return strings.Contains(name, word) })
}

// hidden are the values that must not be seen.
type hidden []string

func (all *hidden) add(value string) {
	if len(value) >= shortestHidden {
		*all = append(*all, value)
	}
}

// header adds a value and its parts, which is what a verifier shows of
// "t=1700000000,v1=5257a8…" or "Bearer abc…", and the password of "Basic …".
func (all *hidden) header(value string) {
	all.add(value)
	if basic, ok := strings.CutPrefix(value, "Basic "); ok {
		plain, _ := base64.StdEncoding.DecodeString(basic)
		_, password, _ := strings.Cut(string(plain), ":")
		all.add(password)
	}
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' || r == ';' }) {
		for part != "" {
			if strings.Trim(part, "0123456789") != "" { // a number is a time
				all.add(part)
			}
			_, part, _ = strings.Cut(part, "=")
		}
	}
}

// redact returns text without the values, as they are and as JSON, HTML and URLs
// spell them.
func (all hidden) redact(text []byte) []byte {
	jsonSlash := strings.NewReplacer("/", `\/`)
	jsonPlus := strings.NewReplacer("+", `\u002B`)
	htmlPlus := strings.NewReplacer("+", "&#43;")
	var spelled []string
	for _, value := range all {
		spelled = append(spelled, value, jsonSlash.Replace(value), jsonPlus.Replace(value), htmlPlus.Replace(value), url.QueryEscape(value))
	}
	slices.SortFunc(spelled, func(a, b string) int { return len(b) - len(a) }) // the whole before its parts
	for _, value := range slices.Compact(spelled) {
		v := []byte(value)
		if bytes.Contains(text, v) {
			text = bytes.ReplaceAll(text, v, []byte(redacted))
		}
		text = cutBeginning(text, v)
	}
	return text
}

// cutBeginning replaces the beginning of v at the end of text: an app may cut what it
// shows, and we cut what we read.
func cutBeginning(text, v []byte) []byte {
	for from := max(0, len(text)-len(v)); ; from++ {
		i := bytes.Index(text[from:], v[:shortestHidden])
		if i < 0 {
			return text
		}
		if from += i; bytes.HasPrefix(v, text[from:]) {
			return append(slices.Clone(text[:from]), redacted...)
		}
	}
}
