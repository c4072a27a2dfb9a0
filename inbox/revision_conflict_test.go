package inbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// One revision, two contents: the first stays, and there is one alarm.
func TestRevisionWithTwoContents(t *testing.T) {
	for _, ordering := range []Ordering{OrderLatest, OrderCoalesce, OrderStrict} {
		t.Run(string(ordering), func(t *testing.T) {
			t.Parallel()
			var alarms []RevisionConflict
			pool := inboxtest.New(t)
			s, err := New(pool, Config{OnRevisionConflict: func(c RevisionConflict) { alarms = append(alarms, c) }})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []struct{ id, body string }{{"first", "x"}, {"same", "x"}, {"other", "y"}, {"again", "y"}} {
				d := ofResource(ordering, "r", 1)
				d.DeliveryID, d.Body, d.BodyHash = v.id, []byte(v.body), [32]byte{v.body[0]}
				accept(t, s, d)
			}
			wantIDs(t, drain(t, s), "first")
			wantStates(t, pool, "1 accepted, 1 superseded, 1 superseded, 1 superseded")
			alarm := func(later string) RevisionConflict {
				return RevisionConflict{Tenant: "t1", Source: "src1", ResourceType: "invoice", ResourceID: "r", Revision: 1, DeliveryID: later, FirstDeliveryID: "first"}
			}
			want := []RevisionConflict{alarm("other"), alarm("again")}
			slices.SortFunc(alarms, func(a, b RevisionConflict) int { return -strings.Compare(a.DeliveryID, b.DeliveryID) })
			if !slices.Equal(alarms, want) {
				t.Errorf("alarms %+v, want %+v", alarms, want)
			}
			if n := count(t, pool, `SELECT count(*) FROM hooklatch.revision_conflict`); n != 2 {
				t.Errorf("%d conflicts are recorded, want 2", n)
			}
		})
	}
}

// What differs only where the source says that it may is no conflict.
func TestRevisionWithIgnoredDifferences(t *testing.T) {
	s, pool := newStore(t)
	for n, id := range []string{"first", "second"} {
		d := ofResource(OrderLatest, "r", 1)
		d.DeliveryID, d.BodyHash, d.CompareHash = id, [32]byte{byte(n)}, [32]byte{9}
		accept(t, s, d)
	}
	drain(t, s)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.revision_conflict`); n != 0 {
		t.Errorf("%d conflicts", n)
	}
}
