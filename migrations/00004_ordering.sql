-- Ordering by revision: the lane of each resource, what is missing in it, and what
-- people did about it.

-- +goose Up
-- A lane is what is ordered: the forwards of one resource to one destination.
ALTER TABLE hooklatch.outbox
    ADD COLUMN ordering    text COLLATE "C" CHECK (ordering IN ('latest', 'coalesce', 'strict')), -- NULL: none
    ADD COLUMN lane        bytea CHECK (octet_length(lane) = 32),   -- hash of tenant, source and resource
    ADD COLUMN revision    bigint CHECK (revision >= 0),
    ADD COLUMN gap_timeout interval,                                -- NULL: a gap waits for a person
    ADD COLUMN waiting     boolean NOT NULL DEFAULT false,          -- behind another forward of its lane
    ADD COLUMN hold_reason text COLLATE "C" CHECK (hold_reason IN ('gap', 'backfill', 'unverified', 'person')),
    ADD CONSTRAINT outbox_ordered CHECK ((lane IS NULL) = (ordering IS NULL) AND (lane IS NULL) = (revision IS NULL));

DROP INDEX hooklatch.outbox_due;
CREATE INDEX outbox_due ON hooklatch.outbox (destination, next_attempt_at, id)
    WHERE state IN ('pending', 'retry_wait') AND lane IS NULL;
-- The heads of lanes, and what has not been put into its place yet. A held one is due
-- when its gap has lasted long enough.
CREATE INDEX outbox_lane_due ON hooklatch.outbox (destination, next_attempt_at, id)
    WHERE lane IS NOT NULL AND NOT waiting AND (state IN ('pending', 'retry_wait') OR state = 'held' AND hold_reason = 'gap');
-- What stands in a lane, in order. A dead letter holds only a strict one. The revision
-- is never NULL here; said again, it keeps this index from serving a search for what is
-- due, which would read all that waits.
CREATE INDEX outbox_lane ON hooklatch.outbox (destination, lane, revision, id)
    WHERE lane IS NOT NULL AND revision IS NOT NULL AND (state IN ('pending', 'retry_wait', 'held') OR state = 'blocked' AND ordering = 'strict');

-- One row for each lane, made by the first claim or act that meets it. Whoever changes the
-- forwards of a lane locks this row first.
CREATE TABLE hooklatch.resource (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    destination   text COLLATE "C" NOT NULL,
    source        text COLLATE "C" NOT NULL,
    resource_type text COLLATE "C" NOT NULL,
    resource_id   text COLLATE "C" NOT NULL,
    lane          bytea NOT NULL CHECK (octet_length(lane) = 32),
    applied       bigint,                           -- highest revision that the destination has accepted
    applied_at    timestamptz,
    deleted       boolean NOT NULL DEFAULT false,   -- a tombstone: the applied revision was the end of the resource
    passed        bigint,                           -- up to here nothing is sent any more: applied, or given up
    in_flight     bigint,                           -- the forward that was leased last
    touched_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT resource_lane UNIQUE (destination, lane),
    CHECK (applied <= passed)
) WITH (fillfactor = 80);
CREATE INDEX resource_name    ON hooklatch.resource (resource_id, resource_type);
CREATE INDEX resource_touched ON hooklatch.resource (touched_at);

-- A jump in the revisions of a strict lane. At most one of a lane is open: the one
-- that its head waits for.
CREATE TABLE hooklatch.gap (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    resource      bigint NOT NULL REFERENCES hooklatch.resource (id) ON DELETE CASCADE,
    first_missing bigint NOT NULL,
    last_missing  bigint NOT NULL CHECK (last_missing >= first_missing),
    opened_at     timestamptz NOT NULL,             -- receipt of what revealed it
    closed_at     timestamptz,
    closed_by     text COLLATE "C" CHECK (closed_by IN ('arrival', 'backfill', 'release', 'timeout')),
    CHECK ((closed_at IS NULL) = (closed_by IS NULL))
);
CREATE UNIQUE INDEX gap_open ON hooklatch.gap (resource) WHERE closed_at IS NULL;
CREATE INDEX gap_waits    ON hooklatch.gap (opened_at, id) WHERE closed_at IS NULL;
CREATE INDEX gap_opened   ON hooklatch.gap (opened_at, id);
CREATE INDEX gap_resource ON hooklatch.gap (resource, id);

-- Two deliveries with one revision of one resource and different bodies: the first stays.
CREATE TABLE hooklatch.revision_conflict (
    inbox_id   bigint PRIMARY KEY,                  -- the later one
    tenant     text COLLATE "C" NOT NULL,
    first_id   bigint NOT NULL,                     -- in the inbox too
    revision   bigint NOT NULL,
    noticed_at timestamptz NOT NULL
);
CREATE INDEX revision_conflict_first ON hooklatch.revision_conflict (first_id);

-- What people did. Append-only.
CREATE TABLE hooklatch.audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant      text COLLATE "C" NOT NULL,
    actor       text NOT NULL,
    action      text COLLATE "C" NOT NULL,          -- release, replay, cancel, route, prune …
    reason      text NOT NULL,
    inbox_id    bigint,
    outbox_id   bigint,
    resource    bigint,
    detail      text
);
CREATE INDEX audit_at       ON hooklatch.audit (at, id);
CREATE INDEX audit_inbox    ON hooklatch.audit (inbox_id) WHERE inbox_id IS NOT NULL;
CREATE INDEX audit_resource ON hooklatch.audit (resource) WHERE resource IS NOT NULL;

-- Older binaries would claim the forwards of a lane in any order.
COMMENT ON TABLE hooklatch.schema_version IS 'serves 4';

-- +goose Down
COMMENT ON TABLE hooklatch.schema_version IS 'serves 2';
DROP TABLE hooklatch.audit;
DROP TABLE hooklatch.revision_conflict;
DROP TABLE hooklatch.gap;
DROP TABLE hooklatch.resource;
DROP INDEX hooklatch.outbox_lane;
DROP INDEX hooklatch.outbox_lane_due;
DROP INDEX hooklatch.outbox_due;
ALTER TABLE hooklatch.outbox
    DROP CONSTRAINT outbox_ordered,
    DROP COLUMN hold_reason, DROP COLUMN waiting, DROP COLUMN gap_timeout,
    DROP COLUMN revision, DROP COLUMN lane, DROP COLUMN ordering;
CREATE INDEX outbox_due ON hooklatch.outbox (destination, next_attempt_at, id)
    WHERE state IN ('pending', 'retry_wait');
