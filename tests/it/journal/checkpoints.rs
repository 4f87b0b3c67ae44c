//! Checkpoints: what a chain alone can't show is noticed, and each damage has its name.

use std::sync::Arc;

use actonce::domain::ids::{EffectKey, Tenant};
use actonce::service::journal::Damage::{
    self, CheckpointEdited, CheckpointMissing, Edited, Forked, Missing, Removed, Rewritten, Truncated,
};
use actonce::service::journal::{Report, Scope, verify_scope};
use actonce::service::proof::checkpoint::{Checkpoint, Made, make, newest};
use actonce::service::proof::{Signed, Signer};
use sqlx::Connection as _;
use uuid::Uuid;

use super::{Journals, another_history, done};
use crate::store::bed::Bed;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(
    only_what_moved_is_signed_and_an_intact_database_has_no_findings,
    a_removed_effect_is_noticed,
    a_cut_settled_effect_is_truncated,
    a_cut_late_report_is_noticed,
    a_history_that_was_hashed_anew_is_rewritten,
    damages_of_the_chain_keep_their_names,
    an_edited_checkpoint_is_edited,
    a_checkpoint_signed_by_another_key_is_edited,
    a_removed_checkpoint_is_missing,
    the_last_checkpoint_is_missed_by_a_kept_copy_alone,
    replicas_that_make_checkpoints_at_once_make_one_chain,
    row_numbers_given_anew_leave_nothing_out,
    one_tenant_or_one_effect_can_be_verified_alone,
    a_copy_that_was_edited_is_found,
);

fn signer() -> Signer {
    Signer::from_seed(&[7; 32]).unwrap()
}

/// Journals with one checkpoint per tenant: eight effects have moved.
async fn journals(store: StoreUnderTest) -> Journals {
    let journals = Journals::in_bed(Bed::new(store).await).await;
    journals.bed.all_have_ended().await;
    let made = make(journals.bed.store.as_ref(), &signer()).await.unwrap();
    assert_eq!(made, Made { checkpoints: 2, leaves: 9 });
    journals
}

async fn report(journals: &Journals, scope: Scope) -> Report {
    let scope = Scope { keys: Some(signer().public_keys()), ..scope };
    verify_scope(journals.bed.store.as_ref(), &scope).await.unwrap()
}

/// Effect, revision, checkpoint, damage.
type Found = (String, u32, Option<u64>, Damage);

async fn found(journals: &Journals) -> Vec<Found> {
    let report = report(journals, Scope::default()).await;
    assert!(report.signatures_checked);
    report.findings.into_iter().map(|found| (found.effect, found.revision, found.checkpoint, found.damage)).collect()
}

fn at(key: &EffectKey, revision: u32, checkpoint: Option<u64>, damage: Damage) -> Found {
    (key.effect.to_string(), revision, checkpoint, damage)
}

fn of_checkpoint(number: u64, damage: Damage) -> Found {
    (String::new(), 0, Some(number), damage)
}

async fn write_on(journals: &Journals, operation: &str) -> EffectKey {
    super::write(&journals.bed, &journals.maker, operation, &[done]).await
}

async fn checkpoint(journals: &Journals) -> Made {
    journals.bed.all_have_ended().await;
    make(journals.bed.store.as_ref(), &signer()).await.unwrap()
}

async fn remove(journals: &Journals, key: &EffectKey) {
    for table in ["entries", "open_effects"] {
        journals.bed.execute(&format!("DELETE FROM {table} WHERE {}", journals.bed.of(key))).await;
    }
}

async fn only_what_moved_is_signed_and_an_intact_database_has_no_findings(store: StoreUnderTest) {
    let journals = journals(store).await;
    assert_eq!(checkpoint(&journals).await, Made::default(), "nothing has moved");
    write_on(&journals, "more").await;
    assert_eq!(checkpoint(&journals).await, Made { checkpoints: 1, leaves: 1 });
    let report = report(&journals, Scope::default()).await;
    assert_eq!((report.effects, report.checkpoints, report.damaged), (10, 3, 0), "{:?}", report.findings);
}

async fn a_removed_effect_is_noticed(store: StoreUnderTest) {
    let journals = journals(store).await;
    for _ in 0..2 {
        // It is told once, however many checkpoints come after.
        write_on(&journals, &format!("more {}", crate::support::unique("x"))).await;
        checkpoint(&journals).await;
    }
    remove(&journals, &journals.settled).await;
    assert_eq!(found(&journals).await, [at(&journals.settled, 3, Some(1), Removed)]);
    // The chain alone says nothing: what is left is whole.
    let all = actonce::service::journal::verify(journals.bed.store.as_ref()).await.unwrap();
    assert_eq!((all.damaged, all.signatures_checked), (1, false));
    journals.bed.execute("DELETE FROM checkpoints").await;
    assert_eq!(found(&journals).await, []);
}

async fn a_cut_settled_effect_is_truncated(store: StoreUnderTest) {
    let journals = journals(store).await;
    journals.spoil("DELETE FROM entries", &journals.settled, 3).await;
    // The mark of open effects, as somebody would write it who knows how.
    let id = journals.bed.id(journals.settled.effect);
    journals
        .bed
        .execute(&format!(
            "INSERT INTO open_effects (tenant, effect, revision, state, fence, created_us, contradicted, tool)
             VALUES ('tenant', {id}, 2, 3, 1, 0, FALSE, 'tool')"
        ))
        .await;
    assert_eq!(found(&journals).await, [at(&journals.settled, 3, Some(1), Truncated)]);
}

async fn a_cut_late_report_is_noticed(store: StoreUnderTest) {
    let journals = journals(store).await;
    journals.spoil("DELETE FROM entries", &journals.flagged, 4).await;
    journals.bed.execute(&format!("DELETE FROM open_effects WHERE {}", journals.bed.of(&journals.flagged))).await;
    // What is left looks settled.
    assert_eq!(found(&journals).await, [at(&journals.flagged, 4, Some(1), Truncated)]);
}

/// Somebody replaces a whole history, hashes and all: only what was signed is another one.
async fn a_history_that_was_hashed_anew_is_rewritten(store: StoreUnderTest) {
    let journals = journals(store).await;
    remove(&journals, &journals.settled).await;
    let other = another_history(&journals.maker);
    super::write(&journals.bed, &other, "settled", &[done]).await;
    let all = actonce::service::journal::verify(journals.bed.store.as_ref()).await.unwrap();
    let kinds: Vec<Damage> = all.findings.iter().map(|found| found.damage).collect();
    assert_eq!(kinds, [Rewritten], "every hash holds and every link");
    assert_eq!(found(&journals).await, [at(&journals.settled, 3, Some(1), Rewritten)]);
}

async fn damages_of_the_chain_keep_their_names(store: StoreUnderTest) {
    let journals = journals(store).await;
    journals.spoil("UPDATE entries SET entry = entry || ' '", &journals.settled, 2).await;
    journals.spoil("DELETE FROM entries", &journals.open, 2).await;
    let hash = journals.bed.bytes(&[7; 32]);
    journals.spoil(&format!("UPDATE entries SET prev_hash = {hash}"), &journals.flagged, 2).await;
    let mut found = found(&journals).await;
    let mut expected = vec![
        at(&journals.settled, 2, None, Edited),
        at(&journals.open, 2, None, Missing),
        at(&journals.flagged, 2, None, Forked),
        at(&journals.flagged, 2, None, Edited),
    ];
    found.sort_by_key(|found| format!("{found:?}"));
    expected.sort_by_key(|found| format!("{found:?}"));
    assert_eq!(found, expected, "a checkpoint does not tell again what the chain tells");
}

async fn an_edited_checkpoint_is_edited(store: StoreUnderTest) {
    let journals = journals(store).await;
    let place = "WHERE tenant = 'tenant' AND number = 1";
    let jws = newest(journals.bed.store.as_ref(), Some(&Tenant::new("tenant").unwrap())).await.unwrap().remove(0);
    let (document, _) = Checkpoint::read(&jws).unwrap();
    let mut emptied = document.clone();
    (emptied.leaves, emptied.total_leaves) = (0, 0);
    let empty_root = hex::encode(actonce::service::proof::merkle::root(&[]));
    emptied.root = empty_root;
    let edited = Signed::parse(&jws).unwrap();
    let unsigned = signer().sign("actonce-checkpoint", &serde_json::to_string(&emptied).unwrap());
    let unsigned = Signed { signature: edited.signature, ..unsigned };
    let short = journals.bed.bytes(&[0; 52]);
    let none = journals.bed.bytes(&[]);
    for spoil in [
        format!("leaves = {short}"),
        format!("leaves = {none}"),
        "jws = 'x'".to_owned(),
        "jws = jws || 'A'".to_owned(),
        "at_us = at_us + 1".to_owned(),
        format!("jws = '{}', leaves = {none}", unsigned.compact()),
    ] {
        let journals = self::journals(store).await;
        journals.bed.execute(&format!("UPDATE checkpoints SET {spoil} {place}")).await;
        assert_eq!(found(&journals).await, [of_checkpoint(1, CheckpointEdited)], "{spoil}");
    }
    // Well signed, and of another chain; or in another's place.
    write_on(&journals, "more").await;
    checkpoint(&journals).await;
    let place = "WHERE tenant = 'tenant' AND number = 2";
    let second = newest(journals.bed.store.as_ref(), Some(&Tenant::new("tenant").unwrap())).await.unwrap().remove(0);
    let (second, _) = Checkpoint::read(&second).unwrap();
    let other_chain = Checkpoint { previous: document.root, ..second.clone() };
    let other_total = Checkpoint { total_leaves: second.total_leaves + 1, ..second };
    let signed = |document: &Checkpoint| {
        signer().sign("actonce-checkpoint", &serde_json::to_string(document).unwrap()).compact()
    };
    for jws in [signed(&other_chain), signed(&other_total), jws] {
        journals.bed.execute(&format!("UPDATE checkpoints SET jws = '{jws}' {place}")).await;
        assert_eq!(found(&journals).await, [of_checkpoint(2, CheckpointEdited)]);
    }
}

async fn a_checkpoint_signed_by_another_key_is_edited(store: StoreUnderTest) {
    let journals = Journals::in_bed(Bed::new(store).await).await;
    journals.bed.all_have_ended().await;
    make(journals.bed.store.as_ref(), &Signer::from_seed(&[8; 32]).unwrap()).await.unwrap();
    assert_eq!(found(&journals).await, [of_checkpoint(1, CheckpointEdited), of_checkpoint(1, CheckpointEdited)]);
}

async fn a_removed_checkpoint_is_missing(store: StoreUnderTest) {
    let journals = journals(store).await;
    for operation in ["more", "and more"] {
        write_on(&journals, operation).await;
        checkpoint(&journals).await;
    }
    journals.bed.execute("DELETE FROM checkpoints WHERE tenant = 'tenant' AND number = 2").await;
    assert_eq!(found(&journals).await, [of_checkpoint(2, CheckpointMissing)]);
    journals.bed.execute("DELETE FROM checkpoints WHERE tenant = 'tenant' AND number = 1").await;
    assert_eq!(found(&journals).await, [of_checkpoint(1, CheckpointMissing)], "a gap is one gap");
}

async fn copies(journals: &Journals) -> Vec<Signed> {
    let printed = newest(journals.bed.store.as_ref(), None).await.unwrap();
    printed.iter().map(|line| Signed::parse(line).unwrap()).collect()
}

async fn the_last_checkpoint_is_missed_by_a_kept_copy_alone(store: StoreUnderTest) {
    let journals = journals(store).await;
    let copies = copies(&journals).await;
    assert_eq!(copies.len(), 2);
    let scope = Scope { copies, ..Scope::default() };
    let intact = report(&journals, scope.clone()).await;
    assert_eq!((intact.copies, intact.damaged), (2, 0));
    remove(&journals, &journals.settled).await;
    journals.bed.execute("DELETE FROM checkpoints WHERE tenant = 'tenant'").await;
    assert_eq!(found(&journals).await, [], "who may write everything can forget everything");
    let kinds = |report: Report| {
        report.findings.into_iter().map(|found| (found.tenant, found.checkpoint, found.damage)).collect::<Vec<_>>()
    };
    let missing = ("tenant".to_owned(), Some(1), CheckpointMissing);
    assert_eq!(kinds(report(&journals, scope.clone()).await), [missing]);
    // Made anew over what is left: it holds by itself, and is not what was kept.
    let unit = "UPDATE checkpoint_mark SET moved = 0, tenant = '', revision = 0";
    journals.bed.execute(unit).await;
    checkpoint(&journals).await;
    let edited = ("tenant".to_owned(), Some(1), CheckpointEdited);
    assert_eq!(kinds(report(&journals, scope).await), [edited]);
}

async fn replicas_that_make_checkpoints_at_once_make_one_chain(store: StoreUnderTest) {
    let journals = Journals::in_bed(Bed::new(store).await).await;
    journals.bed.all_have_ended().await;
    let mut replicas = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store: Arc<dyn actonce::store::Store> = journals.bed.another().await;
        replicas.spawn(async move {
            let made = make(store.as_ref(), &signer()).await.unwrap();
            store.close().await;
            made.leaves
        });
    }
    assert_eq!(replicas.join_all().await.into_iter().sum::<u64>(), 9, "each head once");
    assert_eq!(found(&journals).await, []);
}

/// A rebuilt SQLite file numbers its rows anew; a restored Postgres counts its transactions anew.
async fn row_numbers_given_anew_leave_nothing_out(store: StoreUnderTest) {
    let journals = journals(store).await;
    let ahead = if journals.bed.is_sqlite() {
        // The mark's row is another one now.
        "UPDATE checkpoint_mark SET revision = revision + 1"
    } else {
        "UPDATE checkpoint_mark SET moved = 4000000000000000"
    };
    journals.bed.execute(ahead).await;
    write_on(&journals, "after the restore").await;
    assert_eq!(checkpoint(&journals).await, Made { checkpoints: 2, leaves: 10 }, "all of it once more");
    assert_eq!(checkpoint(&journals).await, Made::default());
    write_on(&journals, "later").await;
    assert_eq!(checkpoint(&journals).await.leaves, 1);
    assert_eq!(found(&journals).await, []);
}

async fn one_tenant_or_one_effect_can_be_verified_alone(store: StoreUnderTest) {
    let journals = journals(store).await;
    let tenant = |name: &str| Some(Tenant::new(name).unwrap());
    let all = report(&journals, Scope::default()).await;
    let one = report(&journals, Scope { tenant: tenant("tenant"), ..Scope::default() }).await;
    let other = report(&journals, Scope { tenant: tenant("another tenant"), ..Scope::default() }).await;
    assert_eq!((one.effects, other.effects, one.effects + other.effects), (6, 3, all.effects));
    assert_eq!((one.entries + other.entries, one.damaged + other.damaged), (all.entries, 0));
    let of = |effect: Uuid| Scope { tenant: tenant("tenant"), effect: Some(effect), ..Scope::default() };
    let alone = report(&journals, of(journals.open.effect)).await;
    assert_eq!((alone.effects, alone.entries, alone.damaged), (1, 4, 0));
    // What is elsewhere is not looked at, what is here is.
    journals.spoil("UPDATE entries SET entry = entry || ' '", &journals.settled, 1).await;
    journals.spoil("DELETE FROM entries", &journals.open, 4).await;
    assert_eq!(report(&journals, Scope { tenant: tenant("another tenant"), ..Scope::default() }).await.damaged, 0);
    assert_eq!(report(&journals, of(journals.flagged.effect)).await.damaged, 0);
    let cut = report(&journals, of(journals.open.effect)).await;
    assert!(cut.findings.iter().all(|found| found.damage == Truncated) && cut.damaged == 2, "{:?}", cut.findings);
    assert_eq!(report(&journals, of(journals.settled.effect)).await.findings[0].damage, Edited);
}

async fn a_copy_that_was_edited_is_found(store: StoreUnderTest) {
    let journals = journals(store).await;
    let mut copies = copies(&journals).await;
    let another = copies[1].signature.clone();
    copies[0].signature = another;
    let report = report(&journals, Scope { copies, ..Scope::default() }).await;
    assert_eq!((report.damaged, report.findings[0].damage), (1, CheckpointEdited));
}

/// A transaction that began before a checkpoint and is committed after it is in the next one. (On SQLite one writer
/// holds the file: row ids are given in the order of the commits.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_is_not_left_out() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let journals = journals(StoreUnderTest::Postgres).await;
    let mut late = sqlx::PgConnection::connect(&journals.bed.url()).await.unwrap();
    let copy =
        "BEGIN; INSERT INTO entries (tenant, effect, revision, state, created_us, intent, life, entry, prev_hash, hash)
        SELECT tenant, '00000000-0000-0000-0000-000000000001', revision, state, created_us, intent, life, entry,
          prev_hash, hash FROM entries WHERE tenant = 'tenant' AND revision = 1 LIMIT 1";
    sqlx::raw_sql(copy).execute(&mut late).await.unwrap();
    write_on(&journals, "younger and done").await;
    let store = journals.bed.store.as_ref();
    assert_eq!(make(store, &signer()).await.unwrap(), Made::default(), "what is younger waits for what is older");
    sqlx::raw_sql("COMMIT").execute(&mut late).await.unwrap();
    late.close().await.unwrap();
    assert_eq!(checkpoint(&journals).await.leaves, 2);
}
