package inbox

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// E13: somebody holds an old snapshot, so that nothing that was moved since can be
// cleaned up. What is due is found all the same, each try of it, and nothing is lost or
// stuck; bodies are not rewritten by what becomes of their forwards.
func TestCaseE13_OldSnapshotLosesNothing(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	const deliveries, tries = 60, 5
	for i := range deliveries {
		accept(t, s, delivery(fmt.Sprint(i), "x"))
	}
	text := func(sql string, args ...any) (text string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), sql, args...).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	const versionsSQL = `SELECT string_agg(ctid::text || xmin::text, ' ' ORDER BY inbox_id) FROM hooklatch.payload`
	versions := text(versionsSQL)
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback(context.Background())
	if _, err := old.Exec(t.Context(), `SELECT 1`); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Minute)
	for try := 1; try <= tries; try++ {
		for left := deliveries; left > 0; {
			got, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 16, Lease: time.Minute, Now: now})
			if err != nil || len(got) == 0 {
				t.Fatalf("try %d: %d claimed, %v; %d are due", try, len(got), err, left)
			}
			for _, f := range got {
				st := settlement(f, OutcomeRetry, "5xx")
				if st.Now, st.Delay = now, 30*time.Second; try == tries {
					st.Outcome, st.Class = OutcomeAccepted, "2xx"
				}
				if err := s.Settle(t.Context(), st); err != nil {
					t.Fatal(err)
				}
			}
			left -= len(got)
		}
		now = now.Add(time.Minute)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'accepted' AND attempts = $1 AND lease_until IS NULL`, tries); n != deliveries {
		t.Errorf("%d of %d accepted with their last try", n, deliveries)
	}
	if text(versionsSQL) != versions {
		t.Error("bodies were rewritten")
	}
	if n := count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND backend_xmin IS NOT NULL`, old.Conn().PgConn().PID()); n != 1 {
		t.Error("void: nobody holds an old snapshot")
	}
}
