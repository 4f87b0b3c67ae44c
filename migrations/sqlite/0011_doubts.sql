-- The same as in the Postgres migration of this number; the reasons stand there.
ALTER TABLE open_effects ADD COLUMN deadline_us INTEGER;
UPDATE open_effects SET deadline_us = (
    SELECT CAST(strftime('%s', substr(found.at, 1, 19)) AS INTEGER) * 1000000 + CAST(substr(found.at, 21, 6) AS INTEGER)
    FROM (
        SELECT CASE WHEN json_valid(e.life) THEN json_extract(e.life, '$.deadline_at') END AS at
        FROM entries e
        WHERE e.tenant = open_effects.tenant AND e.effect = open_effects.effect AND e.revision = open_effects.revision
    ) AS found
)
WHERE state = 5;
CREATE TABLE doubt_wakes (
    tenant       TEXT NOT NULL,
    tool         TEXT NOT NULL,
    stamp        INTEGER NOT NULL,
    after_us     INTEGER NOT NULL,
    after_effect BLOB NOT NULL,
    PRIMARY KEY (tenant, tool)
) STRICT, WITHOUT ROWID;
INSERT INTO doubt_wakes
SELECT t.tenant, t.name, t.stamp, -9223372036854775808, x''
FROM tools t JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = t.revision
WHERE NOT t.deleted AND r.spec LIKE '%"reconciliation":"automatic"%'
    AND EXISTS (SELECT 1 FROM open_effects o WHERE o.tenant = t.tenant AND o.tool = t.name AND o.state = 5);
