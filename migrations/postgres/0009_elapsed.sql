-- Times in which an effect of a run waited for a person: an approver, or who reviews. They are no part
-- of the run's elapsed time. A row is written with the revision that begins the wait, and ended with the
-- one that ends it; `ends_us` may lie ahead (an approval that expires), and is absent where nothing but a
-- person ends the wait.
CREATE TABLE run_waits (
    tenant    text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    effect    uuid NOT NULL,
    revision  integer NOT NULL,
    began_us  bigint NOT NULL,
    ends_us   bigint,
    PRIMARY KEY (tenant, run_id, effect, revision)
);
CREATE INDEX run_waits_began ON run_waits (tenant, run_id, began_us);
