//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// childDir asks this test binary to be a program that uses devdb: - for a
// throwaway, else a folder.
const childDir = "DEVDB_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(childDir); ok {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// child starts a server, prints its folder, and waits to be killed.
func child(dir string) {
	s, err := Start(context.Background(), Config{Dir: strings.TrimPrefix(dir, "-")})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	// A child of ours that outlives us must not hold the server's pipe open.
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println(s.home.dir, sleeper.Process.Pid)
	io.Copy(io.Discard, os.Stdin)
}

func startChild(t *testing.T, dir string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), childDir+"="+dir), env...)
	cmd.Stderr = os.Stderr
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// serving starts a child and waits until its server runs. It returns the server's
// folder and the number of its first process.
func serving(t *testing.T, dir string) (cmd *exec.Cmd, at string, postmaster int) {
	t.Helper()
	cmd = startChild(t, dir)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { input.Close() })
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		t.Fatalf("child: %q %v", line, err)
	}
	var sleeper int
	if _, err := fmt.Sscan(line, &at, &sleeper); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(sleeper, syscall.SIGKILL) })
	return cmd, at, pid(t, at)
}

func pid(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

func dead(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// folder is a short one, which every user may pass through.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "devdb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestThrowawayGoesWithStop(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	if got := query(t, s, `SELECT current_setting('fsync') || current_setting('full_page_writes') || current_setting('synchronous_commit')
		|| current_setting('server_encoding') || current_setting('listen_addresses')`); got != "onononUTF8" {
		t.Errorf("durability, encoding and TCP addresses: %s", got)
	}
	info, err := os.Stat(s.home.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder of the socket: %v %v", info, err)
	}
	first := pid(t, s.home.dir)
	if group, err := syscall.Getpgid(first); err != nil || group == syscall.Getpgrp() {
		t.Errorf("an interrupt from the terminal reaches Postgres: it is in our process group %d %v", group, err)
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if !missing(s.home.dir) || !dead(first) {
		t.Errorf("folder gone: %v, process gone: %v", missing(s.home.dir), dead(first))
	}
}

func TestServerDiesWithAKilledParent(t *testing.T) {
	t.Run("throwaway", func(t *testing.T) {
		t.Parallel()
		cmd, dir, postmaster := serving(t, "-")
		cmd.Process.Kill()
		eventually(t, "folder removed", func() bool { return missing(dir) })
		eventually(t, "process gone", func() bool { return dead(postmaster) })
	})
	t.Run("kept folder", func(t *testing.T) {
		t.Parallel()
		keep := folder(t)
		cmd, dir, postmaster := serving(t, keep)
		cmd.Process.Kill()
		s := start(t, Config{Dir: keep}) // waits until the other one is gone
		if !dead(postmaster) || s.home.dir != dir {
			t.Errorf("two servers on one folder")
		}
		log, err := os.ReadFile(s.Log())
		if err != nil || strings.Contains(string(log), "not properly shut down") {
			t.Errorf("it was not stopped in order: %v\n%s", err, log)
		}
	})
	t.Run("during initdb", func(t *testing.T) {
		t.Parallel()
		tmp := folder(t)
		cmd := startChild(t, "-", "TMPDIR="+tmp)
		// Root's servant may write to a folder of ours only when all may.
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "initdb at work", func() bool {
			found, err := filepath.Glob(tmp + "/hooklatch-*/data.new")
			return err == nil && len(found) == 1
		})
		cmd.Process.Kill()
		eventually(t, "folder removed", func() bool {
			left, err := os.ReadDir(tmp)
			return err == nil && len(left) == 0
		})
	})
	t.Run("with a stopped backend", func(t *testing.T) {
		t.Parallel()
		cmd, dir, postmaster := serving(t, "-")
		s := &Server{home: &home{socket: dir}}
		conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if err := syscall.Kill(int(conn.PgConn().PID()), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		cmd.Process.Kill()
		eventually(t, "folder removed", func() bool { return missing(dir) })
		eventually(t, "process gone", func() bool { return dead(postmaster) })
	})
}

func TestServerSurvivesBeingForgotten(t *testing.T) {
	t.Parallel()
	url := &Server{home: &home{}}
	func() {
		forgotten, err := Start(t.Context(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		url.home.socket = forgotten.home.socket
		hold := forgotten.process.hold
		t.Cleanup(func() { syscall.Close(hold) })
	}()
	for range 3 {
		runtime.GC()
	}
	query(t, url, `SELECT 'here'`)
}

func TestKeptFolder(t *testing.T) {
	for name, path := range map[string]string{
		"parents to make, blanks, quotes": `a/my "own" data's $HOME&c=1/-rf 100%20+1#?`,
		"comma":                           "a,b",
		"path beyond sun_path":            strings.Repeat("long/", 25) + "db",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(folder(t), path)
			s := start(t, Config{Dir: dir})
			conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), `CREATE TABLE kept AS SELECT 'still here' AS x`); err != nil {
				t.Fatal(err)
			}
			conn.Close(t.Context())
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if !missing(s.Socket()) {
				t.Error("socket left")
			}
			again := start(t, Config{Dir: dir})
			if got := query(t, again, `SELECT x FROM kept`); got != "still here" {
				t.Error(got)
			}
		})
	}
}

// The cases go on from one another in one folder: initdb is what takes long.
func TestFolderAfterMishaps(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	t.Run("killed server starts again", func(t *testing.T) {
		s := start(t, Config{Dir: dir})
		conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Fatal("void: the connection lives")
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		query(t, s, `SELECT 'here'`)
	})
	t.Run("stale pid file with a number in use", func(t *testing.T) {
		// A process of the server's own user, which Postgres takes for its other self.
		foreign := exec.Command("sleep", "60")
		if os.Geteuid() == 0 {
			who, err := servant(dir)
			if err != nil {
				t.Fatal(err)
			}
			foreign.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		}
		if err := foreign.Start(); err != nil {
			t.Fatal(err)
		}
		defer foreign.Wait()
		defer foreign.Process.Kill()
		stale := fmt.Sprintf("%d\n%s/data\n1700000000\n5432\n%s\n\n    1234 5\nready   \n", foreign.Process.Pid, dir, dir)
		if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(stale), 0o600); err != nil {
			t.Fatal(err)
		}
		query(t, start(t, Config{Dir: dir}), `SELECT 'here'`)
	})
	t.Run("bad setting shows the log", func(t *testing.T) {
		_, err := Start(t.Context(), Config{Dir: dir, Settings: map[string]string{"no_such_setting": "1"}})
		if err == nil || !strings.Contains(err.Error(), `"no_such_setting"`) {
			t.Error(err)
		}
	})
	t.Run("in use", func(t *testing.T) {
		cmd, _, _ := serving(t, dir)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := Start(ctx, Config{Dir: dir})
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("%s: used by another process, number %d", dir, cmd.Process.Pid)) {
			t.Error(err)
		}
	})
}
