-- Which restores this deployment has been through, and so without a tenant: a restore concerns the whole database.
-- `ended_us` is null while effects are still being moved; no service starts meanwhile. `number` is what fences grow by.
CREATE TABLE restore_epochs (
    number   integer PRIMARY KEY CHECK (number > 0),
    epoch_id text COLLATE "C" NOT NULL UNIQUE,
    reason   text NOT NULL,
    begun_us bigint NOT NULL,
    paused   bigint NOT NULL,
    effects  bigint NOT NULL,
    ended_us bigint
);
