//! 64 writers and 10,000 entries: an intact journal is found intact, also while it grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actonce::domain::canonical::Sha256Digest;
use actonce::domain::command::{Command, Report, Resolve, ResolvedOutcome};
use actonce::domain::ids::EffectKey;
use actonce::engine::{AdHocTools, Engine};
use actonce::service::journal::verify;
use actonce::store::Store;
use tokio::task::JoinSet;

use crate::store::bed::Bed;
use crate::store::effects::{Maker, claim, contradiction, failure, name, owner, report, succeeded, tenant};
use crate::support::{StoreUnderTest, both_stores};

both_stores!(a_growing_journal_is_intact_at_every_look);

const WRITERS: u32 = 64;
const EFFECTS: u32 = 8;
const ENTRIES: u32 = 20;

/// One effect from its intent to a resolved contradiction, entry by entry.
async fn write(engine: &Engine, operation: &str, entries: u32) {
    let (tenant, me) = (tenant("tenant"), name("agent"));
    let key = EffectKey::of(&tenant, &name(operation));
    let maker = Maker::external("tenant", engine.clock().now());
    engine.propose(&tenant, &me, maker.proposal(operation)).await.unwrap();
    // Granted and never sent, again and again.
    for attempt in 0..(entries - 6) / 2 {
        let granted = engine.apply(&key, &me, claim(&format!("worker {attempt}"))).await.unwrap().record;
        let not_sent = report(owner(&granted), Report::NotSent(Some(failure(""))));
        engine.apply(&key, &me, not_sent).await.unwrap();
    }
    let mut record = engine.apply(&key, &me, claim("the last")).await.unwrap().record;
    record = engine.apply(&key, &me, succeeded(&record)).await.unwrap().record;
    let verification = crate::store::effects::verification(&record, true);
    record = engine.apply(&key, &me, Command::Verify(verification)).await.unwrap().record;
    assert!(engine.apply(&key, &me, contradiction(&record)).await.is_err(), "kept as evidence");
    let resolve = Resolve {
        expected_revision: entries - 1,
        decision_id: name("d-1"),
        outcome: ResolvedOutcome::Completed,
        reason: String::new(),
        evidence: "{\"ticket\":7}".into(),
        bulk_decision_id: None,
        digest: Sha256Digest::of(b"decision"),
    };
    record = engine.apply(&key, &me, Command::Resolve(resolve)).await.unwrap().record;
    assert_eq!(record.life.revision, entries);
}

async fn a_growing_journal_is_intact_at_every_look(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let mut lanes = JoinSet::new();
    let mut engines = Vec::new();
    // Two processes.
    for store in [Arc::clone(&bed.store), bed.another().await] {
        let ad_hoc = AdHocTools { all: true, tenants: Vec::new() };
        let (engine, loops) = Engine::start(store, ad_hoc, name("ad-hoc")).await.unwrap();
        for lane in loops {
            lanes.spawn(lane);
        }
        engines.push(engine);
    }
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let engine = Arc::clone(&engines[usize::try_from(number % 2).unwrap()]);
        writers.spawn(async move {
            for effect in 0..EFFECTS {
                write(&engine, &format!("operation {number} {effect}"), ENTRIES).await;
            }
        });
    }
    let done = Arc::new(AtomicBool::new(false));
    let looker = {
        let (store, done): (Arc<dyn Store>, _) = (bed.another().await, Arc::clone(&done));
        let mut looker = JoinSet::new();
        looker.spawn(async move {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                let report = verify(store.as_ref()).await.unwrap();
                assert_eq!(report.damaged, 0, "while it grows: {:?}", report.findings.first());
                looks += 1;
            }
            looks
        });
        looker
    };
    writers.join_all().await;
    done.store(true, Ordering::Relaxed);
    assert!(looker.join_all().await[0] > 2, "nobody looked while it grew");
    let report = verify(bed.store.as_ref()).await.unwrap();
    let effects = u64::from(WRITERS * EFFECTS);
    assert_eq!((report.effects, report.entries, report.damaged), (effects, effects * u64::from(ENTRIES), 0));
    assert!(report.entries > 10_000);
}
