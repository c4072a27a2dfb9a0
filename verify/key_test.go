package verify

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var t0 = time.Unix(1760000000, 0)

func testKey(t testing.TB, id string, before, after int64) Key {
	t.Helper()
	k, err := NewKey(id, []byte("0123456789abcdef0123456789abcdef-"+id), SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if before != 0 {
		k.NotBefore = t0.Add(time.Duration(before) * time.Second)
	}
	if after != 0 {
		k.NotAfter = t0.Add(time.Duration(after) * time.Second)
	}
	return k
}

func testSet(t testing.TB, keys ...Key) KeySet {
	t.Helper()
	set, err := NewKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestKeySetRefuses(t *testing.T) {
	k := testKey(t, "k1", 0, 0)
	for defect, keys := range map[string][]Key{
		"one id twice":    {k, testKey(t, "k1", 0, 0)},
		"no secret":       {{ID: "k1"}},
		"an empty span":   {testKey(t, "k1", 10, 10)},
		"a span reverse":  {testKey(t, "k1", 10, 5)},
		"a line in an id": {{ID: "k1\r\nX: y", Secret: k.Secret}},
	} {
		if _, err := NewKeySet(keys...); err == nil {
			t.Errorf("%s was taken", defect)
		}
	}
}

// signed makes a request of a scheme without key id, signed with k at t0.
func signed(t testing.TB, preset string, k Key) (Request, Scheme) {
	t.Helper()
	s, _ := Preset(preset)
	v := Verifier{Scheme: s}
	k.NotBefore, k.NotAfter = time.Time{}, time.Time{}
	r := Request{Method: "POST", Body: []byte(`{"id":"evt_1"}`)}
	h, err := v.Sign(r, SignOptions{Key: k, DeliveryID: "dlv_1", Time: t0})
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	return r, s
}

func reasonOf(err error) Reason {
	if e, ok := err.(*Error); ok {
		return e.Reason
	}
	return ""
}

func TestKeysWithoutKeyID(t *testing.T) {
	active, expired, coming := testKey(t, "active", 0, 100), testKey(t, "expired", 0, -1), testKey(t, "coming", 5, 0)
	newer := testKey(t, "newer", -10, 0)
	for _, c := range []struct {
		name     string
		signer   Key
		keys     []Key
		reason   Reason
		keyID    string
		retiring bool
	}{
		{"the active one", active, []Key{expired, active, coming}, "", "active", false},
		{"an older one beside a newer", active, []Key{active, newer}, "", "active", true},
		{"the newer one", newer, []Key{active, newer}, "", "newer", false},
		{"an expired one", expired, []Key{expired, active, coming}, ReasonKeyExpired, "expired", false},
		{"one to come", coming, []Key{expired, active, coming}, ReasonKeyNotYetValid, "coming", false},
		{"none of them", testKey(t, "other", 0, 0), []Key{expired, active, coming}, ReasonSignatureMismatch, "", false},
	} {
		r, s := signed(t, "github", c.signer)
		v := Verifier{Scheme: s, Keys: testSet(t, c.keys...), Now: func() time.Time { return t0 }}
		env, err := v.Verify(r)
		if reasonOf(err) != c.reason {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err == nil && (env.KeyID != c.keyID || env.Retiring != c.retiring) {
			t.Errorf("%s: %+v", c.name, env)
		}
		if e, ok := err.(*Error); ok && (e.KeyID != c.keyID || e.MACValid != (c.keyID != "")) {
			t.Errorf("%s: %+v", c.name, e)
		}
	}
}

// The outcome does not hang on the order in which keys are written.
func TestOrderOfKeysDoesNotMatter(t *testing.T) {
	keys := []Key{testKey(t, "a", 0, 0), testKey(t, "b", -50, 0), testKey(t, "c", -60, 50), testKey(t, "d", 0, -5)}
	for _, k := range keys {
		r, s := signed(t, "github", k)
		var first string
		for range 20 {
			rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			v := Verifier{Scheme: s, Keys: testSet(t, keys...), Now: func() time.Time { return t0 }}
			env, err := v.Verify(r)
			got := fmt.Sprint(env, err)
			if first == "" {
				first = got
			}
			if got != first {
				t.Fatalf("%s: %s and %s", k.ID, first, got)
			}
		}
	}
}

func TestCheckFindsWhatCannotWork(t *testing.T) {
	github, _ := Preset("github")
	zhisou, _ := Preset("zhisou-v1")
	var five []Key
	for i := range 5 {
		five = append(five, testKey(t, fmt.Sprintf("k%d", i), int64(i)-10, 0))
	}
	nameless := append([]Key(nil), five...)
	for i := range nameless {
		nameless[i].ID = ""
	}
	rotated := append([]Key(nil), five...)
	rotated[0].NotAfter = five[4].NotBefore
	short, err := NewKey("short", []byte("short"), SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	square := compile(t, `{"algo":"hmac-sha256","signature":{"name":"X-Sig"},"template":"{url}{body}"}`)
	param := compile(t, `{"algo":"hmac-sha256","signature":{"name":"X-Sig"},"template":"{param:p}{body}","params":["p"]}`)
	discord := compile(t, `{"algo":"ed25519","signature":{"name":"X-Sig"},"template":"{body}"}`)
	one := testSet(t, five[0])
	for _, c := range []struct {
		defect string
		v      Verifier
		ok     bool
	}{
		{"five keys active without key id", Verifier{Scheme: github, Keys: testSet(t, five...)}, false},
		{"five keys, four at one time", Verifier{Scheme: github, Keys: testSet(t, rotated...)}, true},
		{"five keys without ids beside key ids", Verifier{Scheme: zhisou, Keys: testSet(t, nameless...)}, false},
		{"five keys active with key id", Verifier{Scheme: zhisou, Keys: testSet(t, five...)}, true},
		{"a short secret", Verifier{Scheme: zhisou, Keys: testSet(t, short)}, false},
		{"a short secret elsewhere", Verifier{Scheme: github, Keys: testSet(t, short)}, true},
		{"a text secret for a public-key scheme", Verifier{Scheme: discord, Keys: one}, false},
		{"user and password without a colon", Verifier{Scheme: compile(t, `{"algo":"basic"}`), Keys: one}, false},
		{"negative tolerance", Verifier{Scheme: github, Keys: one, Tolerance: -1}, false},
		{"negative cap", Verifier{Scheme: github, Keys: one, MaxBody: -1}, false},
		{"no public URL", Verifier{Scheme: square, Keys: one}, false},
		{"a public URL", Verifier{Scheme: square, Keys: one, URL: "https://x/y"}, true},
		{"no parameter", Verifier{Scheme: param, Keys: one}, false},
		{"a parameter", Verifier{Scheme: param, Keys: one, Params: map[string]string{"p": "1"}}, true},
	} {
		if err := c.v.Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.defect, err)
		}
	}
}

// A key that was made for another scheme does not slip under the length that this
// one demands.
func TestShortKeyNeverVerifies(t *testing.T) {
	short, _ := NewKey("k1", []byte("short"), SecretSpec{})
	loose := compile(t, `{"preset":"zhisou-v1","secret_spec":{"min_len":1}}`)
	r := Request{Method: "POST"}
	h, err := (&Verifier{Scheme: loose}).Sign(r, SignOptions{Key: short, DeliveryID: "d", Time: t0})
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	strict, _ := Preset("zhisou-v1")
	v := Verifier{Scheme: strict, Keys: testSet(t, short), Now: func() time.Time { return t0 }}
	if _, err := v.Verify(r); reasonOf(err) != ReasonKeyUnusable {
		t.Errorf("a short key: %v", err)
	}
}

func TestKeysWithoutIDAnswerToEveryKeyID(t *testing.T) {
	k, other := testKey(t, "", 0, 0), testKey(t, "k2", 0, 0)
	s, _ := Preset("zhisou-v1")
	named := k
	named.ID = "k9"
	r := Request{Method: "POST"}
	h, err := (&Verifier{Scheme: s}).Sign(r, SignOptions{Key: named, DeliveryID: "d", Time: t0})
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	v := Verifier{Scheme: s, Keys: testSet(t, other, k), Now: func() time.Time { return t0 }}
	if _, err := v.Verify(r); err != nil {
		t.Error(err)
	}
	// A key of that very id goes first, and is the only one.
	r.Header["X-Webhook-Key-Id"] = []string{"k2"}
	if _, err := v.Verify(r); reasonOf(err) != ReasonSignatureMismatch {
		t.Errorf("a named key: %v", err)
	}
}

// Keys that are not valid yet do not push out the one that is.
func TestActiveKeyWithoutIDGoesFirst(t *testing.T) {
	s, _ := Preset("zhisou-v1")
	now := testKey(t, "", 0, 0)
	keys := []Key{now}
	for i := range maxActive {
		k := now
		k.NotBefore = t0.Add(time.Duration(i+1) * time.Hour)
		keys = append(keys, k)
	}
	sender := now
	sender.ID = "k9"
	r := Request{Method: "POST"}
	var err error
	if r.Header, err = (&Verifier{Scheme: s}).Sign(r, SignOptions{Key: sender, DeliveryID: "d", Time: t0}); err != nil {
		t.Fatal(err)
	}
	v := Verifier{Scheme: s, Keys: testSet(t, keys...), Now: at(t0)}
	if _, err := v.Verify(r); err != nil {
		t.Error(err)
	}
}

// What stands in the wrong header is no key id to be logged.
func TestSecretInTheKeyIDHeaderIsNotReported(t *testing.T) {
	s, _ := Preset("zhisou-v1")
	k := testKey(t, "k1", 0, 0)
	r := Request{Method: "POST"}
	var err error
	if r.Header, err = (&Verifier{Scheme: s}).Sign(r, SignOptions{Key: k, DeliveryID: "d", Time: t0}); err != nil {
		t.Fatal(err)
	}
	v := Verifier{Scheme: s, Keys: testSet(t, k), Now: at(t0)}
	for id, reported := range map[string]bool{"k2": true, strings.Repeat("s", 32): false, "k2\nforged=1": false} {
		r.Header["X-Webhook-Key-Id"] = []string{id}
		_, err := v.Verify(r)
		var refused *Error
		if !errors.As(err, &refused) || refused.Reason != ReasonKeyUnknown || (refused.KeyID == id) != reported || strings.Contains(err.Error(), id) != reported {
			t.Errorf("%q: %v", id, err)
		}
		if e := v.Explain(r); (e.KeyID == id) != reported || !reported && strings.Contains(fmt.Sprint(e), id) {
			t.Errorf("%q: explained by %+v", id, e)
		}
	}
}

// MACValid is said of an agreeing signature only.
func TestMACValidOfANamedKey(t *testing.T) {
	s, _ := Preset("zhisou-v1")
	k := testKey(t, "k1", 0, 0)
	r := Request{Method: "POST", Body: []byte("x")}
	var err error
	if r.Header, err = (&Verifier{Scheme: s}).Sign(r, SignOptions{Key: k, DeliveryID: "d", Time: t0}); err != nil {
		t.Fatal(err)
	}
	k.NotAfter = t0
	v := Verifier{Scheme: s, Keys: testSet(t, k), Now: at(t0)}
	for body, valid := range map[string]bool{"x": true, "y": false} {
		r.Body = []byte(body)
		_, err := v.Verify(r)
		var refused *Error
		if !errors.As(err, &refused) || refused.Reason != ReasonKeyExpired || refused.MACValid != valid {
			t.Errorf("body %s: %+v", body, refused)
		}
	}
}
