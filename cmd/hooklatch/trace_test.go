package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// The trace of a delivery tells what people did and what overtook it, what it waits
// for, and the command that moves it.
func TestTraceTellsTheWholeStory(t *testing.T) {
	store, database := openInbox(t)
	ctx := t.Context()
	arrive := func(id string, revision int64, body string, ordering inbox.Ordering) {
		t.Helper()
		d := inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: id, Body: []byte(body), Method: "POST",
			ResourceType: "report", ResourceID: "R-" + string(ordering), Revision: &revision,
			Forwards: []inbox.NewForward{{Destination: "app", Ordering: ordering}}}
		if _, err := store.Accept(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	work := func(outcome inbox.Outcome, class string) {
		t.Helper()
		claimed, err := store.Claim(ctx, inbox.ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute, Worker: "w1"})
		if err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %v, %v", claimed, err)
		}
		f := claimed[0]
		if err := store.Settle(ctx, inbox.Settlement{ForwardID: f.ID, Tenant: "acme", Token: f.Token, Attempt: f.Attempt, Outcome: outcome, Class: class,
			Reason: "client_error", Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	idle := func() { // a claim puts what waits into its place
		t.Helper()
		if claimed, err := store.Claim(ctx, inbox.ClaimRequest{Destination: "app", Limit: 9, Lease: time.Minute}); err != nil || len(claimed) != 0 {
			t.Fatalf("claimed %v, %v", claimed, err)
		}
	}
	traced := func(id string, texts ...string) {
		t.Helper()
		code, out, messages := hooklatch(t, "trace", id)
		if code != exitOK || messages != "" {
			t.Fatalf("trace %s: exit %d, %q", id, code, messages)
		}
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("trace %s has no %q:\n%s", id, text, out)
			}
		}
	}

	// latest: 2 is applied, then 1 and another 2 come.
	arrive("l-2", 2, "two", inbox.OrderLatest)
	work(inbox.OutcomeAccepted, "2xx")
	arrive("l-1", 1, "one", inbox.OrderLatest)
	arrive("l-2-again", 2, "two, otherwise", inbox.OrderLatest)
	idle()
	traced("l-1", "not sent: revision 2 was applied", "superseded", "report/R-latest, revision 1")
	traced("l-2-again", "revision 2 came before with another body: l-2, which stays")
	traced("l-2", "revision 2 came again with another body: l-2-again, which is not sent")

	// strict: a dead letter at the front, one behind it, and a gap in another resource.
	arrive("s-1", 1, "one", inbox.OrderStrict)
	arrive("s-2", 2, "two", inbox.OrderStrict)
	work(inbox.OutcomeBlocked, "4xx")
	idle()
	traced("s-1", "blocked (client_error) after 1 attempt: only a person moves it",
		"next          hooklatch replay --delivery s-1 --source billing --destination app   |   hooklatch events show s-1")
	traced("s-2", "pending: behind revision 1 (s-1), which is blocked (client_error)",
		"next          hooklatch replay --delivery s-1 --source billing --destination app   |   hooklatch events show s-2")
	var forward int64
	for d, err := range store.Find(ctx, inbox.Filter{ID: "s-1"}) {
		if err != nil {
			t.Fatal(err)
		}
		forwards, err := store.Forwards(ctx, d.ID)
		if err != nil {
			t.Fatal(err)
		}
		forward = forwards[0].ID
	}
	if err := store.Replay(ctx, forward, inbox.ReplayRequest{Act: inbox.Act{Actor: "ann", Reason: "app mended"}}); err != nil {
		t.Fatal(err)
	}
	traced("s-1", `replay    to app by ann: "app mended"`, "retry_wait, attempt 2 is due: a running server takes it, tried until 20")
	work(inbox.OutcomeBlocked, "4xx")
	traced("s-1", "attempt 1   4xx", "attempt 2   4xx   manual, by ann")
	if err := store.Cancel(ctx, forward, inbox.Act{Actor: "bob", Reason: "not wanted"}); err != nil {
		t.Fatal(err)
	}
	traced("s-1", `cancel    to app by bob: "not wanted"`, "a person decided that it is not sent", "cancelled")

	// A paused destination is the first thing to know.
	execute(t, database, `INSERT INTO hooklatch.destination (name, url, paused_at, paused_by, pause_reason) VALUES ('app', 'http://app', now(), 'carl', 'deploy')`)
	traced("s-2", "pending: app is paused since 20", ` by carl: "deploy"`)
	code, out, _ := hooklatch(t, "trace", "s-1", "--json")
	if code != exitOK || !strings.Contains(out, `"acts":[{"at":"20`) || !strings.Contains(out, `"actor":"ann","action":"replay","reason":"app mended","destination":"app"}`) {
		t.Errorf("exit %d, %s", code, out)
	}
}

// A request id finds the conflict that it brought.
func TestTraceOfAConflictByItsRequest(t *testing.T) {
	store, database := openInbox(t)
	d := inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: "dlv_1", Body: []byte("x"), Method: "POST"}
	if _, err := store.Accept(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Body, d.BodyHash = []byte("y"), [32]byte{}
	if _, err := store.Accept(t.Context(), d); err == nil {
		t.Fatal("no conflict")
	}
	execute(t, database, `UPDATE hooklatch.conflict SET request_id = '0192f300-0000-7000-8000-000000000055'`)
	code, out, _ := hooklatch(t, "trace", "0192f300-0000-7000-8000-000000000055")
	if code != exitOK || !strings.HasPrefix(out, "dlv_1 ") || !strings.Contains(out, "conflict  other bytes, body hash a1fce436…") ||
		!strings.Contains(out, "next          hooklatch events diff --conflict dlv_1 --source billing") {
		t.Errorf("exit %d\n%s", code, out)
	}
}
