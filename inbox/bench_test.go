package inbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
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
