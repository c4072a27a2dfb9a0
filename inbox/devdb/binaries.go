package devdb

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// oldest is the oldest major version that hooklatch works with.
const oldest = 14

// Binaries are a Postgres found on this machine.
type Binaries struct {
	Dir     string // folder of initdb and postgres
	Version string // as in "15.18"
	major   int
}

func (b Binaries) String() string { return "postgres " + b.Version + " from " + b.Dir }

// folders are where packages put the binaries when they are not on PATH.
func folders() []string {
	return []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu, Gentoo
		"/usr/pgsql-*/bin",          // Fedora, RHEL with the packages of postgresql.org
		"/usr/lib/postgresql*/bin",  // openSUSE
		"/usr/libexec/postgresql*",  // Alpine
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin", // Homebrew on Intel
		"/opt/local/lib/postgresql*/bin", // MacPorts
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin", // built from source
		"/usr/bin",
	}
}

const install = `
  Debian, Ubuntu   sudo apt-get install postgresql
  Fedora, RHEL     sudo dnf install postgresql-server
  Alpine           apk add postgresql
  macOS            brew install postgresql@17`

// find returns the binaries in dir, or the first on PATH and then the newest in
// the usual folders. A major version other than 0 must be met exactly: a data
// folder is of one major version.
func find(ctx context.Context, dir string, major int) (Binaries, error) {
	if dir != "" {
		b, err := inspect(ctx, dir)
		if err != nil {
			return Binaries{}, err
		}
		return choose([]Binaries{b}, major)
	}
	var found []Binaries
	if path, err := exec.LookPath("postgres"); err == nil {
		real, _ := filepath.EvalSymlinks(path) // initdb may stand beside the real file only
		for _, dir := range []string{filepath.Dir(real), filepath.Dir(path)} {
			if b, err := inspect(ctx, dir); err == nil {
				found = append(found, b)
				break
			}
		}
	}
	return choose(append(found, installed(ctx, folders())...), major)
}

// installed returns what lies in the folders, newest first.
func installed(ctx context.Context, patterns []string) []Binaries {
	var found []Binaries
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern) // the patterns are ours and well formed
		for _, dir := range dirs {
			if b, err := inspect(ctx, dir); err == nil {
				found = append(found, b)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Binaries) int { return b.major - a.major })
	return found
}

func choose(found []Binaries, major int) (Binaries, error) {
	var unfit []string
	for _, b := range found {
		if b.major >= oldest && (major == 0 || b.major == major) {
			return b, nil
		}
		unfit = append(unfit, b.String())
	}
	switch {
	case len(unfit) == 0:
		return Binaries{}, fmt.Errorf("%w: neither initdb nor postgres on PATH or in the usual folders; install it:%s", ErrNoPostgres, install)
	case major >= oldest:
		return Binaries{}, fmt.Errorf("%w that reads data of version %d, only %s", ErrNoPostgres, major, strings.Join(unfit, ", "))
	default:
		return Binaries{}, fmt.Errorf("%w that is version %d or newer, only %s", ErrNoPostgres, oldest, strings.Join(unfit, ", "))
	}
}

// inspect asks the postgres in dir for its version.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return Binaries{}, fmt.Errorf("look for initdb: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "-V").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("ask %s for its version: %w", filepath.Join(dir, "postgres"), err)
	}
	// postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1), or 18beta1
	_, rest, _ := strings.Cut(string(out), "(PostgreSQL) ")
	version, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	digits := strings.IndexFunc(version+".", func(r rune) bool { return r < '0' || r > '9' })
	major, err := strconv.Atoi(version[:digits])
	if err != nil {
		return Binaries{}, fmt.Errorf("%s is no postgres: -V answers %q", filepath.Join(dir, "postgres"), out)
	}
	return Binaries{Dir: dir, Version: version, major: major}, nil
}
