-- Executions of recovery plans. What was decided is written before anything is done, and each item's
-- receipt after it was; the effect's own journal names the execution, so that a repeat after a crash in
-- between finds its work done. Rows stay: the same execution id stands for one decision for ever.
CREATE TABLE recovery_executions (
    tenant       text COLLATE "C" NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    -- Of plan and decisions: another decision under this id is refused.
    digest       text NOT NULL,
    plan_id      text NOT NULL,
    -- The decisions with their messages, as text.
    decisions    text NOT NULL,
    items        integer NOT NULL CHECK (items > 0),
    begun_by     text NOT NULL,
    begun_us     bigint NOT NULL,
    PRIMARY KEY (tenant, execution_id)
);
CREATE TABLE recovery_receipts (
    tenant       text COLLATE "C" NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    item         integer NOT NULL,
    receipt      text NOT NULL,
    PRIMARY KEY (tenant, execution_id, item)
);
-- Who has an item in hand. A claim is dead when its time has passed by the database's clock.
CREATE TABLE recovery_claims (
    tenant       text COLLATE "C" NOT NULL,
    effect       uuid NOT NULL,
    executor     uuid NOT NULL,
    expires_us   bigint NOT NULL,
    PRIMARY KEY (tenant, effect)
);
