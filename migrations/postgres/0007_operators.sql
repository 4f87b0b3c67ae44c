-- What the operator's queue walks along, beside the indexes by state and by deadline. Both are partial:
-- an effect that goes its ordinary way never enters them.
CREATE INDEX open_effects_contradicted ON open_effects (tenant, created_us, effect) WHERE contradicted;
-- Effects in `outcome_unknown` (5) by tool, because each tool has a reconcile deadline of its own.
CREATE INDEX open_effects_doubt ON open_effects (tenant, tool, created_us, effect) WHERE state = 5;
