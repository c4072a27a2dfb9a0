package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func TestAcceptStoresTheDeliveryWhole(t *testing.T) {
	s, pool := newStore(t)
	d := delivery("dlv_1", "\x00\xff\r\nbody")
	d.RawQuery, d.Header = "a=1;b=%zz", map[string][]string{"X-B": {"2", "\xf1"}, "X-A": {""}}
	d.Peer, d.Scheme, d.KeyID, d.EventID, d.EventType = "192.0.2.1", "zhisou-v1", "k1", "evt_1", "invoice.paid"
	d.ResourceType, d.ResourceID, d.Revision, d.Deleted = "invoice", "in_1", new(int64), true
	d.Forwards = []NewForward{{Destination: "app"}, {Destination: "audit", Deadline: time.Hour}}
	r := accept(t, s, d)
	if r.Duplicate || r.ID == 0 || time.Since(r.ReceivedAt).Abs() > time.Minute {
		t.Errorf("receipt %+v", r)
	}
	got, err := s.Payload(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := d
	want.ID, want.ReceivedAt, want.BodySize, want.Forwards = r.ID, r.ReceivedAt, len(d.Body), nil
	if g, w := fmt.Sprintf("%+v", deref(got)), fmt.Sprintf("%+v", deref(want)); g != w {
		t.Errorf("stored\n%s\nwant\n%s", g, w)
	}
	forwards, err := s.Forwards(t.Context(), r.ID)
	if err != nil || len(forwards) != 2 {
		t.Fatalf("%d forwards, %v; want 2", len(forwards), err)
	}
	for i, deadline := range []time.Duration{DefaultDeadline, time.Hour} {
		f := forwards[i]
		if f.Destination != d.Forwards[i].Destination || f.State != Pending || f.Attempt != 0 ||
			!f.NextAttemptAt.Equal(r.ReceivedAt) || !f.ExpiresAt.Equal(r.ReceivedAt.Add(deadline)) {
			t.Errorf("forward %+v", f)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.attempt`); n != 0 {
		t.Errorf("%d attempts of a delivery that was not tried", n)
	}
}

// deref makes a delivery comparable as text.
func deref(d Delivery) any {
	var revision int64 = -1
	if d.Revision != nil {
		revision = *d.Revision
	}
	d.Revision = nil
	received := d.ReceivedAt.UnixMicro()
	d.ReceivedAt = time.Time{}
	return struct {
		Delivery
		R, At int64
	}{d, revision, received}
}

func TestX03_EmptyBodyIsZeroBytesNotNull(t *testing.T) {
	s, pool := newStore(t)
	d := delivery("dlv_1", "")
	d.Body = nil
	accept(t, s, d)
	if n := count(t, pool, `SELECT octet_length(body) FROM hooklatch.payload`); n != 0 {
		t.Errorf("body of %d bytes", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE body_hash = '\xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'`); n != 1 {
		t.Error("hash is not that of no bytes")
	}
}

func TestX14_MetadataThatIsNoTextIsDropped(t *testing.T) {
	s, _ := newStore(t)
	d := delivery("dlv_1", "x")
	d.EventID, d.EventType, d.ResourceID = "evt\x00", "\xff", strings.Repeat("x", 1025)
	negative := int64(-1)
	d.Revision, d.KeyID = &negative, "k1"
	got, err := s.Payload(t.Context(), accept(t, s, d).ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.EventID != "" || got.EventType != "" || got.ResourceID != "" || got.Revision != nil || got.KeyID != "k1" {
		t.Errorf("kept %+v", got)
	}
	want := "revision is negative; event id is too long or no text; event type is too long or no text; resource id is too long or no text"
	if got.MetaError != want {
		t.Errorf("meta error %q, want %q", got.MetaError, want)
	}
}

func TestAcceptRefusesWhatCannotBeAnIdentity(t *testing.T) {
	s, pool := newStore(t)
	for name, change := range map[string]func(*Delivery){
		"no tenant":         func(d *Delivery) { d.Tenant = "" },
		"destination twice": func(d *Delivery) { d.Forwards = append(d.Forwards, d.Forwards[0]) },
		"no destination":    func(d *Delivery) { d.Forwards = append(d.Forwards, NewForward{}) },
		"no source":         func(d *Delivery) { d.Source = "" },
		"no delivery id":    func(d *Delivery) { d.DeliveryID = "" },
		"nul in id":         func(d *Delivery) { d.DeliveryID = "a\x00" },
		"id no utf-8":       func(d *Delivery) { d.DeliveryID = "\xff" },
		"line break header": func(d *Delivery) { d.Header = map[string][]string{"X": {"a\nB: c"}} },
		"colon in header":   func(d *Delivery) { d.Header = map[string][]string{"X: y": {"a"}} },
	} {
		d := delivery("dlv_1", "x")
		change(&d)
		if _, err := s.Accept(t.Context(), d); !errors.Is(err, ErrInternal) {
			t.Errorf("%s: %v, want ErrInternal", name, err)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox`); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// Two deliveries without a hash must not look alike.
func TestAcceptMakesAHashThatIsMissing(t *testing.T) {
	s, _ := newStore(t)
	for i, body := range []string{"one", "one", "two"} {
		d := delivery("dlv_1", body)
		d.BodyHash = [32]byte{}
		r, err := s.Accept(t.Context(), d)
		var conflict *ConflictError
		if errors.As(err, &conflict) != (i == 2) || r.Duplicate != (i == 1) {
			t.Errorf("delivery %d: %+v, %v", i, r, err)
		}
	}
}

func TestX28_OtherBytesAreAConflictAndOverwriteNothing(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	first := accept(t, s, delivery("dlv_1", "one"))
	for i, body := range []string{"two", "two", "three"} {
		_, err := s.Accept(t.Context(), delivery("dlv_1", body))
		var conflict *ConflictError
		if !errors.As(err, &conflict) || conflict.DeliveryID != "dlv_1" || conflict.Unrecorded != nil {
			t.Fatalf("%s: %v (%+v), want a conflict", body, err, conflict)
		}
		if conflict.First != (i == 0) {
			t.Errorf("conflict %d: First is %v; one alarm an id", i, conflict.First)
		}
	}
	got, err := s.Payload(t.Context(), first.ID)
	if err != nil || string(got.Body) != "one" {
		t.Errorf("first body is now %q, %v", got.Body, err)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox`); n != 1 {
		t.Errorf("%d forwards, want 1", n)
	}
	conflicts, err := s.Conflicts(t.Context(), "t1", "src1", "dlv_1")
	if err != nil || len(conflicts) != 2 {
		t.Fatalf("%d conflicts kept, %v; want 2", len(conflicts), err)
	}
	if c := conflicts[0]; string(c.Body) != "two" || c.Seen != 2 || c.BodyHash != sha256.Sum256([]byte("two")) {
		t.Errorf("evidence %+v", c)
	}
	for i := range 10 {
		s.Accept(t.Context(), delivery("dlv_1", fmt.Sprint("other ", i)))
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.conflict`); n != 8 {
		t.Errorf("%d conflicts kept, want %d", n, 8)
	}
}

func TestX30_SameIDInTwoSourcesAndTenants(t *testing.T) {
	s, _ := newStore(t)
	for _, scope := range [][2]string{{"t1", "src1"}, {"t1", "src2"}, {"t2", "src1"}} {
		d := delivery("dlv_1", fmt.Sprint(scope))
		d.Tenant, d.Source = scope[0], scope[1]
		if r := accept(t, s, d); r.Duplicate {
			t.Errorf("%v is a duplicate", scope)
		}
	}
}

// One hundred at once over two stores, as two processes have.
func TestX27_HundredEqualDeliveriesAtOnceAreOneRow(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	other, err := New(pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var receipts []Receipt
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			r, err := []*Store{s, other}[i%2].Accept(t.Context(), delivery("dlv_1", "same"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			receipts = append(receipts, r)
		})
	}
	wg.Wait()
	news := 0
	for _, r := range receipts {
		if !r.Duplicate {
			news++
		}
		if !r.ReceivedAt.Equal(receipts[0].ReceivedAt) || r.ID != receipts[0].ID {
			t.Errorf("receipt %+v beside %+v", r, receipts[0])
		}
	}
	if news != 1 {
		t.Errorf("%d were new, want 1", news)
	}
	if n := count(t, pool, `SELECT (SELECT count(*) FROM hooklatch.inbox) * 100 + (SELECT count(*) FROM hooklatch.outbox)`); n != 101 {
		t.Errorf("rows %d, want one delivery with one forward", n)
	}
}

func TestX28_TwoBodiesAtOnceHaveOneWinner(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	other, err := New(pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	taken, refused := map[string]int{}, map[string]int{}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			body := []string{"one", "two"}[i%2]
			_, err := []*Store{s, other}[i/2%2].Accept(t.Context(), delivery("dlv_1", body))
			mu.Lock()
			defer mu.Unlock()
			var conflict *ConflictError
			switch {
			case err == nil:
				taken[body]++
			case errors.As(err, &conflict):
				refused[body]++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(taken) != 1 || len(refused) != 1 || taken["one"]+taken["two"] != 50 {
		t.Errorf("taken %v, refused %v; want all of one body and none of the other", taken, refused)
	}
}

// statementLog remembers the statements of a pool.
type statementLog struct {
	codes
	mu  sync.Mutex
	sql []string
}

func (s *statementLog) add(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sql = append(s.sql, strings.ToLower(sql))
}

func (s *statementLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	s.add(query.SQL)
	return ctx
}

func (s *statementLog) TraceBatchQuery(_ context.Context, _ *pgx.Conn, query pgx.TraceBatchQueryData) {
	s.add(query.SQL)
}

// E2: a notification fails from 8,000 bytes on, and every commit that has one waits for
// the others. Accepting sends none, neither by itself nor through a trigger.
func TestCaseE2_AcceptNotifiesNobody(t *testing.T) {
	pool := inboxtest.New(t)
	cfg := pool.Config()
	said := &statementLog{}
	cfg.ConnConfig.Tracer = said
	watched, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watched.Close)
	s, err := New(watched, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for c := range 10 { // all at once, a slow machine would refuse some
		wg.Go(func() {
			for n := range 10 {
				if _, err := s.Accept(t.Context(), delivery(fmt.Sprintf("dlv_%d_%d", c, n), strings.Repeat("x", 262_144))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all := strings.Join(said.sql, "\n")
	if !strings.Contains(all, "insert into hooklatch.payload") {
		t.Fatal("void: the statements were not seen")
	}
	if strings.Contains(all, "notify") {
		t.Error("accepting notifies")
	}
	if n := count(t, pool, `SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal`); n != 0 {
		t.Errorf("%d triggers, which this test does not look into", n)
	}
}
