package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// TenantBacklog is what waits for one destination and belongs to one tenant.
type TenantBacklog struct {
	Tenant   string
	Forwards int       // of those that are looked at
	Oldest   time.Time // since when the oldest has been due
}

// strandedLook is how many forwards of each tenant are looked at, in lanes and outside.
const strandedLook = 10_000

const strandedSQL = tenantsOf + `
SELECT k.tenant, count(*), min(o.next_attempt_at)
FROM (SELECT tenant FROM alone UNION SELECT tenant FROM ordered) k
CROSS JOIN LATERAL (
	(SELECT next_attempt_at FROM hooklatch.outbox WHERE destination = $1 AND tenant = k.tenant AND ` + loneDue + `
	ORDER BY state, next_attempt_at, id LIMIT $3)
	UNION ALL
	(SELECT next_attempt_at FROM hooklatch.outbox WHERE destination = $1 AND tenant = k.tenant AND ` + inLaneDue + `
	ORDER BY state, next_attempt_at, id LIMIT $3)) o
WHERE k.tenant <> ALL ($2::text[]) GROUP BY k.tenant ORDER BY k.tenant`

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
