package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// TestOctokitPayloads sends every payload of the npm package
// @octokit/webhooks-examples, real events of GitHub, through serve: over two
// connections at once, a third of them repeated. It needs the package's
// api.github.com/index.json and is run by make octokit.
func TestOctokitPayloads(t *testing.T) {
	file := os.Getenv("OCTOKIT_EXAMPLES")
	if file == "" {
		t.Skip("OCTOKIT_EXAMPLES does not name the payloads: run make octokit")
	}
	events := readOctokit(t, file)
	t.Logf("%d payloads", len(events))
	for _, c := range []struct {
		name      string
		failOneIn int // of the requests that the app gets; 0: none
	}{{"the app takes all", 0}, {"the app fails one in five", 5}} {
		t.Run(c.name, func(t *testing.T) { sendOctokit(t, events, c.failOneIn) })
	}
}

type octokitEvent struct {
	kind, id string
	body     []byte
}

func readOctokit(t *testing.T, file string) (events []octokitEvent) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []struct {
		Name     string
		Examples []json.RawMessage
	}
	if err := json.Unmarshal(text, &kinds); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, kind := range kinds {
		for _, body := range kind.Examples {
			events = append(events, octokitEvent{kind.Name, fmt.Sprintf("72d3162e-cc78-11e3-81ab-%012x", len(events)), body})
		}
	}
	return events
}

const octokitSecret = "It's a Secret to Everybody"

// request is signed by hand, so that our own signer proves nothing here.
func (e octokitEvent) request(url string) (*http.Request, error) {
	mac := hmac.New(sha256.New, []byte(octokitSecret))
	mac.Write(e.body)
	r, err := http.NewRequest("POST", url, strings.NewReader(string(e.body)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", e.kind)
	r.Header.Set("X-GitHub-Delivery", e.id)
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	return r, nil
}

// takingApp counts, for each delivery, the answers that took it and those that
// did not, and the bytes that were not as sent.
type takingApp struct {
	failOneIn int

	mu      sync.Mutex
	n       int
	bodies  map[string][]byte
	taken   map[string]int
	failed  int
	changed []string
}

func (a *takingApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	id := r.Header.Get("Hooklatch-Delivery-Id")
	if err != nil || string(body) != string(a.bodies[id]) || r.Header.Get("X-GitHub-Event") == "" {
		a.changed = append(a.changed, id)
	}
	if a.n++; a.failOneIn > 0 && a.n%a.failOneIn == 0 {
		a.failed++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	a.taken[id]++
}

func sendOctokit(t *testing.T, events []octokitEvent, failOneIn int) {
	app := &takingApp{failOneIn: failOneIn, bodies: map[string][]byte{}, taken: map[string]int{}}
	sent := append([]octokitEvent(nil), events...)
	for i, e := range events {
		app.bodies[e.id] = e.body
		if i%3 == 0 {
			sent = append(sent, e)
		}
	}
	rand.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
	backend := httptest.NewServer(app)
	defer backend.Close()

	s := newSite(t)
	s.write("gh", octokitSecret)
	config := s.write("hooklatch.yaml", `version: 1
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}
database: {url: {env: DATABASE_URL}}
stop: {lame_duck: 1ms}
sources:
  github:
    tenant: acme
    path: /in/github
    scheme: github
    keys: [{id: gh-1, secret: {file: gh}}]
    forward: [app]
destinations:
  app: {url: "`+backend.URL+`/hook", retry: {base: 10ms, cap: 100ms}}
`)
	p := start(t, []string{"DATABASE_URL=" + inboxtest.URL(t)}, "serve", "-c", config)
	url := "http://" + p.entry(`"msg":"ready"`)["http"].(string) + "/in/github"

	var mu sync.Mutex
	duplicates := 0
	work := make(chan octokitEvent)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
			defer client.CloseIdleConnections()
			for e := range work {
				r, err := e.request(url)
				if err != nil {
					t.Error(err)
					continue
				}
				a, err := try(client, r)
				if err != nil || a.status != http.StatusAccepted {
					t.Errorf("%s %s: %d %s, %v", e.kind, e.id, a.status, a.body, err)
				}
				mu.Lock()
				if strings.Contains(a.body, `"duplicate":true`) {
					duplicates++
				}
				mu.Unlock()
			}
		})
	}
	for _, e := range sent {
		work <- e
	}
	close(work)
	wg.Wait()
	eventually(t, "the app has taken every event", func() bool {
		app.mu.Lock()
		defer app.mu.Unlock()
		return len(app.taken) == len(events)
	})
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}
	for id, n := range app.taken {
		if n != 1 {
			t.Errorf("%s was taken %d times", id, n)
		}
	}
	if len(app.changed) > 0 {
		t.Errorf("not as sent: %v", app.changed)
	}
	if want := len(sent) - len(events); duplicates != want {
		t.Errorf("%d answers said duplicate, want %d", duplicates, want)
	}
	t.Logf("%d requests: %d new, %d duplicates; the app got %d requests, refused %d, took each of %d once, byte-identical",
		len(sent), len(events), duplicates, app.n, app.failed, len(app.taken))
}
