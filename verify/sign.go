package verify

import (
	"errors"
	"net/http"
	"time"
)

// SignOptions says what to sign with.
type SignOptions struct {
	Key        Key       // zero: the newest active one of Verifier.Keys
	DeliveryID string    // demanded by schemes whose id stands in a header
	Time       time.Time // zero: now
}

// ErrNoSigner is returned by Sign for schemes that it cannot sign.
var ErrNoSigner = errors.New("verify: no signer for this scheme")

// Sign returns the headers to add to r. It refuses what Verify would refuse.
func (v *Verifier) Sign(r Request, o SignOptions) (http.Header, error) {
	return nil, ErrNoSigner
}
