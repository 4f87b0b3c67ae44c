//! Postgres: the plans of the hot statements, on empty tables and on full ones. A plan that reads a
//! whole table, or that turns when a table grows, is found here and not in production.

use std::time::Duration;

use actonce::domain::command::Command;
use actonce::domain::record::Record;
use actonce::store::postgres::wall::{Held, Purpose, Scoped, Tenants};
use actonce::store::postgres::{PostgresStore, receipts_sql, sql};
use actonce::store::{ChangeSet, Committed, Store as _};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use super::bed::{address, revise};
use super::effects::Maker;
use crate::support::{StoreUnderTest, postgres};

/// The statement that counts everything there is, and those that read no table.
const NO_INDEX: [&str; 29] = [
    "SAY_TENANTS",
    "WALL_HOLDS",
    "INSPECT_SEALED",
    "TAKES_WRITES",
    "BACKEND",
    "SERVER",
    "HAS_SETTINGS",
    "SUBSCRIPTIONS_LOCK",
    "MESSAGES_ADD",
    "DOUBT_WAKES",
    "NOW",
    "NOTIFY",
    "OPEN_STATES",
    "TOOL_INSERT",
    "TOOL_REVISION_INSERT",
    "SOURCE_INSERT",
    "QUARANTINE_LOCK",
    "ALIAS_KEYS_LOCK",
    "ALIAS_KEYS",
    "ALIAS_KEYS_ADD",
    "ALIAS_KEYS_RETIRE",
    "FEED_LOCK",
    "FEED_HIGHEST",
    "EXECUTION_ADD",
    "CLAIM",
    "WAIT_BEGIN",
    "HORIZON",
    "MARK",
    "CHECKPOINT_ADD",
];
/// These walk the enabled subscriptions of all tenants, which are few.
const ALL_SUBSCRIPTIONS: [&str; 4] = ["SUBSCRIBED", "SUBSCRIPTIONS_CLAIM", "SUBSCRIPTIONS_RELEASE", "OUTSTANDING"];
/// For operators, now and then: any index of the tenant's will do.
const RARE: [&str; 2] = ["TOOLS", "TOOL_IN_USE"];

/// A connection for one statement, which sees the rows of all tenants.
async fn everybody(store: &PostgresStore) -> Scoped {
    store.scope(Tenants::All(Purpose::Inspection)).await.unwrap()
}

/// The generic plan of a statement, in a session like the store's.
async fn plan(connection: &mut Held, name: &str, statement: &str) -> Vec<String> {
    let parameters = (1..=30).rev().find(|number| statement.contains(&format!("${number}"))).unwrap_or(0);
    let arguments = vec!["NULL"; parameters].join(", ");
    let arguments = if parameters == 0 { String::new() } else { format!("({arguments})") };
    let prepare = format!("PREPARE statement AS {statement}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE statement{arguments}");
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
    sqlx::raw_sql("DEALLOCATE statement").execute(&mut *connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect()
}

/// What a plan must not do: read a table or an index whole, or compare every row with every other.
fn faults(name: &str, plan: &[String]) -> Vec<String> {
    let tables = [
        "entries",
        "open_effects",
        "tools",
        "tool_revisions",
        "receipt_sources",
        "quarantine",
        "recovery_executions",
        "recovery_receipts",
        "recovery_claims",
        "run_waits",
        "subscriptions",
        "deliveries",
    ];
    let mut found = Vec::new();
    for (number, line) in plan.iter().enumerate() {
        let step = line.trim_start().trim_start_matches("->").trim_start();
        let reads = tables.iter().any(|table| step.split_whitespace().any(|word| word == *table));
        let joins_blindly = step.starts_with("Join Filter:") && step.contains("tenant") && !RARE.contains(&name);
        let is_bad = (reads && step.starts_with("Seq Scan"))
            || step.contains("Hash Join")
            || step.contains("Merge Join")
            || joins_blindly
            || (step.starts_with("Sort")
                && name.starts_with("WALK")
                && name != "WALK_CONTRADICTED"
                && !step.contains(':'));
        // An index without a condition on its first column is read from end to end.
        let is_index = step.starts_with("Index") && step.contains(" using ") || step.starts_with("Bitmap Index Scan");
        let condition = plan.get(number + 1).map_or("", |next| next.trim_start());
        let first_column = match name {
            "DUE" | "QUEUE_OVERDUE" => "due_us",
            "MARK_SET" => "one",
            "SOURCE_AT" => "source_id",
            "QUARANTINE_DUE" => "next_try_us",
            "QUARANTINE_EXPIRE" => "expires_us",
            _ => "tenant",
        };
        let is_bounded = condition.starts_with("Index Cond:") && condition.contains(first_column)
            || step.contains("feed_origin")
            || (ALL_SUBSCRIPTIONS.contains(&name) && step.contains(" subscriptions"));
        // One effect is looked for by its key or its twin's, or all that its tenant has open is read.
        let is_one_of = name.starts_with("COMMIT") || ["RENEW", "POSTPONE", "TWIN"].contains(&name);
        let by_key = ["open_effects_pkey on", "open_effects_duplicate on"].iter().any(|by| step.contains(by));
        let is_bounded = is_bounded && !(is_one_of && step.contains(" on open_effects") && !by_key);
        // One row, from the end that is wanted.
        if is_bad || (is_index && !is_bounded && name != "NEXT_DUE" && name != "QUARANTINE_NEXT") {
            found.push(format!("{name}: {step}\n{}", plan.join("\n")));
        }
    }
    if !plan.iter().any(|line| line.contains("Index")) {
        found.push(format!("{name}: no index is used\n{}", plan.join("\n")));
    }
    found
}

async fn all_faults(store: &PostgresStore) -> Vec<String> {
    let mut connection = store.begin(Tenants::All(Purpose::Inspection)).await.unwrap();
    let mut found = Vec::new();
    let all = [
        sql::ALL,
        sql::operators::ALL,
        sql::recovery::ALL,
        sql::elapsed::ALL,
        sql::doubts::ALL,
        sql::checkpoints::ALL,
        sql::bypass::ALL,
        sql::feed::ALL,
        sql::seals::ALL,
        sql::subscriptions::ALL,
        sql::quotas::ALL,
        receipts_sql::ALL,
    ];
    for (name, statement) in all.into_iter().flatten() {
        if !NO_INDEX.contains(name) {
            found.extend(faults(name, &plan(&mut connection, name, statement).await));
        }
    }
    found
}

/// 20,000 effects of two tenants with 50,000 revisions; 6,000 are open, 3,000 of them with a deadline.
const FILL: &str = "
INSERT INTO entries (tenant, effect, revision, state, created_us, run_id, session_id, intent, life, entry, prev_hash, hash)
SELECT 'tenant ' || n % 2, md5(n::text)::uuid, r, CASE WHEN r = 1 THEN 2 ELSE 8 END,
  CASE WHEN r = 1 THEN n END, CASE WHEN r = 1 THEN 'run ' || n % 40 END, CASE WHEN r = 1 THEN 'session ' || n % 90 END,
  CASE WHEN r = 1 THEN '{}' END, repeat('x', 300), repeat('y', 300), '', ''
FROM generate_series(1, 20000) n, generate_series(1, 1 + n % 4) r;
INSERT INTO open_effects (tenant, effect, revision, state, fence, due_us, duplicate, created_us, contradicted, tool,
  run_id, session_id)
SELECT 'tenant ' || n % 2, md5(n::text)::uuid, 1 + n % 4, 2 + n % 6, 1, CASE WHEN n % 2 = 0 THEN 4000000000000000 + n END,
  CASE WHEN n % 3 = 0 THEN md5('d' || n)::uuid END, n, n % 500 = 0, 'tool ' || n % 7, 'run', 'session'
FROM generate_series(1, 6000) n;
INSERT INTO receipt_sources SELECT 'tenant ' || n % 2, 'source ' || n, md5(n::text)::uuid, 1, '{}', NULL, 0, 'me'
FROM generate_series(1, 200) n;
INSERT INTO quarantine SELECT 'tenant ' || n % 2, md5(n::text)::uuid, 'source ' || (n % 2 + 2 * (n % 50 + 1)), 1, 'r', '{}', 'd', '{}',
  NULL, 0, CASE WHEN n % 2 = 0 THEN 4000000000000000 + n END, n, 4000000000000000 + n
FROM generate_series(1, 2000) n;
INSERT INTO recovery_claims SELECT 'tenant ' || n % 2, md5(n::text)::uuid, md5(n::text)::uuid, n FROM generate_series(1, 3000) n;
INSERT INTO recovery_executions SELECT 'tenant ' || n % 2, 'execution ' || n, 'd', 'p', '[]', 1, 'me', 0
FROM generate_series(1, 3000) n;
INSERT INTO recovery_receipts SELECT 'tenant ' || n % 2, 'execution ' || n, r, '{}'
FROM generate_series(1, 3000) n, generate_series(0, 3) r;
INSERT INTO run_waits SELECT 'tenant ' || n % 2, 'run ' || n % 40, md5(n::text)::uuid, 1, n, n + 5 FROM generate_series(1, 4000) n;
INSERT INTO tools SELECT 'tenant ' || n % 2, 'tool ' || n, 1, 1, false, false FROM generate_series(1, 2000) n;
INSERT INTO tool_revisions SELECT tenant, name, 1, '{}', 0, 'me' FROM tools;
ANALYZE entries, open_effects, tools, tool_revisions, receipt_sources, quarantine, recovery_claims, recovery_executions,
  recovery_receipts, run_waits";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_statements_go_by_index_whatever_the_tables_look_like() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let url = postgres::fresh_database().unwrap();
    let store = PostgresStore::connect(&address(&url), true, 2).await.unwrap();
    let empty = all_faults(&store).await;
    sqlx::raw_sql(FILL).execute(everybody(&store).await).await.unwrap();
    let full = all_faults(&store).await;
    assert!(empty.is_empty(), "on empty tables:\n{}", empty.join("\n\n"));
    assert!(full.is_empty(), "on full tables:\n{}", full.join("\n\n"));
    // All is settled, the pages are still there, and the planner believes that no row ever will be.
    for statement in ["DELETE FROM open_effects", "ANALYZE open_effects"] {
        sqlx::raw_sql(statement).execute(everybody(&store).await).await.unwrap();
    }
    let mut emptied = all_faults(&store).await;
    // A page of a list then reads and sorts what is open of one tenant.
    emptied.retain(|fault| !fault.starts_with("WALK_OPEN: Sort"));
    assert!(emptied.is_empty(), "on emptied tables:\n{}", emptied.join("\n\n"));
    store.close().await;
}

/// How many entries of the indexes over open effects were read, as far as sessions have told: they do so at the end of a
/// transaction, once in a second.
async fn index_entries_read(admin: &mut PgConnection) -> i64 {
    let statement = "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'open_effects'";
    sqlx::query_scalar(statement).fetch_one(admin).await.unwrap()
}

/// So many effects are opened after the night.
const MORNING: usize = 4000;

/// A night in which everything settles, and the morning after: the table was vacuumed to nothing, and a plan that was made
/// then takes any index of the tenant, to be read whole for every row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_was_made_on_an_emptied_table_does_not_stay() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let url = postgres::fresh_database().unwrap();
    let mut admin = PgConnection::connect(&postgres::as_admin(&url).unwrap()).await.unwrap();
    let store = PostgresStore::connect(&address(&url), true, 2).await.unwrap();
    for statement in [FILL, "DELETE FROM open_effects", "VACUUM open_effects"] {
        sqlx::raw_sql(statement).execute(&mut admin).await.unwrap();
    }
    let pages: i64 = sqlx::query_scalar("SELECT pg_relation_size('open_effects')").fetch_one(&mut admin).await.unwrap();
    assert_eq!(pages, 0, "nothing is left of it");
    let maker = Maker::external("tenant", store.now().await.unwrap());
    let made: Vec<_> = (0..MORNING).map(|number| maker.create(&format!("act {number}"))).collect();
    for some in made.chunks(100) {
        let guarded = some.iter().map(|(row, record)| {
            let mut row = row.clone();
            row.open.as_mut().unwrap().duplicate = Some(record.key.effect);
            revise(&row)
        });
        let committed = store.commit(&guarded.collect::<Vec<_>>()).await.unwrap();
        assert!(committed.iter().all(|change| *change == Committed::Applied));
    }
    let mut read = Vec::new();
    for some in made.chunks(100).take(3) {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        let settle = |record: &Record| revise(&maker.next(record, &Command::Cancel { expected_revision: None }).0);
        let settled: Vec<ChangeSet> = some.iter().map(|(_, record)| settle(record)).collect();
        store.commit(&settled).await.unwrap();
        read.push(index_entries_read(&mut admin).await);
    }
    // Between two looks one batch was told of, or two.
    let last = read[2] - read[1];
    assert!((100..1000).contains(&last), "100 that settle have read {last} entries of {MORNING}: {read:?}");
    store.close().await;
}

fn statement(name: &str) -> &'static str {
    let all = [sql::ALL, sql::recovery::ALL, sql::elapsed::ALL];
    all.into_iter().flatten().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("{name}")).1
}

async fn analyzed(store: &PostgresStore, name: &str, values: &[&str]) -> String {
    let mut text = statement(name).to_owned();
    for (number, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!("${}", number + 1), value);
    }
    let explain = AssertSqlSafe(format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) {text}"));
    let plan = sqlx::raw_sql(explain).fetch_all(everybody(store).await).await.unwrap();
    plan.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// Before every effect.
const NIL: &str = "'00000000-0000-0000-0000-000000000000'::uuid";

/// The sweep at start walks the index over incomplete effects, plans and lists walk theirs, and each
/// touches the rows that it answers and no others; on empty tables and on full ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_touches_the_rows_that_it_answers() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let url = postgres::fresh_database().unwrap();
    let store = PostgresStore::connect(&address(&url), true, 2).await.unwrap();
    let questions: [(&str, Vec<&str>, &str, u32); 5] = [
        ("OPEN_WORK", vec!["''", NIL, "9000000000000000", "256"], "open_effects_pkey", 256),
        ("WALK_OPEN", vec!["'tenant 1'", "0", NIL, "200", "3"], "open_effects_state", 200),
        ("WALK_SESSION", vec!["'tenant 1'", "0", NIL, "20", "'session 7'"], "entries_session", 20),
        ("RECEIPTS", vec!["'tenant 1'", "'execution 7'"], "recovery_receipts_pkey", 4),
        ("RUN_WAITS", vec!["'tenant 1'", "'run 7'", "10000"], "run_waits_", 100),
    ];
    for full in [false, true] {
        if full {
            sqlx::raw_sql(FILL).execute(everybody(&store).await).await.unwrap();
        }
        for (name, values, index, rows) in &questions {
            let plan = analyzed(&store, name, values).await;
            // Of an empty table any index of it will do, as there is nothing to read.
            let (table, _) = index.rsplit_once('_').unwrap();
            assert!(plan.contains(if full { index } else { table }) && plan.contains("Index"), "{name}: {plan}");
            assert!(!plan.contains("Seq Scan"), "{name}: {plan}");
            assert!(!plan.contains("Rows Removed by Filter"), "{name}: {plan}");
            assert!(*name != "OPEN_WORK" || !plan.contains("entries"), "{plan}");
            // Each step of the plan has as many rows as the answer.
            let expected = if full { *rows } else { 0 };
            // The wall's questions about its setting are asked once, and read no row.
            let of_the_wall = |line: &&str| line.trim_start().starts_with("->  Result");
            for step in plan.lines().filter(|line| line.contains("actual rows=") && !of_the_wall(line)) {
                let found = step.split("actual rows=").nth(1).and_then(|rest| rest.split([' ', '.']).next());
                assert_eq!(found.and_then(|rows| rows.parse().ok()), Some(expected), "{name}: {plan}");
            }
        }
    }
    store.close().await;
}

/// A sweep looks at what is due, not at everything that will be due one day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_with_nothing_due_touches_few_rows() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let url = postgres::fresh_database().unwrap();
    let store = PostgresStore::connect(&address(&url), true, 2).await.unwrap();
    sqlx::raw_sql(FILL).execute(everybody(&store).await).await.unwrap();
    let statement = sql::ALL.iter().find(|(name, _)| *name == "DUE").unwrap().1.replace("$1", "256");
    let explain = AssertSqlSafe(format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) {statement}"));
    let plan: Vec<String> =
        sqlx::raw_sql(explain).fetch_all(everybody(&store).await).await.unwrap().iter().map(|row| row.get(0)).collect();
    let removed = plan.iter().find(|line| line.contains("Rows Removed by Filter"));
    assert!(removed.is_none(), "{}", plan.join("\n"));
    store.close().await;
}
