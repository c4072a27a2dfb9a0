package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// openInbox makes a database, which the commands of this test find in the environment,
// and a store on it.
func openInbox(t *testing.T) (store *inbox.Store, url string) {
	t.Helper()
	url = inboxtest.URL(t)
	t.Setenv("DATABASE_URL", url)
	t.Setenv("HOOKLATCH_CONFIG", "")
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if store, err = inbox.New(pool, inbox.Config{}); err != nil {
		t.Fatal(err)
	}
	return store, url
}

func TestAuditCommandNamesTheDeliveryAndTheNextCommand(t *testing.T) {
	store, database := openInbox(t)
	for _, id := range []string{"dlv_1", "dlv_2"} {
		d := inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: id, Body: []byte("x"), Method: "POST", Forwards: []inbox.NewForward{{Destination: "app"}}}
		if _, err := store.Accept(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	code, out, messages := hooklatch(t, "audit")
	if code != exitOK || out != "" || !strings.Contains(messages, "no difference: deliveries and forwards 2") {
		t.Errorf("exit %d, %q, %q", code, out, messages)
	}
	execute(t, database, `DELETE FROM hooklatch.payload USING hooklatch.inbox WHERE id = inbox_id AND delivery_id = 'dlv_2'`)
	code, out, messages = hooklatch(t, "audit")
	if code != exitNo || !strings.HasPrefix(out, "body_missing   dlv_2   source billing") ||
		!strings.Contains(out, "hooklatch trace dlv_2 --source billing") || !strings.Contains(messages, "1 difference:") {
		t.Errorf("exit %d, %q, %q", code, out, messages)
	}
	execute(t, database, `UPDATE hooklatch.inbox SET received_at = now() - interval '40 days' WHERE delivery_id = 'dlv_2'`,
		`UPDATE hooklatch.outbox SET state = 'cancelled'`)
	if code, out, _ = hooklatch(t, "audit"); code != exitOK {
		t.Errorf("a body that is kept for 30 days is missed after 40: exit %d, %q", code, out)
	}
	execute(t, database, `UPDATE hooklatch.inbox SET received_at = now()`)
	code, out, _ = hooklatch(t, "audit", "--json", "--since", "1h", "--source", "billing")
	var line discrepancyLine
	if err := json.Unmarshal([]byte(out), &line); err != nil || code != exitNo || line.Kind != inbox.DiffBodyMissing || line.DeliveryID != "dlv_2" || line.V != 1 {
		t.Errorf("exit %d, %q, %v", code, out, err)
	}
	if code, _, messages = hooklatch(t, "audit", "--source", "biling"); code != exitUsage || !strings.Contains(messages, `no source "biling": the inbox has deliveries of billing`) {
		t.Errorf("exit %d, %q", code, messages)
	}
}
