package verify

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// firstCause is what each kind of mutation must be found as.
var firstCause = map[string]string{
	"upper-hex": "sig_uppercase", "base64-unpadded": "sig_base64url", "base64-urlsafe": "sig_base64url",
	"missing-prefix": "sig_no_prefix", "stale": "ts_window", "future": "ts_window",
	"dup-header": "header_duplicated", "dup-header-mixed": "header_duplicated", "timestamp-dup": "header_duplicated",
	"timestamp-missing": "header_missing", "missing-signature": "header_missing",
	"body-appended": "body_extra_blank", "wrong-decoding": "key_base64",
	"wrong-key": "no_match", "body-flip": "no_match", "id-changed": "no_match", "timestamp-changed": "no_match",
}

func TestExplainAgreesWithVectors(t *testing.T) {
	seen := map[string]int{}
	for _, file := range vectorFiles(t) {
		for _, v := range readVectors(t, file) {
			r, err := ParseRecipe(v.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			s, err := r.Compile()
			if err != nil {
				continue // another test holds that all compile
			}
			ver, err := v.verifier(s)
			if errors.Is(err, ErrKeyUnusable) {
				continue
			}
			if err != nil {
				t.Fatal(v.Name, err)
			}
			t.Run(v.Name, func(t *testing.T) {
				e := ver.Explain(v.request(t))
				if (v.Expect == "valid") != (e.Error == nil) || (e.Error == nil) != (len(e.Causes) == 0) {
					t.Fatalf("%s: %v, causes %s", v.Expect, e.Error, codes(e))
				}
				want := firstCause[v.Class]
				if v.Expect == "valid" || want == "" || !strings.HasPrefix(r.Algo, "hmac-") {
					return
				}
				seen[v.Class]++
				if first, _, _ := strings.Cut(codes(e), ", "); first != want {
					t.Errorf("%s, want %s first", codes(e), want)
				}
			})
		}
	}
	classes := make([]string, 0, len(firstCause))
	for class := range firstCause {
		classes = append(classes, class)
	}
	slices.Sort(classes)
	for _, class := range classes {
		if seen[class] == 0 {
			t.Errorf("no vector of class %s", class)
		}
	}
}
