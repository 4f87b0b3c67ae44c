//! Pruning beside signed checkpoints: what was pruned is told from what was removed or made up.

use actonce::domain::journal::entry_hash;
use actonce::domain::record::Record;
use actonce::domain::retention::Tombstone;
use actonce::service::journal::Damage::{self, Edited, Removed, Rewritten, Truncated};
use actonce::service::journal::{Report, Scope, verify_scope};
use actonce::service::proof::Signer;
use actonce::service::proof::checkpoint::make;
use serde_json::json;

use super::{DAY, prune, settle, tombstones};
use crate::store::bed::Bed;
use crate::store::effects::Maker;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(
    what_was_pruned_is_told_from_what_was_removed,
    nothing_is_pruned_before_a_checkpoint_has_it,
    a_tombstone_that_was_made_up_is_found,
    checkpoints_go_on_after_a_pruning,
    a_look_at_everything_takes_tombstones_for_what_they_are,
);

fn signer() -> Signer {
    Signer::from_seed(&[7; 32]).unwrap()
}

async fn checkpoint(bed: &Bed) {
    bed.all_have_ended().await;
    make(bed.store.as_ref(), &signer()).await.unwrap();
}

async fn report(bed: &Bed) -> Report {
    let scope = Scope { keys: Some(signer().public_keys()), ..Scope::default() };
    verify_scope(bed.store.as_ref(), &scope).await.unwrap()
}

async fn damages(bed: &Bed) -> Vec<(String, Damage)> {
    report(bed).await.findings.into_iter().map(|found| (found.effect, found.damage)).collect()
}

/// Three settled effects in a checkpoint each, made at every step of theirs; and a last one behind them.
async fn covered(bed: &Bed) -> Vec<Record> {
    let maker = Maker::external("tenant", bed.now().await);
    let (row, _) = maker.create("stepwise");
    super::put(bed, &row).await;
    checkpoint(bed).await;
    let mut records = Vec::new();
    for operation in ["one", "two", "three", "last"] {
        records.push(settle(bed, &maker, operation).await);
        checkpoint(bed).await;
    }
    bed.pass(40 * DAY).await;
    records
}

/// On SQLite checkpoints stand at the last row, whose number would be given anew; on Postgres behind it.
fn last_goes(bed: &Bed) -> u64 {
    u64::from(!bed.is_sqlite())
}

async fn what_was_pruned_is_told_from_what_was_removed(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    let records = covered(&bed).await;
    let (_, done) = prune(&bed, &["--older-than", "30d"]).await;
    // The first is open.
    let last = last_goes(&bed);
    assert_eq!((&done["pruned"], &done["kept"]), (&json!(3 + last), &json!(2 - last)), "{done:#}");
    let all = report(&bed).await;
    assert_eq!((all.damaged, all.pruned, all.signatures_checked), (0, 3 + last, true), "{:?}", all.findings);
    bed.execute(&format!("DELETE FROM entries WHERE {}", bed.of(&records[1].key))).await;
    assert_eq!(damages(&bed).await, [(records[1].key.effect.to_string(), Removed)]);
}

async fn nothing_is_pruned_before_a_checkpoint_has_it(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    let records = covered(&bed).await;
    settle(&bed, &Maker::external("tenant", records[0].life.updated_at), "uncovered").await;
    let (_, done) = prune(&bed, &["--older-than", "30d"]).await;
    let last = last_goes(&bed);
    assert_eq!((&done["pruned"], &done["kept"]), (&json!(3 + last), &json!(3 - last)), "{done:#}");
    checkpoint(&bed).await;
    let maker = Maker::external("another tenant", bed.now().await);
    settle(&bed, &maker, "behind").await;
    checkpoint(&bed).await;
    let (_, done) = prune(&bed, &["--older-than", "30d"]).await;
    assert_eq!((&done["pruned"], tombstones(&bed).await), (&json!(2 - last), 5), "{done:#}");
    assert_eq!(damages(&bed).await, []);
}

async fn a_tombstone_that_was_made_up_is_found(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    let records = covered(&bed).await;
    prune(&bed, &["--older-than", "30d"]).await;
    let (one, two, three) = (&records[0], &records[1], &records[2]);
    bed.execute(&format!("UPDATE entries SET life = replace(life, 'completed', 'failed') WHERE {}", bed.of(&one.key)))
        .await;
    // Well hashed, and behind an entry that there never was; or with revisions that there never were.
    let later = two.life.updated_at.plus_seconds(1);
    let made_up = Tombstone::of(two, later, later).unwrap();
    let text = serde_json::to_string(&made_up).unwrap();
    let hash = entry_hash(&two.key, made_up.revision, &[9; 32], &text);
    let set = format!("life = '{text}', prev_hash = {}, hash = {}", bed.bytes(&[9; 32]), bed.bytes(&hash));
    bed.execute(&format!("UPDATE entries SET {set} WHERE {}", bed.of(&two.key))).await;
    let longer = Tombstone { revision: 9, ..Tombstone::of(three, later, later).unwrap() };
    let text = serde_json::to_string(&longer).unwrap();
    let hash = entry_hash(&three.key, 9, &three.head, &text);
    let set = format!("life = '{text}', hash = {}", bed.bytes(&hash));
    bed.execute(&format!("UPDATE entries SET {set} WHERE {}", bed.of(&three.key))).await;
    let mut found = damages(&bed).await;
    let id = |record: &Record| record.key.effect.to_string();
    let mut expected = vec![(id(one), Edited), (id(two), Rewritten), (id(three), Rewritten)];
    found.sort_by_key(|found| format!("{found:?}"));
    expected.sort_by_key(|found| format!("{found:?}"));
    assert_eq!(found, expected);
}

async fn checkpoints_go_on_after_a_pruning(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    covered(&bed).await;
    let made = "SELECT count(*) FROM checkpoints";
    let before = bed.count(made).await;
    prune(&bed, &["--older-than", "30d"]).await;
    checkpoint(&bed).await;
    assert_eq!(bed.count(made).await, before, "nothing is signed anew because something went");
    let maker = Maker::external("tenant", bed.now().await);
    let after = settle(&bed, &maker, "after").await;
    checkpoint(&bed).await;
    assert_eq!((bed.count(made).await, damages(&bed).await), (before + 1, vec![]));
    // What a checkpoint names and is cut off is still noticed.
    bed.execute(&format!("DELETE FROM entries WHERE revision = 3 AND {}", bed.of(&after.key))).await;
    assert!(damages(&bed).await.contains(&(after.key.effect.to_string(), Truncated)));
}

/// After a restore into another server everything is written down once more, tombstones included.
async fn a_look_at_everything_takes_tombstones_for_what_they_are(store: StoreUnderTest) {
    let bed = Bed::with_clock(store).await;
    let records = covered(&bed).await;
    prune(&bed, &["--older-than", "30d"]).await;
    // As it is when the mark's place is not there any more: SQLite finds another row at it, Postgres begins anew.
    let nobody = bed.id(uuid::Uuid::nil());
    let anew = if bed.is_sqlite() { "" } else { ", moved = -9223372036854775808, low = NULL, again_to = NULL" };
    bed.execute(&format!("UPDATE checkpoint_mark SET tenant = '', effect = {nobody}, revision = 0{anew}")).await;
    let before = bed.count("SELECT count(*) FROM checkpoints").await;
    checkpoint(&bed).await;
    assert!(bed.count("SELECT count(*) FROM checkpoints").await > before, "everything is looked at");
    let all = report(&bed).await;
    assert_eq!((all.damaged, all.pruned), (0, 3 + last_goes(&bed)), "{:?}", all.findings);
    // And it is still told when one of them goes, or is made up.
    bed.execute(&format!("DELETE FROM entries WHERE {}", bed.of(&records[1].key))).await;
    let (one, two) = (records[0].key.effect.to_string(), records[1].key.effect.to_string());
    assert_eq!(damages(&bed).await, [(two.clone(), Removed)]);
    bed.execute(&format!(
        "UPDATE entries SET life = replace(life, 'completed', 'failed') WHERE {}",
        bed.of(&records[0].key)
    ))
    .await;
    let mut found = damages(&bed).await;
    found.sort_by_key(|found| format!("{found:?}"));
    let mut expected = vec![(one, Edited), (two, Removed)];
    expected.sort_by_key(|found| format!("{found:?}"));
    assert_eq!(found, expected);
}
