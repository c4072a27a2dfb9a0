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

	// CompareHash is what conflicts are judged by beside BodyHash: a SHA-256 over the
	// body without the parts in which the sender's retries differ. Two deliveries of one
	// id are the same where either hash agrees. Zero: there is none.
	CompareHash [32]byte
	// AcceptFirst makes other bytes under a known id a duplicate, for senders that one
	// refusal turns off. They are kept as evidence all the same: Receipt.Conflict.
	AcceptFirst bool
	// BodyGuard makes a new id a duplicate where this source has brought the same body
	// within that time before, for schemes that do not sign the id. 0: off.
	BodyGuard time.Duration

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
	// Deadline is how long after the receipt the forward may still be tried; one that
	// had to wait for its turn in a lane, after its turn has come. Defaults to 24 hours.
	Deadline time.Duration
	// Ordering is the order within the delivery's resource. Without a resource or a
	// revision there is none, whatever it says.
	Ordering Ordering
	// GapTimeout is how long, after the receipt, a strict forward waits for revisions
	// that are missing before it. 0: until a person releases it.
	GapTimeout time.Duration
	// Hold makes the forward wait for a person.
	Hold bool
}

// Receipt is the proof that a delivery is committed.
type Receipt struct {
	ID         int64     // of the delivery
	Duplicate  bool      // the same bytes were there before
	ReceivedAt time.Time // of the first receipt, the same for every duplicate

	// DeliveryID is the id under which the delivery is kept: another one than was
	// asked for where Delivery.BodyGuard found the same body.
	DeliveryID string
	// Conflict is set where Delivery.AcceptFirst made other bytes a duplicate.
	Conflict *ConflictError
}
