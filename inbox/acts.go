package inbox

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// PastAct is what a person did: a line of the audit, which is only ever appended to.
type PastAct struct {
	ID     int64
	At     time.Time
	Tenant string
	Actor  string
	Action string // release, replay, cancel, route, prune …
	Reason string
	Detail string

	DeliveryID int64 // of the delivery's row; 0: the act was about none
	ForwardID  int64 // 0: about none
	ResourceID int64 // of the lane's row; 0: about none
}

// ActFilter says which acts to list, the first one first.
type ActFilter struct {
	// Delivery is the row of a delivery: its acts are those on it, on its forwards and
	// on the lanes in which they stand as a whole. 0: acts on anything.
	Delivery int64
	Since    time.Time
	// After goes on behind the act with this ID.
	After int64
	// Limit ends the list. Defaults to no limit.
	Limit int
}

const actColumns = `id, at, tenant, actor, action, reason, coalesce(detail, ''), coalesce(inbox_id, 0), coalesce(outbox_id, 0), coalesce(resource, 0)`

const actsSQL = `SELECT ` + actColumns + ` FROM hooklatch.audit WHERE id > $1 AND at >= $2 ORDER BY id LIMIT $3`

const actsOfDeliverySQL = `
SELECT ` + actColumns + ` FROM hooklatch.audit
WHERE id IN (
	SELECT id FROM hooklatch.audit WHERE inbox_id = $4
	UNION SELECT a.id FROM (
		SELECT r.id FROM (SELECT destination, lane FROM hooklatch.outbox WHERE inbox_id = $4 AND lane IS NOT NULL OFFSET 0) o
		CROSS JOIN LATERAL (SELECT id FROM hooklatch.resource WHERE destination = o.destination AND lane = o.lane OFFSET 0) r) r
	CROSS JOIN LATERAL (SELECT id FROM hooklatch.audit WHERE resource = r.id AND inbox_id IS NULL ORDER BY id DESC LIMIT 1000) a)
AND id > $1 AND at >= $2 ORDER BY id LIMIT $3`

// actPage is how many acts one round trip brings.
const actPage = 200

// Acts lists what people did, in its order. It reads page by page as far as the
// caller goes on.
func (s *Store) Acts(ctx context.Context, f ActFilter) iter.Seq2[PastAct, error] {
	return func(yield func(PastAct, error) bool) {
		after := f.After
		for left := f.Limit; ; left -= actPage {
			size := actPage
			if f.Limit > 0 && left < size {
				size = left
			}
			sql, args := actsSQL, []any{after, f.Since, size}
			if f.Delivery != 0 {
				sql, args = actsOfDeliverySQL, append(args, f.Delivery)
			}
			page, err := collect(ctx, s, roleRead, scanAct, sql, args...)
			if err != nil {
				yield(PastAct{}, readError("acts", err))
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
				after = a.ID
			}
			if len(page) < size || f.Limit > 0 && left <= actPage {
				return
			}
		}
	}
}

func scanAct(row pgx.CollectableRow) (a PastAct, err error) {
	err = row.Scan(&a.ID, &a.At, &a.Tenant, &a.Actor, &a.Action, &a.Reason, &a.Detail, &a.DeliveryID, &a.ForwardID, &a.ResourceID)
	return a, err
}
