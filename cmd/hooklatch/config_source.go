package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// source checks one sender.
func (ch *checker) source(name string, s *sourceConfig) {
	at := "sources." + name
	ch.name("source", at, name)
	if s.Tenant == "" {
		ch.problem(at, "tenant is missing: whose data is it?")
	} else {
		ch.name("tenant", at+".tenant", s.Tenant)
	}
	ch.route(at, s)
	ch.body(at+".max_body", s.MaxBody)
	ch.tolerance(at+".tolerance", s.Tolerance)
	ch.ordering(at, s)
	ch.forward(at, s)
	ch.types(at+".types", &s.Types)
	schemes, err := s.compile()
	if err != nil {
		ch.scheme(at, err)
		return
	}
	ch.fit(at, s, schemes)
	ch.weigh(at, s, schemes)
	ch.repeats(at, s, schemes)
	ch.ack(at, s, schemes[0].Recipe().Ack)
	ch.handshake(at, s, shaking(schemes))
	ch.keys(at, s, schemes)
}

func (ch *checker) tolerance(path string, d duration) {
	ch.positive(path, time.Duration(d))
	if time.Duration(d) > wideTolerance {
		ch.warn(path, "a tolerance above %s lets a captured request be sent again for long", duration(wideTolerance))
	}
}

var orderings = []string{"none", "latest", "coalesce", "strict"}

func (ch *checker) ordering(at string, s *sourceConfig) {
	ch.oneOf(at+".ordering", s.Ordering, orderings...)
	var missing []string
	if s.Resource.ID.IsZero() {
		missing = append(missing, "resource.id")
	}
	if s.Resource.Revision.IsZero() {
		missing = append(missing, "resource.revision")
	}
	if s.Ordering != "none" && slices.Contains(orderings, s.Ordering) && len(missing) > 0 {
		ch.problem(at+".ordering", "ordering %s needs %s: where in a delivery do they stand?", s.Ordering, strings.Join(missing, " and "))
	}
	ch.positive(at+".gap_timeout", time.Duration(s.GapTimeout))
	if ch.c.at[at+".gap_timeout"] != nil && s.Ordering != "strict" {
		ch.problem(at+".gap_timeout", "gap_timeout needs ordering strict: with %s nothing waits for a revision that is missing", s.Ordering)
	}
}

func (ch *checker) route(at string, s *sourceConfig) {
	switch {
	case s.Path == "":
		ch.problem(at, "path is missing")
	case !strings.HasPrefix(s.Path, "/") || strings.ContainsAny(s.Path, "?# \t\r\n"):
		ch.problem(at+".path", "path must begin with / and hold no ?, # or blank: it is compared as it is")
	case slices.Contains(strings.Split(s.Path, "/"), "..") || slices.Contains(strings.Split(s.Path, "/"), "."):
		ch.problem(at+".path", "path must hold no . or .. segment: clients take them out before they send")
	}
	if strings.ContainsAny(s.Host, "/:@ ") {
		ch.problem(at+".host", "host is a name without scheme and port")
	}
}

// fit checks what the schemes demand of their source.
func (ch *checker) fit(at string, s *sourceConfig, schemes []verify.Scheme) {
	var wanted []string
	timed, typed := false, !s.Event.Type.IsZero()
	for _, scheme := range schemes {
		ch.demands(at, s, scheme)
		wanted = append(wanted, scheme.Recipe().Params...)
		timed = timed || scheme.HasTimestamp()
		typed = typed || scheme.Recipe().EventType != nil
	}
	if !typed && s.comparesTypes() {
		ch.warn(at, "event types are compared, and no event has one: set event.type, such as /type or header:X-Event")
	}
	u, err := url.Parse(s.PublicURL)
	switch {
	case s.PublicURL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"):
		ch.problem(at+".public_url", "public_url must be an http or https URL with a host")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Params)) {
		if !slices.Contains(wanted, name) {
			ch.problem(at+".params."+name, "%s has no param %q", titles(schemes), name)
		}
	}
	if ch.c.at[at+".tolerance"] != nil && !timed {
		ch.warn(at+".tolerance", "%s signs no timestamp: tolerance does not apply", titles(schemes))
	}
	if s.Resource.ID.IsZero() && (!s.Resource.Type.IsZero() || !s.Resource.Revision.IsZero() || !s.Resource.Deleted.IsZero()) {
		ch.problem(at+".resource", "a resource needs an id")
	}
}

// demands checks what one scheme cannot do without.
func (ch *checker) demands(at string, s *sourceConfig, scheme verify.Scheme) {
	if !scheme.HasDeliveryID() && s.Event.ID.IsZero() {
		ch.problem(at, "%s carries no delivery id: set event.id, such as /id or header:X-Id, to take its place", title(scheme))
	}
	if s.PublicURL == "" && scheme.NeedsURL() {
		ch.problem(at, "%s signs the URL: set public_url to the one that the sender knows", title(scheme))
	}
	for _, name := range scheme.Recipe().Params {
		if s.Params[name] == "" {
			ch.problem(at, "%s demands params: {%s: …}", title(scheme), name)
		}
	}
}

func (ch *checker) forward(at string, s *sourceConfig) {
	if len(s.Forward) == 0 {
		ch.warn(at, "no destination: deliveries are kept, and handed to nobody")
	}
	known := slices.Sorted(maps.Keys(ch.c.Destinations))
	for i, r := range s.Forward {
		entry := fmt.Sprintf("%s.forward[%d]", at, i)
		switch {
		case r.To == "":
			ch.problem(entry, "to is missing: which destination?")
		case !slices.Contains(known, r.To) && len(known) == 0:
			ch.problem(entry+".to", "unknown destination %q: none is configured", r.To)
		case !slices.Contains(known, r.To):
			ch.problem(entry+".to", "unknown destination %q: %s", r.To, configured(known))
		}
		for j, pattern := range r.Types {
			ch.eventType(fmt.Sprintf("%s.types[%d]", entry, j), pattern)
		}
	}
}

// typeChoices are the values of types.else.
var typeChoices = []string{"hold", "refuse"}

func (ch *checker) types(at string, t *typeConfig) {
	if t.Else != "" {
		ch.oneOf(at+".else", t.Else, typeChoices...)
	}
	if len(t.Allow) == 0 && ch.c.at[at] != nil {
		ch.problem(at, "allow is missing: which types are taken as they come?")
	}
	for i, pattern := range t.Allow {
		ch.eventType(fmt.Sprintf("%s.allow[%d]", at, i), pattern)
	}
}

// comparesTypes says whether the types of events decide anything.
func (s *sourceConfig) comparesTypes() bool {
	return len(s.Types.Allow) > 0 || slices.ContainsFunc(s.Forward, func(r routeConfig) bool { return len(r.Types) > 0 })
}

func (ch *checker) eventType(path, pattern string) {
	if pattern == "" {
		ch.problem(path, "a type is empty: write one such as invoice.paid or invoice.*")
	} else if err := proxy.CheckType(pattern); err != nil {
		ch.problem(path, "%v", err)
	}
}

var keyEncodings = []string{"", "utf8", "hex", "base64", "whsec", "pem", "spki-der-base64", "raw-hex", "raw-base64"}

func (ch *checker) keys(at string, s *sourceConfig, schemes []verify.Scheme) {
	keys := s.Keys
	if len(keys) == 0 {
		ch.problem(at, "keys are missing: there is no way to skip verification")
		return
	}
	ids := map[string]bool{}
	for i, k := range keys {
		entry := fmt.Sprintf("%s.keys[%d]", at, i)
		switch {
		case k.ID == "":
			ch.problem(entry, "id is missing")
		case ids[k.ID]:
			ch.problem(entry+".id", "key %s stands twice", k.ID)
		}
		ids[k.ID] = true
		if k.Secret.isZero() {
			ch.problem(entry, "secret is missing: {file: F}, {env: NAME} or {exec: [PROGRAM]}")
		}
		if !slices.Contains(keyEncodings, k.Encoding) {
			ch.oneOf(entry+".encoding", k.Encoding, keyEncodings[1:]...)
		}
		if !k.NotBefore.IsZero() && !k.NotAfter.IsZero() && !k.NotBefore.Before(k.NotAfter) {
			ch.problem(entry+".not_after", "key %s is never valid: not_after does not lie behind not_before", k.ID)
		}
		if len(schemes) == 1 && k.Scheme != "" && k.Scheme != schemes[0].Name() {
			ch.problem(entry+".scheme", "key %s is for scheme %s, and the source has %s", k.ID, k.Scheme, title(schemes[0]))
		}
	}
	if len(schemes) == 2 {
		ch.pair(at, s, schemes)
	}
	for _, scheme := range schemes {
		if serving, _ := s.keysOf(scheme); len(serving) > 0 {
			ch.spans(at+".keys", serving, scheme)
		}
	}
}

// spans looks at the keys over time.
func (ch *checker) spans(at string, keys []keyConfig, scheme verify.Scheme) {
	if !scheme.UsesKeyID() {
		// The number of active keys only grows where a span begins.
		for _, k := range keys {
			start := k.NotBefore
			if n := activeAt(keys, start); n > maxActiveKeys {
				when := ""
				if !start.IsZero() {
					when = " from " + start.Format(time.RFC3339)
				}
				ch.problem(at, "%d keys are active at once%s: at most %d can be, since each is tried", n, when, maxActiveKeys)
				break
			}
		}
	}
	ch.ends(at, keys, "every delivery is refused until one is")
}

// ends finds that no key is valid, or soon none.
func (ch *checker) ends(at string, keys []keyConfig, without string) {
	var last time.Time
	for _, k := range keys {
		if k.NotAfter.IsZero() {
			last = time.Time{}
			break
		}
		if k.NotAfter.After(last) {
			last = k.NotAfter
		}
	}
	switch {
	case !last.IsZero() && !last.After(ch.now):
		ch.problem(at, "no key is valid now or later: the last one ended %s", last.Format(time.RFC3339))
	case activeAt(keys, ch.now) == 0:
		ch.warn(at, "no key is valid now: %s", without)
	case !last.IsZero() && last.Sub(ch.now) < keyEndsSoon:
		ch.warn(at, "the last key ends %s, and none comes after it", last.Format(time.RFC3339))
	}
}

// activeAt counts the keys that are accepted at t; the zero time lies before all
// spans that begin.
func activeAt(keys []keyConfig, t time.Time) (n int) {
	for _, k := range keys {
		if !k.NotBefore.After(t) && (k.NotAfter.IsZero() || t.Before(k.NotAfter)) {
			n++
		}
	}
	return n
}
