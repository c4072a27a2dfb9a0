package inboxtest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
)

// Cluster is a server that belongs to one test, which may do to it what it likes.
// Its address stays the same over restarts. Methods end the test when they fail.
type Cluster struct {
	t      testing.TB
	server *devdb.Server
}

// NewCluster starts a server with a migrated database. It is stopped and removed
// when the test ends. Settings, such as synchronous_commit=off, are its defaults
// in place of those of the server. Where HOOKLATCH_TEST_DATABASE_URL is set the test is skipped:
// that server is not ours to kill.
func NewCluster(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	if os.Getenv("HOOKLATCH_TEST_DATABASE_URL") != "" {
		t.Skip("inboxtest: HOOKLATCH_TEST_DATABASE_URL is set, and this test kills servers")
	}
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	cfg := devdb.Config{Settings: map[string]string{}}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		cfg.Settings[name] = value
	}
	server, err := devdb.Start(ctx, cfg)
	if err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("inboxtest: %v", err)
		}
	})
	c := &Cluster{t: t, server: server}
	if _, err := migrations.Up(ctx, c.URL()); err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	if err := makeLogin(ctx, c.URL()); err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	return c
}

// URL is the address of the migrated database.
func (c *Cluster) URL() string { return c.server.URL("postgres") }

// Pool returns a pool on the migrated database, closed when the test ends.
func (c *Cluster) Pool() *pgxpool.Pool {
	c.t.Helper()
	return open(c.t, c.URL())
}

// Stop ends the server in good order: connections see 57P01. Start goes on.
func (c *Cluster) Stop() {
	c.t.Helper()
	if err := c.server.Halt(); err != nil {
		c.t.Fatalf("inboxtest: %v", err)
	}
}

// Kill ends the server with SIGKILL. The page cache of the machine survives, so it
// shows nothing about fsync. Start goes on.
func (c *Cluster) Kill() {
	c.t.Helper()
	if err := c.server.Kill(); err != nil {
		c.t.Fatalf("inboxtest: %v", err)
	}
}

// Start starts the server again after Stop or Kill.
func (c *Cluster) Start() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	if err := c.server.Restart(ctx); err != nil {
		c.t.Fatalf("inboxtest: %v", err)
	}
}

const terminateSQL = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`

// Terminate ends every connection of the server and says how many there were.
func (c *Cluster) Terminate() int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL())
	if err != nil {
		c.t.Fatalf("inboxtest: terminate: %v", err)
	}
	defer conn.Close(ctx)
	var n int
	if err := conn.QueryRow(ctx, terminateSQL).Scan(&n); err != nil {
		c.t.Fatalf("inboxtest: terminate: %v", err)
	}
	return n
}
