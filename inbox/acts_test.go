package inbox

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The acts of a delivery are those on it and on its lanes, and nobody else's.
func TestActsOfADelivery(t *testing.T) {
	t.Parallel()
	s, pool := auditScene(t)
	exec(t, pool, `
		INSERT INTO hooklatch.audit (tenant, actor, action, reason, inbox_id, outbox_id)
		SELECT 't1', 'ann', 'replay', 'of ' || i.delivery_id, i.id, o.id FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id ORDER BY i.id;
		INSERT INTO hooklatch.audit (tenant, actor, action, reason, resource)
		SELECT 't1', 'bob', 'release', 'of ' || resource_id, id FROM hooklatch.resource ORDER BY id`)
	acts := func(f ActFilter) (reasons []string) {
		for a, err := range s.Acts(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			reasons = append(reasons, a.Actor+" "+a.Action+" "+a.Reason)
		}
		return reasons
	}
	id := int64(count(t, pool, `SELECT id FROM hooklatch.inbox WHERE delivery_id = 'r1-2'`))
	want := []string{"ann replay of r1-2", "bob release of 1"}
	if got := acts(ActFilter{Delivery: id}); !slices.Equal(got, want) {
		t.Errorf("acts %v, want %v", got, want)
	}
	all := count(t, pool, `SELECT count(*) FROM hooklatch.audit`)
	if got := acts(ActFilter{}); len(got) != all {
		t.Errorf("%d acts of %d", len(got), all)
	}
	if got := acts(ActFilter{Since: time.Now().Add(time.Hour)}); len(got) != 0 {
		t.Errorf("acts of the future: %v", got)
	}
	for i := range 2*actPage + 1 {
		exec(t, pool, `INSERT INTO hooklatch.audit (tenant, actor, action, reason, inbox_id) VALUES ('t1', 'eve', 'replay', $1, $2)`, fmt.Sprint(i), id)
	}
	if got := acts(ActFilter{Delivery: id}); len(got) != 2+2*actPage+1 {
		t.Errorf("%d acts over several pages", len(got))
	}
	if got := acts(ActFilter{Delivery: id, Limit: actPage + 3}); len(got) != actPage+3 {
		t.Errorf("%d acts, at most %d were asked for", len(got), actPage+3)
	}
}
