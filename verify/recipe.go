package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// Recipe is a scheme as data. The fields stand in JSON, YAML and Go under the
// same names; a zero field has the default that its comment names.
type Recipe struct {
	Name string `json:"name,omitempty"`
	// Reference says where the recipe comes from: SDK, docs, third party, unverified.
	Reference string `json:"reference,omitempty"`
	// Algo is hmac-sha1, hmac-sha256, hmac-sha512; hash-sha1 or hash-sha256, a
	// plain hash with the secret inside the template; ed25519, ecdsa-p256-sha256,
	// rsa-pkcs1-sha256, rsa-pkcs1-sha1; token; basic; or code:NAME for what a recipe
	// cannot say.
	Algo       string     `json:"algo,omitempty"`
	SecretSpec SecretSpec `json:"secret_spec,omitzero"`
	// KeyID selects the key. Without it all active keys are tried.
	KeyID     *From           `json:"key_id,omitempty"`
	Signature SignatureRecipe `json:"signature,omitzero"`
	// Template is the signed text: literals and tokens, which are {body} {method}
	// {url} {path} {path_query} {host} {query_raw} {query:x} {header:X} {sig:t}
	// {json:a.b} {form:x} {form_sorted} {secret} {param:x} {body_sha256_hex}
	// {body_sha256_raw} {body_crc32_dec}.
	Template  string           `json:"template,omitempty"`
	Timestamp *TimestampRecipe `json:"timestamp,omitempty"`
	ID        *IDRecipe        `json:"id,omitempty"`
	EventType *From            `json:"event_type,omitempty"`
	// Require are preconditions, checked before the signature.
	Require []Requirement `json:"require,omitempty"`
	// Params names the values that Verifier.Params must hold.
	Params []string `json:"params,omitempty"`
	// BodyUnique: the body has an id of its own, so equal bytes are one event.
	BodyUnique bool `json:"body_unique,omitempty"`
	// ConflictIgnore are pointers to counters that change between retries.
	ConflictIgnore []string `json:"conflict_ignore,omitempty"`
	Ack            *Ack     `json:"ack,omitempty"`
	// Handshake are requests of the sender that are no deliveries.
	Handshake []HandshakeRecipe `json:"handshake,omitempty"`

	// ToleranceS and the fields below it are for code:NAME only. It is the window in
	// seconds; other recipes have it in Timestamp.
	ToleranceS          Seconds `json:"tolerance_s,omitzero"`
	Header              string  `json:"header,omitempty"`                // hook0: the header of the signature
	MinSignatureVersion int     `json:"min_signature_version,omitempty"` // sns: 1 or 2
	Label               string  `json:"label,omitempty"`                 // rfc9421: which signature, where there can be several
	// SigAlg is rfc9421's algorithm: hmac-sha256, ed25519, ecdsa-p256-sha256,
	// rsa-v1_5-sha256 or rsa-pss-sha512. Defaults to hmac-sha256.
	SigAlg             string   `json:"sig_alg,omitempty"`
	RequiredComponents []string `json:"required_components,omitempty"` // rfc9421: what must be signed
}

// From names one place in a request, or several of which the first present
// counts: header:X, json:a.b, form:x or query:x.
type From struct {
	From Sources `json:"from"`
}

// Sources is a list of places in a request, in JSON a string or a list.
type Sources []string

// SignatureRecipe says where the signature stands and how it is spelled.
type SignatureRecipe struct {
	In   string `json:"in,omitempty"`   // header, json, form or query. Defaults to header
	Name string `json:"name,omitempty"` // the header, JSON path or field
	// Names are several headers with one signature each, of which any counts.
	Names []string `json:"names,omitempty"`
	// ListSep is "," ";" or " " where the value is a list.
	ListSep string `json:"list_sep,omitempty"`
	// KVSep is "=" or "," where an item is tag and value.
	KVSep string `json:"kv_sep,omitempty"`
	// Tags are those of signatures; other items are fields for {sig:…}, or skipped.
	Tags []string `json:"tags,omitempty"`
	// Prefix stands before the value, such as "sha256=".
	Prefix         string `json:"prefix,omitempty"`
	PrefixOptional bool   `json:"prefix_optional,omitempty"`
	Encoding       string `json:"encoding,omitempty"` // hex, base64, base64url-nopad or raw. Defaults to hex
	HexCase        string `json:"hex_case,omitempty"` // lower or any. Defaults to lower
	// Trim: blanks around a list item are no part of it. Defaults to true for "," lists.
	Trim *bool `json:"trim,omitempty"`
	// MultiValue: the header may be repeated, each line is a signature.
	MultiValue bool `json:"multi_value,omitempty"`
}

// TimestampRecipe says where the timestamp stands and how far it may be from now.
type TimestampRecipe struct {
	From   string `json:"from,omitempty"`   // header:X, sig:t, json:a.b, form:x or query:x
	Format string `json:"format,omitempty"` // unix-s, unix-ms, rfc3339 or http-date. Defaults to unix-s
	// ToleranceS is the window in seconds, both ways, ends included. Defaults to
	// 300; [NoWindow], in JSON null, means that the timestamp is signed and parsed,
	// and no more, unless Verifier.Tolerance is set.
	ToleranceS Seconds `json:"tolerance_s,omitzero"`
	// PastOnly bounds the future by the larger of ToleranceS and 300.
	PastOnly bool `json:"past_only,omitempty"`
}

// Seconds is a whole number of seconds, in JSON a number or null.
type Seconds int64

// NoWindow is the tolerance of schemes that check no window.
const NoWindow Seconds = -1

// IDRecipe says where the delivery id stands.
type IDRecipe struct {
	// From is a place, several of which the first present counts, or a template of
	// them such as {header:ce-source}/{header:ce-id}.
	From    Sources `json:"from"`
	Pattern string  `json:"pattern,omitempty"` // must match the whole id
	// Signed is an assertion only; what is signed follows from the template.
	Signed bool `json:"signed,omitempty"`
}

// Requirement is a header that must have this value.
type Requirement struct {
	Header string `json:"header"`
	Equals string `json:"equals"`
}

// Ack is how the sender wants to be answered. It is data for the caller.
type Ack struct {
	SuccessStatus  int     `json:"success_status,omitempty"` // 200-299. Defaults to 202
	SuccessBody    *string `json:"success_body,omitempty"`
	SuccessType    string  `json:"success_type,omitempty"`
	RefusalStatus  int     `json:"refusal_status,omitempty"`  // 400, 401 or 403. Defaults to 401
	ConflictStatus int     `json:"conflict_status,omitempty"` // 4xx, never 410. Defaults to 409
	OnConflict     string  `json:"on_conflict,omitempty"`     // reject or accept_first
}

// MarshalJSON writes one place as a string, several as a list.
func (s Sources) MarshalJSON() ([]byte, error) {
	if len(s) == 1 {
		return json.Marshal(s[0])
	}
	return json.Marshal([]string(s))
}

// UnmarshalJSON reads a string or a list of strings.
func (s *Sources) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil && string(text) != "null" {
		*s = Sources{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
		return &json.UnmarshalTypeError{Value: string(text), Type: reflect.TypeFor[Sources]()}
	}
	*s = list
	return nil
}

// MarshalJSON writes NoWindow as null.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if s == NoWindow {
		return []byte("null"), nil
	}
	return json.Marshal(int64(s))
}

// UnmarshalJSON reads a positive number, or null.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*s = NoWindow
		return nil
	}
	var n int64
	if err := json.Unmarshal(text, &n); err != nil || n <= 0 {
		return &json.UnmarshalTypeError{Value: string(text), Type: reflect.TypeFor[Seconds]()}
	}
	*s = Seconds(n)
	return nil
}

// clone is a copy that shares nothing.
func (r Recipe) clone() Recipe {
	c := r
	c.SecretSpec.StripPrefix = slices.Clone(r.SecretSpec.StripPrefix)
	c.Signature.Names = slices.Clone(r.Signature.Names)
	c.Signature.Tags = slices.Clone(r.Signature.Tags)
	c.Signature.Trim = clonePointer(r.Signature.Trim)
	c.Timestamp = clonePointer(r.Timestamp)
	if c.KeyID = clonePointer(r.KeyID); c.KeyID != nil {
		c.KeyID.From = slices.Clone(r.KeyID.From)
	}
	if c.ID = clonePointer(r.ID); c.ID != nil {
		c.ID.From = slices.Clone(r.ID.From)
	}
	if c.EventType = clonePointer(r.EventType); c.EventType != nil {
		c.EventType.From = slices.Clone(r.EventType.From)
	}
	c.Require = slices.Clone(r.Require)
	c.Params = slices.Clone(r.Params)
	c.ConflictIgnore = slices.Clone(r.ConflictIgnore)
	c.RequiredComponents = slices.Clone(r.RequiredComponents)
	if c.Ack = clonePointer(r.Ack); c.Ack != nil {
		c.Ack.SuccessBody = clonePointer(r.Ack.SuccessBody)
	}
	c.Handshake = slices.Clone(r.Handshake)
	for i := range c.Handshake {
		c.Handshake[i] = r.Handshake[i].clone()
	}
	return c
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

const maxRecipe = 64 << 10

// ParseRecipe reads a recipe strictly: an unknown field, one that stands twice, or
// null but for tolerance_s, is an error. A field "preset" names the recipe whose
// fields hold where the text has none.
func ParseRecipe(jsonText []byte) (Recipe, error) {
	return parseRecipe(jsonText, Preset)
}

func parseRecipe(text []byte, preset func(string) (Scheme, bool)) (Recipe, error) {
	if len(text) > maxRecipe {
		return Recipe{}, &RecipeError{Err: fmt.Errorf("longer than %d bytes", maxRecipe)}
	}
	strict := strictNames(text)
	if strict != nil && !errors.Is(strict, errNull) {
		return Recipe{}, recipeError("", "", strict)
	}
	var base struct {
		Preset    *string         `json:"preset"`
		Require   json.RawMessage `json:"require"`
		Handshake json.RawMessage `json:"handshake"`
	}
	if err := json.Unmarshal(text, &base); err != nil {
		return Recipe{}, wrongType(err)
	}
	var target struct {
		Preset *string `json:"preset"`
		Recipe
	}
	if base.Preset != nil {
		if preset == nil {
			return Recipe{}, &RecipeError{Field: "preset", Err: errors.New("preset in a preset")}
		}
		s, ok := preset(*base.Preset)
		if !ok {
			return Recipe{}, &RecipeError{Field: "preset", Err: fmt.Errorf("no scheme is called %q", *base.Preset)}
		}
		target.Recipe = s.Recipe()
		// A list takes the place of the preset's; encoding/json would mix the entries.
		if base.Require != nil {
			target.Require = nil
		}
		if base.Handshake != nil {
			target.Handshake = nil
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&target); err != nil {
		return Recipe{}, wrongType(err)
	}
	if strict != nil { // a value of the wrong type says more than a null in it
		return Recipe{}, recipeError("", "", strict)
	}
	return target.Recipe, nil
}

// strictNames refuses what encoding/json lets through: names that stand twice, or
// in another case, null, and a second value behind the first.
func strictNames(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := strictValue(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text behind the recipe")
	}
	return nil
}

// foldable finds what encoding/json takes for another letter: it compares names
// by Unicode case folding, which knows a long s too.
func foldable(r rune) bool { return r >= 'A' && r <= 'Z' || r > '~' }

// errNull: over a preset, null would take some fields away, a timestamp's window
// among them, and leave others as they are. In YAML it is what an empty field holds.
var errNull = errors.New("has no value: leave the field out to keep what is the default or the preset's")

func strictValue(d *json.Decoder, depth int) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		if depth == 0 {
			return errors.New("a recipe is an object")
		}
		if token == nil {
			return errNull
		}
		return nil
	}
	if depth == 0 && open != '{' {
		return errors.New("a recipe is an object")
	}
	if depth > 8 {
		return errors.New("nests too deep")
	}
	var seen []string
	for n := 0; d.More(); n++ {
		field := fmt.Sprintf("[%d]", n)
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name := token.(string)
			switch {
			case slices.Contains(seen, name):
				return wrongf(name, "stands twice")
			case strings.ContainsFunc(name, foldable):
				return wrongf(name, "unknown field")
			}
			seen = append(seen, name)
			field = name
		}
		if err := strictValue(d, depth+1); err != nil && (err != errNull || field != "tolerance_s") {
			return in(field, err)
		}
	}
	_, err = d.Token()
	return err
}
