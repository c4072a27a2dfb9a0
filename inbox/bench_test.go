package inbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkAccept is the store alone, without HTTP and signatures, with 1.5 KB
// bodies and unique ids. The committed end-to-end figures come from make bench.
func BenchmarkAccept(b *testing.B) {
	body := make([]byte, 1500)
	rand.Read(body)
	hash := sha256.Sum256(body)
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s, _ := newStore(b)
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(max(1, callers/2)) // times GOMAXPROCS, which is 2 where this is measured
			b.ResetTimer()                      // the first database waits for a cluster
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					d := delivery(fmt.Sprintf("dlv_%016x", n.Add(1)), "")
					d.Body, d.BodyHash = body, hash
					d.EventID, d.EventType, d.KeyID, d.Scheme = d.DeliveryID, "invoice.paid", "k1", "zhisou-v1"
					d.Header = map[string][]string{"Content-Type": {"application/json"}, "X-Webhook-Delivery-Id": {d.DeliveryID}}
					if _, err := s.Accept(context.Background(), d); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "accepted/s")
		})
	}
}

// BenchmarkClaim claims and releases 16 of a thousand forwards that stand in no lane.
func BenchmarkClaim(b *testing.B) {
	s, _ := newStore(b)
	for n := range 1000 {
		accept(b, s, delivery(fmt.Sprint(n), "x"))
	}
	for b.Loop() {
		all, err := s.Claim(b.Context(), ClaimRequest{Destination: "app", Tenants: []string{"t1"}, Limit: 16, Lease: time.Minute, MaxAttempts: 12})
		if err != nil || len(all) != 16 {
			b.Fatalf("%d claimed, %v", len(all), err)
		}
		b.StopTimer()
		var work []*settling
		for _, f := range all {
			work = append(work, &settling{Settlement: settlement(f, OutcomeReleased, "")})
		}
		if err := s.settleAll(b.Context(), work); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkClaimBesideALongLane compares claims of one lane with and without ten
// thousand forwards that wait in another. The two take turns, so that a busy machine is
// busy for both. "ratio" is the median with them over the median without.
func BenchmarkClaimBesideALongLane(b *testing.B) {
	type side struct {
		s    *Store
		took []time.Duration
	}
	var sides [2]side
	for i := range sides {
		s, pool := newStore(b)
		accept(b, s, ofResource(OrderLatest, "long", 1))
		claimAll(b, s, time.Time{}) // it stays in flight: the others wait for it
		if i == 1 {
			crowd(b, pool, OrderLatest, 10_000, `waiting = false`)
			claimAll(b, s, time.Time{})
			if n := count(b, pool, `SELECT count(*) FROM hooklatch.outbox WHERE waiting`); n != 10_000 {
				b.Fatalf("%d wait", n)
			}
		}
		accept(b, s, ofResource(OrderLatest, "short", 1))
		sides[i].s = s
	}
	for b.Loop() {
		for i := range sides {
			start := time.Now()
			f := claimOne(b, sides[i].s, time.Time{})
			sides[i].took = append(sides[i].took, time.Since(start))
			settle1(b, sides[i].s, f, OutcomeReleased)
		}
	}
	median := func(took []time.Duration) float64 {
		slices.Sort(took)
		return took[len(took)/2].Seconds()
	}
	without, with := median(sides[0].took), median(sides[1].took)
	b.ReportMetric(without*1e6, "µs/claim-alone")
	b.ReportMetric(with*1e6, "µs/claim-beside")
	b.ReportMetric(with/without, "ratio")
}
