package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// RevisionBacklog is what waits for one destination and was tried last, or where it was
// never tried was received, under one configuration.
type RevisionBacklog struct {
	ConfigRevision int64 // 0: unknown
	Forwards       int
	Oldest         time.Time // receipt of the oldest
}

// WaitingLook is how many forwards WaitingByRevision looks at, of those in lanes and of
// the others.
const WaitingLook = 5000

// unleased leaves out what is in flight: no index has it, and there is little of it.
const unleased = `(lease_until IS NULL OR lease_until <= clock_timestamp())`

const waitingSQL = `
SELECT coalesce((SELECT a.config_revision FROM hooklatch.attempt a WHERE a.outbox_id = o.id ORDER BY a.number DESC, a.late DESC LIMIT 1), i.config_revision, 0) AS revision,
	count(*), min(i.received_at)
FROM (
	(SELECT id, inbox_id FROM hooklatch.outbox WHERE destination = $1 AND state IN ('pending', 'retry_wait') AND lane IS NULL AND ` + unleased + ` LIMIT $2)
	UNION ALL
	(SELECT id, inbox_id FROM hooklatch.outbox WHERE destination = $1 AND ` + movesInLane + ` AND ` + unleased + ` LIMIT $2)) o
CROSS JOIN LATERAL (SELECT config_revision, received_at FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i
GROUP BY revision ORDER BY revision`

// WaitingByRevision says under which configurations was tried what waits for a
// destination, without what is in flight. It looks at no more than WaitingLook forwards of each kind.
func (s *Store) WaitingByRevision(ctx context.Context, destination string) ([]RevisionBacklog, error) {
	all, err := collect(ctx, s, roleRead, pgx.RowToStructByPos[RevisionBacklog], waitingSQL, destination, WaitingLook)
	if err != nil {
		return nil, readError("waiting forwards", err)
	}
	return all, nil
}
