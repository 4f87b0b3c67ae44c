//! Postgres as it is behind a pooler that gives every transaction another session (docs/scaling.md): what a use of a
//! connection is set to it says itself, nothing of it is left behind, and nothing counts before it was committed. The
//! laws of the store are tried in this manner beside the others: `in_transactions`.

use std::collections::BTreeSet;

use actonce::domain::ids::Tenant;
use actonce::store::open::{DatabaseUrl, OpenOptions, Pooling, open};
use actonce::store::postgres::PostgresStore;
use actonce::store::postgres::wall::{Purpose, Tenants};
use actonce::store::{Committed, Store as _, StoreError};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgExecutor};

use super::bed::{Bed, POOLED, address, revise};
use super::effects::{Maker, TOOL, registration, spec, tenant};
use crate::support::server::program;
use crate::support::{StoreUnderTest, postgres};

/// A store in this manner, with one connection for reads.
async fn store(url: &str) -> PostgresStore {
    POOLED.scope((), async { PostgresStore::connect(&address(url), true, 2).await.unwrap() }).await
}

async fn text(connection: impl PgExecutor<'_>, sql: &str) -> String {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(connection).await.unwrap()
}

/// What a use is set to.
async fn setting(store: &PostgresStore, name: &str) -> String {
    text(store.scope(Tenants::Nobody).await.unwrap(), &format!("SELECT current_setting('{name}')")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_use_sets_itself_whatever_was_left_in_the_session() {
    let Some(url) = postgres::fresh_database() else { return };
    let store = store(&url).await;
    // As another client of the pooler leaves a session. The store has one connection, so it is the one of all of them.
    let left = "SET SESSION synchronous_commit = off; SET SESSION enable_seqscan = on; SET SESSION jit = on;
                SET SESSION plan_cache_mode = auto; SET SESSION statement_timeout = 0; SET SESSION actonce.tenants = '*'";
    sqlx::raw_sql(left).execute(store.scope(Tenants::Nobody).await.unwrap()).await.unwrap();
    for (name, expected) in [
        ("synchronous_commit", "on"),
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("jit", "off"),
        ("plan_cache_mode", "force_generic_plan"),
        ("statement_timeout", "15s"),
        ("idle_in_transaction_session_timeout", "15s"),
        ("actonce.tenants", "nobody"),
    ] {
        assert_eq!(setting(&store, name).await, expected, "{name}");
    }
    store.close().await;
}

/// Laws 2 and 14: a default that gives up what was acknowledged is overruled, a stricter one is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_default_for_commits_is_kept_unless_it_is_off() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    for (default, expected) in [("off", "on"), ("remote_apply", "remote_apply"), ("on", "on")] {
        let bed = Bed::new(StoreUnderTest::Postgres).await;
        bed.alter_database(&format!("SET synchronous_commit = {default}")).await;
        let store = store(&bed.url()).await;
        assert_eq!(setting(&store, "synchronous_commit").await, expected, "{default}");
        let mut writing = store.begin(Tenants::Nobody).await.unwrap();
        assert_eq!(text(&mut *writing, "SELECT current_setting('synchronous_commit')").await, expected, "{default}");
        writing.rollback().await.unwrap();
        store.close().await;
    }
}

/// A pooler hands a session on as it is: a statement with a name would meet another one of that name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_in_a_session() {
    let Some(url) = postgres::fresh_database() else { return };
    let store = store(&url).await;
    let now = store.now().await.unwrap();
    let maker = Maker::external("a", now);
    let spec = spec(maker.tool.spec.effect, &serde_json::json!({}));
    store.write_tool(&registration(&maker.tenant, TOOL, &spec)).await.unwrap();
    let (row, record) = maker.create("op");
    assert_eq!(store.commit(&[revise(&row)]).await.unwrap(), [Committed::Applied]);
    assert_eq!(store.commit(&[revise(&maker.dispatch(&record, "one").0)]).await.unwrap(), [Committed::Applied]);
    store.load(std::slice::from_ref(&row.key)).await.unwrap();
    store.tools(&maker.tenant, None, 10).await.unwrap();
    store.journal(&row.key, 0, 10).await.unwrap();
    assert!(store.takes_writes().await.unwrap());
    store.announce("hello").await.unwrap();
    // By a reader, and by each writer: a statement that commits is one of those.
    let names = "SELECT count(*) FROM pg_prepared_statements";
    let count: i64 = sqlx::query_scalar(names).fetch_one(store.scope(Tenants::Nobody).await.unwrap()).await.unwrap();
    assert_eq!(count, 0);
    let mut other = PgConnection::connect(&url).await.unwrap();
    let left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'
                AND pid <> pg_backend_pid()";
    let open: i64 = sqlx::query_scalar(left).fetch_one(&mut other).await.unwrap();
    assert_eq!(open, 0, "every transaction has ended");
    other.close().await.unwrap();
    store.close().await;
}

/// `COMMIT` of a transaction that has failed, or is gone, answers without an error. It must not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_not_there_any_more_is_not_committed() {
    let Some(url) = postgres::fresh_database() else { return };
    let store = store(&url).await;
    let whose = || Tenants::All(Purpose::Inspection);
    let insert =
        "INSERT INTO tools (tenant, name, revision, stamp, paused, deleted) VALUES ('a', 'x', 1, 1, false, false)";
    // A statement of it failed, and somebody went on.
    let mut failed = store.begin(whose()).await.unwrap();
    sqlx::raw_sql(insert).execute(&mut *failed).await.unwrap();
    sqlx::raw_sql("SELECT 1 / 0").execute(&mut *failed).await.unwrap_err();
    assert!(matches!(failed.commit().await, Err(StoreError::Unavailable(_))));
    // It ended behind our back: as a pooler would do that gives the next statement another session.
    let mut ended = store.begin(whose()).await.unwrap();
    sqlx::raw_sql(insert).execute(&mut *ended).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut *ended).await.unwrap();
    assert!(matches!(ended.commit().await, Err(StoreError::Unavailable(_))));
    // Its session was ended.
    let mut broken = store.begin(whose()).await.unwrap();
    sqlx::raw_sql(insert).execute(&mut *broken).await.unwrap();
    let pid = text(&mut *broken, "SELECT pg_backend_pid()::text").await;
    postgres::run(&url, &format!("SELECT pg_terminate_backend({pid})"));
    let error = broken.commit().await.unwrap_err();
    assert!(error.is_broken_connection(), "{error}");
    let mut other = PgConnection::connect(&url).await.unwrap();
    assert_eq!(text(&mut other, "SELECT count(*)::text FROM tools").await, "0");
    other.close().await.unwrap();
    // The seat that all of them had is whole again.
    let found = store.tools(&tenant("a"), None, 10).await;
    assert!(found.is_ok_and(|tools| tools.is_empty()));
    store.close().await;
}

/// What fails as late as at the commit has failed: the caller is not told that it was applied, and repeats it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_fails_at_its_end_was_no_commit() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let tried = async {
        let bed = Bed::new(StoreUnderTest::Postgres).await;
        bed.execute(
            "CREATE FUNCTION too_late() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN RAISE EXCEPTION 'too late' USING ERRCODE = '40001'; END $$;
             CREATE CONSTRAINT TRIGGER too_late AFTER INSERT ON entries DEFERRABLE INITIALLY DEFERRED
               FOR EACH ROW EXECUTE FUNCTION too_late();
             CREATE CONSTRAINT TRIGGER too_late AFTER INSERT ON grants DEFERRABLE INITIALLY DEFERRED
               FOR EACH ROW EXECUTE FUNCTION too_late()",
        )
        .await;
        let maker = Maker::external("tenant", bed.now().await);
        let (row, _) = maker.create("a");
        for batch in [vec![revise(&row)], vec![revise(&row), revise(&maker.create("b").0)]] {
            let done = bed.try_commit(&batch).await;
            assert!(matches!(done, Err(StoreError::Unavailable(_))), "{done:?}");
            assert_eq!(bed.rows().await, (0, 0));
        }
        assert!(bed.load(&row.key).await.is_none());
        bed.execute("DROP TRIGGER too_late ON entries").await;
        assert_eq!(bed.revise(&row).await, Committed::Applied, "the same request again");
        assert_eq!(bed.rows().await, (1, 1));
    };
    POOLED.scope((), tried).await;
}

/// One seat, so that each use has the connection of the one before, and every tenant in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_take_turns_on_one_session_and_see_their_own() {
    let Some(url) = postgres::fresh_database() else { return };
    let store = store(&url).await;
    let spec = spec(Maker::external("a", store.now().await.unwrap()).tool.spec.effect, &serde_json::json!({}));
    let tenants: Vec<Tenant> = ["a", "b", "c"].map(tenant).into();
    for tenant in &tenants {
        store.write_tool(&registration(tenant, TOOL, &spec)).await.unwrap();
    }
    let mut sessions = BTreeSet::new();
    for round in 0..30 {
        let tenant = &tenants[round % 3];
        let query = "SELECT string_agg(tenant, ',') || ' ' || pg_backend_pid() FROM tools";
        let found = text(store.scope(Tenants::One(tenant)).await.unwrap(), query).await;
        let (seen, session) = found.split_once(' ').unwrap();
        assert_eq!(seen, tenant.as_str());
        sessions.insert(session.to_owned());
    }
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    store.close().await;
}

/// Without an address past the pooler nothing is migrated and nobody listens; what there is is checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_session_of_its_own_a_store_checks_and_does_not_listen() {
    let Some(url) = postgres::fresh_database() else { return };
    let at = |direct: Option<&str>| {
        let pooling = Pooling::Transaction { direct: direct.map(Into::into) };
        DatabaseUrl::parse(&url).unwrap().pooled(pooling).unwrap()
    };
    let options = OpenOptions { migrate: true, connections: 2 };
    let error = open(&at(None), options).await.unwrap_err().to_string();
    assert!(error.contains("migrate it first"), "{error}");
    let listens = open(&at(Some(&url)), options).await.unwrap();
    let deaf = open(&at(None), options).await.unwrap();
    let (sink, mut heard) = tokio::sync::mpsc::channel(10);
    let (unheard, mut nothing) = tokio::sync::mpsc::channel(10);
    deaf.listen(unheard).await.unwrap();
    assert!(nothing.recv().await.is_none(), "it says at once that there is nothing to hear");
    let listening = std::sync::Arc::clone(&listens);
    let mut ears = tokio::task::JoinSet::new();
    ears.spawn(async move { listening.listen(sink).await });
    // What the deaf one announces goes through the pooler, and is heard by whoever can.
    let message = loop {
        deaf.announce("hello").await.unwrap();
        let next = tokio::time::timeout(std::time::Duration::from_millis(100), heard.recv()).await;
        if let Ok(Some(message)) = next {
            break message;
        }
    };
    assert_eq!(message, "hello");
    ears.shutdown().await;
    deaf.close().await;
    listens.close().await;
    // Another database, and no database of Postgres, are no way past the pooler.
    let other = postgres::fresh_database().unwrap();
    let error = open(&at(Some(&other)), options).await.unwrap_err().to_string();
    assert!(error.contains("leads to another database"), "{error}");
}

#[test]
fn commands_that_need_a_session_say_so() {
    let Some(url) = postgres::fresh_database() else { return };
    let run = |args: &[&str], direct: Option<&str>| {
        let mut command = program();
        command.args(args).env("DATABASE_URL", &url).env("DATABASE_POOLING", "transaction");
        command.envs(direct.map(|direct| ("DATABASE_DIRECT_URL", direct)));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        (output.status.code(), said)
    };
    let (code, said) = run(&["migrate"], None);
    assert!(code == Some(2) && said.contains("DATABASE_DIRECT_URL"), "{code:?}: {said}");
    let (code, said) = run(&["migrate"], Some(&url));
    assert!(code == Some(0) && said.contains("up to date"), "{code:?}: {said}");
    let other = postgres::fresh_database().unwrap();
    for (direct, level, expected) in [
        (None, "warn", "no address past it"),
        (Some(&*url), "ok", "an address past it"),
        (Some(&*other), "fail", "leads to another database"),
    ] {
        let (_, said) = run(&["doctor", "--dev"], direct);
        let line = said.lines().find(|line| line.contains(" pooling: "));
        assert!(line.is_some_and(|line| line.starts_with(level) && line.contains(expected)), "{said}");
        assert!(said.contains("a write was tried and taken back"), "{said}");
    }
    let restore = ["restore-epoch", "--epoch-id", "one", "--reason", "trial"];
    let (code, said) = run(&restore, None);
    assert!(code == Some(2) && said.contains("DATABASE_DIRECT_URL"), "{code:?}: {said}");
    for args in
        [["journal", "verify"].as_slice(), &["journal", "checkpoint", "--print"], &["prune", "--older-than", "90d"]]
    {
        let (code, said) = run(args, None);
        assert_eq!(code, Some(0), "{args:?}: {said}");
    }
    let (code, said) = run(&restore, Some(&url));
    assert!(code == Some(0) && said.contains("\"epoch\": 1"), "{code:?}: {said}");
    let (code, said) = run(&["journal", "verify", "--database-pooling", "statement"], None);
    assert!(code == Some(2) && said.contains("must be session or transaction"), "{code:?}: {said}");
}
