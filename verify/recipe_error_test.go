package verify

import (
	"errors"
	"testing"
)

// An error that names no field, or the wrong one, leaves its reader to search.
func TestRecipeErrorsNameTheirField(t *testing.T) {
	for _, test := range []struct{ text, field, message string }{
		{`{"algo":"hmac-md5"}`, "algo", `unknown value "hmac-md5"`},
		{`{"algo":1}`, "algo", "a number where a text belongs"},
		{`{"algo":"token","algo":"basic"}`, "algo", "stands twice"},
		{`{"signature":{"name":"A","name":"B"}}`, "signature.name", "stands twice"},
		{`{"require":[{"header":"A","equals":"1"},{"Header":"B"}]}`, "require[1].Header", "unknown field"},
		{`{"signature":{"tags":"v1"}}`, "signature.tags", "a text where a list belongs"},
		{`{"signature":{"trim":"yes"}}`, "signature.trim", "a text where true or false belongs"},
		{`{"secret_spec":[]}`, "secret_spec", "a list where a mapping belongs"},
		{`{"timestamp":{"tolerance_s":"5m"}}`, "timestamp.tolerance_s", `"5m" is not a positive number of seconds, and not null`},
		{`{"id":{"from":[]}}`, "id.from", "a place is a text or a list of texts"},
		{`{"preset":"nobody"}`, "preset", `no scheme is called "nobody"`},
		{`{"preset":"stripe","signature":{"encoding":"base58"}}`, "signature.encoding", `unknown value "base58"`},
		{`{"preset":"stripe","timestamp":{"from":"header:X-Time"}}`, "timestamp.from", "X-Time is not signed, so a window over it protects nothing"},
		{`{"preset":"stripe","signature":{"tags":["v1","v=2"]}}`, "signature.tags[1]", `"v=2" is not 1 to 32 letters, digits, _ or -, or stands twice`},
		{`{"preset":"stripe","id":{"from":["json:a","cookie:b"]}}`, "id.from[1]", `"cookie:b" is no place in a request: header:X, json:a.b, form:x, query:x and sig:t are`},
		{`{"preset":"github","template":"{timestamp}{body}"}`, "template", "unknown token {timestamp}: {body} {body_crc32_dec} {body_sha256_hex} {body_sha256_raw} {form_sorted} {host} {method} {path} {path_query} {query_raw} {secret} {url} {header:X} {sig:t} {json:a.b} {form:x} {query:x} {param:x} are known"},
		{`{"preset":"github","template":"{header:X Time}{body}"}`, "template", `token {header:X Time}: "X Time" is no header name`},
		{`{"preset":"github","secret_spec":{"encoding":"pem"}}`, "secret_spec.encoding", "pem does not go with hmac-sha256: utf8, base64, hex and whsec do"},
		{`{"preset":"stripe","require":[{"header":"A","equals":"1"},{"header":"B","equals":""}]}`, "require[1].equals", "header B must equal something"},
		{`{"preset":"stripe","conflict_ignore":["/a","b"]}`, "conflict_ignore[1]", `"b" is no JSON pointer`},
		{`{"preset":"stripe","label":"sig1"}`, "label", "does not go with hmac-sha256"},
		{`{"algo":"hmac-sha256","template":"{body}"}`, "signature.name", "is missing: the header, JSON path or field of the signature"},
	} {
		r, err := ParseRecipe([]byte(test.text))
		if err == nil {
			_, err = r.Compile()
		}
		var got *RecipeError
		if !errors.As(err, &got) || got.Field != test.field || got.Err.Error() != test.message {
			t.Errorf("%s: got %v, want %s: %s", test.text, err, test.field, test.message)
		}
	}
}
