-- The end of a doubt, for effects in `outcome_unknown` (5) alone: `due_us` is the next question to the adapter
-- where the service asks by itself, and the queue goes by the end. No index: the queue finds these rows by
-- `open_effects_doubt`.
ALTER TABLE open_effects ADD COLUMN deadline_us bigint;
-- The record's own `deadline_at` stands before any other in its life. A row that can't be read back keeps none.
UPDATE open_effects o
SET deadline_us = (extract(epoch FROM
    substring(e.life FROM '"deadline_at":"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{15}Z)"')::timestamptz) * 1000000)::bigint
FROM entries e
WHERE o.state = 5 AND e.tenant = o.tenant AND e.effect = o.effect AND e.revision = o.revision;
-- Tools whose registration changed so that the service asks about doubts that are already open: up to where
-- (`after_us`, `after_effect`) they were woken. A row goes when all were.
CREATE TABLE doubt_wakes (
    tenant       text COLLATE "C" NOT NULL,
    tool         text COLLATE "C" NOT NULL,
    stamp        bigint NOT NULL,
    after_us     bigint NOT NULL,
    after_effect uuid NOT NULL,
    PRIMARY KEY (tenant, tool)
);
-- Those that became automatic before this was noted.
INSERT INTO doubt_wakes
SELECT t.tenant, t.name, t.stamp, -9223372036854775808, '00000000-0000-0000-0000-000000000000'
FROM tools t JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = t.revision
WHERE NOT t.deleted AND r.spec LIKE '%"reconciliation":"automatic"%'
    AND EXISTS (SELECT FROM open_effects o WHERE o.tenant = t.tenant AND o.tool = t.name AND o.state = 5);
