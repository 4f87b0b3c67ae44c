//! Two processes on one database whose wall clocks and writers disagree.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

use super::{Dice, crowd, intact};
use crate::http::{TOOL, external};
use crate::support::downstream::{Downstream, Mode};
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies};

/// Where libfaketime is, which gives a process another wall clock.
fn faketime() -> Option<PathBuf> {
    let named = std::env::var_os("FAKETIME_LIB").map(PathBuf::from);
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|folder| folder.path());
    let folders = folders.chain([Path::new("/usr/lib").to_owned(), Path::new("/usr/local/lib").to_owned()]);
    let found = named.into_iter().chain(folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")));
    let found = found.into_iter().find(|file| file.exists());
    if found.is_none() {
        assert_ne!(
            std::env::var("CI").as_deref(),
            Ok("true"),
            "libfaketime is missing: install it, or set FAKETIME_LIB"
        );
        eprintln!(
            "SKIPPED: replicas with other wall clocks, as there is no libfaketime; install it, or set FAKETIME_LIB"
        );
    }
    found
}

fn time_at(answer: &Answer, pointer: &str) -> OffsetDateTime {
    OffsetDateTime::parse(answer.str(pointer), &Rfc3339).unwrap()
}

fn apart(one: OffsetDateTime, other: OffsetDateTime) -> f64 {
    (one - other).as_seconds_f64().abs()
}

/// The wall clock of the process that answered.
fn wall_clock(answer: &Answer) -> OffsetDateTime {
    OffsetDateTime::parse(&answer.header("date").unwrap().replace("GMT", "+0000"), &Rfc2822).unwrap()
}

fn skewed(library: &Path, by: &str) -> Options {
    Options::default()
        .env("LD_PRELOAD", library.to_str().unwrap())
        .env("FAKETIME", by)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wall_clocks_of_replicas_decide_nothing() {
    let Some(library) = StoreUnderTest::has_postgres().then(faketime).flatten() else { return };
    let true_time = StoreUnderTest::Postgres.server(Options::default());
    let other = |by: &str| {
        let options = skewed(&library, by).data_dir(true_time.data_dir());
        crate::support::Server::start(Options { database_url: true_time.database_url().map(str::to_owned), ..options })
    };
    let (ahead, behind) = (other("+300s"), other("-300s"));
    let (a, b, c) = (Api::of(&ahead, "t"), Api::of(&behind, "t"), Api::of(&true_time, "t"));
    let (late, early) = (wall_clock(&a.read("/livez").await), wall_clock(&b.read("/livez").await));
    assert!((apart(late, early) - 600.0).abs() < 30.0, "the clocks are not skewed: {late} and {early}");
    external(&c).await;
    let lease =
        |id: &str, seconds: u32| bodies::set(bodies::claiming(id, TOOL), "/claim/lease_seconds", json!(seconds));

    // The same moment has one time, whoever is asked.
    let started = Instant::now();
    let mut ends = Vec::new();
    for (n, api) in [&a, &b, &c].into_iter().enumerate() {
        let granted = api.intent(&lease(&format!("long-{n}"), 60)).await.expect(201).directive("dispatch");
        ends.push((granted.clone(), api));
    }
    let took = started.elapsed().as_secs_f64();
    for (granted, _) in &ends {
        let end = time_at(granted, "/dispatch/lease_expires_at");
        let first = time_at(&ends[0].0, "/dispatch/lease_expires_at");
        assert!(apart(end, first) < 1.0 + took, "{first} and {end}");
        let created = time_at(granted, "/created_at");
        assert!(apart(end, created + Duration::from_mins(1)) < 1.0, "{granted}");
        for reader in [&a, &b, &c] {
            let read = reader.get(granted.str("/operation_id")).await.state("dispatched").directive("wait");
            assert!(apart(time_at(&read, "/dispatch/lease_expires_at"), end) < 1.0, "{granted}\n{read}");
        }
    }

    // A short lease ends by the database's time, not sooner and not much later, on either side.
    for (n, (granter, reader)) in [(&a, &b), (&b, &a), (&c, &a), (&c, &b)].into_iter().enumerate() {
        let id = format!("short-{n}");
        let before = Instant::now();
        let granted = granter.intent(&lease(&id, 2)).await.expect(201).directive("dispatch");
        reader.get(&id).await.state("dispatched").directive("wait");
        reader.heartbeat(&id, &bodies::heartbeat(&granted)).await.expect(200);
        reader.dispatch(&id, &bodies::claim()).await.expect(200).directive("wait");
        let waited = reader.call("GET", &format!("/api/effects/{id}")).header("prefer", "wait=30").send().await;
        waited.expect(200).state("outcome_unknown").directive("reconcile");
        let took = before.elapsed();
        assert!(took >= Duration::from_secs(2), "a live lease was ended after {took:?}");
        assert!(took < Duration::from_secs(12), "a lease of 2 s lasted {took:?}");
        granter.heartbeat(&id, &bodies::heartbeat(&granted)).await.problem(409, "lease-lost");
        granter.get(&id).await.state("outcome_unknown");
    }

    // All three have swept meanwhile; what is alive is alive, and its owner may report to any.
    for ((granted, _), reporter) in ends.iter().zip([&b, &c, &a]) {
        let id = granted.str("/operation_id");
        for api in [&a, &b, &c] {
            api.get(id).await.state("dispatched").directive("wait");
            let renewed = api.heartbeat(id, &bodies::heartbeat(granted)).await.expect(200);
            assert!(renewed.str("/lease_expires_at") >= granted.str("/dispatch/lease_expires_at"), "{renewed}");
        }
        reporter.outcome(id, &bodies::succeeded(granted)).await.expect(200).state("completed");
        let times: Vec<Value> = a.journal(id).await.iter().map(|entry| entry["at"].clone()).collect();
        assert!(times.iter().map(Value::to_string).is_sorted(), "a journal does not run backwards: {times:?}");
    }
    intact(&true_time);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_on_two_replicas_lose_no_entry() {
    const WRITERS: usize = 64;
    const IDS: u64 = 60;
    const STEPS: usize = 12;
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let one = StoreUnderTest::Postgres.server(Options::default());
    let two = one.replica();
    let apis = [Api::of(&one, "t"), Api::of(&two, "t")];
    external(&apis[0]).await;
    let downstream = &Downstream::start(Mode::Normal).await;
    let (apis, keys) = (&apis, &std::sync::Mutex::new(Vec::new()));
    let writers = (0..2 * WRITERS).map(|number| async move {
        let mut dice = Dice::new(u64::try_from(number + 1).unwrap());
        let mut told = Vec::new();
        let mut tell = |answer: Answer| {
            assert!(answer.status.as_u16() < 500, "{answer}");
            if answer.status.is_success() {
                told.push((answer.str("/operation_id").to_owned(), answer.revision(), answer.status == 201));
            }
            answer
        };
        for _ in 0..STEPS {
            let id = format!("op-{}", dice.roll(IDS));
            // A writer talks to both, mostly to its own.
            let api = &apis[(number + usize::from(dice.roll(4) == 0)) % 2];
            let answer = tell(match dice.roll(5) {
                0 => api.intent(&bodies::intent(&id, TOOL)).await,
                1 => api.dispatch(&id, &bodies::claim()).await,
                2 if dice.roll(6) == 0 => api.cancel(&id).await,
                _ => api.intent(&bodies::claiming(&id, TOOL)).await,
            });
            if answer.json["directive"] != "dispatch" {
                continue;
            }
            if dice.roll(3) > 0 {
                tell(api.outcome(&id, &bodies::not_sent(&answer)).await);
                continue;
            }
            let key = answer.str("/dispatch/idempotency_key");
            keys.lock().unwrap().push(key.to_owned());
            downstream.act(key).await.unwrap();
            tell(apis[number % 2].outcome(&id, &bodies::succeeded(&answer)).await);
        }
        told
    });
    let told: Vec<(String, u64, bool)> = crowd(2 * WRITERS, writers).await.into_iter().flatten().collect();
    let effects = apis[1].pages("/api/effects?limit=200").await;
    let (mut entries, mut acted) = (0, 0);
    for effect in &effects {
        let (id, revision) = (effect["operation_id"].as_str().unwrap(), effect["revision"].as_u64().unwrap());
        let journal = apis[0].journal(id).await;
        let revisions: Vec<u64> = journal.iter().map(|entry| entry["revision"].as_u64().unwrap()).collect();
        assert_eq!(revisions, (1..=revision).collect::<Vec<_>>(), "{id}");
        let events = apis[1].events(id).await;
        assert_eq!(events.iter().filter(|event| *event == "effect.proposed").count(), 1, "{id}: {events:?}");
        let created = told.iter().filter(|(told, _, created)| told == id && *created).count();
        assert_eq!(created, 1, "{id} was new to one caller alone");
        let newest = told.iter().filter(|(told, ..)| told == id).map(|(_, revision, _)| *revision).max();
        assert!(newest <= Some(revision), "{id}: {newest:?} was answered, {revision} is there");
        entries += revision;
        acted += u32::from(effect["state"] == "completed");
    }
    assert!(told.iter().all(|(told, ..)| effects.iter().any(|effect| effect["operation_id"] == told.as_str())));
    let (report, count) = (intact(&one), u64::try_from(effects.len()).unwrap());
    assert_eq!((report["effects"].as_u64(), report["entries"].as_u64()), (Some(count), Some(entries)));
    assert!(entries > 2 * count, "the writers met: {entries} entries");
    // Cancelled in the act, its late receipt completes it all the same; nothing acted twice.
    assert!(downstream.total() >= acted, "{acted} completed, {} acted", downstream.total());
    let keys = keys.lock().unwrap();
    assert!(keys.iter().all(|key| downstream.commits(key) == 1), "{keys:?}");
}
