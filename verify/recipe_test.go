package verify

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const goodRecipe = `{"name":"mine","algo":"hmac-sha256","signature":{"name":"X-Sig"},"template":"{header:X-Id}.{body}",` +
	`"id":{"from":"header:X-Id"}}`

func TestParseRecipeIsStrict(t *testing.T) {
	if _, err := ParseRecipe([]byte(goodRecipe)); err != nil {
		t.Fatal(err)
	}
	for defect, text := range map[string]string{
		"unknown field":              `{"algo":"token","colour":"red"}`,
		"unknown inner field":        `{"signature":{"nam":"X"}}`,
		"field in another case":      `{"Algo":"token"}`,
		"inner field in capitals":    `{"signature":{"NAME":"X"}}`,
		"field with a long s":        `{"algo":"token","ſignature":{"name":"X"}}`,
		"field twice, one escaped":   `{"algo":"token","al\u0067o":"basic"}`,
		"field twice":                `{"algo":"token","algo":"basic"}`,
		"inner field twice":          `{"signature":{"name":"A","name":"B"}}`,
		"text behind it":             goodRecipe + `{}`,
		"rubbish behind it":          goodRecipe + `x`,
		"no object":                  `[]`,
		"a text":                     `"token"`,
		"null":                       `null`,
		"nothing":                    ``,
		"null for a text":            `{"preset":"github","template":null}`,
		"a timestamp left empty":     `{"preset":"stripe","timestamp":null}`,
		"null in a list":             `{"preset":"docusign","signature":{"names":["A",null]}}`,
		"wrong type":                 `{"algo":1}`,
		"tolerance 0":                `{"timestamp":{"tolerance_s":0}}`,
		"tolerance below 0":          `{"timestamp":{"tolerance_s":-1}}`,
		"tolerance with a fraction":  `{"timestamp":{"tolerance_s":1.5}}`,
		"tolerance as text":          `{"timestamp":{"tolerance_s":"300"}}`,
		"empty list of places":       `{"id":{"from":[]}}`,
		"a place that is a number":   `{"id":{"from":1}}`,
		"unknown preset":             `{"preset":"nobody"}`,
		"handshake in capitals":      `{"handshake":[{"Kind":"status"}]}`,
		"unknown field of an answer": `{"handshake":[{"kind":"status","answer":{"stat":200}}]}`,
		"deep nesting":               strings.Repeat(`{"a":`, 50) + `1` + strings.Repeat(`}`, 50),
		"64 KiB":                     `{"name":"` + strings.Repeat("a", 64<<10) + `"}`,
	} {
		if r, err := ParseRecipe([]byte(text)); err == nil {
			t.Errorf("%s was taken: %+v", defect, r)
		}
	}
}

func TestNonsenseIsRefusedByCompile(t *testing.T) {
	if _, err := mustParse(t, goodRecipe).Compile(); err != nil {
		t.Fatal(err)
	}
	for defect, patch := range map[string]string{
		"no algo":                        `"algo":""`,
		"unknown algo":                   `"algo":"hmac-md5"`,
		"code":                           `"algo":"code:twilio"`,
		"name with a blank":              `"name":"a b"`,
		"unknown encoding":               `"secret_spec":{"encoding":"base32"}`,
		"PEM for a shared secret":        `"secret_spec":{"encoding":"pem"}`,
		"text for a public key":          `"algo":"ed25519","secret_spec":{"encoding":"utf8"}`,
		"raw key for RSA":                `"algo":"rsa-pkcs1-sha256","secret_spec":{"encoding":"raw-hex"}`,
		"min_len for a public key":       `"algo":"ed25519","secret_spec":{"min_len":32}`,
		"prefix of a text":               `"secret_spec":{"encoding":"utf8","strip_prefix":["whsec_"]}`,
		"prefix of a text by default":    `"secret_spec":{"strip_prefix":["whsec_"]}`,
		"prefix of a whsec secret":       `"secret_spec":{"encoding":"whsec","strip_prefix":["x_"]}`,
		"prefix of PEM":                  `"algo":"ed25519","secret_spec":{"strip_prefix":["whpk_"]}`,
		"empty prefix of a secret":       `"secret_spec":{"encoding":"base64","strip_prefix":[""]}`,
		"no signature name":              `"signature":{}`,
		"name and names":                 `"signature":{"name":"A","names":["B"]}`,
		"one header twice":               `"signature":{"name":"","names":["A","a"]}`,
		"names in JSON":                  `"signature":{"in":"json","name":"","names":["a","b"]}`,
		"header name with a blank":       `"signature":{"name":"X Sig"}`,
		"unknown place":                  `"signature":{"in":"cookie"}`,
		"multi_value in JSON":            `"signature":{"in":"json","name":"a","multi_value":true}`,
		"unknown list_sep":               `"signature":{"list_sep":"|"}`,
		"unknown kv_sep":                 `"signature":{"kv_sep":":","tags":["v1"]}`,
		"tags without kv_sep":            `"signature":{"tags":["v1"]}`,
		"kv_sep without tags":            `"signature":{"kv_sep":"="}`,
		"one separator for both":         `"signature":{"list_sep":",","kv_sep":",","tags":["v1"]}`,
		"tag twice":                      `"signature":{"kv_sep":"=","tags":["v1","v1"]}`,
		"tag with a separator":           `"signature":{"kv_sep":"=","tags":["v=1"]}`,
		"optional prefix of nothing":     `"signature":{"prefix_optional":true}`,
		"prefix with list_sep":           `"signature":{"list_sep":",","prefix":"a,"}`,
		"hex_case of base64":             `"signature":{"encoding":"base64","hex_case":"any"}`,
		"unknown hex_case":               `"signature":{"hex_case":"upper"}`,
		"unknown signature encoding":     `"signature":{"encoding":"base58"}`,
		"raw HMAC":                       `"signature":{"encoding":"raw"}`,
		"trim without a list":            `"signature":{"trim":true}`,
		"trim of a list of blanks":       `"signature":{"list_sep":" ","trim":true}`,
		"no template":                    `"template":""`,
		"template that signs nothing":    `"template":"hello"`,
		"template of what is configured": `"template":"{host}{path}.{param:x}","params":["x"],"id":{"from":"body_sha256_hex"}`,
		"secret hashed alone":            `"algo":"hash-sha256","template":"{secret}"`,
		"sig token that no item can be":  `"signature":{"list_sep":",","kv_sep":"=","tags":["v1"]},"template":"{sig:t=1}.{body}"`,
		"URL that holds its signature":   `"signature":{"in":"query","name":"sig"},"template":"{url}{body}"`,
		"path that holds its signature":  `"signature":{"in":"query","name":"sig"},"template":"{path_query}{body}"`,
		"unknown token":                  `"template":"{boddy}{header:X-Id}"`,
		"open brace":                     `"template":"{body"`,
		"brace in a literal":             `"template":"}{body}"`,
		"secret in an HMAC":              `"template":"{secret}{body}{header:X-Id}"`,
		"hash without secret":            `"algo":"hash-sha256"`,
		"sig token without kv_sep":       `"template":"{sig:t}.{body}"`,
		"sig token that is a tag":        `"signature":{"kv_sep":"=","tags":["v1"]},"template":"{sig:v1}.{body}"`,
		"signature that signs itself":    `"template":"{header:x-sig}{body}"`,
		"undeclared parameter":           `"template":"{param:x}{body}"`,
		"unused parameter":               `"params":["x"]`,
		"parameter twice":                `"template":"{param:x}{body}","params":["x","x"]`,
		"too many tokens":                `"template":"` + strings.Repeat("{body}.", 9) + `"`,
		"template for a token":           `"algo":"token"`,
		"timestamp nowhere":              `"timestamp":{}`,
		"timestamp outside the text":     `"timestamp":{"from":"header:X-Time"}`,
		"timestamp of unknown format":    `"template":"{header:X-Time}{body}","timestamp":{"from":"header:X-Time","format":"unix"}`,
		"past_only without window":       `"template":"{header:X-Time}{body}","timestamp":{"from":"header:X-Time","tolerance_s":null,"past_only":true}`,
		"timestamp that is a hash":       `"timestamp":{"from":"body_sha256_hex"}`,
		"id nowhere":                     `"id":{"from":"cookie:x"}`,
		"id in the signature":            `"signature":{"kv_sep":"=","tags":["v1"]},"id":{"from":"sig:id"}`,
		"id pattern that is none":        `"id":{"pattern":"("}`,
		"id said to be signed":           `"template":"{body}","id":{"from":"header:X-Id","signed":true}`,
		"id of the body":                 `"id":{"from":"{body}"}`,
		"key id in the body":             `"key_id":{"from":"json:kid"}`,
		"two key ids":                    `"key_id":{"from":["header:A","header:B"]}`,
		"twin header names":              `"event_type":{"from":"header:X_Id"}`,
		"event type in the signature":    `"event_type":{"from":"header:X-Sig"}`,
		"required header of nothing":     `"require":[{"header":"X-V","equals":""}]`,
		"required header misspelled":     `"require":[{"header":"X V","equals":"1"}]`,
		"pointer without slash":          `"conflict_ignore":["attempt"]`,
		"success that is a redirect":     `"ack":{"success_status":302}`,
		"204 with a body":                `"ack":{"success_status":204,"success_body":"ok"}`,
		"type with a line end":           `"ack":{"success_body":"ok","success_type":"text/plain\r\nX: y"}`,
		"type with a control character":  `"ack":{"success_body":"ok","success_type":"text/plain; a=\"\u0007\""}`,
		"type that is none":              `"ack":{"success_body":"ok","success_type":"plain"}`,
		"large body":                     `"ack":{"success_body":"` + strings.Repeat("a", 4097) + `"}`,
		"refusal 410":                    `"ack":{"refusal_status":410}`,
		"conflict 410":                   `"ack":{"conflict_status":410}`,
		"conflict 200":                   `"ack":{"conflict_status":200}`,
		"unknown on_conflict":            `"ack":{"on_conflict":"ignore"}`,
		"empty name in a path":           `"event_type":{"from":"json:a..b"}`,
		"bad tilde in a pointer":         `"event_type":{"from":"json:/a~2"}`,
		"{sig} without a list":           `"signature":{"kv_sep":"=","tags":["v1"]},"template":"{sig:t}.{body}"`,
		"body that holds its signature":  `"signature":{"in":"json","name":"sig"}`,
		"form that holds its signature":  `"signature":{"in":"form","name":"sig"},"template":"{form_sorted}"`,
		"query that holds its signature": `"signature":{"in":"query","name":"sig"},"template":"{query_raw}{body}"`,
		"token read as an id":            `"algo":"token","template":"","signature":{"in":"query","name":"key"},"id":{"from":"query:key"}`,
		"token read as part of an id":    `"algo":"token","template":"","signature":{"in":"query","name":"key"},"id":{"from":"a-{query:key}"}`,
		"token read as a type":           `"algo":"token","template":"","signature":{"in":"json","name":"a.b"},"event_type":{"from":"json:/a/b"}`,
		"token read as a key id":         `"algo":"token","template":"","signature":{"in":"query","name":"key"},"key_id":{"from":"query:key"}`,
		"basic outside a header":         `"algo":"basic","template":"","signature":{"in":"query","name":"a"}`,
		"one requirement twice":          `"require":[{"header":"X-V","equals":"1"},{"header":"x-v","equals":"2"}]`,
		"seventeen headers":              `"require":[` + manyRequired(17) + `]`,
	} {
		base := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(goodRecipe), &base); err != nil {
			t.Fatal(err)
		}
		patched := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte("{"+patch+"}"), &patched); err != nil {
			t.Fatalf("%s: %v", defect, err)
		}
		for field, value := range patched {
			if inner := map[string]json.RawMessage{}; base[field] != nil && json.Unmarshal(base[field], &inner) == nil && string(value) != "{}" {
				if err := json.Unmarshal(value, &inner); err != nil {
					t.Fatal(err)
				}
				value, _ = json.Marshal(inner)
			}
			base[field] = value
		}
		text, _ := json.Marshal(base)
		r, err := ParseRecipe(text)
		if err != nil {
			t.Errorf("%s: does not parse: %v", defect, err)
			continue
		}
		if _, err := r.Compile(); err == nil {
			t.Errorf("%s was taken: %s", defect, text)
		}
	}
}

func manyRequired(n int) string {
	var list []string
	for i := range n {
		list = append(list, `{"header":"X-`+strings.Repeat("a", i+1)+`","equals":"1"}`)
	}
	return strings.Join(list, ",")
}

func mustParse(t testing.TB, text string) Recipe {
	t.Helper()
	r, err := ParseRecipe([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPresetTableCompiles(t *testing.T) {
	all, err := loadPresets()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(Presets()) || len(all) < 8 {
		t.Errorf("%d presets, %v", len(all), Presets())
	}
	if !slices.IsSorted(Presets()) {
		t.Errorf("presets are not sorted: %v", Presets())
	}
	if _, ok := Preset("nobody"); ok {
		t.Error("a preset of no name")
	}
}

// What the table of schemes says of each preset.
func TestPresetFacts(t *testing.T) {
	for _, want := range []struct {
		name                        string
		minLen, tolerance           int
		keyID, idSigned, bodyUnique bool
		id, event, ignore           string
		ack                         int
	}{
		{"zhisou-v1", 32, 300, true, true, false, "header:X-Webhook-Delivery-Id", "", "", 0},
		{"timestamped-sha256", 32, 300, false, false, true, "header:X-Webhook-ID", "", "", 0},
		{"delivery-timestamp", 32, 300, false, true, false, "header:X-Webhook-Id", "", "", 0},
		{"standard-webhooks", 1, 300, false, true, false, "header:webhook-id", "json:/type", "", 0},
		{"stripe", 1, 300, false, true, true, "json:/id", "json:/type", "/pending_webhooks", 0},
		{"slack", 1, 300, false, true, true, "json:/event_id", "json:/event/type", "", 0},
		{"github", 1, 0, false, false, false, "header:X-GitHub-Delivery", "header:X-GitHub-Event", "", 0},
		{"shopify", 1, 0, false, false, false, "header:X-Shopify-Webhook-Id", "header:X-Shopify-Topic", "", 200},
	} {
		s, ok := Preset(want.name)
		if !ok {
			t.Errorf("no preset %s", want.name)
			continue
		}
		r := s.Recipe()
		if s.Name() != want.name || s.SecretSpec().MinLen != want.minLen || s.UsesKeyID() != want.keyID ||
			s.IDSigned() != want.idSigned || r.BodyUnique != want.bodyUnique || !s.HasDeliveryID() || !s.BodySigned() ||
			s.NeedsURL() || s.HasTimestamp() != (want.tolerance > 0) || r.ID.From[0] != want.id {
			t.Errorf("%s: %+v", want.name, r)
		}
		if r.Timestamp != nil && int(r.Timestamp.ToleranceS) != want.tolerance {
			t.Errorf("%s: tolerance %d", want.name, r.Timestamp.ToleranceS)
		}
		event, ignore, ack := "", strings.Join(r.ConflictIgnore, " "), 0
		if r.EventType != nil {
			event = r.EventType.From[0]
		}
		if r.Ack != nil {
			ack = r.Ack.SuccessStatus
		}
		if event != want.event || ignore != want.ignore || ack != want.ack {
			t.Errorf("%s: type %q, ignore %q, status %d", want.name, event, ignore, ack)
		}
	}
}

// A recipe that is printed reads back equal.
func TestRecipeRoundTrip(t *testing.T) {
	var recipes []Recipe
	for _, name := range Presets() {
		s, _ := Preset(name)
		recipes = append(recipes, s.Recipe())
	}
	for _, file := range vectorFiles(t) {
		for _, v := range readVectors(t, file) {
			if !strings.Contains(string(v.Scheme), `"code:`) {
				recipes = append(recipes, mustParse(t, string(v.Scheme)))
			}
		}
	}
	for _, r := range recipes {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseRecipe(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(r, back) {
			t.Fatalf("%s reads back as %+v", text, back)
		}
	}
}

func TestPresetWithFieldsReplaced(t *testing.T) {
	r := mustParse(t, `{"preset":"stripe","timestamp":{"tolerance_s":600},"conflict_ignore":["/a","/b"]}`)
	if r.Timestamp.ToleranceS != 600 || r.Timestamp.From != "sig:t" || len(r.ConflictIgnore) != 2 || r.Name != "stripe" {
		t.Errorf("%+v", r)
	}
	s, _ := Preset("stripe")
	if kept := s.Recipe(); kept.Timestamp.ToleranceS != 300 || kept.EventType == nil || kept.ConflictIgnore[0] != "/pending_webhooks" {
		t.Errorf("the preset itself changed: %+v", kept)
	}
	if mustParse(t, `{"preset":"stripe","timestamp":{"tolerance_s":null}}`).Timestamp.ToleranceS != NoWindow {
		t.Error("null is not NoWindow")
	}
	// What a caller does to a recipe does not reach the scheme.
	got := s.Recipe()
	got.ConflictIgnore[0], got.Timestamp.From, got.ID.From[0] = "/x", "sig:x", "json:x"
	if kept := s.Recipe(); kept.ConflictIgnore[0] != "/pending_webhooks" || kept.Timestamp.From != "sig:t" || kept.ID.From[0] != "json:/id" {
		t.Errorf("the scheme changed: %+v", kept)
	}
}

func TestRename(t *testing.T) {
	s, _ := Preset("zhisou-v1")
	r, err := s.Recipe().Rename(map[string]string{
		"x-webhook-signature": "Acme-Signature", "X-Webhook-Timestamp": "Acme-Time",
		"X-Webhook-Delivery-Id": "Acme-Id", "X-Webhook-Key-Id": "Acme-Key",
	})
	if err != nil {
		t.Fatal(err)
	}
	acme, err := r.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(acme.Headers(), " "); got != "Acme-Signature Acme-Time Acme-Id Acme-Key" {
		t.Errorf("headers %s", got)
	}
	if strings.Join(s.Headers(), " ") != "X-Webhook-Signature X-Webhook-Timestamp X-Webhook-Delivery-Id X-Webhook-Key-Id" {
		t.Errorf("the preset changed: %v", s.Headers())
	}
	swapped, err := s.Recipe().Rename(map[string]string{"X-Webhook-Timestamp": "X-Webhook-Delivery-Id", "X-Webhook-Delivery-Id": "X-Webhook-Timestamp"})
	if err != nil || swapped.Template != "v1.{header:X-Webhook-Delivery-Id}.{header:X-Webhook-Timestamp}.{body}" {
		t.Errorf("swapped: %s, %v", swapped.Template, err)
	}
	for defect, names := range map[string]map[string]string{
		"a header that is not there": {"X-Other": "Acme"},
		"no header name":             {"X-Webhook-Signature": "Acme Signature"},
		"two headers become one":     {"X-Webhook-Timestamp": "X-Webhook-Delivery-Id"},
		"the signature's name":       {"X-Webhook-Timestamp": "X-Webhook-Signature"},
	} {
		if _, err := s.Recipe().Rename(names); err == nil {
			t.Errorf("%s was taken", defect)
		}
	}
	basic, err := mustParse(t, `{"algo":"basic"}`).Rename(map[string]string{"Authorization": "X-Auth"})
	if err != nil || basic.Signature.Name != "X-Auth" {
		t.Errorf("basic: %+v, %v", basic.Signature, err)
	}
}

func TestTouchingTokensAreAWarning(t *testing.T) {
	for text, want := range map[string]int{
		`{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{header:I}{header:T}{body}"}`:   2,
		`{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{header:I}.{header:T}.{body}"}`: 0,
		// What is configured parts two tokens as a literal does.
		`{"algo":"hash-sha256","signature":{"name":"S"},"template":"{header:I}{secret}{body}"}`:                   0,
		`{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{host}{path}{body}{param:x}","params":["x"]}`: 0,
	} {
		if got := compile(t, text).Warnings(); len(got) != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
