package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The commands of the page work as they stand, but for the address and the database.
func TestPageCommandsWork(t *testing.T) {
	for _, tool := range []string{"curl", "psql"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not on this machine", tool)
		}
	}
	_, block, found := strings.Cut(page(t), "```\necho ")
	block, _, _ = strings.Cut("echo "+block, "```")
	if !found || strings.Count(block, "\n") != 4 {
		t.Fatalf("void: no such block: %s", block)
	}
	s := newSite(t)
	hooklatch := build(t, "../../cmd/hooklatch")
	if err := os.Symlink(hooklatch, filepath.Join(s.dir, "hooklatch")); err != nil {
		t.Fatal(err)
	}
	s.start(build(t, "."), s.url)
	block = strings.NewReplacer("http://127.0.0.1:8080/in/billing", s.address, "postgres:///webhooks", `"`+s.url+`"`).Replace(block)
	for line := range strings.Lines(block) {
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "PATH="+s.dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s%v\n%s", line, err, out)
		}
		if strings.Contains(line, "curl") && !strings.Contains(string(out), "HTTP/1.1 202") {
			t.Errorf("%s%s", line, out)
		}
	}
	if !eventually(func() bool {
		return s.number(`SELECT count(*) FROM payment WHERE invoice = 'inv_1' AND amount_cents = 1900`) == 2
	}) {
		t.Error("the two payments are not booked")
	}
}

func TestPageNamesEveryFailpoint(t *testing.T) {
	var names []string
	for _, pattern := range []string{"../../inbox/*.go", "../../consumer/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`failpoint\("(\w+)"\)`).FindAllStringSubmatch(string(text), -1) {
				names = append(names, m[1])
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("void: there are none")
	}
	for _, name := range names {
		if !strings.Contains(page(t), "`"+name+"`") {
			t.Errorf("no word about %s", name)
		}
	}
	for _, step := range steps {
		if step.failpoint != "" && !slices.Contains(names, step.failpoint) {
			t.Errorf("there is no failpoint %s", step.failpoint)
		}
	}
}

// Each refusal has its status, and a stop leaves nothing behind.
func TestAnswersAndStop(t *testing.T) {
	s := newSite(t)
	fault := inboxtest.NewFaultProxy(t, s.url)
	p := s.start(build(t, "."), fault.URL())
	const paid = `{"invoice":"inv_1","amount_cents":1}`
	request := func(id, body string) *http.Request {
		header, err := s.v.Sign(verify.Request{Method: "POST", Body: []byte(body)}, verify.SignOptions{DeliveryID: id})
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequest("POST", s.address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		return r
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: patience}}
	wants := func(what string, r *http.Request, status int, code string) {
		t.Helper()
		res, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != status || !strings.Contains(string(body), code) {
			t.Errorf("%s: %d %s, want %d %s", what, res.StatusCode, body, status, code)
		}
		if after := res.Header.Get("Retry-After"); (after != "") != (status == 503) {
			t.Errorf("%s: Retry-After %q", what, after)
		}
	}
	wants("new", request("dlv_1", paid), 202, "")
	wants("duplicate", request("dlv_1", paid), 202, "")
	wants("conflict", request("dlv_1", paid+" "), 409, `"delivery_conflict"`)
	spoiled := request("dlv_2", paid)
	spoiled.Header.Set("X-Webhook-Signature", strings.Repeat("0", 64))
	wants("wrong signature", spoiled, 401, `"signature_invalid"`)
	large := request("dlv_3", paid)
	large.ContentLength, large.Body = verify.DefaultMaxBody+1, io.NopCloser(strings.NewReader(strings.Repeat("x", verify.DefaultMaxBody+1)))
	large.Header.Set("Expect", "100-continue") // the answer comes before the body is sent
	wants("too large", large, 413, `"body_too_large"`)
	get := request("dlv_4", "")
	get.Method = "GET"
	wants("other method", get, 405, "")
	wants("no JSON", request("dlv_5", "paid"), 202, "")
	if !eventually(func() bool { return s.number(`SELECT count(*) FROM hooklatch.outbox WHERE state = 'blocked'`) == 1 }) {
		t.Error("a body that is no payment is not kept for a person")
	}
	fault.Set(inboxtest.Reset)
	wants("database away", request("dlv_6", paid), 503, `"store_unavailable"`)
	fault.Set(inboxtest.Pass)
	s.deliver("dlv_6", paid)

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		t.Errorf("ended with %v", p.cmd.ProcessState)
	}
	if n := s.number(`SELECT count(*) FROM hooklatch.outbox WHERE lease_until IS NOT NULL`); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}
