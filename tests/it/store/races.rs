//! Many at once, through several stores on one database: one winner, and nothing of the losers.

use std::sync::Arc;

use actonce::domain::ids::EffectKey;
use actonce::domain::state::State;
use actonce::store::Committed::{self, Applied, Lost};
use actonce::store::{RevisionRow, Store, ToolWrite, ToolWritten};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::bed::{Bed, both_ways, revise};
use super::effects::{Maker, TOOL, contradiction, name, registration, succeeded};
use crate::support::StoreUnderTest;

both_ways!(
    one_of_64_creators_wins,
    one_of_64_changes_at_one_revision_wins,
    one_of_64_settlements_wins,
    one_of_64_notes_on_a_settled_effect_wins,
    one_of_64_changes_of_a_tool_wins,
    readers_see_whole_commits,
);

const MANY: usize = 64;

async fn stores(bed: &Bed) -> Vec<Arc<dyn Store>> {
    let mut stores = vec![Arc::clone(&bed.store)];
    for _ in 0..3 {
        stores.push(bed.another().await);
    }
    stores
}

/// Commits all rows at once, each by itself. Returns the one that was applied.
async fn race(bed: &Bed, rows: Vec<RevisionRow>) -> RevisionRow {
    let (stores, start) = (stores(bed).await, Arc::new(Barrier::new(rows.len())));
    let mut writers = JoinSet::new();
    for (number, row) in rows.into_iter().enumerate() {
        let (store, start) = (Arc::clone(&stores[number % stores.len()]), Arc::clone(&start));
        let batch = bed.batch(&[revise(&row)]);
        writers.spawn(async move {
            start.wait().await;
            let done = store.commit(&batch).await.expect("a loss is an answer, no failure")[0];
            (done, row)
        });
    }
    let done: Vec<(Committed, RevisionRow)> = writers.join_all().await;
    assert_eq!(done.iter().filter(|(done, _)| *done == Lost).count(), MANY - 1);
    done.into_iter().find(|(done, _)| *done == Applied).unwrap().1
}

/// What is stored for the newest revision is the winner's, every column of it.
async fn is_stored(bed: &Bed, winner: &RevisionRow) {
    let rows = bed.store.audit(None, 500).await.unwrap();
    let stored = rows.iter().rfind(|row| row.key == winner.key).unwrap();
    assert_eq!(stored.journal.revision, winner.revision);
    assert_eq!((&stored.life, &stored.journal.entry), (&winner.life, &winner.entry));
    assert_eq!(stored.journal.hash, winner.hash);
    assert_eq!(stored.journal.prev_hash, winner.prev_hash);
    assert_eq!(stored.receipt.as_deref(), winner.receipt.as_deref());
    let due = winner.open.as_ref().and_then(|open| open.due_at);
    if let Some(due) = due {
        let stored = bed.count(&format!("SELECT due_us FROM open_effects WHERE {}", bed.of(&winner.key))).await;
        assert_eq!(stored, due.micros());
    }
}

async fn one_of_64_creators_wins(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let rows = (0..MANY).map(|number| {
        let mut proposal = maker.proposal("one operation");
        proposal.target = name(&format!("order-{number}"));
        maker.first(&proposal).0
    });
    let winner = race(&bed, rows.collect()).await;
    is_stored(&bed, &winner).await;
    assert_eq!(bed.rows().await, (1, 1));
}

async fn one_of_64_changes_at_one_revision_wins(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, record) = maker.create("one operation");
    bed.revise(&row).await;
    let rows = (0..MANY).map(|number| {
        // Each with a lease end of its own.
        let later = Maker { now: maker.now.plus_micros(i64::try_from(number).unwrap()), ..maker.clone() };
        later.dispatch(&record, &format!("worker-{number}")).0
    });
    let winner = race(&bed, rows.collect()).await;
    is_stored(&bed, &winner).await;
    assert_eq!(bed.rows().await, (2, 1));
    let loaded = bed.load(&winner.key).await.unwrap();
    assert_eq!((loaded.life.state, loaded.life.fence, loaded.head), (State::Dispatched, 1, winner.hash));
}

async fn one_of_64_settlements_wins(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, record) = maker.create("one operation");
    bed.revise(&row).await;
    let (row, record) = maker.dispatch(&record, "one");
    bed.revise(&row).await;
    let cancel = actonce::domain::command::Command::Cancel { expected_revision: None };
    let rows = (0..MANY).map(|number| {
        // One takes the open row away, the next one keeps it.
        let command = if number % 2 == 0 { succeeded(&record) } else { cancel.clone() };
        let mut row = maker.next(&record, &command).0;
        row.hash[0] = u8::try_from(number).unwrap();
        row
    });
    let winner = race(&bed, rows.collect()).await;
    is_stored(&bed, &winner).await;
    assert_eq!(bed.rows().await, (3, i64::from(winner.open.is_some())));
}

async fn one_of_64_notes_on_a_settled_effect_wins(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, record) = maker.create("one operation");
    bed.revise(&row).await;
    let (row, record) = maker.dispatch(&record, "one");
    bed.revise(&row).await;
    let (row, record) = maker.next(&record, &succeeded(&record));
    bed.revise(&row).await;
    let rows = (0..MANY).map(|number| {
        let mut row = maker.next(&record, &contradiction(&record)).0;
        row.hash[0] = u8::try_from(number).unwrap();
        row
    });
    let winner = race(&bed, rows.collect()).await;
    is_stored(&bed, &winner).await;
    assert_eq!(bed.rows().await, (4, 1));
}

async fn one_of_64_changes_of_a_tool_wins(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (stores, start) = (stores(&bed).await, Arc::new(Barrier::new(MANY)));
    for expected_stamp in [None, Some(1)] {
        let mut writers = JoinSet::new();
        for number in 0..MANY {
            let (store, start) = (Arc::clone(&stores[number % stores.len()]), Arc::clone(&start));
            let write = ToolWrite {
                expected_stamp,
                revision: if expected_stamp.is_none() { 1 } else { 2 },
                spec: Some(format!("{{\"number\":{number}}}")),
                ..registration(&maker.tenant, TOOL, &maker.tool.spec)
            };
            writers.spawn(async move {
                start.wait().await;
                (store.write_tool(&write).await.unwrap(), write.spec.unwrap())
            });
        }
        let done = writers.join_all().await;
        let won: Vec<_> = done.iter().filter(|(done, _)| *done == ToolWritten::Applied).collect();
        assert_eq!(won.len(), 1);
        assert!(done.iter().all(|(done, _)| *done != ToolWritten::InUse));
        let found = bed.store.tool(&maker.tenant, &name(TOOL)).await.unwrap().unwrap();
        assert_eq!(found.spec, won[0].1);
    }
    assert_eq!(bed.count("SELECT count(*) FROM tool_revisions").await, 2);
}

/// A record and its open row change together, for every reader.
async fn readers_see_whole_commits(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, mut record) = maker.create("one operation");
    bed.revise(&row).await;
    let key: EffectKey = row.key.clone();
    let reader = bed.another().await;
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reading = {
        let (done, key) = (Arc::clone(&done), key.clone());
        let mut readers = JoinSet::new();
        readers.spawn(async move {
            let mut last = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // A dispatched record without its open row would be a corruption here.
                let record = reader.load(std::slice::from_ref(&key)).await.unwrap().remove(0).unwrap().unwrap();
                assert!(record.life.revision >= last, "time runs backwards");
                last = record.life.revision;
            }
            last
        });
        readers
    };
    for _ in 0..40 {
        let (row, next) = maker.dispatch(&record, &format!("worker of {}", record.life.revision));
        assert_eq!(bed.revise(&row).await, Applied);
        let not_sent = super::effects::report(
            super::effects::owner(&next),
            actonce::domain::command::Report::NotSent(Some(super::effects::failure(""))),
        );
        let (row, next) = maker.next(&next, &not_sent);
        assert_eq!(bed.revise(&row).await, Applied);
        record = next;
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(reading.join_all().await[0] > 1);
}
