package migrations_test

import (
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/migrations"
)

// A migration locks tables one after the other, a running server the rows of several:
// where they wait for each other, the migration gives way and comes again.
func TestP16_MigrationGivesWayToARunningServer(t *testing.T) {
	url := inboxtest.URL(t)
	last := newest(t)
	if _, err := migrations.Down(t.Context(), url, last-1); err != nil {
		t.Fatal(err)
	}
	server, look := connect(t, url), connect(t, url)
	// Only the migration looks for a deadlock, so that it is the one that is ended.
	run(t, server, `SET deadlock_timeout = '1h'`)
	run(t, server, `BEGIN`)
	run(t, server, `SELECT FROM hooklatch.attempt LIMIT 1`)

	type outcome struct {
		done []migrations.Result
		err  error
	}
	migrated := make(chan outcome, 1)
	go func() {
		done, err := migrations.Up(t.Context(), url)
		migrated <- outcome{done, err}
	}()
	for len(texts(t, look, `SELECT 'waits' FROM pg_locks WHERE relation = 'hooklatch.attempt'::regclass AND NOT granted`)) == 0 {
		if t.Context().Err() != nil || len(migrated) > 0 {
			t.Fatal("void: the migration does not wait")
		}
	}
	before := texts(t, look, `SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()`)
	run(t, server, `SELECT FROM hooklatch.outbox LIMIT 1`) // which the migration has locked
	run(t, server, `COMMIT`)
	got := <-migrated
	if got.err != nil || len(got.done) != 1 || got.done[0].Version != last {
		t.Fatalf("applied %v: %v", got.done, got.err)
	}
	for texts(t, look, `SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()`)[0] == before[0] {
		if t.Context().Err() != nil {
			t.Fatal("void: there was no deadlock")
		}
	}
}
