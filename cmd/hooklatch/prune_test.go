package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox"
)

// aged is a site with deliveries that were accepted by their app so many days ago.
func aged(t *testing.T, retention string, days ...int) (s *site, config, database string) {
	t.Helper()
	store, database := openInbox(t)
	s = newSite(t)
	s.write("db", database)
	config = s.config("http://127.0.0.1:1", "database: {url: {file: db}}", retention)
	for _, n := range days {
		d := inbox.Delivery{Tenant: "acme", Source: "billing", DeliveryID: fmt.Sprint("dlv_", n), Body: []byte("body"), Method: "POST",
			Forwards: []inbox.NewForward{{Destination: "app"}}}
		if _, err := store.Accept(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		execute(t, database, fmt.Sprintf(`UPDATE hooklatch.inbox SET received_at = now() - interval '%d days' WHERE delivery_id = 'dlv_%d'`, n, n))
	}
	execute(t, database, `INSERT INTO hooklatch.attempt (outbox_id, number, tenant, ended_at, class)
		SELECT o.id, 1, 'acme', i.received_at, '2xx' FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id`,
		`UPDATE hooklatch.outbox SET state = 'accepted', attempts = 1`)
	return s, config, database
}

func prunedRows(t *testing.T, args ...string) pruneLine {
	t.Helper()
	code, out, messages := hooklatch(t, append([]string{"prune", "--json"}, args...)...)
	var line pruneLine
	if err := json.Unmarshal([]byte(out), &line); err != nil || code != exitOK || line.V != 1 || !line.Complete {
		t.Fatalf("%v: exit %d, %q, %q", args, code, out, messages)
	}
	return line
}

func TestPruneDoesWhatTheConfigurationSays(t *testing.T) {
	_, config, database := aged(t, "retention: {body: 3d, attempts: 10d, identity: 40d}", 1, 5, 20, 50)
	left := func() string {
		pool := openPoolOf(t, database)
		return fmt.Sprint(count(t, pool, `SELECT count(*) FROM hooklatch.payload`), count(t, pool, `SELECT count(*) FROM hooklatch.attempt`),
			count(t, pool, `SELECT count(*) FROM hooklatch.inbox`))
	}
	for _, dry := range []bool{true, false} {
		args := []string{"-c", config}
		if dry {
			args = append(args, "--dry-run")
		}
		line := prunedRows(t, args...)
		want := map[string]int{"bodies": 3, "conflicts": 0, "attempts": 2, "identities": 1, "resources": 0, "refusals": 0}
		if fmt.Sprint(line.Rows) != fmt.Sprint(want) || line.DryRun != dry {
			t.Errorf("dry run %v: %+v", dry, line)
		}
		if now, want := left(), map[bool]string{true: "4 4 4", false: "1 2 3"}[dry]; now != want {
			t.Errorf("dry run %v: %s are left, want %s", dry, now, want)
		}
	}
	code, out, _ := hooklatch(t, "prune", "-c", config)
	if code != exitOK || !strings.Contains(out, "REMOVED") || !strings.Contains(out, "bodies of conflicts  0") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	// What went is told of with its date.
	for _, args := range [][]string{{"events", "body", "dlv_5"}, {"events", "show", "dlv_5"}, {"trace", "dlv_5"}} {
		_, out, messages := hooklatch(t, append(args, "-c", config)...)
		if !containsAll(out+messages, []string{"removed by retention on 20", ", 3d after its receipt"}) {
			t.Errorf("%v: %s%s", args, out, messages)
		}
	}
}

func TestPruneBeforeADateIsAnActOfAPerson(t *testing.T) {
	_, config, database := aged(t, "", 1, 5, 95)
	early := []string{"-c", config, "--source", "billing", "--before", "3d"}
	if line := prunedRows(t, append(early, "--dry-run")...); line.Rows["bodies"] != 2 || line.Rows["identities"] != 1 {
		t.Errorf("would go: %+v", line)
	}
	for _, args := range [][]string{early, append(early, "--yes"), append(early, "--reason", "asked by acme")} {
		if code, _, messages := hooklatch(t, append([]string{"prune"}, args...)...); code != exitUsage {
			t.Errorf("%v: exit %d, %s", args, code, messages)
		}
	}
	if line := prunedRows(t, append(early, "--reason", "asked by acme", "--yes")...); line.Rows["bodies"] != 2 || line.Rows["attempts"] != 2 || line.Rows["identities"] != 1 {
		t.Errorf("gone: %+v", line)
	}
	pool := openPoolOf(t, database)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE tenant = 'acme' AND action = 'prune' AND reason = 'asked by acme'
		AND actor <> '' AND detail LIKE 'bodies and attempts before %Z of source billing'`); n != 1 {
		t.Errorf("%d rows in the audit, want 1", n)
	}
	// An id is not forgotten before its time, also not with a later date.
	if line := prunedRows(t, "-c", config, "--before", "0s", "--reason", "end of the trial", "--yes"); line.Rows["bodies"] != 1 || line.Rows["identities"] != 0 {
		t.Errorf("gone: %+v", line)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox`); n != 2 {
		t.Errorf("%d deliveries are left, want 2", n)
	}
	for _, args := range [][]string{{"--before", "2999-01-01"}, {"--before", "yesterday"}} {
		if code, _, messages := hooklatch(t, append([]string{"prune", "-c", config}, args...)...); code != exitUsage || !strings.Contains(messages, args[1]) {
			t.Errorf("%v: exit %d, %s", args, code, messages)
		}
	}
}

// Attempts come after bodies, and somebody holds their table.
func TestPruneThatEndsEarlySaysWhatWasDone(t *testing.T) {
	for name, interrupted := range map[string]bool{"interrupted": true, "database error": false} {
		t.Run(name, func(t *testing.T) {
			_, config, database := aged(t, "", 50, 60, 100)
			pool := openPoolOf(t, database)
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := tx.Exec(t.Context(), `LOCK TABLE hooklatch.attempt`); err != nil {
				t.Fatal(err)
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out, messages bytes.Buffer
			ended := make(chan int)
			go func() {
				ended <- run(ctx, &stdio{in: strings.NewReader(""), out: &out, err: &messages}, []string{"prune", "-c", config, "--json"})
			}()
			if interrupted {
				eventually(t, "the pruning waits", func() bool {
					return count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
				})
				interrupt()
			}
			want := map[bool]int{true: exitInterrupted, false: exitPartly}[interrupted]
			if code := <-ended; code != want || !containsAll(messages.String(), []string{"what is counted was done", "the same command"}) {
				t.Errorf("exit %d, want %d: %s", code, want, messages.String())
			}
			var line pruneLine
			if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Complete || line.Rows["bodies"] != 3 || line.Rows["attempts"] != 0 {
				t.Errorf("%s, %v", out.String(), err)
			}
			if n := count(t, pool, `SELECT count(*) FROM hooklatch.payload`); n != 0 {
				t.Errorf("%d bodies are left", n)
			}
			tx.Rollback(t.Context())
			if line := prunedRows(t, "-c", config); line.Rows["attempts"] != 3 || line.Rows["identities"] != 1 {
				t.Errorf("going on: %+v", line)
			}
		})
	}
}
