package inbox

import (
	"slices"
	"testing"
)

func TestSourcesAreListedOnceHoweverManyDeliveries(t *testing.T) {
	s, _ := newStore(t)
	if got, err := s.Sources(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("empty inbox: %q %v", got, err)
	}
	for i, source := range []string{"b", "a", "b", "B", "c", "a"} {
		d := delivery(string(rune('1'+i)), "x")
		d.Source = source
		accept(t, s, d)
	}
	if got, err := s.Sources(t.Context()); err != nil || !slices.Equal(got, []string{"B", "a", "b", "c"}) {
		t.Errorf("sources: %q %v", got, err)
	}
}
