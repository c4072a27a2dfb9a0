//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	socketName = ".s.PGSQL.5432"
	// maxSocketPath is what fits into sun_path on macOS and the BSDs; Linux has
	// four bytes more.
	maxSocketPath = 103
	// lockPatience is how long a folder may stay locked after its user died: the
	// time in which the script stops Postgres.
	lockPatience = 10 * time.Second
)

// home is the folder of one server:
//
//	data/          what initdb made
//	data.new/      an initdb that did not get to its end
//	lock           held by the script and by every process of Postgres
//	postgres.log   of the last run
type home struct {
	dir    string
	socket string              // dir itself, or a folder with a shorter path
	trash  []string            // what goes away with the server
	user   *syscall.Credential // nil: our own
	major  int                 // of the data; 0: no data yet
}

// openHome takes a folder that outlives the server.
func openHome(ctx context.Context, path string) (*home, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// The folders above it stay open to the user that root will run Postgres as.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	made := os.Mkdir(dir, 0o700)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return nil, made
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		// Rights and owner are about to change, so never take a folder that
		// somebody has put something else into.
		switch e.Name() {
		case "data", "data.new", "lock", logName, socketName, socketName + ".lock":
		default:
			return nil, fmt.Errorf("open %s: not empty and not made by devdb: it holds %s", path, e.Name())
		}
	}
	h := &home{dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, "data", "PG_VERSION"))
	if err == nil {
		h.major, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if os.Geteuid() == 0 {
		if h.user, err = servant(dir); err != nil {
			return nil, err
		}
		if err := os.Lchown(dir, int(h.user.Uid), int(h.user.Gid)); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	// Root's home and the like are closed to the user that is to run Postgres.
	if _, err := h.sh(ctx, `cd -- "$0"`, dir); h.user != nil && err != nil {
		if made == nil {
			os.Remove(dir)
		}
		return nil, fmt.Errorf("open %s: Postgres does not run as root, and user %d, who is to run it, may not go there", dir, h.user.Uid)
	}
	return h, h.placeSocket(ctx)
}

// tempHome makes a folder that goes away with the server.
func tempHome(ctx context.Context) (*home, error) {
	h := &home{}
	if os.Geteuid() == 0 {
		var err error
		if h.user, err = servant(""); err != nil {
			return nil, err
		}
	}
	var err error
	if h.dir, err = h.mkdir(ctx, os.TempDir(), "/tmp", "/var/tmp"); err != nil {
		return nil, err
	}
	return h, h.placeSocket(ctx)
}

// placeSocket puts the socket beside the data when its path is short enough, and
// holds no comma, which would split it in two in an address.
func (h *home) placeSocket(ctx context.Context) (err error) {
	h.socket = h.dir
	if len(filepath.Join(h.dir, socketName)) > maxSocketPath || strings.Contains(h.dir, ",") {
		if h.socket, err = h.mkdir(ctx, "/tmp", "/var/tmp"); err != nil {
			h.discard()
			return err
		}
	}
	return nil
}

// mkdir makes a folder in the first parent that lets the server's own user do
// so: that user must be able to reach it, and to remove it when we are dead.
func (h *home) mkdir(ctx context.Context, parents ...string) (string, error) {
	var first error
	for _, parent := range parents {
		dir, err := filepath.Abs(parent)
		if err == nil && h.user == nil {
			dir, err = os.MkdirTemp(dir, "hooklatch-")
		} else if err == nil {
			dir, err = h.sh(ctx, `mktemp -d "$0/hooklatch-XXXXXXXX"`, dir)
		}
		if err == nil {
			h.trash = append(h.trash, dir)
			return dir, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", fmt.Errorf("make a temporary folder: %w", first)
}

// sh runs a line as the server's user and returns what it prints.
func (h *home) sh(ctx context.Context, line, arg string) (string, error) {
	cmd := exec.CommandContext(ctx, shell, "-c", line, arg)
	cmd.Dir, cmd.Env = "/", environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.user}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

// discard removes the trash.
func (h *home) discard() {
	for _, dir := range h.trash {
		os.RemoveAll(dir)
	}
}

// servant is who Postgres runs as when we are root: the owner of a folder that
// is in use, else postgres, else nobody.
func servant(dir string) (*syscall.Credential, error) {
	if info, err := os.Stat(filepath.Join(dir, "data")); dir != "" && err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 {
			return &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("Postgres refuses to run as root, and there is neither a user postgres nor nobody to run it as")
}

// create makes a file of the server's user.
func (h *home) create(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(h.dir, name), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err == nil && h.user != nil {
		err = f.Chown(int(h.user.Uid), int(h.user.Gid))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (h *home) pidFile() string { return filepath.Join(h.dir, "data", "postmaster.pid") }

// lock is held by whoever has the file open, which are the script and every
// process of Postgres. So whoever gets it knows that nothing of an earlier run
// is left, whatever postmaster.pid says: its number may be anybody's by now.
func (h *home) lock(ctx context.Context) (*os.File, error) {
	path := filepath.Join(h.dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if h.user != nil {
		if err := f.Chown(int(h.user.Uid), int(h.user.Gid)); err != nil {
			f.Close()
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			owner, _ := os.ReadFile(path)
			f.Close()
			return nil, fmt.Errorf("open %s: %w, number %s", h.dir, ErrLocked, strings.TrimSpace(string(owner)))
		case <-time.After(50 * time.Millisecond):
		}
	}
	err = errors.Join(f.Truncate(0), os.Remove(h.pidFile()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Close()
		return nil, err
	}
	_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	return f, err
}
