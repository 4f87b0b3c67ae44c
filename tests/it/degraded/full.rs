//! No room: what is acknowledged is there, what is not is not half there, and when there is room again all goes on.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{metric, readiness, unavailable};
use crate::http::{TOOL, external, until_decided};
use crate::scenarios::outage::Cluster;
use crate::scenarios::{intact, sql};
use crate::support::{Api, Options, Server, StoreUnderTest, blocking, bodies, postgres, unique};

/// Takes all room away, or gives it back.
trait Room: Send + Sync + 'static {
    fn take(&self, server: &Server);
    fn give(&self, server: &Server);
    /// Whether there is no room for anything at all, and not only for no more pages.
    fn is_strict(&self) -> bool;
}

async fn is_told_and_recovers(server: Server, room: impl Room) {
    let (server, room) = (Arc::new(server), Arc::new(room));
    let api = Api::of(&server, "t");
    external(&api).await;
    let granted = api.intent(&bodies::claiming("before", TOOL)).await.expect(201).directive("dispatch");
    let short = bodies::set(bodies::claiming("short", TOOL), "/claim/lease_seconds", json!(1));
    api.intent(&short).await.expect(201).directive("dispatch");
    {
        let (server, room) = (Arc::clone(&server), Arc::clone(&room));
        blocking(move || room.take(&server)).await;
    }
    // What still found room was acknowledged, and has to be there in the end.
    let mut told = 0;
    let during = |n: usize| bodies::claiming(&format!("during-{n}"), TOOL);
    while api.intent(&during(told)).await.status == 201 {
        told += 1;
        assert!(told < 5_000, "there is still room");
    }
    readiness(&api, 503).await;
    for _ in 0..3 {
        unavailable(api.intent(&during(told)).await);
        api.get(&format!("during-{told}")).await.problem(404, "not-found");
        let reported = api.outcome("before", &bodies::succeeded(&granted)).await;
        if room.is_strict() || reported.status != 200 {
            unavailable(reported);
            // The doubt about an act that nobody could report stays to be seen, and nobody acts again.
            api.get("before").await.expect(200).state("dispatched").directive("wait");
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = api.dispatch("short", &bodies::claim()).await;
    assert!(other.status == 503 || other.json["directive"] != "dispatch", "{other}");
    assert!(metric(&api, "actonce_store_takes_writes").await < 0.5);
    readiness(&api, 503).await;

    {
        let (server, room) = (Arc::clone(&server), Arc::clone(&room));
        blocking(move || room.give(&server)).await;
    }
    // Nobody has to send a change first.
    readiness(&api, 200).await;
    assert!(metric(&api, "actonce_store_takes_writes").await > 0.5);
    api.outcome("before", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.intent(&during(told)).await.expect(201).directive("dispatch");
    until_decided(&api, "short").await.state("outcome_unknown").directive("reconcile");
    for n in 0..=told {
        assert_eq!(api.get(&format!("during-{n}")).await.expect(200).state("dispatched").revision(), 1);
    }
    let report = intact(&server);
    assert_eq!(report["effects"].as_u64(), u64::try_from(3 + told).ok(), "{report:#}");
}

/// Postgres says `disk_full` to every entry: the very error of a server without room, wherever it runs.
struct Refused;

impl Room for Refused {
    fn take(&self, server: &Server) {
        sql(
            server,
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
             CREATE TRIGGER no_room BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION no_room()",
        );
    }

    fn give(&self, server: &Server) {
        sql(server, "DROP TRIGGER no_room ON entries");
    }

    fn is_strict(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_that_says_disk_full() {
    if StoreUnderTest::has_postgres() {
        is_told_and_recovers(StoreUnderTest::Postgres.server(Options::default()), Refused).await;
    }
}

/// A small file system of its own. Gone when dropped.
struct Disk {
    folder: PathBuf,
    strict: bool,
}

impl Disk {
    /// `None`, and a word about it, where nothing can be mounted.
    fn of(size: &str, strict: bool) -> Option<Self> {
        let folder = std::env::temp_dir().join(unique("actonce-disk"));
        fs::create_dir_all(&folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&folder);
        if mount.output().is_ok_and(|done| done.status.success()) {
            return Some(Self { folder, strict });
        }
        fs::remove_dir(&folder).unwrap();
        eprintln!("SKIPPED: a disk that is full, as nothing can be mounted here (that needs root)");
        None
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.folder).output());
        drop(fs::remove_dir(&self.folder));
    }
}

impl Room for Disk {
    fn take(&self, _: &Server) {
        let full = Command::new("dd").args(["if=/dev/zero", "bs=4k"]).arg(of(&self.ballast())).output().unwrap();
        assert!(!full.status.success(), "the disk takes everything");
    }

    fn give(&self, _: &Server) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn is_strict(&self) -> bool {
        self.strict
    }
}

fn of(file: &Path) -> String {
    format!("of={}", file.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_on_a_full_disk() {
    let Some(disk) = Disk::of("12m", true) else { return };
    let server = Server::start(Options::default().data_dir(&disk.folder.join("data")));
    is_told_and_recovers(server, disk).await;
}

/// All tables and indexes of the database are on a disk without room. Its log is elsewhere: without room for that the
/// server ends, which is `scenarios::outage`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_on_a_full_disk() {
    // A server of its own: one that loses a disk is of no use to the other tests.
    if !StoreUnderTest::has_postgres() || !Cluster::script().arg("bin").output().unwrap().status.success() {
        eprintln!("SKIPPED: a disk of Postgres that is full, as there are no Postgres binaries");
        return;
    }
    let Some(disk) = Disk::of("64m", false) else { return };
    let folder = disk.folder.join("space");
    fs::create_dir(&folder).unwrap();
    let cluster = Arc::new(Cluster::new());
    let made = Arc::clone(&cluster);
    let url = blocking(move || {
        let url = made.start(true);
        let admin = postgres::as_admin(&url).unwrap();
        let owner = fs::metadata(made.dir.join("data")).unwrap();
        chown(&folder, Some(owner.uid()), Some(owner.gid())).unwrap();
        postgres::run(&admin, &format!("CREATE TABLESPACE small LOCATION '{}'", folder.display()));
        postgres::run(&admin, "CREATE DATABASE small TABLESPACE small OWNER actonce");
        url
    })
    .await;
    let url = format!("{}/small", url.rsplit_once('/').unwrap().0);
    is_told_and_recovers(Server::start(Options { database_url: Some(url), ..Options::default() }), disk).await;
    drop(cluster);
}
