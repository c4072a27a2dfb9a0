package inboxtest_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// A test of code that works on the inbox has a database of its own, with the
// schema in it.
func ExampleNew() {
	t := newT() // in your package: func TestAppTakesTheDelivery(t *testing.T) { …
	defer t.end()

	store, err := inbox.New(inboxtest.New(t), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"paid":1}`)
	if _, err := store.Accept(t.Context(), inbox.Delivery{
		Tenant: "acme", Source: "billing", DeliveryID: "dlv_1", Method: "POST",
		Body: body, BodyHash: sha256.Sum256(body),
		Forwards: []inbox.NewForward{{Destination: "app"}},
	}); err != nil {
		t.Fatal(err)
	}
	forwards, err := store.Claim(t.Context(), inbox.ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute})
	if err != nil || len(forwards) != 1 {
		t.Fatal("claimed", len(forwards), err)
	}
	fmt.Printf("%s: %s\n", forwards[0].Delivery.DeliveryID, forwards[0].Delivery.Body)
	// Output:
	// dlv_1: {"paid":1}
}

// The answer to COMMIT gets lost: the delivery is stored, and the caller cannot
// know.
func ExampleNewFaultProxy() {
	t := newT() // in your package: func TestOutcomeIsUnknown(t *testing.T) { …
	defer t.end()

	proxy := inboxtest.NewFaultProxy(t, inboxtest.URL(t))
	pool, err := pgxpool.New(t.Context(), proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	proxy.AtCommit(inboxtest.CutAfterCommit, 1)
	body := []byte(`{"paid":1}`)
	_, err = store.Accept(t.Context(), inbox.Delivery{
		Tenant: "acme", Source: "billing", DeliveryID: "dlv_1", Method: "POST",
		Body: body, BodyHash: sha256.Sum256(body),
	})
	// Without the count a test might pass because nothing was cut.
	fmt.Println("cut:", proxy.Counts().CutAfter, "unknown:", errors.Is(err, inbox.ErrOutcomeUnknown))
	// Output:
	// cut: 1 unknown: true
}
