package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/hooklatch/hooklatch/verify"
)

// wireID is the delivery id that a request carries by itself, verified or not.
// Empty: the scheme has none in one place, or what stands there breaks the grammar.
func wireID(scheme verify.Scheme, r verify.Request) string {
	spec := scheme.Recipe().ID
	if spec == nil {
		return ""
	}
	for _, from := range spec.From {
		if from == "body_sha256_hex" && len(r.Body) == 0 {
			continue // a head alone, whose body has another hash
		}
		field, err := verify.ParseField(from)
		if err != nil {
			return "" // a template of several places
		}
		if id, ok, err := field.Read(r); err == nil && ok {
			foreign := strings.IndexFunc(id, func(c rune) bool { return c < '!' || c > '~' }) >= 0
			if foreign || len(id) > 256 {
				return ""
			}
			return id
		}
	}
	return ""
}

type wireIDKey struct{}

// noteWireID keeps the id that stands in a header for the live view: what is
// refused has no other that a person could know it by.
func noteWireID(scheme verify.Scheme, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := wireID(scheme, verify.Request{Method: r.Method, URL: r.RequestURI, Header: r.Header}); id != "" {
			r = r.WithContext(context.WithValue(r.Context(), wireIDKey{}, id))
		}
		next.ServeHTTP(w, r)
	})
}
