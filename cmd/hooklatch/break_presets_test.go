package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// memoryInbox knows ids and bytes for as long as a test.
type memoryInbox struct {
	mu   sync.Mutex
	seen map[string][32]byte
}

func (m *memoryInbox) Accept(_ context.Context, d inbox.Delivery) (inbox.Receipt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	hash, there := m.seen[d.DeliveryID]
	switch sum := sha256.Sum256(d.Body); {
	case there && hash != sum && !d.AcceptFirst:
		return inbox.Receipt{}, &inbox.ConflictError{Tenant: d.Tenant, Source: d.Source, DeliveryID: d.DeliveryID, First: true}
	case !there:
		m.seen[d.DeliveryID] = sum
	}
	return inbox.Receipt{ID: 1, Duplicate: there, ReceivedAt: time.Now()}, nil
}

// receiving is a running proxy with one source of the scheme, whose key is in file.
func receiving(t *testing.T, scheme verify.Scheme, file string) string {
	t.Helper()
	text, err := readSecretFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key, err := verify.NewKey("k1", text, scheme.SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	url := "http://" + server.Listener.Addr().String() + "/in"
	v := &verify.Verifier{Scheme: scheme, Keys: keys, URL: url, Params: map[string]string{}}
	for _, name := range scheme.Recipe().Params {
		v.Params[name] = "example"
	}
	// An id in the body where the scheme has none: that of the sample.
	from := "/id"
	if of := sampleOf(scheme, "dlv_1", time.Now()); of.header.Get("Content-Type") != "application/json" {
		from = "form:event_id"
	}
	event, err := verify.ParseField(from)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(&memoryInbox{seen: map[string][32]byte{}}, proxy.Config{Sources: []proxy.Source{
		{Name: "s", Tenant: "t", Path: "/in", Verifier: v, EventID: event}}})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = p
	server.Start()
	t.Cleanup(server.Close)
	return url
}

// noBody are schemes that sign nothing of the body, beside static tokens.
var noBody = []string{"monday", "plivo-v2"}

// breakable says whether a scheme has the part that a kind of fault spoils.
func breakable(kind string, scheme verify.Scheme) bool {
	recipe := scheme.Recipe()
	weak := scheme.Weaknesses()
	switch kind {
	case "body":
		token := slices.ContainsFunc(weak, func(w verify.Weakness) bool { return w.Code == "static_token" })
		return !token && !slices.Contains(noBody, scheme.Name())
	case "clock":
		open := slices.ContainsFunc(weak, func(w verify.Weakness) bool { return w.Code == "no_window" })
		return scheme.HasTimestamp() && !open
	case "key":
		return scheme.UsesKeyID()
	case "id":
		return recipe.ID != nil && strings.Contains(recipe.ID.From[0], "header:")
	case "revision":
		body := sampleOf(scheme, "dlv_1", time.Now()).body
		return bytes.HasPrefix(body, []byte("{"))
	case "conflict":
		return recipe.ID == nil || recipe.ID.From[0] != "body_sha256_hex"
	}
	return true
}

// Each fault is made for every scheme that has such a part, and the receiver answers
// it as the help page says; elsewhere send says that there is none.
func TestEveryFaultOfEveryPreset(t *testing.T) {
	for _, name := range verify.Presets() {
		t.Run(name, func(t *testing.T) {
			key := filepath.Join(t.TempDir(), "key")
			if code, _, messages := hooklatch(t, "keygen", "--scheme", name, "-o", key); code != exitOK {
				t.Fatal(messages)
			}
			public := key
			if _, err := os.Stat(key + ".pub"); err == nil {
				public += ".pub"
			}
			scheme, _ := verify.Preset(name)
			url := receiving(t, scheme, public)
			args := append([]string{"send", "--json", "--url", url}, presetFlags(scheme, key)...)
			for _, kind := range append([]string{""}, breakNames()...) {
				if kind == "conflict" && name == "travis-ci" {
					continue // its sample has no id that another body could have too
				}
				want := exitOK
				if !breakable(kind, scheme) {
					want = exitUsage
				}
				line := args
				if kind != "" {
					line = append(slices.Clone(args), "--break", kind)
				}
				code, out, messages := hooklatch(t, line...)
				if code != want {
					t.Errorf("--break %s: exit code %d, want %d\n%s%s", kind, code, want, out, messages)
				}
				if want == exitUsage && !strings.Contains(messages, fmt.Sprintf("send: scheme %s has no ", name)) {
					t.Errorf("--break %s: %s", kind, messages)
				}
			}
		})
	}
}
