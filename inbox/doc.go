// Package inbox keeps each delivery once, says what may be worked on, and
// remembers every attempt. It is the only package with SQL over deliveries.
//
// # Three identities
//
//   - A delivery is (tenant, source, delivery id), stable over the sender's
//     retries. The first verified body stays; Accept of the same bytes again is
//     a duplicate, of other bytes a [ConflictError]. For senders that keep to that
//     less well there are CompareHash, AcceptFirst and BodyGuard of [Delivery].
//   - A forward is the duty to hand one delivery to one destination. It is born
//     in the same transaction as its delivery. A delivery without one is kept, and
//     listed by [Store.Unrouted]; [Store.Route] makes its forwards later.
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
// A lease is columns on the row, not a state: an expired lease is simply due again.
// Every lease has a token, one higher than the last; Settle and Renew with an older
// token change nothing and return [ErrLeaseLost].
//
// Order and people decide about the others:
//
//	pending, retry_wait ──Claim: a revision is missing──▶ held (gap)
//	held (gap) ──the gap is closed, given up, or released──▶ pending
//	pending, retry_wait, held (gap) ──Claim: passed, or a newer one is sent in its place──▶ superseded
//	blocked, held (person) ──Replay──▶ pending, retry_wait
//	pending, retry_wait, held, blocked ──Cancel──▶ cancelled
//
// # Order
//
// Forwards of one resource to one destination make a lane, if their source orders them.
// At most one forward of a lane has a live lease, and what is sent follows the
// revisions, which are numbers that only grow. No clock of a sender decides anything.
//
//	          sent next                          a gap                  a dead letter
//	latest    the lowest revision above passed   is no matter           is no matter
//	coalesce  the newest that waits; the others  is no matter           is no matter
//	          are superseded
//	strict    passed + 1                         holds the later ones   holds the later ones
//
// A lane remembers the highest revision that the destination has accepted, applied, and
// the one up to which nothing is sent any more, passed. They differ where somebody gave
// something up. At or below passed a forward is superseded and never sent; a delete
// leaves its revision behind like any other, so that a late update does not bring the
// resource back. Of two deliveries with one revision the first stays, and other content
// in the second is told to Config.OnRevisionConflict. A forward that fails keeps its
// place, but under coalesce, where a newer one takes it. The first revision that a strict
// lane sends is the lowest that waits then.
//
// A gap is what is missing between passed and the first of a strict lane. It closes when
// it has arrived, after NewForward.GapTimeout, or by [Store.Release], which also steps
// over a dead letter. A revision that is here, and that nobody is to send to this
// destination, since no route leads there or a person has cancelled it, is not missing.
//
// What waits in a lane or for a gap, and was never tried, has its whole deadline when its
// turn comes. What was tried before has not: if its time is over by then, it is blocked
// like any other, and a strict lane waits for a person.
//
// A lane begins with the first claim that meets it. What its forwards do before that,
// and what stands in no lane, has no order.
//
// # What is promised, and where it stops
//
// After Accept returns nil the delivery survives a crash of this process and of
// Postgres. After an error the caller must not tell the sender that it was
// taken; [ErrOutcomeUnknown] says that it may have been, and that the sender's
// retry will find out. A forward is handed out at least once; it is settled
// once. Nothing here promises "exactly once".
//
// # Roles and tenants
//
// Each transaction takes on the role of its purpose: hooklatch_ingest accepts and
// tallies, hooklatch_consumer claims and settles, hooklatch_admin acts for a person and
// prunes, hooklatch_read looks. The login of the pool has to be a member of those that
// it uses, and needs no other right. A transaction also names the tenants that it is
// about, and row-level security shows it no others: those of the deliveries, of
// [ClaimRequest], of a [Settlement]. What people do sees every tenant.
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
// # Proof
//
// [Store.Audit] compares the tables with each other at each step of a delivery's way, and
// names what differs. Every transaction of this package leaves them in agreement, so
// that it may run at any time: a difference is damage, or a fault of ours. It proves
// what the tables show, and not what a disk has lost together with everything about it.
//
// [Store.Follow] shows deliveries as they are committed, which is not the order of their
// ids.
//
// All times of the queue come from the database's clock.
package inbox
