package inbox

import (
	"time"

	"github.com/google/uuid"
)

// MaxAccept is the longest time that Accept takes for its whole work, with the
// default of Config.MaxWait. Senders give up after 5 to 30 seconds.
const MaxAccept = 4 * time.Second

// Delivery is one event from one source to us.
type Delivery struct {
	// ID is the row's number: a handle for Payload, Forwards and cursors. Accept
	// ignores it.
	ID int64

	// Tenant, Source and DeliveryID are the identity. All three are demanded.
	Tenant, Source, DeliveryID string

	// Body is the raw body as received, not to be changed by anyone. Find leaves
	// it and the other parts of the request empty; Payload reads them.
	Body []byte
	// BodyHash is the SHA-256 of Body. Accept trusts one that is set, and makes it
	// where it is zero.
	BodyHash [32]byte
	// BodySize is len(Body) at the time of receipt; it outlives the body.
	BodySize int
	// Method, RawQuery and Header are the rest of the request as received.
	// Header values are kept as bytes.
	Method   string
	RawQuery string
	Header   map[string][]string

	// Facts about the receipt.
	RequestID  uuid.UUID // our id of the request; uuid.Nil when there is none
	Peer       string    // address of the sender, for people
	Scheme     string    // signature scheme that verified the request
	KeyID      string    // key that verified it
	ReceivedAt time.Time // database time of the first receipt. Accept ignores it

	// Metadata from the verified request; empty when it has none. Values that
	// Postgres cannot hold as text (NUL, invalid UTF-8) are dropped by Accept,
	// which then says so in MetaError.
	EventID, EventType       string
	ResourceType, ResourceID string
	Revision                 *int64
	Deleted                  bool   // the event reports the end of its resource
	MetaError                string // why some metadata is missing; empty when all is well

	// ConfigRevision is the configuration that was running; 0 when unknown.
	ConfigRevision int64

	// Forwards are the destinations of this delivery, each at most once. Accept
	// makes one forward for each, in the delivery's own transaction. Find leaves
	// it empty; Store.Forwards reads them.
	Forwards []NewForward
}

// NewForward asks for a forward to one destination.
type NewForward struct {
	Destination string
	// Deadline is how long after the receipt the forward may still be tried.
	// Defaults to 24 hours.
	Deadline time.Duration
}

// Receipt is the proof that a delivery is committed.
type Receipt struct {
	ID         int64     // of the delivery
	Duplicate  bool      // the same bytes were there before
	ReceivedAt time.Time // of the first receipt, the same for every duplicate
}
