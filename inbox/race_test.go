package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// stepped calls before ahead of each round trip of a transaction.
type stepped struct {
	pgx.Tx
	n      int
	before func(n int)
}

func (s *stepped) step() {
	s.n++
	s.before(s.n)
}

func (s *stepped) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	s.step()
	return s.Tx.SendBatch(ctx, b)
}

func (s *stepped) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	s.step()
	return s.Tx.Query(ctx, sql, args...)
}

func (s *stepped) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	s.step()
	return s.Tx.QueryRow(ctx, sql, args...)
}

func (s *stepped) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	s.step()
	return s.Tx.Exec(ctx, sql, args...)
}

// scene is one lane, at a destination of its own, at which two sessions meet.
type scene struct {
	t    *testing.T
	s    *Store
	pool *pgxpool.Pool
	to   string

	mu   sync.Mutex      // guards the rest while two sessions run
	ids  map[int64]int64 // of the forwards, by revision
	held []Forward       // what is leased, in the order of the claims
	ends Outcome         // how those that are held end; 0: accepted

	renewed   *Forward // its lease was prolonged
	cancelled int64    // the forward of which a person was told that it is cancelled
}

func (sc *scene) arrive(ordering Ordering, revisions ...int64) {
	for _, revision := range revisions {
		d := ofResource(ordering, sc.to, revision)
		d.Forwards[0].Destination = sc.to
		r := accept(sc.t, sc.s, d)
		id := forwardOf(sc.t, sc.s, r.ID).ID
		sc.mu.Lock()
		sc.ids[revision] = id
		sc.mu.Unlock()
	}
}

func (sc *scene) claim(now time.Time) []Forward {
	got, err := sc.s.Claim(sc.t.Context(), ClaimRequest{Destination: sc.to, Limit: 5, Lease: time.Minute, MaxAttempts: 9, Now: now})
	if err != nil {
		sc.t.Error(err)
	}
	return got
}

// lease claims revision and remembers it.
func (sc *scene) lease(revision int64) Forward {
	sc.t.Helper()
	got := sc.claim(time.Time{})
	if len(got) != 1 || *got[0].Delivery.Revision != revision {
		sc.t.Fatalf("%s: claimed %v, want revision %d", sc.to, got, revision)
	}
	return got[0]
}

func (sc *scene) settle(f Forward, outcome Outcome) {
	if err := sc.s.Settle(sc.t.Context(), settlement(f, outcome, classFor[outcome])); err != nil {
		sc.t.Error(err)
	}
}

var classFor = map[Outcome]string{OutcomeAccepted: "2xx", OutcomeRetry: "5xx", OutcomeBlocked: "4xx", OutcomeReleased: ""}

// later is when the leases of a scene have run out.
func later() time.Time { return time.Now().Add(2 * time.Minute) }

// session is what one of the two does, in a transaction that can be stepped through.
type session func(ctx context.Context, sc *scene, tx pgx.Tx) (committed func(), err error)

func claims(now func() time.Time) session {
	return func(ctx context.Context, sc *scene, tx pgx.Tx) (func(), error) {
		r := ClaimRequest{Destination: sc.to, Tenants: []string{"t1"}, Limit: 5, Lease: time.Minute, MaxAttempts: 9}
		c := &claiming{ClaimRequest: r, places: newPlaces(r), maxBytes: 1 << 20, window: 64}
		if now != nil {
			c.Now = now()
		}
		err := c.run(ctx, tx)
		return func() { sc.held = append(sc.held, c.claimed...) }, err
	}
}

func settles(lease int, outcome Outcome) session {
	return func(ctx context.Context, sc *scene, tx pgx.Tx) (func(), error) {
		sc.ends = outcome
		work := &settling{Settlement: settlement(sc.held[lease], outcome, classFor[outcome])}
		err := settle(ctx, tx, []*settling{work})
		return func() {
			if err := work.verdict(); err != nil && !errors.Is(err, ErrLeaseLost) {
				sc.t.Error(err)
			}
		}, err
	}
}

func renews(lease int) session {
	return func(ctx context.Context, sc *scene, tx pgx.Tx) (func(), error) {
		f := sc.held[lease]
		var until time.Time
		err := tx.QueryRow(ctx, renewSQL, f.ID, f.Token, time.Hour).Scan(&until)
		if errors.Is(err, pgx.ErrNoRows) {
			return func() {}, nil
		}
		return func() { sc.renewed = &f }, err
	}
}

func arrives(ordering Ordering, revision int64) session {
	return func(ctx context.Context, sc *scene, tx pgx.Tx) (func(), error) {
		sc.arrive(ordering, revision) // in a transaction of its own
		return func() {}, nil
	}
}

// acts is Replay, Cancel or Release: a transaction of its own, too.
func acts(do func(*scene) error) session {
	return func(ctx context.Context, sc *scene, tx pgx.Tx) (func(), error) {
		err := do(sc)
		if errors.Is(err, ErrSuperseded) || errors.Is(err, ErrInFlight) || errors.Is(err, ErrState) {
			err = nil
		}
		return func() {}, err
	}
}

var me = Act{Actor: "me", Reason: "a test"}

func replays(revision int64) session {
	return acts(func(sc *scene) error { return sc.s.Replay(sc.t.Context(), sc.ids[revision], ReplayRequest{Act: me}) })
}

func cancels(revision int64) session {
	return acts(func(sc *scene) error {
		err := sc.s.Cancel(sc.t.Context(), sc.ids[revision], me)
		if err == nil {
			sc.mu.Lock()
			sc.cancelled = sc.ids[revision]
			sc.mu.Unlock()
		}
		return err
	})
}

// works claims and settles, in transactions of its own.
func works() session {
	return acts(func(sc *scene) error {
		for _, f := range sc.claim(time.Time{}) {
			sc.settle(f, OutcomeAccepted)
		}
		return nil
	})
}

func releases() session {
	return acts(func(sc *scene) error {
		_, _, err := sc.s.Release(sc.t.Context(), ResourceRef{Tenant: "t1", Destination: sc.to, Source: "src1", ResourceType: "invoice", ResourceID: sc.to}, me)
		return err
	})
}

// run is one session from BEGIN to COMMIT, or to ROLLBACK where it is given up.
func (sc *scene) run(do session, before func(int), giveUp bool) {
	ctx := sc.t.Context()
	tx, err := sc.pool.BeginTx(ctx, beginAs(roleConsumer, tenantList([]string{"t1"})))
	if err != nil {
		sc.t.Error(err)
		return
	}
	defer tx.Rollback(ctx)
	st := &stepped{Tx: tx, before: before}
	committed, err := do(ctx, sc, st)
	if err != nil {
		sc.t.Errorf("%s: %v", sc.to, err)
		return
	}
	st.step()
	if giveUp {
		return
	}
	if err := tx.Commit(ctx); err != nil {
		sc.t.Error(err)
		return
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	committed()
}

// meet runs a, and b in the middle of it: before its n-th round trip, where the last is
// COMMIT. b runs to its end, or until it waits for a lock. It says whether a has as many.
func (sc *scene) meet(a, b session, n int, giveUp bool) (there bool) {
	ended := make(chan struct{})
	sc.run(a, func(at int) {
		if at != n {
			return
		}
		there = true
		go func() {
			defer close(ended)
			sc.run(b, func(int) {}, false)
		}()
		for {
			select {
			case <-ended:
				return
			default:
			}
			if count(sc.t, sc.pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0 {
				return
			}
		}
	}, giveUp)
	if there {
		<-ended
	}
	return there
}

// finish checks that at most one lease lives, settles all that are held, and works the
// lane off. It returns the revisions that were sent since, in their order.
func (sc *scene) finish() (sent []int64) {
	sc.t.Helper()
	if n := count(sc.t, sc.pool, `SELECT count(*) FROM hooklatch.outbox WHERE destination = $1 AND lease_until > clock_timestamp()`, sc.to); n > 1 {
		sc.t.Errorf("%d live leases in one lane", n)
	}
	if f := sc.renewed; f != nil && count(sc.t, sc.pool, `SELECT count(*) FROM hooklatch.outbox WHERE id = $1 AND lease_token = $2 AND lease_until IS NOT NULL`, f.ID, f.Token) == 0 {
		sc.t.Error("a lease that was renewed is lost")
	}
	for i, f := range sc.held {
		outcome := OutcomeAccepted
		if i == 0 && sc.ends != 0 {
			outcome = sc.ends
		}
		if err := sc.s.Settle(sc.t.Context(), settlement(f, outcome, classFor[outcome])); err != nil && !errors.Is(err, ErrLeaseLost) {
			sc.t.Error(err)
		}
	}
	for now := time.Now(); ; now = now.Add(time.Hour) {
		got := sc.claim(now)
		if len(got) == 0 {
			break
		}
		if len(got) > 1 {
			sc.t.Errorf("%d leased at once", len(got))
		}
		for _, f := range got {
			sent = append(sent, *f.Delivery.Revision)
			sc.settle(f, OutcomeAccepted)
		}
	}
	if n := count(sc.t, sc.pool, `SELECT count(*) FROM hooklatch.outbox WHERE id = $1 AND state <> 'cancelled'`, sc.cancelled); n > 0 {
		sc.t.Error("what was cancelled is not")
	}
	if n := count(sc.t, sc.pool, `SELECT count(*) FROM hooklatch.outbox WHERE destination = $1 AND waiting`, sc.to); n > 0 {
		sc.t.Errorf("%d wait for ever", n)
	}
	return sent
}

// Every meeting of two sessions at a lane, in every order of their round trips: no
// forward is lost or sent out of order, nobody is stuck, and one lease lives at a time.
func TestSessionsMeetAtALane(t *testing.T) {
	const retry, accepted, blocked = OutcomeRetry, OutcomeAccepted, OutcomeBlocked
	for _, c := range []struct {
		name     string
		ordering Ordering
		set      func(*scene)
		a, b     session
		want     string // the states at the end, by revision
	}{
		{"claim and claim", OrderLatest, func(sc *scene) { sc.arrive(OrderLatest, 1, 2) },
			claims(nil), claims(nil), "1 accepted, 2 accepted"},
		{"claim and claim, coalesced", OrderCoalesce, func(sc *scene) { sc.arrive(OrderCoalesce, 1, 2, 3) },
			claims(nil), claims(nil), "1 superseded, 2 superseded, 3 accepted"},
		{"claim and a whole run", OrderLatest, func(sc *scene) { sc.arrive(OrderLatest, 1, 2) },
			claims(nil), works(), "1 accepted, 2 accepted"},
		{"claim parks while the one before is settled", OrderLatest, func(sc *scene) {
			sc.arrive(OrderLatest, 1)
			sc.held = append(sc.held, sc.lease(1))
			sc.arrive(OrderLatest, 2)
		}, claims(nil), settles(0, accepted), "1 accepted, 2 accepted"},
		{"settlement while a claim parks", OrderLatest, func(sc *scene) {
			sc.arrive(OrderLatest, 1)
			sc.held = append(sc.held, sc.lease(1))
			sc.arrive(OrderLatest, 2)
		}, settles(0, accepted), claims(nil), "1 accepted, 2 accepted"},
		{"settlement of a dead letter while a claim parks", OrderLatest, func(sc *scene) {
			sc.arrive(OrderLatest, 1)
			sc.held = append(sc.held, sc.lease(1))
			sc.arrive(OrderLatest, 2)
		}, settles(0, blocked), claims(nil), "1 blocked, 2 accepted"},
		{"retry and claim, coalesced", OrderCoalesce, func(sc *scene) {
			sc.arrive(OrderCoalesce, 1)
			sc.held = append(sc.held, sc.lease(1))
			sc.arrive(OrderCoalesce, 2, 3)
		}, settles(0, retry), claims(nil), "1 superseded, 2 superseded, 3 accepted"},
		{"settlement and claim, coalesced", OrderCoalesce, func(sc *scene) {
			sc.arrive(OrderCoalesce, 1)
			sc.held = append(sc.held, sc.lease(1))
			sc.arrive(OrderCoalesce, 2, 3)
		}, claims(nil), settles(0, accepted), "1 accepted, 2 superseded, 3 accepted"},
		{"settlement and arrival", OrderStrict, func(sc *scene) {
			sc.arrive(OrderStrict, 1)
			sc.held = append(sc.held, sc.lease(1))
		}, settles(0, accepted), arrives(OrderStrict, 2), "1 accepted, 2 accepted"},
		{"claim and arrival", OrderStrict, func(sc *scene) {
			sc.arrive(OrderStrict, 1)
			sc.settle(sc.lease(1), accepted)
			sc.arrive(OrderStrict, 3)
		}, claims(nil), arrives(OrderStrict, 2), "1 accepted, 2 accepted, 3 accepted"},
		{"expiry and late settlement", OrderLatest, func(sc *scene) {
			sc.arrive(OrderLatest, 2)
			sc.held = append(sc.held, sc.lease(2))
			sc.arrive(OrderLatest, 1)
		}, claims(later), settles(0, accepted), ""},
		{"expiry and late renewal", OrderLatest, func(sc *scene) {
			sc.arrive(OrderLatest, 2)
			sc.held = append(sc.held, sc.lease(2))
			sc.arrive(OrderLatest, 1)
		}, claims(later), renews(0), ""},
		{"replay and settlement", OrderLatest, func(sc *scene) {
			sc.arrive(OrderLatest, 1, 2)
			sc.settle(sc.lease(1), blocked)
			sc.held = append(sc.held, sc.lease(2))
		}, settles(0, accepted), replays(1), ""},
		{"replay and claim", OrderStrict, func(sc *scene) {
			sc.arrive(OrderStrict, 1, 2)
			sc.settle(sc.lease(1), blocked)
		}, claims(nil), replays(1), "1 accepted, 2 accepted"},
		{"release and claim", OrderStrict, func(sc *scene) {
			sc.arrive(OrderStrict, 1)
			sc.settle(sc.lease(1), accepted)
			sc.arrive(OrderStrict, 4)
			sc.claim(time.Time{})
			sc.arrive(OrderStrict, 5)
		}, claims(nil), releases(), "1 accepted, 4 accepted, 5 accepted"},
		{"release of a dead letter and claim", OrderStrict, func(sc *scene) {
			sc.arrive(OrderStrict, 1)
			sc.settle(sc.lease(1), blocked)
			sc.arrive(OrderStrict, 2)
		}, claims(nil), releases(), "1 blocked, 2 accepted"},
		{"cancel and claim", OrderStrict, func(sc *scene) { sc.arrive(OrderStrict, 1, 2) },
			claims(nil), cancels(1), ""},
		{"cancel and claim in a known lane", OrderStrict, func(sc *scene) {
			sc.arrive(OrderStrict, 1)
			sc.settle(sc.lease(1), accepted)
			sc.arrive(OrderStrict, 2, 3)
		}, claims(nil), cancels(2), ""},
		{"cancel of what waits and settlement", OrderStrict, func(sc *scene) {
			sc.arrive(OrderStrict, 1, 2, 3)
			sc.held = append(sc.held, sc.lease(1))
		}, settles(0, accepted), cancels(2), "1 accepted, 2 cancelled, 3 accepted"},
		{"cancel of a dead letter and claim", OrderStrict, func(sc *scene) {
			sc.arrive(OrderStrict, 1)
			sc.settle(sc.lease(1), blocked)
			sc.arrive(OrderStrict, 2)
		}, claims(nil), cancels(1), "1 cancelled, 2 accepted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			wholeAtEnd(t, s.pool)
			for _, giveUp := range []bool{false, true} {
				met := 0
				for n := 1; ; n++ {
					sc := &scene{t: t, s: s, pool: pool, to: fmt.Sprint("d", n, giveUp), ids: map[int64]int64{}}
					c.set(sc)
					if !sc.meet(c.a, c.b, n, giveUp) {
						break
					}
					met++
					sent := sc.finish()
					rows, err := pool.Query(t.Context(), `SELECT revision || ' ' || state FROM hooklatch.outbox WHERE destination = $1 ORDER BY revision`, sc.to)
					if err != nil {
						t.Fatal(err)
					}
					got, err := pgx.CollectRows(rows, pgx.RowTo[string])
					if err != nil {
						t.Fatal(err)
					}
					states := strings.Join(got, ", ")
					if c.want != "" && states != c.want {
						t.Errorf("b before step %d of a, given up %v: %s, want %s", n, giveUp, states, c.want)
					}
					if c.want == "" && count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE destination = $1 AND state IN ('pending', 'retry_wait', 'held')`, sc.to) > 0 {
						t.Errorf("b before step %d of a, given up %v: stuck: %s", n, giveUp, states)
					}
					if !slices.IsSorted(sent) {
						t.Errorf("b before step %d of a, given up %v: sent %v", n, giveUp, sent)
					}
				}
				if met < 2 {
					t.Errorf("void: %d meetings", met)
				}
			}
			for d, err := range s.Audit(t.Context(), AuditRequest{}) {
				if err != nil {
					t.Fatal(err)
				}
				t.Errorf("audit: %+v", d)
			}
		})
	}
}
