package verify

import (
	"strings"
	"testing"
	"time"
)

// validVector finds a vector of a scheme in code that verifies, under its recipe.
func validVector(t *testing.T, file string) (*vector, Scheme) {
	t.Helper()
	for _, v := range readVectors(t, file+".json") {
		if v.Expect == "valid" && len(v.ExtraSecrets) == 0 {
			return &v, compile(t, string(v.Scheme))
		}
	}
	t.Fatalf("no valid vector in %s", file)
	return nil, Scheme{}
}

func TestExplainTriesKeysOnSchemesInCode(t *testing.T) {
	for _, file := range []string{"twilio", "contentful", "hook0", "plivo-v3", "monday", "bird-jwt"} {
		v, s := validVector(t, file)
		ver, err := v.verifier(s)
		if err != nil {
			t.Fatal(err)
		}
		wrong := strings.Repeat("another-secret-", 5)[:64]
		spec := s.SecretSpec()
		right, other := explainKey(t, "right", v.Secret, spec), explainKey(t, "other", wrong, spec)
		for want, c := range map[string]struct {
			keys   KeySet
			others []KeySet
		}{
			"":                 {keys: explainKeys(t, right)},
			"no_match":         {keys: explainKeys(t, other)},
			"key_other_source": {keys: explainKeys(t, other), others: []KeySet{explainKeys(t, right)}},
		} {
			judge := *ver
			judge.Keys = c.keys
			e := judge.Explain(v.request(t), c.others...)
			if codes(e) != want {
				t.Errorf("%s: %s, want %q (%v)", file, codes(e), want, e.Error)
			}
			if s := leak(e, v.Secret, wrong); s != "" {
				t.Errorf("%s: %s", file, s)
			}
		}
		expired := right
		expired.NotAfter = time.Unix(v.NowUnix, 0).Add(-time.Hour)
		ver.Keys = explainKeys(t, expired)
		if e := ver.Explain(v.request(t)); codes(e) != "key_expired" {
			t.Errorf("%s: %s, want key_expired", file, codes(e))
		}
	}
}

func TestExplainTriesSpellingsOfTheURLOnSchemesInCode(t *testing.T) {
	for _, file := range []string{"plivo-v3", "monday"} {
		v, s := validVector(t, file)
		ver, err := v.verifier(s)
		if err != nil {
			t.Fatal(err)
		}
		rest, https := strings.CutPrefix(v.URL, "https://")
		if ver.URL = "http://" + rest; !https {
			ver.URL = "https://" + strings.TrimPrefix(v.URL, "http://")
		}
		if e := ver.Explain(v.request(t)); codes(e) != "url_other" {
			t.Errorf("%s: %s, want url_other (%v)", file, codes(e), e.Error)
		}
	}
}

func TestExplainJudgesTheClockOfSchemesInCode(t *testing.T) {
	for _, file := range []string{"contentful", "hook0", "plaid"} {
		v, s := validVector(t, file)
		ver, err := v.verifier(s)
		if err != nil {
			t.Fatal(err)
		}
		ver.Now = at(time.Unix(v.NowUnix+86400, 0))
		if e := ver.Explain(v.request(t)); codes(e) != "ts_window" {
			t.Errorf("%s: %s, want ts_window (%v)", file, codes(e), e.Error)
		}
	}
}

func TestExplainNamesTheReasonsOfSchemesInCode(t *testing.T) {
	for file, class := range map[string]string{"plaid": "alg-confusion", "monday": "audience", "rfc9421": "coverage", "aws-sns": "cert-url"} {
		found := false
		for _, v := range readVectors(t, file+".json") {
			if v.Class != class || v.Expect == "valid" {
				continue
			}
			found = true
			ver, err := v.verifier(compile(t, string(v.Scheme)))
			if err != nil {
				t.Fatal(err)
			}
			e := ver.Explain(v.request(t))
			if len(e.Causes) == 0 || e.Causes[0].Text == "" || e.Causes[0].Fix == "" {
				t.Errorf("%s: %+v (%v)", v.Name, e.Causes, e.Error)
			}
			t.Logf("%s: %+v", v.Name, e.Causes)
		}
		if !found {
			t.Errorf("%s: no vector of class %s", file, class)
		}
	}
}

// A token that has ended is not as far from the clock as its timestamp is.
func TestExplainTellsTheEndOfATokenFromItsTimestamp(t *testing.T) {
	for _, name := range byExpiry {
		v, s := validVector(t, name)
		ver, err := v.verifier(s)
		if err != nil {
			t.Fatal(err)
		}
		early := ver.Explain(v.request(t)).Distance
		late := ver.Now().Add(24 * time.Hour)
		ver.Now = at(late)
		e := ver.Explain(v.request(t))
		if codes(e) != "ts_window" || !strings.Contains(e.Causes[0].Text, "(claim:exp), and that is over") {
			t.Errorf("%s: %v", name, e.Causes)
		}
		if e.Timestamp != "" && e.Distance != early-24*time.Hour {
			t.Errorf("%s: timestamp %s is said to be %s away, not %s", name, e.Timestamp, e.Distance, early-24*time.Hour)
		}
	}
}
