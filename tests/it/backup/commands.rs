//! The commands by themselves: what they refuse, and that a repeat changes nothing.

use std::process::Command;

use serde_json::json;

use super::{back_up, put_back, restore_epoch};
use crate::http::{TOOL, external};
use crate::scenarios::{count, entries, intact, sql};
use crate::support::server::program;
use crate::support::{Api, Options, Server, StoreUnderTest, blocking, bodies, both_stores};

both_stores!(
    a_restore_is_refused_beside_a_service_and_its_repeat_changes_nothing,
    no_service_starts_before_a_restore_has_ended,
    a_row_that_cannot_be_read_back_is_named_and_blocks_no_other,
);

async fn dispatched(api: &Api, operations: usize) {
    external(api).await;
    for n in 0..operations {
        api.intent(&bodies::claiming(&format!("op-{n}"), TOOL)).await.expect(201).directive("dispatch");
    }
}

/// A restored database without its epoch, and the options of a service on it.
async fn restored(store: StoreUnderTest, operations: usize) -> Options {
    let server = store.server(Options::default());
    dispatched(&Api::of(&server, "t"), operations).await;
    blocking(move || {
        let backup = back_up(&server, "backup");
        server.kill9();
        put_back(&server, &backup, "restored")
    })
    .await
}

async fn a_restore_is_refused_beside_a_service_and_its_repeat_changes_nothing(store: StoreUnderTest) {
    let options = restored(store, 3).await;
    let server = Server::start(options.clone());
    let before = entries(&server);
    let (code, report, told) = restore_epoch(&options, "one");
    assert_eq!((code, report), (3, json!(null)), "{told}");
    assert_eq!((entries(&server), count(&server, "SELECT count(*) FROM restore_epochs")), (before, 0));
    server.stop();

    let (code, first, told) = restore_epoch(&options, "one");
    assert_eq!((code, &first["effects"], &first["repeated"]), (0, &json!(3), &json!(false)), "{told}");
    assert_eq!(entries(&server), before + 3);
    server.restart();
    let api = Api::of(&server, "t");
    api.resume(TOOL).await.expect(200);
    let granted = api.intent(&bodies::claiming("after", TOOL)).await.expect(201).directive("dispatch");
    server.stop();
    // The same name again is the same restore: what came after it is no part of it.
    let (code, again, _) = restore_epoch(&options, "one");
    assert_eq!((code, &again["repeated"], &again["effects"]), (0, &json!(true), &json!(3)));
    server.restart();
    let api = api.at(&server);
    api.heartbeat("after", &bodies::heartbeat(&granted)).await.expect(200);
    api.intent(&bodies::claiming("more", TOOL)).await.expect(201).directive("dispatch");
    server.stop();
    // Another one is another restore.
    let (code, second, _) = restore_epoch(&options, "two");
    assert_eq!((code, &second["epoch"], &second["effects"]), (0, &json!(2), &json!(5)));
    server.restart();
    let api = api.at(&server);
    api.heartbeat("after", &bodies::heartbeat(&granted)).await.problem(409, "lease-lost");
    assert_eq!(intact(&server)["restores"].as_array().unwrap().len(), 2);
}

async fn no_service_starts_before_a_restore_has_ended(store: StoreUnderTest) {
    let options = restored(store, 2).await;
    let server = Server::start(options.clone());
    server.stop();
    assert_eq!(restore_epoch(&options, "one").0, 0);
    // As a crash in the middle leaves it: begun, one effect moved, one not.
    sql(&server, "UPDATE restore_epochs SET ended_us = NULL, effects = 0");
    let before = entries(&server);
    let failure = Server::try_start(options.clone()).expect_err("it starts");
    assert!(failure.contains("--epoch-id one"), "{failure}");
    let (code, _, told) = restore_epoch(&options, "two");
    assert!(code == 2 && told.contains("--epoch-id one"), "{code} {told}");
    let (code, report, _) = restore_epoch(&options, "one");
    assert_eq!((code, &report["effects"], &report["paused_tools"]), (0, &json!(2), &json!(1)));
    assert_eq!(entries(&server), before, "what was moved is not moved again");
    server.restart();
}

async fn a_row_that_cannot_be_read_back_is_named_and_blocks_no_other(store: StoreUnderTest) {
    let options = restored(store, 3).await;
    let server = Server::start(options.clone());
    server.stop();
    let effect = "(SELECT effect FROM open_effects ORDER BY effect LIMIT 1)";
    sql(&server, &format!("UPDATE entries SET life = 'x' WHERE effect = {effect}"));
    let (code, report, _) = restore_epoch(&options, "one");
    assert_eq!((code, &report["effects"], &report["unreadable"]), (1, &json!(2), &json!(1)));
    assert!(report["unreadable_effects"][0].as_str().unwrap().starts_with("t/"));
    server.restart();
}

#[tokio::test]
async fn a_backup_replaces_nothing_and_of_nothing_there_is_none() {
    let server = StoreUnderTest::Sqlite.server(Options::default());
    let run = |arguments: &[&str]| {
        let output = program().arg("backup").args(arguments).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let data = server.data_dir().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy.db");
    let file = file.to_str().unwrap();
    assert_eq!(run(&[file, "--data-dir", data]).0, 0);
    let bytes = std::fs::read(file).unwrap();
    let (code, told) = run(&[file, "--data-dir", data]);
    assert!(code == 2 && told.contains("not overwritten"), "{told}");
    assert_eq!(std::fs::read(file).unwrap(), bytes);
    let (code, told) = run(&["/nowhere/at/all.db", "--data-dir", data]);
    assert_eq!(code, 2, "{told}");
    let (code, told) = run(&[&format!("{file}.2"), "--data-dir", folder.path().to_str().unwrap()]);
    assert!(code == 2 && told.contains("no database"), "{told}");
    let (code, told) = run(&[&format!("{file}.2"), "--database-url", "postgres://nobody@127.0.0.1:1/none"]);
    assert!(code == 2 && told.contains("pg_dump"), "{told}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left of what failed");
}

/// What the wall hides is not left out of a dump: there is none. Asked for all tenants, the same role dumps everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_by_a_role_that_the_wall_holds_says_whose_rows_it_wants() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let server = StoreUnderTest::Postgres.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let dump = |whose: Option<&str>| {
        let mut command = Command::new(super::binary("pg_dump"));
        command.args(["--data-only", "--dbname", server.database_url().unwrap()]);
        if let Some(whose) = whose {
            command.arg("--enable-row-security").env("PGOPTIONS", format!("-c actonce.tenants={whose}"));
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let (is_made, _, told) = dump(None);
    assert!(!is_made && told.contains("row-level security"), "{told}");
    let (is_made, rows, told) = dump(Some("*"));
    assert!(is_made && rows.contains(TOOL), "{told}");
    let (is_made, rows, _) = dump(Some("nobody"));
    assert!(is_made && !rows.contains(TOOL), "which is why docs/backup.md says to do without");
}
