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
// # Who gets the places
//
// A place is held while the Handler runs. What follows, the settlement, shares
// its transaction with others and holds no place, so it does not slow down the
// destination.
//
// Where Config.Tenants names several, they are served by their weights (Config.Shares),
// and none holds more than three quarters of the places, or its part by weight where that
// is more: for the others there is room at once. A quarter of the places is kept for
// forwards that were never tried; where both wait, a quarter of what is taken are retries,
// which hold no more than a quarter of the places then. A single place is taken in turns.
//
// Config.Rate bounds how many attempts begin, with at most a tenth of a second's at once.
// No more is claimed than may begin, so no lease waits for it. Several processes do not
// share it: each has its own places, rate and breaker.
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
// The last attempt of a replay is followed by none, whatever its end.
//
// # A destination that fails
//
//	          Failures in a row             OpenFor is over, or Probe
//	closed ---------------------> open ----------------------------> half open
//	  ^   <-- fewer, while few places are there: the ramp              |    |
//	  |                                              the attempt failed|    |it did not
//	  |                                      open <--------------------+    |
//	  +---------------------------------------------------------------------+
//
// While the breaker is open nothing is claimed, and what a claim brought meanwhile is
// given back unsent. Half open, one attempt is made, and its end decides. Then the
// places grow from one by each success; each failure takes one away until all are there,
// and the last one opens it again. Failures are 5xx, 429, an end by timeout or network and a Handler's error; an
// answer that refuses comes from an app that lives. What says nothing counts as nothing:
// an attempt that we cut off, an idle connection that the app had closed, trouble with
// the database around a [TxHandler]. Each Consumer has a breaker of its own.
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
