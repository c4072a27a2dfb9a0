package inboxtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The script ends pgbouncer when its input ends, which is with the test or with
// this process. An interrupt from the terminal must not end the script before that.
const poolerScript = `trap '' HUP INT TERM
"$@" </dev/null 2>"$0/log" & pid=$!
read -r _
kill -KILL "$pid"; wait "$pid"; rm -rf "$0"`

const poolerConfig = `[databases]
%s = host=%s port=%d user=%s%s
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
pool_mode = transaction
auth_type = any
default_pool_size = %d
%s
`

// Pooler starts a pgbouncer in transaction mode in front of the database of the
// address target and returns the address to reach it by. It opens at most size
// connections. Lines of settings, such as pool_mode = session, take the place of ours.
// The test is skipped where there is no pgbouncer.
func Pooler(t testing.TB, target string, size int, settings ...string) string {
	t.Helper()
	bouncer, err := exec.LookPath("pgbouncer")
	if err != nil {
		bouncer, err = exec.LookPath("/usr/sbin/pgbouncer") // Debian; not on a user's PATH
	}
	if err != nil {
		t.Skip("inboxtest: no pgbouncer on this machine; its package is called pgbouncer")
	}
	server, err := pgx.ParseConfig(target)
	if err != nil {
		t.Fatalf("inboxtest: pooler: %v", err)
	}
	dir, err := os.MkdirTemp("", "hooklatch-")
	if err != nil {
		t.Fatalf("inboxtest: pooler: %v", err)
	}
	config := filepath.Join(dir, "ini")
	password := server.Password
	if password != "" { // an empty one is a syntax error
		password = " password='" + strings.ReplaceAll(password, "'", "''") + "'"
	}
	text := fmt.Sprintf(poolerConfig, server.Database, server.Host, server.Port, server.User, password, dir, size, strings.Join(settings, "\n"))
	args := []string{"-c", poolerScript, dir, bouncer}
	if err = os.WriteFile(config, []byte(text), 0o600); err == nil && os.Geteuid() == 0 {
		// It refuses to run as root, and must reach the server's socket.
		var name string
		if name, err = handOver(dir, config); err == nil {
			args = append(args, "-u", name)
		}
	}
	if err != nil {
		t.Fatalf("inboxtest: pooler: %v", err)
	}
	cmd := exec.Command("/bin/sh", append(args, config)...)
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("inboxtest: pooler: %v", err)
	}
	t.Cleanup(func() {
		input.Close()
		cmd.Wait()
	})
	address := url.URL{Scheme: "postgres", User: url.User(server.User), Path: "/" + server.Database,
		RawQuery: "port=6432&host=" + url.PathEscape(dir)}
	awaitPooler(t, address.String(), filepath.Join(dir, "log"))
	return address.String()
}

// handOver gives files to the user that package devdb runs Postgres as.
func handOver(files ...string) (name string, err error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return "", err
		}
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if err := os.Chown(file, uid, -1); err != nil {
			return "", err
		}
	}
	return u.Username, nil
}

func awaitPooler(t testing.TB, address, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			conn.Close(ctx)
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			text, _ := os.ReadFile(log)
			t.Fatalf("inboxtest: pooler: %v\n%s", err, text)
		}
	}
}
