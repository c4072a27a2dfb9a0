package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Destination is a place where forwards go, as people see it. SaveDestinations takes
// the first three fields; Destinations fills them all.
type Destination struct {
	Name  string
	URL   string // without credentials
	Owner string // who looks after its dead letters; empty: nobody was named

	ConfigRevision int64     // that saved it last
	RemovedAt      time.Time // zero: it was not removed
	ProbeAskedAt   time.Time // when a person wanted it to be tried at once; zero: never
	Pause          *Pause    // nil: it is not paused
	Breaker        Breaker
}

// Pause is a destination that a person has stopped.
type Pause struct {
	Destination string
	At          time.Time
	By, Reason  string
}

// saveDestinationSQL returns the URL that the destination had: NULL for a new one.
const saveDestinationSQL = `
WITH before AS MATERIALIZED (SELECT url, removed_at FROM hooklatch.destination WHERE name = $1),
saved AS (
	INSERT INTO hooklatch.destination (name, url, owner, config_revision) VALUES ($1, $2, nullif($3, ''), nullif($4::int8, 0))
	ON CONFLICT (name) DO UPDATE SET url = excluded.url, owner = excluded.owner, config_revision = excluded.config_revision, removed_at = NULL)
INSERT INTO hooklatch.destination_event (destination, event, config_revision, detail)
SELECT $1, 'configured', nullif($4::int8, 0), $2
WHERE NOT EXISTS (SELECT FROM before WHERE url = $2 AND removed_at IS NULL)`

// SaveDestinations records the destinations of a configuration, and in their history
// those that are new or whose URL has changed. It leaves pauses and breakers alone.
func (s *Store) SaveDestinations(ctx context.Context, configRevision int64, destinations []Destination) error {
	err := s.as(ctx, roleConsumer, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		for _, d := range destinations {
			batch.Queue(saveDestinationSQL, d.Name, d.URL, d.Owner, configRevision)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return storeError("save destinations", classify(err, false), err)
	}
	return nil
}

const destinationsSQL = `
SELECT name, url, coalesce(owner, ''), coalesce(config_revision, 0), removed_at, probe_asked_at, paused_at, coalesce(paused_by, ''), coalesce(pause_reason, ''),
	breaker, breaker_at, breaker_until, coalesce(breaker_worker, ''), coalesce(breaker_error, '')
FROM hooklatch.destination ORDER BY name`

// Destinations lists every destination that was ever saved, by name. It is one small
// table: no forward is looked at.
func (s *Store) Destinations(ctx context.Context) ([]Destination, error) {
	all, err := collect(ctx, s, roleRead, scanDestination, destinationsSQL)
	if err != nil {
		return nil, readError("destinations", err)
	}
	return all, nil
}

func scanDestination(row pgx.CollectableRow) (d Destination, err error) {
	var removed, asked, paused, changed, until *time.Time
	var p Pause
	err = row.Scan(&d.Name, &d.URL, &d.Owner, &d.ConfigRevision, &removed, &asked, &paused, &p.By, &p.Reason,
		&d.Breaker.State, &changed, &until, &d.Breaker.Worker, &d.Breaker.Error)
	d.RemovedAt, d.ProbeAskedAt, d.Breaker.At, d.Breaker.Until = timeOf(removed), timeOf(asked), timeOf(changed), timeOf(until)
	if paused != nil {
		p.Destination, p.At = d.Name, *paused
		d.Pause = &p
	}
	return d, err
}

// timeOf is zero where the database has NULL.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// Pauses lists the destinations that are paused.
func (s *Store) Pauses(ctx context.Context) (pauses []Pause, err error) {
	all, err := s.Destinations(ctx)
	for _, d := range all {
		if d.Pause != nil {
			pauses = append(pauses, *d.Pause)
		}
	}
	return pauses, err
}

const pauseSQL = `
UPDATE hooklatch.destination SET paused_at = clock_timestamp(), paused_by = $2, pause_reason = $3 WHERE name = $1 AND paused_at IS NULL`

// PauseDestination keeps the forwards of a destination where they are until it is
// resumed. Attempts that are under way end as they would have. ErrState: it is paused
// already, and stays so for the reason that it has. ErrNotFound: there is none of that
// name.
func (s *Store) PauseDestination(ctx context.Context, name string, act Act) error {
	if err := act.check(); err != nil {
		return fmt.Errorf("pause destination %s: %w", name, err)
	}
	return s.decideDestination(ctx, name, "pause", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, pauseSQL, name, act.Actor, act.Reason)
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: it is paused already", ErrState)
		}
		return errors.Join(err, addEvent(ctx, tx, DestinationEvent{Destination: name, Event: EventPaused, Actor: act.Actor, Reason: act.Reason}))
	})
}

// resumeSQL returns how long the pause lasted.
const resumeSQL = `
UPDATE hooklatch.destination d SET paused_at = NULL, paused_by = NULL, pause_reason = NULL
FROM (SELECT paused_at FROM hooklatch.destination WHERE name = $1 FOR UPDATE) before
WHERE d.name = $1 AND d.paused_at IS NOT NULL RETURNING extract(epoch FROM clock_timestamp() - before.paused_at)::float8`

// ResumeDestination ends a pause: what is due is handed on at once. ErrState: it is not
// paused. ErrNotFound: there is none of that name.
func (s *Store) ResumeDestination(ctx context.Context, name string, act Act) error {
	if err := act.check(); err != nil {
		return fmt.Errorf("resume destination %s: %w", name, err)
	}
	return s.decideDestination(ctx, name, "resume", func(tx pgx.Tx) error {
		var seconds float64
		err := tx.QueryRow(ctx, resumeSQL, name).Scan(&seconds)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: it is not paused", ErrState)
		}
		lasted := time.Duration(seconds * float64(time.Second)).Round(time.Second)
		return errors.Join(err, addEvent(ctx, tx, DestinationEvent{Destination: name, Event: EventResumed, Actor: act.Actor, Reason: act.Reason,
			Detail: "after " + lasted.String()}))
	})
}

const askProbeSQL = `UPDATE hooklatch.destination SET probe_asked_at = clock_timestamp() WHERE name = $1`

// AskProbe asks the processes that forward to try one forward now, although the
// breaker is open. They look every few seconds. It needs no reason: nothing is changed.
// ErrNotFound: there is none of that name.
func (s *Store) AskProbe(ctx context.Context, name, actor string) error {
	return s.decideDestination(ctx, name, "probe", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, askProbeSQL, name); err != nil {
			return err
		}
		return addEvent(ctx, tx, DestinationEvent{Destination: name, Event: EventProbe, Actor: actor})
	})
}

const knownDestinationSQL = `SELECT name FROM hooklatch.destination WHERE name = $1 FOR NO KEY UPDATE`

// decideDestination runs a person's decision about a destination in one transaction
// with its event, which is its line of audit: a destination belongs to no tenant.
func (s *Store) decideDestination(ctx context.Context, name, what string, do func(pgx.Tx) error) error {
	err := s.as(ctx, roleAdmin, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, knownDestinationSQL, name).Scan(&name); err != nil {
			return err
		}
		return do(tx)
	})
	return s.acted(what+" destination "+name, name, err)
}
