//! Lists, sweeps and counts: order, paging, walls (laws 10, 12).

use std::collections::BTreeSet;
use std::sync::Arc;

use actonce::domain::command::Command;
use actonce::domain::ids::{EffectKey, Tenant};
use actonce::domain::state::State;
use actonce::domain::time::Timestamp;
use actonce::store::{OpenRow, Position, RevisionRow, Store, Walk};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::bed::{Bed, both_manners, revise};
use super::effects::{Maker, contradiction, name, succeeded, tenant};
use crate::support::StoreUnderTest;

both_manners!(
    pages_are_in_order_of_creation_and_complete,
    paging_is_not_disturbed_by_new_effects,
    each_list_walks_what_it_names,
    nothing_of_another_tenant_is_listed_or_counted,
    what_is_due_comes_oldest_first,
    the_next_due_time_is_known,
    journals_are_read_in_pages,
    all_journals_and_marks_are_read_in_key_order,
    states_are_counted_as_they_are_now,
);

const PAGE: u32 = 7;

async fn all_pages(store: &dyn Store, tenant: &Tenant, walk: &Walk) -> Vec<Position> {
    let mut found: Vec<Position> = Vec::new();
    loop {
        let page = store.walk(tenant, walk, found.last().copied(), PAGE).await.unwrap();
        assert!(page.len() <= usize::try_from(PAGE).unwrap());
        if page.is_empty() {
            return found;
        }
        found.extend(page);
    }
}

/// Effects of which some were created at the same microsecond.
async fn many(bed: &Bed, tenant: &str, count: i64) -> BTreeSet<Position> {
    let now = bed.now().await;
    let mut positions = BTreeSet::new();
    let mut batch = Vec::new();
    for number in 0..count {
        let created_at = now.plus_micros(number / 3);
        let row = Maker::external(tenant, created_at).create(&format!("operation {number}")).0;
        positions.insert(Position { created_at, effect: row.key.effect });
        batch.push(revise(&row));
    }
    bed.commit(&batch).await;
    positions
}

async fn pages_are_in_order_of_creation_and_complete(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let expected: Vec<Position> = many(&bed, "tenant", 50).await.into_iter().collect();
    let walks = [Walk::All, Walk::Run(name("run")), Walk::Session(name("session")), Walk::Open(State::IntentRecorded)];
    for walk in walks {
        assert_eq!(all_pages(bed.store.as_ref(), &tenant("tenant"), &walk).await, expected, "{walk:?}");
        let after = Some(expected[20]);
        let rest = bed.store.walk(&tenant("tenant"), &walk, after, 100).await.unwrap();
        assert_eq!(rest, expected[21..], "strictly after");
        assert!(bed.store.walk(&tenant("tenant"), &walk, after, 0).await.unwrap().is_empty());
    }
}

async fn paging_is_not_disturbed_by_new_effects(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let expected = many(&bed, "tenant", 120).await;
    let writer = bed.another().await;
    let later = bed.now().await.plus_seconds(1);
    let mut writers = JoinSet::new();
    writers.spawn(async move {
        for number in 0..120_i64 {
            let maker = Maker::external("tenant", later.plus_micros(number));
            writer.commit(&[revise(&maker.create(&format!("later {number}")).0)]).await.unwrap();
        }
        writer.close().await;
    });
    for _ in 0..3 {
        let found = all_pages(bed.store.as_ref(), &tenant("tenant"), &Walk::All).await;
        let mut sorted = found.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(found, sorted, "in order and each once");
        assert!(expected.iter().all(|position| found.contains(position)), "none is skipped");
    }
    writers.join_all().await;
    assert_eq!(all_pages(bed.store.as_ref(), &tenant("tenant"), &Walk::All).await.len(), 240);
}

async fn each_list_walks_what_it_names(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let with = |operation: &str, run: Option<&str>, session: Option<&str>| {
        let mut proposal = maker.proposal(operation);
        (proposal.run_id, proposal.session_id) = (run.map(name), session.map(name));
        maker.first(&proposal)
    };
    let (in_run, run_record) = with("a", Some("run 1"), None);
    let (in_session, session_record) = with("b", None, Some("session 1"));
    let (alone, _) = with("c", None, None);
    bed.commit(&[revise(&in_run), revise(&in_session), revise(&alone)]).await;
    let listed = async |walk: Walk| -> BTreeSet<Uuid> {
        bed.store.walk(&maker.tenant, &walk, None, 99).await.unwrap().iter().map(|found| found.effect).collect()
    };
    let set = |rows: &[&RevisionRow]| -> BTreeSet<Uuid> { rows.iter().map(|row| row.key.effect).collect() };
    assert_eq!(listed(Walk::All).await, set(&[&in_run, &in_session, &alone]));
    assert_eq!(listed(Walk::Run(name("run 1"))).await, set(&[&in_run]));
    assert_eq!(listed(Walk::Run(name("session 1"))).await, set(&[]));
    assert_eq!(listed(Walk::Session(name("session 1"))).await, set(&[&in_session]));

    // Later revisions bring no second line, and a list by state follows the state.
    let (granted, record) = maker.dispatch(&run_record, "one");
    bed.revise(&granted).await;
    assert_eq!(listed(Walk::Open(State::Dispatched)).await, set(&[&in_run]));
    assert_eq!(listed(Walk::Open(State::IntentRecorded)).await, set(&[&in_session, &alone]));
    let (settled, record) = maker.next(&record, &succeeded(&record));
    bed.revise(&settled).await;
    assert_eq!(listed(Walk::Open(State::Dispatched)).await, set(&[]));
    assert_eq!(listed(Walk::Run(name("run 1"))).await, set(&[&in_run]));
    assert_eq!(listed(Walk::Contradicted).await, set(&[]));
    let (flagged, _) = maker.next(&record, &contradiction(&record));
    bed.revise(&flagged).await;
    assert_eq!(listed(Walk::Contradicted).await, set(&[&in_run]));
    assert_eq!(listed(Walk::All).await, set(&[&in_run, &in_session, &alone]));
    drop(session_record);
}

pub(super) async fn nothing_of_another_tenant_is_listed_or_counted(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    many(&bed, "theirs", 20).await;
    let mine = tenant("mine");
    bed.execute("UPDATE open_effects SET contradicted = TRUE").await;
    let walks = [
        Walk::All,
        Walk::Run(name("run")),
        Walk::Session(name("session")),
        Walk::Open(State::IntentRecorded),
        Walk::Contradicted,
    ];
    for walk in walks {
        assert!(bed.store.walk(&mine, &walk, None, 99).await.unwrap().is_empty(), "{walk:?}");
        assert_eq!(bed.store.walk(&tenant("theirs"), &walk, None, 99).await.unwrap().len(), 20, "{walk:?}");
    }
    assert!(bed.store.run_states(&mine, &name("run")).await.unwrap().is_empty());
    assert_eq!(bed.store.run_states(&tenant("theirs"), &name("run")).await.unwrap(), [(State::IntentRecorded, 20)]);
    // A name that is the start of another, and one that would be a pattern.
    for other in ["their", "theirs ", "their_", "%", "THEIRS"] {
        if let Ok(other) = Tenant::new(other) {
            assert!(bed.store.walk(&other, &Walk::All, None, 99).await.unwrap().is_empty());
        }
    }
}

/// Open effects that are due at these microseconds from the database's time now.
async fn due_at(bed: &Bed, offsets: &[i64]) -> (Timestamp, Vec<EffectKey>) {
    let now = bed.now().await;
    let maker = Maker::external("tenant", now);
    let mut keys = Vec::new();
    for (number, offset) in offsets.iter().enumerate() {
        let mut row = maker.create(&format!("operation {number}")).0;
        row.open = row.open.map(|open| OpenRow { due_at: Some(now.plus_micros(*offset)), ..open });
        bed.revise(&row).await;
        keys.push(row.key);
    }
    (now, keys)
}

async fn what_is_due_comes_oldest_first(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    assert!(bed.store.due(99).await.unwrap().is_empty());
    let hour = 3_600_000_000;
    let (_, keys) = due_at(&bed, &[-3, hour, -1_000_000, -2, -hour, hour * 24]).await;
    bed.revise(&Maker::external("tenant", bed.now().await).create("never due").0).await;
    let expected = [&keys[4], &keys[2], &keys[0], &keys[3]].map(EffectKey::clone);
    assert_eq!(bed.store.due(99).await.unwrap(), expected);
    assert_eq!(bed.store.due(2).await.unwrap(), expected[..2]);
    assert!(bed.store.due(0).await.unwrap().is_empty());
}

async fn the_next_due_time_is_known(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let before = bed.now().await;
    let (next, now) = bed.store.next_due().await.unwrap();
    assert_eq!(next, None);
    assert!(now >= before && now <= bed.now().await);
    let (at, _) = due_at(&bed, &[5_000_000, -7, 9]).await;
    assert_eq!(bed.store.next_due().await.unwrap().0, Some(at.plus_micros(-7)));
}

async fn journals_are_read_in_pages(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, mut record) = maker.create("a");
    bed.revise(&row).await;
    let mut hashes = vec![row.hash.to_vec()];
    for number in 0..9 {
        let stranger = actonce::domain::command::Report::Unknown(super::effects::failure(&number.to_string()));
        let (row, next) = maker.next(&record, &super::effects::report((Uuid::from_u128(5), 1), stranger));
        bed.revise(&row).await;
        hashes.push(row.hash.to_vec());
        record = next;
    }
    bed.revise(&maker.create("b").0).await;
    let revisions = async |after, limit| -> Vec<u32> {
        let rows = bed.store.journal(&row.key, after, limit).await.unwrap();
        rows.iter().map(|row| row.revision).collect()
    };
    assert_eq!(revisions(0, 4).await, [1, 2, 3, 4]);
    assert_eq!(revisions(4, 4).await, [5, 6, 7, 8]);
    assert_eq!(revisions(8, 4).await, [9, 10]);
    assert_eq!(revisions(10, 4).await, [0_u32; 0]);
    let rows = bed.store.journal(&row.key, 0, 99).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.hash.clone()).collect::<Vec<_>>(), hashes);
    assert!(rows.windows(2).all(|pair| pair[1].prev_hash == pair[0].hash));
    assert_eq!(rows[0].prev_hash, [0; 32]);
}

async fn all_journals_and_marks_are_read_in_key_order(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let now = bed.now().await;
    let mut expected = Vec::new();
    for tenant in ["b", "a", "ä", "a b", "A", "é\u{301}", "𝄞"] {
        let maker = Maker::external(tenant, now);
        for operation in ["1", "2", "3"] {
            let (row, record) = maker.create(operation);
            bed.revise(&row).await;
            bed.revise(&maker.dispatch(&record, "one").0).await;
            expected.extend([1, 2].map(|revision| (row.key.tenant.as_str().to_owned(), row.key.effect, revision)));
        }
    }
    // By bytes of tenant and effect, whatever the locale.
    expected.sort();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let rows = bed.store.audit(after, 5).await.unwrap();
        let Some(last) = rows.last() else { break };
        after = Some((last.key.clone(), last.journal.revision));
        found.extend(rows.iter().map(|row| (row.key.tenant.as_str().to_owned(), row.key.effect, row.journal.revision)));
    }
    assert_eq!(found, expected);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let marks = bed.store.open_marks(after, 4).await.unwrap();
        let Some(last) = marks.last() else { break };
        after = Some(last.key.clone());
        found.extend(marks.iter().map(|mark| (mark.key.tenant.as_str().to_owned(), mark.key.effect, mark.revision)));
    }
    expected.retain(|(_, _, revision)| *revision == 2);
    assert_eq!(found, expected);
}

async fn states_are_counted_as_they_are_now(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let now = bed.now().await;
    let (early, maker) = (Maker::external("other", now), Maker::external("tenant", now.plus_micros(5)));
    bed.revise(&early.create("a").0).await;
    for operation in ["a", "b", "c"] {
        let (row, record) = maker.create(operation);
        bed.revise(&row).await;
        if operation != "a" {
            let (row, record) = maker.dispatch(&record, "one");
            bed.revise(&row).await;
            if operation == "c" {
                bed.revise(&maker.next(&record, &succeeded(&record)).0).await;
            }
        }
    }
    let mut states = bed.store.run_states(&maker.tenant, &name("run")).await.unwrap();
    states.sort_by_key(|(state, _)| state.as_str());
    assert_eq!(states, [(State::Completed, 1), (State::Dispatched, 1), (State::IntentRecorded, 1)]);
    let mut open = bed.store.open_states().await.unwrap();
    open.sort_by_key(|(state, _, _)| state.as_str());
    let expected = [(State::Dispatched, 1, maker.now), (State::IntentRecorded, 2, early.now)];
    assert_eq!(open, expected, "over all tenants, with the oldest");
    let cancel = Command::Cancel { expected_revision: None };
    let record = bed.load(&maker.key("a")).await.unwrap();
    bed.revise(&maker.next(&record, &cancel).0).await;
    let store: &Arc<dyn Store> = &bed.store;
    assert_eq!(store.open_states().await.unwrap().iter().map(|(_, count, _)| count).sum::<u64>(), 2);
}
