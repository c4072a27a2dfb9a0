package main

import (
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/hooklatch/hooklatch/verify"
)

// recipeConfig is what verify.ParseRecipe reads.
type recipeConfig struct {
	Preset string `json:"preset,omitempty" jsonschema:"built-in scheme whose fields hold where this one has none"`
	verify.Recipe
}

// recipeTexts are the fields of a recipe; package verify has the same and more in
// the comments of its types.
func recipeTexts() []fieldText {
	return []fieldText{
		{"name", "name of the scheme, for messages", nil},
		{"reference", "where the recipe comes from: SDK, docs, third party, unverified", nil},
		{"algo", "how the signature is made; token is a shared secret that is sent itself, hash-… a plain hash with {secret} in the template", []string{
			"hmac-sha1", "hmac-sha256", "hmac-sha512", "hash-sha1", "hash-sha256", "ed25519", "ecdsa-p256-sha256",
			"rsa-pkcs1-sha256", "rsa-pkcs1-sha1", "token", "basic"}},
		{"secret_spec", "how the text of a secret becomes bytes", nil},
		{"secret_spec.encoding", "defaults to utf8, which takes the whole text, and to pem for public keys", keyEncodings[1:]},
		{"secret_spec.strip_prefix", "cut before decoding where present; the first that fits", nil},
		{"secret_spec.min_len", "least number of bytes after decoding; defaults to 1", nil},
		{"key_id", "what picks the key; without it every key valid now is tried", nil},
		{"key_id.from", "header:X, json:a.b, form:x or query:x; of several the first present counts", nil},
		{"signature", "where the signature stands and how it is spelled", nil},
		{"signature.in", "defaults to header", []string{"header", "json", "form", "query"}},
		{"signature.name", "the header, JSON path or field", nil},
		{"signature.names", "several headers with one signature each, of which any counts", nil},
		{"signature.list_sep", "what separates the items where the value is a list", []string{",", ";", " "}},
		{"signature.kv_sep", "what separates tag and value of an item", []string{"=", ","}},
		{"signature.tags", "tags of signatures; other items are fields for {sig:…}", nil},
		{"signature.prefix", "stands before the value, such as sha256=", nil},
		{"signature.prefix_optional", "the prefix may be missing", nil},
		{"signature.encoding", "defaults to hex", []string{"hex", "base64", "base64url-nopad", "raw"}},
		{"signature.hex_case", "defaults to lower", []string{"lower", "any"}},
		{"signature.trim", "blanks around a list item are no part of it; defaults to true for lists with a comma", nil},
		{"signature.multi_value", "the header may be repeated, each line is a signature", nil},
		{"template", "the signed text: literals and {body} {method} {url} {path} {path_query} {host} {query_raw} {query:x} {header:X} {sig:t} {json:a.b} {form:x} {form_sorted} {secret} {param:x} {body_sha256_hex} {body_sha256_raw} {body_crc32_dec}", nil},
		{"timestamp", "where the timestamp stands and how far it may be from now", nil},
		{"timestamp.from", "header:X, sig:t, json:a.b, form:x or query:x", nil},
		{"timestamp.format", "defaults to unix-s", []string{"unix-s", "unix-ms", "rfc3339", "http-date"}},
		{"timestamp.tolerance_s", "window in seconds, both ways; null: none. Defaults to defaults.tolerance, then 300", nil},
		{"timestamp.past_only", "the future is bounded by the larger of tolerance_s and 300", nil},
		{"id", "where the delivery id stands", nil},
		{"id.from", "header:X, json:a.b, form:x or query:x, of several the first present; or a template such as {header:ce-source}/{header:ce-id}", nil},
		{"id.pattern", "regular expression that must match the whole id", nil},
		{"id.signed", "asserts that the id is signed; what is signed follows from the template", nil},
		{"event_type", "where the event's type stands", nil},
		{"event_type.from", "header:X, json:a.b, form:x or query:x; of several the first present counts", nil},
		{"require", "headers that must have a value, checked before the signature", nil},
		{"require.[].header", "name of the header", nil},
		{"require.[].equals", "its value", nil},
		{"params", "names of the values that the source's params must hold", nil},
		{"body_unique", "the body has an id of its own, so equal bytes are one event: where the id is not signed, the source's body_guard is on then", nil},
		{"conflict_ignore", "JSON pointers to values, such as counters, in which retries differ; default of the source's setting", nil},
		{"ack", "how the sender wants to be answered", nil},
		{"ack.success_status", "200 to 299; defaults to 202", nil},
		{"ack.success_body", "body of the answer to an accepted delivery", nil},
		{"ack.success_type", "media type of that body", nil},
		{"ack.refusal_status", "400, 401 or 403; defaults to 401", nil},
		{"ack.conflict_status", "4xx, never 410; defaults to 409", nil},
		{"ack.on_conflict", "what another body under a delivery id that is taken comes to; default of the source's setting", []string{"reject", "accept_first"}},
		{"handshake", "requests of the sender that are no deliveries, and their answers; the first that fits counts", nil},
		{"handshake.[].kind", "fixes how the answer is bounded", verify.HandshakeKinds()},
		{"handshake.[].method", "defaults to POST", []string{"GET", "HEAD", "OPTIONS", "POST"}},
		{"handshake.[].when", "conditions beside the method; the value of from must be there too", nil},
		{"handshake.[].when.[].from", "header:X, json:a.b or query:x", nil},
		{"handshake.[].when.[].equals", "the text that stands there", nil},
		{"handshake.[].when.[].absent", "nothing stands there", nil},
		{"handshake.[].verify", "signature: the request is signed as a delivery is; or the place of a token, such as query:hub.verify_token, which must be the source's handshake.token", nil},
		{"handshake.[].from", "where the value stands that is answered: header:X, json:a.b or query:x", nil},
		{"handshake.[].pattern", "regular expression that must match the whole value", nil},
		{"handshake.[].answer", "what the sender reads", nil},
		{"handshake.[].answer.status", "200 or 204; defaults to 200", nil},
		{"handshake.[].answer.type", "defaults to text/plain", []string{"text/plain", "application/json"}},
		{"handshake.[].answer.body", "literals and {value}; of keyed_answer also {mac_hex} {mac_base64} {public}", nil},
		{"tolerance_s", "of code:NAME: window in seconds, both ways", nil},
		{"header", "of code:hook0: the header of the signature", nil},
		{"min_signature_version", "of code:sns: 1 or 2", nil},
		{"label", "of code:rfc9421: which signature of several", nil},
		{"sig_alg", "of code:rfc9421; defaults to hmac-sha256", []string{"hmac-sha256", "ed25519", "ecdsa-p256-sha256", "rsa-v1_5-sha256", "rsa-pss-sha512"}},
		{"required_components", "of code:rfc9421: what must be signed", nil},
	}
}

func schemaOfRecipe() (*jsonschema.Schema, error) {
	schema, err := jsonschema.For[recipeConfig](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[verify.Sources](): {AnyOf: []*jsonschema.Schema{
			{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}}}},
		reflect.TypeFor[verify.Seconds](): {Types: []string{"integer", "null"}, Minimum: jsonschema.Ptr(1.0)},
	}})
	if err != nil {
		return nil, err
	}
	for _, f := range recipeTexts() {
		if err := describe(schema, f); err != nil {
			return nil, err
		}
	}
	schema.Properties["preset"].Enum = presetName().Enum
	schema.Properties["id"].Required = nil // it may stand in the preset
	schema.Description = "a recipe, or a preset with fields to replace"
	return schema, nil
}
