package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// presetFlags name a scheme and the key that keygen made for it.
func presetFlags(scheme verify.Scheme, key string) []string {
	flags := []string{"--scheme", scheme.Name(), "--secret-file", "k1=" + key}
	for _, p := range scheme.Recipe().Params {
		flags = append(flags, "--param", p+"=example")
	}
	return flags
}

// The commands belong together: the key that keygen makes for a scheme signs with
// sign, and what is signed verifies with verify, for every scheme that is built in.
func TestTheKeyOfEveryPresetSignsAndVerifies(t *testing.T) {
	signed := 0
	for _, name := range verify.Presets() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			key := file("key")
			if code, _, messages := hooklatch(t, "keygen", "--scheme", name, "-o", key); code != exitOK {
				t.Fatalf("keygen: exit code %d\n%s", code, messages)
			}
			public := key
			if _, err := os.Stat(key + ".pub"); err == nil {
				public += ".pub"
			}
			scheme, _ := verify.Preset(name)
			of := sampleOf(scheme, "dlv_1", time.Now())
			url := exampleURL
			if len(of.query) > 0 {
				url += "?" + of.query.Encode()
			}
			var head bytes.Buffer
			if err := writeHeader(&head, of.header); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string][]byte{"headers": head.Bytes(), "body": of.body} {
				if err := os.WriteFile(file(name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			sign := append([]string{"sign", "--headers", file("headers"), "--body", file("body"), "--url", url, "--output"}, "request")
			code, request, messages := hooklatch(t, append(sign, presetFlags(scheme, key)...)...)
			if code == exitUsage && strings.Contains(messages, verify.ErrNoSigner.Error()) {
				return // held below
			}
			if code != exitOK {
				t.Fatalf("sign: exit code %d\n%s", code, messages)
			}
			signed++
			judge := func(what, request string) {
				t.Helper()
				if err := os.WriteFile(file("request"), []byte(request), 0o600); err != nil {
					t.Fatal(err)
				}
				code, out, messages := hooklatch(t, append([]string{"verify", "--request", file("request"), "--json"}, presetFlags(scheme, public)...)...)
				var got verdict
				if err := json.Unmarshal([]byte(out), &got); code != exitOK || err != nil || !got.Valid || got.Scheme != name {
					t.Errorf("%s does not verify: exit code %d, %s%s", what, code, out, messages)
				}
			}
			judge("the request", request)
			sign[len(sign)-1] = "curl"
			if code, out, messages := hooklatch(t, append(sign, presetFlags(scheme, key)...)...); code != exitOK {
				t.Errorf("sign --output curl: exit code %d\n%s", code, messages)
			} else if runtimeHasShell() {
				judge("the curl line", posted(t, dir, out))
			}
		})
	}
	if signed < 97 {
		t.Errorf("only %d schemes sign", signed)
	}
}

func runtimeHasShell() bool {
	_, err := exec.LookPath("sh")
	return err == nil
}

// posted is the request that a curl line sends, as verify --request reads it. The
// shell runs the line with a curl of ours, which tells its arguments and its input.
func posted(t *testing.T, dir, line string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", "curl() { printf '%s\\0' \"$@\"; printf '\\0'; for last; do :; done; case \" $* \" in *' @- '*) cat;; esac; }\n"+line)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	text, stdin, _ := strings.Cut(string(out), "\x00\x00")
	words := strings.Split(text, "\x00")
	r := verify.Request{Header: map[string][]string{}, URL: words[len(words)-1]}
	for i, word := range words {
		switch word {
		case "-X":
			r.Method = words[i+1]
		case "-H":
			name, value, _ := strings.Cut(words[i+1], ": ")
			r.Header[name] = append(r.Header[name], value)
		case "--data-binary":
			if file, ok := strings.CutPrefix(words[i+1], "@"); file == "-" {
				r.Body = []byte(stdin)
			} else if !ok {
				r.Body = []byte(words[i+1])
			} else if r.Body, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	var b bytes.Buffer
	if err := writeRequest(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func presetOf(t testing.TB, name string) verify.Scheme {
	t.Helper()
	scheme, ok := verify.Preset(name)
	if !ok {
		t.Fatalf("no scheme %s", name)
	}
	return scheme
}

// What is sent is what was signed: Twilio signs a form by its fields, and anything
// else by its hash.
func TestSignPicksTheContentTypeThatIsSent(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"key": strings.Repeat("k", 32), "event.json": `{"id":"evt_1"}`, "form.txt": "From=%2B1555&Body=hi"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--scheme", "twilio", "--secret-file", "key"}
	for body, kind := range map[string]string{"event.json": "application/json", "form.txt": "application/x-www-form-urlencoded"} {
		_, request, messages := hooklatch(t, append(flags, "sign", "--body", body, "--url", "https://hooks.example.com/in", "--output", "request")...)
		if err := os.WriteFile("captured.http", []byte(request), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, _ := hooklatch(t, append(flags, "verify", "--request", "captured.http")...)
		if code != exitOK || !strings.Contains(request, "Content-Type: "+kind+"\n") {
			t.Errorf("%s: exit code %d\n%s%s%s", body, code, request, messages, out)
		}
	}
}

// A scheme whose id is the hash of the body would count the first of two samples
// only, and a refusal would be known by the hash of nothing.
func TestSamplesDifferAndHeadsHaveNoBodyHash(t *testing.T) {
	for _, name := range verify.Presets() {
		scheme := presetOf(t, name)
		at := time.Unix(1760000000, 0)
		if bytes.Equal(sampleOf(scheme, "dlv_1", at).body, sampleOf(scheme, "dlv_2", at).body) {
			t.Errorf("%s: two events have one body", name)
		}
		head := verify.Request{Method: "POST", URL: "/in", Header: map[string][]string{}}
		if id := wireID(scheme, head); id != "" {
			t.Errorf("%s: a head without an id has the id %s", name, id)
		}
	}
}
