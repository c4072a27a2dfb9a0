package consumer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func newStore(t *testing.T) (*inbox.Store, *pgxpool.Pool) {
	t.Helper()
	pool := inboxtest.New(t)
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	wholeAtEnd(t, store)
	return store, pool
}

// wholeAtEnd audits the inbox when the test is over: whatever it did, the tables agree.
func wholeAtEnd(t *testing.T, store *inbox.Store) {
	t.Cleanup(func() {
		for d, err := range store.Audit(context.Background(), inbox.AuditRequest{Bodies: true}) {
			if err != nil {
				t.Error(err)
				return
			}
			t.Errorf("audit: %s", d)
		}
	})
}

func accept(t *testing.T, store *inbox.Store, ids ...string) {
	t.Helper()
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			body := []byte(`{"id":"` + id + `"}`)
			_, err := store.Accept(t.Context(), inbox.Delivery{
				Tenant: "t1", Source: "src1", DeliveryID: id, Method: "POST",
				Body: body, BodyHash: sha256.Sum256(body),
				Header:   map[string][]string{"Content-Type": {"application/json"}},
				Forwards: []inbox.NewForward{{Destination: "app"}},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("d", i)
	}
	return ids
}

// started runs a Consumer on the store until the test ends, or stop is called.
func started(t *testing.T, q Queue, h Handler, cfg Config) (c *Consumer, results <-chan AttemptResult, stop func()) {
	t.Helper()
	all := make(chan AttemptResult, 10_000)
	cfg.Destination = "app"
	cfg.OnAttempt = func(_ context.Context, r AttemptResult) { all <- r }
	if cfg.Poll == 0 {
		cfg.Poll = 20 * time.Millisecond
	}
	c, err := New(q, h, cfg)
	if err != nil {
		t.Fatal(err)
	}
	end := launch(t, c)
	stop = func() {
		if err := end(); err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return c, all, stop
}

func next(t *testing.T, results <-chan AttemptResult) AttemptResult {
	t.Helper()
	select {
	case r := <-results:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no attempt ended")
		return AttemptResult{}
	}
}

// forwards counts the forwards that a condition holds for.
func forwards(t *testing.T, pool *pgxpool.Pool, where string) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM hooklatch.outbox WHERE "+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func stateOf(t *testing.T, store *inbox.Store, r AttemptResult) inbox.Forward {
	t.Helper()
	all, err := store.Forwards(t.Context(), r.Forward.Delivery.ID)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d forwards, %v", len(all), err)
	}
	return all[0]
}

// ledger lists the attempts of a forward as "number class status late".
func ledger(t *testing.T, store *inbox.Store, forwardID int64) (lines []string, attempts []inbox.Attempt) {
	t.Helper()
	for a, err := range store.Attempts(t.Context(), inbox.AttemptFilter{ForwardID: forwardID}) {
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprint(a.Number, " ", a.Class, " ", a.Status)
		if a.Late {
			line += " late"
		}
		lines, attempts = append(lines, line), append(attempts, a)
	}
	return lines, attempts
}

func wantLedger(t *testing.T, store *inbox.Store, forwardID int64, want ...string) {
	t.Helper()
	if got, _ := ledger(t, store, forwardID); !slices.Equal(got, want) {
		t.Errorf("ledger %q, want %q", got, want)
	}
}

// recorder is an app that remembers what it saw.
type recorder struct {
	mu   sync.Mutex
	seen map[string][]string // delivery id: attempts
}

func (app *recorder) answering(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		app.mu.Lock()
		if app.seen == nil {
			app.seen = map[string][]string{}
		}
		id := r.Header.Get("Hooklatch-Delivery-Id")
		app.seen[id] = append(app.seen[id], r.Header.Get("Hooklatch-Attempt"))
		app.mu.Unlock()
		io.Copy(io.Discard, r.Body)
		h(w, r)
	}
}

func (app *recorder) attempts(id string) string {
	app.mu.Lock()
	defer app.mu.Unlock()
	return strings.Join(app.seen[id], " ")
}

func TestX42_CrashBetweenTheAnswerAndTheSettle(t *testing.T) {
	store, pool := newStore(t)
	var app recorder
	w := newForwarder(t, newApp(t, app.answering(func(http.ResponseWriter, *http.Request) {})), 0)
	accept(t, store, "d1")
	claimed, err := store.Claim(t.Context(), inbox.ClaimRequest{Destination: "app", Limit: 1, Lease: 300 * time.Millisecond})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	if err := w.Handle(t.Context(), send(claimed[0])); err != nil {
		t.Fatal(err)
	}
	// Here the process dies. Another one goes on.
	_, results, _ := started(t, store, w, Config{})
	r := next(t, results)
	if r.Forward.Attempt != 2 || r.Settlement.Outcome != inbox.OutcomeAccepted || r.Err != nil {
		t.Errorf("second process: %+v", r)
	}
	if got := app.attempts("d1"); got != "1 2" {
		t.Errorf("the app saw attempts %s, want 1 2", got)
	}
	wantLedger(t, store, claimed[0].ID, "1 unknown 0", "2 2xx 200")
	if n := forwards(t, pool, "state = 'accepted' AND lease_until IS NULL"); n != 1 {
		t.Errorf("%d forwards accepted, want 1", n)
	}
}

func TestCaseE9_LostLeaseChangesNothing(t *testing.T) {
	store, _ := newStore(t)
	accept(t, store, "d1")
	began, stalled := make(chan struct{}), make(chan struct{})
	slow := HandlerFunc(func(context.Context, Forward) error {
		close(began)
		<-stalled // deaf to ctx, as under SIGSTOP
		return nil
	})
	// One slot, so that the slow worker does not take over from itself.
	_, late, _ := started(t, store, slow, Config{Concurrency: 1, Timeout: 100 * time.Millisecond, Lease: 200 * time.Millisecond})
	<-began
	fast := HandlerFunc(func(context.Context, Forward) error { return &AttemptError{Status: 404, Permanent: true} })
	_, results, _ := started(t, store, fast, Config{})
	r := next(t, results)
	close(stalled)
	l := next(t, late)
	if !l.LeaseLost || !errors.Is(l.Err, inbox.ErrLeaseLost) || l.Settlement.Outcome != inbox.OutcomeAccepted {
		t.Errorf("the late worker was told %+v", l)
	}
	if f := stateOf(t, store, r); f.State != inbox.Blocked || f.Token != 2 {
		t.Errorf("state %s under token %d, want the newer holder's", f.State, f.Token)
	}
	wantLedger(t, store, r.Forward.ID, "1 unknown 0", "1 2xx 0 late", "2 4xx 404")
}

// renewing lets a test see renewals.
type renewing struct {
	*inbox.Store
	renewed chan time.Time
}

func (q *renewing) Renew(ctx context.Context, f inbox.Forward, lease time.Duration) (time.Time, error) {
	until, err := q.Store.Renew(ctx, f, lease)
	if err == nil {
		q.renewed <- until
	}
	return until, err
}

func TestLongAttemptKeepsItsLease(t *testing.T) {
	store, _ := newStore(t)
	accept(t, store, "d1")
	q := &renewing{Store: store, renewed: make(chan time.Time, 10)}
	slow := HandlerFunc(func(ctx context.Context, f Forward) error {
		select {
		case until := <-q.renewed:
			if !until.After(f.LeaseUntil) {
				t.Errorf("renewed until %v, the lease was until %v", until, f.LeaseUntil)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	_, results, _ := started(t, q, slow, Config{Timeout: 1900 * time.Millisecond, Lease: 2 * time.Second})
	if r := next(t, results); r.Err != nil || r.Settlement.Outcome != inbox.OutcomeAccepted {
		t.Errorf("%+v, want accepted after a renewal", r)
	}
}

// E13: somebody holds an old snapshot for a long time. Work goes on, and while the app is
// asked, which may take as long as it likes, no transaction of ours is open.
func TestCaseE13_NoTransactionWaitsForTheApp(t *testing.T) {
	store, pool := newStore(t)
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback(context.Background())
	if _, err := old.Exec(t.Context(), `SELECT 1`); err != nil {
		t.Fatal(err)
	}
	const n = 20
	accept(t, store, numbered(n)...)
	asked := HandlerFunc(func(ctx context.Context, f Forward) error {
		// The claim that has handed this over is committed, and one at a time is tried:
		// nobody else is settling now, and a look for more takes a moment only.
		deadline := time.Now().Add(time.Second)
		for {
			var open int
			err := pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND state LIKE 'idle in transaction%' AND pid <> $1`, old.Conn().PgConn().PID()).Scan(&open)
			if err != nil || open == 0 {
				return err
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%d transactions are open while the app is asked", open)
			}
		}
	})
	_, results, _ := started(t, store, asked, Config{Concurrency: 1})
	for range n {
		if r := next(t, results); r.Err != nil || r.Settlement.Outcome != inbox.OutcomeAccepted {
			t.Fatalf("%+v", r)
		}
	}
}

func TestX45_AnswersAgainstTheStore(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		header http.Header
		retry  Retry
		want   string // state, reason, attempts, free ones
		ledger []string
		due    time.Duration // not before, after the last attempt
	}{
		{"500 until the budget is used up", 500, nil, Retry{Base: time.Millisecond, MaxAttempts: 3},
			"blocked attempts_exhausted 3 0", []string{"1 5xx 500", "2 5xx 500", "3 5xx 500"}, 0},
		{"only one attempt", 503, nil, Retry{MaxAttempts: 1},
			"blocked attempts_exhausted 1 0", []string{"1 5xx 503"}, 0},
		{"404", 404, nil, Retry{}, "blocked refused 1 0", []string{"1 4xx 404"}, 0},
		{"307", 307, nil, Retry{}, "blocked redirected 1 0", []string{"1 3xx 307"}, 0},
		{"429 with Retry-After", 429, http.Header{"Retry-After": {"120"}}, Retry{MaxAttempts: 1},
			"retry_wait  1 1", []string{"1 429 429"}, 120 * time.Second},
		{"503 with Retry-After beyond the cap", 503, http.Header{"Retry-After": {"3600"}}, Retry{Cap: time.Minute},
			"retry_wait  1 1", []string{"1 5xx 503"}, time.Minute},
		{"retry beyond the deadline", 429, http.Header{"Retry-After": {"604800"}}, Retry{Cap: 1000 * time.Hour},
			"blocked deadline_passed 1 1", []string{"1 429 429"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			store, _ := newStore(t)
			w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, _ *http.Request) {
				for name := range tc.header {
					rw.Header().Set(name, tc.header.Get(name))
				}
				rw.WriteHeader(tc.status)
				rw.Write([]byte("\xff\xfe\x00" + strings.Repeat("x", 100_000)))
			}), 0)
			accept(t, store, "d1")
			_, results, stop := started(t, store, w, Config{Retry: tc.retry, Worker: "w\x001"})
			var r AttemptResult
			for range tc.ledger {
				r = next(t, results)
			}
			stop()
			f := stateOf(t, store, r)
			if got := fmt.Sprint(f.State, " ", f.BlockedReason, " ", f.Attempt, " ", f.AttemptsFree); got != tc.want {
				t.Errorf("forward is %s, want %s", got, tc.want)
			}
			lines, attempts := ledger(t, store, f.ID)
			if !slices.Equal(lines, tc.ledger) {
				t.Fatalf("ledger %q, want %q", lines, tc.ledger)
			}
			last := attempts[len(attempts)-1]
			if len(last.Answer) != keptAnswer || !strings.HasPrefix(string(last.Answer), "\xff\xfe\x00") || last.Duration <= 0 {
				t.Errorf("kept %d bytes of the answer, duration %v", len(last.Answer), last.Duration)
			}
			if wait := f.NextAttemptAt.Sub(last.EndedAt); tc.due > 0 && (wait < tc.due || wait > tc.due+time.Second) {
				t.Errorf("due again after %v, want %v and at most a second more", wait, tc.due)
			}
		})
	}
}

func TestPanicInOneForwardLeavesTheOthers(t *testing.T) {
	store, pool := newStore(t)
	accept(t, store, numbered(20)...)
	h := HandlerFunc(func(_ context.Context, f Forward) error {
		if f.Delivery.DeliveryID == "d7" {
			panic("no\x00thing")
		}
		return nil
	})
	_, results, stop := started(t, store, h, Config{Concurrency: 2, Retry: Retry{Base: time.Millisecond, MaxAttempts: 2}})
	for range 21 {
		next(t, results)
	}
	stop()
	if ok, bad := forwards(t, pool, "state = 'accepted'"), forwards(t, pool, "state = 'blocked' AND attempts = 2"); ok != 19 || bad != 1 {
		t.Errorf("%d accepted, %d blocked; want 19 and 1", ok, bad)
	}
}

func TestCaseE11_PoisonAtTheHead(t *testing.T) {
	store, pool := newStore(t)
	bad := numbered(10)
	accept(t, store, bad...)
	accept(t, store, "good")
	h := HandlerFunc(func(_ context.Context, f Forward) error {
		if f.Delivery.DeliveryID != "good" {
			return errors.New("always")
		}
		return nil
	})
	_, results, stop := started(t, store, h, Config{
		Concurrency: 10, Poll: time.Minute, Retry: Retry{Base: time.Hour}, Breaker: Breaker{Failures: 11},
	})
	for range 11 {
		next(t, results)
	}
	stop()
	if n := forwards(t, pool, "state = 'accepted'"); n != 1 {
		t.Error("the good one was not sent within one cycle")
	}
}

func TestTwoProcessesShareABacklog(t *testing.T) {
	store, pool := newStore(t)
	other, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	var app recorder
	w := newForwarder(t, newApp(t, app.answering(func(http.ResponseWriter, *http.Request) {})), 0)
	_, first, stopFirst := started(t, store, w, Config{Worker: "one"})
	_, second, stopSecond := started(t, other, w, Config{Worker: "two"})
	accept(t, store, numbered(n)...)
	shares := map[string]int{}
	for range n {
		select {
		case <-first:
			shares["one"]++
		case <-second:
			shares["two"]++
		case <-time.After(20 * time.Second):
			t.Fatalf("stuck at %v", shares)
		}
	}
	stopFirst()
	stopSecond()
	for _, id := range numbered(n) {
		if got := app.attempts(id); got != "1" {
			t.Fatalf("the app saw attempts %q of %s, want 1", got, id)
		}
	}
	if got := forwards(t, pool, "state = 'accepted' AND lease_until IS NULL"); got != n {
		t.Errorf("%d of %d accepted", got, n)
	}
	if shares["one"] == 0 || shares["two"] == 0 {
		t.Errorf("shares %v", shares)
	}
}

func TestGracefulStopLeavesNoLease(t *testing.T) {
	store, pool := newStore(t)
	const n = 200
	accept(t, store, numbered(n)...)
	working := make(chan struct{}, n)
	h := HandlerFunc(func(ctx context.Context, f Forward) error {
		working <- struct{}{}
		if f.ID%3 == 0 {
			<-ctx.Done() // outlives Grace
			return ctx.Err()
		}
		return nil
	})
	_, _, stop := started(t, store, h, Config{Concurrency: 50, Grace: 50 * time.Millisecond})
	for range 60 {
		<-working
	}
	stop()
	if got := forwards(t, pool, "lease_until IS NOT NULL"); got != 0 {
		t.Errorf("%d leases left", got)
	}
	accepted := forwards(t, pool, "state = 'accepted'")
	cut := forwards(t, pool, "state = 'retry_wait' AND next_attempt_at <= clock_timestamp()")
	untouched := forwards(t, pool, "state = 'pending' AND attempts = 0")
	if accepted == 0 || cut == 0 || accepted+cut+untouched != n {
		t.Errorf("%d accepted, %d cut and due, %d as if never claimed; want %d in all", accepted, cut, untouched, n)
	}
	if got := attemptsOf(t, pool, "unknown"); got != cut {
		t.Errorf("%d attempts recorded as unknown, %d were cut", got, cut)
	}
}

func attemptsOf(t *testing.T, pool *pgxpool.Pool, class string) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM hooklatch.attempt WHERE class = $1", class).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWakeAfterACommit(t *testing.T) {
	pool := inboxtest.New(t)
	var c *Consumer
	store, err := inbox.New(pool, inbox.Config{OnForwards: func(string) { c.Wake() }})
	if err != nil {
		t.Fatal(err)
	}
	c, results, _ := started(t, store, HandlerFunc(accepting), Config{Poll: time.Hour})
	for i := range 50 {
		accept(t, store, fmt.Sprint("d", i))
		next(t, results) // an hour, without the wake-up
	}
}
