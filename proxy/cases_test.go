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
		if value := f.message(t).get("X-Webhook-Signature"); value != "" && strings.Contains(fmt.Sprintf("%+v", g.result(0))+string(a.body), value) {
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

func TestCaseD1_OtherBytes(t *testing.T) {
	c := newCase(t)
	fs := fixtures(t, "D1")
	c.send(fs[0], 202)
	g := c.rig(fs[1])
	alarms := 0
	for i := range 50 {
		a := g.send(fs[1].message(t))
		a.wants(t, 409, "delivery_conflict")
		if g.result(i).FirstConflict {
			alarms++
		}
	}
	if alarms != 1 {
		t.Errorf("%d alarms", alarms)
	}
	c.send(fs[2], 409)
	if a := c.send(fs[0], 202); !a.receipt(t).Duplicate {
		t.Error("the first body is new again")
	}
	wantRows(t, c.pool, 1, 2)
}

func TestCaseD2_ConflictsAtOnce(t *testing.T) {
	c := newCase(t)
	g := start(t, *c.on)
	for round := range 50 {
		for _, bodies := range [][2]string{{"one", "one"}, {"one", "two"}} {
			id := fmt.Sprintf("dlv_%d_%s", round, bodies[1])
			answers := atOnce([2]*rig{g, g}, 2, func(i int) *message { return signed(id, bodies[i]) })
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
			}
			if want := map[bool]int{true: 2, false: 1}[bodies[0] == bodies[1]]; accepted != want || fresh != 1 {
				t.Errorf("%v: %d accepted, %d new", bodies, accepted, fresh)
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
