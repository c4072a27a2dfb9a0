package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// One revision with two bodies is an alarm, once, in the log and as a number.
func TestRevisionConflictIsTold(t *testing.T) {
	var out bytes.Buffer
	s := &server{metrics: newMetrics(), log: newLogger(&out, "info", "json"), cfg: &config{Sources: map[string]*sourceConfig{"billing": {}}}}
	store, err := inbox.New(inboxtest.New(t), s.orderHooks(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	revision := int64(7)
	for _, id := range []string{"dlv_first", "dlv_second"} {
		_, err := store.Accept(t.Context(), inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: id, Body: []byte("a body of " + id), Method: "POST",
			ResourceType: "invoice", ResourceID: "inv_1", Revision: &revision,
			Forwards: []inbox.NewForward{{Destination: "app", Ordering: inbox.OrderLatest}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		claimed, err := store.Claim(t.Context(), inbox.ClaimRequest{Destination: "app", Limit: 5, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range claimed {
			err := store.Settle(t.Context(), inbox.Settlement{ForwardID: f.ID, Tenant: f.Delivery.Tenant, Token: f.Token, Attempt: f.Attempt, Outcome: inbox.OutcomeAccepted, Class: "2xx"})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testutil.ToFloat64(s.metrics.superseded.WithLabelValues("app")); n != 1 {
		t.Errorf("%v superseded, want 1", n)
	}
	if n := testutil.ToFloat64(s.metrics.revisionConflicts.WithLabelValues("billing")); n != 1 {
		t.Errorf("%v conflicts, want 1", n)
	}
	for _, want := range []string{`"msg":"revision conflict"`, `"source":"billing"`, `"resource":"invoice/inv_1"`, `"revision":7`,
		`"delivery_id":"dlv_second"`, `"first_delivery_id":"dlv_first"`, `"alarm":true`} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("log %s does not say %s once", out.String(), want)
		}
	}
	if strings.Contains(out.String(), "a body of") {
		t.Error("a body is in the log")
	}
}
