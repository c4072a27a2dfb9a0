package main

import (
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

func TestRefusalsAreAddedUpByKind(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	g := newRefusalGroups()
	row := func(tenant, keyID, deliveryID string, first, last time.Duration) {
		g.add(&inbox.Refusal{Tenant: tenant, Source: "billing", Reason: "signature_mismatch", KeyID: keyID, DeliveryID: deliveryID, Count: 2,
			FirstAt: noon.Add(first), LastAt: noon.Add(last)})
	}
	row("acme", "k1", "dlv_new", 60*time.Second, 70*time.Second) // newest first
	row("acme", "k1", "dlv_old", 0, 50*time.Second)
	row("globex", "k1", "", 0, 0)
	row("acme", "k2", "", 0, 0)
	if len(g.all) != 3 {
		t.Fatalf("%d kinds, want 3", len(g.all))
	}
	if k := g.all[0]; k.Count != 4 || !k.FirstAt.Equal(noon) || !k.LastAt.Equal(noon.Add(70*time.Second)) || k.Sample.DeliveryID != "dlv_new" {
		t.Errorf("%+v", k)
	}
}
