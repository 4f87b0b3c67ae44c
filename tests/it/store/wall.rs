//! The second wall between tenants (docs/security.md): a statement that forgets its tenant sees and touches nothing
//! of another one. All of it on Postgres, as the plain role that the tests have.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use actonce::domain::ids::{EffectKey, Tenant};
use actonce::store::postgres::sql;
use actonce::store::postgres::wall::{Purpose, Tenants};
use actonce::store::{Committed, PoolStore as _, Store as _, postgres::PostgresStore};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgExecutor, Row as _};

use super::bed::{Bed, POOLED, address, revise};
use super::effects::{Maker, TOOL, registration, spec, tenant};
use crate::http::external;
use crate::support::{Api, Options, Server, StoreUnderTest, blocking, bodies, postgres};

/// Makes of `async fn name()` two tests: by sessions, and as through a pooler that gives them away.
macro_rules! both_manners {
    ($($name:ident),+ $(,)?) => {
        mod by_sessions {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    Box::pin(super::$name()).await;
                }
            )+
        }
        mod by_transactions {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::POOLED.scope((), Box::pin(super::$name())).await;
                }
            )+
        }
    };
}

both_manners!(
    a_statement_without_its_where_sees_and_touches_its_own_tenant_alone,
    statements_of_the_service_that_forget_the_tenant_find_nothing_of_another,
    no_name_of_a_tenant_opens_the_wall,
    a_cancelled_request_leaves_no_connection_that_is_wrongly_set,
    a_connection_that_was_replaced_is_set_again,
);

/// Has a column `tenant` and is no tenant's: one row, how far this database's checkpoints have come.
const OF_THE_DATABASE: &str = "checkpoint_mark";

const TABLES: &str = "\
SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> $1
ORDER BY c.relname = 'quarantine', c.relname";

/// Whether a table has its wall, and holds its owner; the policy's command and its expressions.
type Found = (bool, bool, Option<String>, Option<String>, Option<String>);

/// A database with the service's tables.
struct Place {
    url: String,
    store: PostgresStore,
}

impl Place {
    async fn new() -> Option<Self> {
        let url = postgres::fresh_database()?;
        // One connection for reads, and the one that would listen.
        let store = PostgresStore::connect(&address(&url), true, 2).await.unwrap();
        let place = Self { url, store };
        let holds: bool = place.asks("SELECT row_security_active('entries')").await;
        assert!(holds, "TEST_DATABASE_URL names a role that no policy holds: this shows nothing");
        Some(place)
    }

    /// A connection that says nothing, as those of the versions before the wall.
    async fn undeclared(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    async fn asks(&self, sql: &str) -> bool {
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::query_scalar(sql).fetch_one(&mut self.undeclared().await).await.unwrap()
    }

    async fn tables(&self) -> Vec<String> {
        sqlx::query_scalar(TABLES).bind(OF_THE_DATABASE).fetch_all(&mut self.undeclared().await).await.unwrap()
    }

    /// A statement that adds a row of a tenant, whatever the table has in it.
    async fn insert(&self, table: &str, tenant: &str) -> String {
        let needed = "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute
             WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND NOT atthasdef
               AND (attnotnull OR attname IN ('body', 'created_us', 'intent'))";
        let columns: Vec<(String, String)> =
            sqlx::query_as(needed).bind(table).fetch_all(&mut self.undeclared().await).await.unwrap();
        let value = |(column, kind): &(String, String)| match kind.as_str() {
            _ if column == "tenant" => format!("'{tenant}'"),
            "uuid" => "'00000000-0000-0000-0000-000000000001'".to_owned(),
            "boolean" => "true".to_owned(),
            "text" | "bytea" => "'x'".to_owned(),
            _ => "1".to_owned(),
        };
        let names: Vec<_> = columns.iter().map(|(column, _)| column.as_str()).collect();
        let values: Vec<_> = columns.iter().map(value).collect();
        format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "))
    }

    /// One row of each of these tenants in every table.
    async fn fill(&self, tenants: &[&str]) {
        for table in self.tables().await {
            for tenant in tenants {
                let insert = AssertSqlSafe(self.insert(&table, tenant).await);
                sqlx::raw_sql(insert).execute(&mut self.undeclared().await).await.unwrap();
            }
        }
    }

    /// Whose rows of a table are seen.
    async fn seen(&self, whose: Tenants<'_>, table: &str) -> Vec<String> {
        seen(self.store.scope(whose).await.unwrap(), table).await
    }

    /// Whether the next connection stands in no transaction that somebody left.
    async fn is_at_rest(&self) -> bool {
        if POOLED.try_with(|()| ()).is_ok() {
            // It is one itself: what was there is over once somebody has the one connection.
            self.set_to(&tenant("nobody else")).await;
            let left = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity
                WHERE datname = current_database() AND state LIKE 'idle in transaction%')";
            return self.asks(left).await;
        }
        let connection = self.store.scope(Tenants::Nobody).await.unwrap();
        // In one message: a transaction of its own begins with it.
        let row = sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(connection).await.unwrap();
        row.get(0)
    }

    /// What the next connection for a tenant is set to.
    async fn set_to(&self, tenant: &Tenant) -> String {
        let connection = self.store.scope(Tenants::One(tenant)).await.unwrap();
        sqlx::query_scalar("SELECT current_setting('actonce.tenants')").fetch_one(connection).await.unwrap()
    }
}

async fn seen(connection: impl PgExecutor<'_>, table: &str) -> Vec<String> {
    let sql = AssertSqlSafe(format!("SELECT tenant FROM {table} ORDER BY tenant"));
    sqlx::query_scalar(sql).fetch_all(connection).await.unwrap()
}

async fn touched(connection: impl PgExecutor<'_>, sql: String) -> u64 {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap().rows_affected()
}

/// The statement is refused by a policy and by nothing else.
async fn refused(connection: impl PgExecutor<'_>, sql: String) {
    let error = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(connection).await.expect_err(&sql);
    let error = error.as_database_error().unwrap();
    assert!(error.message().contains("row-level security"), "{sql}: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_of_tenants_has_one_policy_that_holds_its_owner() {
    let Some(place) = Place::new().await else { return };
    let tables = place.tables().await;
    assert!(tables.len() > 15, "{tables:?}");
    let mut expressions = BTreeSet::new();
    for table in &tables {
        let walls: Vec<Found> = sqlx::query_as(
            "SELECT c.relrowsecurity, c.relforcerowsecurity, p.cmd, p.qual, p.with_check FROM pg_class c
             LEFT JOIN pg_policies p ON p.tablename = c.relname AND p.schemaname = current_schema()
               AND p.permissive = 'PERMISSIVE' AND p.roles = '{public}'
             WHERE c.oid = $1::regclass",
        )
        .bind(table)
        .fetch_all(&mut place.undeclared().await)
        .await
        .unwrap();
        let [(true, true, Some(command), Some(expression), None)] = walls.as_slice() else {
            panic!("{table}: no wall, or another one: {walls:?}")
        };
        assert_eq!(command, "ALL", "{table}");
        expressions.insert(expression.clone());
    }
    assert_eq!(expressions.len(), 1, "one wall for all: {expressions:#?}");
}

async fn a_statement_without_its_where_sees_and_touches_its_own_tenant_alone() {
    let Some(place) = Place::new().await else { return };
    place.fill(&["a", "b", "c"]).await;
    let tables = place.tables().await;
    let b = tenant("b");
    for table in &tables {
        assert_eq!(place.seen(Tenants::One(&b), table).await, ["b"], "{table}");
        assert_eq!(place.seen(Tenants::These(BTreeSet::from(["c", "a"])), table).await, ["a", "c"], "{table}");
        assert_eq!(place.seen(Tenants::All(Purpose::Inspection), table).await, ["a", "b", "c"], "{table}");
        assert!(place.seen(Tenants::Nobody, table).await.is_empty(), "{table}");
        assert!(place.seen(Tenants::These(BTreeSet::new()), table).await.is_empty(), "{table}");

        let of_a = place.insert(table, "a").await;
        let of_b = async || place.store.scope(Tenants::One(&b)).await.unwrap();
        assert_eq!(touched(of_b().await, format!("UPDATE {table} SET tenant = tenant")).await, 1, "{table}");
        refused(of_b().await, format!("UPDATE {table} SET tenant = 'a'")).await;
        refused(of_b().await, of_a.clone()).await;
        let of_nobody = async || place.store.scope(Tenants::Nobody).await.unwrap();
        assert_eq!(touched(of_nobody().await, format!("UPDATE {table} SET tenant = tenant")).await, 0, "{table}");
        assert_eq!(touched(of_nobody().await, format!("DELETE FROM {table}")).await, 0, "{table}");
        refused(of_nobody().await, of_a).await;
    }
    // What refers to others goes first.
    for table in tables.iter().rev() {
        let connection = place.store.scope(Tenants::One(&b)).await.unwrap();
        assert_eq!(touched(connection, format!("DELETE FROM {table}")).await, 1, "{table}");
        assert_eq!(seen(&mut place.undeclared().await, table).await, ["a", "c"], "{table}");
    }
}

/// The service's own statements, their conditions on the tenant taken out.
async fn statements_of_the_service_that_forget_the_tenant_find_nothing_of_another() {
    let Some(place) = Place::new().await else { return };
    let store = &place.store;
    let now = store.now().await.unwrap();
    let (a, b) = (Maker::external("a", now), Maker::external("b", now));
    for maker in [&a, &b] {
        let spec = spec(maker.tool.spec.effect, &serde_json::json!({ "verification": "waived" }));
        store.write_tool(&registration(&maker.tenant, TOOL, &spec)).await.unwrap();
    }
    // Two tenants in one batch, of which each sees its own.
    let batch = [revise(&a.create("op a").0), revise(&b.create("op b").0)];
    assert_eq!(store.commit(&batch).await.unwrap(), [Committed::Applied, Committed::Applied]);
    let both = [a.key("op a"), b.key("op b")];
    assert!(store.load(&both).await.unwrap().iter().all(|found| matches!(found, Ok(Some(_)))));
    assert_eq!(store.revisions(&both).await.unwrap(), [1, 1]);

    let forgetful = |wanted: &str, condition: &str| {
        let (_, statement) = sql::every().find(|(found, _)| *found == wanted).unwrap();
        assert!(statement.contains(condition), "{wanted}");
        AssertSqlSafe(format!("SELECT count(*) FROM ({}) AS f", statement.replace(condition, "$1::text IS NOT NULL")))
    };
    let nil = uuid::Uuid::nil();
    for (tenant, expected) in [(Some(&b.tenant), 1), (None, 2)] {
        let whose = tenant.map_or(Tenants::All(Purpose::Inspection), Tenants::One);
        let mut connection = store.begin(whose).await.unwrap();
        let walk = sqlx::query_scalar(forgetful("WALK_ALL", "tenant = $1")).bind("b").bind(0_i64).bind(nil);
        let walked: i64 = walk.bind(100_i64).fetch_one(&mut *connection).await.unwrap();
        let tools = sqlx::query_scalar(forgetful("TOOLS", "t.tenant = $1")).bind("b").bind("").bind(100_i64);
        let tools: i64 = tools.fetch_one(&mut *connection).await.unwrap();
        let journal = sqlx::query_scalar(forgetful("JOURNAL", "tenant = $1")).bind("b").bind(both[0].effect);
        let journal: i64 = journal.bind(0).bind(100_i64).fetch_one(&mut *connection).await.unwrap();
        assert_eq!((walked, tools, journal), (expected, expected, expected - 1), "{tenant:?}");
    }
    // One that was never to see a tenant's rows can't write them either.
    let connection = store.scope(Tenants::One(&b.tenant)).await.unwrap();
    let moved = touched(connection, "UPDATE open_effects SET due_us = 0".to_owned()).await;
    assert_eq!(moved, 1);
}

/// Names are no words of the setting, end nowhere early, and leave no literal.
async fn no_name_of_a_tenant_opens_the_wall() {
    let Some(place) = Place::new().await else { return };
    let names = ["*", "nobody", "a", "a b", "o'br\\ien", "\\", "','*", "tenant Ä", "{a,b}", "NULL"];
    let spec = spec(Maker::external("a", place.store.now().await.unwrap()).tool.spec.effect, &serde_json::json!({}));
    for named in names {
        // A transaction, which sets itself by a literal.
        place.store.write_tool(&registration(&tenant(named), TOOL, &spec)).await.unwrap();
    }
    for named in names {
        assert_eq!(place.seen(Tenants::One(&tenant(named)), "tools").await, [named]);
        assert_eq!(place.store.tools(&tenant(named), None, 10).await.unwrap().len(), 1, "{named}");
        let others: BTreeSet<&str> = names.into_iter().filter(|other| *other != named).collect();
        let found = place.seen(Tenants::These(others.clone()), "tools").await;
        assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), others);
    }
}

/// Polls a future so often, and drops it where it is not done then.
async fn polled<T>(times: u32, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut polls) = (pin!(future), 0);
    std::future::poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Whoever goes away between the setting and its answer leaves no connection that is taken for another's.
async fn a_cancelled_request_leaves_no_connection_that_is_wrongly_set() {
    let Some(place) = Place::new().await else { return };
    let (a, b) = (tenant("a"), tenant("b"));
    let spec = spec(Maker::external("a", place.store.now().await.unwrap()).tool.spec.effect, &serde_json::json!({}));
    let (mut cancelled, mut done) = (0, 0);
    for round in 0..160 {
        let (one, other) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        assert_eq!(place.set_to(other).await, format!("{other}\n"));
        let times = round / 4 % 8;
        let ended = match round % 4 {
            // The setting itself; a statement of another tenant; a transaction; a commit's connection.
            0 | 1 => polled(times, place.store.scope(Tenants::One(one))).await.is_some(),
            2 => polled(times, place.store.tools(one, None, 10)).await.is_some(),
            _ => polled(times, place.store.write_tool(&registration(one, TOOL, &spec))).await.is_some(),
        };
        if ended {
            done += 1;
        } else {
            cancelled += 1;
        }
        // There is one connection: it is the one that was left.
        assert!(place.is_at_rest().await, "round {round} left a transaction");
        assert_eq!(place.set_to(one).await, format!("{one}\n"), "round {round}");
        assert_eq!(place.set_to(other).await, format!("{other}\n"), "round {round}");
    }
    assert!(cancelled > 10 && done > 5, "{cancelled} were cancelled and {done} were not");
}

/// The same where the setting is prepared first, which the very first one of a connection is: what is cancelled then was
/// never sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cancelled_before_its_setting_was_sent_leaves_no_note_of_it() {
    let Some(mut place) = Place::new().await else { return };
    let a = tenant("a");
    for times in 0.. {
        assert!(times < 200, "it is done at some time");
        place.store.close().await;
        place.store = PostgresStore::connect(&address(&place.url), false, 2).await.unwrap();
        let is_done = polled(times, place.store.scope(Tenants::One(&a))).await.is_some();
        assert_eq!(place.set_to(&a).await, "a\n", "after {times} polls");
        if is_done {
            break;
        }
    }
}

/// A connection that is made anew in the place of a broken one is set anew.
async fn a_connection_that_was_replaced_is_set_again() {
    let Some(place) = Place::new().await else { return };
    place.fill(&["a"]).await;
    let a = tenant("a");
    let mut replaced = 0;
    for _ in 0..3 {
        let connection = place.store.scope(Tenants::One(&a)).await.unwrap();
        let before: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await.unwrap();
        assert!(place.asks(&format!("SELECT pg_terminate_backend({before})")).await);
        let found = loop {
            let Ok(connection) = place.store.scope(Tenants::One(&a)).await else { continue };
            let found: Result<(i32, i64), _> =
                sqlx::query_as("SELECT pg_backend_pid(), count(*) FROM tools").fetch_one(connection).await;
            if let Ok(found) = found {
                break found;
            }
        };
        assert_eq!(found.1, 1, "its rows are seen");
        replaced += i32::from(found.0 != before);
    }
    assert_eq!(replaced, 3);
}

/// The versions before the wall say nothing and see everything, until the database is closed to them. Behind a closed
/// wall the service works, and a person at a prompt sees nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_see_everything_until_the_database_is_closed() {
    let Some(url) = postgres::fresh_database() else { return };
    let server = Server::start(Options { database_url: Some(url.clone()), ..Options::default() });
    assert!(!server.log().contains("BYPASSRLS"), "{}", server.log());
    let api = Api::of(&server, "t");
    external(&api).await;
    api.intent(&bodies::claiming("before", TOOL)).await.expect(201).directive("dispatch");
    let mut older = PgConnection::connect(&url).await.unwrap();
    assert_eq!(seen(&mut older, "tools").await, ["t"]);
    assert_eq!(touched(&mut older, "UPDATE tools SET paused = paused".to_owned()).await, 1);
    // Once set and set back it is as if it had never been: poolers hand such sessions on.
    sqlx::raw_sql("SET actonce.tenants = 'x'; RESET ALL").execute(&mut older).await.unwrap();
    assert_eq!(seen(&mut older, "tools").await, ["t"]);

    let Some(admin) = postgres::as_admin(&url) else { return };
    let database = url.rsplit('/').next().unwrap().to_owned();
    let close = format!("ALTER DATABASE {database} SET actonce.tenants = 'nobody'");
    blocking(move || postgres::run(&admin, &close)).await;
    let mut older = PgConnection::connect(&url).await.unwrap();
    assert!(seen(&mut older, "tools").await.is_empty());
    let replica = server.replica();
    let granted = api.at(&replica).intent(&bodies::claiming("after", TOOL)).await.expect(201).directive("dispatch");
    api.at(&replica).outcome("after", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.at(&replica).get("before").await.expect(200).state("dispatched");
    drop(replica);
    crate::scenarios::intact(&server);
}

/// No policy holds a superuser: the service says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_no_policy_holds_is_warned_of() {
    let Some(admin) = postgres::fresh_database().as_deref().and_then(postgres::as_admin) else { return };
    let server = Server::start(Options { database_url: Some(admin), ..Options::default() });
    assert!(server.log().contains("BYPASSRLS"), "{}", server.log());
    let api = Api::of(&server, "t");
    external(&api).await;
    api.intent(&bodies::claiming("one", TOOL)).await.expect(201).directive("dispatch");
}

/// Where every tenant's rows are asked for. A new place belongs into this list, with a purpose.
#[test]
fn all_tenants_are_asked_for_in_few_places() {
    let expected = [
        ("Address", "receipts.rs", 1),
        ("Checkpoints", "checkpoints.rs", 2),
        ("Deliveries", "subscriptions.rs", 4),
        ("Doubts", "doubts.rs", 1),
        ("FeedOrigin", "feed.rs", 2),
        ("Health", "health.rs", 1),
        ("Inspection", "inspect.rs", 1),
        ("Migration", "connect.rs", 3),
        ("Overdue", "operators.rs", 1),
        ("Recovery", "recovery.rs", 1),
        ("Restore", "restore.rs", 1),
        ("Retention", "retention.rs", 1),
        ("Rotation", "seals.rs", 1),
        ("Sweep", "query.rs", 3),
        ("Sweep", "receipts.rs", 3),
        ("Verification", "audit.rs", 1),
        ("Verification", "checkpoints.rs", 1),
        ("Verification", "query.rs", 1),
    ];
    let mut found = std::collections::BTreeMap::<(String, String), usize>::new();
    for path in crate::support::rust_files("src/store/postgres") {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for rest in code.split("Purpose::").skip(1) {
            let purpose: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            *found.entry((purpose, file.clone())).or_default() += 1;
        }
    }
    let found: Vec<_> = found.iter().map(|((purpose, file), n)| (purpose.as_str(), file.as_str(), *n)).collect();
    assert_eq!(found, expected);
}

/// What a connection is set to twice in a row costs nothing the second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_set_already_is_not_asked_again() {
    let Some(place) = Place::new().await else { return };
    let (a, b) = (tenant("a"), tenant("b"));
    // Behind the store's back: what it does not send is not put right.
    let spoil = "SELECT set_config('actonce.tenants', 'spoiled', false)";
    let connection = place.store.scope(Tenants::One(&a)).await.unwrap();
    sqlx::raw_sql(spoil).execute(connection).await.unwrap();
    assert_eq!(place.set_to(&a).await, "spoiled");
    assert_eq!(place.set_to(&b).await, "b\n");
    assert_eq!(place.set_to(&a).await, "a\n");
}

/// Two seats and two tenants: each finds the connection that is set to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_gets_the_connection_that_is_set_to_it() {
    let Some(place) = Place::new().await else { return };
    let store = PostgresStore::connect(&address(&place.url), true, 3).await.unwrap();
    let mut of = std::collections::BTreeMap::<&str, BTreeSet<i32>>::new();
    // Both at once: otherwise the second finds the first one's connection free.
    let (a, b) = (tenant("a"), tenant("b"));
    let both = (store.scope(Tenants::One(&a)).await.unwrap(), store.scope(Tenants::One(&b)).await.unwrap());
    drop(both);
    // Dropped without a statement, they are asked whether they are at rest before they come back.
    let in_use = || store.pools().iter().map(|pool| pool.in_use).sum::<u32>();
    let since = std::time::Instant::now();
    while in_use() > 0 {
        assert!(since.elapsed() < Duration::from_secs(10), "they come back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for round in 0..10 {
        for named in ["a", "b"] {
            let tenant = tenant(named);
            let connection = store.scope(Tenants::One(&tenant)).await.unwrap();
            let session = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await.unwrap();
            if round > 0 {
                of.entry(named).or_default().insert(session);
            }
        }
    }
    assert!(of["a"].len() == 1 && of["b"].len() == 1 && of["a"] != of["b"], "{of:?}");
    let keys: [EffectKey; 0] = [];
    assert!(store.load(&keys).await.unwrap().is_empty(), "no tenants at all");
}

/// Every test of this suite stands behind the wall: what the store itself has, the others have too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tests_stand_behind_the_wall() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let bed = Bed::new(StoreUnderTest::Postgres).await;
    assert_eq!(bed.count("SELECT row_security_active('entries')::int").await, 1);
}
