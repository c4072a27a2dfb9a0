package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// TenantBacklog is what waits for one destination and belongs to one tenant.
type TenantBacklog struct {
	Tenant   string
	Forwards int       // of the oldest that are looked at
	Oldest   time.Time // since when the oldest has been due
}

// strandedLook is how many forwards are looked at, the oldest first. What nobody may
// claim grows old, and so is among them.
const strandedLook = 10_000

const strandedSQL = `
SELECT tenant, count(*), min(next_attempt_at) FROM (
	(SELECT tenant, next_attempt_at FROM hooklatch.outbox WHERE destination = $1 AND state IN ('pending', 'retry_wait') AND lane IS NULL
	ORDER BY next_attempt_at, id LIMIT $3)
	UNION ALL
	(SELECT tenant, next_attempt_at FROM hooklatch.outbox WHERE destination = $1 AND ` + inLaneDue + `
	ORDER BY next_attempt_at, id LIMIT $3)) oldest
WHERE tenant <> ALL ($2::text[]) GROUP BY tenant ORDER BY tenant`

// Stranded lists what waits for a destination and no claim of these tenants will ever
// take, by tenant: what is left of sources that have gone or have got another tenant.
func (s *Store) Stranded(ctx context.Context, destination string, tenants []string) ([]TenantBacklog, error) {
	if tenants == nil {
		tenants = []string{}
	}
	all, err := collect(ctx, s, roleRead, pgx.RowToStructByPos[TenantBacklog], strandedSQL, destination, tenants, strandedLook)
	if err != nil {
		return nil, readError("stranded forwards", err)
	}
	return all, nil
}
