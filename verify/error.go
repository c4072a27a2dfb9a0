package verify

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// What a refusal comes down to, found with [errors.Is].
var (
	// ErrMalformed is matched when a header, an id or a timestamp is absent,
	// repeated or misspelled: the request could never verify.
	ErrMalformed = errors.New("verify: malformed request")
	// ErrWindow is matched when the timestamp lies outside the tolerance.
	ErrWindow = errors.New("verify: timestamp out of window")
	// ErrSignature is matched by every failure of keys and signatures. Senders
	// are told all of them with one answer.
	ErrSignature = errors.New("verify: signature invalid")
)

// Reason says precisely why a request was refused. The list is closed; it goes
// to logs and metrics, never to the sender.
type Reason string

const (
	// ReasonHeaderMissing: a named header or a signed value is absent or empty.
	ReasonHeaderMissing Reason = "header_missing"
	// ReasonHeaderDuplicated: one that is single-valued is there twice.
	ReasonHeaderDuplicated Reason = "header_duplicated"
	// ReasonDeliveryIDInvalid: other characters, too long, or not of the pattern.
	ReasonDeliveryIDInvalid Reason = "delivery_id_invalid"
	// ReasonTimestampMalformed: not of the grammar.
	ReasonTimestampMalformed Reason = "timestamp_malformed"
	// ReasonTimestampOutOfWindow: further from now than the tolerance.
	ReasonTimestampOutOfWindow Reason = "timestamp_out_of_window"
	// ReasonSignatureMissing: absent or empty.
	ReasonSignatureMissing Reason = "signature_missing"
	// ReasonSignatureMalformed: no candidate has the spelling and length of one.
	ReasonSignatureMalformed Reason = "signature_malformed"
	// ReasonPrecondition: a required header or parameter differs.
	ReasonPrecondition Reason = "precondition"
	// ReasonKeyUnknown: no key of that id, or no keys at all.
	ReasonKeyUnknown Reason = "key_unknown"
	// ReasonKeyExpired: the key is past its span.
	ReasonKeyExpired Reason = "key_expired"
	// ReasonKeyNotYetValid: the key is before its span.
	ReasonKeyNotYetValid Reason = "key_not_yet_valid"
	// ReasonSignatureMismatch: no key and candidate agree.
	ReasonSignatureMismatch Reason = "signature_mismatch"
	// ReasonAlgorithmRefused: no scheme, or an algorithm that the scheme does not allow.
	ReasonAlgorithmRefused Reason = "algorithm_refused"
	// ReasonClaimMismatch: another signed claim does not fit.
	ReasonClaimMismatch Reason = "claim_mismatch"
	// ReasonNotCovered: a component that must be signed is not.
	ReasonNotCovered Reason = "not_covered"
	// ReasonKeySourceRefused: the key is said to be where no key may come from.
	ReasonKeySourceRefused Reason = "key_source_refused"
	// ReasonBodyUnparsable: the signature or signed text lies in a body that does not parse.
	ReasonBodyUnparsable Reason = "body_unparsable"
	// ReasonBodyTooLarge: over the cap.
	ReasonBodyTooLarge Reason = "body_too_large"
	// ReasonHandshakeRefused: a challenge that is not answered.
	ReasonHandshakeRefused Reason = "handshake_refused"
	// ReasonKeyUnusable: the secret is too short or of the wrong kind.
	ReasonKeyUnusable Reason = "key_unusable"
)

// Reasons returns the closed list, for metrics that want every label at once.
func Reasons() []Reason {
	return []Reason{
		ReasonHeaderMissing, ReasonHeaderDuplicated, ReasonDeliveryIDInvalid,
		ReasonTimestampMalformed, ReasonTimestampOutOfWindow, ReasonSignatureMissing,
		ReasonSignatureMalformed, ReasonPrecondition, ReasonKeyUnknown, ReasonKeyExpired,
		ReasonKeyNotYetValid, ReasonSignatureMismatch, ReasonAlgorithmRefused,
		ReasonClaimMismatch, ReasonNotCovered, ReasonKeySourceRefused, ReasonBodyUnparsable,
		ReasonBodyTooLarge, ReasonHandshakeRefused, ReasonKeyUnusable,
	}
}

// Code is what the sender may be told: one code for all failures of keys and
// signatures, so that the answer gives nothing away.
func (r Reason) Code() string {
	switch r {
	case ReasonHeaderMissing, ReasonHeaderDuplicated, ReasonDeliveryIDInvalid,
		ReasonTimestampMalformed, ReasonTimestampOutOfWindow, ReasonBodyTooLarge,
		ReasonHandshakeRefused:
		return string(r)
	}
	return "signature_invalid"
}

// Status is the HTTP status that belongs to [Reason.Code].
func (r Reason) Status() int {
	switch r.Code() {
	case "signature_invalid", string(ReasonTimestampOutOfWindow):
		return http.StatusUnauthorized
	case string(ReasonBodyTooLarge):
		return http.StatusRequestEntityTooLarge
	case string(ReasonHandshakeRefused):
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}

// Error is the refusal of a request. It never holds a secret, a signature or a
// part of the body, so it may be logged whole.
type Error struct {
	Reason Reason
	Scheme string // name of the scheme, may be empty
	// KeyID is the key that was looked up or that fitted. With ReasonKeyUnknown it is
	// what the request said, where that is short and printable.
	KeyID string
	Field string // the header or token at fault, such as "X-Webhook-Timestamp"
	// DeliveryID and Timestamp are what the request said, where that was read before
	// the refusal and passed its grammar. Nobody has signed them.
	DeliveryID, Timestamp string
	// Distance is the timestamp minus now, set when the timestamp was read.
	Distance time.Duration
	// MACValid is true when the signature agrees, but its key is outside its span.
	MACValid bool
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("verify")
	if e.Scheme != "" {
		b.WriteString(" " + e.Scheme)
	}
	b.WriteString(": " + string(e.Reason))
	if e.Field != "" {
		fmt.Fprintf(&b, " (%s)", e.Field)
	}
	if e.KeyID != "" {
		fmt.Fprintf(&b, ", key %q", e.KeyID)
	}
	if e.Reason == ReasonTimestampOutOfWindow && e.Distance != 0 { // a token can end that does not say when it was made
		fmt.Fprintf(&b, ", %s from now", e.Distance)
	}
	return b.String()
}

// Is matches [ErrMalformed], [ErrWindow] and [ErrSignature].
func (e *Error) Is(target error) bool {
	switch e.Reason {
	case ReasonHeaderMissing, ReasonHeaderDuplicated, ReasonDeliveryIDInvalid,
		ReasonTimestampMalformed, ReasonBodyTooLarge:
		return target == ErrMalformed
	case ReasonTimestampOutOfWindow:
		return target == ErrWindow
	}
	return target == ErrSignature
}
