package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// A delivery that began earlier and is committed later is shown; Ctrl-C names the
// command that goes on, and that one leaves nothing out.
func TestCaseE7_TailShowsWhatCommitsLate(t *testing.T) {
	t.Parallel()
	database := inboxtest.URL(t)
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	accept := func(source, id string) {
		t.Helper()
		d := inbox.Delivery{Tenant: "acme", Source: source, DeliveryID: id, EventType: "push", Body: []byte("x"), Method: "POST",
			Forwards: []inbox.NewForward{{Destination: "app"}}}
		if _, err := store.Accept(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	send := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}

	env := []string{"DATABASE_URL=" + database}
	p := start(t, env, "events", "tail", "--source", "billing", "--outcome", "accepted", "--outcome", "refused")
	p.line("following; Ctrl-C ends it")
	send(`BEGIN; INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, forwards) VALUES ('acme', 'billing', 'slow', sha256('x'), 1, 0)`)
	accept("billing", "fast")
	accept("other", "not asked for")
	p.line("→  billing  fast  push  1  app pending")
	send(`COMMIT`)
	p.line("→  billing  slow  –  1  none")
	at := time.Now()
	if err := store.Record(t.Context(), &inbox.Tallies{Refusals: []inbox.Refusal{{Tenant: "acme", Source: "billing", Minute: at, Code: "signature_invalid",
		Reason: "key_expired", KeyID: "k0", Count: 3, FirstAt: at, LastAt: at, DeliveryID: "dlv_9", BodySize: 7}}}); err != nil {
		t.Fatal(err)
	}
	p.line("✗  billing  signature_invalid  key_expired  key k0  7 bytes, dlv_9  ×3")
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(p.output(), "not asked for") || strings.Count(p.output(), "  fast  ") != 1 {
		t.Errorf("it printed\n%s", p.output())
	}
	words := strings.Fields(strings.TrimPrefix(p.line("Try: "), "Try: "))
	if next := strings.Join(words[:len(words)-1], " "); next != "hooklatch events tail --source billing --outcome accepted --outcome refused --after" {
		t.Errorf("next: %s", next)
	}
	accept("billing", "meanwhile")
	again := start(t, env, append(words[1:], "--json")...)
	again.line(`"outcome":"accepted"`, `"delivery_id":"meanwhile"`)
	again.signal(os.Interrupt)
	again.wait()
}

func TestTailGoesOnWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	cluster := inboxtest.NewCluster(t)
	p := start(t, []string{"DATABASE_URL=" + cluster.URL()}, "events", "tail")
	p.line("following")
	cluster.Stop()
	p.line("the database does not answer; trying on")
	cluster.Start()
	p.line("the database answers again")
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
}

func TestTailRefusesWhatItCannotShow(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")
	for _, args := range [][]string{
		{"--outcome", "duplicate"}, {"--outcome", "refused", "--type", "push"}, {"--outcome", "refused", "--after", "x"},
		{"--unrouted", "--destination", "app"}, {"dlv_1"},
	} {
		if code, out, messages := hooklatch(t, append([]string{"events", "tail"}, args...)...); code != exitUsage || out != "" {
			t.Errorf("%v: exit %d, %q, %q", args, code, out, messages)
		}
	}
	if code, _, _ := hooklatch(t, "events", "tail"); code != exitUnreachable {
		t.Errorf("no database: exit %d", code)
	}
}
