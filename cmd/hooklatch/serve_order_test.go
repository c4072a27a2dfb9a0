package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// orderApp is an app that fails now and then, and remembers what it took of each
// resource, in the order in which it took it.
type orderApp struct {
	mu     sync.Mutex
	tries  int
	taken  map[string][]string // revisions by source and resource
	inside map[string]bool     // being tried
	twice  []string            // resources of which two were tried at once
}

func (a *orderApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, resource, _ := strings.Cut(string(body), `"id":"`)
	resource, _, _ = strings.Cut(resource, `"`)
	lane := r.Header.Get("Hooklatch-Source") + " " + resource
	revision := r.Header.Get("Hooklatch-Revision")
	a.mu.Lock()
	a.tries++
	fails := a.tries%3 == 0
	if revision != "" && a.inside[lane] {
		a.twice = append(a.twice, lane)
	}
	a.inside[lane] = a.inside[lane] || revision != ""
	a.mu.Unlock()

	if fails {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inside[lane] = false; !fails {
		a.taken[lane] = append(a.taken[lane], revision)
	}
}

func (a *orderApp) of(lane string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.taken[lane])
}

// startOrdered starts serve with a source for each ordering.
func startOrdered(t *testing.T) (*orderApp, *serving, string) {
	t.Helper()
	app := &orderApp{taken: map[string][]string{}, inside: map[string]bool{}}
	server := httptest.NewServer(app)
	t.Cleanup(server.Close)
	s := newSite(t)
	text := "version: 1\nlisten: {http: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\nstop: {lame_duck: 1ms}\nsources:\n"
	for _, ordering := range []string{"latest", "coalesce", "strict"} {
		text += fmt.Sprintf(`  %[1]s:
    tenant: acme
    path: /in/%[1]s
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k-%[1]s}}]
    resource: {type: /resource/type, id: /resource/id, revision: /resource/revision, deleted: /resource/deleted}
    ordering: %[1]s
    forward: [app]
`, ordering)
		s.write("k-"+ordering, strings.Repeat("0123456789abcdef", 4))
	}
	s.write("hooklatch.yaml", text+"destinations:\n  app: {url: \""+server.URL+"/hook\", retry: {base: 10ms, cap: 50ms, max_attempts: 100}}\n")
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	sv := startServe(t, s, database)
	sv.url = strings.TrimSuffix(sv.url, "/in/billing")
	return app, sv, database
}

// revise sends one revision, as it is written, and demands 202.
func (sv *serving) revise(source, id, resource, revision string) {
	sv.t.Helper()
	body := fmt.Sprintf(`{"resource":{"type":"report","id":"%s","revision":%s}}`, resource, revision)
	if a := do(sv.t, http.DefaultClient, sv.site.request(sv.url+"/in/"+source, id, body)); a.status != 202 {
		sv.t.Errorf("%s: %d %s", id, a.status, a.body)
	}
}

// What comes in any order and several times, from several senders at once, reaches an
// app that fails now and then in the order of its revisions.
func TestP09_ServeSendsInOrder(t *testing.T) {
	t.Parallel()
	app, sv, _ := startOrdered(t)
	const resources, revisions = 3, 8
	type message struct{ source, resource, revision string }
	var all []message
	for _, source := range []string{"latest", "coalesce", "strict"} {
		for r := range resources {
			for n := range revisions {
				m := message{source, fmt.Sprint("r", r), fmt.Sprint(n + 1)}
				all = append(all, m, m)
				if n == 0 { // where strict begins
					sv.revise(m.source, "first-"+m.resource, m.resource, m.revision)
					eventually(t, "the first revision is taken", func() bool { return len(app.of(source+" "+m.resource)) == 1 })
				}
			}
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var senders sync.WaitGroup
	for part := range slices.Chunk(all, len(all)/4) {
		senders.Go(func() {
			for _, m := range part {
				sv.revise(m.source, "dlv-"+m.resource+"-"+m.revision, m.resource, m.revision)
			}
		})
	}
	senders.Wait()
	for _, source := range []string{"latest", "coalesce", "strict"} {
		for r := range resources {
			lane := fmt.Sprint(source, " r", r)
			eventually(t, lane+" ends with the last revision", func() bool {
				got := app.of(lane)
				return len(got) > 0 && got[len(got)-1] == fmt.Sprint(revisions)
			})
			got := app.of(lane)
			if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || source == "strict" && len(got) != revisions {
				t.Errorf("%s was sent as %v", lane, got)
			}
		}
	}
	sv.end()
	if len(app.twice) > 0 {
		t.Errorf("two revisions were tried at once of %v", app.twice)
	}
}

// A person sees what is missing, and lets the resource go on.
func TestServeGoesOnAfterARelease(t *testing.T) {
	t.Parallel()
	app, sv, database := startOrdered(t)
	command := func(args ...string) string {
		t.Helper()
		p := start(t, []string{"DATABASE_URL=" + database}, args...)
		if code := p.wait(); code != exitOK {
			t.Fatalf("%v: exit code %d\n%s", args, code, p.output())
		}
		return p.output()
	}
	sv.revise("strict", "dlv-1", "r", "1")
	eventually(t, "revision 1 is taken", func() bool { return len(app.of("strict r")) == 1 })
	sv.revise("strict", "dlv-3", "r", "3")
	eventually(t, "revision 3 is held", func() bool { return strings.Contains(command("resources", "gaps", "--json"), `"first_missing":2`) })
	if out := command("trace", "dlv-3"); !strings.Contains(out, "held: revision 2 is missing since ") {
		t.Error(out)
	}
	command("resources", "release", "report/r", "--reason", "lost", "--yes")
	eventually(t, "revision 3 is taken", func() bool { return slices.Equal(app.of("strict r"), []string{"1", "3"}) })
	sv.revise("strict", "dlv-2", "r", "2") // after all
	sv.revise("strict", "dlv-4", "r", "4")
	eventually(t, "revision 4 is taken", func() bool { return slices.Equal(app.of("strict r"), []string{"1", "3", "4"}) })
	eventually(t, "revision 2 is superseded", func() bool { return strings.Contains(command("events", "show", "dlv-2"), "superseded") })
	sv.end()
}

// D7 from end to end: what is no revision is sent without one, and moves nothing.
func TestCaseD7_ServeSendsWhatHasNoRevision(t *testing.T) {
	t.Parallel()
	app, sv, database := startOrdered(t)
	for _, revision := range []string{"9", "10"} {
		sv.revise("latest", "dlv-"+revision, "r", revision)
		eventually(t, "it is taken", func() bool { return slices.Contains(app.of("latest r"), revision) })
	}
	sv.revise("latest", "dlv-max", "r2", "9223372036854775807")
	invalid := []string{"9223372036854775808", `"11"`, "12.0", "1e2", "-1", "null", "[]"}
	for i, revision := range invalid {
		sv.revise("latest", fmt.Sprint("dlv-invalid-", i), "r", revision)
	}
	a := do(t, http.DefaultClient, sv.site.request(sv.url+"/in/latest", "dlv-missing", `{"resource":{"type":"report","id":"r"}}`))
	if a.status != 202 {
		t.Errorf("no revision: %d %s", a.status, a.body)
	}
	sv.revise("latest", "dlv-8", "r", "8")
	eventually(t, "all are taken", func() bool { return len(app.of("latest r")) == 2+len(invalid)+1 && len(app.of("latest r2")) == 1 })
	if got := app.of("latest r"); !slices.Equal(slices.DeleteFunc(got, func(s string) bool { return s == "" }), []string{"9", "10"}) {
		t.Errorf("revisions of r were sent as %v", got)
	}
	pool := openPoolOf(t, database)
	eventually(t, "revision 8 is superseded", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.outbox WHERE revision = 8 AND state = 'superseded'`) == 1
	})
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE revision IS NULL AND meta_error IS NOT NULL`); n != len(invalid)+1 {
		t.Errorf("%d deliveries say that they have no revision, want %d", n, len(invalid)+1)
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.resource WHERE resource_id = 'r' AND applied = 10 AND passed = 10`); n != 1 {
		t.Error("something else than revision 10 is applied")
	}
	sv.end()
}
