package inbox

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newStore returns a store on a database of its own, which it uses with no more rights
// than a server has, and a pool of somebody who may do anything there.
func newStore(t testing.TB) (*Store, *pgxpool.Pool) {
	t.Helper()
	pool := inboxtest.New(t)
	limited, err := pgxpool.New(t.Context(), inboxtest.LoginURL(t, pool.Config().ConnString()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	s, err := New(limited, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s, pool
}

// delivery is a delivery of source src1 with one forward to app.
func delivery(id, body string) Delivery {
	return Delivery{
		Tenant: "t1", Source: "src1", DeliveryID: id,
		Body: []byte(body), BodyHash: sha256.Sum256([]byte(body)),
		Method: "POST", Forwards: []NewForward{{Destination: "app"}},
	}
}

func accept(t testing.TB, s *Store, d Delivery) Receipt {
	t.Helper()
	r, err := s.Accept(t.Context(), d)
	if err != nil {
		t.Fatalf("accept %s: %v", d.DeliveryID, err)
	}
	return r
}

func claimOne(t testing.TB, s *Store, now time.Time) Forward {
	t.Helper()
	got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute, Now: now})
	if err != nil || len(got) != 1 {
		t.Fatalf("claim: %d forwards, %v; want 1", len(got), err)
	}
	return got[0]
}

// count is for checks after the fact, on small tables.
func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
