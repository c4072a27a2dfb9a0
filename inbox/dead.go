package inbox

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeadLetter is a forward that only a person moves: its state is Blocked. Its
// Delivery is without the body, and its SettledAt is since when it is dead.
type DeadLetter struct {
	Forward
	// First and Last are the first attempt and the one that counted last; nil: it was
	// never tried.
	First, Last *Attempt
	Pruned      bool // its body is gone: it cannot be replayed
	Superseded  bool // a later revision was applied: only force replays it
}

// Cursor is where the dead letter stands in the order of DeadLetters, for
// DeadFilter.After, also in another process.
func (d *DeadLetter) Cursor() string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(d.ID)), d.Destination...))
}

// DeadFilter says which dead letters to list.
type DeadFilter struct {
	Delivery    int64 // only of the delivery in this row
	Destination string
	Source      string
	Tenant      string
	EventType   string
	Owner       string    // that of the dead letter, else of its destination
	Reason      string    // Forward.BlockedReason
	Class       string    // of the attempt that counted last
	Since       time.Time // dead since then
	Until       time.Time // dead before then

	// After goes on behind a dead letter that was listed before: its Cursor.
	After string
	// Limit ends the list. Defaults to no limit.
	Limit int
}

// A scan looks at so many dead letters, whatever fits, as one of deliveries does.
const (
	deadScanHead = `WITH scanned AS MATERIALIZED (SELECT * FROM hooklatch.outbox WHERE state = 'blocked' AND `
	deadScan     = deadScanHead + `(destination, id) > ($1, $2) ORDER BY destination, id LIMIT $3)`
	deadScanAt   = deadScanHead + `destination = $1 AND id > $2 ORDER BY id LIMIT $3)`
	deadScanOf   = deadScanHead + `inbox_id = $12 AND (destination, id) > ($1, $2) ORDER BY destination, id LIMIT $3)`

	deadFrom = `
FROM scanned o
CROSS JOIN LATERAL (SELECT * FROM hooklatch.inbox WHERE id = o.inbox_id OFFSET 0) i
CROSS JOIN LATERAL (SELECT coalesce(o.settled_at, i.received_at) AS at, coalesce(o.owner,
	(SELECT owner FROM hooklatch.destination WHERE name = o.destination), '') AS owner) d
LEFT JOIN LATERAL (SELECT * FROM hooklatch.attempt WHERE outbox_id = o.id AND NOT late ORDER BY number DESC LIMIT 1) l ON true`

	deadFits = `($4 = '' OR i.source = $4) AND ($5 = '' OR o.tenant = $5) AND ($6 = '' OR i.event_type = $6) AND ($7 = '' OR d.owner = $7)
	AND ($8 = '' OR o.blocked_reason = $8) AND ($9 = '' OR l.class = $9) AND d.at >= $10 AND ($11::timestamptz IS NULL OR d.at < $11)`

	deadSelect = `
SELECT ` + deliveryColumns + `, o.id, o.destination, o.state, o.attempts, o.attempts_free, o.lease_token, o.expires_at,
	coalesce(o.blocked_reason, ''), coalesce(o.ordering, ''), d.at, coalesce(o.replayed_by, ''), d.owner,
	(SELECT p.inbox_id FROM hooklatch.payload p WHERE p.inbox_id = o.inbox_id AND p.variant = 0) IS NULL,
	coalesce(i.revision <= ` + passedSQL + `, false),
	f.number, f.ended_at, f.class, f.status, f.error, l.number, l.ended_at, l.class, l.status, l.error,
	coalesce(` + deadFits + `, false) AS fits, (SELECT count(*) = $3 FROM scanned)` + deadFrom + `
LEFT JOIN LATERAL (SELECT * FROM hooklatch.attempt WHERE outbox_id = o.id AND NOT late ORDER BY number LIMIT 1) f ON true
ORDER BY o.destination, o.id`

	deadSQL   = deadScan + deadSelect
	deadAtSQL = deadScanAt + deadSelect
	deadOfSQL = deadScanOf + deadSelect
)

// deadPage is how many dead letters one round trip looks at.
const deadPage = 500

// DeadLetters lists dead letters by destination, at each the one first that came first.
// It reads page by page as far as the caller goes on.
func (s *Store) DeadLetters(ctx context.Context, f DeadFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		p, err := f.place()
		if err != nil {
			yield(DeadLetter{}, fmt.Errorf("dead letters: %w", err))
			return
		}
		for found := 0; p.more; {
			var page []DeadLetter
			if page, err = s.deadPage(ctx, f, &p); err != nil {
				break
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
				if found++; found == f.Limit {
					return
				}
			}
		}
		if err != nil {
			yield(DeadLetter{}, readError("dead letters", err))
		}
	}
}

// deadPlace is how far a list went.
type deadPlace struct {
	destination string
	id          int64
	more        bool
}

func (f *DeadFilter) place() (deadPlace, error) {
	p := deadPlace{destination: f.Destination, more: true}
	if f.After == "" {
		return p, nil
	}
	buf, err := base64.RawURLEncoding.DecodeString(f.After)
	if err != nil || len(buf) <= 8 || !isText(string(buf[8:])) || f.Destination != "" && f.Destination != string(buf[8:]) {
		return p, fmt.Errorf("cursor %q was not made by this program, for this list", f.After)
	}
	p.id, p.destination = int64(binary.BigEndian.Uint64(buf)), string(buf[8:])
	return p, nil
}

// args are those of every statement over dead letters, from $1 on.
func (f *DeadFilter) args(p deadPlace, size int) []any {
	var until *time.Time
	if !f.Until.IsZero() {
		until = &f.Until
	}
	args := []any{p.destination, p.id, size, f.Source, f.Tenant, f.EventType, f.Owner, f.Reason, f.Class, f.Since, until}
	if f.Delivery != 0 {
		args = append(args, f.Delivery)
	}
	return args
}

// which picks the statement whose scan goes through an index.
func (f *DeadFilter) which(all, at, of string) string {
	switch {
	case f.Delivery != 0:
		return of
	case f.Destination != "":
		return at
	}
	return all
}

func (s *Store) deadPage(ctx context.Context, f DeadFilter, p *deadPlace) (page []DeadLetter, err error) {
	more := false
	_, err = collect(ctx, s, roleRead, func(row pgx.CollectableRow) (bool, error) {
		d, fits, err := scanDead(row, &more)
		if fits && (f.Destination == "" || f.Destination == d.Destination) {
			page = append(page, d)
		}
		p.destination, p.id = d.Destination, d.ID
		return fits, err
	}, f.which(deadSQL, deadAtSQL, deadOfSQL), f.args(*p, deadPage)...)
	p.more = more
	return page, err
}

// scannedAttempt is what an outer join brings of an attempt.
type scannedAttempt struct {
	number, status *int
	at             *time.Time
	class, text    *string
}

func (a *scannedAttempt) columns() []any {
	return []any{&a.number, &a.at, &a.class, &a.status, &a.text}
}

func (a *scannedAttempt) attempt(f *Forward) *Attempt {
	if a.number == nil {
		return nil
	}
	t := &Attempt{ForwardID: f.ID, Destination: f.Destination, Number: *a.number, EndedAt: *a.at, Class: *a.class}
	if a.status != nil {
		t.Status = *a.status
	}
	if a.text != nil {
		t.Error = *a.text
	}
	return t
}

func scanDead(row pgx.CollectableRow, more *bool) (d DeadLetter, fits bool, err error) {
	var first, last scannedAttempt
	f := &d.Forward
	columns := []any{&f.ID, &f.Destination, &f.State, &f.Attempt, &f.AttemptsFree, &f.Token, &f.ExpiresAt,
		&f.BlockedReason, &f.Ordering, &f.SettledAt, &f.ReplayedBy, &f.Owner, &d.Pruned, &d.Superseded}
	columns = append(append(append(columns, first.columns()...), last.columns()...), &fits, more)
	delivery, err := scanDelivery(wider{row, columns})
	if err != nil {
		return d, false, err
	}
	f.Delivery, d.First, d.Last = delivery, first.attempt(f), last.attempt(f)
	return d, fits, nil
}

// DeadGroup counts dead letters that are alike.
type DeadGroup struct {
	Destination, Owner string
	Reason             string // Forward.BlockedReason
	Class              string // of the attempt that counted last; empty: there was none
	Letters            int
	Oldest             time.Time // since when the first of them is dead
}

const (
	deadGroupSelect = `
SELECT o.destination, d.owner, coalesce(o.blocked_reason, ''), coalesce(l.class, ''), count(*), min(d.at), (SELECT count(*) = $3 FROM scanned)` + deadFrom + `
WHERE ` + deadFits + ` GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4`

	deadGroupsSQL   = deadScan + deadGroupSelect
	deadGroupsAtSQL = deadScanAt + deadGroupSelect
	deadGroupsOfSQL = deadScanOf + deadGroupSelect
)

// deadCounted is how many dead letters DeadGroups looks at.
const deadCounted = 50_000

// DeadGroups counts the dead letters that DeadLetters would list, whatever After and
// Limit are. It looks at the first 50,000 of them: more says that there are others.
func (s *Store) DeadGroups(ctx context.Context, f DeadFilter) (groups []DeadGroup, more bool, err error) {
	groups, err = collect(ctx, s, roleRead, func(row pgx.CollectableRow) (g DeadGroup, err error) {
		err = row.Scan(&g.Destination, &g.Owner, &g.Reason, &g.Class, &g.Letters, &g.Oldest, &more)
		return g, err
	}, f.which(deadGroupsSQL, deadGroupsAtSQL, deadGroupsOfSQL), f.args(deadPlace{destination: f.Destination}, deadCounted)...)
	if err != nil {
		return nil, false, readError("dead letters", err)
	}
	return groups, more, nil
}

const assignSQL = `UPDATE hooklatch.outbox SET owner = nullif($2, '') WHERE id = $1`

// AssignDead makes somebody look after a dead letter; empty: the owner of its
// destination. ErrState: it is none. ErrNotFound: there is no such forward.
func (s *Store) AssignDead(ctx context.Context, forwardID int64, owner string, act Act) error {
	if !isText(owner) {
		return fmt.Errorf("assign forward %d: the owner is no text", forwardID)
	}
	return s.act(ctx, forwardID, act, actAssign, func(tx pgx.Tx, f *target) (string, error) {
		if f.state != Blocked {
			return "", fmt.Errorf("%w: it is %s", ErrState, f.state)
		}
		_, err := tx.Exec(ctx, assignSQL, f.id, owner)
		return "to " + owner, err
	})
}

// DropDead is Cancel for a dead letter as it was seen: token is that of the forward.
// ErrState: it is none any more, or it was tried since.
func (s *Store) DropDead(ctx context.Context, forwardID, token int64, act Act) error {
	return s.cancel(ctx, forwardID, act, func(f *target) error {
		switch {
		case f.state != Blocked:
			return fmt.Errorf("%w: it is %s", ErrState, f.state)
		case f.token != token:
			return fmt.Errorf("%w: it was tried since it was seen", ErrState)
		}
		return nil
	})
}
