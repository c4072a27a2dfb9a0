package verify

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
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
	// Handshakes says how challenges and pings of the scheme are answered.
	Handshakes Handshakes
	// ExplainBytes is the most that Explain hashes. Defaults to 256 MiB. A body of more
	// than a 256th of it is tried as it arrived, and in no other form.
	ExplainBytes int64
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
	// MetaError says what could not be read from a request that is rightly signed.
	MetaError string
}

// check is one request on its way through the steps. It lives on the stack.
type check struct {
	v        *Verifier
	p        *program
	r        Request
	now      time.Time
	envelope Envelope
	key      *Key // that fitted

	lines      [maxHeaders][]string // by program.headers
	fields     [maxFields]string    // {sig:…} values, by program.fields
	fieldSeen  uint8
	candidates [maxCandidates]string
	count      int
	sigBytes   int
	tokens     [maxParts]string // by program.parts
	sums       [maxActive][maxDigest]byte
	late       []jsonTarget // by program.late; nil until one is read
	coded      coded        // the request under a scheme in code
	covered    uint32       // bit n: the code's signature covers header n
}

func (c *check) fail(reason Reason, field string) *Error {
	return &Error{
		Reason: reason, Scheme: c.p.recipe.Name, Field: field, Distance: c.envelope.Distance,
		DeliveryID: c.envelope.DeliveryID, Timestamp: c.envelope.Timestamp,
	}
}

func (c *check) start(v *Verifier, r *Request) *Error {
	if v.Scheme.p == nil || !v.Scheme.p.ready {
		return &Error{Reason: ReasonAlgorithmRefused}
	}
	c.v, c.p, c.r = v, v.Scheme.p, *r
	if v.Now != nil {
		c.now = v.Now()
	} else {
		c.now = time.Now()
	}
	return nil
}

// CheckHeader does what can be done before the body is read: headers,
// preconditions, delivery id, the spelling of the signature, and the timestamp.
// An error is always an [*Error].
func (v *Verifier) CheckHeader(r Request) error {
	var c check
	err := c.start(v, &r)
	if err == nil {
		err = c.beforeBody()
	}
	if err != nil {
		return err
	}
	return nil
}

// Verify says whether r was signed by a key that is accepted now. An error is
// always an [*Error].
func (v *Verifier) Verify(r Request) (Envelope, error) {
	var c check
	err := c.start(v, &r)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		return Envelope{}, err
	}
	c.envelope.Scheme = c.p.recipe.Name
	return c.envelope, nil
}

// beforeBody is steps 1 to 5, as far as they do not lie in the body.
func (c *check) beforeBody() *Error {
	if err := c.headers(); err != nil {
		return err
	}
	inBody := c.p.signature.inBody()
	if !inBody && !c.signaturePresent() {
		return c.fail(ReasonSignatureMissing, c.p.signature.places[0].String())
	}
	if err := c.demandedHeaders(); err != nil {
		return err
	}
	for i := range c.p.require {
		if q := &c.p.require[i]; c.header(q.slot) != q.equals {
			return c.fail(ReasonPrecondition, c.p.headers[q.slot].name)
		}
	}
	if c.p.id != nil && !c.p.id.late {
		if err := c.deliveryID(); err != nil {
			return err
		}
	}
	if c.p.code != nil {
		if err := c.aside(c.p.code.open); err != nil {
			return err
		}
	} else if !inBody {
		if err := c.signature(); err != nil {
			return err
		}
	}
	if t := c.p.timestamp; t != nil && t.stage == stageHeader {
		return c.judgeTimestamp()
	}
	return nil
}

func (c *check) run() *Error {
	if err := c.beforeBody(); err != nil {
		return err
	}
	if len(c.r.Body) > c.mostBody() {
		return c.fail(ReasonBodyTooLarge, "")
	}
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.match(); err != nil {
		return err
	}
	if c.p.keyedAnswers && c.p.code == nil && c.challenge() {
		return c.fail(ReasonSignatureMismatch, "")
	}
	if c.coded != nil {
		if err := c.aside(c.coded.claims); err != nil {
			return err
		}
	}
	return c.afterSignature()
}

// prepare finds what the signature needs of the body: itself, where it lies there,
// and what is signed.
func (c *check) prepare() *Error {
	if c.coded != nil {
		return c.aside(c.coded.read)
	}
	if c.p.signature.inBody() {
		if err := c.signature(); err != nil {
			return err
		}
	}
	if t := c.p.timestamp; t != nil && t.stage == stageBody {
		if err := c.judgeTimestamp(); err != nil {
			return err
		}
	}
	return c.resolve()
}

func (c *check) mostBody() int { return cmp.Or(c.v.MaxBody, DefaultMaxBody) }

// afterSignature is step 8: what nobody needed before.
func (c *check) afterSignature() *Error {
	if t := c.p.timestamp; t != nil && t.stage == stageLate {
		if err := c.judgeTimestamp(); err != nil {
			return err
		}
	}
	if c.p.id != nil {
		if c.p.id.late {
			if err := c.lateDeliveryID(); err != nil {
				return err
			}
		} else {
			c.envelope.IDSigned = c.p.id.signed || c.coveredID()
		}
	}
	c.eventType()
	return nil
}

func (c *check) judgeTimestamp() *Error {
	text, err := c.demand(&c.p.timestamp.from)
	if err != nil {
		// What does not parse behind a valid signature is the sender's fault, not forgery.
		if c.p.timestamp.stage == stageLate && err.Reason == ReasonBodyUnparsable {
			err.Reason = ReasonTimestampMalformed
		}
		return err
	}
	return c.judge(text)
}

// Check finds what can be known to be wrong before the first request: no scheme,
// no keys, secrets of the wrong kind or too short, more than four keys active at
// one time, a URL or parameters that the scheme needs and that are not there.
func (v *Verifier) Check() error {
	p := v.Scheme.p
	if p == nil || !p.ready {
		return errors.New("verify: no scheme")
	}
	keys := v.Keys.Keys()
	if err := v.checkHandshakes(); err != nil {
		return fmt.Errorf("verify: %s: %w", p.title(), err)
	}
	if len(keys) == 0 && v.Handshakes.EnrolUntil.IsZero() {
		return fmt.Errorf("verify: %s: no keys", p.title())
	}
	for i := range keys {
		if !p.usable(&keys[i]) {
			return fmt.Errorf("verify: key %q: %w: not of the kind or length that %s demands",
				keys[i].ID, ErrKeyUnusable, p.title())
		}
	}
	if v.Keys.mostActive(p.keyID.kind != placeNone) > maxActive {
		return fmt.Errorf("verify: %s: more than %d keys are active at one time", p.title(), maxActive)
	}
	if v.Tolerance < 0 {
		return errors.New("verify: tolerance is negative")
	}
	if v.MaxBody < 0 {
		return errors.New("verify: max body is negative")
	}
	if p.needsURL && !strings.Contains(v.URL, "://") {
		return fmt.Errorf("verify: %s signs the public URL, and none is given", p.title())
	}
	if p.queryByURL && strings.Contains(v.URL, "?") {
		return fmt.Errorf("verify: %s signs the query by the public URL, which has a query of its own", p.title())
	}
	for _, name := range p.recipe.Params {
		if v.Params[name] == "" {
			return fmt.Errorf("verify: %s needs the parameter %s", p.title(), name)
		}
	}
	return nil
}
