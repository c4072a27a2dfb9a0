package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// removal is a configuration in which billing forwards to the one destination or the
// other, beside the database of both.
type removal struct {
	*site
	database string
	shop     *app
	shopURL  string
	store    *app
	storeURL string
}

func newRemoval(t *testing.T) *removal {
	t.Helper()
	r := &removal{site: newSite(t), database: inboxtest.URL(t)}
	wholeAtEnd(t, r.database)
	r.shop, r.shopURL = startApp(t)
	r.store, r.storeURL = startApp(t)
	return r
}

// configure makes billing forward to one destination; the others are configured too.
func (r *removal) configure(to string, destinations ...string) string {
	r.t.Helper()
	text := `version: 1
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}
stop: {lame_duck: 1ms}
sources:
  billing:
    tenant: acme
    path: /in/billing
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k1}}]
    forward: [` + to + `]
destinations:
`
	for _, name := range append(destinations, to) {
		text += fmt.Sprintf("  %s: {url: %q, retry: {base: 50ms}}\n", name, map[string]string{"shop": r.shopURL, "store": r.storeURL}[name])
	}
	return r.write("hooklatch.yaml", text)
}

// leave lets n forwards to shop lie there: it is paused, and the server stops.
func (r *removal) leave(n int) {
	r.t.Helper()
	r.configure("shop")
	sv := startServe(r.t, r.site, r.database)
	command(r.t, r.database, exitOK, []string{"destinations", "pause", "shop", "--reason", "test"})
	for i := range n {
		if a := do(r.t, http.DefaultClient, r.request(sv.url, fmt.Sprint("dlv_", i), `{}`)); a.status != 202 {
			r.t.Fatalf("%d %s", a.status, a.body)
		}
	}
	sv.end()
}

// refused runs serve, which must not start.
func (r *removal) refused(texts ...string) {
	r.t.Helper()
	command(r.t, r.database, exitConfig, []string{"serve", "-c", r.dir + "/hooklatch.yaml"}, texts...)
}

// X48: a server does not start without a destination whose forwards are open, until
// somebody has decided about them.
func TestX48_RemovalIsRefusedUntilSomebodyDecides(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	r.leave(3)
	file := r.configure("store")
	r.refused("destination shop is not in the configuration, and forwards to it are open (3 waiting, 0 dead letters)", "--drain", "--cancel", "--move-to OTHER")
	command(t, r.database, exitNo, []string{"doctor", "-c", file}, "✗ destinations  destination shop is not in the configuration")
	remove := func(code int, more []string, texts ...string) string {
		t.Helper()
		return command(t, r.database, code, append([]string{"destinations", "remove", "shop", "-c", file, "--reason", "replaced"}, more...), texts...)
	}
	remove(exitUsage, nil, "forwards to shop are open (3 waiting, 0 dead letters): what becomes of them?")
	remove(exitUsage, []string{"--cancel", "--drain"}, "exclude one another")
	remove(exitUsage, []string{"--move-to", "shop"}, "shop is where they are")
	remove(exitUsage, []string{"--move-to", "stor"}, `unknown destination "stor"`)
	remove(exitUsage, []string{"--cancel"}, "nobody can be asked for confirmation here")
	remove(exitOK, []string{"--move-to", "store", "--dry-run"}, "3 forwards open", "would be moved to store")
	r.refused("3 waiting")

	remove(exitOK, []string{"--move-to", "store", "--yes"}, "shop removed: 3 forwards moved to store")
	sv := startServe(t, r.site, r.database)
	eventually(t, "the other destination has them", func() bool {
		all := r.store.requests()
		return len(all) == 4 && all[0].id == "" // the doctor has looked, too
	})
	if n := len(r.shop.requests()); n != 0 {
		t.Errorf("shop got %d", n)
	}
	command(t, r.database, exitOK, []string{"trace", "dlv_0"}, `move`, `"replaced", it was pending at shop, moved to store`)
	command(t, r.database, exitOK, []string{"destinations", "show", "shop"}, `removed by`, `"replaced", 3 forwards moved to store`)
	if out := command(t, r.database, exitOK, []string{"destinations", "list"}, "store"); strings.Contains(out, "shop") {
		t.Errorf("what was removed is listed:\n%s", out)
	}
	sv.end()
}

func TestX48_RemovalCancels(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	r.leave(250) // more than one transaction takes
	file := r.configure("store")
	out := command(t, r.database, exitOK, []string{"destinations", "remove", "shop", "-c", file, "--reason", "gone", "--cancel", "--yes", "--json"})
	var line removed
	if err := json.Unmarshal([]byte(out), &line); err != nil || line.Cancelled != 250 || line.Left != 0 || !line.Removed {
		t.Errorf("%v of %s", err, out)
	}
	pool := openPoolOf(t, r.database)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.audit WHERE action = 'cancel' AND reason = 'gone'`); n != 250 {
		t.Errorf("%d lines of audit", n)
	}
	startServe(t, r.site, r.database).end()
}

// A drain waits for what is in flight and for what comes back, and says what does not
// drain. A route that still leads there would feed it for ever.
func TestX48_RemovalDrains(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	r.leave(3)
	file := r.configure("shop", "store")
	drain := []string{"destinations", "remove", "shop", "-c", file, "--reason", "replaced", "--drain"}
	command(t, r.database, exitConfig, drain, "source billing still forwards to shop")
	r.configure("store", "shop")
	sv := startServe(t, r.site, r.database)
	p := start(t, []string{"DATABASE_URL=" + r.database}, drain...)
	p.line("nothing drains until it is resumed")
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitInterrupted || !strings.Contains(p.output(), "shop not removed: 3 open") || !strings.Contains(p.output(), "--drain --reason replaced --yes") {
		t.Errorf("exit code %d\n%s", code, p.output())
	}
	execute(t, r.database, `UPDATE hooklatch.outbox SET state = 'blocked', blocked_reason = 'refused', settled_at = now() WHERE id = (SELECT min(id) FROM hooklatch.outbox)`)
	r.shop.mu.Lock()
	r.shop.hold = make(chan struct{})
	r.shop.mu.Unlock()
	p = start(t, []string{"DATABASE_URL=" + r.database}, drain...)
	command(t, r.database, exitOK, []string{"destinations", "resume", "shop", "--reason", "drain"})
	eventually(t, "two are in flight", func() bool { return len(r.shop.requests()) == 2 })
	close(r.shop.hold)
	if code := p.wait(); code != exitPartly || !strings.Contains(p.output(), "shop not removed: 1 open, 1 dead letter among them") {
		t.Errorf("exit code %d\n%s", code, p.output())
	}
	sv.end()
	r.configure("store")
	r.refused("0 waiting, 1 dead letter")
	command(t, r.database, exitOK, []string{"destinations", "remove", "shop", "--reason", "gone", "--cancel", "--yes"}, "shop removed: 1 forward cancelled")
	startServe(t, r.site, r.database).end()
}
