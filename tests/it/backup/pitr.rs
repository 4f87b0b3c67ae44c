//! Postgres restored to a point in time: a base backup, the archive of the log, and a second cluster
//! (docs/backup.md). What came after the point is lost, and nobody acts twice for that.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::flow::{act, fenced_off, goes_on, nobody_is_told_to_act, prepare};
use super::{binary, restore_epoch, succeed};
use crate::scenarios::outage::Cluster;
use crate::scenarios::{count, intact, sql};
use crate::support::downstream::{Downstream, Mode};
use crate::support::{Api, Options, Server, StoreUnderTest, blocking, bodies, postgres};

/// The name of the point that is restored to.
const POINT: &str = "before_the_mistake";

/// A cluster as its superuser: nobody else sets it up, copies it, or names a point in its log.
fn started(cluster: &Cluster, fast: bool) -> String {
    postgres::as_admin(&cluster.start(fast)).expect("a private cluster")
}

/// A cluster that keeps every finished piece of its log in `archive`.
fn archiving(cluster: &Cluster) -> String {
    let url = started(cluster, true);
    let archive = cluster.dir.join("archive");
    // The server makes the folder itself, as it runs as somebody else here.
    let command = format!("mkdir -p {archive} && cp %p {archive}/%f", archive = archive.display());
    postgres::run(&url, "ALTER SYSTEM SET archive_mode = on");
    postgres::run(&url, &format!("ALTER SYSTEM SET archive_command = '{command}'"));
    cluster.crash();
    assert_eq!(started(cluster, false), url);
    url
}

/// `pg_basebackup` into the folder of another cluster.
fn base_backup(from: &Cluster, url: &str, to: &Cluster) {
    std::fs::create_dir_all(&to.dir).unwrap();
    // What scripts/postgres makes first in a folder of its own.
    for made in [".actonce-postgres", "role"] {
        std::fs::write(to.dir.join(made), "").unwrap();
    }
    let mut backup = Command::new(binary("pg_basebackup"));
    backup.args(["--checkpoint=fast", "--wal-method=none", "--no-manifest", "--dbname", url, "--pgdata"]);
    succeed(&backup.arg(to.dir.join("data")).output().unwrap());
    let archive = from.dir.join("archive");
    let settings = format!(
        "restore_command = 'cp {}/%f %p'\nrecovery_target_name = '{POINT}'\nrecovery_target_action = 'promote'\n\
         archive_mode = off\n",
        archive.display()
    );
    let file = to.dir.join("data/postgresql.auto.conf");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + &settings).unwrap();
    std::fs::write(to.dir.join("data/recovery.signal"), "").unwrap();
    let same_owner = |path: &Path| {
        let like = format!("--reference={}", from.dir.join("data").display());
        succeed(&Command::new("chown").args(["-R", &like]).arg(path).output().unwrap());
    };
    same_owner(&to.dir);
}

/// Waits until everything written so far is in the archive.
fn archived(server: &Server) {
    let place = count(server, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8 - 1");
    sql(server, "SELECT pg_switch_wal()");
    let done = format!(
        "SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name = pg_walfile_name('0/0'::pg_lsn + {place}) || '.done'"
    );
    let until = Instant::now() + Duration::from_secs(30);
    while count(server, &done) == 0 {
        assert!(Instant::now() < until, "the log is not archived");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A service on the second cluster, with the keys of the first one's.
fn options_on(server: &Server, url: String) -> Options {
    let folder = server.data_dir().with_file_name("restored");
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(server.data_dir()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    Options { database_url: Some(url), ..Options::default() }.data_dir(&folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_restored_to_a_point_goes_on_and_nobody_acts_twice() {
    if !StoreUnderTest::has_postgres() || !Cluster::script().arg("bin").output().unwrap().status.success() {
        eprintln!("SKIPPED: a restore to a point in time, as there are no Postgres binaries");
        return;
    }
    let (first, second) = (Arc::new(Cluster::new()), Arc::new(Cluster::new()));
    let made = Arc::clone(&first);
    let url = blocking(move || archiving(&made)).await;
    let server = Arc::new(Server::start(Options { database_url: Some(url.clone()), ..Options::default() }));
    let (api, downstream) = (Api::of(&server, "t"), Downstream::start(Mode::Normal).await);
    let before = prepare(&server, &api, &downstream).await;
    let (from, to, source) = (Arc::clone(&first), Arc::clone(&second), url.clone());
    blocking(move || base_backup(&from, &source, &to)).await;
    // After the backup and before the point: only the archive has it.
    for n in 0..5 {
        act(&api, &downstream, &format!("archived-{n}")).await;
    }
    sql(&server, &format!("SELECT pg_create_restore_point('{POINT}')"));
    // After the point: all of this will be lost.
    let lost = act(&api, &downstream, "lost").await;
    for operation in ["prepared", "retried", "approved"] {
        api.dispatch(operation, &bodies::claim()).await.expect(200).directive("dispatch");
        downstream.act(operation).await.unwrap();
    }
    let (gone, dead) = (Arc::clone(&server), Arc::clone(&first));
    blocking(move || {
        archived(&gone);
        gone.kill9();
        dead.crash();
    })
    .await;

    let restored = Arc::clone(&second);
    let options = options_on(&server, blocking(move || started(&restored, true)).await);
    let until = Instant::now() + Duration::from_secs(30);
    let asked = options.clone();
    blocking(move || {
        while restore_epoch(&asked, "pitr-1").0 != 0 {
            // It is still a standby for a moment, which takes no writes.
            assert!(Instant::now() < until, "{:?}", restore_epoch(&asked, "pitr-1"));
            std::thread::sleep(Duration::from_millis(100));
        }
    })
    .await;
    let copy = Server::start(options);
    let api = api.at(&copy);
    let again = api.intent(&bodies::claiming("settled", crate::http::TOOL)).await.expect(200).directive("replay");
    assert_eq!(again.text, before.settled.text, "byte for byte");
    for n in 0..5 {
        let operation = format!("archived-{n}");
        api.intent(&bodies::claiming(&operation, crate::http::TOOL)).await.expect(200).directive("replay");
        assert_eq!(downstream.commits(&operation), 1);
    }
    fenced_off(&api, &before).await;
    nobody_is_told_to_act(&api, &downstream, &lost).await;
    goes_on(&api, &downstream).await;
    assert_eq!(intact(&copy)["restores"][0]["epoch_id"], json!("pitr-1"));
}
