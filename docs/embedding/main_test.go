package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; it is long for slow machines.
const patience = time.Minute

// build compiles a package into a folder of the test's.
func build(t *testing.T, pkg string, args ...string) (exe string) {
	t.Helper()
	exe = filepath.Join(t.TempDir(), "program")
	out, err := exec.Command("go", append(append([]string{"build", "-o", exe}, args...), pkg)...).CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exe
}

// site is a database, and the folder in which the program finds its key.
type site struct {
	t    *testing.T
	dir  string
	url  string // of the database
	pool *pgxpool.Pool
	v    *verify.Verifier

	mu      sync.Mutex
	address string // where the program listens; empty: nowhere
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), pool: inboxtest.New(t)}
	s.url = s.pool.Config().ConnString()
	file := filepath.Join(s.dir, "keys", "k1")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.v, err = newVerifier(file); err != nil {
		t.Fatal(err)
	}
	return s
}

// program is the example as a child.
type program struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// start runs the program on a database, and returns when it listens.
func (s *site) start(exe, database string, env ...string) *program {
	s.t.Helper()
	p := &program{cmd: exec.Command(exe), ended: make(chan struct{})}
	p.cmd.Dir = s.dir
	p.cmd.Env = append(os.Environ(), append(env, "DATABASE_URL="+database, "LISTEN=127.0.0.1:0")...)
	out, in, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	p.cmd.Stderr = in
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	in.Close()
	listening := make(chan string, 1)
	go func() {
		defer close(p.ended)
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, address, ok := strings.Cut(lines.Text(), "listening on "); ok {
				listening <- address
			}
			s.t.Log(lines.Text())
		}
		p.cmd.Wait()
	}()
	s.t.Cleanup(p.kill)
	select {
	case address := <-listening:
		s.at(address)
	case <-p.ended:
		s.t.Fatal("the program ended before it listened")
	case <-time.After(patience):
		s.t.Fatal("the program does not listen")
	}
	return p
}

func (p *program) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// signal is what ended the program; 0: it ended by itself.
func (p *program) signal() syscall.Signal {
	<-p.ended
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

func (s *site) at(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address = address
}

// try sends a delivery once and returns the status; 0: there was no answer.
func (s *site) try(id, body string) int {
	s.mu.Lock()
	address := s.address
	s.mu.Unlock()
	header, err := s.v.Sign(verify.Request{Method: "POST", Body: []byte(body)}, verify.SignOptions{DeliveryID: id})
	if err != nil {
		s.t.Error(err)
		return 0
	}
	r, err := http.NewRequest("POST", address, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return 0
	}
	r.Header = header
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// deliver sends a delivery until it is taken, as senders do.
func (s *site) deliver(id, body string) {
	if !eventually(func() bool { return s.try(id, body) == http.StatusAccepted }) {
		s.t.Errorf("%s was never taken", id)
	}
}

// eventually waits until ok, and says whether it came to that.
func eventually(ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if ok() {
			return true
		}
	}
	return false
}

// number runs a query that returns one.
func (s *site) number(sql string) (n int) {
	s.t.Helper()
	if err := s.pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}
