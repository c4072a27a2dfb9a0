package verify_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// Check what a sender signed with a native scheme.
func Example() {
	scheme, _ := verify.Preset("zhisou-v1")
	key, err := verify.NewKey("k1", []byte("0123456789abcdef0123456789abcdef"), scheme.SecretSpec())
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		fmt.Println(err)
		return
	}
	v := &verify.Verifier{Scheme: scheme, Keys: keys, Now: func() time.Time { return time.Unix(1700000010, 0) }}
	request := verify.Request{
		Method: "POST",
		Header: http.Header{
			"X-Webhook-Key-Id":      {"k1"},
			"X-Webhook-Timestamp":   {"1700000000"},
			"X-Webhook-Delivery-Id": {"dlv_01HZX3-abc"},
			"X-Webhook-Signature":   {"c6fe2c3ea16769bd91941c3cd9747bbfb2b9cc148b953f6450e3d3aa64e3e56a"},
		},
	}
	envelope, err := v.Verify(request)
	fmt.Println(envelope.DeliveryID, envelope.KeyID, envelope.Distance, err)

	request.Body = []byte("other bytes")
	_, err = v.Verify(request)
	fmt.Println(err)
	// Output:
	// dlv_01HZX3-abc k1 -10s <nil>
	// verify zhisou-v1: signature_mismatch, key "k1"
}

// What to log and what to answer are two things.
func ExampleError() {
	scheme, _ := verify.Preset("github")
	v := &verify.Verifier{Scheme: scheme}
	_, err := v.Verify(verify.Request{Header: http.Header{"X-Github-Delivery": {"72d3162e"}}})

	var refusal *verify.Error
	if errors.As(err, &refusal) {
		fmt.Println("log:", refusal.Reason)
		fmt.Println("answer:", refusal.Reason.Code(), errors.Is(err, verify.ErrSignature))
	}
	// Output:
	// log: signature_missing
	// answer: signature_invalid true
}

// A handler of one's own: what does not verify never reaches the business. It
// answers before it has kept anything; package proxy commits first.
func ExampleVerifier_Verify() {
	scheme, _ := verify.Preset("zhisou-v1")
	key, _ := verify.NewKey("k1", []byte("0123456789abcdef0123456789abcdef"), scheme.SecretSpec())
	keys, _ := verify.NewKeySet(key)
	v := &verify.Verifier{Scheme: scheme, Keys: keys}

	const maxBody = 64 << 10
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			status := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				status = verify.ReasonBodyTooLarge.Status()
			}
			http.Error(w, "cannot read the body", status)
			return
		}
		// The bytes as they came: never a body that was parsed and written again.
		envelope, err := v.Verify(verify.Request{Method: r.Method, URL: r.RequestURI, Header: r.Header, Body: body})
		var refused *verify.Error
		switch {
		case errors.As(err, &refused):
			// The log gets refused, which holds no secret; the sender gets the code.
			http.Error(w, refused.Reason.Code(), refused.Reason.Status())
			return
		case err != nil:
			http.Error(w, "internal", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "thanks for", envelope.DeliveryID)
	}
	server := httptest.NewServer(http.HandlerFunc(handler))
	defer server.Close()

	const body = `{"type":"invoice.paid"}`
	post := func(header http.Header, body string) {
		req, _ := http.NewRequest("POST", server.URL+"/webhooks", strings.NewReader(body))
		req.Header = header
		res, err := server.Client().Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer res.Body.Close()
		answer, _ := io.ReadAll(res.Body)
		fmt.Println(res.StatusCode, strings.TrimSpace(string(answer)))
	}
	signed, _ := v.Sign(verify.Request{Method: "POST", Body: []byte(body)}, verify.SignOptions{DeliveryID: "dlv_1"})
	old, _ := v.Sign(verify.Request{Method: "POST", Body: []byte(body)}, verify.SignOptions{DeliveryID: "dlv_1", Time: time.Now().Add(-time.Hour)})
	post(signed, body)
	post(signed, "something else")
	post(old, body)
	undated := signed.Clone()
	undated.Del("X-Webhook-Timestamp")
	post(undated, body)
	post(signed, strings.Repeat("x", maxBody+1))
	// Output:
	// 200 thanks for dlv_1
	// 401 signature_invalid
	// 401 timestamp_out_of_window
	// 400 header_missing
	// 413 cannot read the body
}

// Sign makes the headers that a sender adds; tests of a receiver use it too.
func ExampleVerifier_Sign() {
	scheme, _ := verify.Preset("delivery-timestamp")
	key, _ := verify.NewKey("k1", []byte("0123456789abcdef0123456789abcdef"), scheme.SecretSpec())
	keys, _ := verify.NewKeySet(key)
	v := &verify.Verifier{Scheme: scheme, Keys: keys}
	header, err := v.Sign(verify.Request{Method: "POST", Body: []byte(`{"type":"invoice.paid"}`)},
		verify.SignOptions{DeliveryID: "dlv_1", Time: time.Unix(1700000000, 0)})
	fmt.Println(header.Get("X-Webhook-Id"), header.Get("X-Webhook-Timestamp"), err)
	fmt.Println(header.Get("X-Webhook-Signature"))
	// Output:
	// dlv_1 1700000000 <nil>
	// 7f56342dc7c886f99fcc72411d2e6adeeb540f1f81698d9582fe4356c90b69f2
}

// Mailgun's signature stands in the body. A test of one's receiver needs the whole
// request.
func ExampleVerifier_SignRequest() {
	scheme, _ := verify.Preset("mailgun")
	key, _ := verify.NewKey("", []byte("a signing key for tests"), scheme.SecretSpec())
	v := &verify.Verifier{Scheme: scheme}

	r := verify.Request{Method: "POST", Body: []byte(`{"event-data":{"event":"delivered"}}`)}
	r, err := v.SignRequest(r, verify.SignOptions{Key: key, DeliveryID: "token-1", Time: time.Unix(1760000000, 0)})
	fmt.Println(string(r.Body), err)
	// Output:
	// {"event-data":{"event":"delivered"},"signature":{"timestamp":"1760000000","token":"token-1","signature":"547e41f83a8dd62c64308fa410b1ea0f94b7615a5dfcf59a4abf0cb4f54fb84b"}} <nil>
}

// A sender that has no preset: its recipe.
func ExampleParseRecipe() {
	recipe, err := verify.ParseRecipe([]byte(`{
		"name": "acme",
		"algo": "hmac-sha256",
		"signature": {"name": "Acme-Signature", "list_sep": ",", "kv_sep": "=", "tags": ["v1"]},
		"template": "{sig:t}.{body}",
		"timestamp": {"from": "sig:t", "tolerance_s": 120},
		"id": {"from": "json:/event/id"}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheme, err := recipe.Compile()
	fmt.Println(scheme.Name(), scheme.Headers(), scheme.HasDeliveryID(), scheme.IDSigned(), err)

	_, err = verify.ParseRecipe([]byte(`{"algo": "hmac-sha256", "tamplate": "{body}"}`))
	fmt.Println(err)
	// Output:
	// acme [Acme-Signature] true true <nil>
	// verify: recipe: json: unknown field "tamplate"
}

// A preset with single fields replaced.
func ExampleParseRecipe_preset() {
	recipe, err := verify.ParseRecipe([]byte(`{"preset": "stripe", "timestamp": {"tolerance_s": 600}}`))
	fmt.Println(recipe.Template, recipe.Timestamp.ToleranceS, err)
	// Output:
	// {sig:t}.{body} 600 <nil>
}

// A header that the sender has under another name.
func ExampleRecipe_Rename() {
	scheme, _ := verify.Preset("timestamped-sha256")
	recipe, err := scheme.Recipe().Rename(map[string]string{"X-Webhook-Signature": "Acme-Signature"})
	fmt.Println(recipe.Signature.Name, err)
	// Output:
	// Acme-Signature <nil>
}

// Values of a body are read after its signature was checked, and strictly.
func ExampleField() {
	id, _ := verify.ParseField("/data/id")
	for _, body := range []string{`{"data":{"id":12345678901234567890}}`, `{"data":{"id":1,"id":2}}`, `{"data":{}}`} {
		value, ok, err := id.Read(verify.Request{Body: []byte(body)})
		fmt.Println(value, ok, err)
	}
	// Output:
	// 12345678901234567890 true <nil>
	//  false verify: read /data/id: name stands twice on the path
	//  false <nil>
}

func ExampleSecret() {
	key, _ := verify.NewKey("k1", []byte("0123456789abcdef0123456789abcdef"), verify.SecretSpec{})
	fmt.Printf("%v %s %#v\n", key.Secret, key.Secret, key.Secret)
	fmt.Println(key.Secret.Len(), "bytes")
	_, err := verify.NewKey("k2", []byte("secret\n"), verify.SecretSpec{})
	fmt.Println(err)
	// Output:
	// [redacted] [redacted] [redacted]
	// 32 bytes
	// verify: key "k2": key unusable: a newline after the secret
}

// What the sender did, and what to do about it.
func ExampleVerifier_Explain() {
	scheme, _ := verify.Preset("github")
	key, _ := verify.NewKey("k1", []byte("It's a Secret to Everybody"), scheme.SecretSpec())
	keys, _ := verify.NewKeySet(key)
	v := &verify.Verifier{Scheme: scheme, Keys: keys}
	e := v.Explain(verify.Request{
		Method: "POST",
		Header: http.Header{
			"X-Github-Delivery":   {"72d3162e"},
			"X-Hub-Signature-256": {"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
		},
		Body: []byte("Hello, World!\n"),
	})
	fmt.Println(e.Error)
	for _, c := range e.Causes {
		fmt.Printf("%s: %s\n%s\n", c.Code, c.Text, c.Fix)
	}
	// Output:
	// verify github: signature_mismatch
	// body_extra_newline: the bytes match with key k1 once the final newline is removed: the sender signed the body without the "\n" that arrived
	// sign exactly the bytes you send (curl: --data-binary @file, not --data)
}
