-- Tallies: what was refused, and which keys are in use. Counts with one sample each,
-- added in batches by receiving processes; a request never waits for them.

-- +goose Up

-- One row for each kind of refusal in a minute. What makes rows comes from the
-- configuration or from closed lists, never from a sender: a flood of refusals grows
-- count, not the table. The sample is the first of the minute, and stays: later
-- ones change no index. Never a body, a header or a signature.
CREATE TABLE hooklatch.refusal (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      text COLLATE "C" NOT NULL CHECK (octet_length(tenant) <= 255),
    source      text COLLATE "C" NOT NULL CHECK (octet_length(source) <= 255),  -- '': the request belonged to none
    minute      timestamptz NOT NULL,
    code        text COLLATE "C" NOT NULL CHECK (octet_length(code) <= 64),     -- what the sender was told
    reason      text COLLATE "C" NOT NULL CHECK (octet_length(reason) <= 64),   -- the precise reason; decides the code
    key_id      text COLLATE "C" NOT NULL CHECK (octet_length(key_id) <= 128),  -- a configured key, or ''
    cause       text COLLATE "C" NOT NULL CHECK (octet_length(cause) <= 255),   -- codes of the explanation, or '': not explained
    count       bigint NOT NULL CHECK (count > 0),
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    request_id  uuid,
    delivery_id text COLLATE "C" CHECK (octet_length(delivery_id) <= 256),      -- as the sample said; nobody signed it
    peer        text CHECK (octet_length(peer) <= 64),
    body_size   bigint NOT NULL,                                                -- read, or declared where it was not read
    body_hash   bytea CHECK (octet_length(body_hash) = 32),                     -- NULL: no whole body was read
    CONSTRAINT refusal_identity UNIQUE (source, minute, tenant, reason, key_id, cause)
);
CREATE INDEX refusal_minute   ON hooklatch.refusal (minute, id);
CREATE INDEX refusal_source   ON hooklatch.refusal (source, minute, id);
CREATE INDEX refusal_delivery ON hooklatch.refusal (delivery_id) WHERE delivery_id IS NOT NULL;
CREATE INDEX refusal_request  ON hooklatch.refusal (request_id) WHERE request_id IS NOT NULL;

-- One row for each key in an hour in which it verified something.
CREATE TABLE hooklatch.key_use (
    source    text COLLATE "C" NOT NULL CHECK (octet_length(source) <= 255),
    tenant    text COLLATE "C" NOT NULL CHECK (octet_length(tenant) <= 255),
    key_id    text COLLATE "C" NOT NULL CHECK (octet_length(key_id) <= 128),
    scheme    text COLLATE "C" NOT NULL CHECK (octet_length(scheme) <= 255),
    hour      timestamptz NOT NULL,
    accepted  bigint NOT NULL CHECK (accepted >= 0),    -- new deliveries; a repeat is none
    retiring  bigint NOT NULL CHECK (retiring >= 0),    -- of them, while a later key was active
    last_used timestamptz NOT NULL,                     -- also by repeats and conflicts
    PRIMARY KEY (source, tenant, key_id, scheme, hour)
);
CREATE INDEX key_use_hour ON hooklatch.key_use (hour);

-- Both tables are new: binaries that do not know them go on working.
COMMENT ON TABLE hooklatch.schema_version IS 'serves 2';

-- +goose Down
COMMENT ON TABLE hooklatch.schema_version IS NULL;
DROP TABLE hooklatch.key_use;
DROP TABLE hooklatch.refusal;
