package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// foresee leaves out of a dry run the dead letters that a replay would refuse.
func (r *replayer) foresee(ctx context.Context, store *inbox.Store, d *inbox.Delivery, lines []replayLine) error {
	dead := map[int64]inbox.DeadLetter{}
	for l, err := range store.DeadLetters(ctx, inbox.DeadFilter{Delivery: d.ID}) {
		if err != nil {
			return err
		}
		dead[l.ID] = l
	}
	for i := range lines {
		l := &lines[i]
		letter, is := dead[l.id]
		switch {
		case l.Did != didReplay || !is:
		case letter.Pruned:
			l.leave(true, "%s", r.gone(d))
		case letter.Superseded && !r.force:
			l.leave(true, "%s", supersededText)
		}
	}
	return nil
}

// sayWhatWaits says of what is due, or would be, why nothing goes out yet.
func sayWhatWaits(ctx context.Context, store *inbox.Store, lines []replayLine) error {
	destinations, err := store.Destinations(ctx)
	if err != nil {
		return err
	}
	for i := range lines {
		l := &lines[i]
		for _, d := range destinations {
			switch {
			case d.Name != l.Destination || l.Did == didLeft:
			case d.Pause != nil:
				l.Waits = fmt.Sprintf("the destination is paused by %s (%s): nothing goes out before it is resumed", d.Pause.By, d.Pause.Reason)
			case d.Breaker.State == inbox.BreakerOpen && d.Breaker.Until.After(time.Now()):
				l.Waits = "the breaker is open: nothing goes out before " + d.Breaker.Until.UTC().Format(time.RFC3339)
			}
		}
	}
	return nil
}
