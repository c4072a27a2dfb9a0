// Package inboxtest gives a test a database of its own with the schema of
// hooklatch in it, so that handlers and stores are tested against the real thing:
//
//	func TestHandler(t *testing.T) {
//		pool := inboxtest.New(t)
//		...
//	}
//
// The first test of a process starts a private Postgres (package devdb: the
// binaries must be on the machine) and migrates a template; each test gets a copy,
// which takes a few ten milliseconds and goes away with the test. Tests may run in
// parallel. The server dies with the process; nothing is to be stopped, and no
// goroutine is left for a leak detector to find.
//
// Where HOOKLATCH_TEST_DATABASE_URL is set, that server is used instead. Its user
// must be allowed to create databases and roles.
//
// For tests of faults, [NewCluster] gives a server to stop, kill and start again,
// [NewFaultProxy] stands between a pool and its server and breaks the connection,
// at COMMIT if need be, and [Pooler] puts a pgbouncer in between.
package inboxtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/peterldowns/pgtestdb"

	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
)

// startPatience is how long a server may take to start on a busy machine.
const startPatience = 2 * time.Minute

// New returns a pool on a migrated database that belongs to this test. The pool is
// closed and the database dropped when the test ends; a failed test leaves it on a
// server of HOOKLATCH_TEST_DATABASE_URL.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, URL(t))
}

// URL is like New and returns the address of the database, for child processes and
// pools with settings of their own.
func URL(t testing.TB) string {
	t.Helper()
	server, err := server()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config(server)
	if err != nil {
		t.Fatal(err)
	}
	return pgtestdb.Custom(quiet{t}, cfg, migrator{}).URL()
}

func open(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// server is the address of the server that all tests of this process share.
var server = sync.OnceValues(func() (string, error) {
	if address := os.Getenv("HOOKLATCH_TEST_DATABASE_URL"); address != "" {
		return address, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	s, err := devdb.Start(ctx, devdb.Config{Settings: map[string]string{"max_connections": "200"}})
	if err != nil {
		return "", fmt.Errorf("inboxtest: %w", err)
	}
	return s.URL("postgres"), nil
})

// config puts an address into the shape of pgtestdb, which writes its fields into
// an address as they are. Host and password go into the options, where they can be
// a folder and be escaped.
func config(address string) (pgtestdb.Config, error) {
	u, err := url.Parse(address)
	if err != nil || u.User.Username() == "" {
		return pgtestdb.Config{}, errors.New("inboxtest: HOOKLATCH_TEST_DATABASE_URL is not of the form postgres://user@host/database")
	}
	// In such an address + is a plus, and a blank is %20.
	options, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	if err != nil {
		return pgtestdb.Config{}, errors.New("inboxtest: HOOKLATCH_TEST_DATABASE_URL has options that are not name=value&…")
	}
	for name, value := range map[string]string{"host": u.Hostname(), "port": u.Port()} {
		if value != "" {
			options.Set(name, value)
		}
	}
	if password, ok := u.User.Password(); ok {
		options.Set("password", password)
	}
	return pgtestdb.Config{
		DriverName: "pgx",
		User:       u.User.Username(),
		Database:   u.Path[min(1, len(u.Path)):],
		Options:    strings.ReplaceAll(options.Encode(), "+", "%20"),
		// The databases belong to the user of the address; pgtestdb makes a role
		// of its own only where this one is missing.
		TestRole:                  &pgtestdb.Role{Username: u.User.Username()},
		ForceTerminateConnections: true,
	}, nil
}

// migrator makes the template.
type migrator struct{}

func (migrator) Hash() (string, error) {
	hash := sha256.New()
	names, err := fs.Glob(migrations.FS, "*.sql")
	for _, name := range names {
		text, readErr := migrations.FS.ReadFile(name)
		err = errors.Join(err, readErr)
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), err
}

func (migrator) Migrate(ctx context.Context, _ *sql.DB, cfg pgtestdb.Config) error {
	if _, err := migrations.Up(ctx, cfg.URL()); err != nil {
		return err
	}
	return makeLogin(ctx, cfg.URL())
}

// quiet keeps addresses, with their passwords, out of the test's log.
type quiet struct{ testing.TB }

func (quiet) Logf(string, ...any) {}
