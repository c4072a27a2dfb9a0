package inbox_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
)

// A delivery is accepted once, however often its sender repeats it; other bytes
// under its id are a conflict.
func ExampleStore_Accept() {
	ctx, store, stop := openStore()
	defer stop()

	deliver := func(body string) {
		receipt, err := store.Accept(ctx, inbox.Delivery{
			Tenant: "acme", Source: "billing", DeliveryID: "dlv_1",
			Body: []byte(body), BodyHash: sha256.Sum256([]byte(body)), Method: "POST",
			Forwards: []inbox.NewForward{{Destination: "app"}},
		})
		var conflict *inbox.ConflictError
		switch {
		case errors.As(err, &conflict):
			fmt.Println("409 conflict")
		case err != nil:
			fmt.Println("503:", err)
		default:
			fmt.Println("202, duplicate:", receipt.Duplicate)
		}
	}
	deliver(`{"paid":1}`)
	deliver(`{"paid":1}`)
	deliver(`{"paid":2}`)
	// Output:
	// 202, duplicate: false
	// 202, duplicate: true
	// 409 conflict
}

// Nothing is lost: an audit has nothing to say.
func ExampleStore_Audit() {
	ctx, store, stop := openStore()
	defer stop()
	for _, id := range []string{"dlv_1", "dlv_2"} {
		d := inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: id, Body: []byte("{}"), Method: "POST",
			Forwards: []inbox.NewForward{{Destination: "app"}}}
		if _, err := store.Accept(ctx, d); err != nil {
			panic(err)
		}
	}
	differences := 0
	for d, err := range store.Audit(ctx, inbox.AuditRequest{Bodies: true}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(d) // kind, where, what
		differences++
	}
	fmt.Println(differences, "differences")
	// Output:
	// 0 differences
}

// What is old goes batch by batch, at the pace of the caller. A late repeat is still a
// repeat.
func ExampleStore_Prune() {
	ctx, store, stop := openStore()
	defer stop()
	d := inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: "dlv_1", Body: []byte("{}"), Method: "POST"}
	receipt, err := store.Accept(ctx, d)
	if err != nil {
		panic(err)
	}
	later := time.Now().AddDate(0, 0, 40)
	old := inbox.Retention{Bodies: later.AddDate(0, 0, -30), Identities: later.AddDate(0, 0, -90)}
	for batch, err := range store.Prune(ctx, old) {
		if err != nil {
			panic(err) // what was yielded before is gone all the same
		}
		if batch.Rows > 0 {
			fmt.Println(batch.Rows, batch.Kind)
		}
	}
	_, err = store.Payload(ctx, receipt.ID)
	fmt.Println(err)
	receipt, err = store.Accept(ctx, d)
	fmt.Println("duplicate:", receipt.Duplicate, err)
	// Output:
	// 1 bodies
	// payload of 1: inbox: body pruned
	// duplicate: true <nil>
}

// Receivers count in memory, and add what they have counted now and then. Tallies
// whose recording has failed are recorded again as they are.
func ExampleStore_Record() {
	ctx, store, stop := openStore()
	defer stop()
	now := time.Now()
	for range 2 {
		tallies := &inbox.Tallies{
			Refusals: []inbox.Refusal{{Tenant: "acme", Source: "billing", Minute: now, Code: "signature_invalid", Reason: "signature_mismatch",
				KeyID: "k1", Cause: "body_crlf", Count: 3, FirstAt: now, LastAt: now}},
			KeyUses: []inbox.KeyUse{{Tenant: "acme", Source: "billing", KeyID: "k1", Scheme: "zhisou-v1", Hour: now, Accepted: 40, LastUsed: now}},
		}
		if err := store.Record(ctx, tallies); err != nil {
			fmt.Println("again later, with the same tallies:", err)
		}
	}
	for r, err := range store.Refusals(ctx, inbox.RefusalFilter{Source: "billing", Since: now}) {
		fmt.Println(r.Reason, r.KeyID, r.Cause, r.Count, err)
	}
	for u, err := range store.KeyUsages(ctx, inbox.KeyUsageFilter{Since: now.AddDate(0, 0, -7)}) {
		fmt.Println(u.KeyID, u.Accepted, err)
	}
	// Output:
	// signature_mismatch k1 body_crlf 6 <nil>
	// k1 80 <nil>
}

// A worker claims a forward under a lease, does the work, and settles with the
// lease's token. A worker that was too slow finds its lease lost.
func ExampleStore_Claim() {
	ctx, store, stop := openStore()
	defer stop()
	body := []byte("hello")
	store.Accept(ctx, inbox.Delivery{
		Tenant: "acme", Source: "billing", DeliveryID: "dlv_1", Body: body, BodyHash: sha256.Sum256(body),
		Forwards: []inbox.NewForward{{Destination: "app"}},
	})

	claim := inbox.ClaimRequest{Destination: "app", Limit: 10, Lease: time.Minute}
	slow, _ := store.Claim(ctx, claim)
	claim.Now = time.Now().Add(2 * time.Minute) // the lease of the slow worker is over
	quick, _ := store.Claim(ctx, claim)
	for _, f := range append(quick, slow...) {
		err := store.Settle(ctx, inbox.Settlement{
			ForwardID: f.ID, Tenant: f.Delivery.Tenant, Token: f.Token, Attempt: f.Attempt,
			Outcome: inbox.OutcomeAccepted, Class: "2xx", Status: 200,
		})
		fmt.Printf("attempt %d: lease lost: %v\n", f.Attempt, errors.Is(err, inbox.ErrLeaseLost))
	}
	// Output:
	// attempt 2: lease lost: false
	// attempt 1: lease lost: true
}

// openStore runs a throwaway Postgres, brings the schema to it, and opens a store.
func openStore() (context.Context, *inbox.Store, func()) {
	ctx := context.Background()
	server, err := devdb.Start(ctx, devdb.Config{})
	if err != nil {
		panic(err)
	}
	if _, err := migrations.Up(ctx, server.URL("postgres")); err != nil {
		panic(err)
	}
	pool, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		panic(err)
	}
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		panic(err)
	}
	return ctx, store, func() {
		pool.Close()
		server.Stop()
	}
}
