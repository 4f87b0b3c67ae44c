-- A second wall between tenants. Every statement names its tenant; should one forget it, it sees and touches no rows but
-- those of the tenants that its connection was set to (`actonce.tenants`):
--
--   names, a line feed behind each   the rows of these tenants
--   nobody                           none
--   *                                all: sweeps, verification, migrations, backups
--   nothing, or never set            all: the versions before this one do not set it (docs/upgrade.md)
--
-- A word without a line feed is in no list: the last piece is cut off. What is asked of the setting is asked in
-- subqueries that name no row, so once for a statement; and as one part of OR can't use an index, no index takes its
-- condition from here: plans stay as they were.
DO $wall$
DECLARE
    of_tenants text;
BEGIN
    FOREACH of_tenants IN ARRAY ARRAY[
        'entries', 'open_effects', 'tools', 'tool_revisions', 'tool_secrets', 'receipt_sources', 'quarantine',
        'retained_arguments', 'grants', 'grant_uses', 'profiles', 'sessions', 'adoptions', 'recovery_executions',
        'recovery_receipts', 'recovery_claims', 'run_waits', 'checkpoints', 'doubt_wakes', 'subscriptions',
        'deliveries'
    ] LOOP
        EXECUTE format($policy$
            CREATE POLICY tenant_wall ON %I USING (
                tenant = ANY ((SELECT trim_array(string_to_array(
                    nullif(current_setting('actonce.tenants', true), ''), chr(10)), 1))::text[])
                OR (SELECT coalesce(current_setting('actonce.tenants', true), '') IN ('', '*')))
            $policy$, of_tenants);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', of_tenants);
        -- The service may own the tables.
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', of_tenants);
    END LOOP;
END
$wall$;
