package verify_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// Answer a sender that asks, before it sends, whether this address is yours.
func ExampleVerifier_Handshake() {
	scheme, _ := verify.Preset("meta-whatsapp")
	key, _ := verify.NewKey("app", []byte("the app secret, from the dashboard"), scheme.SecretSpec())
	keys, _ := verify.NewKeySet(key)
	token, _ := verify.NewKey("", []byte("a word of yours"), verify.SecretSpec{})
	v := &verify.Verifier{Scheme: scheme, Keys: keys, Handshakes: verify.Handshakes{Token: token.Secret}}

	for _, query := range []string{
		"hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=a+word+of+yours",
		"hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=another",
		"page=1",
	} {
		answer, ok, err := v.Handshake(verify.Request{Method: "GET", URL: "/in?" + query})
		fmt.Printf("%v %s %d %s %v\n", ok, answer.Kind, answer.Status, answer.Body, err)
	}
	// Output:
	// true echo_query 200 1158201444 <nil>
	// true  0  verify meta-whatsapp: handshake_refused
	// false  0  <nil>
}

// Verify deliveries and answer handshakes in one pass.
func ExampleVerifier_Receive() {
	scheme, _ := verify.Preset("slack")
	key, _ := verify.NewKey("s1", []byte("8f742231b10e8888abcd99yyyzzz85a5"), scheme.SecretSpec())
	keys, _ := verify.NewKeySet(key)
	v := &verify.Verifier{Scheme: scheme, Keys: keys}
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, verify.DefaultMaxBody+1))
		envelope, answer, err := v.Receive(verify.Request{Method: r.Method, URL: r.RequestURI, Header: r.Header, Body: body})
		switch {
		case err != nil:
			w.WriteHeader(http.StatusUnauthorized)
		case answer.Kind != "":
			for name, values := range answer.Header {
				w.Header()[name] = values
			}
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(answer.Status)
			w.Write(answer.Body)
		default:
			fmt.Fprintln(w, "keep", envelope.DeliveryID)
		}
	}
	for _, body := range []string{`{"type":"url_verification","challenge":"3eZbrw1a"}`, `{"type":"event_callback","event_id":"Ev1"}`} {
		headers, _ := v.Sign(verify.Request{Body: []byte(body)}, verify.SignOptions{Time: time.Now()}) // as Slack does it
		r := httptest.NewRequest("POST", "/in", strings.NewReader(body))
		r.Header = headers
		w := httptest.NewRecorder()
		handler(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 {"challenge":"3eZbrw1a"}
	// 200 keep Ev1
}
