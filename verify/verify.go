package verify

import (
	"net/http"
	"time"
)

// DefaultMaxBody is the cap on the body where Verifier.MaxBody is zero.
const DefaultMaxBody = 262144

// Verifier checks the requests of one sender. It is immutable and safe for
// concurrent use; to judge a stored request later, copy it and set Now.
type Verifier struct {
	// Scheme says what is signed and how. The zero Scheme refuses everything.
	Scheme Scheme
	// Keys are the accepted keys. The zero KeySet refuses everything.
	Keys KeySet
	// Tolerance is how far the timestamp may be from now, both ends included.
	// Defaults to the scheme's own.
	Tolerance time.Duration
	// MaxBody is the most bytes of a body. Defaults to 262144.
	MaxBody int
	// URL is the public URL, for schemes that sign it. It is never rebuilt from
	// what the request says.
	URL string
	// Params are the values of {param:x} tokens.
	Params map[string]string
	// Now defaults to time.Now.
	Now func() time.Time
}

// Request is what arrived. Nothing in it is changed, and nothing of it is kept.
type Request struct {
	Method string
	URL    string      // the target as received; only its query is looked at
	Header http.Header // any map, its keys need not be canonical
	Body   []byte      // the bytes on the wire
}

// Envelope is what a verified request says.
type Envelope struct {
	Scheme string
	KeyID  string // id of the key that fitted
	// Retiring is true when the key has a NotAfter and a later key is active.
	Retiring bool
	// DeliveryID is empty if the scheme has none.
	DeliveryID string
	// IDSigned is true when the signature covers the delivery id.
	IDSigned  bool
	Timestamp string // text as received, empty if the scheme has none
	Time      time.Time
	// Distance is the timestamp minus now.
	Distance  time.Duration
	EventType string
	// MetaError says what could not be read from a body that is rightly signed.
	MetaError string
}

// CheckHeader does what can be done before the body is read: headers,
// preconditions, delivery id, the spelling of the signature, and the timestamp.
func (v *Verifier) CheckHeader(r Request) error {
	return &Error{Reason: ReasonAlgorithmRefused}
}

// Verify says whether r was signed by a key that is accepted now. An error is
// always an [*Error].
func (v *Verifier) Verify(r Request) (Envelope, error) {
	return Envelope{}, &Error{Reason: ReasonAlgorithmRefused}
}

// Check finds what can be known to be wrong before the first request: no scheme,
// no keys, secrets that are too short, more than four keys active at one time, a
// URL or parameters that the scheme needs and that are not there.
func (v *Verifier) Check() error { return nil }
