package verify

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// handshakeVector is one pair of testdata/vectors/handshakes.json.
type handshakeVector struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	Secret   string `json:"secret"`
	Request  struct {
		Method     string            `json:"method"`
		URL        string            `json:"url"`
		Headers    map[string]string `json:"headers"`
		BodyBase64 string            `json:"body_base64"`
	} `json:"request"`
	Response struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	} `json:"response"`
}

func handshakeVectors(t testing.TB) []handshakeVector {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectorDir, "handshakes.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []handshakeVector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func (v *handshakeVector) request(t testing.TB) Request {
	t.Helper()
	r := Request{Method: v.Request.Method, URL: v.Request.URL, Header: http.Header{}}
	for name, value := range v.Request.Headers {
		r.Header[name] = []string{value}
	}
	var err error
	if r.Body, err = base64.StdEncoding.DecodeString(v.Request.BodyBase64); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHandshakesOfProviders(t *testing.T) {
	all := handshakeVectors(t)
	if len(all) != 22 {
		t.Errorf("%d pairs, want 22", len(all))
	}
	for _, pair := range all {
		t.Run(pair.Name, func(t *testing.T) {
			v := shaker(t, pair.Provider, pair.Secret)
			if err := v.Check(); err != nil {
				t.Fatal(err)
			}
			r := pair.request(t)
			if slices.Contains(signedBySender, pair.Name) {
				if a, ok, err := v.Handshake(r); err == nil {
					t.Errorf("answered without a signature: %v %+v", ok, a)
				}
				r = bySender(t, v, r)
			}
			a, ok, err := v.Handshake(r)
			var refused *Error
			if errors.As(err, &refused) {
				if pair.Response.Status < 400 || refused.Reason.Status() != pair.Response.Status {
					t.Errorf("refused with %d (%v), want %d", refused.Reason.Status(), err, pair.Response.Status)
				}
				return
			}
			if !ok {
				t.Fatal("is no handshake")
			}
			pair.compare(t, a)
			if _, b, err := v.Receive(r); err != nil || b.Kind != a.Kind || string(b.Body) != string(a.Body) {
				t.Errorf("Receive differs: %+v, %v", b, err)
			}
		})
	}
}

func (v *handshakeVector) compare(t *testing.T, a Answer) {
	t.Helper()
	if a.Status != v.Response.Status || string(a.Body) != v.Response.Body {
		t.Errorf("%d %s, want %d %s", a.Status, a.Body, v.Response.Status, v.Response.Body)
	}
	want := http.Header{}
	for name, value := range v.Response.Headers {
		if name != "X-Content-Type-Options" { // the server's
			want[name] = []string{value}
		}
	}
	for name := range want {
		if got, _, _ := headerValue(a.Header, name); got != want[name][0] {
			t.Errorf("%s: %q, want %q", name, got, want[name][0])
		}
	}
	if len(a.Header) != len(want) {
		t.Errorf("headers %v, want %v", a.Header, want)
	}
}
