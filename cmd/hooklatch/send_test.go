package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hooklatch/hooklatch/verify"
)

const testSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// receiver answers as a source of that scheme does, so that send can be seen to
// cause each answer and to judge it. What it knows of ids is gone with the test.
func receiver(t *testing.T, scheme string) *httptest.Server {
	preset, ok := verify.Preset(scheme)
	if !ok {
		t.Fatalf("no scheme %s", scheme)
	}
	key, err := verify.NewKey("k1", []byte(testSecret), preset.SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	v := &verify.Verifier{Scheme: preset, Keys: keys}
	var mu sync.Mutex
	seen := map[string][32]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(status int, code string) {
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(map[string]any{"code": code})
		}
		if r.ContentLength > verify.DefaultMaxBody {
			refuse(http.StatusRequestEntityTooLarge, "body_too_large")
			return
		}
		body, _ := io.ReadAll(r.Body)
		e, err := v.Verify(verify.Request{Method: r.Method, URL: r.RequestURI, Header: r.Header, Body: body})
		var refusal *verify.Error
		if errors.As(err, &refusal) {
			status := http.StatusUnauthorized
			if errors.Is(err, verify.ErrMalformed) {
				status = http.StatusBadRequest
			}
			refuse(status, refusal.Reason.Code())
			return
		}
		mu.Lock()
		defer mu.Unlock()
		hash, there := seen[e.DeliveryID]
		if there && hash != sha256.Sum256(body) {
			refuse(http.StatusConflict, "delivery_conflict")
			return
		}
		seen[e.DeliveryID] = sha256.Sum256(body)
		w.WriteHeader(http.StatusAccepted)
		json.NewEncoder(w).Encode(map[string]any{"status": "accepted", "delivery_id": e.DeliveryID, "duplicate": there})
	}))
	t.Cleanup(server.Close)
	return server
}

func TestSendCausesEachAnswer(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(testSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const noPart = "2 "
	for scheme, answers := range map[string]map[string]string{
		"zhisou-v1": {"": "0 202 accepted", "body": "0 401 signature_invalid", "clock": "0 401 timestamp_out_of_window",
			"key": "0 401 signature_invalid", "sig": "0 401 signature_invalid", "id": "0 400 delivery_id_invalid",
			"dup": "0 202 accepted 202 duplicate", "conflict": "0 202 accepted 409 delivery_conflict", "big": "0 413 body_too_large"},
		"stripe": {"": "0 202 accepted", "body": "0 401 signature_invalid", "clock": "0 401 timestamp_out_of_window",
			"key": noPart, "sig": "0 401 signature_invalid", "id": noPart,
			"dup": "0 202 accepted 202 duplicate", "conflict": "0 202 accepted 409 delivery_conflict", "big": "0 413 body_too_large"},
		"github": {"": "0 202 accepted", "body": "0 401 signature_invalid", "clock": noPart, "key": noPart,
			"sig": "0 401 signature_invalid", "id": "0 400 delivery_id_invalid", "dup": "0 202 accepted 202 duplicate",
			"conflict": "0 202 accepted 409 delivery_conflict", "big": "0 413 body_too_large"},
		"standard-webhooks": {"": "0 202 accepted", "clock": "0 401 timestamp_out_of_window", "sig": "0 401 signature_invalid",
			"id": "0 400 delivery_id_invalid", "conflict": "0 202 accepted 409 delivery_conflict"},
	} {
		server := receiver(t, scheme)
		for fault, want := range answers {
			t.Run(scheme+"/"+fault, func(t *testing.T) {
				args := []string{"send", "--url", server.URL + "/in", "--scheme", scheme, "--secret-file", "k1=" + secret, "--json"}
				if fault != "" {
					args = append(args, "--break", fault)
				}
				code, out, messages := hooklatch(t, args...)
				got := fmt.Sprintf("%d ", code) + strings.Join(answersOf(t, out), " ")
				if got != want {
					t.Errorf("got %q, want %q\n%s%s", got, want, out, messages)
				}
				if strings.Contains(out+messages, testSecret) {
					t.Error("the secret was printed")
				}
			})
		}
	}
}

// answersOf reads the lines of send --json as "STATUS CODE".
func answersOf(t *testing.T, out string) (answers []string) {
	decoder := json.NewDecoder(strings.NewReader(out))
	for decoder.More() {
		var got sent
		if err := decoder.Decode(&got); err != nil {
			t.Fatal(err)
		}
		what := got.Code
		if got.Duplicate {
			what = "duplicate"
		} else if what == "" {
			what = "accepted"
		}
		answers = append(answers, fmt.Sprintf("%d %s", got.Status, what))
	}
	return answers
}

func TestSendSaysThatAnAnswerWasNotExpected(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(testSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, messages := hooklatch(t, "send", "--url", server.URL, "--scheme", "zhisou-v1", "--secret-file", "k1="+secret, "--id", "dlv_1")
	if code != exitNo || !strings.HasPrefix(out, "307 Temporary Redirect") || !strings.Contains(out, "expected 2xx") {
		t.Errorf("exit code %d, %q, %q", code, out, messages)
	}
}

// It once said to start dev, whatever the reason was.
func TestSendSaysWhyNobodyAnswered(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(testSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	quiet := log.New(io.Discard, "", 0)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for url, want := range map[string]string{
		secure.URL + "/in": "Try: SSL_CERT_FILE=ca.pem ",
		"https" + strings.TrimPrefix(plain.URL, "http") + "/in": "Try: --url " + plain.URL + "/in ",
		"http://127.0.0.1:1/in":                                 "Try: check that the server is up and listens on port 1 of 127.0.0.1:",
	} {
		code, _, messages := hooklatch(t, "send", "--url", url, "--scheme", "github", "--secret-file", secret)
		if code != exitUnreachable || !strings.Contains(messages, want) || strings.Contains(messages, " dev") {
			t.Errorf("%s: exit code %d, want %q\n%s", url, code, want, messages)
		}
	}
}

func TestSendReachesASourceThatDemandsItsHost(t *testing.T) {
	var host string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { host = r.Host + r.RequestURI }))
	defer server.Close()
	s := newSite(t)
	file := s.config("http://127.0.0.1:1", `listen: {http: "`+server.Listener.Addr().String()+`", admin: "127.0.0.1:0"}`)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.write("hooklatch.yaml", strings.Replace(string(text), "    path:", "    host: hooks.example.com\n    path:", 1))
	code, _, messages := hooklatch(t, "send", "-c", file, "--source", "billing")
	if code != 0 || host != "hooks.example.com/in/billing" {
		t.Errorf("exit code %d, %q was asked for\n%s", code, host, messages)
	}
}

// A source may answer with other statuses than its scheme.
func TestSendExpectsTheStatusesOfTheSource(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer server.Close()
	s := newSite(t)
	file := s.config("http://127.0.0.1:1", `listen: {http: "`+server.Listener.Addr().String()+`", admin: "127.0.0.1:0"}`)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.write("hooklatch.yaml", strings.Replace(string(text), "    path:", "    refusal_status: 403\n    path:", 1))
	for _, args := range [][]string{{}, {"--url", server.URL + "/in/billing"}} {
		code, out, messages := hooklatch(t, append([]string{"send", "-c", file, "--source", "billing", "--break", "sig"}, args...)...)
		if code != exitOK {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, messages)
		}
	}
}
