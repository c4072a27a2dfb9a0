package inbox

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func find(t testing.TB, s *Store, f Filter) []string {
	t.Helper()
	var ids []string
	for d, err := range s.Find(t.Context(), f) {
		if err != nil {
			t.Fatalf("find %+v: %v", f, err)
		}
		ids = append(ids, d.DeliveryID)
	}
	return ids
}

func TestFind(t *testing.T) {
	s, pool := newStore(t)
	request := uuid.MustParse("0192f300-0000-7000-8000-000000000055")
	for i, change := range []func(*Delivery){
		func(d *Delivery) { d.EventType, d.EventID = "push", "evt_0" },
		func(d *Delivery) { d.Source, d.RequestID = "src2", request },
		func(d *Delivery) { d.Tenant, d.ResourceType, d.ResourceID = "t2", "report", "R/77" },
		func(d *Delivery) { d.Forwards, d.ResourceType, d.ResourceID = nil, "data/invoice", "78" },
		func(d *Delivery) {
			d.ResourceID = "gid://x/79"
			d.Forwards, d.EventID = []NewForward{{Destination: "other"}, {Destination: "third", Hold: true}}, "evt_0"
		},
	} {
		d := delivery(fmt.Sprint(i), []string{"of 0", "x"}[min(i, 1)])
		change(&d)
		accept(t, s, d)
		// Apart by a second, so that Since and Until can cut between them.
		exec(t, pool, `UPDATE hooklatch.inbox SET received_at = to_timestamp(1700000000 + $1::int) WHERE delivery_id = $2`, i, fmt.Sprint(i))
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'accepted' WHERE inbox_id = (SELECT id FROM hooklatch.inbox WHERE delivery_id = '0')`)
	second := uuid.MustParse("0192f300-0000-7000-8000-000000000056")
	contradiction := delivery("0", "other bytes")
	contradiction.RequestID = second
	var conflict *ConflictError
	if _, err := s.Accept(t.Context(), contradiction); !errors.As(err, &conflict) {
		t.Fatal(err)
	}
	hash := func(body string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(body))) }
	other, conflicting := hash("of 0"), hash("other bytes")
	at := func(i int64) time.Time { return time.Unix(1700000000+i, 0) }
	for _, c := range []struct {
		name string
		f    Filter
		want string
	}{
		{"all, newest first", Filter{}, "4 3 2 1 0"},
		{"limit", Filter{Limit: 2}, "4 3"},
		{"source", Filter{Source: "src1"}, "4 3 2 0"},
		{"unknown source", Filter{Source: "nope"}, ""},
		{"tenant", Filter{Tenant: "t2"}, "2"},
		{"type", Filter{EventType: "push"}, "0"},
		{"destination", Filter{Destination: "other"}, "4"},
		{"unrouted", Filter{Unrouted: true}, "3"},
		{"open state", Filter{State: Pending}, "4 2 1"},
		{"open state at a destination", Filter{State: Pending, Destination: "other"}, "4"},
		{"open state of a source", Filter{State: Pending, Source: "src2"}, "1"},
		{"finished state", Filter{State: Accepted}, "0"},
		{"since, included", Filter{Since: at(3)}, "4 3"},
		{"until, excluded", Filter{Until: at(2)}, "1 0"},
		{"window", Filter{Since: at(1), Until: at(3)}, "2 1"},
		{"delivery id", Filter{ID: "3"}, "3"},
		{"event id of two", Filter{ID: "evt_0"}, "4 0"},
		{"request id", Filter{ID: request.String()}, "1"},
		{"resource, whose id has a slash", Filter{ID: "report/R/77"}, "2"},
		{"id of a resource alone", Filter{ID: "R/77"}, "2"},
		{"resource, whose type has a slash", Filter{ID: "data/invoice/78"}, "3"},
		{"resource without a type", Filter{ID: "/gid://x/79"}, "4"},
		{"an id ignores the other conditions", Filter{ID: "0", State: Blocked, Tenant: "nope", Since: at(4)}, "0"},
		{"the source picks among what an id fits", Filter{ID: request.String(), Source: "src2"}, "1"},
		{"the source leaves out what an id fits", Filter{ID: "0", Source: "nope"}, ""},
		{"beginning of the hash of a body", Filter{ID: other[:8]}, "0"},
		{"whole hash of a body, in capitals", Filter{ID: strings.ToUpper(other)}, "0"},
		{"hash as it is shown, with an odd number of digits", Filter{ID: other[:9] + "…"}, "0"},
		{"too little of a hash", Filter{ID: other[:7]}, ""},
		{"hash of a body that was refused as a conflict", Filter{ID: conflicting[:10]}, "0"},
		{"request id of a conflict", Filter{ID: second.String()}, "0"},
		{"conflicts", Filter{Conflict: true}, "0"},
		{"conflicts of another source", Filter{Conflict: true, Source: "src2"}, ""},
		{"held", Filter{State: Held}, "4"},
		{"held for a person", Filter{HoldReason: HoldPerson}, "4"},
		{"held for a gap", Filter{HoldReason: HoldGap}, ""},
		{"unknown id", Filter{ID: "nope"}, ""},
		{"id with NUL", Filter{ID: "a\x00"}, ""},
	} {
		if got := strings.Join(find(t, s, c.f), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, err := range s.Find(t.Context(), Filter{After: "nonsense"}) {
		if err == nil || !strings.Contains(err.Error(), `cursor "nonsense"`) {
			t.Errorf("foreign cursor: %v", err)
		}
	}
}

// Pages meet without a gap or a repeat, also where many rows share one time.
func TestFindGoesOnBehindACursor(t *testing.T) {
	s, pool := newStore(t)
	const n = findPage + 60
	exec(t, pool, `INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, received_at)
		SELECT 't1', 'src1', 'd' || n, decode(repeat('00', 32), 'hex'), 0, to_timestamp(1700000000 + n / 50) FROM generate_series(1, $1) n`, n)
	all := find(t, s, Filter{})
	if len(all) != n {
		t.Fatalf("found %d, want %d", len(all), n)
	}
	var paged []string
	after := ""
	for {
		var last string
		for d, err := range s.Find(t.Context(), Filter{After: after, Limit: 37}) {
			if err != nil {
				t.Fatal(err)
			}
			paged = append(paged, d.DeliveryID)
			last = d.Cursor()
		}
		if last == "" {
			break
		}
		after = last
	}
	if !slices.Equal(paged, all) {
		t.Errorf("%d by pages of 37, %d at once, or in another order", len(paged), len(all))
	}
}

func TestAttemptsGoOnBehindACursor(t *testing.T) {
	s, pool := newStore(t)
	accept(t, s, delivery("dlv_1", "x"))
	f := claimOne(t, s, time.Time{})
	exec(t, pool, `INSERT INTO hooklatch.attempt (outbox_id, number, late, tenant, ended_at, class)
		SELECT $1, n, late, 't1', now(), '5xx' FROM generate_series(1, 120) n, (VALUES (false), (true)) l(late)`, f.ID)
	for _, c := range []struct{ after, limit, want int }{{0, 0, 240}, {0, 150, 150}, {100, 0, 40}, {120, 0, 0}} {
		n := 0
		for a, err := range s.Attempts(t.Context(), AttemptFilter{ForwardID: f.ID, After: c.after, Limit: c.limit}) {
			if err != nil || a.Number <= c.after {
				t.Fatalf("attempt %+v, %v", a, err)
			}
			n++
		}
		if n != c.want {
			t.Errorf("after %d, limit %d: %d attempts, want %d", c.after, c.limit, n, c.want)
		}
	}
}

func FuzzHeaderRoundTrip(f *testing.F) {
	f.Add("X-A", "value", "\xff")
	f.Add("x", "", " a: b")
	f.Fuzz(func(t *testing.T, name, v1, v2 string) {
		lines, err := encodeHeader(map[string][]string{name: {v1, v2}})
		if err != nil {
			return
		}
		got := decodeHeader(lines)
		if len(got) != 1 || !slices.Equal(got[name], []string{v1, v2}) {
			t.Errorf("%q: %q, %q came back as %q", name, v1, v2, got)
		}
	})
}

// A page reads so many rows and no more, whatever fits; the search goes on until
// something does. More candidates than are worth a look of their own make no difference.
func TestFindGoesThroughWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	fill(t, pool, 1, 2*findScan+findPage+5)
	exec(t, pool, `UPDATE hooklatch.inbox SET event_type = 'rare' WHERE delivery_id IN ('old_1', 'old_5100', 'old_10205')`)
	for _, f := range []Filter{{EventType: "rare"}, {EventType: "rare", Source: "src1"}, {EventType: "rare", State: Accepted}} {
		if got := find(t, s, f); len(got) != 3 {
			t.Errorf("%+v: found %v", f, got)
		}
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'blocked'`)
	for _, limit := range []int{0, 2} {
		if got := find(t, s, Filter{EventType: "rare", State: Blocked, Limit: limit}); len(got) != cmp.Or(limit, 3) {
			t.Errorf("among more than %d: found %v", findFew, got)
		}
	}
	if got := find(t, s, Filter{State: Blocked}); len(got) != 2*findScan+findPage+5 {
		t.Errorf("found %d", len(got))
	}
	exec(t, pool, `UPDATE hooklatch.outbox SET state = 'accepted' WHERE inbox_id > 7 + (SELECT min(id) FROM hooklatch.inbox)`)
	if got := find(t, s, Filter{State: Blocked}); len(got) != 8 {
		t.Errorf("found %d, want 8", len(got))
	}
}

// Each reading of an id goes through its index, and a rare conflict too.
func TestFindByIDReadsLittle(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	fill(t, pool, 1, 20_000)
	exec(t, pool, `UPDATE hooklatch.inbox SET body_hash = sha256(delivery_id::bytea)`)
	d := delivery("dlv_1", "mine")
	d.EventID, d.RequestID, d.ResourceType, d.ResourceID = "evt_1", uuid.New(), "thing", "1"
	accept(t, s, d)
	if _, err := s.Accept(t.Context(), delivery("dlv_1", "other")); err == nil {
		t.Fatal("no conflict")
	}
	exec(t, pool, `VACUUM ANALYZE`)
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("mine")))
	for _, f := range []Filter{{ID: "dlv_1"}, {ID: "evt_1"}, {ID: d.RequestID.String()}, {ID: "thing/1"}, {ID: hash[:8]}, {ID: "nope"},
		{Conflict: true}, {State: Pending}, {HoldReason: HoldGap}} {
		forgetReads(t, s, pool)
		found := len(find(t, s, f))
		if want := f.ID != "nope" && f.HoldReason == ""; (found == 1) != want {
			t.Errorf("%+v: found %d", f, found)
		}
		if found == 0 {
			continue // nothing may be counted at all
		}
		if n := rowsRead(t, s, pool); n > 300 {
			t.Errorf("%+v: %d rows were read", f, n)
		}
	}
}
