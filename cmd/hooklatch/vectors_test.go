package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// vector is a line of testdata/vectors.
type vector struct {
	Name         string          `json:"name"`
	Scheme       json.RawMessage `json:"scheme"`
	Secret       string          `json:"secret"`
	ExtraSecrets []string        `json:"extra_secrets"`
	Method       string          `json:"method"`
	URL          string          `json:"url"`
	Headers      http.Header     `json:"headers"`
	BodyBase64   string          `json:"body_base64"`
	NowUnix      int64           `json:"now_unix"`
	Expect       string          `json:"expect"`
}

// vectorParams are what the recipes of the vectors demand.
var vectorParams = map[string]string{
	"webhook_id": "4JH86294D6297924G", "topic_arn": "arn:aws:sns:us-west-2:123456789012:MyTopic",
}

// Every vector gets from the command the verdict that it states and the reason that
// the library gives, which that one's tests hold against the vectors.
func TestEveryVectorThroughTheCommand(t *testing.T) {
	files, err := filepath.Glob("../../testdata/vectors/*.json")
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, file := range files {
		if base := filepath.Base(file); base == "cases-fixtures.json" || base == "handshakes.json" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []vector
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		dir := t.TempDir()
		for _, v := range all {
			judged++
			v.judge(t, dir)
		}
	}
	if judged < 973 {
		t.Errorf("only %d vectors were found", judged)
	}
}

// judge runs verify over the vector as files, in this process.
func (v vector) judge(t *testing.T, dir string) {
	t.Helper()
	body, err := base64.StdEncoding.DecodeString(v.BodyBase64)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	var head bytes.Buffer
	if err := writeHeader(&head, v.Headers); err != nil {
		t.Fatal(err)
	}
	args := []string{"verify", "--json", "--recipe", write("recipe", v.Scheme), "--headers", write("headers", head.Bytes()),
		"--body", write("body", body), "--method", v.Method, "--url", v.URL, "--now", fmt.Sprint(v.NowUnix)}
	for i, secret := range append([]string{v.Secret}, v.ExtraSecrets...) {
		// One line end is cut from a file; what the vector has is meant.
		args = append(args, "--secret-file", write(fmt.Sprintf("secret%d", i), []byte(secret+"\n")))
	}
	scheme, reason, valid := v.library(t, body)
	for _, name := range scheme.Recipe().Params {
		args = append(args, "--param", name+"="+vectorParams[name])
	}
	code, out, messages := hooklatch(t, args...)
	if reason == verify.ReasonKeyUnusable {
		if v.Expect == "valid" || code != exitConfig || !strings.Contains(messages, "key unusable") {
			t.Errorf("%s: exit code %d, want %d for a key that cannot be\n%s", v.Name, code, exitConfig, messages)
		}
		return
	}
	var got verdict
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Errorf("%s: exit code %d, %v\n%s%s", v.Name, code, err, out, messages)
		return
	}
	if want := v.Expect == "valid"; got.Valid != want || valid != want || (code == exitOK) != want || (code == exitNo) == want {
		t.Errorf("%s: exit code %d, valid %t by the command and %t by the library, want %s: %s", v.Name, code, got.Valid, valid, v.Expect, got.Reason)
	}
	if !valid && got.Reason != string(reason) || valid && got.Reason != "ok" {
		t.Errorf("%s: reason %s, the library says %s", v.Name, got.Reason, reason)
	}
}

// library is what package verify says of the vector.
func (v vector) library(t *testing.T, body []byte) (verify.Scheme, verify.Reason, bool) {
	t.Helper()
	recipe, err := verify.ParseRecipe(v.Scheme)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	scheme, err := recipe.Compile()
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	var keys []verify.Key
	for _, secret := range append([]string{v.Secret}, v.ExtraSecrets...) {
		key, err := verify.NewKey("", []byte(secret), scheme.SecretSpec())
		if err != nil {
			return scheme, verify.ReasonKeyUnusable, false
		}
		keys = append(keys, key)
	}
	set, err := verify.NewKeySet(keys...)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	verifier := verify.Verifier{Scheme: scheme, Keys: set, URL: v.URL, Params: vectorParams, Now: func() time.Time { return time.Unix(v.NowUnix, 0) }}
	if err := verifier.Check(); errors.Is(err, verify.ErrKeyUnusable) {
		return scheme, verify.ReasonKeyUnusable, false
	}
	header := http.Header{}
	for name, values := range v.Headers {
		for _, value := range values {
			// Blanks around a value are no part of it in a file of headers, as in HTTP.
			header[name] = append(header[name], strings.Trim(value, " \t"))
		}
	}
	_, err = verifier.Verify(verify.Request{Method: v.Method, URL: v.URL, Header: header, Body: body})
	var refusal *verify.Error
	if errors.As(err, &refusal) {
		return scheme, refusal.Reason, false
	}
	return scheme, "", err == nil
}
