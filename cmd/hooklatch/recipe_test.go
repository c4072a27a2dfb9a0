package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/verify"
)

const knownTokens = "{body} {body_crc32_dec} {body_sha256_hex} {body_sha256_raw} {form_sorted} {host} {method} {path} {path_query} {query_raw} " +
	"{secret} {url} {header:X} {sig:t} {json:a.b} {form:x} {query:x} {param:x} are known"

// recipeFaults are recipes that cannot be, and where they are wrong.
func recipeFaults() map[string]struct{ text, want string } {
	return map[string]struct{ text, want string }{
		"misspelled field":        {"aglo: token", `1:1 unknown field "aglo", did you mean algo?`},
		"misspelled inner field":  {"algo: token\nsignature:\n  nmae: X-Token", `3:3 unknown field "nmae", did you mean name?`},
		"two faults":              {"aglo: token\nsignature: {nmae: X}", "1:1 unknown field \"aglo\", did you mean algo?\n2:13 unknown field \"nmae\", did you mean name?"},
		"misspelled value":        {"algo: hmac-sha265\nsignature: {name: X}\ntemplate: \"{body}\"", `1:7 algo: unknown value "hmac-sha265", did you mean hmac-sha256?`},
		"misspelled preset":       {"preset: gihtub", `1:9 preset: no scheme is called "gihtub", did you mean github?`},
		"number for a text":       {"algo: token\nsignature: {name: 5}", "2:19 signature.name: a number where a text belongs"},
		"text for a list":         {"preset: stripe\nsignature: {tags: v1}", "2:19 signature.tags: a text where a list belongs"},
		"list for a mapping":      {"preset: stripe\ntimestamp: [a]", "2:12 timestamp: a list where a mapping belongs, of from, format, tolerance_s, past_only"},
		"window of no number":     {"preset: stripe\ntimestamp:\n  tolerance_s: 5m", `3:16 timestamp.tolerance_s: "5m" is not a positive number of seconds, and not null`},
		"template in a token":     {"preset: stripe\ntemplate: \"{boddy}\"", "2:11 template: unknown token {boddy}: " + knownTokens},
		"place that is none":      {"preset: stripe\nid:\n  from: [\"json:a\", \"cookie:b\"]", `3:20 id.from[1]: "cookie:b" is no place in a request: header:X, json:a.b, form:x, query:x and sig:t are`},
		"entry of a list":         {"preset: stripe\nrequire:\n  - {header: A, equals: \"1\"}\n  - {header: A, equals: \"2\"}", "4:14 require[1].header: A stands twice"},
		"value in capitals":       {"algo: HMAC-SHA256", `1:7 algo: unknown value "HMAC-SHA256", did you mean hmac-sha256?`},
		"value like no other":     {"preset: stripe\ntimestamp: {format: iso8601}", `2:21 timestamp.format: unknown value "iso8601": unix-s, unix-ms, rfc3339, http-date are known`},
		"mark that is none":       {"preset: stripe\nsignature: {kv_sep: \":\"}", `2:21 signature.kv_sep: unknown value ":": "=", "," are known`},
		"text without quotes":     {"preset: stripe\ntemplate: {body}", "2:1 template: a mapping where a text belongs: put a text that begins with { in quotes"},
		"text in a list":          {"preset: stripe\nrequire: [X-Version]", "2:10 require: a text where a mapping belongs, of header, equals"},
		"what is missing":         {"algo: hmac-sha256\nsignature: {in: header}\ntemplate: \"{body}\"", "2:1 signature.name: is missing: the header, JSON path or field of the signature"},
		"unsigned timestamp":      {"preset: github\ntimestamp: {from: \"header:X-Time\"}", "2:19 timestamp.from: X-Time is not signed, so a window over it protects nothing"},
		"field of another scheme": {"preset: github\nlabel: sig1", "2:8 label: does not go with hmac-sha256"},
	}
}

// One reader for both ways: the same words at the same place, whether the recipe
// stands in a file of its own or in the configuration.
func TestRecipeErrorsPointInFileAndConfiguration(t *testing.T) {
	for name, fault := range recipeFaults() {
		t.Run(name, func(t *testing.T) {
			_, err := parseRecipe("own.yaml", []byte(fault.text))
			if got := shortly(problemsOf(err)); got != fault.want {
				t.Errorf("file: got\n%s\nwant\n%s", got, fault.want)
			}
			var f *failure
			if !errors.As(err, &f) || f.code != exitConfig || !strings.Contains(err.Error(), "\nown.yaml:"+fault.want[:2]) || !strings.Contains(err.Error(), "^") {
				t.Errorf("no excerpt: %v", err)
			}
			const indent = "      "
			text := strings.Replace(minimal, "scheme: zhisou-v1", "scheme:\n"+indent+strings.ReplaceAll(fault.text, "\n", "\n"+indent), 1)
			_, err = parseConfig("hooklatch.yaml", []byte(text), configNow)
			if got, want := shortly(problemsOf(err)), moved(fault.want, 7, len(indent)); got != want {
				t.Errorf("configuration: got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// moved adds lines and columns to the places of problems.
func moved(problems string, lines, columns int) string {
	var all []string
	for _, p := range strings.Split(problems, "\n") {
		var line, column int
		fmt.Sscanf(p, "%d:%d", &line, &column)
		_, what, _ := strings.Cut(p, " ")
		all = append(all, fmt.Sprintf("%d:%d %s", line+lines, column+columns, what))
	}
	return strings.Join(all, "\n")
}

func TestRecipeFilesThatAreNone(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "0:0 the file is empty"},
		{"comment alone", "# algo: token\n", "0:0 the file is empty"},
		{"two recipes", "algo: token\n---\nalgo: basic\n", "3:1 a second document: one file holds one recipe"},
		{"a list", "- algo: token\n", "1:1 a recipe is an object"},
		{"a name", "stripe\n", "1:1 a recipe is an object"},
		{"a field twice", "algo: token\nalgo: basic\n", `2:1 mapping key "algo" already defined at [1:1]`},
		{"an anchor in itself", "signature: &s {name: X, tags: [*s]}\n", "1:22 nested too deeply\n1:31 nested too deeply"},
		{"JSON with a fault", `{"algo":"token","signature":{"nmae":"X"}}`, `1:30 unknown field "nmae", did you mean name?`},
		{"JSON that does not end", `{"algo":"token"`, "1:1 could not find flow mapping end token '}'"},
		{"JSON with tabs and a fault", "{\n\t\"algo\": \"tokn\",\n\t\"signature\": {\"name\": \"X\"}\n}", `2:9 algo: unknown value "tokn", did you mean token?`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseRecipe("own.yaml", []byte(test.text))
			if got := shortly(problemsOf(err)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestRecipeFilesOfEverySpelling(t *testing.T) {
	for name, text := range map[string]string{
		"JSON":           `{"name":"own","algo":"hmac-sha256","signature":{"name":"X-Sig","prefix":"v1\/"},"template":"{body}"}`,
		"JSON with tabs": "{\n\t\"name\": \"own\",\n\t\"algo\": \"hmac-sha256\", \"signature\": {\"name\": \"X-Sig\", \"prefix\": \"v1/\"}, \"template\": \"{body}\"\n}",
		"YAML":           "name: own\nalgo: hmac-sha256\nsignature:\n  name: X-Sig\n  prefix: v1/\ntemplate: '{body}'\n",
		"byte order mark": "\ufeffname: own\nalgo: hmac-sha256\nsignature: {name: X-Sig, prefix: v1/}\n" +
			"template: \"{body}\"\n",
		"anchor and merge": "name: own\nalgo: hmac-sha256\nsignature:\n  <<: &base {name: X-Other, prefix: v1/}\n  name: X-Sig\ntemplate: \"{body}\"\n",
	} {
		scheme, err := parseRecipe("own", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r := scheme.Recipe(); r.Name != "own" || r.Signature.Name != "X-Sig" || r.Signature.Prefix != "v1/" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	scheme, err := parseRecipe("own", []byte("preset: stripe\ntimestamp: {tolerance_s: 600}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if r := scheme.Recipe(); r.Timestamp.ToleranceS != 600 || r.Timestamp.From != "sig:t" {
		t.Errorf("a preset with a field replaced: %+v", r.Timestamp)
	}
	if scheme, err = parseRecipe("own", []byte("preset: stripe\ntimestamp: {tolerance_s: null}\n")); err != nil || scheme.Recipe().Timestamp.ToleranceS != verify.NoWindow {
		t.Errorf("null for no window: %v", err)
	}
}
