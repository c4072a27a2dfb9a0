package inbox

import (
	"cmp"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// insertArgs turns the candidates into one array for each column.
func insertArgs(candidates []*acceptance) []any {
	n := len(candidates)
	var (
		texts     [12][]string
		hashes    = make([][]byte, n)
		sizes     = make([]int32, n)
		requests  = make([]pgtype.UUID, n) // pgx knows its array without a prepared statement too
		revisions = make([]*int64, n)
		deleted   = make([]bool, n)
		configs   = make([]int64, n)
		queries   = make([][]byte, n)
		headers   = make([][]byte, n)
		bodies    = make([][]byte, n)

		compares = make([][]byte, n)
		forwards = make([]int16, n)

		tenants, sources, deliveryIDs, destinations, orderings []string
		deadlines, gapTimeouts                                 []float64
		lanes                                                  [][]byte
		lanePlaces                                             []*int64
		holds                                                  []bool
	)
	for i := range texts {
		texts[i] = make([]string, n)
	}
	for i, a := range candidates {
		d := &a.d
		for j, v := range [...]string{d.Tenant, d.Source, d.DeliveryID, d.Peer, d.Scheme, d.KeyID, d.EventID, d.EventType,
			d.ResourceType, d.ResourceID, d.MetaError, d.Method} {
			texts[j][i] = v
		}
		hashes[i], sizes[i] = d.BodyHash[:], int32(d.BodySize)
		requests[i] = pgtype.UUID{Bytes: d.RequestID, Valid: d.RequestID != uuid.Nil}
		revisions[i], deleted[i], configs[i] = d.Revision, d.Deleted, d.ConfigRevision
		queries[i], headers[i], bodies[i] = []byte(d.RawQuery), a.header, d.Body
		if bodies[i] == nil {
			bodies[i] = []byte{} // an empty body is zero bytes, not NULL
		}
		if d.CompareHash != ([32]byte{}) {
			compares[i] = d.CompareHash[:]
		}
		forwards[i] = int16(len(d.Forwards))
		lane := laneOf(d)
		for _, f := range d.Forwards {
			if lane == nil || f.Ordering == OrderNone {
				orderings, lanes, lanePlaces = append(orderings, ""), append(lanes, nil), append(lanePlaces, nil)
			} else {
				orderings, lanes, lanePlaces = append(orderings, string(f.Ordering)), append(lanes, lane), append(lanePlaces, d.Revision)
			}
			gapTimeouts, holds = append(gapTimeouts, f.GapTimeout.Seconds()), append(holds, f.Hold)
			tenants = append(tenants, d.Tenant)
			sources = append(sources, d.Source)
			deliveryIDs = append(deliveryIDs, d.DeliveryID)
			destinations = append(destinations, f.Destination)
			deadlines = append(deadlines, cmp.Or(f.Deadline, DefaultDeadline).Seconds())
		}
	}
	return []any{texts[0], texts[1], texts[2], hashes, sizes, requests, texts[3], texts[4],
		texts[5], texts[6], texts[7], texts[8], texts[9], revisions, deleted, texts[10], configs,
		texts[11], queries, headers, bodies, compares,
		tenants, sources, deliveryIDs, destinations, deadlines, orderings, lanes, lanePlaces, gapTimeouts, holds, forwards}
}
