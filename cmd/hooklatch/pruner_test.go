package main

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hooklatch/hooklatch/inbox"
)

// pruned is a pruner whose runs end in batches, and what it told.
func pruned(batches int, took time.Duration, end error) (p *pruner, runs *atomic.Int64, rows *int, log *bytes.Buffer) {
	runs, rows, log = &atomic.Int64{}, new(int), &bytes.Buffer{}
	return &pruner{
		prune: func(ctx context.Context, r inbox.Retention) iter.Seq2[inbox.Pruned, error] {
			runs.Add(1)
			if !r.Yield || !r.Bodies.Equal(time.Now().Add(-30*day)) {
				log.WriteString("wrong retention")
			}
			return func(yield func(inbox.Pruned, error) bool) {
				for range batches {
					<-time.After(took)
					if !yield(inbox.Pruned{Kind: inbox.PruneBodies, Rows: 1000, Took: took}, ctx.Err()) {
						return
					}
				}
				if end != nil {
					yield(inbox.Pruned{Kind: inbox.PruneAttempts}, end)
				}
			}
		},
		retention: func(now time.Time) inbox.Retention { return inbox.Retention{Bodies: now.Add(-30 * day)} },
		log:       newLogger(log, "info", "json"),
		pruned:    func(_ string, n int) { *rows += n },
	}, runs, rows, log
}

func TestPrunerTakesASmallShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, runs, rows, log := pruned(10, 100*time.Millisecond, nil)
		start := time.Now()
		p.once(t.Context())
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("10 batches of 100ms took %v, want 10s", took)
		}
		if runs.Load() != 1 || *rows != 10_000 {
			t.Errorf("%d runs, %d rows", runs.Load(), *rows)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"bodies":10000`) {
			t.Errorf("log: %s", text)
		}
	})
}

func TestPrunerComesBackAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, runs, _, log := pruned(0, 0, errors.New("the database is away"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { p.Run(ctx); ended <- true }()
		<-time.After(time.Minute)
		synctest.Wait()
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs in the first minute", n)
		}
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if n := runs.Load(); n < 10 || n > 16 {
			t.Errorf("%d runs in two hours", n)
		}
		stop()
		<-ended
		if n := strings.Count(log.String(), "the database is away"); int64(n) != runs.Load() || strings.Contains(log.String(), "wrong") {
			t.Errorf("%d warnings of %d runs: %s", n, runs.Load(), log)
		}
	})
}

// A stop does not wait for the pause, and is no trouble to tell of.
func TestPrunerStopsBetweenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, rows, log := pruned(10, time.Second, nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		time.AfterFunc(15*time.Second, stop) // in the pause after the second
		start := time.Now()
		p.once(ctx)
		if took := time.Since(start); took != 15*time.Second || *rows != 2000 {
			t.Errorf("ended after %v and %d rows", took, *rows)
		}
		if text := log.String(); strings.Contains(text, "WARN") || !strings.Contains(text, `"bodies":2000`) {
			t.Errorf("log: %s", text)
		}
	})
}

// What a server starts removes what its configuration calls old, and counts it.
func TestServerPrunesWhatItsConfigurationSays(t *testing.T) {
	_, file, database := aged(t, "retention: {body: 3d, attempts: 10d, identity: 40d}", 1, 5, 20, 50)
	cfg, err := readConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := openPoolOf(t, database)
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{cfg: cfg, look: store, log: slog.New(slog.DiscardHandler), metrics: newMetrics()}
	s.pruner().once(t.Context())
	for kind, want := range map[string]float64{inbox.PruneBodies: 3, inbox.PruneAttempts: 2, inbox.PruneIdentities: 1} {
		if n := testutil.ToFloat64(s.metrics.pruned.WithLabelValues(kind)); n != want {
			t.Errorf("%s: %v counted, want %v", kind, n, want)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.payload`); n != 1 {
		t.Errorf("%d bodies are left, want 1", n)
	}
	if r := (&config{}).retention(time.Now()); r != (inbox.Retention{KeyUses: r.KeyUses}) {
		t.Errorf("a configuration without ages removes %+v", r)
	}
}
