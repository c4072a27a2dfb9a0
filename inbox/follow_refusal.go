package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// RefusalFollower shows refusals as they are recorded. It is not safe for concurrent
// use.
type RefusalFollower struct {
	s *Store
	f RefusalFilter

	began bool
	low   int64
	known map[int64]int64 // counts
}

// A row grows during its minute, and for as long as a receiver could not write.
const (
	refusalsGrow = 10 * time.Minute
	refusalsBack = 1000 // rows whose ids may be committed late
)

// FollowRefusals returns a RefusalFollower of what f fits by source, tenant and code,
// from the first Next on.
func (s *Store) FollowRefusals(f RefusalFilter) *RefusalFollower {
	return &RefusalFollower{s: s, f: f, known: map[int64]int64{}}
}

const followRefusalsSQL = `
SELECT ` + refusalColumns + ` FROM hooklatch.refusal WHERE id IN (
	SELECT id FROM hooklatch.refusal WHERE minute >= $1
	UNION SELECT id FROM (SELECT id FROM hooklatch.refusal WHERE id > $2 ORDER BY id DESC LIMIT 100000) latest)
ORDER BY last_at, id`

const lastRefusalSQL = `SELECT id FROM hooklatch.refusal ORDER BY id DESC LIMIT 1`

// Next looks once, and returns what has been added since the last look: each Refusal
// counts that alone. After an error it may be called again.
func (w *RefusalFollower) Next(ctx context.Context) ([]Refusal, error) {
	if !w.began {
		last, err := collect(ctx, w.s, roleRead, pgx.RowTo[int64], lastRefusalSQL)
		if err != nil {
			return nil, readError("follow refusals", err)
		}
		for _, id := range last {
			w.low = max(0, id-refusalsBack)
		}
	}
	since := time.Now().Add(-refusalsGrow)
	rows, err := collect(ctx, w.s, roleRead, scanRefusal, followRefusalsSQL, since, w.low)
	if err != nil {
		return nil, readError("follow refusals", err)
	}
	var fresh []Refusal
	known := make(map[int64]int64, len(rows))
	high := w.low + refusalsBack
	for _, r := range rows {
		before := w.known[r.ID]
		known[r.ID] = r.Count
		high = max(high, r.ID)
		fits := (w.f.Source == "" || w.f.Source == r.Source) && (w.f.Tenant == "" || w.f.Tenant == r.Tenant) && (w.f.Code == "" || w.f.Code == r.Code)
		if r.Count -= before; r.Count > 0 && w.began && fits {
			fresh = append(fresh, r)
		}
	}
	w.known, w.began, w.low = known, true, high-refusalsBack
	return fresh, nil
}
