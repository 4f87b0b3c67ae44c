//! The exit codes of `actonce journal verify`: 0 intact, 1 damaged, 2 nobody can say.

use std::process::Output;

use serde_json::Value;

use super::Journals;
use crate::store::bed::Bed;
use crate::support::server::program;
use crate::support::{StoreUnderTest, blocking, both_stores};

both_stores!(the_exit_code_says_whether_all_holds);

pub(super) async fn run(url: String) -> (i32, Output) {
    let output =
        blocking(move || program().args(["journal", "verify"]).env("DATABASE_URL", url).output().unwrap()).await;
    (output.status.code().unwrap(), output)
}

async fn the_exit_code_says_whether_all_holds(store: StoreUnderTest) {
    let journals = Journals::in_bed(Bed::new(store).await).await;
    let (code, output) = run(journals.bed.url()).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (code, &report["effects"], &report["entries"], &report["damaged"]),
        (0, &9.into(), &26.into(), &0.into())
    );

    journals.spoil("UPDATE entries SET life = '{\"password\":\"hunter2\"}'", &journals.settled, 3).await;
    journals.spoil("DELETE FROM entries", &journals.open, 4).await;
    let (code, output) = run(journals.bed.url()).await;
    assert_eq!(code, 1);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["damaged"], 2);
    let found = |effect: uuid::Uuid| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|found| found["effect"] == effect.to_string()).unwrap().clone()
    };
    assert_eq!(found(journals.settled.effect)["damage"], "edited");
    assert_eq!(found(journals.settled.effect)["tenant"], "tenant");
    assert_eq!(found(journals.open.effect)["damage"], "truncated");
    let printed = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&printed).contains("hunter2"), "a report shows no content");

    journals
        .bed
        .execute("UPDATE _sqlx_migrations SET version = 99 WHERE version = (SELECT max(version) FROM _sqlx_migrations)")
        .await;
    let (code, output) = run(journals.bed.url()).await;
    assert_eq!((code, output.stdout.len()), (2, 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("newer program"));
}

#[tokio::test]
async fn a_database_that_is_not_there_is_no_intact_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.db");
    for url in
        [format!("sqlite:{}", path.display()), "postgres://nobody@127.0.0.1:1/none".to_owned(), "mysql:x".to_owned()]
    {
        let (code, output) = run(url).await;
        assert_eq!((code, output.stdout.len()), (2, 0));
        assert!(!output.stderr.is_empty());
    }
    assert!(!path.exists(), "looking makes no database");
}
