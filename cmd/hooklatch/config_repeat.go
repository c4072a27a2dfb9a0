package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hooklatch/hooklatch/verify"
)

var (
	conflictRules = []string{"reject", "accept_first"}
	guardSwitch   = []string{"on", "off"}
)

// maxIgnored is that of package verify.
const maxIgnored = 32

// repeats checks what a source takes for a repeat of a delivery.
func (ch *checker) repeats(at string, s *sourceConfig, schemes []verify.Scheme) {
	if ch.c.at[at+".on_conflict"] != nil {
		ch.oneOf(at+".on_conflict", s.OnConflict, conflictRules...)
	}
	if ch.c.at[at+".body_guard"] != nil {
		ch.oneOf(at+".body_guard", s.BodyGuard, guardSwitch...)
	}
	ch.ignored(at+".conflict_ignore", s, schemes)
	for _, scheme := range schemes {
		if s.BodyGuard != "on" {
			continue
		}
		reach := cmp.Or(duration(2*ch.c.window(s, scheme)), ch.c.Retention.Identity)
		if !scheme.Recipe().BodyUnique {
			ch.warn(at+".body_guard", "bodies of %s need no id of their own: of two events with equal bodies within %s the second is lost", title(scheme), reach)
		}
		if !scheme.BodySigned() {
			ch.warn(at+".body_guard", "%s does not sign the whole body: who sends a captured request again can change it, and the guard knows equal bodies only", title(scheme))
		}
	}
}

func (ch *checker) ignored(at string, s *sourceConfig, schemes []verify.Scheme) {
	for i, pointer := range s.ConflictIgnore {
		entry := fmt.Sprintf("%s[%d]", at, i)
		if !strings.HasPrefix(pointer, "/") {
			ch.problem(entry, "%q is no JSON pointer: write one such as /attempt", pointer)
		} else if _, err := verify.ParseIgnored(pointer); err != nil {
			ch.problem(entry, "%s", strings.TrimPrefix(err.Error(), "verify: parse ignored: "))
		}
	}
	if n := len(s.ConflictIgnore); n > maxIgnored {
		ch.problem(at, "%d pointers are more than %d", n, maxIgnored)
	}
	for _, scheme := range schemes {
		if len(s.ConflictIgnore) > 0 && isForm(scheme) {
			ch.warn(at, "bodies of %s may be forms: these are no JSON, and are compared whole", title(scheme))
		}
	}
}

// guarded says whether the body guard is on for what a scheme has verified; package
// proxy has the same rule.
func (s *sourceConfig) guarded(scheme verify.Scheme) bool {
	return s.BodyGuard == "on" || s.BodyGuard == "" && !scheme.IDSigned() && scheme.Recipe().BodyUnique
}

// isForm says whether the bodies of a scheme are forms.
func isForm(scheme verify.Scheme) bool {
	return slices.ContainsFunc(scheme.Covers(), func(what string) bool { return strings.HasPrefix(what, "form") })
}
