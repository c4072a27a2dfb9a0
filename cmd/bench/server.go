package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// server is a hooklatch process that receives, and forwards nothing meanwhile.
type server struct {
	cmd  *exec.Cmd
	addr string
	log  *strings.Builder
}

const configText = `version: 1
listen: {http: "%s", admin: "%s"}
tls: {mode: off}
database: {url: {env: BENCH_DATABASE_URL}, migrate: auto}
stop: {lame_duck: 0s}
log: {level: warn}
sources:
  bench:
    tenant: bench
    path: /in/bench
    scheme: zhisou-v1
    max_body: 1MiB
    keys: [{id: k1, secret: {file: key}}]
    event: {id: /id, type: /type}
    forward: [app]
destinations:
  app: {url: "http://127.0.0.1:9/"}
`

// build compiles the program, with tags.
func build(ctx context.Context, dir, name, tags string) (string, error) {
	path := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", tags, "-o", path, "github.com/hooklatch/hooklatch/cmd/hooklatch")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// startServer runs binary on free ports and returns when it is ready.
func startServer(ctx context.Context, binary, dir, databaseURL, secret string) (*server, error) {
	dir, err := os.MkdirTemp(dir, "server")
	if err != nil {
		return nil, err
	}
	public, admin, err := freePorts()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "hooklatch.yaml")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "key"), []byte(secret), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, configText, public, admin), 0o600),
	); err != nil {
		return nil, err
	}
	s := &server{addr: public, log: &strings.Builder{}}
	s.cmd = exec.Command(binary, "serve", "-c", config, "--role", "receive")
	s.cmd.Env = append(os.Environ(), "BENCH_DATABASE_URL="+databaseURL)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.untilReady(ctx, admin); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) untilReady(ctx context.Context, admin string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+admin+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the server did not become ready:\n%s", s.log)
		}
	}
}

func (s *server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM) // Ctrl-C may have ended it already
	if waitErr := s.cmd.Wait(); waitErr != nil {
		return fmt.Errorf("stop the server: %w\n%s", waitErr, s.log)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// freePorts finds two ports that nobody listens on.
func freePorts() (string, string, error) {
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer a.Close()
	b, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer b.Close()
	return a.Addr().String(), b.Addr().String(), nil
}
