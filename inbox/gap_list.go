package inbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// Gap is a jump in the revisions of a strict lane.
type Gap struct {
	ID                          int64
	Tenant, Source, Destination string
	ResourceType, ResourceID    string

	FirstMissing, LastMissing int64
	OpenedAt                  time.Time // receipt of what revealed it
	ClosedAt                  time.Time // zero: it is open
	// ClosedBy is arrival, backfill, release or timeout; empty: it is open.
	ClosedBy string

	// Waits is the first forward behind an open gap, with the identity of its delivery;
	// nil: none is left. Its NextAttemptAt is when the gap is given up, zero: a person
	// must release it.
	Waits *Forward
}

// Cursor is where the gap stands in the order of Gaps, for GapFilter.After, also in
// another process.
func (g *Gap) Cursor() string { return cursorOf(g.OpenedAt, g.ID) }

// GapFilter says which gaps to list, the latest first.
type GapFilter struct {
	// All takes closed ones too. Defaults to the open ones.
	All bool

	Source      string
	Destination string
	Tenant      string
	Since       time.Time // opened since then

	// After goes on behind a gap that was listed before: its Cursor.
	After string
	// Limit ends the list. Defaults to no limit.
	Limit int
}

const gapColumns = `g.id, g.tenant, r.source, r.destination, r.resource_type, r.resource_id,
	g.first_missing, g.last_missing, g.opened_at, g.closed_at, coalesce(g.closed_by, '')`

const gapConditions = ` AND g.opened_at >= $4 AND ($5 = '' OR r.source = $5) AND ($6 = '' OR r.destination = $6) AND ($7 = '' OR g.tenant = $7)
	AND (g.opened_at, g.id) < ($1, $2) ORDER BY g.opened_at DESC, g.id DESC LIMIT $3`

// The open gaps are few beside the closed ones of all time, and have an index of
// their own.
const (
	openGapsSQL = `SELECT ` + gapColumns + `, r.lane FROM hooklatch.gap g JOIN hooklatch.resource r ON r.id = g.resource
		WHERE g.closed_at IS NULL` + gapConditions
	allGapsSQL = `SELECT ` + gapColumns + `, r.lane FROM hooklatch.gap g JOIN hooklatch.resource r ON r.id = g.resource
		WHERE true` + gapConditions
	openGapSQL = `SELECT ` + gapColumns + `, r.lane FROM hooklatch.gap g JOIN hooklatch.resource r ON r.id = g.resource
		WHERE g.resource = $1 AND g.closed_at IS NULL`
)

// gapPage is how many gaps one round trip brings.
const gapPage = 200

// Gaps lists gaps in the revisions of resources, the latest first. It reads page by
// page as far as the caller goes on, each page through an index.
func (s *Store) Gaps(ctx context.Context, f GapFilter) iter.Seq2[Gap, error] {
	return func(yield func(Gap, error) bool) {
		at, id := time.Now().AddDate(100, 0, 0), int64(0)
		if f.After != "" {
			var err error
			if at, id, err = parseCursor(f.After); err != nil {
				yield(Gap{}, fmt.Errorf("gaps: %w", err))
				return
			}
		}
		for left := f.Limit; ; left -= gapPage {
			size := gapPage
			if f.Limit > 0 && left < size {
				size = left
			}
			page, err := s.gapPage(ctx, f, at, id, size)
			if err != nil {
				yield(Gap{}, readError("gaps", err))
				return
			}
			for _, g := range page {
				if !yield(g, nil) {
					return
				}
				at, id = g.OpenedAt, g.ID
			}
			if len(page) < size || f.Limit > 0 && left <= gapPage {
				return
			}
		}
	}
}

func (s *Store) gapPage(ctx context.Context, f GapFilter, at time.Time, id int64, size int) (page []Gap, err error) {
	sql := openGapsSQL
	if f.All {
		sql = allGapsSQL
	}
	err = s.as(ctx, roleRead, func(tx pgx.Tx) error {
		page, err = readGaps(ctx, tx, sql, at, id, size, f.Since, f.Source, f.Destination, f.Tenant)
		return err
	})
	return page, err
}

// readGaps reads gaps, and what waits behind those that are open.
func readGaps(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]Gap, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	var lanes [][]byte
	gaps, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g Gap, err error) {
		var closed *time.Time
		var lane []byte
		err = row.Scan(&g.ID, &g.Tenant, &g.Source, &g.Destination, &g.ResourceType, &g.ResourceID,
			&g.FirstMissing, &g.LastMissing, &g.OpenedAt, &closed, &g.ClosedBy, &lane)
		g.ClosedAt = timeOr(closed)
		lanes = append(lanes, lane)
		return g, err
	})
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	for i := range gaps {
		if g := &gaps[i]; g.ClosedAt.IsZero() {
			batch.Queue(headSQL, g.Destination, lanes[i], g.LastMissing).Query(func(rows pgx.Rows) (err error) {
				g.Waits, err = first(pgx.CollectRows(rows, scanStanding))
				return err
			})
		}
	}
	return gaps, tx.SendBatch(ctx, batch).Close()
}

// openGap is the open gap of a lane; nil: there is none.
func openGap(ctx context.Context, tx pgx.Tx, resource int64) (*Gap, error) {
	return first(readGaps(ctx, tx, openGapSQL, resource))
}
