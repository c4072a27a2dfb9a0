package inbox

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// sourcesSQL goes from one name to the next through the index, so that its cost
// is the number of names and not that of deliveries.
const sourcesSQL = `
WITH RECURSIVE s AS (
	(SELECT source FROM hooklatch.inbox ORDER BY source LIMIT 1)
	UNION ALL
	SELECT (SELECT i.source FROM hooklatch.inbox i WHERE i.source > s.source ORDER BY i.source LIMIT 1)
	FROM s WHERE s.source IS NOT NULL)
SELECT source FROM s WHERE source IS NOT NULL`

// Sources returns the names of the sources that the inbox holds deliveries of,
// sorted bytewise, whether or not they are still configured.
func (s *Store) Sources(ctx context.Context) ([]string, error) {
	names, err := collect(ctx, s, roleRead, pgx.RowTo[string], sourcesSQL)
	if err != nil {
		return nil, readError("sources", err)
	}
	return names, nil
}
