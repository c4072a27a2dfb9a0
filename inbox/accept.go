package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The parts of MaxAccept: up to Config.MaxWait in the queue, then batchTime for
// all tries together. One try may take tryTime before its COMMIT, and none begins
// a COMMIT with less than commitTime left: that would only make outcomes unknown.
const (
	batchTime  = 3 * time.Second
	tryTime    = 2 * time.Second
	commitTime = 500 * time.Millisecond
)

// DefaultDeadline is how long a forward is tried when NewForward sets nothing.
const DefaultDeadline = 24 * time.Hour

// identity is the unique key of a delivery.
type identity struct{ tenant, source, deliveryID string }

// acceptance is a delivery on its way into the inbox.
type acceptance struct {
	d      Delivery
	key    identity
	header []byte // encoded

	// What the database said of the key.
	missing    error // the row was neither inserted nor found
	inserted   bool
	id         int64
	keptAs     string   // delivery id of the row: another one where the body guard found it
	hash       [32]byte // of the stored body
	compare    [32]byte // the same without what the source ignores; zero: none
	receivedAt time.Time

	// leader is another member of the batch, whose row says it all; nil: there is none.
	leader *acceptance
}

// same says whether the stored bytes are those of a, as far as its source compares.
func (a *acceptance) same() bool { return a.isLike(a) }

// Accept commits d and its forwards, once. After nil the delivery survives a
// crash; after an error the caller must not tell the sender that it was taken.
// Other bytes under a known id give a *ConflictError, or a receipt that holds it
// where Delivery.AcceptFirst is set; they are kept as evidence. The remaining errors
// wrap one of the sentinels of this package.
//
// Concurrent calls share transactions. Once the work of a call has been taken
// up, the end of its ctx no longer stops it.
func (s *Store) Accept(ctx context.Context, d Delivery) (Receipt, error) {
	start := time.Now()
	a, err := newAcceptance(d)
	if err != nil {
		return Receipt{}, fmt.Errorf("accept: %w: %w", ErrInternal, err)
	}
	failpoint("before_accept")
	queue := &s.accepts
	switch {
	case s.refused.has(a.key):
		queue = &s.alone
	case d.BodyGuard > 0:
		queue = &s.guarded
	}
	err = queue.submit(ctx, a, len(d.Body)+len(a.header))
	switch {
	case errors.Is(err, errWaited):
		return Receipt{}, fmt.Errorf("accept: %w: %w", ErrUnavailable, err)
	case errors.Is(err, errUndecided):
		return Receipt{}, fmt.Errorf("accept: %w: %w", ErrOutcomeUnknown, err)
	case err != nil:
		return Receipt{}, err
	}
	r := Receipt{ID: a.id, Duplicate: !a.inserted, ReceivedAt: a.receivedAt, DeliveryID: a.keptAs}
	if !a.same() {
		conflict := s.recordConflict(ctx, a, start.Add(MaxAccept))
		if !d.AcceptFirst {
			return Receipt{}, conflict
		}
		r.Conflict = conflict
	}
	return r, nil
}

// newAcceptance checks what the database would refuse. Identity and headers must
// fit; metadata that does not is dropped, because a rightly signed delivery is
// worth more than its labels.
func newAcceptance(d Delivery) (*acceptance, error) {
	for _, f := range []struct{ name, value string }{
		{"tenant", d.Tenant}, {"source", d.Source}, {"delivery id", d.DeliveryID},
	} {
		if f.value == "" || len(f.value) > 1024 || !isText(f.value) {
			return nil, fmt.Errorf("%s is empty, longer than 1024 bytes, or no text", f.name)
		}
	}
	if d.Revision != nil && *d.Revision < 0 {
		d.Revision, d.MetaError = nil, joinText(d.MetaError, "revision is negative")
	}
	for _, f := range []struct {
		name  string
		value *string
		max   int
	}{
		{"event id", &d.EventID, 1024}, {"event type", &d.EventType, 1024},
		{"resource type", &d.ResourceType, 1024}, {"resource id", &d.ResourceID, 1024},
		{"method", &d.Method, 64}, {"peer", &d.Peer, 256}, {"scheme", &d.Scheme, 256}, {"key id", &d.KeyID, 1024},
	} {
		if len(*f.value) > f.max || !isText(*f.value) {
			*f.value = ""
			d.MetaError = joinText(d.MetaError, f.name+" is too long or no text")
		}
	}
	d.MetaError = strings.ToValidUTF8(strings.ReplaceAll(d.MetaError, "\x00", ""), "�")
	d.BodySize = len(d.Body)
	if d.BodyHash == ([32]byte{}) {
		d.BodyHash = sha256.Sum256(d.Body)
	}
	if err := checkForwards(d.Forwards); err != nil {
		return nil, err
	}
	header, err := encodeHeader(d.Header)
	if err != nil {
		return nil, err
	}
	return &acceptance{d: d, key: identity{d.Tenant, d.Source, d.DeliveryID}, header: header}, nil
}

func checkForwards(forwards []NewForward) error {
	for i, f := range forwards {
		if f.Destination == "" || !isText(f.Destination) {
			return fmt.Errorf("forward %d has no destination, or one that is no text", i)
		}
		if slices.ContainsFunc(forwards[:i], func(g NewForward) bool { return g.Destination == f.Destination }) {
			return fmt.Errorf("two forwards to destination %s", f.Destination)
		}
	}
	return nil
}

// isText says whether Postgres can hold s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// acceptBatch decides every member of one group commit.
func (s *Store) acceptBatch(batch []*member[*acceptance]) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTime)
	defer cancel()
	s.decide(ctx, batch)
}

func (s *Store) decide(ctx context.Context, batch []*member[*acceptance]) {
	works := make([]*acceptance, len(batch))
	for i, m := range batch {
		works[i] = m.work
	}
	err := s.commit(ctx, works)
	if err != nil && len(batch) > 1 && mayShareBlame(err) {
		s.acceptOneByOne(ctx, batch)
		return
	}
	var again []*member[*acceptance]
	for _, m := range batch {
		switch m.err = err; {
		case err != nil:
		case m.work.follow():
			m.err = m.work.missing
		default:
			again = append(again, m)
		}
	}
	if err != nil && len(batch) == 1 && errors.Is(err, errRefused) {
		s.refused.add(batch[0].work.key)
	}
	if len(again) > 0 {
		s.decide(ctx, again)
	}
}

// acceptOneByOne gives each member a transaction of its own after one of them
// spoiled the batch.
func (s *Store) acceptOneByOne(ctx context.Context, batch []*member[*acceptance]) {
	for _, m := range batch {
		if ctx.Err() != nil {
			m.err = fmt.Errorf("accept: %w: no time was left after a failed batch", ErrBusy)
			continue
		}
		if m.err = s.commit(ctx, []*acceptance{m.work}); m.err == nil {
			m.err = m.work.missing
		}
		if errors.Is(m.err, errRefused) {
			s.refused.add(m.work.key)
		}
	}
}

var (
	// errRefused marks a fault of one member's values, not of the batch.
	errRefused = errors.New("the database refuses the delivery's values")
	// errVanished marks a row that was pruned while it was compared with.
	errVanished = errors.New("the stored row vanished")
	// errBlocked marks a wait that one member's key may have caused.
	errBlocked = errors.New("blocked by another transaction")
)

func mayShareBlame(err error) bool { return errors.Is(err, errRefused) || errors.Is(err, errBlocked) }

// commit brings the members into the inbox in one transaction, and tries again where
// that is sure to do no harm. Those with a leader are not decided yet.
func (s *Store) commit(ctx context.Context, members []*acceptance) error {
	for try := 1; ; try++ {
		start := time.Now()
		committing, err := s.transact(ctx, members)
		if err == nil {
			s.committed(members, time.Since(start))
			s.recheck(ctx, members)
			return nil
		}
		c := classify(err, committing)
		if c == classReadOnly || c == classStale {
			s.pool.Reset() // the other connections are no better
		}
		again := (c == classNotCommitted || c == classStale) && try < 2 || c == classRetry && try < 3
		if again && ctx.Err() == nil && pause(ctx, c) {
			continue
		}
		switch c {
		case classData, classRolledBack:
			err = fmt.Errorf("%w: %w", errRefused, err)
		case classBlocked:
			err = fmt.Errorf("%w: %w", errBlocked, err)
		}
		return storeError("accept", c, err)
	}
}

// pause lets the other side of a deadlock finish first.
func pause(ctx context.Context, c class) bool {
	if c != classRetry {
		return true
	}
	select {
	case <-time.After(10*time.Millisecond + rand.N(40*time.Millisecond)):
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Store) committed(members []*acceptance, took time.Duration) {
	rows := 0
	var told []string
	for _, a := range members {
		if a.leader == nil {
			rows++
		}
		if !a.inserted || s.cfg.OnForwards == nil {
			continue
		}
		for _, f := range a.d.Forwards {
			if !slices.Contains(told, f.Destination) {
				told = append(told, f.Destination)
				s.cfg.OnForwards(f.Destination)
			}
		}
	}
	if s.cfg.OnBatch != nil {
		s.cfg.OnBatch(rows, took)
	}
}

// recheck runs a key once more that was neither inserted nor found: it can only
// have been pruned in between. The others are committed, whatever comes of it.
func (s *Store) recheck(ctx context.Context, members []*acceptance) {
	for _, a := range members {
		if a.leader != nil || a.id != 0 {
			continue
		}
		if a.missing != nil {
			a.missing = fmt.Errorf("accept: %w: the row of delivery %s vanished twice", ErrUnavailable, a.key.deliveryID)
			continue
		}
		a.missing = errVanished
		if err := s.commit(ctx, []*acceptance{a}); err != nil {
			a.missing = err
		} else if a.id != 0 {
			a.missing = nil
		}
	}
}

const beginSQL = `BEGIN ISOLATION LEVEL READ COMMITTED`

// settingsSQL is local to the transaction, so that neither the cluster's defaults
// nor a pooler's last client decide what a commit means, or what may be written. The
// tenants are those of the whole batch. The idle timeout frees the
// keys of a process that has vanished without closing its connection. Scans are off
// because a plan made while a table was small is kept when it has grown, and nothing is
// compiled because a forbidden scan seems dear.
const settingsSQL = `SELECT set_config('role', '` + string(roleIngest) + `', true), set_config('hooklatch.tenants', $1::text, true),
	set_config('synchronous_commit', 'on', true), set_config('statement_timeout', '3s', true),
	set_config('lock_timeout', '1s', true), set_config('idle_in_transaction_session_timeout', '5s', true),
	set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`

// insertSQL inserts the candidates that are new, with payload and forwards. All
// batches of all processes insert in one order, bytewise, so that no two of them
// wait for each other in a circle.
const insertSQL = `
WITH d AS (
	SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::int4[], $6::uuid[], $7::text[], $8::text[],
		$9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::int8[], $15::bool[], $16::text[], $17::int8[],
		$18::text[], $19::bytea[], $20::bytea[], $21::bytea[], $22::bytea[], $33::int2[])
	AS u(tenant, source, delivery_id, body_hash, body_size, request_id, peer, scheme,
		key_id, event_id, event_type, resource_type, resource_id, revision, deleted, meta_error, config_revision,
		method, raw_query, headers, body, compare_hash, forwards)),
i AS (
	INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, request_id, peer, scheme,
		key_id, event_id, event_type, resource_type, resource_id, revision, deleted, meta_error, config_revision, compare_hash, forwards)
	SELECT tenant, source, delivery_id, body_hash, body_size, request_id, nullif(peer, ''), nullif(scheme, ''),
		nullif(key_id, ''), nullif(event_id, ''), nullif(event_type, ''), nullif(resource_type, ''), nullif(resource_id, ''),
		revision, deleted, nullif(meta_error, ''), nullif(config_revision, 0), compare_hash, forwards
	FROM d ORDER BY tenant COLLATE "C", source COLLATE "C", delivery_id COLLATE "C"
	ON CONFLICT (tenant, source, delivery_id) DO NOTHING
	RETURNING id, tenant, source, delivery_id, received_at),
p AS (
	INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body)
	SELECT i.id, i.tenant, d.method, d.raw_query, d.headers, d.body FROM i JOIN d USING (tenant, source, delivery_id)),
o AS (
	INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, next_attempt_at, expires_at,
		ordering, lane, revision, gap_timeout, state, hold_reason)
	SELECT i.id, i.tenant, x.destination, i.received_at, i.received_at + make_interval(secs => x.deadline),
		nullif(x.ordering, ''), x.lane, x.revision, make_interval(secs => nullif(x.gap_timeout, 0)),
		CASE WHEN x.hold THEN 'held' ELSE 'pending' END, CASE WHEN x.hold THEN 'person' END
	FROM i JOIN unnest($23::text[], $24::text[], $25::text[], $26::text[], $27::float8[], $28::text[], $29::bytea[], $30::int8[],
			$31::float8[], $32::bool[])
		AS x(tenant, source, delivery_id, destination, deadline, ordering, lane, revision, gap_timeout, hold) USING (tenant, source, delivery_id))
SELECT id, tenant, source, delivery_id, received_at FROM i`

// storedSQL reads the keys that insertSQL did not return. It is a statement of
// its own, because only a later snapshot sees what a concurrent winner has
// committed; and a LATERAL, because a join may become a scan. Tenant and source are
// compared in a form that no index serves: without statistics the planner may take
// the index of the source, and reads all its deliveries for each key.
const storedSQL = `
SELECT x.id, k.tenant, k.source, k.delivery_id, x.received_at, x.body_hash, x.compare_hash
FROM unnest($1::text[], $2::text[], $3::text[]) AS k(tenant, source, delivery_id)
CROSS JOIN LATERAL (
	SELECT id, received_at, body_hash, compare_hash FROM hooklatch.inbox i
	WHERE i.delivery_id = k.delivery_id AND i.source || '' = k.source AND i.tenant || '' = k.tenant OFFSET 0) x`

// transact is one accept transaction. committing says that COMMIT may have
// reached the database when err came.
func (s *Store) transact(ctx context.Context, members []*acceptance) (committing bool, err error) {
	end := time.Now().Add(tryTime)
	if deadline, ok := ctx.Deadline(); ok && end.After(deadline.Add(-commitTime)) {
		end = deadline.Add(-commitTime)
	}
	before, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	conn, err := s.pool.Acquire(before)
	if err != nil {
		return false, err
	}
	defer conn.Release() // one that is broken, or still inside the transaction, is closed
	if err := s.bring(before, conn, members); err != nil {
		return false, rollback(conn, err)
	}
	failpoint("before_commit")
	// ctx, not before: whatever the statements took, COMMIT has its own time left.
	tag, err := conn.Exec(ctx, "COMMIT")
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	failpoint("after_commit")
	return true, err
}

// rollback keeps the connection usable after a refused statement.
func rollback(conn *pgxpool.Conn, cause error) error {
	if classify(cause, false) == classStale {
		conn.Conn().Close(context.Background()) // its cache of statements is wrong
		return cause
	}
	if !conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Exec(ctx, "ROLLBACK") // if it fails, Release closes the connection
	}
	return cause
}

// bring begins the transaction and says of each member without a leader where its row
// is, be it new or old.
func (s *Store) bring(ctx context.Context, conn *pgxpool.Conn, members []*acceptance) error {
	var guarded []*acceptance
	tenants := make([]string, len(members))
	for i, a := range members {
		tenants[i] = a.key.tenant
		a.inserted, a.id, a.keptAs, a.leader = false, 0, a.key.deliveryID, nil
		if a.d.BodyGuard > 0 {
			guarded = append(guarded, a)
		}
	}
	opening := &pgx.Batch{}
	opening.Queue(beginSQL)
	opening.Queue(settingsSQL, tenantList(tenants))
	if len(guarded) > 0 {
		if err := guard(ctx, conn, opening, guarded); err != nil {
			return err
		}
		opening = &pgx.Batch{}
	}
	candidates := plan(members, len(guarded) > 0)
	if len(candidates) == 0 {
		return nil
	}
	byKey := make(map[identity]*acceptance, len(candidates))
	for _, a := range candidates {
		byKey[a.key] = a
	}
	if err := insert(ctx, conn, opening, candidates, byKey); err != nil {
		return err
	}
	failpoint("after_insert")
	return lookUp(ctx, conn, candidates, byKey)
}

// insert sends the candidates behind what the batch holds already.
func insert(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, candidates []*acceptance, byKey map[identity]*acceptance) error {
	before := batch.Len()
	batch.Queue(insertSQL, insertArgs(candidates)...)
	results := conn.SendBatch(ctx, batch)
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
	var id int64
	var k identity
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &k.tenant, &k.source, &k.deliveryID, &at}, func() error {
		a := byKey[k]
		a.id, a.inserted, a.hash, a.compare, a.receivedAt = id, true, a.d.BodyHash, a.d.CompareHash, at
		return nil
	})
	return cmp.Or(err, results.Close())
}

func lookUp(ctx context.Context, conn *pgxpool.Conn, candidates []*acceptance, byKey map[identity]*acceptance) error {
	args := storedArgs(candidates)
	if args == nil {
		return nil
	}
	rows, err := conn.Query(ctx, storedSQL, args...)
	if err != nil {
		return err
	}
	return readStored(rows, byKey)
}

// storedArgs are the keys of those that have no row yet.
func storedArgs(candidates []*acceptance) []any {
	var tenants, sources, deliveryIDs []string
	for _, a := range candidates {
		if a.id == 0 {
			tenants = append(tenants, a.key.tenant)
			sources = append(sources, a.key.source)
			deliveryIDs = append(deliveryIDs, a.key.deliveryID)
		}
	}
	if len(tenants) == 0 {
		return nil
	}
	return []any{tenants, sources, deliveryIDs}
}

func readStored(rows pgx.Rows, byKey map[identity]*acceptance) error {
	var id int64
	var k identity
	var at time.Time
	var hash, compare []byte
	_, err := pgx.ForEachRow(rows, []any{&id, &k.tenant, &k.source, &k.deliveryID, &at, &hash, &compare}, func() error {
		a := byKey[k]
		a.id, a.hash, a.compare, a.receivedAt = id, [32]byte(hash), [32]byte{}, at
		if compare != nil {
			a.compare = [32]byte(compare)
		}
		return nil
	})
	return err
}
