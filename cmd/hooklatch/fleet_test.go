package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// A fleet is three processes on one database: one does all, one receives, one forwards.
// Senders send to those that receive, an app that fails now and then keeps what it got,
// and a test does harm meanwhile.
type fleet struct {
	t        *testing.T
	s        *site
	pool     *pgxpool.Pool
	database string
	random   *rand.Rand
	app      *fleetApp
	ships    [3]*ship
	refused  atomic.Int32 // answers 503

	mu    sync.Mutex
	acked map[string]message
	fresh map[string]int // how often an id was taken as new
	cut   map[lease]int  // leases that the test has ended, and how many requests there were before
}

type ship struct {
	role string
	p    *process
	url  atomic.Value // where it receives, without the path
}

// lease is what one attempt of one delivery has.
type lease struct {
	id      string
	attempt string
}

// message is what a sender sends.
type message struct{ source, id, body string }

const fleetConcurrency = 4

func newFleet(t *testing.T, pool *pgxpool.Pool) *fleet {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := &fleet{
		t: t, s: newSite(t), pool: pool, database: inboxtest.LoginURL(t, pool.Config().ConnString()),
		random: rand.New(rand.NewPCG(seed, 0)), app: &fleetApp{},
		acked: map[string]message{}, fresh: map[string]int{}, cut: map[lease]int{},
	}
	server := httptest.NewServer(f.app)
	t.Cleanup(server.Close)
	t.Cleanup(f.app.release)
	text := "version: 1\nlisten: {http: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\nstop: {lame_duck: 1ms}\nsources:\n"
	for _, ordering := range []string{"none", "latest", "strict"} {
		text += fmt.Sprintf(`  %[1]s:
    tenant: acme
    path: /in/%[1]s
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k-%[1]s}}]
    resource: {type: /kind, id: /of, revision: /revision}
    ordering: %[1]s
    forward: [app]
`, ordering)
		f.s.write("k-"+ordering, strings.Repeat("0123456789abcdef", 4))
	}
	f.s.write("hooklatch.yaml", text+fmt.Sprintf("destinations:\n  app: {url: %q, timeout: 10s, concurrency: %d, retry: {base: 10ms, cap: 50ms, max_attempts: 1000}, breaker: {open_for: 200ms}}\n",
		server.URL+"/hook", fleetConcurrency))
	wholeAtEnd(t, pool.Config().ConnString())
	for i, role := range []string{"all", "receive", "forward"} {
		f.ships[i] = &ship{role: role}
		f.ships[i].url.Store("")
		f.launch(f.ships[i])
	}
	return f
}

// launch starts a process and waits until it is ready.
func (f *fleet) launch(s *ship) {
	f.t.Helper()
	s.p = start(f.t, []string{"DATABASE_URL=" + f.database}, "serve", "-c", f.s.dir+"/hooklatch.yaml", "--role", s.role)
	if http, ok := s.p.entry(`"msg":"ready"`)["http"].(string); ok {
		s.url.Store("http://" + http)
	}
}

// send sends a message to one process after the other until one has taken it.
func (f *fleet) send(client *http.Client, m message) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i, deadline := 0, time.Now().Add(patience); time.Now().Before(deadline); i++ {
		url := f.ships[i%2].url.Load().(string)
		a, err := try(client, f.s.request(url+"/in/"+m.source, m.id, m.body))
		if err == nil && a.status == 202 {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.acked[m.id] = m
			if strings.Contains(a.body, `"duplicate":false`) {
				f.fresh[m.id]++
			}
			return
		}
		if err == nil && a.status != 503 {
			f.t.Errorf("%s: %d %s", m.id, a.status, a.body)
			return
		}
		if err == nil {
			f.refused.Add(1)
		}
		<-tick.C
	}
	f.t.Errorf("%s was never taken", m.id)
}

// sendAll sends from several senders at once, and does harm meanwhile.
func (f *fleet) sendAll(messages []message, harm func()) {
	left := make(chan message, len(messages))
	for _, m := range messages {
		left <- m
	}
	close(left)
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for m := range left {
				f.send(&http.Client{Transport: transport}, m)
			}
		})
	}
	harm()
	senders.Wait()
}

const cutSQL = `
UPDATE hooklatch.outbox o SET lease_until = clock_timestamp() FROM hooklatch.inbox i
WHERE i.id = o.inbox_id AND lease_until > clock_timestamp() RETURNING i.delivery_id, attempts::text`

// cutLeases ends every lease, in place of waiting for it, and returns how many.
func (f *fleet) cutLeases() (cut []lease) {
	f.t.Helper()
	before := len(f.app.requests())
	rows, err := f.pool.Query(f.t.Context(), cutSQL)
	if err != nil {
		f.t.Fatal(err)
	}
	var one lease
	if _, err := pgx.ForEachRow(rows, []any{&one.id, &one.attempt}, func() error {
		if _, again := f.cut[one]; !again {
			f.cut[one] = before
		}
		cut = append(cut, one)
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return cut
}

// drain waits until every forward has ended.
func (f *fleet) drain() {
	f.t.Helper()
	const young = `SELECT count(*) FROM hooklatch.outbox WHERE lease_until > clock_timestamp() + interval '38 seconds'` // of 40
	eventually(f.t, "every forward has ended", func() bool {
		if number(f.t, f.pool, young) == 0 {
			f.cutLeases() // those of processes that are no more
		}
		return number(f.t, f.pool, `SELECT count(*) FROM hooklatch.outbox WHERE state NOT IN ('accepted', 'superseded') OR lease_until IS NOT NULL`) == 0
	})
}

// fleetApp keeps the requests in the order in which they came. One in eight fails.
type fleetApp struct {
	mu   sync.Mutex
	got  []fleetRequest
	hold chan struct{} // nil: answers at once
	open int           // held now
}

type fleetRequest struct {
	lease
	lane     string // "" for what has no order
	revision int
	hash     [32]byte
	taken    bool
}

func (a *fleetApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off with its process
	}
	q := fleetRequest{lease: lease{r.Header.Get("Hooklatch-Delivery-Id"), r.Header.Get("Hooklatch-Attempt")}, hash: sha256.Sum256(body)}
	if source := r.Header.Get("Hooklatch-Source"); source != "none" {
		if _, err := fmt.Sscanf(q.id, source+"-%d-%d", new(int), &q.revision); err != nil {
			panic(err)
		}
		q.lane, _, _ = strings.Cut(strings.TrimPrefix(q.id, source+"-"), "-")
		q.lane = source + "-" + q.lane
	}
	a.mu.Lock()
	q.taken = len(a.got)%8 != 7
	a.got = append(a.got, q)
	hold := a.hold
	if hold != nil {
		a.open++
	}
	a.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if !q.taken {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (a *fleetApp) requests() []fleetRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]fleetRequest(nil), a.got...)
}

// holdAll lets nothing that comes from now on have its answer, until release.
func (a *fleetApp) holdAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hold, a.open = make(chan struct{}), 0
}

func (a *fleetApp) held() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

func (a *fleetApp) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hold != nil {
		close(a.hold)
		a.hold = nil
	}
}
