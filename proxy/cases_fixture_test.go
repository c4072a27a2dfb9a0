package proxy

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/verify"
)

// fixture is an entry of cases-fixtures.json: a request that went wrong for others.
type fixture struct {
	Name, Case, Scheme, Method, Path string
	Headers                          map[string][]string
	BodyHex                          string `json:"body_hex"`
	BodyRepeat                       *struct {
		PrefixHex string `json:"prefix_hex"`
		UnitHex   string `json:"unit_hex"`
		Count     int
		SuffixHex string `json:"suffix_hex"`
	} `json:"body_repeat"`
	BodySHA256 string `json:"body_sha256"`
	Keys       []struct {
		ID        string
		SecretHex string `json:"secret_hex"`
		NotBefore int64  `json:"not_before"`
		NotAfter  int64  `json:"not_after"`
	}
	Now        int64
	Expect     int
	WireHex    string `json:"wire_hex"`
	WireExpect int    `json:"wire_expect"`
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (f *fixture) body(t testing.TB) []byte {
	if f.BodyRepeat == nil {
		return unhex(t, f.BodyHex)
	}
	r := f.BodyRepeat
	return bytes.Join([][]byte{unhex(t, r.PrefixHex), bytes.Repeat(unhex(t, r.UnitHex), r.Count), unhex(t, r.SuffixHex)}, nil)
}

func (f *fixture) message(t testing.TB) *message {
	m := &message{method: f.Method, target: f.Path, body: f.body(t)}
	for name, values := range f.Headers {
		for _, v := range values {
			m.header = append(m.header, [2]string{name, v})
		}
	}
	return m
}

// source is the source of the fixture, with its keys and at its time.
func (f *fixture) source(t testing.TB) Source {
	var keys []verify.Key
	for _, k := range f.Keys {
		c, err := verify.NewKey(k.ID, []byte(k.SecretHex), verify.SecretSpec{Encoding: "hex"})
		if err != nil {
			t.Fatal(err)
		}
		if k.NotBefore != 0 {
			c.NotBefore = time.Unix(k.NotBefore, 0)
		}
		if k.NotAfter != 0 {
			c.NotAfter = time.Unix(k.NotAfter, 0)
		}
		keys = append(keys, c)
	}
	s := withMetadata(t)
	s.Path = strings.SplitN(f.Path, "?", 2)[0]
	s.Verifier = verifier(t, f.Scheme, keys...)
	s.Verifier.Now = clock(f.Now)
	if s.Path == "/in/src2" {
		s.Name, s.Tenant = "src2", "t2"
	}
	return s
}

func fixtures(t testing.TB, number string) (out []*fixture) {
	t.Helper()
	text, err := os.ReadFile("../testdata/vectors/cases-fixtures.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Fixtures []*fixture }
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, f := range all.Fixtures {
		if f.Case == number {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no fixtures of case %s", number)
	}
	return out
}

// caseRun is a case on a database of its own.
type caseRun struct {
	t    *testing.T
	pool *pgxpool.Pool
	on   *setup
}

func newCase(t *testing.T) *caseRun {
	t.Parallel()
	pool := inboxtest.New(t)
	return &caseRun{t, pool, &setup{inbox: newStore(t, pool)}}
}

func (c *caseRun) rig(f *fixture) *rig {
	s := *c.on
	s.cfg.Sources = []Source{f.source(c.t)}
	return start(c.t, s)
}

// send sends a fixture and checks the status, that a refusal leaves no row, and
// that what is accepted is stored byte for byte.
func (c *caseRun) send(f *fixture, want int) answer {
	c.t.Helper()
	before := c.rows()
	a := c.rig(f).send(f.message(c.t))
	c.check(f, a, want, before)
	return a
}

func (c *caseRun) sendWire(f *fixture) answer {
	c.t.Helper()
	before := c.rows()
	answers := c.rig(f).all(string(unhex(c.t, f.WireHex)))
	if len(answers) != 1 {
		c.t.Fatalf("%s: %d answers on the wire", f.Name, len(answers))
	}
	c.check(f, answers[0], f.WireExpect, before)
	return answers[0]
}

func (c *caseRun) rows() int {
	return count(c.t, c.pool, `SELECT (SELECT count(*) FROM hooklatch.inbox) + (SELECT count(*) FROM hooklatch.payload)
		+ (SELECT count(*) FROM hooklatch.outbox) + (SELECT count(*) FROM hooklatch.conflict)`)
}

func (c *caseRun) check(f *fixture, a answer, want, before int) {
	c.t.Helper()
	if a.status != want {
		c.t.Fatalf("%s: status %d, want %d: %s", f.Name, a.status, want, a.body)
	}
	if want != 202 {
		if a.problem(c.t); want != 409 && c.rows() != before {
			c.t.Errorf("%s: a refusal left rows", f.Name)
		}
		return
	}
	var stored []byte
	err := c.pool.QueryRow(c.t.Context(), `SELECT p.body FROM hooklatch.payload p JOIN hooklatch.inbox i ON i.id = p.inbox_id
		WHERE i.delivery_id = $1 AND i.source = $2 AND i.body_hash = $3 AND i.body_size = octet_length(p.body)`,
		a.receipt(c.t).DeliveryID, f.source(c.t).Name, unhex(c.t, f.BodySHA256)).Scan(&stored)
	if err != nil || !bytes.Equal(stored, f.body(c.t)) {
		c.t.Errorf("%s: stored %d bytes, %v", f.Name, len(stored), err)
	}
	if n := count(c.t, c.pool, `SELECT count(*) FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id
		WHERE i.delivery_id = $1 AND i.source = $2`, a.receipt(c.t).DeliveryID, f.source(c.t).Name); n != 1 {
		c.t.Errorf("%s: %d forwards", f.Name, n)
	}
}

// all runs every fixture of a case in order. wants overrides what a fixture says.
func (c *caseRun) all(number string, wants map[string]int) {
	c.t.Helper()
	for _, f := range fixtures(c.t, number) {
		if f.WireHex != "" {
			c.sendWire(f)
		}
		want := f.Expect
		if w, ok := wants[f.Name]; ok {
			want = w
		}
		c.send(f, want)
	}
}
