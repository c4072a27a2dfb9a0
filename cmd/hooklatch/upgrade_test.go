package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/migrations"
)

// What the next version adds, and what it changes under statements that are prepared.
const (
	additiveSQL = `-- +goose Up
CREATE TABLE hooklatch.next_thing (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text);
ALTER TABLE hooklatch.inbox ADD COLUMN next_note text NOT NULL DEFAULT 'none';
ALTER TABLE hooklatch.outbox ADD COLUMN next_colour text;
CREATE INDEX outbox_next ON hooklatch.outbox (next_colour) WHERE next_colour IS NOT NULL;
COMMENT ON TABLE hooklatch.schema_version IS 'serves %[1]d';
-- +goose Down
COMMENT ON TABLE hooklatch.schema_version IS 'serves %[1]d';
DROP INDEX hooklatch.outbox_next;
ALTER TABLE hooklatch.outbox DROP COLUMN next_colour;
ALTER TABLE hooklatch.inbox DROP COLUMN next_note;
DROP TABLE hooklatch.next_thing;
`
	retypeSQL = `-- +goose Up
ALTER TABLE hooklatch.inbox ALTER COLUMN body_size TYPE bigint;
ALTER TABLE hooklatch.outbox ALTER COLUMN attempts TYPE bigint;
COMMENT ON TABLE hooklatch.schema_version IS 'serves %[1]d';
-- +goose Down
COMMENT ON TABLE hooklatch.schema_version IS 'serves %[1]d';
ALTER TABLE hooklatch.outbox ALTER COLUMN attempts TYPE integer;
ALTER TABLE hooklatch.inbox ALTER COLUMN body_size TYPE integer;
`
)

// buildNext builds this program with two more migrations, and returns its file and the
// version of its schema.
func buildNext(t *testing.T) (exe string, version int64) {
	t.Helper()
	now, err := migrations.Version()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	for i, sql := range []string{additiveSQL, retypeSQL} {
		name := fmt.Sprintf("%05d_next.sql", now+int64(i)+1)
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, fmt.Appendf(nil, sql, now), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(root, "migrations", name)] = file
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	exe = filepath.Join(dir, "hooklatch")
	out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", exe, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exe, now + 2
}

// runNext runs a command of the next version to its end.
func runNext(t *testing.T, exe, database string, args ...string) (code int, output string) {
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+database)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Error(err)
		return -1, ""
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// The next version brings its schema while this one works: senders get no answer but
// 202 or one that asks them to come again, and nothing is lost.
func TestP16_UpgradeWithoutAStop(t *testing.T) {
	t.Parallel()
	next, version := buildNext(t)
	app, appURL := startApp(t)
	s := newSite(t)
	file := s.config(appURL)
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	sv := startServe(t, s, database)
	pool := openPoolOf(t, database)

	var stop atomic.Bool
	var again, sent atomic.Int64
	var sending sync.WaitGroup
	for c := range 4 {
		sending.Go(func() {
			for n := 0; !stop.Load(); n++ {
				id := fmt.Sprintf("dlv_%d_%d", c, n)
				for {
					a, err := try(http.DefaultClient, s.request(sv.url, id, `{"id":"x","type":"t"}`))
					if err == nil && a.status == 202 {
						sent.Add(1)
						break
					}
					if err != nil || a.status != 503 || a.header.Get("Retry-After") == "" {
						t.Errorf("%s: %d %s %v", id, a.status, a.body, err)
						return
					}
					again.Add(1)
				}
			}
		})
	}
	// People look meanwhile, and the server counts what waits.
	sending.Go(func() {
		for !stop.Load() {
			p := start(t, []string{"DATABASE_URL=" + database}, "events", "list", "-c", file, "--limit", "20")
			if code := p.wait(); code != exitOK && !strings.Contains(p.output(), "store busy") { // the migration holds the table
				t.Errorf("events list: exit code %d\n%s", code, p.output())
			}
			get(t, sv.admin+"/metrics")
		}
	})
	eventually(t, "it works", func() bool { return sent.Load() > 100 })
	var migrating sync.WaitGroup
	var mu sync.Mutex
	applied := ""
	for range 2 {
		migrating.Go(func() {
			code, out := runNext(t, next, database, "migrate", "up")
			if code != exitOK {
				t.Errorf("migrate up: exit code %d\n%s", code, out)
			}
			mu.Lock()
			defer mu.Unlock()
			applied += out
		})
	}
	migrating.Wait()
	if strings.Count(applied, "applied 000") != 2 || strings.Count(applied, "nothing to do") != 1 {
		t.Errorf("two migrators said\n%s", applied)
	}
	if n := count(t, pool, `SELECT max(version_id) FROM hooklatch.schema_version`); int64(n) != version {
		t.Fatalf("void: the schema is version %d, want %d", n, version)
	}
	at := sent.Load()
	eventually(t, "it goes on", func() bool { return sent.Load() > at+100 })

	// A process of this version starts on the new schema, and one of the next beside it.
	startServe(t, s, database).end()
	other := startProgram(t, next, []string{"DATABASE_URL=" + database}, "serve", "-c", file)
	other.line(`"msg":"ready"`)
	stop.Store(true)
	sending.Wait()
	eventually(t, "all is handed on", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state <> 'accepted'`) == 0
	})
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox`); int64(n) != sent.Load() {
		t.Errorf("%d deliveries, %d were answered 202", n, sent.Load())
	}
	got := map[string]bool{}
	for _, r := range app.requests() {
		got[r.id] = true
	}
	if int64(len(got)) != sent.Load() {
		t.Errorf("the app has %d deliveries of %d", len(got), sent.Load())
	}
	sv.end()
	if out := sv.output(); strings.Contains(out, `"level":"ERROR"`) {
		t.Error("an error in the log")
	}
	for _, run := range []func() (int, string){
		func() (int, string) { return runNext(t, next, database, "audit", "--bodies") },
		func() (int, string) {
			p := start(t, []string{"DATABASE_URL=" + database}, "audit", "--bodies")
			return p.wait(), p.output()
		},
	} {
		if code, out := run(); code != exitOK {
			t.Errorf("audit: exit code %d\n%s", code, out)
		}
	}
	t.Logf("%d sent, %d answers of 503", sent.Load(), again.Load())
}
