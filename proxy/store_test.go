package proxy

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func newStore(t testing.TB, pool *pgxpool.Pool) *inbox.Store {
	t.Helper()
	s, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// wantRows checks how many rows the deliveries have left behind.
func wantRows(t testing.TB, pool *pgxpool.Pool, deliveries, conflicts int) {
	t.Helper()
	for _, c := range []struct {
		table string
		want  int
	}{{"inbox", deliveries}, {"payload", deliveries}, {"outbox", deliveries}, {"conflict", conflicts}} {
		if got := count(t, pool, "SELECT count(*) FROM hooklatch."+c.table); got != c.want {
			t.Errorf("%d rows in %s, want %d", got, c.table, c.want)
		}
	}
}

// twoProxies are two processes' worth of proxy on one database.
func twoProxies(t testing.TB) ([2]*rig, *pgxpool.Pool) {
	t.Helper()
	url := inboxtest.URL(t)
	var rigs [2]*rig
	var pools [2]*pgxpool.Pool
	for i := range rigs {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		pools[i] = pool
		rigs[i] = start(t, setup{inbox: newStore(t, pool)})
	}
	return rigs, pools[0]
}

// atOnce sends n messages over both proxies.
func atOnce(rigs [2]*rig, n int, message func(int) *message) []answer {
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i] = rigs[i%2].send(message(i)) })
	}
	wg.Wait()
	return answers
}

func TestX27_SameDeliveryAtOnce(t *testing.T) {
	t.Parallel()
	rigs, pool := twoProxies(t)
	m := signed("dlv_x27", body1)
	answers := atOnce(rigs, 100, func(int) *message { return m })
	answers = append(answers, rigs[0].send(m))
	fresh := 0
	for _, a := range answers {
		a.wants(t, 202, "")
		r := a.receipt(t)
		if !r.Duplicate {
			fresh++
		}
		if !r.ReceivedAt.Equal(answers[0].receipt(t).ReceivedAt) {
			t.Errorf("received_at %s and %s", r.ReceivedAt, answers[0].receipt(t).ReceivedAt)
		}
	}
	if fresh != 1 {
		t.Errorf("%d answers say duplicate: false", fresh)
	}
	wantRows(t, pool, 1, 0)
}

func TestX28_TwoBodiesAtOnce(t *testing.T) {
	t.Parallel()
	rigs, pool := twoProxies(t)
	two := [2]*message{signed("dlv_x28", "one"), signed("dlv_x28", "two")}
	answers := atOnce(rigs, 100, func(i int) *message { return two[i/2%2] })
	var stored []byte
	if err := pool.QueryRow(t.Context(), "SELECT body FROM hooklatch.payload").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	fresh := 0
	for i, a := range answers {
		if bytes.Equal(two[i/2%2].body, stored) {
			a.wants(t, 202, "")
			if !a.receipt(t).Duplicate {
				fresh++
			}
			continue
		}
		a.wants(t, 409, "delivery_conflict")
		if p := a.problem(t); p.DeliveryID != "dlv_x28" || strings.Contains(string(a.body), hex.EncodeToString(stored)) {
			t.Errorf("%s", a.body)
		}
	}
	if fresh != 1 {
		t.Errorf("%d answers say duplicate: false", fresh)
	}
	wantRows(t, pool, 1, 1)
	alarms := 0
	for _, g := range rigs {
		for _, r := range g.results {
			if r.FirstConflict {
				alarms++
			}
		}
	}
	if alarms != 1 {
		t.Errorf("%d alarms", alarms)
	}
}

// E4: two replicas are sent the same ids in opposite orders, eight at a time.
func TestCaseE4_TwoReplicasInOppositeOrders(t *testing.T) {
	t.Parallel()
	rigs, pool := twoProxies(t)
	const n = 500
	var wg sync.WaitGroup
	for replica, g := range rigs {
		ids := make(chan int, n)
		for i := range n {
			if replica == 1 {
				i = n - 1 - i
			}
			ids <- i
		}
		close(ids)
		for range 8 {
			wg.Go(func() {
				for i := range ids {
					g.send(signed(fmt.Sprint("dlv_", i), body1)).wants(t, 202, "")
				}
			})
		}
	}
	wg.Wait()
	wantRows(t, pool, n, 0)
	for _, g := range rigs {
		if len(g.results) != n {
			t.Errorf("%d answers of one replica, want %d", len(g.results), n)
		}
	}
}

func TestX30_SameIDToTwoSources(t *testing.T) {
	t.Parallel()
	pool := inboxtest.New(t)
	two := src1(t)
	two.Name, two.Tenant, two.Path = "src2", "t2", "/in/src2"
	two.Verifier = verifier(t, "zhisou-v1", key(t, "k1", secretK2))
	g := start(t, setup{inbox: newStore(t, pool), cfg: Config{Sources: []Source{src1(t), two}}})
	g.send(signed("dlv_x30", "one")).wants(t, 202, "")
	g.send(signedAt(t0, "k1", secretK2, "dlv_x30", "two").to("POST", "/in/src2")).wants(t, 202, "")
	wantRows(t, pool, 2, 0)
}

// Metadata that Postgres cannot hold must neither fail the commit nor be lost
// without a word.
func TestX14_HostileMetadataIsStored(t *testing.T) {
	t.Parallel()
	pool := inboxtest.New(t)
	g := start(t, setup{inbox: newStore(t, pool), cfg: Config{Sources: []Source{withMetadata(t)}}})
	bodies := []string{`{"type":"a\u0000b"}`, "{\"type\":\"\xff\"}", `{"type":"\ud800"}`, "\x00", `{"event_id":"` + strings.Repeat("x", 100_000) + `"}`,
		`{"resource":{"revision":9223372036854775808}}`, `{"resource":{"id":"` + strings.Repeat("é", 256) + `","revision":1}}`}
	for i, body := range bodies {
		g.send(signed(fmt.Sprintf("dlv_%d", i), body).to("POST", "/in/src1?\x80=%00").add("User-Agent", "\xf1")).wants(t, 202, "")
	}
	wantRows(t, pool, len(bodies), 0)
	if n := count(t, pool, "SELECT count(*) FROM hooklatch.inbox WHERE meta_error IS NOT NULL"); n != len(bodies)-1 {
		t.Errorf("%d rows say that metadata is missing, want %d", n, len(bodies)-1)
	}
}

// X38, D10: what was sent whole is stored whole, though nobody waits for the answer; what
// was cut short leaves nothing.
func TestCaseD10_X38_SenderHangsUp(t *testing.T) {
	t.Parallel()
	pool := inboxtest.New(t)
	g := start(t, setup{inbox: newStore(t, pool)})
	wire := func(i int) string { return signed(fmt.Sprintf("dlv_%d", i), body1).wire() }
	const n = 100
	for i := range n {
		c, err := net.Dial("tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		sent := wire(i)
		if i >= n/2 {
			sent = sent[:len(sent)-len(body1)/2]
		}
		io.WriteString(c, sent)
		c.Close()
	}
	for i := range n { // wait for every report
		g.result(i)
	}
	for i := range n / 2 {
		a := g.raw(wire(i))
		a.wants(t, 202, "")
		if !a.receipt(t).Duplicate {
			t.Errorf("dlv_%d was sent whole and not stored", i)
		}
	}
	wantRows(t, pool, n/2, 0)
	for _, r := range g.results[:n] {
		whole := r.Outcome == OutcomeAccepted
		if r.Outcome == OutcomeUnavailable || !whole && (r.Code != "body_malformed" || r.Status != StatusDisconnected) {
			t.Errorf("report %+v", r)
		}
	}
}

// A lock that outlasts every wait of the accept path, then goes away.
func TestCaseD4_NothingIsKnownBeforeTheCommit(t *testing.T) {
	t.Parallel()
	pool := inboxtest.New(t)
	g := start(t, setup{inbox: newStore(t, pool)})
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	g.send(signed("dlv_warm", body1)).wants(t, 202, "") // another connection, which has its statements now
	if _, err := tx.Exec(t.Context(), "LOCK TABLE hooklatch.inbox IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	m := signed("dlv_d4", body1)
	begin := time.Now()
	a := g.send(m)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("CaseD8: the answer took %s", took)
	}
	a.wants(t, 503, "store_busy")
	if a.header.Get("Retry-After") == "" || g.result(1).Err == nil {
		t.Errorf("header %v, report %+v", a.header, g.result(1))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	a = g.send(m)
	a.wants(t, 202, "")
	if a.receipt(t).Duplicate {
		t.Error("something in memory made a duplicate")
	}
	wantRows(t, pool, 2, 0)
}

func TestX32_DatabaseGone(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	g := start(t, setup{inbox: newStore(t, pool)})
	g.send(signed("dlv_x32", body1)).wants(t, 503, "store_unavailable")
}

func TestX40_SchemaGone(t *testing.T) {
	t.Parallel()
	pool := inboxtest.New(t)
	if _, err := pool.Exec(t.Context(), "ALTER TABLE hooklatch.payload RENAME TO elsewhere"); err != nil {
		t.Fatal(err)
	}
	start(t, setup{inbox: newStore(t, pool)}).send(signed("dlv_x40", body1)).wants(t, 500, "internal")
}
