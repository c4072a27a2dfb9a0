package verify_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// What could never verify is refused before the first request.
func ExampleNewKey() {
	scheme, _ := verify.Preset("standard-webhooks")
	_, err := verify.NewKey("k1", []byte("whsec_!!!!"), scheme.SecretSpec())
	fmt.Println(errors.Is(err, verify.ErrKeyUnusable), err)
	// A file with a newline at its end, as editors leave it.
	key, err := verify.NewKey("k1", verify.TrimSecretFile([]byte("a secret in a text file, 32 bytes\n")), verify.SecretSpec{})
	fmt.Println(key.ID, key.Secret.IsZero(), err)
	// Output:
	// true verify: key "k1": key unusable: the secret is not base64 (standard alphabet, padded)
	// k1 false <nil>
}

func ExampleTrimSecretFile() {
	for _, text := range []string{"secret\n", "secret\r\n", "secret\n\n", "secret "} {
		fmt.Printf("%q\n", verify.TrimSecretFile([]byte(text)))
	}
	// Output:
	// "secret"
	// "secret"
	// "secret\n"
	// "secret "
}

// Two keys during a rotation: both are accepted for a month.
func ExampleNewKeySet() {
	first, _ := verify.NewKey("k1", []byte("0123456789abcdef0123456789abcdef"), verify.SecretSpec{})
	second, _ := verify.NewKey("k2", []byte("fedcba9876543210fedcba9876543210"), verify.SecretSpec{})
	first.NotAfter = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	second.NotBefore = time.Date(2029, 12, 1, 0, 0, 0, 0, time.UTC)
	keys, err := verify.NewKeySet(first, second)
	fmt.Println(err, first.Secret.Equal(second.Secret))
	for _, at := range []time.Time{second.NotBefore, first.NotAfter} {
		for _, key := range keys.Keys() {
			fmt.Println(at.Format(time.DateOnly), key.ID, key.Active(at))
		}
	}
	// Output:
	// <nil> false
	// 2029-12-01 k1 true
	// 2029-12-01 k2 true
	// 2030-01-01 k1 false
	// 2030-01-01 k2 true
}

// Check finds what no request could pass.
func ExampleVerifier_Check() {
	scheme, _ := verify.Preset("square")
	key, _ := verify.NewKey("k1", []byte("a signature key of square"), scheme.SecretSpec())
	keys, _ := verify.NewKeySet(key)
	v := &verify.Verifier{Scheme: scheme, Keys: keys}
	fmt.Println(v.Check())
	v.URL = "https://hooks.example.com/in/square"
	fmt.Println(v.Check(), scheme.NeedsURL())
	// Output:
	// verify: square signs the public URL, and none is given
	// <nil> true
}

// A request that is refused by its headers costs no body.
func ExampleVerifier_CheckHeader() {
	scheme, _ := verify.Preset("github")
	key, _ := verify.NewKey("k1", []byte("It's a Secret to Everybody"), scheme.SecretSpec())
	keys, _ := verify.NewKeySet(key)
	v := &verify.Verifier{Scheme: scheme, Keys: keys}
	err := v.CheckHeader(verify.Request{Method: "POST", Header: http.Header{
		"X-Github-Delivery": {"72d3162e"}, "X-Hub-Signature-256": {"sha256=757107EA"},
	}})
	var refused *verify.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Reason, refused.Field, refused.Reason.Code(), refused.Reason.Status())
	}
	// Output:
	// signature_malformed X-Hub-Signature-256 signature_invalid 401
}

// For metrics that want every label at once.
func ExampleReasons() {
	codes := map[string]int{}
	for _, reason := range verify.Reasons() {
		codes[reason.Code()]++
	}
	fmt.Println(codes["signature_invalid"], "reasons are told as one code")
	// Output:
	// 13 reasons are told as one code
}

func ExamplePreset() {
	for _, name := range []string{"stripe", "strype"} {
		scheme, ok := verify.Preset(name)
		fmt.Println(name, ok, scheme.IsZero())
	}
	stripe, _ := verify.Preset("stripe")
	fmt.Println(stripe.Headers(), stripe.SignatureAt(), stripe.UsesKeyID(), stripe.HasTimestamp(), stripe.Tolerance(), stripe.BodySigned())
	// Output:
	// stripe true false
	// strype false true
	// [Stripe-Signature] [header:Stripe-Signature] false true 5m0s true
}

func ExamplePresets() {
	fmt.Println(verify.Presets()[:3], slices.Contains(verify.Presets(), "zhisou-v1"))
	// Output:
	// [adyen adyen-platform anthropic] true
}

func ExampleHandshakeKinds() {
	zoom, _ := verify.Preset("zoom")
	for _, kind := range verify.HandshakeKinds() {
		if zoom.HasHandshake(kind) {
			fmt.Println(kind, zoom.HandshakeNeedsToken())
		}
	}
	// Output:
	// keyed_answer false
}

// Read the body of a request that CheckHeader refuses only where it may be a
// handshake.
func ExampleVerifier_MayHandshake() {
	asana, _ := verify.Preset("asana")
	v := &verify.Verifier{Scheme: asana}
	hello := verify.Request{Method: "POST", Header: http.Header{"X-Hook-Secret": {"b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81"}}}
	fmt.Println(v.MayHandshake(hello), v.MayHandshake(verify.Request{Method: "POST"}))
	// Output:
	// true false
}

// Asana hands over the secret that it will sign with, before it signs anything.
func ExampleAnswer_Offer() {
	asana, _ := verify.Preset("asana")
	v := &verify.Verifier{Scheme: asana}
	v.Handshakes.EnrolUntil = time.Now().Add(time.Minute)
	answer, is, err := v.Handshake(verify.Request{Method: "POST", Header: http.Header{"X-Hook-Secret": {"b537207f20cbfa02357cf448134da559"}}})
	fmt.Println(is, err, answer.Status, answer.Kind, len(answer.Offer()))
	// Output:
	// true <nil> 200 enrol 32
}

// Nonsense is refused when a recipe is compiled, with the field at fault.
func ExampleRecipe_Compile() {
	_, err := verify.Recipe{
		Algo: "hmac-sha256", Template: "{secret}{body}", Signature: verify.SignatureRecipe{Name: "X-Signature"},
	}.Compile()
	var wrong *verify.RecipeError
	fmt.Println(errors.As(err, &wrong), err)
	touching, err := verify.Recipe{
		Algo: "hmac-sha256", Template: "{header:X-Time}{body}", Signature: verify.SignatureRecipe{Name: "X-Signature"},
	}.Compile()
	fmt.Println(touching.Warnings(), err)
	// Output:
	// true verify: recipe: template: {secret} goes with hash-* and with nothing else
	// [template: {header:X-Time} and {body} touch, so two requests can have one signed text] <nil>
}

func ExampleParseField() {
	_, err := verify.ParseField("/a/~2")
	fmt.Println(err)
	field, err := verify.ParseField("header:X-Event-Id")
	fmt.Println(field, field.IsZero(), err)
	// Output:
	// verify: parse field: JSON pointer "/a/~2" holds a ~ that is neither ~0 nor ~1
	// header:X-Event-Id false <nil>
}

// Several values cost one scan of the body, and have their types.
func ExampleReadFields() {
	revision, _ := verify.ParseField("/revision")
	deleted, _ := verify.ParseField("/deleted")
	kind, _ := verify.ParseField("/type")
	for _, v := range verify.ReadFields(verify.Request{Body: []byte(`{"type":"report","revision":7,"deleted":false}`)}, revision, deleted, kind) {
		fmt.Println(v.Text, v.Kind == verify.KindNumber, v.Kind == verify.KindBool, v.Err)
	}
	// Output:
	// 7 true false <nil>
	// false false true <nil>
	// report false false <nil>
}

// A retry whose counter has moved on is the delivery that was there before.
func ExampleParseIgnored() {
	ignored, _ := verify.ParseIgnored("/attempt")
	first, _ := ignored.CompareHash([]byte(`{"id":"e1","attempt":1,"v":7}`))
	retry, _ := ignored.CompareHash([]byte(`{"id":"e1","attempt":2,"v":7}`))
	other, _ := ignored.CompareHash([]byte(`{"id":"e1","attempt":2,"v":8}`))
	fmt.Println(first == retry, first == other)
	_, ok := ignored.CompareHash([]byte("id=e1&attempt=1"))
	fmt.Println(ok)
	// Output:
	// true false
	// false
}
