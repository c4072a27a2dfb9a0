package verify

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzHandshake: whatever comes, an answer is short, plain where it is text and whole
// where it is JSON; it holds no secret; and a request that verifies is answered by one
// of the two ways alike.
func FuzzHandshake(f *testing.F) {
	var shakers []*Verifier
	for _, name := range Presets() {
		if s, _ := Preset(name); len(s.p.handshakes) > 0 {
			shakers = append(shakers, shaker(f, name, ""))
		}
	}
	for _, v := range handshakeVectors(f) {
		r := v.request(f)
		for i := range shakers {
			f.Add(i, r.Method, r.URL, textOf(r.Header), r.Body)
		}
	}
	f.Fuzz(func(t *testing.T, i int, method, url, headers string, body []byte) {
		v := shakers[uint(i)%uint(len(shakers))]
		r := Request{Method: method, URL: url, Header: headerOf(headers), Body: body}
		a, is, err := v.Handshake(r)
		_, both, bothErr := v.Receive(r)
		if is && err == nil && (a.Kind == "" || both.Kind != a.Kind || bothErr != nil || !bytes.Equal(a.Body, both.Body)) {
			t.Fatalf("Handshake answers %+v, Receive %+v, %v", a, both, bothErr)
		}
		if is && err != nil && bothErr == nil {
			t.Fatalf("Handshake refuses with %v, Receive takes it", err)
		}
		if !is || err != nil {
			return
		}
		if a.Status != 200 && a.Status != 204 || len(a.Body) > 2048 || a.Status == 204 && len(a.Body) > 0 {
			t.Fatalf("status %d, %d bytes", a.Status, len(a.Body))
		}
		for name, lines := range a.Header {
			if len(lines) != 1 || strings.ContainsAny(name+lines[0], "\r\n\x00") || len(lines[0]) > 1024 {
				t.Fatalf("header %q: %q", name, lines)
			}
		}
		switch a.Header.Get("Content-Type") {
		case "":
			if len(a.Body) > 0 {
				t.Fatalf("a body of no type: %q", a.Body)
			}
		case "application/json":
			if !json.Valid(a.Body) {
				t.Fatalf("no JSON: %q", a.Body)
			}
		default:
			if bytes.ContainsAny(a.Body, "<>&\"'\r\n\x00") || bytes.ContainsFunc(a.Body, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("no plain text: %q", a.Body)
			}
		}
		if secret := strings.Repeat("s", 40); bytes.Contains(a.Body, []byte(secret)) && !strings.Contains(url+headers+string(body), "s") {
			t.Fatalf("the secret is in %q", a.Body)
		}
		if a.Confirm != "" && !strings.HasPrefix(a.Confirm, "https://") {
			t.Fatalf("confirms %q", a.Confirm)
		}
	})
}
