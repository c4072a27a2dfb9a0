// Package inbox keeps each delivery once, says what may be worked on, and
// remembers every attempt. It is the only package with SQL over deliveries.
//
// # Three identities
//
//   - A delivery is (tenant, source, delivery id), stable over the sender's
//     retries. The first verified body stays; Accept of the same bytes again is
//     a duplicate, of other bytes a [ConflictError].
//   - A forward is the duty to hand one delivery to one destination. It is born
//     in the same transaction as its delivery.
//   - An attempt is one try of a forward, numbered from 1. Attempts are only
//     ever appended.
//
// # States of a forward
//
//	           Claim (lease)              Settle Accepted
//	pending ──────────────────▶ (leased) ────────────────▶ accepted
//	   ▲                           │  │
//	   │ Settle Released           │  │ Settle Blocked, or no attempts
//	   └───────────────────────────┤  │ or time left at Claim
//	                 Settle Retry  │  └──────────────────▶ blocked
//	retry_wait ◀───────────────────┘
//	   │
//	   └──▶ Claim again when due
//
// Three further states are decided by a person, cancelled, or by order of
// revisions, held and superseded; nothing in this version sets them. A lease is
// columns on the row, not a state: an expired lease is simply due again. Every lease
// has a token, one higher than the last; Settle and Renew with an older token change
// nothing and return [ErrLeaseLost].
//
// # What is promised, and where it stops
//
// After Accept returns nil the delivery survives a crash of this process and of
// Postgres. After an error the caller must not tell the sender that it was
// taken; [ErrOutcomeUnknown] says that it may have been, and that the sender's
// retry will find out. A forward is handed out at least once; it is settled
// once. Nothing here promises "exactly once".
//
// # Tallies
//
// What receivers refuse and which keys sign is counted by them in memory and added
// by [Store.Record], one row for each kind of refusal in a minute and for each key
// in an hour. Tallies use the clock of the process that counted.
//
// # Retention
//
// Nothing goes by itself: [Store.Prune] removes what is older than a [Retention] says,
// batch by batch, and never what an open forward needs. A body goes before the identity
// of its delivery, so that Accept still tells a late repeat from a new delivery. Ages
// count by the database's receipt times; what they are counted from is the caller's.
//
// All times of the queue come from the database's clock.
package inbox
