package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

// Two versions of a payload side by side: told apart by type, by a header, by path,
// and by scheme.
const versionsConfig = `version: 1
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}
database: {url: {env: DATABASE_URL}}
stop: {lame_duck: 0s}
sources:
  billing:                       # both schemes; the version is a part of the type
    tenant: acme
    path: /in/billing
    scheme: [zhisou-v1, timestamped-sha256]
    keys: [{id: k1, secret: {file: k1}, scheme: zhisou-v1}, {id: k2, secret: {file: k2}, scheme: timestamped-sha256}]
    event: {id: /event_id, type: /type}
    resource: {type: /kind, id: /resource, revision: /revision}
    ordering: latest
    forward: [{to: one, types: [invoice.paid]}, {to: two, types: [invoice.paid.v2]}, {to: any, types: ["invoice.*"]}]
  billing-v2:                    # a path of its own
    tenant: acme
    path: /in/v2/billing
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k1}}]
    event: {id: /event_id, type: /type}
    resource: {type: /kind, id: /resource, revision: /revision}
    ordering: latest
    forward: [two]
  orders:                        # the version is a header of its own
    tenant: acme
    path: /in/orders
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k1}}]
    event: {id: /event_id, type: "header:X-Payload-Version"}
    types: {allow: ["1", "2"], else: refuse}
    forward: [{to: one, types: ["1"]}, {to: two, types: ["2"]}]
destinations:
  one: {url: "%[1]s/one"}
  two: {url: "%[1]s/two"}
  any: {url: "%[1]s/any"}
`

func TestTwoVersionsOfAPayloadSideBySide(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s := newSite(t)
	s.write("k2", strings.Repeat("fedcba9876543210", 4))
	s.write("hooklatch.yaml", fmt.Sprintf(versionsConfig, appURL))
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	sv := startServe(t, s, database)
	base := strings.TrimSuffix(sv.url, "/in/billing")
	other := &site{t: t, v: verifierOf(t, "timestamped-sha256", "k2", strings.Repeat("fedcba9876543210", 4))}

	body := func(eventType string, revision int) string {
		return fmt.Sprintf(`{"event_id":"evt_%d","type":%q,"kind":"invoice","resource":"in_7","revision":%d}`, revision, eventType, revision)
	}
	post := func(signer *site, want int, path, id, body string, change ...func(*http.Request)) {
		t.Helper()
		r := signer.request(base+path, id, body)
		for _, c := range change {
			c(r)
		}
		if a := do(t, http.DefaultClient, r); a.status != want {
			t.Errorf("%s %s: %d %s, want %d", path, id, a.status, a.body, want)
		}
	}
	version := func(v string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Payload-Version", v) }
	}
	sent := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprint("the app has ", want), func() bool {
			got := map[string]bool{}
			for _, r := range app.requests() {
				got[r.path+" "+r.id] = true
			}
			for _, w := range want {
				if !got[w] {
					return false
				}
			}
			return true
		})
	}

	// One source, the version in the type: each goes where its version is named.
	post(s, 202, "/in/billing", "p1", body("invoice.paid", 1))
	sent("/one p1", "/any p1")
	post(s, 202, "/in/billing", "p2", body("invoice.paid.v2", 2))
	sent("/two p2", "/any p2")
	post(s, 202, "/in/billing", "p3", body("Invoice.paid", 3)) // of no version: kept
	// Ids are the source's, whatever the version and the scheme.
	post(s, 202, "/in/billing", "p1", body("invoice.paid", 1))
	post(other, 202, "/in/billing", "p1", body("invoice.paid", 1))
	post(other, 409, "/in/billing", "p1", body("invoice.paid.v2", 1))
	// The order is too: what the old scheme brings late is late.
	post(other, 202, "/in/billing", "p5", body("invoice.paid", 5))
	sent("/one p5", "/any p5")
	post(s, 202, "/in/billing", "p4", body("invoice.paid", 4))

	// Two sources on two paths: ids, bodies and order of one are nothing to the other.
	post(s, 202, "/in/v2/billing", "p1", body("invoice.paid.v2", 1))
	sent("/two p1")
	post(s, 409, "/in/v2/billing", "p1", body("invoice.paid.v2", 2))

	// A header that says the version, and no version that nobody knows.
	post(s, 202, "/in/orders", "o1", `{"event_id":"evt_o"}`, version("1"))
	post(s, 202, "/in/orders", "o2", `{"event_id":"evt_o"}`, version("2"))
	post(s, 400, "/in/orders", "o3", `{"event_id":"evt_o"}`, version("3"))
	post(s, 400, "/in/orders", "o4", `{"event_id":"evt_o"}`)
	sent("/one o1", "/two o2")

	pool := openPoolOf(t, database)
	eventually(t, "the late one is superseded at both", func() bool {
		return count(t, pool, `SELECT count(*) FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id WHERE i.delivery_id = 'p4' AND o.state = 'superseded'`) == 2
	})
	metrics := get(t, sv.admin+"/metrics").body
	for _, want := range []string{`hooklatch_unrouted_total{source="billing"} 1`, `hooklatch_refusals_total{reason="type_not_allowed",source="orders"} 2`,
		`hooklatch_verified_total{scheme="timestamped-sha256",source="billing"} 3`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	sv.end()
	seen := map[string]int{}
	for _, r := range app.requests() {
		seen[r.path+" "+r.id]++
	}
	want := map[string]int{"/one p1": 1, "/any p1": 1, "/two p2": 1, "/any p2": 1, "/one p5": 1, "/any p5": 1, "/two p1": 1, "/one o1": 1, "/two o2": 1}
	if got, wanted := fmt.Sprint(seen), fmt.Sprint(want); got != wanted {
		t.Errorf("the app got %s, want %s", got, wanted)
	}

	var list struct {
		DeliveryID string `json:"delivery_id"`
		Status     string `json:"status"`
	}
	p := start(t, []string{"DATABASE_URL=" + database}, "events", "list", "-c", s.dir+"/hooklatch.yaml", "--unrouted", "--json")
	if err := json.Unmarshal([]byte(p.line("delivery_id")), &list); err != nil || p.wait() != exitOK || list.DeliveryID != "p3" || list.Status != "unrouted" {
		t.Errorf("unrouted: %+v, %v", list, err)
	}
}

// verifierOf has one key.
func verifierOf(t *testing.T, preset, id, secret string) *verify.Verifier {
	t.Helper()
	scheme, ok := verify.Preset(preset)
	if !ok {
		t.Fatal("no scheme", preset)
	}
	key, err := verify.NewKey(id, []byte(secret), scheme.SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	return &verify.Verifier{Scheme: scheme, Keys: keys}
}
