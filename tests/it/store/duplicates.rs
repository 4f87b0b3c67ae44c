//! The guard against the same act under another operation id.

use actonce::domain::command::Command;
use actonce::domain::state::EffectClass;
use actonce::store::Committed::{Applied, Lost};
use actonce::store::RevisionRow;
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::bed::{Bed, both_ways, revise};
use super::effects::{Maker, name, spec, succeeded};
use crate::support::StoreUnderTest;

both_ways!(
    the_same_act_is_open_once,
    of_two_in_one_batch_the_first_wins,
    of_many_at_once_one_wins,
    a_settled_effect_makes_room_and_a_held_one_takes_none,
);

/// Effects whose tool minds; all of them name the same target.
fn minding(bed_now: actonce::domain::time::Timestamp, tenant: &str, rule: &str) -> Maker {
    let changes = json!({ "on_suspected_duplicate": rule, "verification": "waived" });
    Maker::new(tenant, spec(EffectClass::External, &changes), bed_now)
}

fn same_act(maker: &Maker, operation: &str) -> RevisionRow {
    let mut proposal = maker.proposal(operation);
    proposal.target = name("order-1");
    maker.first(&proposal).0
}

fn guard(row: &RevisionRow) -> Uuid {
    row.open.as_ref().unwrap().duplicate.expect("the tool minds")
}

pub(super) async fn the_same_act_is_open_once(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = minding(bed.now().await, "tenant", "refuse");
    let (first, second) = (same_act(&maker, "a"), same_act(&maker, "b"));
    assert_eq!(guard(&first), guard(&second));
    assert_eq!(bed.revise(&first).await, Applied);
    assert_eq!(bed.revise(&second).await, Lost);
    assert_eq!(bed.rows().await, (1, 1));
    assert_eq!(bed.store.twin(&maker.tenant, guard(&first)).await.unwrap(), Some(first.key.clone()));
    assert_eq!(bed.store.twin(&maker.tenant, Uuid::from_u128(1)).await.unwrap(), None);
    // The one that has the guard goes on with it.
    let record = bed.load(&first.key).await.unwrap();
    let (granted, _) = maker.dispatch(&record, "one");
    assert_eq!((guard(&granted), bed.revise(&granted).await), (guard(&first), Applied));
    // Another tenant's act is another act.
    let other = minding(maker.now, "other", "refuse");
    assert_eq!(bed.store.twin(&other.tenant, guard(&first)).await.unwrap(), None);
    assert_eq!(bed.revise(&same_act(&other, "a")).await, Applied);
}

async fn of_two_in_one_batch_the_first_wins(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (maker, other) = (minding(bed.now().await, "tenant", "refuse"), minding(bed.now().await, "other", "refuse"));
    let batch = [
        revise(&same_act(&maker, "a")),
        revise(&maker.create("b").0),
        revise(&same_act(&maker, "c")),
        revise(&same_act(&other, "c")),
    ];
    assert_eq!(bed.commit(&batch).await, [Applied, Applied, Lost, Applied]);
    assert_eq!(bed.rows().await, (3, 3));
}

/// Across processes a unique key decides, and its refusal says that somebody else took the key.
async fn of_many_at_once_one_wins(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = minding(bed.now().await, "tenant", "refuse");
    let mut stores = vec![std::sync::Arc::clone(&bed.store)];
    for _ in 0..3 {
        stores.push(bed.another().await);
    }
    let mut writers = JoinSet::new();
    for number in 0..64 {
        let store = std::sync::Arc::clone(&stores[number % 4]);
        let batch = bed.batch(&[revise(&same_act(&maker, &format!("operation {number}")))]);
        writers.spawn(async move {
            match store.commit(&batch).await {
                Ok(done) => done[0] == Applied,
                Err(error) => {
                    assert!(error.is_taken_key(), "{error}");
                    false
                }
            }
        });
    }
    let won = writers.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!((won, bed.rows().await), (1, (1, 1)));
}

async fn a_settled_effect_makes_room_and_a_held_one_takes_none(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = minding(bed.now().await, "tenant", "hold");
    let first = same_act(&maker, "a");
    bed.revise(&first).await;
    let mut proposal = maker.proposal("b");
    (proposal.target, proposal.duplicate_of) = (name("order-1"), Some(name("a")));
    let (held, held_record) = maker.first(&proposal);
    assert_eq!(held.open.as_ref().unwrap().duplicate, None);
    assert_eq!(bed.revise(&held).await, Applied);
    let (released, _) = maker.next(&held_record, &Command::Expire { hold_released: true });
    assert_eq!(guard(&released), guard(&first));
    match bed.try_commit(&[revise(&released)]).await {
        Ok(done) => assert_eq!(done, [Lost]),
        Err(error) => assert!(error.is_taken_key(), "{error}"),
    }
    assert_eq!(bed.rows().await, (2, 2));
    let record = bed.load(&first.key).await.unwrap();
    let (row, record) = maker.dispatch(&record, "one");
    bed.revise(&row).await;
    let (settled, _) = maker.next(&record, &succeeded(&record));
    assert_eq!(bed.revise(&settled).await, Applied);
    assert_eq!(bed.store.twin(&maker.tenant, guard(&first)).await.unwrap(), None);
    assert_eq!(bed.revise(&released).await, Applied);
    assert_eq!(bed.store.twin(&maker.tenant, guard(&first)).await.unwrap(), Some(held.key));
    assert_eq!(bed.revise(&same_act(&maker, "c")).await, Lost);
}
