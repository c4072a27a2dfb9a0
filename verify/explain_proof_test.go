package verify

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCasesAsExplainTellsThem(t *testing.T) {
	asText := func(t *testing.T, v *Verifier) {
		v.Keys = explainKeys(t, explainKey(t, "k1", publishedSecret(t), v.Scheme.SecretSpec()))
	}
	for _, c := range []struct {
		fixture string
		keys    func(*testing.T, *Verifier)
		want    string
	}{
		{"A2-reprinted", nil, "body_html_escaped"},
		{"A3-crlf-lost", nil, "body_missing_newline"},
		{"A4-plain", nil, "body_inflated"},
		{"B1-twice-sig-bad-good", nil, "header_duplicated"},
		{"B1-twice-timestamp", nil, "header_duplicated"},
		{"B1-underscore-id", nil, "header_duplicated"},
		{"B1-split-list", nil, "header_duplicated"},
		{"B2-stripe-only-v0", nil, "sig_label"},
		{"B4-upper", nil, "sig_uppercase"},
		{"B4-mixed", nil, "sig_uppercase"},
		{"B5-stripe-decoded", asText, "key_base64"},
		{"B5-standard-text", asText, "key_base64"},
		{"B6-63", nil, "sig_undecodable"},
		{"B8-signed-with-newline", nil, "key_sender_newline"},
		{"B9-k1-late", nil, "key_expired"},
		{"B9-k2-early", nil, "key_not_yet_valid"},
		{"B9-swapped", nil, "key_other"},
		{"B9-no-key-id", nil, "header_missing"},
		{"C2-milliseconds", nil, "ts_millis"},
	} {
		t.Run(c.fixture, func(t *testing.T) {
			f, ok := caseFixtures(t)[c.fixture]
			if !ok {
				t.Fatal("no such fixture")
			}
			v := f.verifier(t)
			if c.keys != nil {
				c.keys(t, v)
			}
			if first, _, _ := strings.Cut(codes(v.Explain(f.request(t))), ", "); first != c.want {
				t.Errorf("%s first, want %s", first, c.want)
			}
		})
	}
}

// strings in an explanation, whatever fields it may get.
func stringsIn(v reflect.Value, found *[]string) {
	switch v.Kind() {
	case reflect.String:
		*found = append(*found, v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			stringsIn(v.Elem(), found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			stringsIn(v.Field(i), found)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			*found = append(*found, string(v.Bytes()))
			return
		}
		for i := range v.Len() {
			stringsIn(v.Index(i), found)
		}
	case reflect.Array:
		if v.Type() != reflect.TypeFor[[32]byte]() { // the body's hash
			for i := range v.Len() {
				stringsIn(v.Index(i), found)
			}
		}
	}
}

// leak finds a part of what must never be told.
func leak(e Explanation, never ...string) string {
	var found []string
	stringsIn(reflect.ValueOf(e), &found)
	for _, secret := range never {
		for i := 0; i+8 <= len(secret); i++ {
			for _, s := range found {
				if strings.Contains(s, secret[i:i+8]) {
					return fmt.Sprintf("%q is in %q", secret[i:i+8], s)
				}
			}
		}
	}
	return ""
}

func TestExplainTellsNoSecret(t *testing.T) {
	for _, m := range zhisouMistakes {
		v, r := m.zhisou(t)
		never := []string{string(r.Body), explainK2}
		if m.headers["X-Webhook-Key-Id"] == "" {
			never = append(never, explainK1)
		}
		for _, k := range []string{explainK1, explainK2} {
			sum := macOf(hashes[hashSHA256].new, false, k, "v1."+r.Header.Get("X-Webhook-Timestamp")+".dlv_1."+string(r.Body))
			never = append(never, hex.EncodeToString(sum), base64.StdEncoding.EncodeToString(sum), string(sum), r.Header.Get("X-Webhook-Signature"))
			never = append(never, hex.EncodeToString([]byte(k)), base64.StdEncoding.EncodeToString([]byte(k)))
		}
		e := v.Explain(r, v.Keys)
		if s := leak(e, never...); s != "" {
			t.Errorf("%s: %s", m.name, s)
		}
	}
}

// A secret that was pasted where it does not belong comes back as [redacted].
func TestExplainRedactsASecretInAHeader(t *testing.T) {
	for _, name := range []string{"X-Webhook-Key-Id", "X-Webhook-Timestamp", "X-Webhook-Delivery-Id", "X-Webhook-Signature"} {
		v, r := mistake{headers: map[string]string{name: explainK1}}.zhisou(t)
		if s := leak(v.Explain(r), explainK1); s != "" {
			t.Errorf("%s: %s", name, s)
		}
		// One that is too long to be shown whole.
		long := strings.Repeat(explainK1, 3)
		v, r = mistake{headers: map[string]string{name: long}, keys: []Key{explainKey(t, "k1", long, SecretSpec{})}}.zhisou(t)
		if s := leak(v.Explain(r), long); s != "" {
			t.Errorf("%s: %s", name, s)
		}
	}
}

func TestExplainIsTheSameEveryTime(t *testing.T) {
	near := map[string]string{"X-Webhook-Signature": ""}
	for _, letter := range "abcdefgh" {
		near["X-Webhook-Signature-"+string(letter)] = "1"
	}
	for _, m := range append(zhisouMistakes, zhisouMistake{"headers that came close", mistake{headers: near}, ""}) {
		v, r := m.zhisou(t)
		for i := range 40 {
			r.Header.Set(fmt.Sprintf("X-Other-%d", i), "1")
		}
		first := v.Explain(r)
		for range 2 {
			if again := v.Explain(r); !reflect.DeepEqual(first, again) {
				t.Fatalf("%s: %+v, then %+v", m.name, first, again)
			}
		}
	}
}

func TestExplainNamesHeadersThatCameClose(t *testing.T) {
	for _, near := range []string{"X-Webhook-Signatur", "X_Webhook_Signature", "XWebhook-Signature", "X-Acme-Webhook-Signature"} {
		v, r := mistake{headers: map[string]string{"X-Webhook-Signature": "", near: "1"}}.zhisou(t)
		e := v.Explain(r)
		if codes(e) != "header_missing" || !strings.Contains(e.Causes[0].Text, http.CanonicalHeaderKey(near)) {
			t.Errorf("%s: %+v", near, e.Causes)
		}
	}
	v, r := mistake{headers: map[string]string{"X-Webhook-Signature": "", "X-Request-Id": "1"}}.zhisou(t)
	if e := v.Explain(r); strings.Contains(e.Causes[0].Text, "X-Request-Id") {
		t.Errorf("%+v", e.Causes)
	}
}

// What people are shown beside the causes.
func TestExplainShowsTheFacts(t *testing.T) {
	k1 := explainKey(t, "k1", explainK1, SecretSpec{})
	k1.NotAfter = time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)
	v, r := mistake{keys: []Key{k1}, body: explainBody + "\n", signed: framed(zhisouFrame)}.zhisou(t)
	e := v.Explain(r)
	want := Explanation{
		Error: e.Error, Causes: e.Causes, Scheme: "zhisou-v1", BodyLength: len(r.Body), BodyHash: e.BodyHash,
		KeyID: "k1", KeyNote: "known, valid until 2026-12-31", MatchedKey: "k1", Timestamp: explainTime, Distance: -10 * time.Second,
		Tolerance: 300 * time.Second, DeliveryID: "dlv_1", Signature: "64 hex characters", Frame: "v1.1700000000.dlv_1.{body}",
		MACs: e.MACs, Bytes: e.Bytes,
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("%+v, want %+v", e, want)
	}
	cause := e.Causes[0].Text
	if want := `the bytes match with key k1 once the final newline is removed: the sender signed the body without the "\n" that arrived`; cause != want {
		t.Errorf("%s, want %s", cause, want)
	}
}

// Values that lie in the body are no part of the frame.
func TestExplainLeavesTheBodyOutOfTheFrame(t *testing.T) {
	s, _ := Preset("mailgun")
	v := &Verifier{Scheme: s, Keys: explainKeys(t, explainKey(t, "", explainK1, SecretSpec{})), Now: at(t0)}
	e := v.Explain(Request{Header: http.Header{}, Body: []byte(`{"signature":{"timestamp":"1700000000","token":"a-token-of-the-body","signature":"00"},"event-data":{}}`)})
	if strings.Contains(fmt.Sprintf("%+v", e), "a-token-of") || !strings.Contains(e.Frame, "{json:") {
		t.Errorf("%+v", e)
	}
}

func TestExplainCostsLittle(t *testing.T) {
	for _, m := range zhisouMistakes {
		v, r := m.zhisou(t)
		e := v.Explain(r)
		// A single fault is found among the first, before any two are tried.
		if most := 80; len(e.Causes) == 1 && e.Causes[0].Code != "no_match" && !strings.Contains(m.name, "no ") && e.MACs > most {
			t.Errorf("%s: %d attempts, want at most %d", m.name, e.MACs, most)
		}
		if most := 6000; e.MACs > most {
			t.Errorf("%s: %d attempts, want at most %d", m.name, e.MACs, most)
		}
	}
}

// A key that another source has too is not tried again.
func TestExplainTriesEqualKeysOnce(t *testing.T) {
	v, r := mistake{key: "nope"}.zhisou(t)
	if alone, both := v.Explain(r), v.Explain(r, v.Keys, v.Keys); alone.MACs != both.MACs {
		t.Errorf("%d attempts, and %d with the same keys once more", alone.MACs, both.MACs)
	}
}

func TestExplainEndsWhenEnoughWasHashed(t *testing.T) {
	for _, most := range []int64{1, 1000, 20_000, 100_000} {
		v, r := mistake{key: "nope", body: strings.Repeat("long ", 100)}.zhisou(t)
		v.ExplainBytes = most
		e := v.Explain(r)
		if codes(e) != "search_cut" || e.Bytes > most {
			t.Errorf("%d bytes: %s after %d", most, codes(e), e.Bytes)
		}
		if most == 20_000 && !strings.Contains(e.Causes[0].Text, fmt.Sprint(e.MACs)) {
			t.Errorf("the number of attempts is not told: %s", e.Causes[0].Text)
		}
	}
	// The usual bound holds for the largest body that the proxy takes, and for many keys.
	var keys []Key
	for i := range 16 {
		keys = append(keys, explainKey(t, fmt.Sprintf("k%d", i), fmt.Sprintf("%032d", i), SecretSpec{}))
	}
	v, r := mistake{key: "nope", keys: keys, body: "{\r\n" + strings.Repeat(" ", DefaultMaxBody-4) + "}"}.zhisou(t)
	v.ExplainBytes = 8 << 20
	if e := v.Explain(r); e.Bytes > v.ExplainBytes || codes(e) != "search_cut" {
		t.Errorf("%s after %d bytes", codes(e), e.Bytes)
	}
}

// A long body is tried as it arrived; the bound follows the one on hashing.
func TestExplainMakesNoFormsOfALongBody(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	m := mistake{body: long + "\n", signed: zhisouFrame + long}
	v, r := m.zhisou(t)
	v.MaxBody = 2 << 20
	v.ExplainBytes = 256 << 20
	if e := v.Explain(r); codes(e) != "no_match" || !strings.Contains(e.Causes[0].Text, "forms") {
		t.Errorf("server: %+v", e.Causes)
	}
	v.ExplainBytes = 512 << 20
	if e := v.Explain(r); codes(e) != "body_extra_newline" {
		t.Errorf("command line: %+v", e.Causes)
	}
}

// A gzip that would fill the memory is not inflated.
func TestExplainInflatesWithinTheCap(t *testing.T) {
	bomb := strings.Repeat(zipped(strings.Repeat("0", 1<<20)), 50) // a gzip may have many members
	v, r := mistake{key: "nope", body: bomb}.zhisou(t)
	v.ExplainBytes = 1 << 30
	if inflated([]byte(bomb), DefaultMaxBody) != nil {
		t.Error("inflated beyond the cap")
	}
	if e := v.Explain(r); codes(e) != "no_match" {
		t.Errorf("%s", codes(e))
	}
}

func TestExplainWithNothingToGoBy(t *testing.T) {
	v, r := mistake{}.zhisou(t)
	for name, c := range map[string]struct {
		v    *Verifier
		want string
	}{
		"zero":      {&Verifier{}, "algorithm_refused"},
		"no scheme": {&Verifier{Keys: v.Keys}, "algorithm_refused"},
		"no keys":   {&Verifier{Scheme: v.Scheme, Now: v.Now}, "key_unknown, no_match"},
	} {
		if e := c.v.Explain(r); codes(e) != c.want || e.Error == nil {
			t.Errorf("%s: %s, want %s", name, codes(e), c.want)
		}
	}
}

// Any one fault is found first, whatever the body.
func TestPropertyExplainFindsASingleFault(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("abc \"\\/&<>é€😊\n")), 0, 20, -1)
		value, _ := json.Marshal(map[string]any{"a": text.Draw(rt, "a"), "list": []any{1, true, nil, text.Draw(rt, "b")}})
		body := string(jsonUTF8(value, func(r rune) bool { return r == '<' || r == '>' || r == '&' }))
		var indented bytes.Buffer
		json.Indent(&indented, []byte(body), "", "  ")
		key := rapid.StringMatching(`[a-z]{29}[A-Z]{4}`).Draw(rt, "key") // no hex
		k1, k2 := explainKey(t, "k1", key, SecretSpec{}), explainKey(t, "k2", key+"_2", SecretSpec{})
		faults := []struct {
			mistake
			want string
		}{
			{mistake{}, ""},
			{mistake{key: key + "_2"}, "key_other"},
			{mistake{key: key + "\n"}, "key_sender_newline"},
			{mistake{hash: hashes[hashSHA1].new}, "hash_sha1"},
			{mistake{plain: true}, "hash_plain"},
			{mistake{signed: body}, "frame_body_only"},
			{mistake{signed: explainTime + "." + body}, "frame_ts_body"},
			{mistake{signed: explainTime + ".dlv_1." + body}, "frame_no_version"},
			{mistake{signed: zhisouFrame + body, body: body + "\n"}, "body_extra_newline"},
			{mistake{signed: zhisouFrame + body + "\n"}, "body_missing_newline"},
			{mistake{signed: zhisouFrame + body, body: body + "  "}, "body_extra_blank"},
			{mistake{signed: zhisouFrame + body, body: indented.String()}, "body_compacted"},
			{mistake{signed: zhisouFrame + string(jsonSpaced([]byte(body)))}, "body_python_spacing"},
			{mistake{signed: zhisouFrame + body, body: b64([]byte(body))}, "body_base64"},
			{mistake{signed: zhisouFrame + body, body: zipped(body)}, "body_inflated"},
			{mistake{spell: b64}, "sig_base64"},
			{mistake{headers: map[string]string{"X-Webhook-Timestamp": explainTime + "000"}}, "ts_millis"},
			{mistake{ahead: time.Hour}, "ts_window"},
		}
		m := faults[rapid.IntRange(0, len(faults)-1).Draw(rt, "fault")]
		m.keys = []Key{k1, k2}
		if m.key == "" {
			m.key = key
		}
		if m.body == "" {
			m.body = body
		}
		if m.signed == "" {
			m.signed = zhisouFrame + m.body
		}
		v, r := m.zhisou(t)
		e := v.Explain(r)
		if codes(e) != m.want {
			rt.Fatalf("body %q: %s, want %s", r.Body, codes(e), m.want)
		}
		if s := leak(e, key); s != "" {
			rt.Fatal(s)
		}
	})
}

// Whatever arrives: no panic, no secret, no attempt beyond the bound, an answer that
// is empty for what verifies and for nothing else, and the same one again.
func FuzzExplain(f *testing.F) {
	names, secret := Presets(), publishedSecret(f)
	for i := range names {
		f.Add(i, "t=1700000000,v1=00,v0=\n", explainTime, "dlv_1", "k1", []byte(explainBody), "/in?a=b")
	}
	f.Add(0, strings.Repeat("a,", 200), "1.7e9", "", "k2", []byte("payload=%7B%7D"), "")
	f.Fuzz(func(t *testing.T, preset int, signature, timestamp, id, keyID string, body []byte, target string) {
		s, _ := Preset(names[uint(preset)%uint(len(names))])
		key, err := NewKey("k1", []byte(secret), s.SecretSpec())
		if err != nil {
			key = Key{ID: "k1", Secret: newSecret(&secretData{raw: []byte(secret), text: []byte(secret)})}
		}
		keys := explainKeys(t, key)
		r := Request{Method: "POST", URL: target, Header: http.Header{}, Body: body}
		for i, name := range s.Headers() {
			r.Header[name] = []string{[]string{signature, timestamp, id, keyID}[i%4]}
		}
		r.Header["X-Webhook-Timestamp"] = []string{timestamp}
		v := &Verifier{Scheme: s, Keys: keys, URL: "https://h.example/in", ExplainBytes: 1 << 18, Now: at(t0)}
		e := v.Explain(r)
		if (e.Error == nil) != (len(e.Causes) == 0) {
			t.Fatalf("%v, causes %v", e.Error, e.Causes)
		}
		if e.Bytes > v.ExplainBytes || e.MACs > 1<<10 {
			t.Fatalf("%d attempts, %d bytes", e.MACs, e.Bytes)
		}
		var found []string
		stringsIn(reflect.ValueOf(e), &found)
		if strings.Contains(strings.Join(found, "\n"), secret) {
			t.Fatalf("the secret is told: %+v", e)
		}
		if again := v.Explain(r); !reflect.DeepEqual(e, again) {
			t.Fatalf("%+v, then %+v", e, again)
		}
	})
}

// Each code is the answer to a mistake of the tables above, so that none is said that
// nothing shows.
func TestEveryCauseHasAMistake(t *testing.T) {
	shown := map[string]bool{"search_cut": true, "header_duplicated": true, "key_other_source": true, "key_expired": true, "key_not_yet_valid": true, "precondition": true, "body_too_large": true, "body_unparsable": true}
	for _, m := range zhisouMistakes {
		for code := range strings.SplitSeq(m.want, ", ") {
			shown[code] = true
		}
	}
	for _, m := range schemeMistakes(publishedSecret(t)) {
		shown[m.want] = true
	}
	for _, c := range causes {
		if !shown[c.code] {
			t.Errorf("%s has no test", c.code)
		}
	}
}

// The page that starts from what people see names codes that there are.
func TestPageNamesCausesThatThereAre(t *testing.T) {
	page, err := os.ReadFile("../docs/signature-does-not-match.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:key|hash|frame|url|body|sig|ts|header|scheme|no)_[a-z0-9_]+)`").FindAllSubmatch(page, -1)
	for _, m := range named {
		if code := string(m[1]); causes[rank(code)].code != code {
			t.Errorf("there is no cause %s", code)
		}
	}
	if len(named) < 40 {
		t.Errorf("only %d codes were found in the page", len(named))
	}
}

func TestExplainKeepsTheReasonsOfVerify(t *testing.T) {
	s := compile(t, `{"preset":"zhisou-v1","require":[{"header":"X-Version","equals":"1"}]}`)
	for want, c := range map[string]struct {
		version string
		most    int
	}{
		"precondition":   {"2", 0},
		"header_missing": {"", 0},
		"body_too_large": {"1", 5},
	} {
		v, r := mistake{headers: map[string]string{"X-Version": c.version}}.zhisou(t)
		v.Scheme, v.MaxBody = s, c.most
		if got := codes(v.Explain(r)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	mailgun, _ := Preset("mailgun")
	v := &Verifier{Scheme: mailgun, Keys: oneKey(t), Now: at(t0)}
	if got := codes(v.Explain(Request{Body: []byte("no JSON")})); !strings.Contains(got, "body_unparsable") {
		t.Errorf("%s, want body_unparsable", got)
	}
}
