//! Versions: what the program says to a schema that is not its own (docs/upgrade.md). What is accepted is
//! tested with the store; here are the exit codes, and two versions side by side.

use std::process::Output;

use actonce::store::migrate::LATEST;

use crate::http::{TOOL, external};
use crate::store::bed::Bed;
use crate::support::server::program;
use crate::support::{Api, Options, Server, StoreUnderTest, blocking, bodies, both_stores, unique};

both_stores!(a_schema_that_is_not_ours_ends_every_command_with_exit_code_2);

/// Notes a migration that a newer program would have made.
fn newer(name: &str) -> String {
    format!(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         SELECT {}, '{name}', success, checksum, execution_time FROM _sqlx_migrations WHERE version = {LATEST}",
        LATEST + 1
    )
}

async fn run(url: &str, words: &'static [&'static str]) -> (Option<i32>, String) {
    let url = url.to_owned();
    let output: Output = blocking(move || {
        let data = std::env::temp_dir().join(unique("actonce-upgrade"));
        let output = program().args(words).arg("--data-dir").arg(&data).env("DATABASE_URL", url).output().unwrap();
        drop(std::fs::remove_dir_all(data));
        output
    })
    .await;
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

const SERVE: &[&str] = &["serve", "--dev", "--listen", "127.0.0.1:0"];

async fn a_schema_that_is_not_ours_ends_every_command_with_exit_code_2(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    bed.store.close().await;
    let url = bed.url();
    bed.execute(&newer("contract_x")).await;
    for words in [SERVE, &["migrate"], &["journal", "verify"]] {
        let (code, said) = run(&url, words).await;
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(
            said.contains(&format!("schema {}", LATEST + 1)) && said.contains("newer program"),
            "{words:?}: {said}"
        );
    }
    // Older than the program: what only looks refuses, and says what to do.
    bed.execute(&format!("DELETE FROM _sqlx_migrations WHERE version >= {LATEST}")).await;
    let (code, said) = run(&url, &["journal", "verify"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("no migration {LATEST}")) && said.contains("migrate it first"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_program_works_on_and_starts_again_beside_an_expanded_schema() {
    let Some(url) = crate::support::postgres::fresh_database() else { return };
    let server = Server::start(Options { database_url: Some(url.clone()), ..Options::default() });
    let api = Api::of(&server, "t");
    external(&api).await;
    // The newer version's migration: more, and nothing less.
    let sql = format!("ALTER TABLE open_effects ADD COLUMN from_the_future text; {}", newer("expand_future"));
    let at = url.clone();
    blocking(move || crate::support::postgres::run(&at, &sql)).await;
    let granted = api.intent(&bodies::claiming("one", TOOL)).await.expect(201).directive("dispatch");
    api.outcome("one", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    let beside = server.replica();
    assert!(beside.log().contains("the schema is newer"), "{}", beside.log());
    api.at(&beside).get("one").await.expect(200).directive("replay");
    assert_eq!(run(&url, &["migrate"]).await.0, Some(0));
    // Rolled back: the older one starts again.
    assert!(server.stop().success());
    server.restart();
    api.at(&server).intent(&bodies::claiming("two", TOOL)).await.expect(201).directive("dispatch");
    crate::scenarios::intact(&server);
}
