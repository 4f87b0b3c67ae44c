-- The same indexes as in the Postgres migration of this number; the reasons stand there.
CREATE INDEX open_effects_contradicted ON open_effects (tenant, created_us, effect) WHERE contradicted = 1;
CREATE INDEX open_effects_doubt ON open_effects (tenant, tool, created_us, effect) WHERE state = 5;
