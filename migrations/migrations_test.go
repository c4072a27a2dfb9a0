package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// empty returns the address of a database without a schema.
func empty(t *testing.T) string {
	t.Helper()
	url := inboxtest.URL(t)
	exec1(t, url, `DROP SCHEMA hooklatch CASCADE`)
	return url
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func newest(t *testing.T) int64 {
	t.Helper()
	version, err := migrations.Version()
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func TestNumbersHaveNoGap(t *testing.T) {
	names, err := fs.Glob(migrations.FS, "*.sql") // sorted
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for i, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("%05d_", i+1)) {
			t.Errorf("%s is number %d", name, i+1)
		}
		text, err := migrations.FS.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []string{"-- +goose Up\n", "-- +goose Down\n"} {
			if strings.Count(string(text), step) != 1 {
				t.Errorf("%s: not one %q", name, step)
			}
		}
	}
}

// dump is the schema as pg_dump sees it, with rights, comments and storage.
func dump(t *testing.T, url string) string {
	t.Helper()
	out, err := exec.Command("pg_dump", "--schema-only", "--dbname="+url).Output()
	var exit *exec.ExitError
	if errors.Is(err, exec.ErrNotFound) || errors.As(err, &exit) && strings.Contains(string(exit.Stderr), "server version mismatch") {
		t.Skipf("no pg_dump that fits: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, `\restrict`) && !strings.HasPrefix(line, `\unrestrict`) { // random words
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestDownUndoesUp(t *testing.T) {
	url := inboxtest.URL(t)
	dumps := map[int64]string{}
	for version := newest(t); version >= 0; version-- {
		if done, err := migrations.Down(t.Context(), url, version); err != nil {
			t.Fatalf("%v after %v", err, done)
		}
		dumps[version] = dump(t, url)
	}
	if strings.Contains(dumps[0], "hooklatch.inbox") || strings.Count(dumps[0], "CREATE TABLE") != 1 {
		t.Errorf("left behind by the first migration:\n%s", dumps[0])
	}
	if _, err := migrations.Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	for version := newest(t); version >= 0; version-- {
		if _, err := migrations.Down(t.Context(), url, version); err != nil {
			t.Fatal(err)
		}
		if got := dump(t, url); got != dumps[version] {
			t.Errorf("version %d, before:\n%s\nand after up and down:\n%s", version, dumps[version], got)
		}
	}
}

func TestUpTwiceDoesNothing(t *testing.T) {
	url := empty(t)
	for _, want := range []int{int(newest(t)), 0} {
		done, err := migrations.Up(t.Context(), url)
		if err != nil || len(done) != want {
			t.Errorf("%v %v, want %d", done, err, want)
		}
	}
}

// migrators runs several at once and checks that each migration ran once.
func migrators(t *testing.T, url string) {
	t.Helper()
	var mu sync.Mutex
	var all []migrations.Result
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			done, err := migrations.Up(t.Context(), url)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, done...)
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if len(all) != int(newest(t)) {
		t.Errorf("%d migrations ran: %v", len(all), all)
	}
}

func TestMigratorsRunOneAfterTheOther(t *testing.T) { migrators(t, slow(t, empty(t))) }

// slow makes every step of a migration take long enough for migrators to meet.
func slow(t *testing.T, url string) string {
	t.Helper()
	exec1(t, url, `
		CREATE FUNCTION pause() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); END';
		CREATE EVENT TRIGGER pause ON ddl_command_start EXECUTE FUNCTION pause()`)
	return url
}

func TestMigratorsBehindAPooler(t *testing.T) {
	url := inboxtest.Pooler(t, slow(t, empty(t)), 8) // two for each
	migrators(t, url)
	if err := migrations.Check(t.Context(), connect(t, url+"&default_query_exec_mode=exec")); err != nil {
		t.Error(err)
	}
	if _, err := migrations.Down(t.Context(), url, 0); err != nil {
		t.Error(err)
	}
}

func TestImpatientDefaultsDoNotEndTheWait(t *testing.T) {
	url := empty(t)
	exec1(t, url, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET lock_timeout = 100', current_database());
		EXECUTE format('ALTER DATABASE %I SET idle_in_transaction_session_timeout = 100', current_database());
	END $$`)
	holder := connect(t, url)
	for _, sql := range []string{`BEGIN`, `SET LOCAL idle_in_transaction_session_timeout = 0`, `SELECT pg_advisory_xact_lock(hashtextextended('hooklatch.migrate', 0))`} {
		if _, err := holder.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() {
		_, err := migrations.Up(t.Context(), url)
		done <- err
	}()
	// pg_sleep runs in the database for longer than the time limits above.
	if _, err := holder.Exec(t.Context(), `SELECT pg_sleep(0.3)`); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if _, err := holder.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStatus(t *testing.T) {
	url := empty(t)
	states, err := migrations.Status(t.Context(), url)
	if err != nil || len(states) != int(newest(t)) || !states[0].AppliedAt.IsZero() {
		t.Errorf("empty: %v %v", states, err)
	}
	var exists bool
	if err := connect(t, url).QueryRow(t.Context(), `SELECT to_regnamespace('hooklatch') IS NOT NULL`).Scan(&exists); err != nil || exists {
		t.Errorf("it made a schema: %v", err)
	}
	exec1(t, url, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET TimeZone = ''Asia/Tokyo''', current_database()); END $$`)
	if _, err := migrations.Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	states, err = migrations.Status(t.Context(), url)
	if err != nil || len(states) == 0 {
		t.Fatal(states, err)
	}
	for _, s := range states {
		var age float64
		if err := connect(t, url).QueryRow(t.Context(), `SELECT extract(epoch FROM now() - $1::timestamptz)`, s.AppliedAt).Scan(&age); err != nil || age < 0 || age > 60 {
			t.Errorf("%s: applied %.0f s ago, %v", s.Name, age, err)
		}
	}
}

func TestWrongAddressKeepsThePassword(t *testing.T) {
	for _, url := range []string{"postgres://u:hunter2@127.0.0.1:bad/x", "postgres://u:hunter2@127.0.0.1:1/x?connect_timeout=1", "host=127.0.0.1 port=1 password=hunter2"} {
		_, err := migrations.Up(t.Context(), url)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	}
}
