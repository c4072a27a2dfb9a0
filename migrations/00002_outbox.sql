-- Forwards, their attempts, and the destinations they go to.

-- +goose Up
CREATE TABLE hooklatch.destination (
    name            text COLLATE "C" PRIMARY KEY,
    url             text NOT NULL,
    config_revision bigint,
    paused_at       timestamptz,
    paused_by       text,
    pause_reason    text
);

-- A narrow row, rewritten at each claim and settle; the body is elsewhere.
CREATE TABLE hooklatch.outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox_id        bigint NOT NULL REFERENCES hooklatch.inbox (id),
    tenant          text COLLATE "C" NOT NULL,
    destination     text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL DEFAULT 'pending'
                    CHECK (state IN ('pending', 'retry_wait', 'held', 'accepted', 'blocked', 'superseded', 'cancelled')),
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,     -- counted at claim
    attempts_free   integer NOT NULL DEFAULT 0,     -- those of them that use up no budget
    lease_token     bigint NOT NULL DEFAULT 0,      -- grows with each lease
    lease_until     timestamptz,
    blocked_reason  text,
    settled_at      timestamptz,
    CONSTRAINT outbox_duty UNIQUE (inbox_id, destination)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_due ON hooklatch.outbox (destination, next_attempt_at, id)
    WHERE state IN ('pending', 'retry_wait');
CREATE INDEX outbox_stuck ON hooklatch.outbox (state, destination, id)
    WHERE state IN ('held', 'blocked');

-- Append-only.
CREATE TABLE hooklatch.attempt (
    outbox_id       bigint NOT NULL,
    number          integer NOT NULL,
    late            boolean NOT NULL DEFAULT false, -- ended after its lease was lost
    tenant          text COLLATE "C" NOT NULL,
    ended_at        timestamptz NOT NULL,
    duration        interval,                       -- NULL: nobody saw the end
    class           text NOT NULL,
    status          integer,
    error           text,
    answer          bytea,
    worker          text,
    config_revision bigint,
    PRIMARY KEY (outbox_id, number, late)
);

-- +goose Down
DROP TABLE hooklatch.attempt;
DROP TABLE hooklatch.outbox;
DROP TABLE hooklatch.destination;
