package inboxtest_test

import (
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	for range 2 {
		pool := inboxtest.New(t)
		if _, err := pool.Exec(t.Context(), `CREATE TABLE hooklatch.mark ()`); err != nil {
			t.Fatal(err)
		}
		if err := migrations.Check(t.Context(), pool); err != nil {
			t.Error(err)
		}
	}
}

func TestServerOfTheEnvironment(t *testing.T) {
	c := inboxtest.NewCluster(t)
	pool := c.Pool()
	if _, err := pool.Exec(t.Context(), `CREATE ROLE tester LOGIN CREATEDB SUPERUSER`); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("tester", "p@ss w+rd%/?&=")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.v", "-test.run=TestEachTestHasItsOwnDatabase|TestClusterComesBack")
	cmd.Env = append(os.Environ(), "HOOKLATCH_TEST_DATABASE_URL="+u.String())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- SKIP: TestClusterComesBack") {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "p@ss") || strings.Contains(string(out), "p%40ss") {
		t.Errorf("the password is in the log:\n%s", out)
	}
	if templates, copies := databases(t, pool); templates != 1 || copies != 0 {
		t.Errorf("%d templates and %d copies are left on the server", templates, copies)
	}
}

func databases(t *testing.T, pool *pgxpool.Pool) (templates, copies int) {
	t.Helper()
	const sql = `SELECT count(*) FILTER (WHERE datistemplate), count(*) FILTER (WHERE NOT datistemplate)
		FROM pg_database WHERE datname LIKE 'testdb%'`
	if err := pool.QueryRow(t.Context(), sql).Scan(&templates, &copies); err != nil {
		t.Fatal(err)
	}
	return templates, copies
}
