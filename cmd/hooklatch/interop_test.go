package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNpmLibraries lets the commands sign and verify talk to npm libraries that others
// wrote: @octokit/webhooks-methods, standardwebhooks and stripe. It needs a folder with
// them and is run by make interop.
func TestNpmLibraries(t *testing.T) {
	folder := os.Getenv("INTEROP_NPM")
	if folder == "" {
		t.Skip("INTEROP_NPM does not name a folder with the libraries: run make interop")
	}
	peer := startPeer(t, folder)
	for _, lib := range []npmLibrary{
		{"octokit", "github", "X-Hub-Signature-256", octokitSecret},
		{"standardwebhooks", "standard-webhooks", "Webhook-Signature", "whsec" + "_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
		{"stripe", "stripe", "Stripe-Signature", "whsec" + "_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
	} {
		t.Run(lib.name, func(t *testing.T) {
			c := &npmCase{t: t, site: newSite(t), peer: peer, lib: lib}
			c.site.write("secret", lib.secret)
			c.bodies()
			c.hostile()
		})
	}
}

type npmLibrary struct{ name, scheme, header, secret string }

// peer is testdata/interop/peer.mjs.
type peer struct {
	in  io.Writer
	out *bufio.Scanner
}

type question struct {
	Lib     string      `json:"lib"`
	Op      string      `json:"op"`
	Secret  string      `json:"secret"`
	ID      string      `json:"id"`
	At      int64       `json:"at"`
	Now     int64       `json:"now"`
	Body    string      `json:"body"`
	Headers http.Header `json:"headers"`
}

type peerAnswer struct {
	Headers map[string]string
	Valid   bool
	Error   string
}

func startPeer(t *testing.T, folder string) *peer {
	t.Helper()
	script, err := os.ReadFile("testdata/interop/peer.mjs")
	if err != nil {
		t.Fatal(err)
	}
	// Read from the command line, so that the folder's packages are found.
	cmd := exec.Command("node", "--input-type=module", "--eval", string(script))
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return &peer{in, lines}
}

func (p *peer) ask(t *testing.T, q question) (a peerAnswer) {
	t.Helper()
	if err := json.NewEncoder(p.in).Encode(q); err != nil {
		t.Fatal(err)
	}
	if !p.out.Scan() {
		t.Fatalf("no answer from node: %v", p.out.Err())
	}
	if err := json.Unmarshal(p.out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

type npmCase struct {
	t    *testing.T
	site *site
	peer *peer
	lib  npmLibrary
}

const npmNow = 1760000000

func (c *npmCase) ask(op string, offset int64, body []byte, h http.Header) peerAnswer {
	c.t.Helper()
	return c.peer.ask(c.t, question{
		Lib: c.lib.name, Op: op, Secret: c.lib.secret, ID: "msg_1", At: npmNow + offset, Now: npmNow,
		Body: base64.StdEncoding.EncodeToString(body), Headers: h,
	})
}

// theirs are the headers that the library signs a body with.
func (c *npmCase) theirs(offset int64, body []byte) http.Header {
	c.t.Helper()
	a := c.ask("sign", offset, body, nil)
	if a.Headers == nil {
		c.t.Fatalf("%s does not sign: %s", c.lib.name, a.Error)
	}
	h := http.Header{}
	for name, value := range a.Headers {
		h.Set(name, value)
	}
	if c.lib.scheme == "github" {
		h.Set("X-GitHub-Delivery", "msg_1")
	}
	return h
}

// run runs a command that gives an answer, be it no.
func (c *npmCase) run(args ...string) (code int, out string) {
	c.t.Helper()
	code, out, messages := hooklatch(c.t, args...)
	if code > 1 {
		c.t.Fatalf("%v: exit code %d: %s", args, code, messages)
	}
	return code, out
}

// ours are the headers that the command sign makes.
func (c *npmCase) ours(body []byte) http.Header {
	c.t.Helper()
	file := c.site.write("body", string(body))
	_, out := c.run("sign", "--scheme", c.lib.scheme, "--secret-file", c.site.dir+"/secret", "--body", file,
		"--id", "msg_1", "--timestamp", strconv.Itoa(npmNow), "--json")
	var made signature
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		c.t.Fatal(err)
	}
	return made.Headers
}

// accepted says whether the command verify takes it.
func (c *npmCase) accepted(h http.Header, body []byte) (bool, string) {
	c.t.Helper()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			text.WriteString(name + ": " + value + "\r\n")
		}
	}
	headers, file := c.site.write("headers", text.String()), c.site.write("body", string(body))
	code, out := c.run("verify", "--scheme", c.lib.scheme, "--secret-file", c.site.dir+"/secret",
		"--headers", headers, "--body", file, "--now", strconv.Itoa(npmNow), "--json")
	return code == 0, out
}

// bodies go both ways.
func (c *npmCase) bodies() {
	for _, b := range []struct {
		name, body string
		asBytes    bool // they take the body for text, and change it
	}{
		{"JSON", `{"id":"evt_1","type":"x"}`, false},
		{"big number, double blanks, equal names", `{"n": 12345678901234567890,  "a":1.0,"a":2}`, false},
		{"non-ASCII", `{"name":"Zoë 😊"}`, false},
		{"escaped non-ASCII", `{"name":"Zo\u00eb \ud83d\ude0a"}`, false},
		{"U+2028 and an ampersand", "{\"a\":\"\u2028&<>\"}", false},
		{"CRLF at the end", "{\"a\":1}\r\n", false},
		{"blanks around", "  {} \n\n", false},
		{"form", "payload=%7B%7D&x=a+b", false},
		{"NUL", "a\x00b", false},
		{"200 KiB", `{"pad":"` + strings.Repeat("x", 200<<10) + `"}`, false},
		{"invalid UTF-8", "{\"a\":\"\xff\xfe\"}", true},
	} {
		body := []byte(b.body)
		if !b.asBytes {
			if ok, out := c.accepted(c.theirs(0, body), body); !ok {
				c.t.Errorf("%s, signed by %s: %s", b.name, c.lib.name, out)
			}
		}
		if a := c.ask("verify", 0, body, c.ours(body)); a.Valid == b.asBytes {
			c.t.Errorf("%s, signed by us: %s says %v %s", b.name, c.lib.name, a.Valid, a.Error)
		}
	}
}

// The rules of ours over which a library may differ from us.
const (
	ruleSpelling = "a signature has one spelling, and each item of a list is well formed"
	ruleOnce     = "a single-valued header or field stands once; a comma list may stand on several lines"
	ruleBounded  = "at most 32 candidates"
	ruleLoose    = "blanks around an item of a comma list are no part of it"
	ruleAsSigned = "the timestamp is signed as received, in one spelling"
	ruleBothWays = "a window looks both ways"
)

// hostileNpm is one change of a request that the library signed.
type hostileNpm struct {
	defect string
	offset int64 // of the timestamp from the clock
	// value is the signature header with T, MAC and UPPER filled in; lines are split
	// at "|". Empty: as signed.
	value string
	valid bool   // what we say
	rule  string // why the library says the opposite; empty: it says the same
}

var hostileNpms = map[string][]hostileNpm{
	"octokit": {
		{"upper-case hex", 0, "sha256=UPPER", false, ""},
		{"no prefix", 0, "MAC", false, ""},
		{"another prefix", 0, "sha1=MAC", false, ""},
		{"a blank behind the prefix", 0, "sha256= MAC", false, ""},
		{"one character more", 0, "sha256=MAC0", false, ""},
		{"on two lines", 0, "sha256=MAC|sha256=MAC", false, ""},
		{"not ASCII", 0, "sha256=é", false, ""},
	},
	"standardwebhooks": {
		{"300 s old", -300, "", true, ""},
		{"301 s old", -301, "", false, ""},
		{"300 s ahead", 300, "", true, ""},
		{"301 s ahead", 301, "", false, ""},
		{"padding dropped", 0, "v1,CUT", false, ""},
		{"another version beside", 0, "v2,x v1,MAC", true, ""},
		{"a bad one before", 0, "v1,ZEROS v1,MAC", true, ""},
		{"only another version", 0, "v1a,MAC", false, ""},
		{"an item without a version", 0, "MAC v1,MAC", false, ruleSpelling},
		{"two blanks between", 0, "v1,ZEROS  v1,MAC", false, ruleSpelling},
		{"a comma behind the MAC", 0, "v1,MAC,x", false, ruleSpelling},
		{"on two lines", 0, "v1,MAC|v1,ZEROS", false, ruleOnce},
		{"33 candidates", 0, strings.Repeat("v1,ZEROS ", 32) + "v1,MAC", false, ruleBounded},
	},
	"stripe": {
		{"300 s old", -300, "", true, ""},
		{"301 s old", -301, "", false, ""},
		{"300 s ahead", 300, "", true, ""},
		{"301 s ahead", 301, "", false, ruleBothWays},
		{"upper-case hex", 0, "t=T,v1=UPPER", false, ""},
		{"63 characters", 0, "t=T,v1=CUT", false, ""},
		{"another version beside", 0, "t=T,v0=ZEROS,v1=MAC", true, ""},
		{"a bad one before", 0, "t=T,v1=ZEROS,v1=MAC", true, ""},
		{"only another version", 0, "t=T,v0=MAC", false, ""},
		{"no timestamp", 0, "v1=MAC", false, ""},
		{"timestamp twice, the right one last", 0, "t=1,t=T,v1=MAC", false, ruleOnce},
		{"timestamp with a plus", 0, "t=+T,v1=MAC", false, ruleAsSigned},
		{"timestamp with a zero in front", 0, "t=0T,v1=MAC", false, ruleAsSigned},
		{"timestamp with a fraction", 0, "t=T.9,v1=MAC", false, ruleAsSigned},
		{"timestamp with a tail", 0, "t=Tx,v1=MAC", false, ruleAsSigned},
		{"timestamp in milliseconds", 0, "t=T000,v1=MAC", false, ""},
		{"a second equals sign", 0, "t=T,v1=MAC=x", false, ruleSpelling},
		{"an item without a tag", 0, "x,t=T,v1=MAC", false, ruleSpelling},
		{"a blank behind the comma", 0, "t=T, v1=MAC", true, ruleLoose},
		{"list on two lines", 0, "t=T|v1=MAC", true, ruleOnce},
		{"33 candidates", 0, "t=T," + strings.Repeat("v1=ZEROS,", 32) + "v1=MAC", false, ruleBounded},
	},
}

func (c *npmCase) hostile() {
	body := []byte(`{"id":"evt_1"}`)
	all := append([]hostileNpm{{"nothing", 0, "", true, ""}, {"an empty signature", 0, " ", false, ""}}, hostileNpms[c.lib.name]...)
	differ := 0
	for _, h := range all {
		headers := c.theirs(h.offset, body)
		good := headers.Get(c.lib.header)
		mac := good[strings.LastIndexAny(strings.TrimRight(good, "="), "=,")+1:]
		zeros := strings.Repeat("0", 64)
		if c.lib.name == "standardwebhooks" {
			zeros = base64.StdEncoding.EncodeToString(make([]byte, 32))
		}
		if h.value != "" {
			value := strings.NewReplacer("T", strconv.FormatInt(npmNow+h.offset, 10), "MAC", mac, "UPPER", strings.ToUpper(mac),
				"CUT", mac[:len(mac)-1], "ZEROS", zeros).Replace(h.value)
			headers[c.lib.header] = strings.Split(value, "|")
		}
		ok, out := c.accepted(headers, body)
		if ok != h.valid {
			c.t.Errorf("%s: we say %s", h.defect, out)
		}
		if a := c.ask("verify", h.offset, body, headers); a.Valid != (h.valid == (h.rule == "")) {
			c.t.Errorf("%s: %s says %v %s, we say %s; rule: %q", h.defect, c.lib.name, a.Valid, a.Error, out, h.rule)
		}
		if h.rule != "" {
			differ++
		}
		// Whatever is right about the header, another body is not.
		if ok, out := c.accepted(headers, append([]byte(" "), body...)); ok {
			c.t.Errorf("%s: another body verifies: %s", h.defect, out)
		}
	}
	c.t.Logf("%d requests, over %d of them we differ", len(all), differ)
}
