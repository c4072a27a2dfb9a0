// Package consumer hands due forwards to a [Handler]: so many at once, again
// when the Handler fails. It may hand over the same forward twice; it cannot
// settle one whose lease it has lost.
//
// # One Consumer, one destination
//
// A [Consumer] claims forwards of its destination in batches, never more than
// it has free slots, and works on each under a lease. [Consumer.Wake] after a
// commit makes it look at once; without it the look comes with the next poll,
// which needs no notification of any kind. A claim that came back full is
// followed by another, so a backlog is not worked off at the pace of the poll,
// and a retry whose pause is shorter than Poll is looked for when it is over.
//
// A slot is held while the Handler runs. What follows, the settlement, shares
// its transaction with others and holds no slot, so it does not slow down the
// destination.
//
// # What becomes of an attempt
//
//	Handler returned             outcome      class
//	nil                          accepted     2xx
//	*AttemptError, Permanent     blocked      its own
//	*AttemptError                retry        its own
//	any other error, a panic     retry        error
//	nothing in time              retry        timeout
//	cut off by a stop            retry now    unknown
//
// A retry waits a random time between 0 and min(cap, base·2ⁿ), n being 0 after
// the first attempt, so that a whole backlog does not come back in step. A
// Retry-After on 429 or 503 is honoured up to the cap, and such an attempt uses
// up no budget. When the budget is used up, or the retry would lie beyond the
// forward's deadline, the forward is blocked at once: a person must look.
//
// # What is promised, and where it stops
//
// Each forward is handed over at least once, or ends blocked where people see
// it. "At least" is meant: a process may die between the destination's answer
// and the settlement, and then the forward is handed over again, with the same
// delivery id and a higher attempt number. With [NewTx] business rows and the
// settlement commit together, which is as near to once as a database comes.
//
// Trouble with the database ends nothing: claims and settlements are tried
// again, with growing pauses, and reported through OnError.
//
// # Stop
//
// When the context of [Consumer.Run] ends, claiming stops at once, forwards that
// were claimed but not handed over are released, and attempts in flight get
// Grace to finish. Those that do not are cancelled and recorded as unknown. Run
// returns when no lease is left.
package consumer
