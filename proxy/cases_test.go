package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

func TestCaseA1_NonASCIIBody(t *testing.T)       { newCase(t).all("A1", nil) }
func TestCaseA2_ParsedAndPrinted(t *testing.T)   { newCase(t).all("A2", nil) }
func TestCaseA3_TrailingLineEnd(t *testing.T)    { newCase(t).all("A3", nil) }
func TestCaseA7_BinaryAndMultipart(t *testing.T) { newCase(t).all("A7", nil) }
func TestCaseB2_SeveralSignatures(t *testing.T)  { newCase(t).all("B2", nil) }
func TestCaseB4_OneSpelling(t *testing.T)        { newCase(t).all("B4", nil) }
func TestCaseB5_TextOrBase64(t *testing.T)       { newCase(t).all("B5", nil) }
func TestCaseB7_NoSignature(t *testing.T)        { newCase(t).all("B7", nil) }
func TestCaseB8_NewlineInSecret(t *testing.T)    { newCase(t).all("B8", nil) }
func TestCaseC2_Milliseconds(t *testing.T)       { newCase(t).all("C2", nil) }
func TestCaseC3_EventTime(t *testing.T)          { newCase(t).all("C3", nil) }
func TestCaseC5_OutsideTheMAC(t *testing.T)      { newCase(t).all("C5", nil) }
func TestCaseD3_NoIDIsMadeUp(t *testing.T)       { newCase(t).all("D3", nil) }
func TestCaseD6_Tombstones(t *testing.T)         { newCase(t).all("D6", nil) }
func TestCaseD7_Revisions(t *testing.T)          { newCase(t).all("D7", nil) }
func TestCaseE14_NUL(t *testing.T)               { newCase(t).all("E14", nil) }
func TestCaseE15_InvalidUTF8(t *testing.T)       { newCase(t).all("E15", nil) }
func TestCaseF3_HopByHopTricks(t *testing.T)     { newCase(t).all("F3", nil) }

func TestCaseA4_CompressedBody(t *testing.T) {
	c := newCase(t)
	c.all("A4", nil)
	m := gzipBomb(t)
	start(t, *c.on).send(m).wants(t, 202, "")
	if n := count(t, c.pool, "SELECT body_size FROM hooklatch.inbox WHERE delivery_id = 'dlv_A4_bomb'"); n != len(m.body) {
		t.Errorf("%d bytes stored of %d", n, len(m.body))
	}
}

// Beside no other test, since memory is counted for the whole process.
func TestCaseA4_CompressedBodyCostsWhatItIs(t *testing.T) {
	m := gzipBomb(t)
	g := start(t, setup{})
	g.send(m).wants(t, 202, "") // what is made once
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	g.send(m).wants(t, 202, "")
	runtime.ReadMemStats(&after)
	if cost := after.TotalAlloc - before.TotalAlloc; cost > 4<<20 {
		t.Errorf("a gzip of 50 MiB cost %d bytes", cost)
	}
}

// gzipBomb is a signed body of 50 KB that would be 50 MiB once inflated. A gzip may
// have many members; one that is written once costs a fiftieth.
func gzipBomb(t *testing.T) *message {
	t.Helper()
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	z.Write(make([]byte, 1<<20))
	if err := z.Close(); err != nil || member.Len() > 1200 {
		t.Fatalf("%d bytes, %v", member.Len(), err)
	}
	return signed("dlv_A4_bomb", strings.Repeat(member.String(), 50)).add("Content-Encoding", "gzip")
}

func TestCaseA5_ChunkedReadAsEmpty(t *testing.T) {
	c := newCase(t)
	c.all("A5", nil)
	g := start(t, *c.on)
	before := c.rows()
	g.raw(signed("dlv_A5_over", strings.Repeat("x", 262145)).chunked(4096)).wants(t, 413, "body_too_large")
	if c.rows() != before {
		t.Error("a body over the cap left rows")
	}
	g.raw(signed("dlv_A5_full", strings.Repeat("x", 262144)).chunked(4096)).wants(t, 202, "")
}

func TestCaseA6_EmptyBody(t *testing.T) {
	c := newCase(t)
	c.all("A6", nil)
	start(t, *c.on).raw(signed("dlv_A6_no_length", "").head()).wants(t, 202, "")
	n := count(t, c.pool, `SELECT count(*) FROM hooklatch.payload p JOIN hooklatch.inbox i ON i.id = p.inbox_id
		WHERE i.delivery_id IN ('dlv_A6_no_length', $1) AND p.body = ''::bytea
		AND encode(i.body_hash, 'hex') = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'`, fixtures(t, "A6")[0].Headers["X-Webhook-Delivery-Id"][0])
	if n != 2 {
		t.Errorf("%d payloads of zero bytes, want 2", n)
	}
}

func TestCaseA8_UploadCutShort(t *testing.T) {
	c := newCase(t)
	for _, f := range fixtures(t, "A8") {
		if a := c.sendWire(f); !a.close {
			t.Errorf("%s: the connection stays open", f.Name)
		}
	}
	wantRows(t, c.pool, 0, 0)
}

// The spelling with underscores alone is no header of ours, and nothing beside others.
func TestCaseB1_HeaderTwice(t *testing.T) {
	c := newCase(t)
	c.all("B1", nil)
	g := start(t, *c.on)
	m := signed("dlv_B1_alone", body1)
	g.send(m.set("X-Webhook-Delivery-Id").add("X_Webhook_Delivery_Id", "dlv_B1_alone")).wants(t, 400, "header_missing")
	g.send(m.add("X_Other_Header", "a").add("X_Other_Header", "b")).wants(t, 202, "")
	wantRows(t, c.pool, 1, 0)
}

// On the wire HTTP strips the blank, so the MAC over it fails.
func TestCaseC1_OneSidedWindow(t *testing.T) {
	newCase(t).all("C1", map[string]int{"C1-space": 401})
}

func TestCaseB3_HeaderNameSpelling(t *testing.T) {
	c := newCase(t)
	c.all("B3", nil)
	c.on.tls = true
	f := fixtures(t, "B3")[0]
	c.rig(f).http2(f.message(t), bytes.NewReader(f.body(t))).wants(t, 202, "")
}

func TestCaseB6_MalformedSignature(t *testing.T) {
	c := newCase(t)
	c.all("B6", nil)
	f := fixtures(t, "B6")[0]
	answers := c.rig(f).all(f.message(t).set("X-Webhook-Signature", strings.Repeat("a", 1<<20)).wire())
	if len(answers) != 1 || answers[0].status != 431 {
		t.Errorf("answers %v", answers)
	}
	for _, f := range fixtures(t, "B6") {
		g := c.rig(f)
		a := g.send(f.message(t))
		r := g.result(0)
		r.RequestID = [16]byte{} // a short value may stand in a random id by chance
		said := fmt.Sprintf("%+v", r) + strings.ReplaceAll(string(a.body), a.header.Get("X-Request-Id"), "")
		if value := f.message(t).get("X-Webhook-Signature"); value != "" && strings.Contains(said, value) {
			t.Errorf("%s: the signature is in the report or the answer", f.Name)
		}
	}
}

func TestCaseB9_Rotation(t *testing.T) {
	c := newCase(t)
	refusal := ""
	for _, f := range fixtures(t, "B9") {
		a := c.send(f, f.Expect)
		if f.Expect == 401 {
			same := strings.ReplaceAll(string(a.body), a.problem(t).Instance, "")
			if same != refusal && refusal != "" {
				t.Errorf("%s: told apart by its answer: %s and %s", f.Name, same, refusal)
			}
			refusal = same
		}
		if f.Expect == 202 && a.receipt(t).Duplicate != (f.Name == "B9-k2-retry") {
			t.Errorf("%s: %s", f.Name, a.body)
		}
	}
	wantRows(t, c.pool, 1, 0)
}

func TestCaseB10_KeyChosenByTheRoute(t *testing.T) {
	c := newCase(t)
	c.all("B10", nil)
	if n := count(t, c.pool, "SELECT count(*) FROM hooklatch.inbox WHERE tenant = 't2' AND source = 'src2'"); n != 1 {
		t.Errorf("%d rows for t2", n)
	}
	wantRows(t, c.pool, 1, 0)
}

func TestCaseB11_Probes(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	for _, method := range []string{"GET", "PUT", "OPTIONS", "HEAD"} {
		conn := g.dial()
		io.WriteString(conn, (&message{method: method, target: "/in/src1?challenge=xyz"}).head())
		a := g.readTo(newReader(conn), method)
		if method == "HEAD" {
			a.wants(t, 405, "")
		} else {
			a.wants(t, 405, "method_not_allowed")
		}
		if a.header.Get("Allow") != "POST" || strings.Contains(string(a.body), "xyz") {
			t.Errorf("%s: %v %s", method, a.header, a.body)
		}
	}
	head, err := http.Head(g.server.URL + "/in/src1?challenge=xyz")
	if err != nil {
		t.Fatal(err)
	}
	head.Body.Close()
	if head.StatusCode != 405 || head.Header.Get("Allow") != "POST" {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
	g.send(&message{method: "POST", target: "/in/src1", body: []byte("{}")}).wants(t, 401, "signature_invalid")
	if len(in.deliveries()) != 0 {
		t.Error("a probe reached the inbox")
	}
}

// A retry that counts its attempts in the body, and one with other content: under each
// rule, and again when the first body is gone.
func TestCaseD1_OtherBytes(t *testing.T) {
	fs := fixtures(t, "D1")
	for _, c := range []struct {
		name            string
		rule            func(*Source)
		second, changed int // the statuses
		conflicts       int // of the second and the changed one
	}{
		{"reject", func(*Source) {}, 409, 409, 2},
		{"conflict_ignore", func(s *Source) { s.ConflictIgnore = []string{"/attempt"} }, 202, 409, 1},
		{"accept_first", func(s *Source) { s.OnConflict = "accept_first" }, 202, 202, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool := inboxtest.New(t)
			src := fs[0].source(t)
			c.rule(&src)
			g := start(t, setup{inbox: newStore(t, pool), cfg: Config{Sources: []Source{src}}})
			if a := g.send(fs[0].message(t)); a.status != 202 || a.receipt(t).Duplicate {
				t.Fatalf("first: %d %s", a.status, a.body)
			}
			check := func(what string, f *fixture, want int) {
				a := g.send(f.message(t))
				switch {
				case a.status != want:
					t.Errorf("%s: %d %s, want %d", what, a.status, a.body, want)
				case want == 202 && !a.receipt(t).Duplicate:
					t.Errorf("%s: new", what)
				case want == 409:
					a.wants(t, 409, "delivery_conflict")
				}
			}
			for range 50 {
				check("second", fs[1], c.second)
			}
			check("changed", fs[2], c.changed)
			check("first again", fs[0], 202)
			wantRows(t, pool, 1, c.conflicts)
			if n := count(t, pool, `SELECT count(*) FROM hooklatch.payload WHERE body = $1`, fs[0].body(t)); n != 1 {
				t.Error("the first payload is another one")
			}
			if _, err := pool.Exec(t.Context(), `DELETE FROM hooklatch.payload`); err != nil {
				t.Fatal(err)
			}
			check("second, pruned", fs[1], c.second)
			check("changed, pruned", fs[2], c.changed)
			check("first, pruned", fs[0], 202)
			if n := count(t, pool, `SELECT count(*) FROM hooklatch.conflict WHERE key_id = 'k1' AND body_hash = sha256(body) AND seen = 51`); n != c.conflicts-1 {
				t.Errorf("%d conflicts were counted 51 times, want %d", n, c.conflicts-1)
			}
			alarms, seen := 0, 0
			for i := range g.results {
				if g.result(i).FirstConflict {
					alarms++
				}
				if g.result(i).Conflict {
					seen++
				}
			}
			if want := 51*(c.conflicts-1) + 2; alarms != 1 || seen != want {
				t.Errorf("%d alarms and %d conflicts, want 1 and %d", alarms, seen, want)
			}
		})
	}
}

// Members that share a commit: TestCaseD2_ConflictsInOneCommit of package inbox.
func TestCaseD2_ConflictsAtOnce(t *testing.T) {
	t.Parallel()
	two, _ := twoProxies(t)
	one := [2]*rig{two[0], two[0]}
	for name, rigs := range map[string][2]*rig{"one process": one, "two processes": two} {
		for round := range 50 {
			for _, bodies := range [][2]string{{"one", "one"}, {"one", "two"}} {
				id := fmt.Sprintf("dlv_%d_%d_%s", len(name), round, bodies[1])
				answers := atOnce(rigs, 2, func(i int) *message { return signed(id, bodies[i]) })
				accepted, fresh := 0, 0
				for _, a := range answers {
					if a.status == 202 {
						accepted++
						if !a.receipt(t).Duplicate {
							fresh++
						}
						continue
					}
					a.wants(t, 409, "delivery_conflict")
					if p := a.problem(t); p.DeliveryID != id || strings.Contains(string(a.body), hashOf("one")) || strings.Contains(string(a.body), hashOf("two")) {
						t.Errorf("%s: %s", name, a.body)
					}
				}
				if want := map[bool]int{true: 2, false: 1}[bodies[0] == bodies[1]]; accepted != want || fresh != 1 {
					t.Errorf("%s, %v: %d accepted, %d new", name, bodies, accepted, fresh)
				}
			}
		}
	}
}

func TestCaseF1_PathIsNotCleaned(t *testing.T) {
	in := &recorder{}
	g := start(t, setup{inbox: in})
	for _, target := range []string{"//in/src1", "/in//src1", "/in/./src1", "/in/x/../src1", "/in/src1/", "/IN/src1", "/in/src%31", "/in%2Fsrc1"} {
		a := g.send(signed("dlv_f1", body1).to("POST", target))
		a.wants(t, 404, "source_unknown")
		if a.header.Get("Location") != "" {
			t.Errorf("%s: redirected to %s", target, a.header.Get("Location"))
		}
	}
	if len(in.deliveries()) != 0 {
		t.Error("another path reached the source")
	}
}

func TestCaseF2_QueryIsBytes(t *testing.T) {
	c := newCase(t)
	f := fixtures(t, "A1")[0]
	f.Path = "/in/src1?x=1;y=2&z=%zz&ok=1"
	c.send(f, 202)
	var query []byte
	if err := c.pool.QueryRow(t.Context(), "SELECT raw_query FROM hooklatch.payload").Scan(&query); err != nil || string(query) != "x=1;y=2&z=%zz&ok=1" {
		t.Errorf("stored %q, %v", query, err)
	}
}

func TestCaseF4_TooLarge(t *testing.T) {
	c := newCase(t)
	for _, f := range fixtures(t, "F4") {
		m := f.message(t)
		c.send(f, f.Expect)
		g := c.rig(f)
		g.raw(m.chunked(64<<10)).wants(t, f.Expect, "")

		// A client that writes everything before it reads.
		conn := g.dial()
		io.WriteString(conn, m.wire()) // ends early where the server has closed
		if a := g.read(newReader(conn)); a.status != f.Expect {
			t.Errorf("%s: status %d after writing all, want %d", f.Name, a.status, f.Expect)
		}
		conn.Close()

		c.on.tls = true
		h2 := c.rig(f)
		h2.http2(m, bytes.NewReader(m.body)).wants(t, f.Expect, "")
		h2.http2(m, io.MultiReader(bytes.NewReader(m.body))).wants(t, f.Expect, "") // no declared length
		c.on.tls = false
	}
	wantRows(t, c.pool, 1, 0)
}

func TestCaseF9_FramingTricks(t *testing.T) {
	c := newCase(t)
	f := fixtures(t, "F9")[0]
	if a := c.sendWire(f); !a.close {
		t.Error("the connection stays open after two framings")
	}
	wantRows(t, c.pool, 1, 0)
}

// F10, as far as it is the proxy's: requests in flight end with a true answer,
// later ones on open connections are told to come again.
func TestCaseF10_Shutdown(t *testing.T) {
	c := newCase(t)
	g := start(t, *c.on)
	lock, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	g.send(signed("dlv_warm", body1)).wants(t, 202, "")
	if _, err := lock.Exec(t.Context(), "LOCK TABLE hooklatch.inbox IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	inFlight := g.dial()
	io.WriteString(inFlight, signed("dlv_open", body1).wire())
	waitFor(t, "a commit that waits for the lock", func() bool {
		return count(t, c.pool, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'hooklatch.inbox'::regclass") > 0
	})
	g.proxy.Drain()
	idle := g.dial()
	io.WriteString(idle, signed("dlv_late", body1).wire())
	late := g.read(newReader(idle))
	late.wants(t, 503, "shutting_down")
	if !late.close {
		t.Error("the connection stays open")
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	down := make(chan error, 1)
	go func() { down <- g.server.Config.Shutdown(t.Context()) }()
	g.read(newReader(inFlight)).wants(t, 202, "")
	inFlight.Close()
	if err := <-down; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if _, err := net.Dial("tcp", g.addr); err == nil {
		t.Error("still listening")
	}
	wantRows(t, c.pool, 2, 0)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("no sign of %s", what)
		}
	}
}
