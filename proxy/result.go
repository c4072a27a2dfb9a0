package proxy

import (
	"time"

	"github.com/google/uuid"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// Outcome is what became of a request, from a closed set.
type Outcome string

// The outcomes.
const (
	OutcomeAccepted    Outcome = "accepted"    // committed now
	OutcomeDuplicate   Outcome = "duplicate"   // committed before, or answered as if it were
	OutcomeConflict    Outcome = "conflict"    // other bytes are stored under this id
	OutcomeRefused     Outcome = "refused"     // turned away before the inbox
	OutcomeHandshake   Outcome = "handshake"   // no delivery: answered, nothing stored
	OutcomeUnavailable Outcome = "unavailable" // our fault; the sender should come again
	OutcomePassed      Outcome = "passed"      // for no source: the upstream's to answer
)

// StatusDisconnected is Result.Status where the sender had closed its side before
// the answer. It never goes over the wire.
const StatusDisconnected = 499

// Result is the report of one request, for logs and metrics. It holds no secret,
// no signature and nothing of the body; ids in it have passed their grammar.
type Result struct {
	RequestID uuid.UUID // the sender has it too, as X-Request-Id
	Source    string    // empty where the request belongs to none
	Tenant    string
	Peer      string // address that it came from: of the connection, or as a trusted proxy says

	Outcome Outcome
	Status  int    // of the answer, or StatusDisconnected
	Code    string // what the sender is told of a refusal; empty after a commit
	Reason  string // the precise cause of a refusal: a verify.Reason, else Code
	Field   string // the header at fault, as the scheme names it
	Err     error  // a fault of ours, with its cause

	// DeliveryID of a refused request is what it said, where that passed its grammar.
	DeliveryID, EventID, EventType string
	// Scheme is as configured, and so is KeyID, but for the reason key_unknown: then
	// it is what the request said, where that is short and printable.
	Scheme, KeyID string
	Retiring      bool // a later key is active beside KeyID
	MetaError     string
	Forwards      int // destinations of the delivery

	BodyHash  [32]byte // zero where no whole body was read
	BodyBytes int64    // read, or declared where the body was not read
	BodyLimit int64    // the source's cap
	// Distance is the signed timestamp minus now; zero where it was not read.
	Distance time.Duration
	Duration time.Duration // from the end of the request's header to the answer; of a passed one to its end

	// Handshake is the kind, one of verify.HandshakeKinds, where the request was one
	// and its answer was not refused by the scheme.
	Handshake string

	Duplicate bool
	// Conflict: other bytes are stored under this id. The sender is told so, or that it
	// is a duplicate: [Source.OnConflict].
	Conflict bool
	// KeptAs is the delivery id under which the body guard found the same body; empty
	// where the request is known by its own.
	KeptAs string
	// Explaining: OnExplain will be told of this request too. Unexplained: its MAC has
	// failed, and nobody will look into it.
	Explaining, Unexplained bool
	FirstConflict           bool // no conflict was seen before under this id: the time for an alarm
	// Disconnected: the sender had closed its side before the answer. What it sent
	// whole was stored all the same.
	Disconnected bool
}

func (r *Result) conflict(c *inbox.ConflictError) {
	r.Conflict, r.FirstConflict, r.Err = true, c.First, c.Unrecorded
}

// describe takes over what is known of a verified delivery.
func (r *Result) describe(env *verify.Envelope, d *inbox.Delivery) {
	r.Scheme, r.KeyID, r.Retiring = env.Scheme, env.KeyID, env.Retiring
	r.Distance = env.Distance
	r.DeliveryID, r.EventID, r.EventType = d.DeliveryID, d.EventID, d.EventType
	r.MetaError, r.Forwards = d.MetaError, len(d.Forwards)
}
