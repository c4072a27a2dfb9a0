package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/verify"
)

// presetRequest is a request that verifies under a preset, taken from the vectors.
type presetRequest struct {
	scheme verify.Scheme
	source Source
	m      *message
	sig    string // the header of the signature, as it is written; empty: it lies elsewhere
	list   bool   // the header may stand on several lines
}

// presetRequests is one request for each preset that has vectors.
func presetRequests(t testing.TB) (all []presetRequest) {
	t.Helper()
	for _, name := range verify.Presets() {
		text, err := os.ReadFile("../testdata/vectors/" + name + ".json")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var vectors []struct {
			Secret       string
			ExtraSecrets []string `json:"extra_secrets"`
			Method, URL  string
			Headers      map[string][]string
			Body         string `json:"body_base64"`
			Now          int64  `json:"now_unix"`
			Expect       string
		}
		if err := json.Unmarshal(text, &vectors); err != nil {
			t.Fatal(name, err)
		}
		scheme, _ := verify.Preset(name)
		if scheme.SecretSpec().MinLen > 1 { // some vectors have shorter secrets
			own, err := verify.ParseRecipe([]byte(`{"preset":"` + name + `","secret_spec":{"min_len":1}}`))
			if err != nil {
				t.Fatal(name, err)
			}
			if scheme, err = own.Compile(); err != nil {
				t.Fatal(name, err)
			}
		}
		recipe := scheme.Recipe()
		found := false
		for _, v := range vectors {
			if found || v.Expect != "valid" || v.Method != "POST" {
				continue
			}
			var keys []verify.Key
			for _, secret := range append([]string{v.Secret}, v.ExtraSecrets...) {
				k, err := verify.NewKey("", []byte(secret), scheme.SecretSpec())
				if err == nil {
					keys = append(keys, k)
				}
			}
			set, err := verify.NewKeySet(keys...)
			if err != nil {
				t.Fatal(name, err)
			}
			p := presetRequest{scheme: scheme, m: &message{method: v.Method, target: "/in/" + name}}
			if u, err := url.Parse(v.URL); err == nil && u.RawQuery != "" {
				p.m.target += "?" + u.RawQuery
			}
			if p.m.body, err = base64.StdEncoding.DecodeString(v.Body); err != nil {
				t.Fatal(name, err)
			}
			for _, header := range slices.Sorted(maps.Keys(v.Headers)) {
				for _, value := range v.Headers[header] {
					p.m.header = append(p.m.header, [2]string{header, value})
				}
			}
			for _, header := range scheme.Headers() {
				if p.m.get(header) == "" && !slices.Contains(recipe.Signature.Names, header) {
					p.m = p.m.add(header, "dlv_1") // the vector's own scheme does not look there
				}
			}
			p.sig = recipe.Signature.Name
			if in := recipe.Signature.In; in != "" && in != "header" || strings.HasPrefix(recipe.Algo, "code:") {
				p.sig = ""
			}
			p.list = recipe.Signature.ListSep == "," || recipe.Signature.MultiValue
			var sns struct{ TopicArn string }
			_ = json.Unmarshal(p.m.body, &sns) // others have none
			p.source = Source{Name: name, Tenant: "t1", Path: "/in/" + name, Verifier: &verify.Verifier{
				Scheme: scheme, Keys: set, URL: v.URL, Now: clock(v.Now), Params: map[string]string{"webhook_id": "4JH86294D6297924G", "topic_arn": sns.TopicArn},
			}}
			if !scheme.HasDeliveryID() {
				p.source.EventID = field(t, "body_sha256_hex")
			}
			_, err = p.source.Verifier.Verify(verify.Request{Method: v.Method, URL: p.m.target, Header: headerMap(p.m), Body: p.m.body})
			if found = err == nil && p.source.Verifier.Check() == nil; found {
				all = append(all, p)
			}
		}
		if !found {
			t.Logf("%s: no vector that can be sent", name)
		}
	}
	return all
}

func headerMap(m *message) map[string][]string {
	h := map[string][]string{}
	for _, line := range m.header {
		h[line[0]] = append(h[line[0]], line[1])
	}
	return h
}

// Every preset over HTTP: its request is taken, and what is hostile is refused before
// the inbox hears of it.
func TestEveryPresetOverHTTPAndHostileVariants(t *testing.T) {
	t.Parallel()
	all := presetRequests(t)
	if len(all) < 90 {
		t.Errorf("only %d presets", len(all))
	}
	in := &recorder{}
	var sources []Source
	for _, p := range all {
		sources = append(sources, p.source)
	}
	g := start(t, setup{inbox: in, cfg: Config{Sources: sources}})
	large := false
	for _, p := range all {
		name := p.scheme.Name()
		before := len(in.deliveries())
		if a := g.send(p.m); a.status < 200 || a.status > 299 {
			t.Errorf("%s: status %d: %s", name, a.status, a.body)
			continue
		}
		got := in.deliveries()
		if name == "xero" { // its vector is the probe
			if len(got) != before || !bytes.Contains(p.m.body, []byte(`"events":[]`)) {
				t.Errorf("%s: a probe was stored, or is none", name)
			}
		} else if len(got) != before+1 || string(got[before].Body) != string(p.m.body) || got[before].Source != name {
			t.Errorf("%s: %d deliveries", name, len(got)-before)
		}
		refused := func(defect, wire string, statuses ...int) {
			t.Helper()
			a := g.raw(wire)
			if !slices.Contains(statuses, a.status) {
				t.Errorf("%s, %s: status %d, want %v: %.200s", name, defect, a.status, statuses, a.body)
			}
			if n := len(in.deliveries()); n != len(got) {
				t.Fatalf("%s, %s: reached the inbox", name, defect)
			}
		}
		unauthorized := []int{400, 401, 403}
		if p.scheme.BodySigned() && len(p.m.body) > 0 {
			other := p.m.clone()
			other.body = slices.Clone(other.body)
			other.body[len(other.body)/2] ^= 1
			refused("a bit of the body", other.wire(), unauthorized...)
			other.body = append(slices.Clone(p.m.body), '\n')
			refused("a newline behind the body", other.wire(), unauthorized...)
		}
		if p.sig == "" {
			continue
		}
		value := p.m.get(p.sig)
		refused("no signature", p.m.set(p.sig).wire(), unauthorized...)
		refused("an empty one", p.m.set(p.sig, "").wire(), unauthorized...)
		refused("invalid UTF-8", p.m.set(p.sig, "\xff\xfe\xc3\x28").wire(), unauthorized...)
		refused("10,000 candidates in one line", p.m.set(p.sig, strings.Repeat("0,", 10000)+value).wire(), 400, 401, 403, 431)
		if !large { // the server refuses these, whatever the scheme
			large = true
			refused("1 MiB", p.m.set(p.sig, strings.Repeat("a", 1<<20)).wire(), 431)
			refused("10,000 lines", p.m.set(p.sig, slices.Repeat([]string{value}, 10000)...).wire(), 431)
		}
		refused("its underscore spelling beside", p.m.add(strings.ReplaceAll(p.sig, "-", "_"), value).wire(), 400)
		if !p.list {
			refused("two lines", p.m.set(p.sig, value, value).wire(), 400)
			refused("two lines, one empty", p.m.set(p.sig, value, "").wire(), 400)
		}
	}
}
