package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

const (
	exampleKeyID    = "k1"
	exampleDelivery = "dlv_example"
	exampleURL      = "https://hooks.example.com/in"
)

// exampleOf signs a small event with a key that everybody knows, at a fixed time, so
// that it can be compared with another's. Nil: no sender has keys that we could make.
func exampleOf(scheme verify.Scheme) (*exampleLine, error) {
	format, err := schemeKeyFormat(scheme)
	if err != nil {
		return nil, err
	}
	var known [32]byte
	for i := range known {
		known[i] = byte(i)
	}
	made, err := keyOf(format, scheme.SecretSpec(), known)
	if err != nil {
		return nil, err
	}
	key, err := verify.NewKey(exampleKeyID, []byte(made.secret), signingSpec(scheme))
	if err != nil {
		return nil, err
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		return nil, err
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	v := &verify.Verifier{Scheme: scheme, Keys: keys, URL: exampleURL, Params: map[string]string{}, Now: func() time.Time { return at }}
	for _, name := range scheme.Recipe().Params {
		v.Params[name] = "example"
	}
	of := sampleOf(scheme, exampleDelivery, at)
	target := exampleURL
	if len(of.query) > 0 {
		target += "?" + of.query.Encode()
	}
	r, err := v.SignRequest(verify.Request{Method: http.MethodPost, URL: target, Header: of.header, Body: of.body},
		verify.SignOptions{DeliveryID: exampleDelivery})
	if errors.Is(err, verify.ErrNoSigner) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ex := &exampleLine{Secret: made.secret, Method: r.Method, URL: r.URL, Headers: r.Header, Body: r.Body}
	if made.public != "" {
		ex.Secret, ex.PublicKey = "", made.public
	}
	return ex, nil
}
