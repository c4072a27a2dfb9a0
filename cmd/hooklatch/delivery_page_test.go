package main

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// The commands of the page on delivery work as they stand, one after the other, beside a
// running server with the configuration of the page and a few dead letters.
func TestDeliveryPageCommandsWork(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/delivery.md")
	_, yaml, found := strings.Cut(text, "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	if !found {
		t.Fatal("void: the page has no configuration")
	}
	var mended atomic.Bool
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !mended.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(app.Close)
	s := newSite(t)
	if err := os.Mkdir(filepath.Join(s.dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("keys/k1", strings.Repeat("0123456789abcdef", 4))
	s.write("hooklatch.yaml", strings.NewReplacer(":8080", ":0", ":9464", ":0", "http://127.0.0.1:3000", app.URL, "max_attempts: 12", "max_attempts: 1").Replace(yaml))
	pool := inboxtest.New(t)
	database := pool.Config().ConnString()
	wholeAtEnd(t, database)
	_, url := s.serve(s.dir+"/hooklatch.yaml", database)
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	old := inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: "dlv_old", Method: "POST", BodyHash: sha256.Sum256(nil),
		Forwards: []inbox.NewForward{{Destination: "old"}}}
	if err := store.SaveDestinations(t.Context(), 0, []inbox.Destination{{Name: "old", URL: app.URL}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Accept(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"dlv_1", "dlv_2", "dlv_3", "dlv_4"} {
		if a := post(t, s, url, id, "{}"); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	eventually(t, "there are dead letters", func() bool {
		return number(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'blocked'`) == 4
	})

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(bin, "hooklatch")); err != nil {
		t.Fatal(err)
	}
	run := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "hooklatch ") || strings.HasPrefix(line, "hooklatch serve") {
			continue
		}
		command, _, _ := strings.Cut(strings.TrimSpace(line), " #")
		mended.Store(strings.HasPrefix(command, "hooklatch replay"))
		if strings.Contains(command, "--reason") {
			command += " --yes"
		}
		sh := exec.Command("sh", "-c", command)
		sh.Dir = s.dir
		sh.Env = append(os.Environ(), "DATABASE_URL="+database, "PATH="+bin+":"+os.Getenv("PATH"), "GORACE="+quickExit)
		if out, err := sh.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		run++
	}
	if run < 10 {
		t.Fatalf("void: the page has %d commands", run)
	}
}
