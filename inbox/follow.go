package inbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// Follower shows deliveries as they are committed. Ids and times of receipt are given
// when a transaction writes, and seen when it commits: a lower one may come later.
// So it remembers what it has shown, and goes past an id only when everybody who may
// still commit a lower one has ended.
//
// It is not safe for concurrent use.
type Follower struct {
	s *Store
	f Filter

	began bool
	low   int64          // all up to here has been shown, or never will be there
	seen  map[int64]bool // above low
	looks []look         // the oldest first
	cut   bool
	grace time.Duration
	most  int
}

// look is what a Next has seen.
type look struct {
	id     int64     // the highest
	xid    uint64    // whoever had begun to write by then has a lower one
	passed time.Time // when all of those had ended; zero: not yet
}

const (
	// followPage is how many ids one look takes.
	followPage = 50_000
	// followMost bounds what is remembered.
	followMost = 500_000
	// followGrace is how long after that the ids are still looked at: an id is given
	// shortly before its transaction gets the number that is waited for.
	followGrace = 10 * time.Second
	// followBack is how many of the latest deliveries are looked over at the beginning for
	// some that are still missing among them.
	followBack = 1000
)

// Follow returns a Follower of the deliveries that f fits. It begins behind f.After,
// which may be the Cursor of a Follower or of a delivery, else with what is committed
// after its first Next. f.Since, f.Until and f.Limit are not looked at.
func (s *Store) Follow(f Filter) (*Follower, error) {
	w := &Follower{s: s, f: f, seen: map[int64]bool{}, grace: followGrace, most: followMost}
	w.f.After, w.f.Since, w.f.Until, w.f.Limit = "", time.Time{}, time.Time{}, 0
	if f.After != "" {
		_, id, err := parseCursor(f.After)
		if err != nil {
			return nil, fmt.Errorf("follow: %w", err)
		}
		w.low, w.began = id, true
	}
	return w, nil
}

const followFirstSQL = `SELECT id FROM hooklatch.inbox ORDER BY id DESC LIMIT $1`

// followSQL is one snapshot: what is there above an id, our own transaction, and the
// oldest one that had not ended.
const followSQL = `
SELECT pg_current_xact_id()::text, pg_snapshot_xmin(pg_current_snapshot())::text, clock_timestamp(),
	ARRAY(SELECT id FROM hooklatch.inbox WHERE id > $1 ORDER BY id LIMIT $2)`

// Next looks once, and returns what has been committed since the last look, in the
// order of receipt; nothing is an answer too. After an error it may be called again.
func (w *Follower) Next(ctx context.Context) ([]Delivery, error) {
	if !w.began {
		if err := w.begin(ctx); err != nil {
			return nil, readError("follow", err)
		}
		w.began = true
	}
	var xid, xmin string
	var now time.Time
	var ids []int64
	err := w.s.as(ctx, roleRead, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, followSQL, w.low, followPage+len(w.seen)).Scan(&xid, &xmin, &now, &ids)
	})
	if err != nil {
		return nil, readError("follow", err)
	}
	var fresh []int64
	for _, id := range ids {
		if !w.seen[id] {
			fresh = append(fresh, id)
		}
	}
	found, err := w.among(ctx, fresh)
	if err != nil {
		return nil, readError("follow", err)
	}
	for _, id := range fresh {
		w.seen[id] = true
	}
	return found, w.goOn(ids, xid, xmin, now)
}

// begin passes over what is there already.
func (w *Follower) begin(ctx context.Context) error {
	ids, err := collect(ctx, w.s, roleRead, pgx.RowTo[int64], followFirstSQL, followBack)
	for _, id := range ids {
		w.seen[id] = true
	}
	if len(ids) == followBack {
		w.low = ids[len(ids)-1]
	}
	return err
}

// among are the deliveries of ids that the filter fits.
func (w *Follower) among(ctx context.Context, ids []int64) (found []Delivery, err error) {
	p := findPlace{at: time.Now().AddDate(100, 0, 0), more: len(ids) > 0, size: findPage}
	for p.more {
		page, err := w.s.findPage(ctx, w.f, ids, &p)
		if err != nil {
			return nil, err
		}
		found = append(found, page...)
	}
	slices.SortFunc(found, func(a, b Delivery) int { return cmp.Or(a.ReceivedAt.Compare(b.ReceivedAt), cmp.Compare(a.ID, b.ID)) })
	return found, nil
}

// goOn notes a look, and goes past what nobody can commit any more.
func (w *Follower) goOn(ids []int64, xid, xmin string, now time.Time) error {
	ours, err := strconv.ParseUint(xid, 10, 64)
	if err != nil {
		return fmt.Errorf("follow: %w: %w", ErrInternal, err)
	}
	oldest, err := strconv.ParseUint(xmin, 10, 64)
	if err != nil {
		return fmt.Errorf("follow: %w: %w", ErrInternal, err)
	}
	low := w.low
	for i := range w.looks {
		l := &w.looks[i]
		if l.passed.IsZero() && oldest > l.xid {
			l.passed = now
		}
		if !l.passed.IsZero() && now.Sub(l.passed) >= w.grace {
			low = max(low, l.id)
		}
	}
	if n := len(ids); n > 0 && (len(w.looks) == 0 || w.looks[len(w.looks)-1].id < ids[n-1]) {
		w.looks = append(w.looks, look{id: ids[n-1], xid: ours})
	}
	if w.cut = len(w.seen) > w.most; w.cut {
		all := slices.Sorted(func(yield func(int64) bool) {
			for id := range w.seen {
				if !yield(id) {
					return
				}
			}
		})
		low = max(low, all[len(all)/2])
	}
	w.forget(low)
	return nil
}

func (w *Follower) forget(low int64) {
	if low == w.low {
		return
	}
	w.low = low
	for id := range w.seen {
		if id <= low {
			delete(w.seen, id)
		}
	}
	w.looks = slices.DeleteFunc(w.looks, func(l look) bool { return l.id <= low })
}

// Cut says that the last Next had to go past ids of which some may still be committed,
// and will not be shown then: a transaction has been open for so long that there is too
// much to remember.
func (w *Follower) Cut() bool { return w.cut }

// Cursor is from where another Follower goes on, also in another process: what was
// shown lately may be shown again, and nothing is left out.
func (w *Follower) Cursor() string { return cursorOf(time.Now(), w.low) }
