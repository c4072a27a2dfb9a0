// Package devdb runs a private Postgres from binaries that are already on the
// machine, for `hooklatch dev` and for tests. It downloads nothing.
//
// The server listens on a unix socket in a folder that only its user may enter,
// and on no TCP port. It has one superuser, postgres, without a password: the
// folder is the wall. Encoding is UTF8, the locale C, everything else is as
// Postgres ships it, fsync included.
//
// # Life and death
//
// Postgres is the child of a small sh script, which is our child. The script
// reads from a pipe that only this process holds open. When the pipe closes, by
// Stop or because this process died, kill -9 included, the script stops Postgres
// and removes a throwaway folder. Both stand in a session of their own, so that
// Ctrl-C in a terminal reaches this process alone.
//
// Postgres refuses to run as root. As root, devdb runs it as the owner of a kept
// folder, else as user postgres, else as nobody.
//
// # Where the promise stops
//
// If the script is killed -9 as well, Postgres goes on running; a kept folder
// stays locked until it is gone. Whoever kills all processes of a container at
// once leaves a throwaway folder behind. Linux, macOS and the BSDs only.
package devdb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const logName = "postgres.log"

// Config says which Postgres to run, and where. The zero Config runs the newest
// one in a throwaway folder.
type Config struct {
	// Dir keeps the database between runs: made when missing, used again when it
	// holds a database that devdb made. Only one process can use it at a time; a
	// second one gets ErrLocked. Its access rights are narrowed to its user.
	// Defaults to a new folder for temporary files, removed at the end.
	Dir string

	// Binaries is the folder of initdb and postgres. Defaults to PATH, then the
	// folders where Debian, Fedora, Alpine, Homebrew, MacPorts and Postgres.app
	// put them, newest first.
	Binaries string

	// Settings are server parameters, such as max_connections, for this run.
	Settings map[string]string
}

var (
	// ErrNoPostgres: no usable binaries on this machine. The error around it says
	// which package has them.
	ErrNoPostgres = errors.New("no Postgres on this machine")
	// ErrLocked: Config.Dir is being used by another process.
	ErrLocked = errors.New("used by another process")
)

// Server is a running Postgres. Its methods may be called from several
// goroutines.
type Server struct {
	binaries Binaries
	home     *home
	keep     bool
	settings map[string]string

	mu      sync.Mutex
	process *process // nil: halted or stopped
	stopped bool
	stopErr error
}

// Start runs Postgres and returns when it takes connections. ctx bounds the
// start, not the life of the server: that lasts until Stop or the end of this
// process.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{keep: cfg.Dir != "", settings: cfg.Settings}
	var err error
	if s.keep {
		s.home, err = openHome(ctx, cfg.Dir)
	} else {
		s.home, err = tempHome(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("devdb: %w", err)
	}
	s.binaries, err = find(ctx, cfg.Binaries, s.home.major)
	if err == nil {
		err = s.run(ctx)
	}
	if err != nil {
		s.home.discard()
		return nil, fmt.Errorf("devdb: %w", err)
	}
	return s, nil
}

// run starts Postgres in its folder.
func (s *Server) run(ctx context.Context) error {
	lock, err := s.home.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close() // the script and Postgres hold it on
	log, err := s.home.create(logName)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := launch(s.home, s.binaries.Dir, s.settings, lock, log)
	if err != nil {
		return err
	}
	if err := p.ready(ctx, s.home); err != nil {
		p.abort()
		return fmt.Errorf("start %s: %w%s", s.binaries, err, tail(s.Log()))
	}
	s.process = p
	return nil
}

// URL is the address of a database of this server. Every server has the
// database postgres.
func (s *Server) URL(database string) string {
	// A blank as %20: clients of Postgres take + for a plus.
	host := strings.ReplaceAll(url.QueryEscape(s.home.socket), "+", "%20")
	return "postgres://postgres@/" + url.PathEscape(database) + "?host=" + host
}

// Socket is the path of the unix socket.
func (s *Server) Socket() string { return filepath.Join(s.home.socket, socketName) }

// Binaries says which Postgres it is.
func (s *Server) Binaries() Binaries { return s.binaries }

// Log is the path of the server's log. A throwaway server's goes with it.
func (s *Server) Log() string { return filepath.Join(s.home.dir, logName) }

// Stop ends the server's connections and the server, and removes a throwaway
// folder. Calls after the first return what the first did.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return s.stopErr
	}
	s.stopped = true
	if s.process != nil {
		if err := s.process.end(""); err != nil {
			s.stopErr = fmt.Errorf("devdb: stop: %w%s", err, tail(s.Log()))
		}
		s.process = nil
	}
	s.home.discard() // the script has done it, unless it was killed
	return s.stopErr
}

// Halt ends the server in good order and leaves its folder for Restart.
func (s *Server) Halt() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	err := s.process.end("keep\n")
	s.process = nil
	if err != nil {
		return fmt.Errorf("devdb: halt: %w%s", err, tail(s.Log()))
	}
	return nil
}

// Kill ends the server as a crash would: SIGKILL to its first process. It
// returns when the others have noticed and are gone. Restart goes on from there.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return errors.New("devdb: kill: it does not run")
	}
	if err := s.process.kill(s.home); err != nil {
		return fmt.Errorf("devdb: kill: %w", err)
	}
	return nil
}

// Restart halts the server, if it runs, and starts it again in the same folder,
// under the same address.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Halt(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.process != nil {
		return errors.New("devdb: restart: it was stopped or started meanwhile")
	}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("devdb: restart: %w", err)
	}
	return nil
}

// tail is the end of the server's log, for an error.
func tail(path string) string {
	text, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || lines[0] == "" {
		return ""
	}
	return "\n  " + strings.Join(lines[max(0, len(lines)-8):], "\n  ")
}
