package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// caseFixture is one request of cases-fixtures.json. Case is the number
// of its fault, which tests named TestCase… carry.
type caseFixture struct {
	Name    string      `json:"name"`
	Case    string      `json:"case"`
	Scheme  string      `json:"scheme"`
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Headers http.Header `json:"headers"`
	BodyHex string      `json:"body_hex"`
	Repeat  *struct {
		Prefix string `json:"prefix_hex"`
		Unit   string `json:"unit_hex"`
		Suffix string `json:"suffix_hex"`
		Count  int    `json:"count"`
	} `json:"body_repeat"`
	BodySHA256 string `json:"body_sha256"`
	Keys       []struct {
		ID        string `json:"id"`
		SecretHex string `json:"secret_hex"`
		NotBefore int64  `json:"not_before"`
		NotAfter  int64  `json:"not_after"`
	} `json:"keys"`
	Now    int64 `json:"now"`
	Expect int   `json:"expect"`
}

func caseFixtures(t testing.TB) map[string]caseFixture {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectorDir, "cases-fixtures.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Fixtures []caseFixture `json:"fixtures"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]caseFixture{}
	for _, f := range file.Fixtures {
		all[f.Name] = f
	}
	return all
}

func (f *caseFixture) request(t testing.TB) Request {
	t.Helper()
	body, err := hex.DecodeString(f.BodyHex)
	if err != nil {
		t.Fatal(err)
	}
	if r := f.Repeat; r != nil {
		body, err = hex.DecodeString(r.Prefix + strings.Repeat(r.Unit, r.Count) + r.Suffix)
		if err != nil {
			t.Fatal(err)
		}
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != f.BodySHA256 {
		t.Fatalf("%s: body hash differs", f.Name)
	}
	return Request{Method: f.Method, URL: f.Path, Header: f.Headers, Body: body}
}

func (f *caseFixture) verifier(t testing.TB) *Verifier {
	t.Helper()
	s, ok := Preset(f.Scheme)
	if !ok {
		t.Fatalf("%s: no preset %s", f.Name, f.Scheme)
	}
	var keys []Key
	for _, k := range f.Keys {
		raw, err := hex.DecodeString(k.SecretHex)
		if err != nil {
			t.Fatal(err)
		}
		key, err := NewKey(k.ID, raw, SecretSpec{})
		if err != nil {
			t.Fatal(err)
		}
		if k.NotBefore != 0 {
			key.NotBefore = time.Unix(k.NotBefore, 0)
		}
		if k.NotAfter != 0 {
			key.NotAfter = time.Unix(k.NotAfter, 0)
		}
		keys = append(keys, key)
	}
	set, err := NewKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return &Verifier{Scheme: s, Keys: set, Now: func() time.Time { return time.Unix(f.Now, 0) }}
}

// status is what a receiver answers.
func status(err error) int {
	var e *Error
	switch {
	case err == nil:
		return 202
	case errors.As(err, &e) && e.Reason == ReasonBodyTooLarge:
		return 413
	case errors.Is(err, ErrMalformed):
		return 400
	}
	return 401
}

// wantCase runs one fixture and returns the refusal.
func wantCase(t *testing.T, name string, want int, reasons ...Reason) (Envelope, *Error) {
	t.Helper()
	f, ok := caseFixtures(t)[name]
	if !ok {
		t.Fatalf("no fixture %s", name)
	}
	env, err := f.verifier(t).Verify(f.request(t))
	if got := status(err); got != want || got != f.Expect {
		t.Errorf("%s: %d (%v), want %d, fixture %d", name, got, err, want, f.Expect)
	}
	var e *Error
	errors.As(err, &e)
	if len(reasons) > 0 && (e == nil || e.Reason != reasons[0]) {
		t.Errorf("%s: %v, want %s", name, err, reasons[0])
	}
	return env, e
}

// publishedSecret is the whsec_ text of the fixtures; it stands in testdata only,
// for the sake of secret scanners.
func publishedSecret(t testing.TB) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(vectorDir, "cases-fixtures.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Secrets map[string]struct{ ASCII string } `json:"secrets"`
	}
	if err := json.Unmarshal(raw, &file); err != nil || file.Secrets["W-text"].ASCII == "" {
		t.Fatalf("no secret W-text: %v", err)
	}
	return file.Secrets["W-text"].ASCII
}
