package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// Route sends deliveries to a destination.
type Route struct {
	// Destination is its name. Several routes to one destination make one forward.
	Destination string
	// Types are the event types that fit, as [CheckType] has them. None: all but
	// hooklatch.snapshot, and also deliveries that have no type.
	Types []string
	// Deadline is how long after the receipt a forward is tried. Defaults to that
	// of the inbox.
	Deadline time.Duration
}

// TypeRule is what becomes of event types that nobody has foreseen.
type TypeRule struct {
	// Allow are the types that are taken as they come, spelled as [CheckType] has them.
	// A delivery without a type is none of them. None: every delivery is.
	Allow []string
	// Refuse turns the others away. Else they are stored, and their forwards wait for a
	// person.
	Refuse bool
}

// snapshotType is what a backfill calls the state of a resource. It is no event of
// the sender's, so it goes only where it is named.
const snapshotType = "hooklatch.snapshot"

// CheckType returns an error unless pattern is an event type such as invoice.paid,
// the beginning of types such as invoice.*, or * for any type. Types are compared
// byte by byte: nothing is taken for something else that looks like it.
func CheckType(pattern string) error {
	prefix, star := strings.CutSuffix(pattern, "*")
	switch {
	case pattern == "":
		return errors.New("a type is empty")
	case strings.Contains(prefix, "*") || star && prefix != "" && (prefix == "." || !strings.HasSuffix(prefix, ".")):
		return fmt.Errorf("%q is neither a type such as invoice.paid nor one of invoice.* and *", pattern)
	}
	return nil
}

// matchType says whether an event type fits a pattern. No type fits none, and the
// type of snapshots only its own name.
func matchType(pattern, eventType string) bool {
	prefix, star := strings.CutSuffix(pattern, "*")
	if !star || eventType == snapshotType {
		return eventType == pattern && eventType != ""
	}
	return len(eventType) > len(prefix) && strings.HasPrefix(eventType, prefix)
}

func matchAny(patterns []string, eventType string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matchType(p, eventType) })
}

// Route returns the forwards that a delivery of this type has at the source, held
// where its types are not allowed: what s makes of a delivery that it receives, for
// one that was received before a route existed.
func (s Source) Route(eventType string) ([]inbox.NewForward, error) {
	r, err := newRouting(s)
	if err != nil {
		return nil, fmt.Errorf("proxy: source %s: %w", s.Name, err)
	}
	return r.forwards(eventType), nil
}

// routing decides which destinations a delivery goes to.
type routing struct {
	routes []Route
	model  inbox.NewForward // what every forward of the source has
	rule   TypeRule
	all    []inbox.NewForward // the answer for all types but that of snapshots, where types do not matter
}

func newRouting(s Source) (routing, error) {
	for _, route := range s.Forwards {
		if route.Destination == "" {
			return routing{}, errors.New("Forwards: Destination is empty")
		}
		for _, pattern := range route.Types {
			if err := CheckType(pattern); err != nil {
				return routing{}, fmt.Errorf("Forwards: destination %s: %w", route.Destination, err)
			}
		}
		if route.Deadline < 0 {
			return routing{}, fmt.Errorf("Forwards: destination %s: Deadline %s is negative", route.Destination, route.Deadline)
		}
	}
	for _, pattern := range s.Types.Allow {
		if err := CheckType(pattern); err != nil {
			return routing{}, fmt.Errorf("Types: %w", err)
		}
	}
	if s.Types.Refuse && len(s.Types.Allow) == 0 {
		return routing{}, errors.New("Types: Allow is empty, and what it does not name is refused")
	}
	r := routing{routes: slices.Clone(s.Forwards), rule: s.Types, model: inbox.NewForward{Ordering: s.Ordering, GapTimeout: s.GapTimeout}}
	if len(s.Types.Allow) == 0 && !slices.ContainsFunc(s.Forwards, func(r Route) bool { return len(r.Types) > 0 }) {
		r.all = r.match("")
	}
	return r, nil
}

// allows says whether deliveries of the type are taken as they come.
func (r *routing) allows(eventType string) bool {
	return len(r.rule.Allow) == 0 || matchAny(r.rule.Allow, eventType)
}

func (r *routing) forwards(eventType string) []inbox.NewForward {
	if r.all != nil && eventType != snapshotType {
		return r.all
	}
	return r.match(eventType)
}

// match makes at most one forward for a destination; the first route counts.
func (r *routing) match(eventType string) (out []inbox.NewForward) {
	f := r.model
	f.Hold = !r.allows(eventType)
	for _, route := range r.routes {
		fits := len(route.Types) == 0 && eventType != snapshotType || matchAny(route.Types, eventType)
		known := slices.ContainsFunc(out, func(f inbox.NewForward) bool { return f.Destination == route.Destination })
		if fits && !known {
			f.Destination, f.Deadline = route.Destination, route.Deadline
			out = append(out, f)
		}
	}
	return out
}
