package inbox

// The statements of Audit, one for each edge. $1 are the keys of a page. Each looks
// its rows up by key, never by a join, which the planner may turn into a scan, and
// returns what differs in the columns of scanSuspect.

// auditDeliverySQL follows deliveries to their bodies, forwards and attempts. Bodies
// from before $2 may be gone, attempts from before $3, and what a person has pruned;
// $4 is the age of an abandoned lease. The body of a forward that is to be sent is
// never old. Attempts leave the ledger oldest first: one that is missing above one
// that is there was not removed by its age.
const auditDeliverySQL = `
WITH t AS MATERIALIZED (SELECT clock_timestamp() AS now),
p AS MATERIALIZED (
	SELECT tenant, substring(detail FROM ' of source (.*)$') AS source, substring(detail FROM ' before (\S+)')::timestamptz AS before
	FROM hooklatch.audit WHERE action = 'prune' AND at >= least($2::timestamptz, $3::timestamptz)),
d AS MATERIALIZED (
	SELECT id, tenant, source, delivery_id, coalesce(resource_type, '') AS resource_type, coalesce(resource_id, '') AS resource_id,
		received_at, coalesce(forwards, 0) AS forwards, EXISTS (
			SELECT FROM p WHERE p.tenant = i.tenant AND coalesce(p.source, i.source) = i.source AND i.received_at < p.before) AS pruned
	FROM hooklatch.inbox i WHERE id = ANY ($1)),
f AS MATERIALIZED (
	SELECT d.*, o.* FROM d CROSS JOIN LATERAL (
		SELECT id AS forward, destination, state, attempts, attempts - (lease_until IS NOT NULL)::int4 AS ended, lease_until,
			waiting, hold_reason, lane, revision
		FROM hooklatch.outbox WHERE inbox_id = d.id OFFSET 0) o),
a AS MATERIALIZED (
	SELECT f.*, x.highest, x.taken, x.numbers, CASE WHEN f.received_at >= $3 AND NOT f.pruned THEN 1 ELSE coalesce(x.lowest, f.ended + 1) END AS since
	FROM f CROSS JOIN LATERAL (
		SELECT min(number) AS lowest, max(number) FILTER (WHERE NOT late) AS highest, array_agg(DISTINCT number ORDER BY number) AS numbers,
			coalesce(bool_or(class = '2xx' AND NOT late), false) AS taken
		FROM hooklatch.attempt WHERE outbox_id = f.forward OFFSET 0) x),
m AS MATERIALIZED (
	SELECT a.*, ARRAY(SELECT n FROM generate_series(a.since, a.ended) n WHERE n <> ALL (coalesce(a.numbers, '{}'))) AS missing FROM a),
r AS MATERIALIZED (
	SELECT f.*, x.id AS resource, x.applied FROM f LEFT JOIN LATERAL (
		SELECT id, applied FROM hooklatch.resource WHERE destination = f.destination AND lane = f.lane OFFSET 0) x ON true
	WHERE f.lane IS NOT NULL)
SELECT id, 'forward_missing', tenant, source, delivery_id, id, 0::int8, '', resource_type, resource_id,
	format('%s of %s forwards, to %s', coalesce(n, 0), forwards, coalesce(names, 'none'))
FROM d LEFT JOIN (SELECT id, count(*) AS n, string_agg(destination, ', ' ORDER BY destination) AS names FROM f GROUP BY id) x USING (id)
WHERE coalesce(n, 0) < forwards
UNION ALL
SELECT id, 'forward_missing', tenant, source, delivery_id, id, 0, name, resource_type, resource_id, format('%s has routed it there', actor)
FROM d CROSS JOIN LATERAL (
	SELECT actor, unnest(string_to_array(detail, ', ')) AS name FROM hooklatch.audit WHERE inbox_id = d.id AND action = 'route' OFFSET 0) x
WHERE (SELECT o.id FROM hooklatch.outbox o WHERE o.inbox_id = d.id AND o.destination = name) IS NULL
UNION ALL
SELECT id, 'body_missing', tenant, source, delivery_id, id, 0, '', resource_type, resource_id, 'received at ' || received_at FROM d
WHERE (SELECT inbox_id FROM hooklatch.payload WHERE inbox_id = d.id AND variant = 0) IS NULL
	AND (received_at >= $2 AND NOT pruned OR EXISTS (SELECT FROM hooklatch.outbox o WHERE o.inbox_id = d.id AND o.state IN ('pending', 'retry_wait', 'held')))
UNION ALL
SELECT id, kind, tenant, source, delivery_id, id, forward, destination, resource_type, resource_id, detail
FROM m CROSS JOIN t CROSS JOIN LATERAL (
	SELECT 'attempt_missing' AS kind, format('attempt %s of %s', array_to_string(missing, ', '), attempts) AS detail WHERE missing <> '{}'
	UNION ALL SELECT 'attempt_extra', format('attempt %s, and %s were counted', highest, attempts) WHERE highest > attempts
	UNION ALL SELECT 'accepted_unproven', format('accepted after %s attempts, none was answered 2xx', attempts)
		WHERE state = 'accepted' AND NOT taken AND missing = '{}' AND (received_at >= $3 AND NOT pruned OR numbers IS NOT NULL)
	UNION ALL SELECT 'accepted_lost', format('%s, and an attempt was answered 2xx', state) WHERE state <> 'accepted' AND taken
	UNION ALL SELECT 'hold_unexplained', 'held without a reason' WHERE state = 'held' AND hold_reason IS NULL
	UNION ALL SELECT 'lease_settled', format('%s, with a lease until %s', state, lease_until)
		WHERE lease_until IS NOT NULL AND state NOT IN ('pending', 'retry_wait')
	UNION ALL SELECT 'lease_abandoned', format('attempt %s began under a lease that ended at %s', attempts, lease_until)
		WHERE lease_until < t.now - $4::interval AND state IN ('pending', 'retry_wait')
			AND NOT EXISTS (SELECT FROM hooklatch.destination WHERE name = m.destination AND paused_at IS NOT NULL)) x
UNION ALL
SELECT id, 'lane_missing', tenant, source, delivery_id, id, forward, destination, resource_type, resource_id, format('%s at revision %s', state, revision)
FROM r WHERE resource IS NULL AND (waiting OR lease_until IS NOT NULL OR hold_reason = 'gap')
UNION ALL
SELECT id, 'applied_behind', tenant, source, delivery_id, id, forward, destination, resource_type, resource_id,
	format('revision %s was accepted, the lane says %s', revision, coalesce(applied::text, 'none'))
FROM r WHERE resource IS NOT NULL AND state = 'accepted' AND revision > coalesce(applied, -1)`

const auditHashSQL = `
SELECT i.id, 'body_altered', i.tenant, i.source, i.delivery_id, i.id, 0::int8, '', coalesce(i.resource_type, ''), coalesce(i.resource_id, ''),
	format('%s bytes with body hash %s, received were %s with %s', octet_length(p.body), encode(sha256(p.body), 'hex'), i.body_size, encode(i.body_hash, 'hex'))
FROM (SELECT * FROM hooklatch.inbox WHERE id = ANY ($1) OFFSET 0) i
CROSS JOIN LATERAL (SELECT body FROM hooklatch.payload WHERE inbox_id = i.id AND variant = 0 OFFSET 0) p
WHERE sha256(p.body) <> i.body_hash`

// auditLaneSQL compares lanes with the forwards in them, those of source $2 that were
// touched since $3. The front is the lowest revision that may still be sent.
const auditLaneSQL = `
WITH t AS MATERIALIZED (SELECT clock_timestamp() AS now),
r AS MATERIALIZED (SELECT * FROM hooklatch.resource WHERE id = ANY ($1) AND ($2 = '' OR source = $2) AND touched_at >= $3),
l AS MATERIALIZED (
	SELECT r.*, x.*, f.front, f.front_state, f.front_reason, f.front_revision,
		EXISTS (SELECT FROM hooklatch.gap WHERE resource = r.id AND closed_at IS NULL) AS gap
	FROM r CROSS JOIN t CROSS JOIN LATERAL (
		SELECT count(*) FILTER (WHERE state IN ('pending', 'retry_wait')) AS open,
			count(*) FILTER (WHERE state IN ('pending', 'retry_wait') AND NOT waiting) AS watched,
			count(*) FILTER (WHERE state = 'held' AND hold_reason = 'gap') AS held,
			array_agg(id ORDER BY id) FILTER (WHERE lease_until > t.now) AS leased
		FROM hooklatch.outbox o WHERE o.destination = r.destination AND o.lane = r.lane
			AND o.lane IS NOT NULL AND o.revision IS NOT NULL AND (o.state IN ('pending', 'retry_wait', 'held') OR o.state = 'blocked' AND o.ordering = 'strict') OFFSET 0) x
	LEFT JOIN LATERAL (
		SELECT id AS front, state AS front_state, hold_reason AS front_reason, revision AS front_revision
		FROM hooklatch.outbox o WHERE o.destination = r.destination AND o.lane = r.lane AND o.revision > coalesce(r.passed, -1)
			AND o.lane IS NOT NULL AND o.revision IS NOT NULL AND (o.state IN ('pending', 'retry_wait', 'held') OR o.state = 'blocked' AND o.ordering = 'strict')
		ORDER BY o.revision, o.id LIMIT 1) f ON true),
p AS MATERIALIZED (
	SELECT r.*, x.known, x.accepted, x.ended FROM r CROSS JOIN LATERAL (
		SELECT count(*) AS known, count(*) FILTER (WHERE o.state = 'accepted') AS accepted,
			count(*) FILTER (WHERE o.state = 'accepted' AND i.deleted = r.deleted) AS ended
		FROM (SELECT id, tenant, source, deleted FROM hooklatch.inbox
				WHERE resource_id = r.resource_id AND resource_type = r.resource_type AND revision = r.applied
			UNION ALL SELECT id, tenant, source, deleted FROM hooklatch.inbox
				WHERE resource_id = r.resource_id AND resource_type IS NULL AND r.resource_type = '' AND revision = r.applied) i
		CROSS JOIN LATERAL (SELECT state FROM hooklatch.outbox WHERE inbox_id = i.id AND destination = r.destination OFFSET 0) o
		WHERE i.tenant = r.tenant AND i.source = r.source) x
	WHERE r.applied IS NOT NULL)
SELECT id, kind, tenant, source, '', 0::int8, coalesce(forward, 0), destination, resource_type, resource_id, detail
FROM l CROSS JOIN LATERAL (
	SELECT 'passed_behind' AS kind, NULL::int8 AS forward, format('revision %s is applied, and only %s is passed', applied, coalesce(passed::text, 'none')) AS detail
		WHERE applied > coalesce(passed, -1)
	UNION ALL SELECT 'lane_leases', leased[1], format('forwards %s are leased, the lane knows of %s', array_to_string(leased, ', '), coalesce(in_flight::text, 'none'))
		WHERE leased <> ARRAY[coalesce(in_flight, 0)]
	UNION ALL SELECT 'lane_stuck', front, format('%s waiting, and none of them is due; in front is revision %s', counted, coalesce(front_revision::text, 'none'))
		FROM (SELECT open || CASE open WHEN 1 THEN ' forward' ELSE ' forwards' END AS counted) c
		WHERE open > 0 AND watched = 0 AND coalesce(front_state NOT IN ('held', 'blocked'), true)
	UNION ALL SELECT 'gap_without_held', NULL, 'a gap is open' WHERE gap AND held = 0
	UNION ALL SELECT 'gap_missing', front, format('revision %s waits for a gap', front_revision) WHERE NOT gap AND front_state = 'held' AND front_reason = 'gap') x
UNION ALL
SELECT id, 'applied_unproven', tenant, source, '', 0, 0, destination, resource_type, resource_id,
	CASE WHEN accepted = 0 THEN format('revision %s is applied, and no forward of it was accepted', applied)
		ELSE format('revision %s is applied as deleted=%s, and its delivery says otherwise', applied, deleted) END
FROM p WHERE known > 0 AND ended = 0`

const auditConflictSQL = `
WITH c AS MATERIALIZED (SELECT id, tenant, source, delivery_id, body_hash FROM hooklatch.conflict
	WHERE id = ANY ($1) AND ($3 = '' OR source = $3) AND last_seen_at >= $4),
x AS MATERIALIZED (
	SELECT c.*, i.id AS first, i.body_hash AS first_hash, n.n, n.lowest FROM c
	LEFT JOIN LATERAL (
		SELECT id, body_hash FROM hooklatch.inbox i
		WHERE i.delivery_id = c.delivery_id AND i.source || '' = c.source AND i.tenant || '' = c.tenant OFFSET 0) i ON true
	CROSS JOIN LATERAL (
		SELECT count(*) AS n, min(id) AS lowest FROM hooklatch.conflict k
		WHERE k.delivery_id = c.delivery_id AND k.source || '' = c.source AND k.tenant || '' = c.tenant OFFSET 0) n)
SELECT id, kind, tenant, source, delivery_id, coalesce(first, 0), 0::int8, '', '', '', detail
FROM x CROSS JOIN LATERAL (
	SELECT 'conflict_cap' AS kind, format('%s bodies, at most %s are kept', n, $2::int4) AS detail WHERE n > $2::int4 AND id = lowest
	UNION ALL SELECT 'conflict_same_body', 'body hash ' || encode(body_hash, 'hex') WHERE body_hash = first_hash
	UNION ALL SELECT 'conflict_orphan', 'body hash ' || encode(body_hash, 'hex') WHERE first IS NULL) y`

const auditForwardSQL = `
SELECT o.id, 'forward_orphan', o.tenant, '', '', o.inbox_id, o.id, o.destination, '', '', format('%s, of delivery %s', o.state, o.inbox_id)
FROM (SELECT * FROM hooklatch.outbox WHERE id = ANY ($1) OFFSET 0) o
WHERE (SELECT id FROM hooklatch.inbox WHERE id = o.inbox_id) IS NULL`

const auditBodySQL = `
SELECT k, 'body_orphan', '', '', '', k, 0::int8, '', '', '', format('body of delivery %s', k) FROM unnest($1::int8[]) k
WHERE (SELECT id FROM hooklatch.inbox WHERE id = k) IS NULL
	AND (SELECT inbox_id FROM hooklatch.payload WHERE inbox_id = k LIMIT 1) IS NOT NULL`

const auditAttemptSQL = `
SELECT k, 'attempt_orphan', '', '', '', 0::int8, k, '', '', '', format('%s attempts of forward %s', n, k)
FROM unnest($1::int8[]) k CROSS JOIN LATERAL (SELECT count(*) AS n FROM hooklatch.attempt WHERE outbox_id = k OFFSET 0) a
WHERE n > 0 AND (SELECT id FROM hooklatch.outbox WHERE id = k) IS NULL`
