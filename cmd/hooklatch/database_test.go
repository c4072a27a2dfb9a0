package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

// TestDatabaseScripts runs testdata/database/*.txtar, each with a migrated
// database of its own behind DATABASE_URL and an empty one behind EMPTY_URL. Scripts fill it with these commands:
//
//	accept SOURCE ID TYPE BODYFILE [DESTINATION...]   commits a delivery of tenant acme
//	revise SOURCE ID RESOURCE REVISION ORDERING DESTINATION   commits one of report/RESOURCE, "-" for no revision
//	conflict SOURCE ID BODYFILE KEY                   brings another body under a known id
//	forget-conflicts ID                               removes the other bodies of a delivery, as retention does
//	forget ID                                         removes the body of a delivery, as retention does
//	attempt DESTINATION OUTCOME STATUS ANSWER         claims the oldest due forward and settles it
//	nothing DESTINATION                               claims, and demands that nothing is due
//	refuse SOURCE AGE REASON KEY CAUSE ID COUNT       counts refusals of that age, "-" for what is not known
//	use SOURCE KEY AGE ACCEPTED                       counts uses of a key
func TestDatabaseScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/database/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			address := inboxtest.URL(t)
			pool, err := pgxpool.New(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			store, err := inbox.New(pool, inbox.Config{})
			if err != nil {
				t.Fatal(err)
			}
			f := filler{t.Context(), store}
			forget := func(ts *testscript.TestScript, _ bool, args []string) {
				_, err := pool.Exec(t.Context(), `DELETE FROM hooklatch.payload WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = $1)`, args[0])
				ts.Check(err)
			}
			forgetConflicts := func(ts *testscript.TestScript, _ bool, args []string) {
				_, err := pool.Exec(t.Context(), `UPDATE hooklatch.conflict SET body = NULL, headers = '' WHERE delivery_id = $1`, args[0])
				ts.Check(err)
			}
			testscript.Run(t, testscript.Params{
				Files: []string{script},
				Setup: func(e *testscript.Env) error {
					e.Setenv("DATABASE_URL", inboxtest.LoginURL(t, address))
					e.Setenv("GORACE", quickExit)
					e.Setenv("EMPTY_URL", emptyDatabase(t, pool, address))
					e.Setenv("XDG_RUNTIME_DIR", e.WorkDir+"/run")
					return os.Mkdir(e.WorkDir+"/run", 0o700)
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){"accept": f.accept, "revise": f.revise, "nothing": f.nothing, "attempt": f.attempt, "refuse": f.refuse, "use": f.use, "forget": forget, "forget-conflicts": forgetConflicts, "conflict": f.conflict, "chop": chop},
			})
		})
	}
}

// emptyDatabase makes a database without a schema beside that of address.
func emptyDatabase(t *testing.T, pool *pgxpool.Pool, address string) string {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := pgx.Identifier{u.Path[1:] + "_empty"}
	u.Path += "_empty"
	if _, err := pool.Exec(t.Context(), "CREATE DATABASE "+name.Sanitize()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "DROP DATABASE "+name.Sanitize()+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return u.String()
}

type filler struct {
	ctx   context.Context
	store *inbox.Store
}

func (f filler) accept(ts *testscript.TestScript, neg bool, args []string) {
	body := []byte(strings.TrimSuffix(ts.ReadFile(args[3]), "\n"))
	request, err := uuid.NewV7()
	ts.Check(err)
	d := inbox.Delivery{Tenant: "acme", Source: args[0], DeliveryID: args[1], EventID: "evt_" + args[1], EventType: args[2],
		Body: body, BodyHash: sha256.Sum256(body), BodySize: len(body), Method: "POST", RequestID: request, Peer: "192.0.2.1",
		Header: map[string][]string{"Content-Type": {"application/json"}, "X-Webhook-Signature": {"5ecre7"}, "X-Note": {"a\x1b[2Jb"}},
		Scheme: "zhisou-v1", KeyID: "k1", ResourceType: "invoice", ResourceID: "42"}
	for _, destination := range args[4:] {
		d.Forwards = append(d.Forwards, inbox.NewForward{Destination: destination})
	}
	if _, err = f.store.Accept(f.ctx, d); neg != (err != nil) {
		ts.Fatalf("accept: %v", err)
	}
}

func (f filler) conflict(ts *testscript.TestScript, _ bool, args []string) {
	body := []byte(strings.TrimSuffix(ts.ReadFile(args[2]), "\n"))
	_, err := f.store.Accept(f.ctx, inbox.Delivery{Tenant: "acme", Source: args[0], DeliveryID: args[1], Body: body, Method: "POST", KeyID: args[3],
		Header: map[string][]string{"Content-Type": {"application/json"}, "X-Webhook-Signature": {"5ecre7 too"}, "X-Note": {"a\x1b[2Jb"}, "X-Try": {"2"}}})
	var conflict *inbox.ConflictError
	if !errors.As(err, &conflict) || conflict.Unrecorded != nil {
		ts.Fatalf("conflict: %v", err)
	}
}

func (f filler) revise(ts *testscript.TestScript, _ bool, args []string) {
	request, err := uuid.NewV7()
	ts.Check(err)
	d := inbox.Delivery{Tenant: "acme", Source: args[0], DeliveryID: args[1], EventType: "report.updated", Body: []byte(args[1]), Method: "POST",
		RequestID: request, ResourceType: "report", ResourceID: args[2], MetaError: "revision is missing",
		Forwards: []inbox.NewForward{{Destination: args[5], Ordering: inbox.Ordering(args[4])}}}
	if args[3] != "-" {
		n, err := strconv.ParseInt(args[3], 10, 64)
		ts.Check(err)
		d.Revision, d.MetaError = &n, ""
	}
	_, err = f.store.Accept(f.ctx, d)
	ts.Check(err)
}

func (f filler) attempt(ts *testscript.TestScript, _ bool, args []string) {
	// An hour ahead, so that a forward that waits for its retry is due.
	at := time.Now().Add(time.Hour)
	claimed, err := f.store.Claim(f.ctx, inbox.ClaimRequest{Destination: args[0], Limit: 1, Lease: time.Minute, Now: at})
	ts.Check(err)
	if len(claimed) != 1 {
		ts.Fatalf("attempt: %d forwards claimed", len(claimed))
	}
	status, err := strconv.Atoi(args[2])
	ts.Check(err)
	outcome := map[string]inbox.Outcome{"accepted": inbox.OutcomeAccepted, "retry": inbox.OutcomeRetry, "blocked": inbox.OutcomeBlocked}[args[1]]
	s := inbox.Settlement{ForwardID: claimed[0].ID, Tenant: claimed[0].Delivery.Tenant, Token: claimed[0].Token, Attempt: claimed[0].Attempt, Outcome: outcome,
		Class: args[2][:1] + "xx", Status: status, Answer: []byte(args[3]), Duration: 12 * time.Millisecond, Worker: "w1"}
	if outcome == inbox.OutcomeRetry {
		s.Delay = 10 * time.Minute
	}
	if outcome == inbox.OutcomeBlocked {
		s.Reason = "client_error"
	}
	ts.Check(f.store.Settle(f.ctx, s))
}

func (f filler) nothing(ts *testscript.TestScript, _ bool, args []string) {
	claimed, err := f.store.Claim(f.ctx, inbox.ClaimRequest{Destination: args[0], Limit: 1, Lease: time.Minute})
	ts.Check(err)
	if len(claimed) != 0 {
		ts.Fatalf("%s is due", claimed[0].Delivery.DeliveryID)
	}
}

func (f filler) refuse(ts *testscript.TestScript, _ bool, args []string) {
	known := func(i int) string { return strings.TrimPrefix(args[i], "-") }
	age, err := time.ParseDuration(args[1])
	ts.Check(err)
	count, err := strconv.ParseInt(args[6], 10, 64)
	ts.Check(err)
	at := time.Now().Add(-age)
	ts.Check(f.store.Record(f.ctx, &inbox.Tallies{Refusals: []inbox.Refusal{{
		Tenant: "acme", Source: args[0], Minute: at, Code: verify.Reason(args[2]).Code(), Reason: args[2], KeyID: known(3), Cause: known(4),
		Count: count, FirstAt: at, LastAt: at, RequestID: uuid.MustParse("01a22d3e-aea4-74d3-8703-76044f71c319"), DeliveryID: known(5),
		Peer: "192.0.2.1", BodySize: 412, BodyHash: sha256.Sum256([]byte("x"))}}}))
}

func (f filler) use(ts *testscript.TestScript, _ bool, args []string) {
	age, err := time.ParseDuration(args[2])
	ts.Check(err)
	accepted, err := strconv.ParseInt(args[3], 10, 64)
	ts.Check(err)
	at := time.Now().Add(-age)
	ts.Check(f.store.Record(f.ctx, &inbox.Tallies{KeyUses: []inbox.KeyUse{{
		Tenant: "acme", Source: args[0], KeyID: args[1], Scheme: "zhisou-v1", Hour: at, Accepted: accepted, LastUsed: at}}}))
}
