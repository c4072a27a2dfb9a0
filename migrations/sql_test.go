package migrations_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/migrations"
)

// psql runs a script as somebody would who migrates by hand, without stopping at errors.
func psql(t *testing.T, address, script string) (out string, err error) {
	t.Helper()
	cmd := exec.Command("psql", "--no-psqlrc", "--quiet", "--dbname="+address)
	cmd.Stdin = strings.NewReader(script)
	text, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no psql on this machine")
	}
	return string(text), err
}

func script(t *testing.T, from int64) string {
	t.Helper()
	text, err := migrations.SQL(from)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// From whatever version it begins, the script ends where migrate up ends.
func TestScriptMakesTheSameSchema(t *testing.T) {
	url := inboxtest.URL(t)
	want := dump(t, url)
	for from := newest(t) - 1; from >= 0; from-- {
		if _, err := migrations.Down(t.Context(), url, from); err != nil {
			t.Fatal(err)
		}
		if from == 0 {
			exec1(t, url, `DROP SCHEMA hooklatch CASCADE`)
		}
		if out, err := psql(t, url, script(t, from)); err != nil || strings.Contains(out, "ERROR") {
			t.Fatalf("from %d: %v\n%s", from, err, out)
		}
		if got := dump(t, url); got != want {
			t.Errorf("from %d: another schema:\n%s\nwant:\n%s", from, got, want)
		}
		states, err := migrations.Status(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range states {
			if s.AppliedAt.IsZero() {
				t.Errorf("from %d: status says that %s is missing", from, s.Name)
			}
		}
		if done, err := migrations.Up(t.Context(), url); err != nil || len(done) > 0 {
			t.Errorf("from %d: %v were left, %v", from, done, err)
		}
	}
	// Where there is nothing left, nothing is done; and never in the wrong place.
	if out, err := psql(t, url, script(t, newest(t))); err != nil || strings.Contains(out, "ERROR") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, from := range []int64{0, 3} {
		if out, _ := psql(t, url, script(t, from)); !strings.Contains(out, "ERROR:  hooklatch is ") {
			t.Errorf("from %d on a schema of version %d:\n%s", from, newest(t), out)
		}
	}
	if got := dump(t, url); got != want {
		t.Errorf("a script in the wrong place changed the schema:\n%s", got)
	}
	for _, from := range []int64{-1, newest(t) + 1} {
		if text, err := migrations.SQL(from); err == nil {
			t.Errorf("from %d: %s", from, text)
		}
	}
}

// On a server that has never seen hooklatch the script makes the roles too.
func TestScriptMakesTheRoles(t *testing.T) {
	address, conn := withoutRoles(t)
	run(t, conn, `CREATE ROLE mia LOGIN CREATEROLE NOINHERIT`)
	for n := range 2 {
		run(t, conn, fmt.Sprintf(`CREATE DATABASE d%d OWNER mia`, n))
		mine := ofDatabase(t, address, "mia", fmt.Sprint("d", n))
		if out, err := psql(t, mine, script(t, 0)); err != nil || strings.Contains(out, "ERROR") {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := migrations.Check(t.Context(), connect(t, mine)); err != nil {
			t.Error(err)
		}
	}
}
