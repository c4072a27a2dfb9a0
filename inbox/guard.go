package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The body guard: where a scheme does not sign the delivery id, whoever has captured
// one request can send it again under ids of their own. So a new id is no new delivery
// where its source has brought the same body a short while ago. The same is also what
// differs in nothing but what the source ignores: a repeat of that kind can be captured
// as well, and only its compare hash is known.

// guardedBody is what the guard knows a delivery by.
type guardedBody struct {
	tenant, source string
	hash           [32]byte
}

func (a *acceptance) guardedBodies() []guardedBody {
	all := []guardedBody{{a.key.tenant, a.key.source, a.d.BodyHash}}
	if a.d.CompareHash != ([32]byte{}) {
		all = append(all, guardedBody{a.key.tenant, a.key.source, a.d.CompareHash})
	}
	return all
}

// lockKey makes the deliveries of one body wait for one another. Two bodies with one
// key wait without need, which harms nobody.
func (b guardedBody) lockKey() int64 {
	text := []byte("hooklatch body guard")
	for _, part := range []string{b.tenant, b.source} {
		text = binary.AppendUvarint(text, uint64(len(part)))
		text = append(text, part...)
	}
	sum := sha256.Sum256(append(text, b.hash[:]...))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// lockBodiesSQL is a statement of its own: only what begins after it sees what the
// last holder of a lock has committed. Its array is sorted, and nothing else is locked
// yet, so that no two transactions wait for each other in a circle.
const lockBodiesSQL = `SELECT pg_advisory_xact_lock(k) FROM unnest($1::int8[]) AS k`

// twinSQL finds, for each body, the first delivery of it that is recent enough. Source
// and tenant are compared as in storedSQL, so that the index of the body serves.
const twinSQL = `
SELECT g.n, x.id, x.delivery_id, x.received_at
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::float8[], $5::bytea[]) WITH ORDINALITY AS g(tenant, source, body_hash, reach, compare_hash, n)
CROSS JOIN LATERAL (
	SELECT * FROM (
		(SELECT id, delivery_id, received_at FROM hooklatch.inbox i
		WHERE i.body_hash = g.body_hash AND i.source || '' = g.source AND i.tenant || '' = g.tenant
			AND i.received_at >= now() - make_interval(secs => g.reach)
		ORDER BY i.received_at LIMIT 1)
		UNION ALL
		(SELECT id, delivery_id, received_at FROM hooklatch.inbox i
		WHERE i.compare_hash = g.compare_hash AND i.source || '' = g.source AND i.tenant || '' = g.tenant
			AND i.received_at >= now() - make_interval(secs => g.reach)
		ORDER BY i.received_at LIMIT 1)) either
	ORDER BY received_at LIMIT 1) x`

// guard begins the transaction, locks the bodies of the members, and reads what is
// there of them: the row of the id, or else that of the body.
func guard(ctx context.Context, conn *pgxpool.Conn, opening *pgx.Batch, members []*acceptance) error {
	var keys []int64
	byKey := make(map[identity]*acceptance, len(members))
	var firsts []*acceptance
	var tenants, sources []string
	var hashes, compares [][]byte
	var reach []float64
	for _, a := range members {
		for _, b := range a.guardedBodies() {
			keys = append(keys, b.lockKey())
		}
		if byKey[a.key] == nil {
			byKey[a.key] = a
			firsts = append(firsts, a)
		}
		tenants, sources = append(tenants, a.key.tenant), append(sources, a.key.source)
		hashes, reach = append(hashes, a.d.BodyHash[:]), append(reach, a.d.BodyGuard.Seconds())
		var compare []byte // NULL is equal to nothing
		if a.d.CompareHash != ([32]byte{}) {
			compare = a.d.CompareHash[:]
		}
		compares = append(compares, compare)
	}
	slices.Sort(keys)

	before := opening.Len() + 1
	opening.Queue(lockBodiesSQL, slices.Compact(keys))
	opening.Queue(storedSQL, storedArgs(firsts)...)
	opening.Queue(twinSQL, tenants, sources, hashes, reach, compares)
	results := conn.SendBatch(ctx, opening)
	defer results.Close()
	for range before {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	if err := readStored(rows, byKey); err != nil {
		return err
	}
	if rows, err = results.Query(); err != nil {
		return err
	}
	var n, id int64
	var deliveryID string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&n, &id, &deliveryID, &at}, func() error {
		if a := members[n-1]; a.id == 0 {
			a.id, a.keptAs, a.hash, a.receivedAt = id, deliveryID, a.d.BodyHash, at
		}
		return nil
	})
	return cmp.Or(err, results.Close())
}

// plan returns the members that must be inserted, one for each id, and gives the
// others their leaders, as if they came one by one in their order. It takes the
// candidates to be new: whoever follows one of them by its body must ask again where
// it is not, as if it had come a little later.
func plan(members []*acceptance, guarding bool) (candidates []*acceptance) {
	byKey := make(map[identity]*acceptance, len(members))
	var byBody map[guardedBody]*acceptance
	if guarding {
		byBody = make(map[guardedBody]*acceptance, len(members))
	}
	for _, a := range members {
		if a.leader = byKey[a.key]; a.leader != nil {
			continue
		}
		if a.id != 0 {
			if a.keptAs == a.key.deliveryID { // else only the body is known, and the id stays free
				byKey[a.key] = a
			}
			continue
		}
		if guarding {
			var first *acceptance
			for _, b := range a.guardedBodies() {
				first = cmp.Or(first, byBody[b])
			}
			if a.d.BodyGuard > 0 && first != nil {
				a.leader = first
				continue
			}
			for _, b := range a.guardedBodies() {
				byBody[b] = cmp.Or(byBody[b], a)
			}
		}
		byKey[a.key] = a
		candidates = append(candidates, a)
	}
	return candidates
}

// follow takes over what the database said of the leader: only that one was inserted.
// false: the leader is not what plan took it for, so that nothing is known of a.
func (a *acceptance) follow() (decided bool) {
	l := a.leader
	switch {
	case l == nil:
		return true
	case l.missing != nil:
	case l.key == a.key && l.keptAs != a.key.deliveryID, l.key != a.key && !a.isLike(l):
		return false
	}
	a.id, a.keptAs, a.hash, a.compare, a.receivedAt, a.missing = l.id, l.keptAs, l.hash, l.compare, l.receivedAt, l.missing
	return true
}

// isLike says whether what is stored of l is the body of a, as far as their source
// compares.
func (a *acceptance) isLike(l *acceptance) bool {
	return l.hash == a.d.BodyHash || l.compare == a.d.CompareHash && l.compare != [32]byte{}
}
