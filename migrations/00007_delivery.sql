-- Delivery to the app: budgets of replays, owners of dead letters, and what becomes of
-- a destination.

-- +goose Up
SET LOCAL ROLE hooklatch_owner;

ALTER TABLE hooklatch.outbox
    ADD COLUMN attempts_max integer,    -- of a replay: no attempt has a higher number. NULL: the destination's budget decides
    ADD COLUMN replayed_by  text,       -- who decided about the attempts to come. NULL: nobody had to
    ADD COLUMN owner        text;       -- of the dead letter. NULL: the destination's
ALTER TABLE hooklatch.attempt ADD COLUMN replayed_by text;

ALTER TABLE hooklatch.destination
    ADD COLUMN owner          text,     -- of its dead letters
    ADD COLUMN breaker        text COLLATE "C" NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'half_open', 'open')),
    ADD COLUMN breaker_at     timestamptz,  -- of its last change, in whatever process
    ADD COLUMN breaker_until  timestamptz,  -- of an open one: the next probe
    ADD COLUMN breaker_worker text,
    ADD COLUMN breaker_error  text,
    ADD COLUMN probe_asked_at timestamptz,  -- a person wants it to be tried now
    ADD COLUMN removed_at     timestamptz;

-- What is due of one tenant, new or tried before, must not hide that of another. What
-- time decides about comes last.
DROP INDEX hooklatch.outbox_due;
CREATE INDEX outbox_due ON hooklatch.outbox (destination, tenant, state, next_attempt_at, id)
    WHERE lane IS NULL AND state IN ('pending', 'retry_wait');
DROP INDEX hooklatch.outbox_lane_due;
CREATE INDEX outbox_lane_due ON hooklatch.outbox (destination, tenant, state, next_attempt_at, id)
    WHERE lane IS NOT NULL AND NOT waiting AND (state IN ('pending', 'retry_wait') OR state = 'held' AND hold_reason = 'gap');

-- What has happened to a destination, by itself or by a person.
CREATE TABLE hooklatch.destination_event (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    destination     text COLLATE "C" NOT NULL,
    event           text COLLATE "C" NOT NULL CHECK (event IN ('configured', 'paused', 'resumed', 'opened', 'closed', 'probe', 'removed')),
    actor           text,               -- NULL: nobody, it came by itself
    reason          text,
    worker          text,
    config_revision bigint,
    detail          text
);
CREATE INDEX destination_event_at ON hooklatch.destination_event (destination, at, id);

-- A destination that comes and goes must not fill the disk: of what breakers did the
-- last thousand lines stay. What people did is not touched.
-- +goose StatementBegin
CREATE FUNCTION hooklatch.trim_breaker_events(of_destination text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM hooklatch.destination_event WHERE id IN (
        SELECT id FROM hooklatch.destination_event WHERE destination = of_destination AND event IN ('opened', 'closed')
        ORDER BY at DESC, id DESC OFFSET 1000 LIMIT 100)
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION hooklatch.trim_breaker_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hooklatch.trim_breaker_events TO hooklatch_consumer;

GRANT SELECT, INSERT ON hooklatch.destination_event TO hooklatch_consumer, hooklatch_admin;
GRANT SELECT ON hooklatch.destination_event TO hooklatch_read;
GRANT UPDATE (owner, breaker, breaker_at, breaker_until, breaker_worker, breaker_error, probe_asked_at, removed_at)
    ON hooklatch.destination TO hooklatch_consumer;
GRANT INSERT ON hooklatch.destination TO hooklatch_admin;
GRANT UPDATE (paused_at, paused_by, pause_reason, owner, probe_asked_at, removed_at) ON hooklatch.destination TO hooklatch_admin;
GRANT UPDATE (attempts_max, replayed_by, owner) ON hooklatch.outbox TO hooklatch_admin;
GRANT UPDATE (attempts_max, replayed_by) ON hooklatch.outbox TO hooklatch_consumer;

COMMENT ON TABLE hooklatch.schema_version IS 'serves 7';

-- +goose Down
SET LOCAL ROLE hooklatch_owner;
COMMENT ON TABLE hooklatch.schema_version IS 'serves 6';
DROP FUNCTION hooklatch.trim_breaker_events;
DROP INDEX hooklatch.outbox_lane_due;
CREATE INDEX outbox_lane_due ON hooklatch.outbox (destination, next_attempt_at, id)
    WHERE lane IS NOT NULL AND NOT waiting AND (state IN ('pending', 'retry_wait') OR state = 'held' AND hold_reason = 'gap');
DROP INDEX hooklatch.outbox_due;
CREATE INDEX outbox_due ON hooklatch.outbox (destination, next_attempt_at, id)
    WHERE state IN ('pending', 'retry_wait') AND lane IS NULL;
DROP TABLE hooklatch.destination_event;
REVOKE INSERT ON hooklatch.destination FROM hooklatch_admin;
REVOKE UPDATE (paused_at, paused_by, pause_reason) ON hooklatch.destination FROM hooklatch_admin;
ALTER TABLE hooklatch.destination
    DROP COLUMN removed_at, DROP COLUMN probe_asked_at, DROP COLUMN breaker_error, DROP COLUMN breaker_worker,
    DROP COLUMN breaker_until, DROP COLUMN breaker_at, DROP COLUMN breaker, DROP COLUMN owner;
ALTER TABLE hooklatch.attempt DROP COLUMN replayed_by;
ALTER TABLE hooklatch.outbox DROP COLUMN owner, DROP COLUMN replayed_by, DROP COLUMN attempts_max;
