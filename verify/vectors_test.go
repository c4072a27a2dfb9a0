package verify

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const vectorDir = "../testdata/vectors"

// vector is one line of testdata/vectors; its README describes the fields.
type vector struct {
	Name         string          `json:"name"`
	Provider     string          `json:"provider"`
	Kind         string          `json:"kind"`
	Scheme       json.RawMessage `json:"scheme"`
	Secret       string          `json:"secret"`
	ExtraSecrets []string        `json:"extra_secrets"`
	Method       string          `json:"method"`
	URL          string          `json:"url"`
	Headers      http.Header     `json:"headers"`
	BodyBase64   string          `json:"body_base64"`
	NowUnix      int64           `json:"now_unix"`
	Expect       string          `json:"expect"`
	Fail         string          `json:"fail"`
	Class        string          `json:"class"`
}

func readVectors(t testing.TB, file string) []vector {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectorDir, file))
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return all
}

func vectorFiles(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(vectorDir)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") && e.Name() != "cases-fixtures.json" && e.Name() != "handshakes.json" {
			files = append(files, e.Name())
		}
	}
	return files
}

func (v *vector) request(t testing.TB) Request {
	t.Helper()
	body, err := base64.StdEncoding.DecodeString(v.BodyBase64)
	if err != nil {
		t.Fatal(err)
	}
	return Request{Method: v.Method, URL: v.URL, Header: v.Headers, Body: body}
}

// verifier makes keys without an id of the vector's secrets, so that every key id
// finds them.
func (v *vector) verifier(s Scheme) (*Verifier, error) {
	var keys []Key
	for _, text := range append([]string{v.Secret}, v.ExtraSecrets...) {
		k, err := NewKey("", []byte(text), s.SecretSpec())
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	set, err := NewKeySet(keys...)
	if err != nil {
		return nil, err
	}
	ver := &Verifier{
		Scheme: s, Keys: set, URL: v.URL, Now: func() time.Time { return time.Unix(v.NowUnix, 0) },
		Params: map[string]string{"webhook_id": "4JH86294D6297924G", "topic_arn": "arn:aws:sns:us-west-2:123456789012:MyTopic"},
	}
	return ver, ver.Check()
}

// wrongLength are mismatches whose signature has not the length of one.
var wrongLength = []string{
	"adyen/item-invalid", "adyen-platform/44-As", "convoy/advanced_numeric_signature", "github/sha1-in-sha256-header",
	"line/published-invalid", "standard-webhooks/only-version",
}

// allowed is the table of reasons for the refusal classes of the vectors.
func (v *vector) allowed() []Reason {
	if v.Class == "empty-signature" {
		return []Reason{ReasonSignatureMissing, ReasonSignatureMalformed}
	}
	switch v.Fail {
	case "missing_header", "other:sig field t", "other:signed header missing", "other:header_not_delivered":
		return []Reason{ReasonHeaderMissing}
	case "malformed_id":
		for k, lines := range v.Headers {
			if strings.Contains(strings.ToLower(k), "id") && lines[0] == "" {
				return []Reason{ReasonHeaderMissing}
			}
		}
		return []Reason{ReasonDeliveryIDInvalid}
	case "duplicate_header":
		return []Reason{ReasonHeaderDuplicated}
	case "malformed_timestamp":
		return []Reason{ReasonTimestampMalformed}
	case "outside_tolerance":
		return []Reason{ReasonTimestampOutOfWindow}
	case "missing_signature":
		return []Reason{ReasonSignatureMissing}
	case "malformed_signature":
		return []Reason{ReasonSignatureMalformed}
	case "mismatch":
		if v.Class == "truncated-signature" || slices.Contains(wrongLength, v.Name) {
			return []Reason{ReasonSignatureMalformed, ReasonSignatureMismatch}
		}
		return []Reason{ReasonSignatureMismatch}
	case "precondition":
		return []Reason{ReasonPrecondition}
	case "other:illegal characters":
		return []Reason{ReasonBodyUnparsable}
	case "other:bad cert url":
		return []Reason{ReasonKeySourceRefused}
	case "other:signature version":
		return []Reason{ReasonAlgorithmRefused}
	case "unusable_key":
		return []Reason{ReasonKeyUnusable}
	case "other:alg none not allowed", "other:alg HS256 not allowed":
		return []Reason{ReasonAlgorithmRefused}
	case "other:aud", "other:payload_hash set but payload missing", "other:payload present but no payload_hash":
		return []Reason{ReasonClaimMismatch}
	case "other:component not covered: content-digest":
		return []Reason{ReasonNotCovered}
	}
	return nil
}

// judge runs one vector under a scheme.
func (v *vector) judge(t *testing.T, s Scheme) {
	t.Helper()
	var reason Reason
	ver, err := v.verifier(s)
	if errors.Is(err, ErrKeyUnusable) {
		reason = ReasonKeyUnusable
	} else if err != nil {
		t.Fatal(err)
	} else {
		_, err = ver.Verify(v.request(t))
	}
	if v.Expect == "valid" {
		if err != nil {
			t.Errorf("want valid, got %v", err)
		}
		return
	}
	if err == nil {
		t.Fatalf("want %s, got valid", v.Fail)
	}
	var e *Error
	if errors.As(err, &e) {
		reason = e.Reason
	}
	if want := v.allowed(); !slices.Contains(want, reason) {
		t.Errorf("%s %s: want one of %v, got %v", v.Fail, v.Class, want, err)
	}
}

// Every vector under the recipe that it carries.
func TestVectors(t *testing.T) {
	judged, valid := 0, 0
	for _, file := range vectorFiles(t) {
		for _, v := range readVectors(t, file) {
			judged++
			if v.Expect == "valid" {
				valid++
			}
			t.Run(v.Name, func(t *testing.T) {
				r, err := ParseRecipe(v.Scheme)
				if err != nil {
					t.Fatal(err)
				}
				s, err := r.Compile()
				if err != nil {
					t.Fatal(err)
				}
				v.judge(t, s)
			})
		}
	}
	if judged != 973 || valid != 226 {
		t.Errorf("%d vectors judged, %d valid: some were not found", judged, valid)
	}
}

func compile(t testing.TB, text string) Scheme {
	t.Helper()
	r, err := ParseRecipe([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
