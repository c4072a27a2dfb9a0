package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// noVectors are presets that nobody's vectors exist for.
var noVectors = []string{"azure-event-grid", "cloudevents", "google-push", "microsoft-graph", "okta"}

// variants are vectors of another scheme than the preset of their file.
var variants = map[string]string{
	"convoy/advanced_sha256_base64_valid": "base64 in place of hex",
	"convoy/advanced_sha512_base64_valid": "SHA-512, base64",
	"convoy/advanced_sha512_hex_valid":    "SHA-512",
	"convoy/ingest-sha512-hex":            "SHA-512 over the body alone",
	"convoy/simple_sha512_base64_valid":   "SHA-512 over the body alone, base64",
	"convoy/simple_tamper":                "the body alone",
	"generic-hub/sha1-bad":                "SHA-1 under X-Hub-Signature",
	"generic-hub/sha1-bare":               "SHA-1 under X-Hub-Signature",
	"generic-hub/sha1-list":               "SHA-1 under X-Hub-Signature",
	"generic-hub/sha1-prefixed":           "SHA-1 under X-Hub-Signature",
	"generic-hub/sha512-empty-body":       "SHA-512 under X-Hub-Signature-512",
	"generic-hub/sha512-prefixed":         "SHA-512 under X-Hub-Signature-512",
	"rfc9421/b25-body-not-covered":        "another profile, which does not cover the body",
	"rfc9421/b25-hmac":                    "another profile, which does not cover the body",
	"shopify/events-header":               "the newer header",
	"stripe/secret-base64-decoded":        "the secret read wrongly, on purpose",
	"zendesk/old-doc-sample-body-ts":      "the order of an older page",
}

// departures are the fields, besides those that the vectors do not have, in which
// presets are not the recipe of the vectors.
var departures = map[string]string{
	"box signature.names":          "most vectors know one of the two keys",
	"convoy timestamp.tolerance_s": "the published requests are years old",
	"openai secret_spec.encoding":  "some secrets are text; their key says so",
	"paypal template":              "the webhook id is a parameter, in the vectors a literal",
	"rfc9421 label":                "a request has one signature, whatever its label",
	"rfc9421 required_components":  "the vectors demand less than they cover",
	"rfc9421 sig_alg":              "the default, which a source may replace",
	"pusher require":               "the key's name selects the key; the vectors compare it",
}

// Every vector under the preset of its file. The presets demand more than the
// vectors carry: an id header, a key id, long secrets.
func TestVectorsUnderPresets(t *testing.T) {
	used := map[string]bool{}
	for _, name := range Presets() {
		if slices.Contains(noVectors, name) {
			continue
		}
		s, _ := Preset(name)
		for _, v := range readVectors(t, name+".json") {
			if variants[v.Name] != "" {
				used[v.Name] = true
				continue
			}
			t.Run(v.Name, func(t *testing.T) { v.judgePreset(t, s) })
		}
	}
	for name := range variants {
		if !used[name] {
			t.Errorf("variant %s: no vector has that name", name)
		}
	}
}

func (v *vector) judgePreset(t *testing.T, s Scheme) {
	v.judge(t, v.fitted(t, s))
}

// fitted is the preset in the variant that the vector needs; the vector gets the
// headers that the preset demands besides.
func (v *vector) fitted(t testing.TB, s Scheme) Scheme {
	t.Helper()
	own := mustParse(t, string(v.Scheme))
	name := s.Name()
	if v.Fail != "unusable_key" && len(v.Secret) < s.SecretSpec().MinLen {
		s = compile(t, `{"preset":"`+name+`","secret_spec":{"min_len":1}}`)
	}
	if name == "openai" && own.SecretSpec.Encoding == "utf8" {
		s = compile(t, `{"preset":"openai","secret_spec":{"encoding":"utf8","strip_prefix":[]}}`)
	}
	if name == "convoy" {
		s = compile(t, fmt.Sprintf(`{"preset":"convoy","timestamp":{"tolerance_s":%d}}`, own.Timestamp.ToleranceS))
	}
	ownScheme, err := own.Compile()
	if err != nil {
		t.Fatal(err)
	}
	v.Headers = v.Headers.Clone()
	if name == "box" && len(own.Signature.Names) == 1 {
		delete(v.Headers, "box-signature-secondary") // the vector does not look there
	}
	for i, header := range s.Headers() {
		_, there, _ := headerValue(v.Headers, header)
		if there || !s.p.headers[i].demanded || slices.Contains(ownScheme.Headers(), header) {
			continue
		}
		if v.Headers == nil {
			v.Headers = http.Header{}
		}
		v.Headers[header] = []string{"dlv_1"}
	}
	return s
}

// Presets are the recipes of the vectors, in the fields that those have.
func TestPresetsAgreeWithVectors(t *testing.T) {
	used := map[string]bool{}
	for _, name := range Presets() {
		if slices.Contains(noVectors, name) {
			continue
		}
		s, _ := Preset(name)
		preset := leaves(t, s.Recipe())
		for _, v := range readVectors(t, name+".json") {
			if variants[v.Name] != "" {
				continue
			}
			own := leaves(t, mustParse(t, string(v.Scheme)))
			for field, want := range own {
				if field == "id.from" || field == "id.pattern" {
					continue // the page's own table is the word on ids
				}
				if got := preset[field]; got == want {
					continue
				} else if departures[name+" "+field] == "" {
					t.Errorf("%s: %s is %s, in %s %s", name, field, got, v.Name, want)
				}
				used[name+" "+field] = true
			}
		}
	}
	for d := range departures {
		if !used[d] {
			t.Errorf("departure %s: there is none", d)
		}
	}
}

// leaves are the fields of a recipe by name; lists are one field.
func leaves(t *testing.T, r Recipe) map[string]string {
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, value := range fields {
		var inner map[string]json.RawMessage
		if json.Unmarshal(value, &inner) != nil {
			all[name] = string(value)
			continue
		}
		for k, v := range inner {
			all[name+"."+k] = string(v)
		}
	}
	return all
}

// The table is one recipe a line, sorted, written as Marshal writes it.
func TestPresetTableIsUniform(t *testing.T) {
	text, err := os.ReadFile("schemes.json")
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for line := range strings.Lines(string(text)) {
		r, err := parseRecipe([]byte(line), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Name <= last {
			t.Errorf("%s stands behind %s", r.Name, last)
		}
		last = r.Name
		if r.Reference == "" {
			t.Errorf("%s: no reference", r.Name)
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(r); err != nil {
			t.Fatal(err)
		}
		if b.String() != line {
			t.Errorf("written as\n%swant\n%s", line, b.String())
		}
		s, err := r.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if again := leaves(t, s.Recipe()); !equalLeaves(again, leaves(t, r)) {
			t.Errorf("%s: compiled and read back differs: %v", r.Name, again)
		}
	}
}

func equalLeaves(a, b map[string]string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// Parts that touch are allowed where the formats of the neighbours are fixed: a
// timestamp of digits or of RFC 3339, the public URL, form pairs.
func TestPresetWarnings(t *testing.T) {
	allowed := map[string]int{
		"box": 1, "discord": 1, "zendesk": 1, "sendgrid": 1, "scalr": 1, // timestamp and body
		"twitch-eventsub": 2,                  // id, RFC 3339 timestamp, body
		"lark-feishu":     1,                  // timestamp, nonce
		"hubspot-v2":      2, "hubspot-v3": 3, // method, URL, body, timestamp
		"square": 1, "trello": 1, // URL and body
		"mandrill": 1, "plivo-v1": 1, "plivo-v2": 1, // URL and form pairs or nonce
		"mailgun": 1, // timestamp and token
	}
	for _, name := range Presets() {
		s, _ := Preset(name)
		if w := s.Warnings(); len(w) != allowed[name] {
			t.Errorf("%s: %d warnings, want %d: %q", name, len(w), allowed[name], w)
		}
	}
}

// What each preset does, as the documents of the providers have it.
func TestPresetsDoWhatTheTableSays(t *testing.T) {
	names := Presets()
	for _, want := range presetTable {
		if !slices.Contains(names, want.name) {
			t.Errorf("%s is missing", want.name)
			continue
		}
		s, _ := Preset(want.name)
		got := presetRow{want.name, bodyOf(s), timeOf(s), idOf(s), ackOf(s.Recipe().Ack), s.Recipe().Reference}
		if got != want {
			t.Errorf("\n got %+v\nwant %+v", got, want)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == want.name })
	}
	if len(names) > 0 {
		t.Errorf("not in the table: %v", names)
	}
}

func bodyOf(s Scheme) string {
	switch {
	case s.BodySigned():
		return "body"
	case strings.Contains(s.Recipe().Template, "{body_crc32_dec}"):
		return "crc"
	case s.Recipe().Template == "" && !strings.HasPrefix(s.Recipe().Algo, "code:"):
		return "nothing"
	}
	return "part"
}

func timeOf(s Scheme) string {
	t := s.p.timestamp
	if t == nil {
		return ""
	}
	text := map[timeFormat]string{unixSeconds: "s", unixMillis: "ms", rfc3339: "RFC 3339"}[t.format]
	if s.p.code != nil && t.from.kind == placeSig {
		text = t.from.name // the claim or field that says it
	}
	if t.window == 0 {
		return text + " no window"
	}
	text += fmt.Sprintf(" %g", t.window.Seconds())
	if t.pastOnly {
		text += " past"
	}
	return text
}

// idOf is the notation of the table: * not signed, u the body has an id of its
// own, h the hash of the body, which implies u.
func idOf(s Scheme) string {
	r := s.Recipe()
	short := func(from Sources) string {
		text := strings.Join(from, ", ")
		for _, cut := range []string{"header:", "json:"} {
			text = strings.ReplaceAll(text, cut, "")
		}
		return text
	}
	text := "—"
	if r.ID != nil {
		text = short(r.ID.From)
		hash := text == "body_sha256_hex"
		if hash {
			text = "h"
		}
		if !s.IDSigned() {
			text += "*"
		}
		if r.BodyUnique && !hash {
			text += " u"
		}
		if hash && !r.BodyUnique {
			text += " without u"
		}
	}
	if r.ID == nil && s.HasDeliveryID() {
		text = "claim " + s.p.id.from[0].name
	}
	if r.EventType != nil {
		text += " → " + short(r.EventType.From)
		b := builder{p: s.p, r: &r}
		for i := range s.p.eventType {
			if !b.covered(&s.p.eventType[i]) {
				text += "*"
			}
		}
	}
	if len(r.ConflictIgnore) > 0 {
		text += "; ignore " + strings.Join(r.ConflictIgnore, " ")
	}
	return text
}

func ackOf(a *Ack) string {
	if a == nil {
		return ""
	}
	var text []string
	if a.SuccessStatus != 0 {
		text = append(text, strconv.Itoa(a.SuccessStatus))
	}
	if a.SuccessBody != nil {
		text = append(text, fmt.Sprintf("%q", *a.SuccessBody))
	}
	if a.SuccessType != "" {
		text = append(text, a.SuccessType)
	}
	if a.RefusalStatus != 0 {
		text = append(text, "refusal "+strconv.Itoa(a.RefusalStatus))
	}
	if a.ConflictStatus != 0 {
		text = append(text, "conflict "+strconv.Itoa(a.ConflictStatus))
	}
	if a.OnConflict != "" {
		text = append(text, a.OnConflict)
	}
	return strings.Join(text, " ")
}

// PayPal's webhook id must be given: without it any PayPal account's events verify.
func TestPayPalNeedsItsWebhookID(t *testing.T) {
	s, _ := Preset("paypal")
	v := readVectors(t, "paypal.json")[0]
	ver, err := v.verifier(s)
	if err != nil {
		t.Fatal(err)
	}
	own := ver.Params
	ver.Params = nil
	if ver.Check() == nil {
		t.Error("no webhook id is no error")
	}
	if _, err := ver.Verify(v.request(t)); reasonOf(err) != ReasonPrecondition {
		t.Errorf("without webhook id: %v", err)
	}
	ver.Params = map[string]string{"webhook_id": "another"}
	if _, err := ver.Verify(v.request(t)); reasonOf(err) != ReasonSignatureMismatch {
		t.Errorf("another webhook id: %v", err)
	}
	ver.Params = own
	if _, err := ver.Verify(v.request(t)); err != nil {
		t.Errorf("its own: %v", err)
	}
}
