-- Roles: each transaction has the rights of its purpose and sees the tenants that it
-- names, no more.

-- +goose Up
-- The roles belong to the whole cluster: another database may have made them, and may
-- be making them now. Whoever migrates becomes a member where that is not forbidden,
-- so that one login is enough to begin with.
-- +goose StatementBegin
DO $$
DECLARE
    needed name;
    member text := CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END;
BEGIN
    PERFORM set_config('lock_timeout', '0', true);  -- another migrator's commit may be waited for
    FOREACH needed IN ARRAY ARRAY['hooklatch_owner', 'hooklatch_ingest', 'hooklatch_consumer', 'hooklatch_admin', 'hooklatch_read', 'hooklatch_tls'] LOOP
        BEGIN
            IF to_regrole(needed) IS NULL THEN
                EXECUTE format('CREATE ROLE %I', needed);
            END IF;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL;   -- made at this moment
            WHEN insufficient_privilege THEN
                RAISE insufficient_privilege USING
                    MESSAGE = format('%I may not create roles: a superuser must run once for this cluster: ', current_user)
                        || 'CREATE ROLE hooklatch_owner; CREATE ROLE hooklatch_ingest; CREATE ROLE hooklatch_consumer; '
                        || 'CREATE ROLE hooklatch_admin; CREATE ROLE hooklatch_read; CREATE ROLE hooklatch_tls; '
                        || format('GRANT hooklatch_owner, hooklatch_ingest, hooklatch_consumer, hooklatch_admin, hooklatch_read TO %I', current_user);
        END;
        CONTINUE WHEN needed = 'hooklatch_tls' OR pg_has_role(current_user, needed, member);
        FOR try IN 1..20 LOOP
            BEGIN
                EXECUTE format('GRANT %I TO %I', needed, current_user);
                EXIT;
            EXCEPTION
                WHEN unique_violation THEN
                    EXIT;
                WHEN internal_error THEN    -- tuple concurrently updated
                    PERFORM pg_sleep(0.05);
                WHEN insufficient_privilege OR invalid_grant_operation THEN
                    EXIT WHEN needed <> 'hooklatch_owner';  -- a login of its own runs the program
                    RAISE insufficient_privilege USING
                        MESSAGE = format('%I is no member of hooklatch_owner: a superuser must run: GRANT hooklatch_owner TO %I', current_user, current_user);
            END;
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Names may be looked up by all: a driver prepares statements before the transaction
-- names its role. What they stand for has rights of its own.
GRANT USAGE ON SCHEMA hooklatch TO PUBLIC;
ALTER SCHEMA hooklatch OWNER TO hooklatch_owner;
-- +goose StatementBegin
DO $$
DECLARE
    made name;
BEGIN
    FOR made IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'hooklatch'::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE hooklatch.%I OWNER TO hooklatch_owner', made);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- The rest, and each later migration from its first line on, is done by the owner, who
-- need not be inherited.
SET LOCAL ROLE hooklatch_owner;
GRANT SELECT ON hooklatch.schema_version TO PUBLIC;

-- The second wall. A transaction names its tenants; one that names none sees and writes
-- nothing. '{*}' is every tenant, also those that are no longer configured, and is for
-- people's commands and for retention. Receiving and forwarding cannot ask for it.
-- The sub-selects are evaluated once for each statement. One that is a truth value as a
-- whole counts for the planner as half of the rows: any other form looks as if hardly a
-- row were left, and a LIMIT then sorts the table.
-- +goose StatementBegin
DO $$
DECLARE
    tenants_table name;
BEGIN
    FOREACH tenants_table IN ARRAY ARRAY['inbox', 'payload', 'conflict', 'outbox', 'attempt', 'resource', 'gap', 'revision_conflict',
        'audit', 'refusal', 'key_use'] LOOP
        EXECUTE format('ALTER TABLE hooklatch.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', tenants_table);
        EXECUTE format($policy$CREATE POLICY tenants ON hooklatch.%I
            USING (tenant = ANY ((SELECT nullif(current_setting('hooklatch.tenants', true), ''))::text[]))
            WITH CHECK (tenant = ANY ((SELECT nullif(current_setting('hooklatch.tenants', true), ''))::text[]))$policy$, tenants_table);
        EXECUTE format($policy$CREATE POLICY every_tenant ON hooklatch.%I TO hooklatch_admin, hooklatch_read, hooklatch_owner
            USING ((SELECT current_setting('hooklatch.tenants', true) = '{*}'))
            WITH CHECK ((SELECT current_setting('hooklatch.tenants', true) = '{*}'))$policy$, tenants_table);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Receiving: puts in, and reads no more than what tells a duplicate. Counts are added to.
GRANT INSERT ON hooklatch.inbox, hooklatch.payload, hooklatch.outbox, hooklatch.conflict, hooklatch.refusal, hooklatch.key_use,
    hooklatch.config_revision TO hooklatch_ingest;
GRANT SELECT (id, tenant, source, delivery_id, body_hash, compare_hash, received_at) ON hooklatch.inbox TO hooklatch_ingest;
GRANT SELECT (id, inbox_id, destination) ON hooklatch.outbox TO hooklatch_ingest;
GRANT SELECT (id, tenant, source, delivery_id, body_hash, first_seen_at, seen, last_seen_at), UPDATE (seen, last_seen_at) ON hooklatch.conflict TO hooklatch_ingest;
GRANT SELECT (source, minute, tenant, reason, key_id, cause, count, first_at, last_at), UPDATE (count, first_at, last_at) ON hooklatch.refusal TO hooklatch_ingest;
GRANT SELECT, UPDATE (accepted, retiring, last_used) ON hooklatch.key_use TO hooklatch_ingest;
GRANT SELECT (id, hash) ON hooklatch.config_revision TO hooklatch_ingest;

-- Forwarding: reads what it hands over, moves forwards and their lanes, adds to the ledger.
GRANT SELECT ON hooklatch.inbox, hooklatch.payload, hooklatch.outbox, hooklatch.attempt, hooklatch.resource, hooklatch.gap,
    hooklatch.revision_conflict, hooklatch.destination, hooklatch.config_revision TO hooklatch_consumer;
GRANT INSERT ON hooklatch.attempt, hooklatch.resource, hooklatch.gap, hooklatch.revision_conflict, hooklatch.destination,
    hooklatch.config_revision TO hooklatch_consumer;
GRANT UPDATE (state, next_attempt_at, expires_at, attempts, attempts_free, lease_token, lease_until, blocked_reason, settled_at, waiting, hold_reason)
    ON hooklatch.outbox TO hooklatch_consumer;
GRANT UPDATE (applied, applied_at, deleted, passed, in_flight, touched_at) ON hooklatch.resource TO hooklatch_consumer;
GRANT UPDATE (first_missing, last_missing, closed_at, closed_by) ON hooklatch.gap TO hooklatch_consumer;
GRANT UPDATE (url, config_revision) ON hooklatch.destination TO hooklatch_consumer;

-- People's acts: move forwards and lanes, add forwards, and leave a line in audit.
GRANT SELECT ON hooklatch.inbox, hooklatch.payload, hooklatch.conflict, hooklatch.outbox, hooklatch.attempt, hooklatch.resource,
    hooklatch.gap, hooklatch.revision_conflict, hooklatch.audit, hooklatch.refusal, hooklatch.key_use, hooklatch.destination,
    hooklatch.config_revision TO hooklatch_admin;
GRANT INSERT ON hooklatch.outbox, hooklatch.attempt, hooklatch.resource, hooklatch.gap, hooklatch.audit TO hooklatch_admin;
GRANT UPDATE (state, next_attempt_at, expires_at, attempts_free, lease_token, lease_until, blocked_reason, settled_at, waiting, hold_reason,
        ordering, lane, revision, gap_timeout)
    ON hooklatch.outbox TO hooklatch_admin;
GRANT UPDATE (passed, touched_at) ON hooklatch.resource TO hooklatch_admin;
GRANT UPDATE (first_missing, last_missing, closed_at, closed_by) ON hooklatch.gap TO hooklatch_admin;

-- Retention: no running role may delete. This function may, by age, one batch at a time:
-- it looks at the next rows of a kind, behind the place where the last batch has ended,
-- removes those that nothing needs any more, and says how far it came. Rows that
-- another transaction holds are left for the next time. With dry it only counts. It
-- goes along the indexes, whatever the statistics say: behind row-level security the
-- planner cannot tell how many rows are left.
-- +goose StatementBegin
CREATE FUNCTION hooklatch.prune(kind text, of_source text, before timestamptz, before_id bigint, most integer, dry boolean,
    after_at timestamptz, after_id bigint, after_number integer, after_late boolean,
    OUT looked integer, OUT gone integer, OUT last_at timestamptz, OUT last_id bigint, OUT last_number integer, OUT last_late boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    held CONSTANT text := CASE WHEN dry THEN '' ELSE ' FOR UPDATE SKIP LOCKED' END;
    -- Of the old rows that were looked at: their keys, and their places in the table,
    -- which stay theirs while they are locked.
    ids bigint[] := '{}';
    places tid[] := '{}';
    one record;
BEGIN
    looked := 0; gone := 0;
    last_at := after_at; last_id := after_id; last_number := after_number; last_late := after_late;
    FOR one IN EXECUTE CASE kind
        WHEN 'bodies' THEN CASE WHEN of_source = '' THEN
            -- Not along the deliveries, most of which have none any more. Ids grow with
            -- the time of receipt.
            $look$ SELECT NULL::tid AS place, i.id, i.received_at AS at, 0 AS number, false AS late
            FROM (SELECT inbox_id FROM hooklatch.payload WHERE inbox_id > $5 ORDER BY inbox_id LIMIT $3) p
            CROSS JOIN LATERAL (SELECT id, received_at FROM hooklatch.inbox WHERE id = p.inbox_id OFFSET 0) i ORDER BY i.id $look$
        ELSE
            $look$ SELECT NULL::tid AS place, id, received_at AS at, 0 AS number, false AS late FROM hooklatch.inbox
            WHERE source = $1 AND (received_at, id) > ($4, $5) AND received_at < $2 ORDER BY received_at, id LIMIT $3 $look$
        END
        WHEN 'identities' THEN
            $look$ SELECT NULL::tid AS place, id, received_at AS at, 0 AS number, false AS late FROM hooklatch.inbox
            WHERE ($1 = '' OR source = $1) AND (received_at, id) > ($4, $5) AND received_at < $2 ORDER BY received_at, id LIMIT $3 $look$
        WHEN 'attempts' THEN
            $look$ SELECT ctid AS place, outbox_id AS id, ended_at AS at, number, late FROM hooklatch.attempt
            WHERE ended_at >= $4 AND (ended_at, outbox_id, number, late) > ($4, $5, $6, $7) AND ended_at < $2
            ORDER BY ended_at, outbox_id, number, late LIMIT $3 $look$ || held
        WHEN 'conflicts' THEN
            $look$ SELECT ctid AS place, id, first_seen_at AS at, 0 AS number, false AS late FROM hooklatch.conflict
            WHERE body IS NOT NULL AND first_seen_at >= $4 AND (first_seen_at, id) > ($4, $5) AND first_seen_at < $2
                AND ($1 = '' OR source = $1)
            ORDER BY first_seen_at, id LIMIT $3 $look$ || held
        WHEN 'resources' THEN
            $look$ SELECT ctid AS place, id, touched_at AS at, 0 AS number, false AS late FROM hooklatch.resource
            WHERE touched_at >= $4 AND (touched_at, id) > ($4, $5) AND touched_at < $2 AND ($1 = '' OR source = $1)
            ORDER BY touched_at, id LIMIT $3 $look$ || held
        WHEN 'refusals' THEN
            $look$ SELECT ctid AS place, id, minute AS at, 0 AS number, false AS late FROM hooklatch.refusal
            WHERE (minute, id) > ($4, $5) AND (minute, id) <= ($2, $8) AND ($1 = '' OR source = $1) ORDER BY minute, id LIMIT $3 $look$ || held
        WHEN 'key_uses' THEN    -- the last use of a key stays, however old
            $look$ SELECT ctid AS place, 0::bigint AS id, hour AS at, 0 AS number, false AS late FROM hooklatch.key_use u
            WHERE hour < $2 AND ($1 = '' OR source = $1) AND EXISTS (SELECT FROM hooklatch.key_use l
                WHERE l.source = u.source AND l.tenant = u.tenant AND l.key_id = u.key_id AND l.scheme = u.scheme AND l.hour > u.hour)
            ORDER BY hour LIMIT $3 $look$ || held
        END USING of_source, before, most, after_at, after_id, after_number, after_late, before_id
    LOOP
        looked := looked + 1;
        last_at := one.at; last_id := one.id; last_number := one.number; last_late := one.late;
        IF one.at < before OR kind = 'refusals' THEN
            ids := ids || one.id; places := places || one.place;
        END IF;
    END LOOP;

    -- A delivery is locked against a new forward, whose foreign key needs the row. What
    -- was made before that is seen by the statements that follow.
    IF kind IN ('bodies', 'identities') AND NOT dry THEN
        SELECT coalesce(array_agg(i.id), '{}') INTO ids FROM (
            SELECT id FROM hooklatch.inbox WHERE id = ANY (ids) ORDER BY id FOR UPDATE SKIP LOCKED) i;
    END IF;
    -- Sub-selects end in OFFSET 0: they must not become joins, which walk whole tables.
    IF kind IN ('bodies', 'identities') THEN
        SELECT coalesce(array_agg(u.id), '{}') INTO ids FROM unnest(ids) AS u(id) WHERE NOT EXISTS (
            SELECT FROM hooklatch.outbox o WHERE o.inbox_id = u.id AND o.state IN ('pending', 'retry_wait', 'held', 'blocked') OFFSET 0);
    ELSIF kind = 'attempts' THEN
        SELECT coalesce(array_agg(u.place), '{}') INTO places FROM unnest(places, ids) AS u(place, id)
        WHERE NOT EXISTS (SELECT FROM hooklatch.outbox o WHERE o.id = u.id AND o.state IN ('pending', 'retry_wait', 'held', 'blocked') OFFSET 0)
            AND (of_source = '' OR of_source = (SELECT i.source FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id
                WHERE o.id = u.id OFFSET 0));
    ELSIF kind = 'resources' THEN   -- a tombstone decides about every delivery of its resource that is known
        SELECT coalesce(array_agg(r.place), '{}') INTO places FROM (SELECT ctid AS place, * FROM hooklatch.resource WHERE ctid = ANY (places) OFFSET 0) r
        WHERE NOT EXISTS (SELECT FROM hooklatch.inbox i WHERE i.resource_id = r.resource_id
            AND coalesce(i.resource_type, '') = r.resource_type AND i.source || '' = r.source AND i.tenant || '' = r.tenant OFFSET 0);
    END IF;

    gone := CASE kind WHEN 'bodies' THEN (SELECT count(*) FROM hooklatch.payload WHERE inbox_id = ANY (ids))
        WHEN 'identities' THEN cardinality(ids) ELSE cardinality(places) END;
    IF dry THEN
        RETURN;
    END IF;
    CASE kind
    WHEN 'bodies' THEN
        DELETE FROM hooklatch.payload WHERE inbox_id = ANY (ids);
    WHEN 'identities' THEN
        DELETE FROM hooklatch.attempt WHERE outbox_id = ANY (ARRAY(SELECT id FROM hooklatch.outbox WHERE inbox_id = ANY (ids)));
        DELETE FROM hooklatch.outbox WHERE inbox_id = ANY (ids);
        DELETE FROM hooklatch.payload WHERE inbox_id = ANY (ids);
        DELETE FROM hooklatch.revision_conflict WHERE inbox_id = ANY (ids);
        DELETE FROM hooklatch.conflict WHERE id = ANY (ARRAY(
            SELECT c.id FROM hooklatch.inbox i CROSS JOIN LATERAL (SELECT id FROM hooklatch.conflict c
                WHERE c.delivery_id = i.delivery_id AND c.source || '' = i.source AND c.tenant || '' = i.tenant OFFSET 0) c
            WHERE i.id = ANY (ids)));
        DELETE FROM hooklatch.inbox WHERE id = ANY (ids);
    WHEN 'attempts' THEN
        DELETE FROM hooklatch.attempt WHERE ctid = ANY (places);
    WHEN 'conflicts' THEN   -- only the bytes, unless the delivery went while they came in
        DELETE FROM hooklatch.conflict c WHERE ctid = ANY (places) AND NOT EXISTS (SELECT FROM hooklatch.inbox i
            WHERE i.delivery_id = c.delivery_id AND i.source || '' = c.source AND i.tenant || '' = c.tenant OFFSET 0);
        UPDATE hooklatch.conflict SET body = NULL, headers = '' WHERE ctid = ANY (places);
    WHEN 'resources' THEN
        DELETE FROM hooklatch.resource WHERE ctid = ANY (places);
    WHEN 'refusals' THEN
        DELETE FROM hooklatch.refusal WHERE ctid = ANY (places);
    WHEN 'key_uses' THEN
        DELETE FROM hooklatch.key_use WHERE ctid = ANY (places);
    END CASE;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION hooklatch.prune FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hooklatch.prune TO hooklatch_admin;

-- Looking: everything but what senders wrote.
GRANT SELECT ON hooklatch.inbox, hooklatch.outbox, hooklatch.attempt, hooklatch.resource, hooklatch.gap, hooklatch.revision_conflict,
    hooklatch.audit, hooklatch.refusal, hooklatch.key_use, hooklatch.destination, hooklatch.config_revision TO hooklatch_read;
GRANT SELECT (inbox_id, variant, tenant, method) ON hooklatch.payload TO hooklatch_read;
GRANT SELECT (id, tenant, source, delivery_id, body_hash, key_id, request_id, seen, first_seen_at, last_seen_at) ON hooklatch.conflict TO hooklatch_read;

-- Older binaries name no tenants and would see nothing; none of them was released.
COMMENT ON TABLE hooklatch.schema_version IS 'serves 6';

-- +goose Down
-- Roles stay: other databases of the cluster may use them.
COMMENT ON TABLE hooklatch.schema_version IS 'serves 4';
DROP FUNCTION hooklatch.prune;
-- +goose StatementBegin
DO $$
DECLARE
    of_schema name;
BEGIN
    FOR of_schema IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'hooklatch'::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('DROP POLICY IF EXISTS tenants ON hooklatch.%I', of_schema);
        EXECUTE format('DROP POLICY IF EXISTS every_tenant ON hooklatch.%I', of_schema);
        EXECUTE format('ALTER TABLE hooklatch.%I NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY', of_schema);
        EXECUTE format('REVOKE ALL ON hooklatch.%I FROM PUBLIC, hooklatch_ingest, hooklatch_consumer, hooklatch_admin, hooklatch_read', of_schema);
        EXECUTE format('ALTER TABLE hooklatch.%I OWNER TO %I', of_schema, current_user);
    END LOOP;
    REVOKE USAGE ON SCHEMA hooklatch FROM PUBLIC;
    EXECUTE format('ALTER SCHEMA hooklatch OWNER TO %I', current_user);
END
$$;
-- +goose StatementEnd
