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
GRANT SELECT (id, source, minute, tenant, reason, key_id, cause, count, first_at, last_at), UPDATE (count, first_at, last_at) ON hooklatch.refusal TO hooklatch_ingest;
GRANT SELECT, UPDATE (accepted, retiring, last_used) ON hooklatch.key_use TO hooklatch_ingest;
GRANT SELECT (id, hash) ON hooklatch.config_revision TO hooklatch_ingest;

-- Forwarding: reads what it hands over, moves forwards and their lanes, adds to the ledger.
GRANT SELECT ON hooklatch.inbox, hooklatch.payload, hooklatch.outbox, hooklatch.attempt, hooklatch.resource, hooklatch.gap,
    hooklatch.revision_conflict, hooklatch.destination, hooklatch.config_revision TO hooklatch_consumer;
GRANT INSERT ON hooklatch.attempt, hooklatch.resource, hooklatch.gap, hooklatch.revision_conflict, hooklatch.destination,
    hooklatch.config_revision TO hooklatch_consumer;
GRANT UPDATE (state, next_attempt_at, attempts, attempts_free, lease_token, lease_until, blocked_reason, settled_at, waiting, hold_reason)
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
GRANT UPDATE (passed, in_flight, touched_at) ON hooklatch.resource TO hooklatch_admin;
GRANT UPDATE (first_missing, last_missing, closed_at, closed_by) ON hooklatch.gap TO hooklatch_admin;
GRANT UPDATE (paused_at, paused_by, pause_reason) ON hooklatch.destination TO hooklatch_admin;

-- Retention.
GRANT UPDATE, DELETE ON hooklatch.inbox, hooklatch.payload, hooklatch.outbox, hooklatch.attempt, hooklatch.conflict, hooklatch.resource,
    hooklatch.revision_conflict, hooklatch.refusal, hooklatch.key_use TO hooklatch_admin;

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
