package verify

import (
	"errors"
	"strings"
	"testing"
)

func TestHandshakesWithoutSenseAreRefused(t *testing.T) {
	const hmac = `{"algo":"hmac-sha256","signature":{"name":"X-Sig"},"template":"{body}","handshake":`
	for _, good := range []string{
		`[{"kind":"status","method":"HEAD"}]`,
		`[{"kind":"echo_query","method":"GET","from":"query:c","pattern":"[a-z]+"}]`,
		`[{"kind":"echo_json","verify":"json:t","when":[{"from":"json:e","absent":true}],"from":"json:c","answer":{"type":"application/json","body":"{\"a\":{\"b\":\"{value}\"},\"c\":{}}"}}]`,
		`[]`,
	} {
		if _, err := mustParse(t, hmac+good+`}`).Compile(); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, c := range []struct{ defect, handshake, field string }{
		{"unknown kind", `{"kind":"echo"}`, "[0].kind"},
		{"no kind", `{}`, "[0].kind"},
		{"method of no kind", `{"kind":"status","method":"PUT"}`, "[0].method"},
		{"method in lower case", `{"kind":"status","method":"head"}`, "[0].method"},
		{"echo without a value", `{"kind":"echo_query","method":"GET"}`, "[0].from"},
		{"echo of a cookie", `{"kind":"echo_query","from":"cookie:a"}`, "[0].from"},
		{"echo of the body's hash", `{"kind":"echo_query","from":"body_sha256_hex"}`, "[0].from"},
		{"body of a GET", `{"kind":"echo_json","method":"GET","from":"json:a","answer":{"body":"{value}"}}`, "[0].from"},
		{"condition in the body of a HEAD", `{"kind":"status","method":"HEAD","when":[{"from":"json:a","equals":"b"}]}`, "[0].when[0].from"},
		{"condition without a value", `{"kind":"status","method":"HEAD","when":[{"from":"query:a"}]}`, "[0].when[0]"},
		{"condition that is both", `{"kind":"status","method":"HEAD","when":[{"from":"query:a","equals":"b","absent":true}]}`, "[0].when[0]"},
		{"signed GET", `{"kind":"status","method":"GET","verify":"signature"}`, "[0].verify"},
		{"verify in another word", `{"kind":"echo_json","verify":"hmac","from":"json:a","answer":{"body":"{value}"}}`, "[0].verify"},
		{"POST answered unsigned", `{"kind":"status","when":[{"from":"json:a","equals":"b"}]}`, "[0].verify"},
		{"every delivery", `{"kind":"status","verify":"signature"}`, "[0].when"},
		{"every delivery with a challenge in it", `{"kind":"echo_json","from":"json:c","answer":{"body":"{value}"}}`, "[0].when"},
		{"the same, with a token", `{"kind":"echo_json","verify":"json:t","from":"json:c","answer":{"body":"{value}"}}`, "[0].when"},
		{"the same, signed", `{"kind":"keyed_answer","verify":"signature","from":"json:c","answer":{"body":"{mac_hex}"}}`, "[0].when"},
		{"every delivery with a URL in it", `{"kind":"outbound","verify":"signature","from":"json:a","pattern":".*"}`, "[0].when"},
		{"MAC of an unsigned body", `{"kind":"keyed_answer","from":"json:a","answer":{"body":"{mac_hex}"}}`, "[0].verify"},
		{"MAC in an echo", `{"kind":"echo_json","from":"json:a","answer":{"body":"{mac_hex}"}}`, "[0].answer.body"},
		{"unknown token", `{"kind":"echo_json","from":"json:a","answer":{"body":"{valu}"}}`, "[0].answer.body"},
		{"no token", `{"kind":"echo_json","from":"json:a","answer":{"body":"ok"}}`, "[0].answer.body"},
		{"no answer", `{"kind":"echo_json","from":"json:a"}`, "[0].answer"},
		{"broken JSON", `{"kind":"echo_json","from":"json:a","answer":{"type":"application/json","body":"{\"a\":\"{value}\""}}`, "[0].answer.body"},
		{"markup", `{"kind":"echo_json","from":"json:a","answer":{"type":"text/html","body":"{value}"}}`, "[0].answer.type"},
		{"redirect", `{"kind":"status","method":"HEAD","answer":{"status":302}}`, "[0].answer.status"},
		{"204 with a body", `{"kind":"status","method":"GET","answer":{"status":204,"body":"a"}}`, "[0].answer.body"},
		{"HEAD with a body", `{"kind":"status","method":"HEAD","answer":{"body":"a"}}`, "[0].answer"},
		{"another answer to an echo of the query", `{"kind":"echo_query","from":"query:a","answer":{"body":"<b>{value}"}}`, "[0].answer"},
		{"unsigned URL to call", `{"kind":"outbound","from":"json:a","pattern":".*"}`, "[0].verify"},
		{"any URL to call", `{"kind":"outbound","verify":"signature","from":"json:a"}`, "[0].pattern"},
		{"pattern that is none", `{"kind":"echo_query","from":"query:a","pattern":"["}`, "[0].pattern"},
		{"pattern of nothing", `{"kind":"status","method":"HEAD","pattern":"a"}`, "[0].pattern"},
	} {
		_, err := mustParse(t, hmac+"["+c.handshake+"]}").Compile()
		var wrong *RecipeError
		if !errors.As(err, &wrong) || wrong.Field != "handshake"+c.field {
			t.Errorf("%s: %v, want a fault at handshake%s", c.defect, err, c.field)
		}
	}
	for defect, text := range map[string]string{
		"MAC of a public key":      `{"algo":"ed25519","signature":{"name":"X-Sig"},"template":"{body}","handshake":[{"kind":"keyed_answer","method":"GET","from":"query:a","answer":{"body":"{mac_hex}"}}]}`,
		"MAC of a token":           `{"algo":"token","signature":{"name":"X-Sig"},"handshake":[{"kind":"keyed_answer","method":"GET","from":"query:a","answer":{"body":"{mac_hex}"}}]}`,
		"hand-over of public keys": `{"algo":"ed25519","signature":{"name":"X-Sig"},"template":"{body}","handshake":[{"kind":"enrol","from":"header:X-Secret"}]}`,
		// What is told from a delivery by the signature alone.
		"hand-over where the body holds the signature": `{"algo":"hmac-sha256","signature":{"in":"json","name":"sig"},"template":"{json:a}","handshake":[{"kind":"enrol","from":"json:secret"}]}`,
		// A template all of which an answer can sign.
		"MAC of a hash":           `{"algo":"hmac-sha256","signature":{"name":"X-Sig"},"template":"v1_{body_sha256_hex}","handshake":[{"kind":"keyed_answer","method":"GET","from":"query:a","answer":{"body":"{mac_hex}"}}]}`,
		"MAC of Mailgun's tokens": `{"preset":"mailgun","handshake":[{"kind":"keyed_answer","method":"GET","from":"query:a","answer":{"body":"{mac_hex}"}}]}`,
		"nine handshakes":         hmac + "[" + strings.Repeat(`{"kind":"status","method":"HEAD"},`, 8) + `{"kind":"status","method":"HEAD"}]}`,
	} {
		if _, err := mustParse(t, text).Compile(); err == nil {
			t.Errorf("%s was taken", defect)
		}
	}
}

// A list in a scheme takes the place of the preset's: encoding/json would leave
// fields of the old entries in the new ones.
func TestHandshakesOfAPresetAreReplacedWhole(t *testing.T) {
	r := mustParse(t, `{"preset":"discord","handshake":[{"kind":"status","method":"HEAD"}]}`)
	if len(r.Handshake) != 1 || r.Handshake[0].Verify != "" || r.Handshake[0].When != nil || r.Handshake[0].Answer != nil {
		t.Errorf("%+v", r.Handshake)
	}
	if kept := mustParse(t, `{"preset":"discord"}`); len(kept.Handshake) != 2 {
		t.Errorf("%+v", kept.Handshake)
	}
	r = mustParse(t, `{"preset":"discord","handshake":[]}`)
	if s, err := r.Compile(); err != nil || s.HasHandshake("status") {
		t.Errorf("the list that is empty leaves %+v, %v", r.Handshake, err)
	}
}

func TestRenameReachesHandshakes(t *testing.T) {
	s, _ := Preset("twitch-eventsub")
	r, err := s.Recipe().Rename(map[string]string{"Twitch-Eventsub-Message-Id": "My-Id"})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Handshake[0].When[0].From; got != "header:Twitch-Eventsub-Message-Type" {
		t.Errorf("condition at %s", got)
	}
	if r, err = s.Recipe().Rename(map[string]string{"Twitch-Eventsub-Message-Type": "My-Type"}); err != nil {
		t.Fatal(err)
	}
	if got := r.Handshake[0].When[0].From; got != "header:My-Type" {
		t.Errorf("condition at %s", got)
	}
	if got := s.Recipe().Handshake[0].When[0].From; got != "header:Twitch-Eventsub-Message-Type" {
		t.Errorf("the preset was changed: %s", got)
	}
}
