package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// startPgbouncer puts a transaction pooler in front of a database and returns its
// address. It runs as the user of Postgres, whose socket nobody else can reach.
func startPgbouncer(t *testing.T, database string) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		if binary = "/usr/sbin/pgbouncer"; !executable(binary) {
			t.Skip("pgbouncer is not installed")
		}
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	socket := u.Query().Get("host")
	info, err := os.Stat(socket)
	if err != nil {
		t.Skipf("the database is not behind a socket of this machine: %v", err)
	}
	dir, err := os.MkdirTemp("/tmp", "hooklatch-pooler") // a path that fits a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s user=postgres\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\npool_mode = transaction\nauth_type = any\ndefault_pool_size = 4\n", socket, dir)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, config)
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	eventually(t, "pgbouncer listens", func() bool {
		_, err := os.Stat(filepath.Join(dir, ".s.PGSQL.6432"))
		return err == nil
	})
	u.RawQuery = url.Values{"host": {dir}, "port": {"6432"}, "sslmode": {"disable"}}.Encode()
	return u.String()
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

func TestServeThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL, "database: {pooler: pgbouncer, migrate: auto}")
	database := sibling(t, inboxtest.URL(t), "")
	wholeAtEnd(t, database)
	sv := startServe(t, s, startPgbouncer(t, database))
	sv.line(`"msg":"migrated"`)

	var clients sync.WaitGroup
	for c := range 12 {
		clients.Go(func() {
			for n := range 20 {
				// Some twice, so that the look-up of what is there runs too.
				a, err := try(http.DefaultClient, s.request(sv.url, fmt.Sprintf("dlv_%d_%d", c/2, n), `{"id":"x"}`))
				if err != nil || a.status != 202 {
					t.Errorf("%d %s %v", a.status, a.body, err)
				}
			}
		})
	}
	clients.Wait()
	eventually(t, "all handed on", func() bool { return len(app.requests()) == 120 })
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_0_0", "other")); a.status != 409 {
		t.Errorf("conflict: %d %s", a.status, a.body)
	}
	// The app has its request before the settlement is through.
	eventually(t, "/metrics tells that nothing waits", func() bool {
		return strings.Contains(get(t, sv.admin+"/metrics").body, `hooklatch_forwards{destination="app",state="pending"} 0`)
	})
	sv.end()
	if out := sv.output(); strings.Count(out, `"level":"WARN"`) != 1 || strings.Contains(out, `"level":"ERROR"`) {
		t.Error("more than the conflict is worth a warning")
	}
}
