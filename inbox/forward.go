package inbox

import "time"

// State is where a forward stands. The package comment draws the ways between
// the states.
type State string

// The states of a forward, as they stand in the database.
const (
	Pending    State = "pending"    // not tried yet
	RetryWait  State = "retry_wait" // failed, will be tried again
	Held       State = "held"       // waits for something else than time
	Accepted   State = "accepted"   // the destination answered 2xx
	Blocked    State = "blocked"    // a dead letter: only a person moves it
	Superseded State = "superseded" // not sent: a later revision was applied
	Cancelled  State = "cancelled"  // a person decided that it is not sent
)

// Ordering is how the forwards of one resource to one destination follow each other,
// by revision. The clocks of senders decide nothing.
type Ordering string

// The orderings.
const (
	OrderNone     Ordering = ""         // each forward on its own
	OrderLatest   Ordering = "latest"   // one at a time, lowest revision first; what comes late is superseded
	OrderCoalesce Ordering = "coalesce" // as latest, and only the newest of those that wait is sent
	OrderStrict   Ordering = "strict"   // as latest, and no revision is left out
)

// HoldReason says what a held forward waits for.
type HoldReason string

// The reasons.
const (
	HoldGap        HoldReason = "gap"        // revisions are missing before it
	HoldBackfill   HoldReason = "backfill"   // the paced release of a backfill
	HoldUnverified HoldReason = "unverified" // a backfilled body that nobody has signed
	HoldPerson     HoldReason = "person"     // a person's decision
)

// Forward is the duty to hand one delivery to one destination, as Claim leases
// it and Forwards lists it.
type Forward struct {
	ID          int64
	Destination string
	State       State
	// Attempt is the number of the current attempt, from 1, where the forward was
	// claimed; else the number of attempts so far.
	Attempt int
	// AttemptsFree counts attempts that use up no budget.
	AttemptsFree int
	// Token fences this lease. Settle and Renew demand it.
	Token         int64
	LeaseUntil    time.Time // zero: no lease
	NextAttemptAt time.Time // earliest time of the next attempt; zero: time alone brings none
	ExpiresAt     time.Time // after this no attempt begins
	BlockedReason string    // why a blocked forward is blocked
	HoldReason    HoldReason
	Ordering      Ordering  // OrderNone: it stands in no lane
	Waiting       bool      // behind another forward of its lane
	SettledAt     time.Time // zero: not settled
	// Last says that no attempt follows this one, whatever its end: a replay is one
	// attempt.
	Last bool
	// ReplayedBy is who decided about the attempts to come; empty: nobody had to.
	ReplayedBy string
	Owner      string // of a dead letter; empty: that of the destination

	// Delivery is what to hand over, with Body and Header where the forward was
	// claimed. Forwards leaves it empty.
	Delivery Delivery
}

// ClaimRequest says what a worker can take.
type ClaimRequest struct {
	Destination string
	// Tenants are those whose forwards may be taken. The forwards of others stay where
	// they are, and the database shows them to nobody here. nil: of every tenant that
	// has something due, which each claim has to find out first.
	Tenants []string
	// Limit is the most forwards to take: the worker's free slots.
	Limit int
	// Lease is how long they stay ours. It must exceed the time of an attempt.
	Lease time.Duration
	// Shares is what each tenant may take, where Tenants names several. A tenant that is
	// not named has a weight of 1 and no bound. nil: all of them are as one.
	Shares map[string]Share
	// ForRetries is how many of the places retries have before new forwards, and
	// ForNew how many only new ones may take. Of the others new ones are taken first, then
	// those that have been due longest.
	ForRetries, ForNew int
	// MaxAttempts blocks, instead of handing out, a forward that had as many
	// attempts that count. 0: no limit.
	MaxAttempts int
	// Worker names the process, for people who read the ledger.
	Worker string
	// ConfigRevision is recorded with attempts that end as unknown.
	ConfigRevision int64
	// Now replaces the database's clock. Only tests set it.
	Now time.Time
}

// Share is what one tenant may take of the places of a destination. Tenants that have
// something due are served in proportion to their weights.
type Share struct {
	Weight int // 1 or more
	Busy   int // places that it has already
	Most   int // forwards that may be taken now
}

// Outcome is what a worker decided about a claimed forward.
type Outcome int

// The outcomes. The zero Outcome is refused, so that it cannot be forgotten.
const (
	_               Outcome = iota
	OutcomeAccepted         // handed over: the forward is accepted
	OutcomeRetry            // failed for now: due again after Delay
	OutcomeBlocked          // failed for good: a person must look
	OutcomeReleased         // never sent: due at once, and the attempt does not count
)

// Settlement ends a lease.
type Settlement struct {
	ForwardID int64
	Tenant    string // of its delivery; a wrong one finds no lease
	Token     int64  // of the lease that ends
	Attempt   int    // number of the attempt that ended

	Outcome Outcome
	// Delay is how long after now a retry is due. Only with OutcomeRetry.
	Delay time.Duration
	// Free: the attempt uses up no budget (429 or 503 with Retry-After).
	Free bool
	// Reason says why the forward is blocked, as a fixed code. Only with
	// OutcomeBlocked.
	Reason string

	// What the ledger keeps of the attempt; ignored with OutcomeReleased.
	Class    string        // kind of end: 2xx 3xx 4xx 429 5xx timeout network unknown
	Status   int           // HTTP status of the answer; 0: none
	Error    string        // for people; empty when there was none
	Answer   []byte        // first bytes of the answer's body
	Duration time.Duration // of the attempt
	Worker   string

	ConfigRevision int64
	Now            time.Time // replaces the database's clock. Only tests set it
}

// Attempt is one line of the ledger.
type Attempt struct {
	ForwardID   int64
	Destination string
	Number      int
	Late        bool // ended after its lease was lost; it changed nothing
	EndedAt     time.Time
	Duration    time.Duration
	Class       string
	Status      int
	Error       string
	Answer      []byte
	Worker      string
	ReplayedBy  string // who wanted this attempt; empty: it was due by itself

	ConfigRevision int64
}
