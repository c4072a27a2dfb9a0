package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// shown runs schemes NAME.
func shown(t *testing.T, args ...string) string {
	t.Helper()
	code, out, messages := hooklatch(t, append([]string{"schemes"}, args...)...)
	if code != exitOK {
		t.Fatalf("schemes %v: exit code %d\n%s", args, code, messages)
	}
	return out
}

// What is printed is a recipe, in a file and in a configuration.
func TestPrintedSchemesReadBackEqual(t *testing.T) {
	for _, name := range verify.Presets() {
		t.Run(name, func(t *testing.T) {
			text := shown(t, name)
			scheme, err := parseRecipe(name+".yaml", []byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			preset, _ := verify.Preset(name)
			if got, want := scheme.Recipe(), preset.Recipe(); !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
			c, err := parseConfig("hooklatch.yaml", []byte(configOf(preset, text)), configNow)
			if err != nil {
				t.Fatalf("in a configuration: %v", err)
			}
			inConfig, err := c.Sources["pasted"].compile()
			if err != nil || len(inConfig) != 1 || !reflect.DeepEqual(inConfig[0].Recipe(), preset.Recipe()) {
				t.Errorf("in a configuration: %v\n%+v", err, inConfig)
			}
		})
	}
}

// configOf pastes a recipe under scheme:.
func configOf(scheme verify.Scheme, recipe string) string {
	var b strings.Builder
	b.WriteString("version: 1\nlisten: {http: \"127.0.0.1:8080\"}\nsources:\n  pasted:\n    tenant: a\n    path: /in\n    scheme:\n")
	for line := range strings.Lines(recipe) {
		b.WriteString("      " + line)
	}
	if !scheme.HasDeliveryID() {
		b.WriteString("    event: {id: /id}\n")
	}
	if scheme.NeedsURL() {
		b.WriteString("    public_url: https://hooks.example.com/in\n")
	}
	for _, p := range scheme.Recipe().Params {
		fmt.Fprintf(&b, "    params: {%s: x}\n", p)
	}
	b.WriteString("    keys: [{id: k1, secret: {file: k1}}]\n")
	return b.String()
}

// The example of a scheme verifies under what is printed above it.
func TestExamplesOfSchemesVerify(t *testing.T) {
	signed := 0
	for _, name := range verify.Presets() {
		t.Run(name, func(t *testing.T) {
			var line schemeLine
			if err := json.Unmarshal([]byte(shown(t, name, "--json")), &line); err != nil {
				t.Fatal(err)
			}
			ex, text := line.Example, shown(t, name)
			if ex == nil {
				if !strings.Contains(text, "# example: none") {
					t.Error("no example, and no word about it")
				}
				return
			}
			signed++
			scheme, err := line.Recipe.Compile()
			if err != nil {
				t.Fatal(err)
			}
			key, err := verify.NewKey("k1", []byte(ex.Secret+ex.PublicKey), scheme.SecretSpec())
			if err != nil {
				t.Fatal(err)
			}
			keys, err := verify.NewKeySet(key)
			if err != nil {
				t.Fatal(err)
			}
			v := &verify.Verifier{Scheme: scheme, Keys: keys, URL: exampleURL, Params: map[string]string{},
				Now: func() time.Time { return time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC) }}
			for _, p := range line.Recipe.Params {
				v.Params[p] = "example"
			}
			if scheme.Tolerance() < time.Minute && scheme.Tolerance() > 0 {
				v.Tolerance = time.Minute
			}
			e, err := v.Verify(verify.Request{Method: ex.Method, URL: ex.URL, Header: ex.Headers, Body: ex.Body})
			if err != nil {
				t.Fatal(err)
			}
			if scheme.HasDeliveryID() && (e.DeliveryID == "" || e.MetaError != "") || line.Recipe.EventType != nil && e.EventType == "" {
				t.Errorf("the example lacks its id or type: %+v\n%s", e, ex.Body)
			}
			for header, values := range ex.Headers {
				if !strings.Contains(text, "#   "+header+": "+values[0]) && line.Recipe.Algo[:2] == "hm" {
					t.Errorf("%s: %s is not shown", header, values[0])
				}
			}
		})
	}
	if signed < 97 {
		t.Errorf("only %d schemes have an example", signed)
	}
}

func TestSchemesListWhatASchemeLeavesOpen(t *testing.T) {
	table := shown(t)
	for _, row := range []string{
		"github +body +X-GitHub-Delivery, unsigned +no timestamp +202 +SDK, docs",
		"zhisou-v1 +timestamp, id, body +X-Webhook-Delivery-Id +300 s +202 +own",
		"paddle +timestamp, body +/event_id +5 s, past +202 +SDK",
		"telegram +nothing +/update_id, unsigned +no timestamp +202 +SDK",
		"discord +timestamp, body +set event.id +none +204 +SDK, docs",
	} {
		if !matches(t, "(?m)^"+row+"$", table) {
			t.Errorf("no row %s\n%s", row, table)
		}
	}
	lines := strings.Split(strings.TrimSpace(shown(t, "--json")), "\n")
	if len(lines) != len(verify.Presets()) {
		t.Errorf("%d lines of JSON for %d schemes", len(lines), len(verify.Presets()))
	}
	for _, line := range lines {
		var got schemeLine
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.V != 1 || got.Name == "" || got.Recipe != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	for name, want := range map[string]string{
		"paypal":     "# weakness: body covered by CRC-32 only",
		"zhisou-v1":  "# weaknesses: none known",
		"hubspot-v1": "# weakness: secret in a plain hash",
		// The second is what clocks may differ by; a token holds for longer.
		"bird-jwt": "# window: in the token ± 1 s",
		"monday":   "# window: in the token\n",
		"discord":  "# window: none\n",
		// What the recipe wants, and what is done.
		"gitlab-token": "# answer: 202; a success for other bytes under a known id too,",
	} {
		if text := shown(t, name); !strings.Contains(text, want) {
			t.Errorf("%s lacks %q:\n%s", name, want, text)
		}
	}
}

func matches(t *testing.T, pattern, text string) bool {
	t.Helper()
	return regexp.MustCompile(pattern).MatchString(text)
}

func TestTextsThatYAMLWouldTakeForSomethingElse(t *testing.T) {
	for _, text := range []string{"", "1", "0x10", "1e3", "true", "No", "null", "~", "-", "- a", "a: b", "a #b", "a,b", "[a", "{a}", "'a", "@a", "`a", "%a", "&a", "*a", "!a", "|", ">", "?",
		" a", "a ", "a\nb", "a\tb", "é", "\u2028", "v1=", "2026-01-01", "12:30", "a  b", "=", "<<", ".inf", "plain", "a.b-c_d/e", "SDK, docs"} {
		recipe := verify.Recipe{Algo: "token", Signature: verify.SignatureRecipe{Name: "X", Prefix: text}}
		if text == "" {
			recipe.Signature.Prefix = "p"
		}
		var b bytes.Buffer
		if err := writeRecipe(&b, recipe); err != nil {
			t.Fatal(err)
		}
		scheme, err := parseRecipe("f", b.Bytes())
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := scheme.Recipe().Signature.Prefix; got != recipe.Signature.Prefix {
			t.Errorf("%q reads back as %q from %s", text, got, b.String())
		}
	}
}
