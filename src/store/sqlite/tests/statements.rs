use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::*;

fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    sql::every().copied()
}

#[tokio::test]
async fn every_statement_prepares() {
    let bed = bed().await;
    let mut lent = bed.store.writer.lend().await.unwrap();
    for (name, statement) in all() {
        assert!(lent.connection.prepare(statement.into_sql_str()).await.is_ok(), "{name}");
    }
}

#[test]
fn every_statement_is_listed_once() {
    let sources = [
        include_str!("../sql.rs"),
        include_str!("../sql/approvals.rs"),
        include_str!("../sql/profiles.rs"),
        include_str!("../sql/operators.rs"),
        include_str!("../sql/bypass.rs"),
        include_str!("../sql/restore.rs"),
        include_str!("../sql/retention.rs"),
        include_str!("../sql/seals.rs"),
        include_str!("../sql/recovery.rs"),
        include_str!("../sql/feed.rs"),
        include_str!("../sql/health.rs"),
        include_str!("../sql/quotas.rs"),
        include_str!("../sql/subscriptions.rs"),
        include_str!("../sql/elapsed.rs"),
        include_str!("../sql/inspect.rs"),
        include_str!("../sql/checkpoints.rs"),
        include_str!("../sql/doubts.rs"),
        include_str!("../receipts_sql.rs"),
    ];
    let constants: usize = sources.iter().map(|source| source.matches("\npub const ").count() - 1).sum();
    let mut names: Vec<_> = all().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), all().count()), (constants, constants));
    // The driver counts parameters by position where numbers are skipped.
    for (name, script) in all() {
        for statement in script.split(';') {
            let used = |number: usize| statement.contains(&format!("?{number}"));
            let highest = (1..=11).rev().find(|number| used(*number)).unwrap_or(0);
            assert!((1..=highest).all(used), "{name}");
        }
    }
}

/// A plan must not read a whole table, nor sort what an index could have brought in order.
#[tokio::test]
async fn statements_search_by_index() {
    /// Counts everything there is.
    const READS_ALL: &[&str] =
        &["OPEN_STATES", "ALIAS_KEYS", "DOUBT_WAKES", "INSPECT_TOOLS", "INSPECT_SEALED", "RESTORE_TOOLS_PAUSE"];
    /// What stands in the queue of several tools, what no sweep could move, the rows of one look at the feed, and a tenant's
    /// principals by what they have open.
    const SORTS: &[&str] = &["QUEUE_DOUBT", "QUEUE_OVERDUE", "FEED", "OPEN_BY_PRINCIPAL"];
    let bed = bed().await;
    for (name, script) in all() {
        let no_plan = ["BEGIN", "COMMIT", "ROLLBACK", "PRAGMA"];
        let has_plan = |statement: &&str| !no_plan.iter().any(|word| statement.trim().starts_with(word));
        for statement in script.split(';').filter(has_plan) {
            let plan = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            for step in sqlx::query(plan).fetch_all(&bed.store.readers).await.unwrap() {
                let step: String = step.get("detail");
                // `c` and `w` are the batch itself, `newest` one run or the last row; `s` and `own` are the rows of one look at the
                // feed, and `t` the tenants.
                let harmless = ["clock", "jsonb_each", "c", "w", "newest", "s", "own", "t", "CONSTANT"];
                let scanned = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
                assert!(scanned.is_none_or(|t| harmless.contains(&t)) || READS_ALL.contains(&name), "{name}: {step}");
                assert!(!step.ends_with("FOR ORDER BY") || SORTS.contains(&name), "{name}: {step}");
            }
        }
    }
}
