package inbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a group whose batches wait until they are let go.
type gate struct {
	group[int]
	batches chan []int
	release chan error
}

func newGate(writers, maxRows, maxBytes int) *gate {
	g := &gate{batches: make(chan []int, 100), release: make(chan error)}
	g.group = group[int]{writers: writers, maxRows: maxRows, maxBytes: maxBytes, maxWait: time.Second}
	g.run = func(batch []*member[int]) {
		var works []int
		for _, m := range batch {
			works = append(works, m.work)
		}
		g.batches <- works
		err := <-g.release
		for _, m := range batch {
			m.err = err
		}
	}
	return g
}

// submitAll starts one caller after the other, each waiting where it will wait.
func (g *gate) submitAll(ctx context.Context, wg *sync.WaitGroup, errs *sync.Map, size int, works ...int) {
	for _, w := range works {
		wg.Go(func() { errs.Store(w, g.submit(ctx, w, size)) })
		synctest.Wait()
	}
}

func TestGroupSharesTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 3, 1000)
		var wg sync.WaitGroup
		var errs sync.Map
		g.submitAll(t.Context(), &wg, &errs, 1, 1, 2, 3, 4, 5)
		want := [][]int{{1}, {2, 3, 4}, {5}} // idle: at once and alone; then what queued, at most 3
		for _, w := range want {
			synctest.Wait()
			if got := <-g.batches; !slices.Equal(got, w) {
				t.Errorf("batch %v, want %v", got, w)
			}
			g.release <- nil
		}
		wg.Wait()
		if g.busy != 0 || g.queue != nil {
			t.Errorf("after the last batch: %d busy, queue %v", g.busy, g.queue)
		}
	})
}

func TestGroupBoundsABatchByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 100, 10)
		var wg sync.WaitGroup
		var errs sync.Map
		g.submitAll(t.Context(), &wg, &errs, 1, 1)
		g.submitAll(t.Context(), &wg, &errs, 6, 2, 3)
		g.submitAll(t.Context(), &wg, &errs, 50, 4) // larger than a batch: alone
		for _, w := range [][]int{{1}, {2}, {3}, {4}} {
			synctest.Wait()
			if got := <-g.batches; !slices.Equal(got, w) {
				t.Errorf("batch %v, want %v", got, w)
			}
			g.release <- nil
		}
		wg.Wait()
	})
}

func TestGroupSecondWriterGoesOnWhileTheFirstIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2, 10, 1000)
		var wg sync.WaitGroup
		var errs sync.Map
		g.submitAll(t.Context(), &wg, &errs, 1, 1, 2, 3)
		if len(g.batches) != 2 {
			t.Fatalf("%d batches run, want 2", len(g.batches))
		}
		g.release <- nil
		synctest.Wait()
		if len(g.batches) != 3 {
			t.Errorf("%d batches were run, want 3 while one is stuck", len(g.batches))
		}
		g.release <- nil
		g.release <- nil
		wg.Wait()
	})
}

func TestGroupMemberLeavesAfterItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 10, 1000)
		var wg sync.WaitGroup
		var errs sync.Map
		ctx, cancel := context.WithCancel(t.Context())
		g.submitAll(t.Context(), &wg, &errs, 1, 1, 2)
		g.submitAll(ctx, &wg, &errs, 1, 3)
		cancel()
		synctest.Wait()
		if err, _ := errs.Load(3); !errors.Is(err.(error), errWaited) {
			t.Errorf("cancelled while waiting: %v, want errWaited", err)
		}
		<-time.After(2 * time.Second) // fake time
		synctest.Wait()
		if err, _ := errs.Load(2); err != errWaited {
			t.Errorf("waited 2 s: %v, want errWaited", err)
		}
		if _, ok := errs.Load(1); ok {
			t.Error("a member that was taken left its batch")
		}
		boom := errors.New("boom")
		g.release <- boom
		wg.Wait()
		if err, _ := errs.Load(1); err != boom {
			t.Errorf("decided with %v, want %v", err, boom)
		}
		if len(g.batches) != 1 {
			t.Errorf("%d batches, want 1: those who left are in none", len(g.batches))
		}
	})
}

// A panic reaches the caller who ran the batch. The others must not read their
// untouched members as "all is well".
// Once another's batch has taken it, neither its patience nor its ctx lets a member go:
// it may be committed.
func TestGroupMemberStaysInTheBatchThatTookIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 10, 1000)
		var wg sync.WaitGroup
		var errs sync.Map
		ctx, cancel := context.WithCancel(t.Context())
		g.submitAll(t.Context(), &wg, &errs, 1, 1, 2)
		g.submitAll(ctx, &wg, &errs, 1, 3)
		g.release <- nil // now 2 leads, and 3 is in its batch
		synctest.Wait()
		cancel()
		<-time.After(2 * time.Second) // fake time
		synctest.Wait()
		if err, left := errs.Load(3); left {
			t.Errorf("left with %v", err)
		}
		g.release <- nil
		wg.Wait()
		if err, _ := errs.Load(3); err != nil {
			t.Errorf("decided with %v", err)
		}
	})
}

func TestGroupSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 10, 1000)
		var wg sync.WaitGroup
		var errs sync.Map
		g.submitAll(t.Context(), &wg, &errs, 1, 1)
		wg.Go(func() {
			defer func() { recover() }()
			g.submit(t.Context(), 2, 1)
		})
		synctest.Wait()
		g.submitAll(t.Context(), &wg, &errs, 1, 3)
		decide := g.run
		g.run = func(batch []*member[int]) {
			if batch[0].work == 2 {
				panic("boom")
			}
			decide(batch)
		}
		g.release <- nil
		wg.Wait()
		if err, _ := errs.Load(3); err != errUndecided {
			t.Errorf("member of the batch that panicked: %v, want errUndecided", err)
		}
		g.submitAll(t.Context(), &wg, &errs, 1, 4)
		g.release <- nil
		wg.Wait()
		if err, _ := errs.Load(4); err != nil {
			t.Errorf("after a panic: %v", err)
		}
	})
}
