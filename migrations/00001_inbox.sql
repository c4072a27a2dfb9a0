-- Deliveries: their identity, their bytes, and the evidence of conflicts.

-- +goose Up
CREATE TABLE hooklatch.config_revision (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash        bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    redacted    text NOT NULL,      -- the configuration with every secret masked
    first_at    timestamptz NOT NULL DEFAULT now()
);

-- One row for each delivery. Never partitioned by time: the unique key must span all of it.
CREATE TABLE hooklatch.inbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant          text COLLATE "C" NOT NULL,
    source          text COLLATE "C" NOT NULL,
    delivery_id     text COLLATE "C" NOT NULL,
    body_hash       bytea NOT NULL CHECK (octet_length(body_hash) = 32),
    body_size       integer NOT NULL,
    received_at     timestamptz NOT NULL DEFAULT now(),
    request_id      uuid,
    peer            text,
    scheme          text,
    key_id          text,
    event_id        text COLLATE "C",
    event_type      text COLLATE "C",
    resource_type   text COLLATE "C",
    resource_id     text COLLATE "C",
    revision        bigint CHECK (revision >= 0),
    deleted         boolean NOT NULL DEFAULT false,
    meta_error      text,
    config_revision bigint,
    -- The delivery id comes first, so that a person can look one up without knowing its source.
    CONSTRAINT inbox_identity UNIQUE (delivery_id, source, tenant)
);
CREATE INDEX inbox_received ON hooklatch.inbox (received_at, id);
CREATE INDEX inbox_source   ON hooklatch.inbox (source, received_at, id);
CREATE INDEX inbox_event    ON hooklatch.inbox (event_id) WHERE event_id IS NOT NULL;
CREATE INDEX inbox_request  ON hooklatch.inbox (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX inbox_resource ON hooklatch.inbox (resource_id, resource_type) WHERE resource_id IS NOT NULL;

-- Bodies leave earlier than identities, so they have a table of their own. Variant 0 is what came first.
CREATE TABLE hooklatch.payload (
    inbox_id  bigint NOT NULL REFERENCES hooklatch.inbox (id),
    variant   smallint NOT NULL DEFAULT 0,
    tenant    text COLLATE "C" NOT NULL,
    method    text NOT NULL,
    raw_query bytea NOT NULL,
    headers   bytea NOT NULL,       -- "Name: value" lines
    body      bytea NOT NULL,
    PRIMARY KEY (inbox_id, variant)
);
-- lz4 compresses at a fraction of the default's cost, where the server was built with it.
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE hooklatch.payload ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;
-- +goose StatementEnd

-- Other bytes that came, rightly signed, under a delivery id that is taken. At most 8 for one id.
CREATE TABLE hooklatch.conflict (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    source        text COLLATE "C" NOT NULL,
    delivery_id   text COLLATE "C" NOT NULL,
    body_hash     bytea NOT NULL CHECK (octet_length(body_hash) = 32),
    headers       bytea NOT NULL,
    body          bytea NOT NULL,
    key_id        text,
    request_id    uuid,
    seen          bigint NOT NULL DEFAULT 1,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT conflict_identity UNIQUE (delivery_id, source, tenant, body_hash)
);

-- +goose Down
DROP TABLE hooklatch.conflict;
DROP TABLE hooklatch.payload;
DROP TABLE hooklatch.inbox;
DROP TABLE hooklatch.config_revision;
