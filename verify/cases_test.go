package verify

import (
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

func TestCaseA1_NonASCIIBodyRefused(t *testing.T) {
	wantCase(t, "A1-literal", 202)
	wantCase(t, "A1-escaped", 202)
	wantCase(t, "A1-crossed", 401, ReasonSignatureMismatch)
}

func TestCaseA2_ParsedAndPrintedAgain(t *testing.T) {
	for _, name := range []string{"ampersand", "bignum", "spaced", "twice", "u2028"} {
		wantCase(t, "A2-"+name, 202)
	}
	wantCase(t, "A2-reprinted", 401, ReasonSignatureMismatch)
}

func TestCaseA3_TrailingLineEndIsBody(t *testing.T) {
	wantCase(t, "A3-crlf", 202)
	wantCase(t, "A3-crlf-lost", 401, ReasonSignatureMismatch)
	wantCase(t, "A3-lf", 202)
	wantCase(t, "A3-bare", 202)
}

func TestCaseA4_CompressedBodyIsSignedAsItTravels(t *testing.T) {
	wantCase(t, "A4-wire", 202)
	wantCase(t, "A4-plain", 401, ReasonSignatureMismatch)

	f := caseFixtures(t)["A4-wire"]
	v := f.verifier(t)
	var mib bytes.Buffer
	z := gzip.NewWriter(&mib)
	z.Write(make([]byte, 1<<20))
	z.Close()
	bomb := bytes.Repeat(mib.Bytes(), 50) // members one behind another are one gzip text
	r := Request{Method: "POST", Header: http.Header{"Content-Encoding": {"gzip"}}, Body: bomb}
	h, err := v.Sign(r, SignOptions{DeliveryID: "dlv_A4_bomb"})
	if err != nil {
		t.Fatal(err)
	}
	r.Header = join(r.Header, h)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = v.Verify(r)
	runtime.ReadMemStats(&after)
	if cost := after.TotalAlloc - before.TotalAlloc; err != nil || cost > 1<<20 {
		t.Errorf("a signed gzip of 50 MiB: %v, %d bytes", err, cost)
	}
}

func TestCaseA6_EmptyBody(t *testing.T) {
	wantCase(t, "A6-empty", 202)
	wantCase(t, "A6-empty-wrong", 401, ReasonSignatureMismatch)
	f := caseFixtures(t)["A6-empty"]
	r := f.request(t)
	r.Body = nil
	if _, err := f.verifier(t).Verify(r); err != nil {
		t.Errorf("nil body: %v", err)
	}
}

func TestCaseA7_BinaryAndMultipartBodies(t *testing.T) {
	wantCase(t, "A7-bytes", 202)
	wantCase(t, "A7-multipart", 202)
}

func TestCaseB1_HeaderThereTwice(t *testing.T) {
	for _, name := range []string{"twice-sig-bad-good", "twice-sig-good-bad", "twice-sig-same", "twice-timestamp",
		"twice-id", "twice-key-id", "underscore-id", "split-list"} {
		_, e := wantCase(t, "B1-"+name, 400, ReasonHeaderDuplicated)
		if e == nil || e.Field == "" {
			t.Errorf("%s: the header is not named", name)
			continue
		}
		f := caseFixtures(t)["B1-"+name]
		causes := f.verifier(t).Explain(f.request(t)).Causes
		if len(causes) == 0 || causes[0].Code != "header_duplicated" || !strings.Contains(causes[0].Text, e.Field) {
			t.Errorf("%s: explained by %+v, which does not name %s", name, causes, e.Field)
		}
	}
	// The underscore spelling alone is nothing.
	f := caseFixtures(t)["A1-literal"]
	r := f.request(t)
	r.Header = r.Header.Clone()
	r.Header["X_Webhook_Delivery_Id"] = r.Header["X-Webhook-Delivery-Id"]
	delete(r.Header, "X-Webhook-Delivery-Id")
	_, err := f.verifier(t).Verify(r)
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonHeaderMissing {
		t.Errorf("underscores alone: %v", err)
	}
}

func TestCaseB2_SeveralSignaturesOneRead(t *testing.T) {
	wantCase(t, "B2-stripe-second", 202)
	wantCase(t, "B2-standard-second", 202)
	wantCase(t, "B2-stripe-only-v0", 401, ReasonSignatureMalformed)
	wantCase(t, "B2-stripe-none-good", 401, ReasonSignatureMismatch)
	wantCase(t, "B2-standard-wrong-label", 401, ReasonSignatureMalformed)

	f := caseFixtures(t)["B2-stripe-second"]
	v, r := f.verifier(t), f.request(t)
	good := r.Header.Get("Stripe-Signature")
	bad := ",v1=" + strings.Repeat("1", 64)
	for _, c := range []struct {
		defect, value string
		want          int
	}{
		{"30 more candidates, 32 in all", good + strings.Repeat(bad, 30), 202},
		{"31 more candidates, 33 in all", good + strings.Repeat(bad, 31), 401},
		{"9000 bytes of unknown labels", good + strings.Repeat(",v7=0123456789", 643), 401},
		{"blanks around items", strings.ReplaceAll(good, ",", " , \t"), 202},
		{"an item without a label", good + ",abc", 401},
		{"an item with an empty label", good + ",=abc", 401},
		{"the timestamp twice", good + ",t=1760000000", 400},
		{"a candidate that does not decode beside a good one", good + ",v1=zz", 202},
	} {
		r.Header = http.Header{"Stripe-Signature": {c.value}}
		if _, err := v.Verify(r); status(err) != c.want {
			t.Errorf("%s: %v, want %d", c.defect, err, c.want)
		}
	}
	// A comma list on several lines is one list, in any order.
	t1, rest, _ := strings.Cut(good, ",")
	for _, lines := range [][]string{{t1, rest}, {rest, t1}} {
		r.Header = http.Header{"Stripe-Signature": lines}
		if _, err := v.Verify(r); err != nil {
			t.Errorf("list on two lines: %v", err)
		}
	}
}

func TestCaseB3_HeaderNameSpelling(t *testing.T) {
	wantCase(t, "B3-case", 202)
	wantCase(t, "B3-map-key", 202)
	wantCase(t, "B3-map-two-keys", 400, ReasonHeaderDuplicated)
}

func TestCaseB4_OneSpellingOfASignature(t *testing.T) {
	wantCase(t, "B4-upper", 401, ReasonSignatureMalformed)
	wantCase(t, "B4-mixed", 401, ReasonSignatureMalformed)

	// base64: 32 bytes end in a character with two free bits, which only one
	// spelling leaves zero.
	f := caseFixtures(t)["B5-standard-decoded"]
	v, r := f.verifier(t), f.request(t)
	//lint:ignore SA1008 the fixture's map is not canonical, as a hand-built one may be
	good := r.Header["webhook-signature"][0]
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := strings.IndexByte(alphabet, good[len(good)-2])
	for defect, value := range map[string]string{
		"free bits set":       good[:len(good)-2] + alphabet[last+1:last+2] + "=",
		"a line feed inside":  good[:9] + "\n" + good[9:],
		"a carriage return":   good + "\r",
		"padding left out":    strings.TrimRight(good, "="),
		"padding twice":       good + "=",
		"url-safe characters": strings.NewReplacer("+", "-", "/", "_").Replace(good),
	} {
		if value == good {
			continue
		}
		r.Header = r.Header.Clone()
		r.Header["webhook-signature"] = []string{value}
		_, err := v.Verify(r)
		var e *Error
		if !errors.As(err, &e) || e.Reason != ReasonSignatureMalformed {
			t.Errorf("%s: %v", defect, err)
		}
	}
}

func TestCaseB5_WhsecTextOrBase64(t *testing.T) {
	text := publishedSecret(t)
	standard, _ := Preset("standard-webhooks")
	stripe, _ := Preset("stripe")
	asText := standard.SecretSpec()
	asText.Encoding = "utf8"
	for _, c := range []struct {
		fixture string
		spec    SecretSpec
		want    int
	}{
		{"B5-standard-decoded", standard.SecretSpec(), 202},
		{"B5-standard-decoded", SecretSpec{Encoding: "whsec"}, 202},
		{"B5-standard-text", standard.SecretSpec(), 401},
		{"B5-standard-utf8", asText, 202},
		{"B5-stripe-text", stripe.SecretSpec(), 202},
		{"B5-stripe-decoded", stripe.SecretSpec(), 401},
	} {
		f := caseFixtures(t)[c.fixture]
		v := f.verifier(t)
		k, err := NewKey("k1", []byte(text), c.spec)
		if err != nil {
			t.Fatal(err)
		}
		v.Keys, _ = NewKeySet(k)
		if _, err := v.Verify(f.request(t)); status(err) != c.want || c.want != f.Expect {
			t.Errorf("%s with %q: %v, want %d", c.fixture, c.spec.Encoding, err, c.want)
		}
	}
	for _, bad := range []string{"v1," + text, "whsec_", "whsec_AAEC!", "whsec_AAE"} {
		for _, spec := range []SecretSpec{standard.SecretSpec(), {Encoding: "whsec"}} {
			if _, err := NewKey("k1", []byte(bad), spec); !errors.Is(err, ErrKeyUnusable) {
				t.Errorf("%s with %q: %v", bad, spec.Encoding, err)
			}
		}
	}
	if _, err := NewKey("k1", []byte(strings.TrimPrefix(text, "whsec_")), SecretSpec{Encoding: "whsec"}); err == nil {
		t.Error("whsec without its prefix was taken")
	}
}

func TestCaseB6_MalformedSignatureBreaksReceiver(t *testing.T) {
	wantCase(t, "B6-empty", 401, ReasonSignatureMissing)
	for _, name := range []string{"abc", "63", "65", "z", "e-acute", "62-and-blanks"} {
		_, e := wantCase(t, "B6-"+name, 401, ReasonSignatureMalformed)
		value := caseFixtures(t)["B6-"+name].Headers["X-Webhook-Signature"][0]
		if e != nil && strings.Contains(e.Error(), value) {
			t.Errorf("%s: the signature is in the error: %v", name, e)
		}
	}
	f := caseFixtures(t)["B6-abc"]
	r := f.request(t)
	r.Header = r.Header.Clone()
	r.Header["X-Webhook-Signature"] = []string{strings.Repeat("a", 1<<20)}
	if err := f.verifier(t).CheckHeader(r); status(err) != 401 {
		t.Errorf("1 MiB: %v", err)
	}
}

func TestCaseB7_NoSignatureOrNoSecretAccepted(t *testing.T) {
	wantCase(t, "B7-none", 401, ReasonSignatureMissing)
	wantCase(t, "B7-empty-key", 401)
	for _, text := range []string{"", "\n", "\r\n", " "} {
		if _, err := NewKey("k1", TrimSecretFile([]byte(text)), SecretSpec{}); !errors.Is(err, ErrKeyUnusable) || !strings.Contains(err.Error(), `"k1"`) {
			t.Errorf("secret %q: %v", text, err)
		}
	}
	if _, err := NewKeySet(Key{ID: "k1"}); err == nil {
		t.Error("a key without a secret was taken")
	}
	f := caseFixtures(t)["A1-literal"]
	r := f.request(t)
	for name, v := range map[string]*Verifier{
		"zero":      {},
		"no keys":   {Scheme: f.verifier(t).Scheme, Now: f.verifier(t).Now},
		"no scheme": {Keys: f.verifier(t).Keys, Now: f.verifier(t).Now},
	} {
		if _, err := v.Verify(r); !errors.Is(err, ErrSignature) {
			t.Errorf("%s verifier: %v", name, err)
		}
		if v.Check() == nil {
			t.Errorf("%s verifier: Check finds nothing", name)
		}
	}
	if err := (&Verifier{}).CheckHeader(r); !errors.Is(err, ErrSignature) {
		t.Errorf("zero verifier, headers: %v", err)
	}
}

func TestCaseB8_NewlineInSecret(t *testing.T) {
	const k1 = "hooklatch-test-secret-0123456789abcdef"
	f := caseFixtures(t)["B8-plain"]
	for _, file := range []string{k1, k1 + "\n", k1 + "\r\n"} {
		k, err := NewKey("k1", TrimSecretFile([]byte(file)), f.verifier(t).Scheme.SecretSpec())
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		v := f.verifier(t)
		v.Keys, _ = NewKeySet(k)
		if _, err := v.Verify(f.request(t)); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
	for _, file := range []string{k1 + "\n\n", k1 + "\r", k1 + " \n", " " + k1, "\t" + k1, k1 + "\u00a0", "\ufeff" + k1, k1 + "\x00"} {
		_, err := NewKey("k1", TrimSecretFile([]byte(file)), SecretSpec{})
		if !errors.Is(err, ErrKeyUnusable) || strings.Contains(err.Error(), k1) {
			t.Errorf("%q: %v", file, err)
		}
	}
	wantCase(t, "B8-signed-with-newline", 401, ReasonSignatureMismatch)
}

func TestCaseB9_RotationDropsLiveTraffic(t *testing.T) {
	env, _ := wantCase(t, "B9-k1-last-second", 202)
	if env.KeyID != "k1" || !env.Retiring {
		t.Errorf("last second of k1: %+v", env)
	}
	for name, want := range map[string]struct {
		reason Reason
		key    string
		valid  bool
	}{
		"k1-at-end": {ReasonKeyExpired, "k1", true},
		"k1-late":   {ReasonKeyExpired, "k1", true},
		"k2-early":  {ReasonKeyNotYetValid, "k2", true},
		"swapped":   {ReasonSignatureMismatch, "k1", false},
		"unknown":   {ReasonKeyUnknown, "", false},
	} {
		_, e := wantCase(t, "B9-"+name, 401, want.reason)
		if e == nil {
			continue
		}
		if e.MACValid != want.valid || want.key != "" && e.KeyID != want.key {
			t.Errorf("%s: %+v", name, e)
		}
		if e.Reason.Code() != "signature_invalid" {
			t.Errorf("%s: the sender would be told %s", name, e.Reason.Code())
		}
	}
	env, _ = wantCase(t, "B9-k2-retry", 202)
	if env.KeyID != "k2" || env.Retiring {
		t.Errorf("retry under k2: %+v", env)
	}
	wantCase(t, "B9-no-key-id", 400, ReasonHeaderMissing)
}

func TestCaseB10_KeyChosenByTheUnverified(t *testing.T) {
	wantCase(t, "B10-foreign-key", 401, ReasonSignatureMismatch)
	wantCase(t, "B10-own-key", 202)
	if _, err := (Recipe{Algo: "hmac-sha256", Template: "{body}", Signature: SignatureRecipe{Name: "X-Sig"},
		KeyID: &From{Sources{"json:tenant"}}}).Compile(); err == nil {
		t.Error("a recipe may choose the key by the body")
	}
}

func TestCaseC1_OneSidedWindowGenerousParser(t *testing.T) {
	wantCase(t, "C1-minus-300", 202)
	wantCase(t, "C1-plus-300", 202)
	for _, name := range []string{"minus-301", "plus-301", "zero", "digits-12"} {
		_, e := wantCase(t, "C1-"+name, 401, ReasonTimestampOutOfWindow)
		if e != nil && (e.Distance == 0 || e.Distance > 0 != strings.Contains("plus-301 digits-12", name)) {
			t.Errorf("%s: distance %s", name, e.Distance)
		}
	}
	for _, name := range []string{"word", "exponent", "plus-sign", "leading-zeros", "fraction", "negative", "nan",
		"digits-20", "underscores", "fullwidth", "space"} {
		wantCase(t, "C1-"+name, 400, ReasonTimestampMalformed)
	}
	wantCase(t, "C1-nothing", 400, ReasonHeaderMissing)
}

func TestCaseC2_Milliseconds(t *testing.T) {
	wantCase(t, "C2-milliseconds", 400, ReasonTimestampMalformed)
}

func TestCaseC3_EventTimeTakenForSendingTime(t *testing.T) {
	wantCase(t, "C3-fresh", 202)
	wantCase(t, "C3-stale", 401, ReasonTimestampOutOfWindow)
}

func TestCaseC5_TimestampOrIDOutsideTheMAC(t *testing.T) {
	wantCase(t, "C5-captured", 202)
	wantCase(t, "C5-new-timestamp", 401, ReasonSignatureMismatch)
	wantCase(t, "C5-new-id", 401, ReasonSignatureMismatch)
	wantCase(t, "C5-no-timestamp", 400, ReasonHeaderMissing)
	wantCase(t, "C5-no-id", 400, ReasonHeaderMissing)
	wantCase(t, "C5-spliced", 400, ReasonDeliveryIDInvalid)
}

// Every other fixture, as far as its outcome is decided here: a conflict is one
// only after the signature was found right.
func TestCaseFixtures(t *testing.T) {
	n := 0
	for name, f := range caseFixtures(t) {
		want := f.Expect
		if want == http.StatusConflict || want == http.StatusAccepted {
			want = 202
		}
		n++
		if _, err := f.verifier(t).Verify(f.request(t)); status(err) != want {
			t.Errorf("%s: %v, want %d", name, err, want)
		}
	}
	if n < 125 {
		t.Errorf("only %d fixtures", n)
	}
}

// The cap is on the body as received; its limit belongs to it.
func TestBodyOfExactlyTheCap(t *testing.T) {
	f := caseFixtures(t)["A1-literal"]
	v := f.verifier(t)
	for size, want := range map[int]int{262144: 202, 262145: 413} {
		r := Request{Method: "POST", Body: bytes.Repeat([]byte("x"), size)}
		id, stamp := fmt.Sprintf("dlv_%d", size), "1760000000"
		mac := hmac.New(sha256.New, []byte("hooklatch-test-secret-0123456789abcdef"))
		fmt.Fprintf(mac, "v1.%s.%s.%s", stamp, id, r.Body)
		r.Header = http.Header{"X-Webhook-Key-Id": {"k1"}, "X-Webhook-Timestamp": {stamp},
			"X-Webhook-Delivery-Id": {id}, "X-Webhook-Signature": {hex.EncodeToString(mac.Sum(nil))}}
		if _, err := v.Verify(r); status(err) != want {
			t.Errorf("%d bytes: %v, want %d", size, err, want)
		}
	}
}
