package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// patience bounds every wait of these tests; it is long for slow machines, and
// never used up where things are right.
const patience = 30 * time.Second

// process is the real program as a child, with the lines that it has written.
type process struct {
	t   *testing.T
	cmd *exec.Cmd

	mu      sync.Mutex
	lines   []string
	changed chan struct{} // closed at each line, and made anew
	ended   chan struct{}
	code    int
}

// start runs hooklatch with args. It is killed when the test ends, if it still runs.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, exe, env, args...)
}

// startProgram is start with another build of hooklatch.
func startProgram(t *testing.T, exe string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = "hooklatch" // see testscript.Main
	cmd.Env = append(append(os.Environ(), "GORACE="+quickExit), env...)
	p := &process{t: t, cmd: cmd, changed: make(chan struct{}), ended: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	go func() {
		defer close(p.ended)
		defer out.Close()
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			p.add(strings.TrimSuffix(line, "\n"))
			if err != nil {
				break
			}
		}
		cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("%s\n%s", strings.Join(cmd.Args, " "), strings.Join(p.lines[max(0, len(p.lines)-30):], "\n"))
		}
	})
	return p
}

func (p *process) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if line != "" {
		p.lines = append(p.lines, line)
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// line waits for a line with all the texts in it.
func (p *process) line(texts ...string) string {
	p.t.Helper()
	deadline := time.After(patience)
	for seen := 0; ; {
		p.mu.Lock()
		changed, lines := p.changed, p.lines
		p.mu.Unlock()
		for ; seen < len(lines); seen++ {
			if containsAll(lines[seen], texts) {
				return lines[seen]
			}
		}
		select {
		case <-changed:
		case <-p.ended:
			if strings.Contains(p.output(), texts[0]) && len(texts) == 1 {
				continue
			}
			p.t.Fatalf("ended with code %d without a line with %q", p.code, texts)
		case <-deadline:
			p.t.Fatalf("no line with %q", texts)
		}
	}
}

func containsAll(line string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}

// entry is a line of the JSON log.
func (p *process) entry(texts ...string) map[string]any {
	p.t.Helper()
	line := p.line(texts...)
	entry := map[string]any{}
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		p.t.Fatalf("log line %q: %v", line, err)
	}
	return entry
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.code
	case <-time.After(patience):
		p.t.Fatal("did not end")
		return -1
	}
}

// site is a folder with a configuration and its keys.
type site struct {
	t   *testing.T
	dir string
	v   *verify.Verifier
}

// newSite has one source, billing, whose key is k1.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	secret := strings.Repeat("0123456789abcdef", 4)
	s.write("k1", secret)
	scheme, _ := verify.Preset("zhisou-v1")
	key, err := verify.NewKey("k1", []byte(secret), scheme.SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	s.v = &verify.Verifier{Scheme: scheme, Keys: keys}
	return s
}

func (s *site) write(name, text string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// config writes hooklatch.yaml: top are lines for the top level; the app's address
// is where billing forwards to.
func (s *site) config(app string, top ...string) string {
	s.t.Helper()
	if !strings.Contains(strings.Join(top, "\n"), "listen:") {
		top = append(top, `listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}`)
	}
	if !strings.Contains(strings.Join(top, "\n"), "stop:") {
		top = append(top, `stop: {lame_duck: 1ms}`)
	}
	return s.write("hooklatch.yaml", `version: 1
`+strings.Join(top, "\n")+`
sources:
  billing:
    tenant: acme
    path: /in/billing
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k1}}]
    event: {id: /id, type: /type}
    forward: [app]
destinations:
  app: {url: "`+app+`/hook", retry: {base: 50ms}}
`)
}

// request is a rightly signed delivery.
func (s *site) request(url, id, body string) *http.Request {
	s.t.Helper()
	h, err := s.v.Sign(verify.Request{Method: "POST", Header: http.Header{}, Body: []byte(body)}, verify.SignOptions{DeliveryID: id})
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = h
	r.Header.Set("Content-Type", "application/json")
	return r
}

// answer is what a request was answered with.
type answer struct {
	status int
	header http.Header
	body   string
}

func do(t *testing.T, c *http.Client, r *http.Request) answer {
	t.Helper()
	a, err := try(c, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(c *http.Client, r *http.Request) (answer, error) {
	resp, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body)}, err
}

func get(t *testing.T, url string) answer {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, http.DefaultClient, r)
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// app is a destination that keeps what it got.
type app struct {
	mu   sync.Mutex
	got  []got
	hold chan struct{} // nil: answers at once
}

type got struct {
	id, attempt string
	body        []byte
	header      http.Header
	path        string
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.got = append(a.got, got{r.Header.Get("Hooklatch-Delivery-Id"), r.Header.Get("Hooklatch-Attempt"), body, r.Header, r.URL.Path})
	hold := a.hold
	a.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}
}

func (a *app) requests() []got {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]got(nil), a.got...)
}
