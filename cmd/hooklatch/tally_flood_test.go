package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// statements counts what a pool sends to its server.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	s.n.Add(int64(data.Batch.Len()))
	return ctx
}
func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A flood of refusals, each with ids, a key, an address and a body of its own, costs
// the database what a trickle costs. One of more kinds than have room is bounded too.
func TestFloodOfRefusalsCostsTheDatabaseNoMoreThanATrickle(t *testing.T) {
	t.Parallel()
	// flood refuses n requests of so many sources within one interval, and says what
	// writing them down cost.
	flood := func(n, sources int) (sent, rows int64) {
		traced := &statements{}
		cfg, err := pgxpool.ParseConfig(inboxtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		cfg.ConnConfig.Tracer = traced
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		store, err := inbox.New(pool, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		y := newTally(store, newLogger(io.Discard, "info", "json"), newMetrics())
		now := time.Now()
		reasons := []verify.Reason{verify.ReasonKeyUnknown, verify.ReasonSignatureMismatch, verify.ReasonKeyExpired, verify.ReasonSignatureMissing}
		for i := range n {
			hostile := strings.Repeat(fmt.Sprint("hostile-", i, "\x00é"), 20)
			r := &proxy.Result{Source: fmt.Sprint("source-", i%sources), Tenant: "acme", Outcome: proxy.OutcomeRefused,
				DeliveryID: hostile, Peer: fmt.Sprintf("2001:db8::%x", i), RequestID: uuid.New(), BodyBytes: int64(i), BodyHash: sha256.Sum256([]byte(hostile))}
			reason := reasons[i/sources%len(reasons)]
			if r.Reason, r.Code, r.KeyID = string(reason), reason.Code(), "k1"; reason == verify.ReasonKeyUnknown {
				r.KeyID = hostile
			}
			y.request(r, now)
		}
		before := traced.n.Load()
		if err := y.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		sent = traced.n.Load() - before
		var counted int64
		if err := pool.QueryRow(t.Context(), `SELECT count(*), sum(count)::int8 FROM hooklatch.refusal`).Scan(&rows, &counted); err != nil {
			t.Fatal(err)
		}
		if counted != int64(n) {
			t.Errorf("%d of %d are counted", counted, n)
		}
		return sent, rows
	}
	trickleSent, trickleRows := flood(100, 5)
	floodSent, floodRows := flood(100_000, 5)
	if floodSent != trickleSent || floodRows != trickleRows || trickleRows != 20 {
		t.Errorf("a flood: %d statements and %d rows; a trickle: %d and %d", floodSent, floodRows, trickleSent, trickleRows)
	}
	wideSent, wideRows := flood(100_000, 10_000)
	batches := (tallyRows+1)/tallyBatch + 1
	if wideRows != tallyRows+1 || wideSent > trickleSent*int64(batches) {
		t.Errorf("of 40,000 kinds: %d statements and %d rows, at most %d and %d are allowed", wideSent, wideRows, trickleSent*int64(batches), tallyRows+1)
	}
	t.Logf("trickle %d statements %d rows, flood %d %d, wide flood %d %d", trickleSent, trickleRows, floodSent, floodRows, wideSent, wideRows)
}
