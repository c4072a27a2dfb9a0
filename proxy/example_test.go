package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// printer stands where a program has its *inbox.Store.
type printer struct{}

func (printer) Accept(_ context.Context, d inbox.Delivery) (inbox.Receipt, error) {
	fmt.Printf("committed %s of %s for %s, %d bytes\n", d.DeliveryID, d.Source, d.Forwards[0].Destination, len(d.Body))
	return inbox.Receipt{ReceivedAt: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}, nil
}

func Example() {
	scheme, _ := verify.Preset("zhisou-v1")
	key, err := verify.NewKey("k1", []byte("0123456789abcdef0123456789abcdef"), scheme.SecretSpec())
	if err != nil {
		panic(err)
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		panic(err)
	}
	verifier := &verify.Verifier{Scheme: scheme, Keys: keys}
	p, err := proxy.New(printer{}, proxy.Config{
		Sources: []proxy.Source{{
			Name: "billing", Tenant: "acme", Path: "/in/billing", Verifier: verifier,
			Forwards: []proxy.Route{{Destination: "app"}},
		}},
		OnResult: func(_ context.Context, r proxy.Result) { fmt.Printf("%d %s\n", r.Status, r.Outcome) },
	})
	if err != nil {
		panic(err)
	}
	// proxy.NewServer(p) has the timeouts for a server of your own.
	server := httptest.NewServer(p)
	defer server.Close()

	body := `{"type":"invoice.paid"}`
	signature, err := verifier.Sign(verify.Request{Method: "POST", Body: []byte(body)}, verify.SignOptions{DeliveryID: "dlv_1"})
	if err != nil {
		panic(err)
	}
	for _, sent := range []string{body, "something else"} {
		req, _ := http.NewRequest("POST", server.URL+"/in/billing", strings.NewReader(sent))
		req.Header = signature.Clone()
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// committed dlv_1 of billing for app, 23 bytes
	// 202 accepted
	// 401 refused
}

// A handler of one's own, for a server that cannot mount a Proxy: the same body, and
// the same answers.
func ExampleRefuse() {
	scheme, _ := verify.Preset("zhisou-v1")
	key, _ := verify.NewKey("k1", []byte("0123456789abcdef0123456789abcdef"), scheme.SecretSpec())
	keys, _ := verify.NewKeySet(key)
	verifier := &verify.Verifier{Scheme: scheme, Keys: keys}

	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := proxy.ReadBody(w, r, verify.DefaultMaxBody)
		if err == nil {
			_, err = verifier.Verify(verify.Request{Method: r.Method, URL: r.RequestURI, Header: r.Header, Body: body})
		}
		if err != nil {
			proxy.Refuse(w, r, err)
			return
		}
		w.WriteHeader(http.StatusAccepted) // in a program: once inbox.Store.Accept has returned nil
	}

	r := httptest.NewRequest("POST", "/in/billing", strings.NewReader("{}"))
	r.Header, _ = verifier.Sign(verify.Request{Method: "POST", Body: []byte("{}")}, verify.SignOptions{DeliveryID: "dlv_1"})
	r.Header.Del("X-Webhook-Timestamp")
	w := httptest.NewRecorder()
	handler(w, r)
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output:
	// 400 application/problem+json; charset=utf-8
}
