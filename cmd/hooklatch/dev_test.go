package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/proxy"
)

// developing is a running dev.
type developing struct {
	*process
	env   []string
	state devState
}

// startDev runs dev. Without a database it starts a Postgres of its own.
func startDev(t *testing.T, database string, args ...string) *developing {
	t.Helper()
	runtime := t.TempDir()
	env := []string{"XDG_RUNTIME_DIR=" + runtime, "DATABASE_URL=" + database, "HOOKLATCH_CONFIG="}
	d := &developing{process: start(t, env, append([]string{"dev"}, args...)...), env: env}
	d.line("  ready  ")
	text, err := os.ReadFile(d.stateFile(runtime))
	if err == nil {
		err = json.Unmarshal(text, &d.state)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (p *process) stateFile(runtime string) string {
	return filepath.Join(runtime, "hooklatch", fmt.Sprintf("dev-%d.json", p.cmd.Process.Pid))
}

// send runs send in another process, as in another terminal.
func (d *developing) send(args ...string) (code int, output string) {
	d.t.Helper()
	p := start(d.t, d.env, append([]string{"send"}, args...)...)
	return p.wait(), p.output()
}

func (d *developing) end() {
	d.t.Helper()
	d.signal(syscall.SIGINT)
	if code := d.wait(); code != 0 {
		d.t.Errorf("exit code %d, want 0", code)
	}
}

func TestDevShowsEachAnswerOnce(t *testing.T) {
	t.Parallel()
	d := startDev(t, "", "--print-secret")
	d.line("  postgres  ", "throwaway, unix socket")
	d.line("  migrations  ", " applied")
	d.line("  source  ", "dev: POST "+d.state.URL, "zhisou-v1, key dev-1")
	d.line("  secret  ", d.state.Secret)
	d.line("→", "hooklatch.test", "202 accepted", "dev-1")
	d.line("←", "echo", "attempt 1", "200")
	if output := d.output(); strings.Index(output, "  ready  ") > strings.Index(output, "→") {
		t.Error("events come before the ready line")
	}
	for _, c := range []struct{ fault, status, sign, shown string }{
		{"", "202 accepted", "→", "202 accepted"},
		{"body", "401 signature_invalid", "✗", "401 signature_invalid"},
		{"clock", "401 timestamp_out_of_window", "✗", "s behind this clock"},
		{"key", "401 signature_invalid", "✗", "key_unknown"},
		{"sig", "401 signature_invalid", "✗", "signature_mismatch"},
		{"id", "400 delivery_id_invalid", "✗", "400 delivery_id_invalid"},
		{"dup", "202 duplicate", "=", "202 duplicate"},
		{"conflict", "409 delivery_conflict", "≠", "409 delivery_conflict"},
		{"big", "413 body_too_large", "✗", "262145 bytes, 262144 are taken"},
	} {
		args := []string{}
		if c.fault != "" {
			args = []string{"--break", c.fault}
		}
		code, output := d.send(args...)
		if code != 0 || !strings.Contains(output, c.status) {
			t.Errorf("send --break %s: exit code %d, want 0 and %q:\n%s", c.fault, code, c.status, output)
		}
		words := strings.Fields(output)
		id := words[2]
		if c.fault == "id" { // what it carried is not well formed
			id = "request " + words[3]
		}
		d.line("  "+c.sign+"  dev", c.shown, id)
	}
	d.line("≠", "hooklatch events diff --conflict dlv_")
	// The printed line for curl, without curl.
	d.line("  curl  ", "good for 5 minutes")
	curl := d.line("curl -i", "--data-binary")
	if output := d.output(); !strings.Contains(output, curl+"\n  ready  ") {
		t.Errorf("the curl line is not the last one before ready:\n%s", output)
	}
	if a := do(t, http.DefaultClient, curlRequest(t, curl)); a.status != 202 {
		t.Errorf("the printed curl line: %d %s", a.status, a.body)
	}
	if a := get(t, d.state.Admin+"/readyz"); a.status != 200 {
		t.Errorf("/readyz: %d", a.status)
	}
	// The other commands find its database.
	if p := start(t, d.env, "events", "list", "--json"); p.wait() != 0 || strings.Count(p.output(), `"delivery_id"`) != 5 {
		t.Errorf("events list: exit code %d\n%s", p.code, p.output())
	}
	d.end()
	d.line("  stopped  ", "5 accepted (1 the start-up test), 1 duplicate, 1 conflict, 6 refused", "Data thrown away")

	u, err := url.Parse(d.state.Database)
	if err != nil {
		t.Fatal(err)
	}
	left := []string{u.Query().Get("host"), d.stateFile(strings.TrimPrefix(d.env[0], "XDG_RUNTIME_DIR="))}
	for _, path := range left {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left behind: %v", path, err)
		}
	}
	for _, args := range []string{"send", "trace dlv_1", "events list"} {
		p := start(t, d.env, strings.Fields(args)...)
		if p.wait() != exitUnreachable || !strings.HasPrefix(p.output(), "hooklatch: no dev is running\nTry: ") {
			t.Errorf("%s after the end: exit code %d %s", args, p.code, p.output())
		}
	}
}

// curlRequest reads a line of -H 'Name: value' … --data-binary BODY URL.
func curlRequest(t *testing.T, line string) *http.Request {
	t.Helper()
	words := strings.Split(line, "'")
	var r *http.Request
	header := http.Header{}
	for i := 0; i+1 < len(words); i++ {
		switch {
		case strings.HasSuffix(words[i], "-H "):
			name, value, _ := strings.Cut(words[i+1], ": ")
			header.Set(name, value)
		case strings.HasSuffix(words[i], "--data-binary "):
			var err error
			if r, err = http.NewRequest("POST", strings.TrimSpace(words[i+2]), strings.NewReader(words[i+1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r == nil {
		t.Fatalf("no body in %s", line)
	}
	r.Header = header
	return r
}

// One scheme of each kind: an id in the body, one in a header, a secret in base64, a
// pair of keys, a signed URL, a native one.
func TestDevTakesOtherSchemes(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"stripe", "github", "standard-webhooks", "discord", "twilio", "timestamped-sha256"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			d := startDev(t, inboxtest.URL(t), "--scheme", scheme, "--events", "json")
			code, output := d.send("--break", "dup")
			if code != 0 {
				t.Errorf("send --break dup: exit code %d\n%s", code, output)
			}
			if code, output := d.send("--break", "sig"); code != 0 {
				t.Errorf("send --break sig: exit code %d\n%s", code, output)
			}
			d.line(`"event":"request"`, `"outcome":"duplicate"`)
			d.line(`"event":"attempt"`, `"state":"accepted"`)
			d.end()
			if strings.Contains(d.output(), d.state.Secret) {
				t.Error("the secret was printed")
			}
		})
	}
}

func TestDevHandsOnToThisMachineByItsOwnName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	addresses, err := net.DefaultResolver.LookupHost(t.Context(), host)
	if err != nil || !slices.ContainsFunc(addresses, func(a string) bool { return net.ParseIP(a).IsLoopback() }) {
		t.Skip("the name of this machine leads to no loopback address")
	}
	app, appURL := startApp(t)
	d := startDev(t, inboxtest.URL(t), "--to", strings.Replace(appURL, "127.0.0.1", host, 1))
	defer d.end()
	if len(app.requests()) != 1 {
		t.Errorf("the app got %d requests, want the one of the start", len(app.requests()))
	}
}

func TestDevTakesARecipe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ours.yaml")
	recipe := "algo: hmac-sha256\nsignature: {name: X-Ours}\ntemplate: '{body}'\nid: {from: 'header:X-Ours-Id'}\n"
	if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDev(t, inboxtest.URL(t), "--recipe", file)
	d.line("  source  ", file+", key dev-1")
	if code, output := d.send("--break", "dup"); code != 0 || strings.Count(output, "202 ") != 2 {
		t.Errorf("send --break dup: exit code %d\n%s", code, output)
	}
	d.line("curl -i", "-H 'X-Ours: ")
	d.end()
}

func TestDevCallsTheProgramAsItWasCalled(t *testing.T) {
	e := newDevEvents(&stdio{}, "lines")
	e.program = "./bin/hooklatch"
	if line := e.requestLine(&proxy.Result{Outcome: proxy.OutcomeConflict, DeliveryID: "dlv_1"}, ""); !strings.Contains(line, " ./bin/hooklatch events diff --conflict dlv_1") {
		t.Error(line)
	}
}

// A success that was not what the sender meant says so.
func TestDevTellsDuplicatesApart(t *testing.T) {
	e := newDevEvents(&stdio{}, "lines")
	e.program = "hooklatch"
	for want, r := range map[string]proxy.Result{
		"200 duplicate       nothing new":                                                                   {},
		"200 duplicate       body known under another id, dlv_0":                                            {KeptAs: "dlv_0"},
		"200 duplicate       same id, other bytes, the first stay   hooklatch events diff --conflict dlv_1": {Conflict: true},
	} {
		r.Outcome, r.Status, r.DeliveryID, r.Duplicate = proxy.OutcomeDuplicate, 200, "dlv_1", true
		if line := e.requestLine(&r, ""); strings.Join(strings.Fields(line)[3:], " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s\nwant %s", line, want)
		}
	}
}

// What carries no delivery id once had none of any kind in the live view, and one
// that was never sent in the output of send.
func TestRefusedLineNamesTheRequest(t *testing.T) {
	t.Parallel()
	d := startDev(t, inboxtest.URL(t), "--scheme", "stripe")
	code, output := d.send("--break", "sig")
	words := strings.Fields(output)
	if code != 0 || strings.Contains(output, "dlv_") || len(words) < 4 || words[2] != "request" {
		t.Fatalf("send --break sig: exit code %d\n%s", code, output)
	}
	d.line("✗", "401 signature_invalid", "request "+words[3])
	d.end()
}

func TestDevSaysWhetherTheAppTookTheStartUpDelivery(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	for to, want := range map[string]string{
		appURL:       "a test delivery was committed and handed on.",
		refusing.URL: "a test delivery was committed; the app has not taken it yet.",
	} {
		d := startDev(t, inboxtest.URL(t), "--to", to)
		d.line("  ready  ", want)
		d.end()
	}
}

func TestDevSpeaksJSONToPrograms(t *testing.T) {
	t.Parallel()
	d := startDev(t, inboxtest.URL(t), "--json")
	first := d.entry(`"event":"ready"`)
	if first["url"] != d.state.URL || first["v"] != 1.0 {
		t.Errorf("ready: %v", first)
	}
	request := d.entry(`"event":"request"`)
	if request["outcome"] != "accepted" || request["status"] != 202.0 || request["key_id"] != "dev-1" || len(request["body_sha256"].(string)) != 64 {
		t.Errorf("request: %v", request)
	}
	attempt := d.entry(`"event":"attempt"`)
	if attempt["state"] != "accepted" || attempt["delivery_id"] != request["delivery_id"] {
		t.Errorf("attempt: %v", attempt)
	}
	d.end()
}

func TestDevRecordsWhatItGotByteForByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	app, appURL := startApp(t)
	d := startDev(t, inboxtest.URL(t), "--record", dir, "--to", appURL+"/x?y=1")
	v, err := d.state.verifier()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, v: v}
	body := "{\"id\":\"a\",\r\n\x00\xff \"type\":\"t\"}\r\n"
	if a := do(t, http.DefaultClient, s.request(d.state.URL, "dlv_rec", body)); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// Refused before its body was read.
	if code, _ := d.send("--break", "clock"); code != 0 {
		t.Errorf("send --break clock: exit code %d", code)
	}
	if code, output := d.send("--break", "big"); code != 0 {
		t.Errorf("send --break big: exit code %d\n%s", code, output)
	}
	eventually(t, "handed to the app of --to", func() bool { return len(app.requests()) == 2 })
	d.end()

	files, err := filepath.Glob(dir + "/*.http")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files, want 4: %v", len(files), err)
	}
	recorded, err := os.ReadFile(files[1])
	if err != nil || !bytes.HasSuffix(recorded, []byte("\n\n"+body)) || !bytes.Contains(recorded, []byte("X-Webhook-Delivery-Id: dlv_rec\n")) {
		t.Errorf("recorded %q %v", recorded, err)
	}
	if recorded, err := os.ReadFile(files[3]); err != nil || bytes.Contains(recorded, []byte("\nExpect:")) {
		t.Errorf("what is recorded still waits to be asked for its body: %v", err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(d.state.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 0, exitNo, exitNo} {
		p := start(t, nil, "verify", "--scheme", "zhisou-v1", "--secret-file", "dev-1="+secret, "--request", files[i])
		if code := p.wait(); code != want {
			t.Errorf("verify --request of file %d: exit code %d, want %d\n%s", i+1, code, want, p.output())
		}
	}
}

func TestDevKeepsItsHandsOffOtherData(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	s.config(appURL)
	database := inboxtest.URL(t)
	sv := startServe(t, s, database)
	if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_1", "{}")); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	sv.end()
	p := start(t, []string{"XDG_RUNTIME_DIR=" + t.TempDir(), "DATABASE_URL=" + database}, "dev")
	if p.wait() != exitUsage || !strings.Contains(p.output(), "it holds deliveries of other sources than dev: billing") {
		t.Errorf("exit code %d\n%s", p.code, p.output())
	}
}

func TestDevGoesOnWithKeptData(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "hooklatch-dev") // root's Postgres has to get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "data")
	d := startDev(t, "", "--keep", kept)
	id := strings.Fields(d.line("→", "202 accepted"))[3]
	d.end()
	d.line("  stopped  ", "Data kept in "+kept)
	d = startDev(t, "", "--keep", kept)
	d.line("  migrations  ", "up to date")
	if p := start(t, d.env, "events", "show", id); p.wait() != 0 {
		t.Errorf("events show %s of the first run: exit code %d\n%s", id, p.code, p.output())
	}
	d.end()
}

func TestDevSaysFirstWhatItDoesToADatabaseOfOnesOwn(t *testing.T) {
	t.Parallel()
	database := inboxtest.URL(t)
	d := startDev(t, database)
	d.line("  postgres  ", databaseAddress(database), "DATABASE_URL is set")
	d.line("  !  ", "the schema hooklatch is created in that database, and its data stays")
	output := d.output()
	if strings.Index(output, "  !  ") > strings.Index(output, "  migrations  ") {
		t.Error("it is said after the migrations")
	}
	d.end()
	d.line("  stopped  ", "Data stays in the database of DATABASE_URL")
}

// A later dev once took the way to an earlier one with it when it ended, and for
// good when it was killed.
func TestSendFindsTheEarlierDevAgain(t *testing.T) {
	t.Parallel()
	d := startDev(t, inboxtest.URL(t))
	later := start(t, append(d.env, "DATABASE_URL="+inboxtest.URL(t)), "dev")
	later.line("  note  ", d.state.URL)
	later.line("  ready  ")
	id := func() string {
		code, output := d.send()
		if code != 0 {
			t.Fatalf("send: exit code %d\n%s", code, output)
		}
		return strings.Fields(output)[2]
	}
	later.line("→", id())
	later.signal(syscall.SIGKILL)
	later.wait()
	d.line("→", id())
	left := later.stateFile(strings.TrimPrefix(d.env[0], "XDG_RUNTIME_DIR="))
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", left, err)
	}
	d.end()
}

func TestDevSaysThatItsPortIsTaken(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:8787/in/dev":  "",
		"http://127.0.0.1:41234/in/dev": "   (8787 is taken: using 41234; send goes here now)",
	} {
		if got := otherPort(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// A jump of revisions is seen where the source has an order, and nowhere else.
func TestDevShowsAJumpOfRevisions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ordering, held string }{{"strict", "held"}, {"none", "accepted"}} {
		d := startDev(t, "", "--ordering", c.ordering)
		code, output := d.send("--break", "revision")
		if code != 0 || strings.Count(output, "202 accepted") != 2 {
			t.Errorf("send --break revision: exit code %d\n%s", code, output)
		}
		lines := strings.Split(output, "\n")
		id := strings.Fields(lines[1])[2]
		eventually(t, id+" is "+c.held, func() bool {
			p := start(t, d.env, "events", "show", id)
			return p.wait() == 0 && strings.Contains(p.output(), "echo   "+c.held)
		})
		gaps := start(t, d.env, "resources", "gaps", "--json")
		if gaps.wait() != 0 || strings.Contains(gaps.output(), `"first_missing":2`) != (c.ordering == "strict") {
			t.Errorf("gaps under %s: %s", c.ordering, gaps.output())
		}
		d.end()
	}
}

func TestDevRefusesWrongUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"--events html", `unknown events "html"`},
		{"--ordering newest", `unknown ordering "newest": none, latest, coalesce, strict are known`},
		{"--scheme strype", `no scheme is called "strype"`},
		{"--scheme quite-another", "Try: --recipe FILE "},
		{"--scheme stripe --recipe x.yaml", "--scheme and --recipe both say"},
		{"--recipe x.yaml", "x.yaml: no such file"},
		{"--to localhost:3000", `"localhost:3000" is no http or https URL`},
		{"--to http://u:p@x/", "without a password"},
		{"serve", `unknown command "dev serve"`},
	} {
		p := start(t, []string{"XDG_RUNTIME_DIR=" + t.TempDir(), "DATABASE_URL=postgres://127.0.0.1:1/x"}, append([]string{"dev"}, strings.Fields(c.args)...)...)
		if p.wait() != exitUsage || !strings.Contains(p.output(), c.want) {
			t.Errorf("dev %s: exit code %d, want %d and %q:\n%s", c.args, p.code, exitUsage, c.want, p.output())
		}
	}
	p := start(t, []string{"XDG_RUNTIME_DIR=" + t.TempDir(), "DATABASE_URL=postgres://127.0.0.1:1/x"}, "dev")
	if p.wait() != exitUnreachable || !strings.Contains(p.output(), "Try: check that Postgres runs there") {
		t.Errorf("no database: exit code %d\n%s", p.code, p.output())
	}
}
