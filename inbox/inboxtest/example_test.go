package inboxtest_test

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// A test of code that works on the inbox has a database of its own, with the
// schema in it. In your package it is called TestAppTakesTheDelivery.
func appTakesTheDelivery(t *testing.T) {
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
	if err != nil || len(forwards) != 1 || string(forwards[0].Delivery.Body) != string(body) {
		t.Errorf("claimed %v, %v", forwards, err)
	}
}

// The same while the answer to COMMIT gets lost: the delivery is stored, and the
// caller cannot know.
func appIsToldThatTheOutcomeIsUnknown(t *testing.T) {
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
	if proxy.Counts().CutAfter != 1 {
		t.Fatal("void: nothing was cut")
	}
	if !errors.Is(err, inbox.ErrOutcomeUnknown) {
		t.Errorf("accept: %v", err)
	}
}

// The functions above are what a package's tests look like.
func Example() {}
