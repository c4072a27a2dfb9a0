package inbox

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// AttemptFilter says which attempts to read: those of one forward.
type AttemptFilter struct {
	ForwardID int64
	// After goes on behind the attempt of this number.
	After int
	// Limit ends the list. Defaults to no limit.
	Limit int
}

const attemptsSQL = `
SELECT a.outbox_id, o.destination, a.number, a.late, a.ended_at, coalesce(extract(epoch FROM a.duration) * 1e6, 0)::int8, a.class,
	coalesce(a.status, 0), coalesce(a.error, ''), a.answer, coalesce(a.worker, ''), coalesce(a.replayed_by, ''),
	coalesce(a.config_revision, 0)
FROM hooklatch.attempt a JOIN hooklatch.outbox o ON o.id = a.outbox_id
WHERE a.outbox_id = $1 AND (a.number, a.late) > ($2, $3) ORDER BY a.number, a.late LIMIT $4`

// attemptPage is how many attempts one round trip brings.
const attemptPage = 100

// Attempts lists the ledger of one forward, the first attempt first. It reads
// page by page as far as the caller goes on.
func (s *Store) Attempts(ctx context.Context, f AttemptFilter) iter.Seq2[Attempt, error] {
	return func(yield func(Attempt, error) bool) {
		number, late := f.After, true
		for left := f.Limit; ; left -= attemptPage {
			size := attemptPage
			if f.Limit > 0 && left < size {
				size = left
			}
			page, err := collect(ctx, s, roleRead, scanAttempt, attemptsSQL, f.ForwardID, number, late, size)
			if err != nil {
				yield(Attempt{}, readError("attempts", err))
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
				number, late = a.Number, a.Late
			}
			if len(page) < size || f.Limit > 0 && left <= attemptPage {
				return
			}
		}
	}
}

func scanAttempt(row pgx.CollectableRow) (a Attempt, err error) {
	var duration int64
	err = row.Scan(&a.ForwardID, &a.Destination, &a.Number, &a.Late, &a.EndedAt, &duration, &a.Class,
		&a.Status, &a.Error, &a.Answer, &a.Worker, &a.ReplayedBy, &a.ConfigRevision)
	a.Duration = time.Duration(duration) * time.Microsecond
	return a, err
}
