package main

import (
	"cmp"
	"mime"
	"net/http"
	"strings"

	"github.com/hooklatch/hooklatch/verify"
)

// maxAnswer bounds the body of an answer: it goes out with each delivery.
const maxAnswer = 4096

// ack checks the answers that take the place of the scheme's.
func (ch *checker) ack(at string, s *sourceConfig, scheme *verify.Ack) {
	if scheme == nil {
		scheme = &verify.Ack{}
	}
	given := func(key string) bool { return ch.c.at[at+"."+key] != nil }
	if given("success_status") && (s.SuccessStatus < 200 || s.SuccessStatus > 299) {
		ch.problem(at+".success_status", "success_status must be 200 to 299")
	}
	none := cmp.Or(s.SuccessStatus, scheme.SuccessStatus) == http.StatusNoContent
	switch {
	case s.SuccessBody == nil:
	case none && *s.SuccessBody != "":
		ch.problem(at+".success_body", "the answer is 204, which has no body: set success_status too")
	case len(*s.SuccessBody) > maxAnswer:
		ch.problem(at+".success_body", "success_body must be at most %s", size(maxAnswer))
	}
	if given("success_type") {
		_, _, err := mime.ParseMediaType(s.SuccessType)
		switch {
		case err != nil || !strings.Contains(s.SuccessType, "/") || strings.ContainsFunc(s.SuccessType, func(c rune) bool { return c < ' ' || c > '~' }):
			ch.problem(at+".success_type", "%q is no media type such as text/plain", s.SuccessType)
		case none || s.SuccessBody == nil && scheme.SuccessBody == nil || s.SuccessBody != nil && *s.SuccessBody == "":
			ch.problem(at+".success_type", "success_type is that of success_body, and there is none")
		}
	}
	if r := s.RefusalStatus; given("refusal_status") && r != 400 && r != 401 && r != 403 {
		ch.problem(at+".refusal_status", "refusal_status must be 400, 401 or 403")
	}
	if r := s.ConflictStatus; given("conflict_status") && (r < 400 || r > 499 || r == http.StatusGone) {
		ch.problem(at+".conflict_status", "conflict_status must be 400 to 499, and not 410, on which senders drop the hook")
	}
}

// successBody is nil where none was given.
func (s *sourceConfig) successBody() []byte {
	if s.SuccessBody == nil {
		return nil
	}
	return append([]byte{}, *s.SuccessBody...)
}
