package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// Source is one trusted sender.
type Source struct {
	// Name and Tenant go into every delivery. Demanded; names are unique.
	Name, Tenant string
	// Host is the host name, without port, that this source listens on. Defaults
	// to every served host.
	Host string
	// Path is compared byte by byte with the path on the wire, percent-encoding
	// included. Demanded; it begins with a slash.
	Path string
	// Verifier checks the requests. Its MaxBody is replaced by the one below.
	Verifier *verify.Verifier
	// Second is for the time in which a sender goes over to another scheme: a request
	// to which it applies, and that Verifier refuses, is judged by it. Both must carry
	// the same delivery ids, or one delivery comes in twice. Answers are as Verifier's
	// scheme wants them. Nil: there is one scheme.
	Second *verify.Verifier
	// MaxBody is the most bytes of a body. Defaults to Verifier.MaxBody, then to
	// 256 KiB; at most 25 MiB, and never above Config.BodyBytes.
	MaxBody int64

	// Where the metadata of a delivery stands; a zero Field is nowhere. EventType
	// defaults to what the scheme says. EventID is demanded where the scheme has no
	// delivery id, and takes its place.
	EventID, EventType       verify.Field
	ResourceType, ResourceID verify.Field
	Revision, Deleted        verify.Field

	// Enrol keeps a secret that the sender hands over in a handshake, and returns the
	// keys that hold from then on. It is called by one request at a time, and no more
	// once it has returned keys. Demanded where Verifier.Handshakes.EnrolUntil is set.
	Enrol func(ctx context.Context, secret []byte) (verify.KeySet, error)
	// Confirm is told of a URL that the sender wants to be called, and should not wait
	// for it. After an error the sender is asked to come again. Nil: nobody calls it.
	Confirm func(ctx context.Context, url string) error

	// RequireJSON refuses a verified body that is not JSON: one value as RFC 8259 has it,
	// in UTF-8, without a byte order mark, not compressed, at most 10,000 levels deep.
	// Every reader of JSON can read what passes, but readers differ in what they make of
	// a key that is there twice or of a number beyond 64 bits.
	RequireJSON bool
	// Types says which event types are taken as they come. The zero TypeRule: all.
	Types TypeRule
	// Forwards are the destinations. A delivery that fits no route is stored all
	// the same, and is given its forwards once a route exists ([inbox.Store.Route]).
	Forwards []Route

	// Ordering is how the deliveries of one resource follow each other at each
	// destination. All but OrderNone need ResourceID and Revision; a delivery without
	// either is not ordered.
	Ordering inbox.Ordering
	// GapTimeout is how long, after its receipt, a delivery waits for revisions that are
	// missing before it. Only with OrderStrict. 0: until a person releases it.
	GapTimeout time.Duration

	// OnConflict is what another body under a known delivery id comes to: it is refused
	// (reject), or answered as a duplicate (accept_first), for senders that one refusal
	// turns off. The first body stays and the other is kept as evidence, either way.
	// Defaults to the scheme's acknowledgement, then to reject.
	OnConflict string
	// ConflictIgnore are JSON pointers to values in which two bodies of one delivery id
	// may differ. Nil: those of the schemes; empty: none. Bodies that are not JSON, a
	// form for one, are compared whole.
	ConflictIgnore []string
	// BodyGuard makes a new delivery id a duplicate where the source has brought the same
	// body before, within twice the tolerance, or within IdentityRetention where no signed
	// timestamp is checked: on or off. Defaults to on for a scheme that does not sign the
	// id and whose bodies have one of their own, so that equal bodies are one event.
	BodyGuard string
	// IdentityRetention is how long the inbox knows delivery ids. Defaults to 90 days.
	IdentityRetention time.Duration

	// SuccessStatus is the status of a committed delivery, 200 to 299. It and the
	// next four default to the scheme's acknowledgement, then to 202.
	SuccessStatus int
	// SuccessBody is its body. Nil: the JSON of the package; empty: none.
	SuccessBody []byte
	// SuccessType is the Content-Type of SuccessBody. Defaults to plain text.
	SuccessType string
	// RefusalStatus takes the place of 401 for failures of key and signature.
	RefusalStatus int
	// ConflictStatus takes the place of 409.
	ConflictStatus int
}

const (
	defaultMaxBody = verify.DefaultMaxBody
	hardMaxBody    = 25 << 20
)

// source is a Source after New: checked, with its defaults in place.
type source struct {
	name, tenant, host, path string

	current   atomic.Pointer[verify.Verifier] // replaced when a key is enrolled
	second    *verify.Verifier                // nil: there is one scheme
	enrolling sync.Mutex
	enrol     func(context.Context, []byte) (verify.KeySet, error)
	confirm   func(context.Context, string) error
	keyed     keyedAnswers
	// answersPost: a POST may be a handshake, and have no event id where deliveries do.
	answersPost bool

	others    []*source    // of the same tenant
	explained atomic.Int64 // when a request was last kept to be explained
	now       func() time.Time
	maxBody   int64
	fields    fields
	onlyJSON  bool
	repeats   repeats
	routing   routing
	ack       ack
}

// fields are where the metadata stands.
type fields struct {
	list     [fieldCount]verify.Field // read in one scan of the body
	idHeader string                   // the header that holds the delivery id in place of the scheme
}

func newSource(s Source, bodyBytes int64) (*source, error) {
	if s.Name == "" {
		return nil, errors.New("Name is empty")
	}
	if s.Tenant == "" {
		return nil, errors.New("Tenant is empty")
	}
	if err := checkPath(s.Path); err != nil {
		return nil, err
	}
	if s.Verifier == nil {
		return nil, errors.New("Verifier is missing")
	}
	v := *s.Verifier
	maxBody := cmp.Or(s.MaxBody, int64(v.MaxBody), defaultMaxBody)
	if limit := min(hardMaxBody, bodyBytes); maxBody < 1 || maxBody > limit {
		return nil, fmt.Errorf("MaxBody %d is not between 1 and %d", maxBody, limit)
	}
	v.MaxBody = int(maxBody)
	if err := v.Check(); err != nil {
		return nil, err
	}
	recipe := v.Scheme.Recipe()
	a, err := newAck(s, recipe.Ack)
	if err != nil {
		return nil, err
	}
	if err := checkOrdering(s); err != nil {
		return nil, err
	}
	rt, err := newRouting(s)
	if err != nil {
		return nil, err
	}
	c := &source{
		name: s.Name, tenant: s.Tenant, host: s.Host, path: s.Path,
		enrol: s.Enrol, confirm: s.Confirm, answersPost: answersPost(recipe),
		now: v.Now, maxBody: maxBody,
		fields: fields{list: [fieldCount]verify.Field{
			fieldEventID: s.EventID, fieldEventType: s.EventType, fieldResourceType: s.ResourceType,
			fieldResourceID: s.ResourceID, fieldRevision: s.Revision, fieldDeleted: s.Deleted,
		}},
		onlyJSON: s.RequireJSON, routing: rt, ack: a,
	}
	c.current.Store(&v)
	if err := c.useSecond(s.Second); err != nil {
		return nil, err
	}
	if c.repeats, err = newRepeats(s, &v, c.second); err != nil {
		return nil, err
	}
	if c.now == nil {
		c.now = time.Now
	}
	if !v.Handshakes.EnrolUntil.IsZero() && s.Enrol == nil {
		return nil, errors.New("Enrol is missing, and a secret may be handed over")
	}
	if !v.Scheme.HasDeliveryID() {
		if s.EventID.IsZero() {
			return nil, fmt.Errorf("EventID is missing: scheme %s has no delivery id", v.Scheme.Name())
		}
		c.fields.idHeader, _ = strings.CutPrefix(s.EventID.String(), "header:")
		if c.fields.idHeader == s.EventID.String() {
			c.fields.idHeader = ""
		}
	}
	return c, nil
}

func (s *source) verifier() *verify.Verifier { return s.current.Load() }

// useSecond takes the second scheme over, with the bounds of the first.
func (s *source) useSecond(given *verify.Verifier) error {
	if given == nil {
		return nil
	}
	v, first := *given, s.verifier()
	v.MaxBody = first.MaxBody
	if err := v.Check(); err != nil {
		return err
	}
	if v.Scheme.HasDeliveryID() != first.Scheme.HasDeliveryID() {
		return fmt.Errorf("Second: one of the schemes %s and %s carries a delivery id, the other does not: one delivery would come in twice",
			first.Scheme.Name(), v.Scheme.Name())
	}
	if !v.Handshakes.EnrolUntil.IsZero() {
		return errors.New("Second: a secret may be handed over to Verifier alone")
	}
	s.answersPost = s.answersPost || answersPost(v.Scheme.Recipe())
	s.second = &v
	return nil
}

// choose finds the verifiers that a request is judged by, in their order. next is
// nil where there is one. A request that no scheme applies to is the first's.
func (s *source) choose(req verify.Request) (first, next *verify.Verifier) {
	first = s.verifier()
	if s.second == nil {
		return first, nil
	}
	switch one, two := first.Applies(req), s.second.Applies(req); {
	case one && two:
		return first, s.second
	case two, !one && !first.MayHandshake(req) && s.second.MayHandshake(req):
		return s.second, nil
	}
	return first, nil
}

// window is what senders are told of it.
func window(v *verify.Verifier) time.Duration { return cmp.Or(v.Tolerance, v.Scheme.Tolerance()) }

// checkPath refuses what no path on the wire can equal.
func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("Path %q does not begin with a slash", path)
	}
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || c == '?' || c == '#' {
			return fmt.Errorf("Path %q holds %q: it must be spelled as on the wire", path, c)
		}
	}
	return nil
}

// ack is how a source's sender wants to be answered.
type ack struct {
	status         int
	body           []byte // nil: the JSON of the package
	contentType    []string
	refusalStatus  int // 0: as the table says
	conflictStatus int
}

func newAck(s Source, scheme *verify.Ack) (ack, error) {
	if scheme == nil {
		scheme = &verify.Ack{}
	}
	a := ack{
		status:         cmp.Or(s.SuccessStatus, scheme.SuccessStatus, http.StatusAccepted),
		body:           s.SuccessBody,
		contentType:    []string{cmp.Or(s.SuccessType, scheme.SuccessType, "text/plain; charset=utf-8")},
		refusalStatus:  cmp.Or(s.RefusalStatus, scheme.RefusalStatus),
		conflictStatus: cmp.Or(s.ConflictStatus, scheme.ConflictStatus),
	}
	if a.body == nil && scheme.SuccessBody != nil {
		a.body = []byte(*scheme.SuccessBody)
	}
	if a.status == http.StatusNoContent {
		a.body = []byte{}
	}
	if a.status < 200 || a.status > 299 {
		return ack{}, fmt.Errorf("SuccessStatus %d is not between 200 and 299", a.status)
	}
	for _, status := range []int{a.refusalStatus, a.conflictStatus} {
		// 410 makes some senders drop the hook for good.
		if status != 0 && (status < 400 || status > 499 || status == http.StatusGone) {
			return ack{}, fmt.Errorf("RefusalStatus or ConflictStatus %d is not between 400 and 499, or is 410", status)
		}
	}
	return a, nil
}

func checkOrdering(s Source) error {
	switch s.Ordering {
	case inbox.OrderNone, inbox.OrderLatest, inbox.OrderCoalesce, inbox.OrderStrict:
	default:
		return fmt.Errorf("Ordering %q is unknown", s.Ordering)
	}
	if s.Ordering != inbox.OrderNone && (s.ResourceID.IsZero() || s.Revision.IsZero()) {
		return fmt.Errorf("Ordering %s needs ResourceID and Revision", s.Ordering)
	}
	if s.GapTimeout < 0 || s.GapTimeout > 0 && s.Ordering != inbox.OrderStrict {
		return fmt.Errorf("GapTimeout %s is negative, or not of Ordering %s", s.GapTimeout, inbox.OrderStrict)
	}
	return nil
}
