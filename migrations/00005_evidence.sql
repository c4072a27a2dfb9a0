-- What may differ between two deliveries of one id, how long evidence is kept, and
-- the look-ups that need it.

-- +goose Up
-- Over the body without what the source ignores; outlives the body, as body_hash does.
ALTER TABLE hooklatch.inbox ADD COLUMN compare_hash bytea CHECK (octet_length(compare_hash) = 32);

-- How many forwards were made at the receipt, so that one that is lost is missed.
-- NULL: received by an older version.
ALTER TABLE hooklatch.inbox ADD COLUMN forwards smallint CHECK (forwards >= 0);

-- NULL: removed by retention.
ALTER TABLE hooklatch.conflict ALTER COLUMN body DROP NOT NULL;

-- Outlives the body. NULL: from an older version.
ALTER TABLE hooklatch.conflict ADD COLUMN body_size integer;
UPDATE hooklatch.conflict SET body_size = octet_length(body);

CREATE INDEX inbox_body ON hooklatch.inbox (body_hash, received_at);
CREATE INDEX inbox_compare ON hooklatch.inbox (compare_hash, received_at) WHERE compare_hash IS NOT NULL;
DROP INDEX hooklatch.inbox_resource;
CREATE INDEX inbox_resource ON hooklatch.inbox (resource_id, resource_type, revision) WHERE resource_id IS NOT NULL;
CREATE INDEX attempt_ended   ON hooklatch.attempt (ended_at);
CREATE INDEX conflict_seen   ON hooklatch.conflict (first_seen_at) WHERE body IS NOT NULL;
CREATE INDEX conflict_request ON hooklatch.conflict (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX conflict_body   ON hooklatch.conflict (body_hash);
CREATE INDEX refusal_body    ON hooklatch.refusal (body_hash) WHERE body_hash IS NOT NULL;

COMMENT ON TABLE hooklatch.schema_version IS 'serves 4';

-- +goose Down
DROP INDEX hooklatch.refusal_body;
DROP INDEX hooklatch.conflict_body;
DROP INDEX hooklatch.conflict_request;
DROP INDEX hooklatch.conflict_seen;
DROP INDEX hooklatch.attempt_ended;
DROP INDEX hooklatch.inbox_resource;
CREATE INDEX inbox_resource ON hooklatch.inbox (resource_id, resource_type) WHERE resource_id IS NOT NULL;
DROP INDEX hooklatch.inbox_compare;
DROP INDEX hooklatch.inbox_body;
DELETE FROM hooklatch.conflict WHERE body IS NULL;
ALTER TABLE hooklatch.conflict ALTER COLUMN body SET NOT NULL, DROP COLUMN body_size;
ALTER TABLE hooklatch.inbox DROP COLUMN forwards, DROP COLUMN compare_hash;
