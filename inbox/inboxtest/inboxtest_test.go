package inboxtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	for range 2 {
		pool := inboxtest.New(t)
		if _, err := pool.Exec(t.Context(), `CREATE TABLE hooklatch.mark ()`); err != nil {
			t.Fatal(err)
		}
	}
}
