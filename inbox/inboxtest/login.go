package inboxtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Login is the name of a login with the rights that a server needs, and no more: it
// owns nothing, inherits nothing, and may take on the roles of hooklatch but that of
// the owner. Every server that this package starts has it.
const Login = "hooklatch_test"

// LoginURL is the address of the same database for Login, so that a test fails where
// a right is missing. It is the address itself on a server of
// HOOKLATCH_TEST_DATABASE_URL, where nobody knows a password for Login.
func LoginURL(t testing.TB, address string) string {
	t.Helper()
	if os.Getenv("HOOKLATCH_TEST_DATABASE_URL") != "" {
		return address
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	u.User = url.User(Login)
	return u.String()
}

// On a server that has passwords it may not log in: its rights can be tried there with
// SET SESSION AUTHORIZATION. Processes may do this at the same time.
const loginSQL = `DO $$ BEGIN
	IF to_regrole('` + Login + `') IS NULL THEN
		CREATE ROLE ` + Login + ` NOINHERIT %s;
		GRANT hooklatch_ingest, hooklatch_consumer, hooklatch_admin, hooklatch_read TO ` + Login + `;
	END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$`

func makeLogin(ctx context.Context, address string) error {
	mayLogIn := "LOGIN"
	if os.Getenv("HOOKLATCH_TEST_DATABASE_URL") != "" {
		mayLogIn = "NOLOGIN"
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, fmt.Sprintf(loginSQL, mayLogIn))
	return err
}
