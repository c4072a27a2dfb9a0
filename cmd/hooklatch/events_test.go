package main

import (
	"fmt"
	"io"
	"testing"

	"github.com/google/uuid"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// --source once looked only at the newest deliveries that the id fits.
func TestSourceIsFoundBehindManyOthers(t *testing.T) {
	t.Parallel()
	store, err := inbox.New(inboxtest.New(t), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	accept := func(source, id string) {
		d := inbox.Delivery{Tenant: "acme", Source: source, DeliveryID: id, Method: "POST", RequestID: uuid.New(), Scheme: "zhisou-v1",
			KeyID: "k1", ResourceType: "invoice", ResourceID: "42"}
		if _, err := store.Accept(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	accept("quiet", "dlv_quiet")
	for i := range maxFits {
		accept("busy", fmt.Sprintf("dlv_%d", i))
	}
	d, err := findOne(t.Context(), &stdio{out: io.Discard, err: io.Discard}, store, "invoice/42", "quiet")
	if err != nil || d.DeliveryID != "dlv_quiet" {
		t.Errorf("got %q, %v", d.DeliveryID, err)
	}
}

func TestMaskedHeaders(t *testing.T) {
	for name, hidden := range map[string]bool{
		"X-Webhook-Signature": true, "Signature": true, "Stripe-Signature": true, "X-Shopify-Hmac-Sha256": true, "Authorization": true,
		"X-Gitlab-Token": true, "Cookie": true, "X-Api-Key": true, "X-Hub-Sig": true, "X-Client-Secret": true,
		"X-Webhook-Key-Id": false, "X-Webhook-Timestamp": false, "Content-Type": false, "X-GitHub-Event": false, "X-Webhook-Delivery-Id": false,
	} {
		got := maskHeaders(map[string][]string{name: {"a", "b"}})[name]
		if (len(got) == 1 && got[0] == redacted) != hidden {
			t.Errorf("%s: %q", name, got)
		}
	}
}
