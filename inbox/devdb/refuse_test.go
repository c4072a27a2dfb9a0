//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refused checks that a start fails, with these words, and leaves nothing.
func refused(t *testing.T, cfg Config, words ...string) error {
	t.Helper()
	tmp := folder(t)
	t.Setenv("TMPDIR", tmp)
	s, err := Start(t.Context(), cfg)
	if err == nil {
		s.Stop()
		t.Fatal("started")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return err
}

func TestNoBinaries(t *testing.T) {
	if _, err := choose(nil, 0); !errors.Is(err, ErrNoPostgres) || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Error(err)
	}
	if _, err := choose([]Binaries{{Dir: "/opt/old", Version: "13.9", major: 13}}, 0); !errors.Is(err, ErrNoPostgres) || !strings.Contains(err.Error(), "13.9") {
		t.Error(err)
	}
	if _, err := choose([]Binaries{{Dir: "/opt/new", Version: "17.2", major: 17}}, 15); !errors.Is(err, ErrNoPostgres) || !strings.Contains(err.Error(), "version 15") {
		t.Error(err)
	}
	if b, err := choose([]Binaries{{Version: "17.2", major: 17}, {Version: "15.1", major: 15}}, 15); err != nil || b.Version != "15.1" {
		t.Error(b, err)
	}
	refused(t, Config{Binaries: t.TempDir()}, "devdb: ", "initdb")
}

func TestVersionsOfBinaries(t *testing.T) {
	for answer, want := range map[string]Binaries{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)": {Version: "15.18", major: 15},
		"postgres (PostgreSQL) 18beta1":                        {Version: "18beta1", major: 18},
		"postgres (PostgreSQL) 9.6.24":                         {Version: "9.6.24", major: 9},
		"postgres (PostgreSQL) devel":                          {},
		"":                                                     {},
	} {
		dir := t.TempDir()
		for _, name := range []string{"initdb", "postgres"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+answer+"'\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		b, err := inspect(t.Context(), dir)
		if b.Version != want.Version || b.major != want.major || (err == nil) != (want.major != 0) {
			t.Errorf("%q: %v %v", answer, b, err)
		}
	}
}

func TestNewestOfTheUsualFolders(t *testing.T) {
	top := t.TempDir()
	for _, version := range []string{"9", "14", "17", "16"} {
		bin := filepath.Join(top, version, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"initdb", "postgres"} {
			if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho 'postgres (PostgreSQL) "+version+".1'\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	b, err := choose(installed(t.Context(), []string{top + "/none*", top + "/*/bin"}), 0)
	if err != nil || b.Version != "17.1" {
		t.Error(b, err)
	}
}

func TestFailedInitdbShowsTheLog(t *testing.T) {
	bin := folder(t)
	for name, text := range map[string]string{"postgres": "echo 'postgres (PostgreSQL) 15.1'", "initdb": "echo no room >&2; exit 1"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, Config{Binaries: bin}, "no room")
}

func TestFolderOfSomebodyElse(t *testing.T) {
	dir := folder(t)
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, Config{Dir: dir}, "not empty", "thesis.tex")
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("its rights were changed: %v %v", info, err)
	}
	refused(t, Config{Dir: filepath.Join(dir, "thesis.tex")}, "thesis.tex")
}

func TestDataOfAnotherVersion(t *testing.T) {
	dir := folder(t)
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, Config{Dir: dir}, "version 99")
}

func TestCancelledStart(t *testing.T) {
	tmp := folder(t)
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		s, err := Start(ctx, Config{})
		if err == nil {
			s.Stop()
		}
		ended <- err
	}()
	eventually(t, "initdb at work", func() bool {
		found, err := filepath.Glob(tmp + "/hooklatch-*/data.new")
		return err == nil && len(found) == 1
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRootsFolderIsOutOfReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs Postgres as somebody else")
	}
	closed := folder(t)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Config{Dir: filepath.Join(closed, "db")}); err == nil || !strings.Contains(err.Error(), "may not go there") {
		t.Error(err)
	}
	t.Setenv("TMPDIR", closed) // another place is found
	start(t, Config{})
}

func TestHostileEnvironment(t *testing.T) {
	tmp := filepath.Join(folder(t), strings.Repeat("long/", 25)) // no socket fits in there
	if err := os.MkdirAll(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	clients := map[string]string{"PGDATA": "/nowhere", "PGPORT": "1", "PGOPTIONS": "-c nonsense=1", "PGCLIENTENCODING": "LATIN1",
		"LC_ALL": "xx_YY", "LANG": "xx_YY", "OUR_SECRET": "canary"}
	for name, value := range clients {
		t.Setenv(name, value)
	}
	s := start(t, Config{})
	for name := range clients {
		os.Unsetenv(name) // for our own client
	}
	if got := query(t, s, `SELECT current_setting('lc_messages') || reset_val FROM pg_settings WHERE name = 'client_encoding'`); got != "CUTF8" {
		t.Error(got)
	}
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.process.cmd.Process.Pid)); err == nil && strings.Contains(string(env), "canary") {
		t.Error("our secrets stand in the environment of Postgres")
	}
	if !strings.HasPrefix(s.home.dir, tmp) {
		t.Errorf("data is in %s", s.home.dir)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if !missing(s.home.socket) || !missing(s.home.dir) {
		t.Error("left behind")
	}
}
