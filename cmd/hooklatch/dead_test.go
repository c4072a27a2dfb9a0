package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// dieOf accepts deliveries of a source to app and lets them end blocked.
func dieOf(t *testing.T, store *inbox.Store, source, class string, status int, ids ...string) {
	t.Helper()
	for _, id := range ids {
		d := inbox.Delivery{Tenant: "acme", Source: source, DeliveryID: id, EventType: "type_" + class, Body: []byte("x"), Method: "POST",
			Forwards: []inbox.NewForward{{Destination: "app"}}}
		if _, err := store.Accept(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	forwards, err := store.Claim(t.Context(), inbox.ClaimRequest{Destination: "app", Limit: 1000, Lease: time.Minute})
	if err != nil || len(forwards) != len(ids) {
		t.Fatalf("%d claimed, %v", len(forwards), err)
	}
	for _, f := range forwards {
		err := store.Settle(t.Context(), inbox.Settlement{ForwardID: f.ID, Tenant: "acme", Token: f.Token, Attempt: f.Attempt, Outcome: inbox.OutcomeBlocked,
			Reason: "refused", Class: class, Status: status, Answer: []byte("no such order")})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// says runs a command and demands an exit code, and texts in what it prints.
func says(t *testing.T, code int, args []string, texts ...string) string {
	t.Helper()
	got, out, messages := hooklatch(t, args...)
	if got != code {
		t.Errorf("%v: exit code %d, want %d\n%s%s", args, got, code, out, messages)
	}
	for _, text := range texts {
		if !strings.Contains(out+messages, text) {
			t.Errorf("%v: no %q in\n%s%s", args, text, out, messages)
		}
	}
	return out + messages
}

func TestDeadListHasCountAgeAndOwnerTogether(t *testing.T) {
	store, database := openInbox(t)
	says(t, exitOK, []string{"dead", "list"}, "no dead letter fits")
	execute(t, database, `INSERT INTO hooklatch.destination (name, url, owner) VALUES ('app', 'http://app', 'payments')`)
	dieOf(t, store, "billing", "4xx", 404, "dlv_1", "dlv_2")
	dieOf(t, store, "other", "timeout", 0, "dlv_3")
	execute(t, database, `UPDATE hooklatch.outbox SET settled_at = settled_at - interval '49 hours' WHERE id = (SELECT min(id) FROM hooklatch.outbox)`)
	says(t, exitOK, []string{"dead", "list"}, "dlv_1", "404", "refused", "payments", "3 dead letters, the oldest dead for 2 d, owners: payments 3")
	out := says(t, exitOK, []string{"dead", "list", "--limit", "2"}, "dlv_2", "next   hooklatch dead list --limit 2 --after ")
	_, next, _ := strings.Cut(out, "next   hooklatch ")
	if out = says(t, exitOK, strings.Fields(next), "dlv_3", "timeout"); strings.Contains(out, "dlv_2") {
		t.Errorf("the next page begins anew:\n%s", out)
	}
	if out = says(t, exitOK, []string{"dead", "list", "--class", "timeout", "--since", "1h"}, "dlv_3", "1 dead letter, "); strings.Contains(out, "dlv_1") {
		t.Errorf("the filter lets dlv_1 through:\n%s", out)
	}
	_, out, _ = hooklatch(t, "dead", "list", "--until", "1h", "--json")
	var line deadLine
	if err := json.Unmarshal([]byte(out), &line); err != nil || line.V != 1 || line.DeliveryID != "dlv_1" || line.Owner != "payments" || line.Last.Status != 404 ||
		line.First.Attempt != 1 || line.BlockedReason != "refused" {
		t.Errorf("%v in %s", err, out)
	}
	says(t, exitOK, []string{"dead", "list", "--summary"}, "4xx", "timeout", "payments", "2 d")
	_, out, _ = hooklatch(t, "dead", "list", "--summary", "--json")
	var summary deadSummaryLine
	if err := json.Unmarshal([]byte(out), &summary); err != nil || summary.Letters != 3 || len(summary.Groups) != 2 || time.Since(*summary.Oldest) < 49*time.Hour {
		t.Errorf("%v in %s", err, out)
	}
	says(t, exitUsage, []string{"dead", "list", "--class", "6xx"}, `unknown class "6xx"`)
	says(t, exitUsage, []string{"dead", "list", "--after", "x"}, "was not made by this program", "Try: leave --after out")
}

func TestDeadShow(t *testing.T) {
	store, _ := openInbox(t)
	dieOf(t, store, "billing", "4xx", 404, "dlv_1")
	says(t, exitOK, []string{"dead", "show", "dlv_1"}, "dlv_1 to app", "refused after 1 attempt", "owner     nobody", "attempt   1", `"no such order"`,
		"next      hooklatch replay --delivery dlv_1 --source billing --destination app")
	says(t, exitOK, []string{"dead", "show", "dlv_1", "--json"}, `"blocked_reason":"refused"`, `"attempts_made":[{"number":1`)
	says(t, exitNo, []string{"dead", "show", "dlv_9"}, "dlv_9 is not in the inbox")
	says(t, exitNo, []string{"dead", "show", "dlv_1", "--destination", "elsewhere"}, "dlv_1 is no dead letter", "Try: hooklatch trace dlv_1")
}

func TestDeadAssignAndDrop(t *testing.T) {
	store, database := openInbox(t)
	pool := openPoolOf(t, database)
	dieOf(t, store, "billing", "4xx", 404, "dlv_1", "dlv_2")
	dieOf(t, store, "other", "timeout", 0, "dlv_3")
	for _, wrong := range [][]string{
		{"dead", "assign", "--owner", "data", "--reason", "theirs", "--yes"},
		{"dead", "assign", "--destination", "app", "--reason", "theirs", "--yes"},
		{"dead", "assign", "--destination", "app", "--owner", "data", "--yes"},
		{"dead", "assign", "--destination", "app", "--owner", "data", "--reason", "theirs"},
		{"dead", "drop", "--reason", "old", "--yes"},
		{"dead", "drop", "--class", "4xx", "--reason", "old", "--yes"},
		{"dead", "drop", "--all-sources", "--source", "billing", "--reason", "old", "--yes"},
	} {
		says(t, exitUsage, wrong, "Try: ")
	}
	says(t, exitOK, []string{"dead", "assign", "--source", "billing", "--owner", "data", "--dry-run"}, "2 dead letters, ")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE owner IS NOT NULL`) + count(t, pool, `SELECT count(*) FROM hooklatch.audit`); n != 0 {
		t.Errorf("a dry run or a refused command changed %d rows", n)
	}
	says(t, exitOK, []string{"dead", "assign", "--source", "billing", "--owner", "data", "--reason", "theirs", "--yes"}, "2 dead letters assigned")
	says(t, exitOK, []string{"dead", "assign", "--all-sources", "--owner", "data", "--reason", "theirs", "--yes", "--destination", "app", "--class", "4xx"}, "0 dead letters assigned, 2 before")
	says(t, exitOK, []string{"dead", "list"}, "owners: data 2, nobody 1")
	says(t, exitNo, []string{"dead", "drop", "--all-sources", "--owner", "nope", "--reason", "old", "--yes"}, "no dead letter fits")
	says(t, exitOK, []string{"dead", "drop", "--delivery", "dlv_1", "--reason", "old", "--yes"}, "1 dead letter dropped")
	says(t, exitOK, []string{"dead", "drop", "--destination", "app", "--owner", "data", "--reason", "old", "--yes", "--json"}, `{"v":1,"did":"dropped","dead_letters":1,"changed":0`)
	says(t, exitOK, []string{"dead", "list"}, "dlv_3", "owners: nobody 1")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE state = 'cancelled'`); n != 2 {
		t.Errorf("%d cancelled, want 2", n)
	}
	want := "assign theirs 2, cancel old 2"
	var got string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(format('%s %s %s', action, reason, n), ', ' ORDER BY action) FROM (
		SELECT action, reason, count(*) AS n FROM hooklatch.audit WHERE actor <> '' GROUP BY 1, 2) a`).Scan(&got); err != nil || got != want {
		t.Errorf("audit %q, %v; want %q", got, err, want)
	}
}

// What becomes a dead letter after a person looked is not dropped with the others.
func TestDropIsOfWhatWasThere(t *testing.T) {
	store, _ := openInbox(t)
	dieOf(t, store, "billing", "4xx", 404, "dlv_1")
	f := inbox.DeadFilter{}
	if err := until(t.Context(), store, &f); err != nil {
		t.Fatal(err)
	}
	dieOf(t, store, "billing", "4xx", 404, "dlv_2")
	var ids []string
	for d, err := range store.DeadLetters(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.Delivery.DeliveryID)
	}
	if fmt.Sprint(ids) != "[dlv_1]" {
		t.Errorf("%v", ids)
	}
}

func TestProgressSaysRateAndRest(t *testing.T) {
	p := (&stdio{}).progress("replay", 100)
	if got := p.line(25, "5 failed", 10*time.Second); got != "replay: 25 of 100, 5 failed, 2.5/s, 30s left" {
		t.Errorf("%q", got)
	}
	if got := p.line(0, "none failed", time.Second); got != "replay: 0 of 100, none failed" {
		t.Errorf("%q", got)
	}
}
