package inbox

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// arrival is one delivery on its way in. Bodies of one letter differ in a counter only.
type arrival struct {
	id, body  string
	comparing bool // its source ignores the counter
}

func (a arrival) delivery(scope string, guarded bool) Delivery {
	d := delivery(scope+a.id, scope+a.body)
	if a.comparing {
		d.CompareHash = sha256.Sum256([]byte(scope + a.body[:1]))
	}
	if guarded {
		d.BodyGuard = time.Hour
	}
	return d
}

func drawArrival(rt *rapid.T) arrival {
	return arrival{
		id:        rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "id"),
		body:      rapid.SampledFrom([]string{"x1", "x2", "y1"}).Draw(rt, "body"),
		comparing: rapid.Bool().Draw(rt, "comparing"),
	}
}

// verdict is what the inbox says of one arrival.
type verdict struct {
	inserted, conflict, byBody bool
}

// verdictsModel says in memory what the inbox must say, one arrival after the other.
type verdictsModel map[string]arrival // id → what is stored

func (m verdictsModel) accept(a arrival, guarded bool) verdict {
	if first, known := m[a.id]; known {
		return verdict{conflict: !a.isLike(first)}
	}
	if guarded && m.twins(a) != nil {
		return verdict{byBody: true}
	}
	m[a.id] = a
	return verdict{inserted: true}
}

// isLike says whether two bodies are the same, as far as their source compares.
func (a arrival) isLike(first arrival) bool {
	return first.body == a.body || first.comparing && a.comparing && first.body[:1] == a.body[:1]
}

// twins are the ids under which the body is stored.
func (m verdictsModel) twins(a arrival) (ids []string) {
	for id, first := range m {
		if a.isLike(first) {
			ids = append(ids, id)
		}
	}
	return ids
}

// X29, X31: the verdicts of a batch are those of its members one by one in that order,
// wherever the batch is cut, and whatever of its senders' oddities a source allows for.
func TestX29_BatchEqualsItsMembersOneByOne(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	exec(t, pool, `CREATE TABLE public.pruned AS TABLE hooklatch.payload`)
	t.Cleanup(func() { exec(t, pool, `INSERT INTO hooklatch.payload SELECT * FROM public.pruned`) })
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		scope := fmt.Sprint(run, "-")
		stored := rapid.SliceOfN(rapid.Custom(drawArrival), 0, 3).Draw(rt, "stored")
		arrivals := rapid.SliceOfN(rapid.Custom(drawArrival), 1, 8).Draw(rt, "arrivals")
		cut := rapid.IntRange(1, len(arrivals)).Draw(rt, "cut")
		guarded := rapid.Bool().Draw(rt, "guarded")
		pruned := rapid.Bool().Draw(rt, "pruned")

		model := verdictsModel{}
		for _, a := range stored {
			model.accept(a, guarded)
			s.Accept(t.Context(), a.delivery(scope, guarded))
		}
		if pruned { // what is known of a body outlives it
			exec(t, pool, `WITH gone AS (DELETE FROM hooklatch.payload RETURNING *) INSERT INTO public.pruned SELECT * FROM gone`)
		}
		for batch := range slices.Chunk(arrivals, cut) {
			var members []*member[*acceptance]
			for _, a := range batch {
				work, err := newAcceptance(a.delivery(scope, guarded))
				if err != nil {
					rt.Fatal(err)
				}
				members = append(members, &member[*acceptance]{work: work})
			}
			s.acceptBatch(members)
			for i, a := range batch {
				want, m := model.accept(a, guarded), members[i]
				got := verdict{m.work.inserted, !m.work.same(), m.work.keptAs != scope+a.id}
				if m.err != nil || got != want {
					rt.Fatalf("%+v: %+v, %v; want %+v", a, got, m.err, want)
				}
				if want.byBody && !slices.Contains(model.twins(a), m.work.keptAs[len(scope):]) {
					rt.Fatalf("%+v is a duplicate of %s, which has another body", a, m.work.keptAs)
				}
			}
		}
	})
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE (SELECT count(*) FROM hooklatch.outbox WHERE inbox_id = inbox.id) <> 1`); n != 0 {
		t.Errorf("%d deliveries with other than one forward", n)
	}
}

// E5: one id with two bodies in one group commit.
func TestCaseE5_SameIDTwiceInOneCommit(t *testing.T) {
	s, pool := newStore(t)
	wholeAtEnd(t, s.pool)
	batch := members(t, delivery("e", "h1"), delivery("e", "h2"), delivery("neighbour", "h1"))
	s.acceptBatch(batch)
	for i, want := range []verdict{{inserted: true}, {conflict: true}, {inserted: true}} {
		m := batch[i]
		if got := (verdict{m.work.inserted, !m.work.same(), false}); m.err != nil || got != want {
			t.Errorf("member %d: %+v, %v; want %+v", i, got, m.err, want)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.payload WHERE body = 'h1'`); n != 2 {
		t.Errorf("%d payloads of the first body, want 2", n)
	}
}

// D2: twice at once, in one commit.
func TestCaseD2_ConflictsInOneCommit(t *testing.T) {
	s, _ := newStore(t)
	for round := range 50 {
		for i, bodies := range [][2]string{{"one", "one"}, {"one", "two"}, {"two", "one"}} {
			id := fmt.Sprint(round, "-", i)
			batch := members(t, delivery(id, bodies[0]), delivery(id, bodies[1]))
			s.acceptBatch(batch)
			for i, want := range []verdict{{inserted: true}, {conflict: bodies[0] != bodies[1]}} {
				w := batch[i].work
				if got := (verdict{w.inserted, !w.same(), false}); batch[i].err != nil || got != want {
					t.Errorf("%v, member %d: %+v, %v; want %+v", bodies, i, got, batch[i].err, want)
				}
			}
		}
	}
}
