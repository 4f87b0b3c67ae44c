//! Each damage by its name.

use actonce::domain::ids::EffectKey;
use actonce::service::journal::Damage::{Edited, Forked, Missing, Truncated};
use actonce::store::{AuditRow, RevisionRow};

use super::{Journals, another_history, contradiction, done};
use crate::store::bed::Bed;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(
    an_intact_database_has_no_findings,
    an_edited_entry_is_edited,
    an_edited_document_is_edited,
    an_edited_column_is_edited,
    an_edited_hash_shows_at_both_ends,
    a_deleted_row_in_the_middle_is_missing,
    a_deleted_beginning_is_missing,
    a_cut_tail_of_an_open_effect_is_truncated,
    a_cut_tail_of_a_settled_effect_is_truncated,
    a_cut_contradiction_is_truncated,
    an_open_effect_without_entries_is_truncated,
    a_tail_of_another_history_is_forked,
    a_row_of_another_effect_is_edited,
    an_open_effect_that_is_not_marked_is_found,
    a_mark_that_names_no_newest_entry_is_edited,
    several_damages_are_all_found,
    two_writers_are_told_apart_from_an_edit,
);

async fn journals(store: StoreUnderTest) -> Journals {
    Journals::in_bed(Bed::new(store).await).await
}

async fn an_intact_database_has_no_findings(store: StoreUnderTest) {
    let empty = Bed::new(store).await;
    let report = actonce::service::journal::verify(empty.store.as_ref()).await.unwrap();
    assert_eq!((report.effects, report.entries, report.damaged), (0, 0, 0));
    let journals = journals(store).await;
    let report = actonce::service::journal::verify(journals.bed.store.as_ref()).await.unwrap();
    assert_eq!((report.effects, report.entries, report.damaged), (9, 26, 0));
}

async fn an_edited_entry_is_edited(store: StoreUnderTest) {
    for revision in 1..=4 {
        let journals = journals(store).await;
        journals.spoil("UPDATE entries SET entry = replace(entry, 'agent', 'nobody')", &journals.open, revision).await;
        assert_eq!(journals.found().await, [(journals.open.clone(), revision, Edited)]);
    }
    let journals = journals(store).await;
    journals.spoil("UPDATE entries SET entry = entry || ' '", &journals.settled, 3).await;
    assert_eq!(journals.found().await, [(journals.settled.clone(), 3, Edited)]);
}

async fn an_edited_document_is_edited(store: StoreUnderTest) {
    for (statement, revision) in [
        ("UPDATE entries SET life = replace(life, 'completed', 'failed')", 3),
        ("UPDATE entries SET life = '{}'", 3),
        ("UPDATE entries SET life = life || ' '", 2),
        ("UPDATE entries SET receipt = replace(receipt, 're_1', 're_9')", 3),
        ("UPDATE entries SET receipt = NULL", 3),
        ("UPDATE entries SET receipt = '{}'", 2),
        ("UPDATE entries SET result = '{\"refund\":2}'", 3),
        ("UPDATE entries SET result = NULL", 3),
        ("UPDATE entries SET result = 'null'", 1),
        ("UPDATE entries SET intent = replace(intent, 'agent', 'nobody')", 1),
        ("UPDATE entries SET intent = '{}'", 1),
    ] {
        let journals = journals(store).await;
        journals.spoil(statement, &journals.settled, revision).await;
        assert_eq!(journals.found().await, [(journals.settled.clone(), revision, Edited)], "{statement}");
    }
}

async fn an_edited_column_is_edited(store: StoreUnderTest) {
    for state in [0, 2, 5, 9, 99] {
        let journals = journals(store).await;
        journals.spoil(&format!("UPDATE entries SET state = {state}"), &journals.settled, 3).await;
        assert_eq!(journals.found().await, [(journals.settled.clone(), 3, Edited)]);
    }
}

async fn an_edited_hash_shows_at_both_ends(store: StoreUnderTest) {
    let journals = journals(store).await;
    let hash = journals.bed.bytes(&[7; 32]);
    journals.spoil(&format!("UPDATE entries SET hash = {hash}"), &journals.open, 2).await;
    let open = &journals.open;
    assert_eq!(journals.found().await, [(open.clone(), 2, Edited), (open.clone(), 3, Forked)]);
    let journals = self::journals(store).await;
    let open = &journals.open;
    journals.spoil(&format!("UPDATE entries SET prev_hash = {hash}"), open, 3).await;
    assert_eq!(journals.found().await, [(open.clone(), 3, Forked), (open.clone(), 3, Edited)]);
    let short = journals.bed.bytes(&[]);
    journals.spoil(&format!("UPDATE entries SET prev_hash = {short}"), open, 3).await;
    assert_eq!(journals.found().await, [(open.clone(), 3, Forked), (open.clone(), 3, Edited)]);
}

async fn a_deleted_row_in_the_middle_is_missing(store: StoreUnderTest) {
    let journals = journals(store).await;
    journals.spoil("DELETE FROM entries", &journals.open, 2).await;
    assert_eq!(journals.found().await, [(journals.open.clone(), 2, Missing)]);
    journals.spoil("DELETE FROM entries", &journals.open, 3).await;
    assert_eq!(journals.found().await, [(journals.open.clone(), 2, Missing)], "a gap of two is one gap");
}

async fn a_deleted_beginning_is_missing(store: StoreUnderTest) {
    let journals = journals(store).await;
    journals.spoil("DELETE FROM entries", &journals.settled, 1).await;
    assert_eq!(journals.found().await, [(journals.settled.clone(), 1, Missing)]);
}

async fn a_cut_tail_of_an_open_effect_is_truncated(store: StoreUnderTest) {
    let journals = journals(store).await;
    for revision in [4, 3, 2] {
        journals.spoil("DELETE FROM entries", &journals.open, revision).await;
        assert_eq!(journals.found().await, [(journals.open.clone(), 4, Truncated)]);
    }
}

async fn a_cut_tail_of_a_settled_effect_is_truncated(store: StoreUnderTest) {
    let journals = journals(store).await;
    for revision in [3, 2] {
        journals.spoil("DELETE FROM entries", &journals.settled, revision).await;
        assert_eq!(journals.found().await, [(journals.settled.clone(), revision - 1, Truncated)]);
    }
}

async fn a_cut_contradiction_is_truncated(store: StoreUnderTest) {
    let journals = journals(store).await;
    journals.spoil("DELETE FROM entries", &journals.flagged, 4).await;
    assert_eq!(journals.found().await, [(journals.flagged.clone(), 4, Truncated)], "what is left looks settled");
    journals.spoil("DELETE FROM entries", &journals.flagged, 3).await;
    assert_eq!(journals.found().await, [(journals.flagged.clone(), 4, Truncated)]);
}

async fn an_open_effect_without_entries_is_truncated(store: StoreUnderTest) {
    let journals = journals(store).await;
    for key in [&journals.open, &journals.flagged] {
        journals.bed.execute(&format!("DELETE FROM entries WHERE {}", journals.bed.of(key))).await;
    }
    let mut expected = [(journals.open.clone(), 4, Truncated), (journals.flagged.clone(), 4, Truncated)];
    expected.sort_by_key(|(key, _, _)| key.effect);
    assert_eq!(journals.found().await, expected);
}

/// Puts a row in the place of the one of its revision.
async fn replace(bed: &Bed, row: &RevisionRow, key: &EffectKey) {
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let optional = |part: Option<&str>| part.map_or_else(|| "NULL".to_owned(), text);
    let revision = row.revision;
    bed.execute(&format!(
        "UPDATE entries SET entry = {}, life = {}, receipt = {}, result = {}, prev_hash = {}, hash = {}, state = {}
         WHERE revision = {revision} AND {}",
        text(&row.entry),
        text(&row.life),
        optional(row.receipt.as_deref()),
        optional(row.result.as_deref()),
        bed.bytes(&row.prev_hash),
        bed.bytes(&row.hash),
        actonce::store::rows::state_code(row.state),
        bed.of(key),
    ))
    .await;
}

/// Every row of the tail is what was hashed and follows the one before, but for the first of them.
async fn a_tail_of_another_history_is_forked(store: StoreUnderTest) {
    let journals = journals(store).await;
    // The same effect as a restored copy of the database would have gone on with it.
    let other = another_history(&journals.maker);
    let (_, record) = other.create("flagged");
    let (second, record) = other.dispatch(&record, "one");
    let (third, record) = other.next(&record, &done(&record));
    let (fourth, _) = other.next(&record, &contradiction(&record));
    for row in [&third, &fourth] {
        replace(&journals.bed, row, &journals.flagged).await;
    }
    assert_eq!(journals.found().await, [(journals.flagged.clone(), 3, Forked)]);
    replace(&journals.bed, &second, &journals.flagged).await;
    assert_eq!(journals.found().await, [(journals.flagged.clone(), 2, Forked)], "the fork begins one entry earlier");
}

async fn row(bed: &Bed, key: &EffectKey, revision: u32) -> AuditRow {
    let rows = bed.store.audit(None, 500).await.unwrap();
    rows.into_iter().find(|row| row.key == *key && row.journal.revision == revision).unwrap()
}

async fn a_row_of_another_effect_is_edited(store: StoreUnderTest) {
    let journals = journals(store).await;
    // Both were created and dispatched alike; the rows change places, hashes and all.
    let (bed, one, other) = (&journals.bed, &journals.settled, &journals.flagged);
    let place = |key: &EffectKey, revision: u32| format!("revision = {revision} AND {}", bed.of(key));
    let aside = place(one, 77);
    bed.execute(&format!("UPDATE entries SET revision = 77 WHERE {}", place(one, 2))).await;
    let (first, second) = (bed.id(one.effect), bed.id(other.effect));
    bed.execute(&format!("UPDATE entries SET effect = {first} WHERE {}", place(other, 2))).await;
    bed.execute(&format!("UPDATE entries SET revision = 2, effect = {second} WHERE {aside}")).await;
    let found = journals.found().await;
    for key in [one, other] {
        let of_it: Vec<_> = found.iter().filter(|(found, _, _)| found == key).collect();
        assert!(of_it.iter().any(|(_, revision, damage)| (*revision, *damage) == (2, Edited)), "{of_it:?}");
        assert!(of_it.iter().all(|(_, revision, damage)| *revision == 2 || *damage == Forked));
    }
    // A row that is only copied, over one of another effect.
    let journals = self::journals(store).await;
    let copy = row(&journals.bed, &journals.settled, 2).await;
    let entry = copy.journal.entry.replace('\'', "''");
    journals.spoil(&format!("UPDATE entries SET entry = '{entry}'"), &journals.flagged, 2).await;
    assert_eq!(journals.found().await, [(journals.flagged.clone(), 2, Edited)]);
}

async fn an_open_effect_that_is_not_marked_is_found(store: StoreUnderTest) {
    let journals = journals(store).await;
    journals.bed.execute(&format!("DELETE FROM open_effects WHERE {}", journals.bed.of(&journals.open))).await;
    assert_eq!(journals.found().await, [(journals.open.clone(), 4, Truncated)]);
}

async fn a_mark_that_names_no_newest_entry_is_edited(store: StoreUnderTest) {
    let journals = journals(store).await;
    let of = journals.bed.of(&journals.open);
    journals.bed.execute(&format!("UPDATE open_effects SET revision = 2 WHERE {of}")).await;
    assert_eq!(journals.found().await, [(journals.open.clone(), 2, Edited)]);
    journals.bed.execute(&format!("UPDATE open_effects SET revision = 9 WHERE {of}")).await;
    assert_eq!(journals.found().await, [(journals.open.clone(), 9, Truncated)]);
    // A settled effect that is marked open would be swept for ever.
    let journals = self::journals(store).await;
    journals
        .bed
        .execute(&format!(
            "INSERT INTO open_effects (tenant, effect, revision, state, fence, created_us, contradicted, tool)
             VALUES ('tenant', {}, 2, 3, 1, 0, FALSE, 'tool')",
            journals.bed.id(journals.settled.effect)
        ))
        .await;
    assert_eq!(journals.found().await, [(journals.settled.clone(), 2, Edited)]);
}

async fn several_damages_are_all_found(store: StoreUnderTest) {
    let journals = journals(store).await;
    journals.spoil("UPDATE entries SET entry = entry || ' '", &journals.settled, 1).await;
    journals.spoil("UPDATE entries SET state = 1", &journals.settled, 3).await;
    journals.spoil("DELETE FROM entries", &journals.open, 2).await;
    journals.spoil("DELETE FROM entries", &journals.flagged, 4).await;
    let mut found = journals.found().await;
    let mut expected = vec![
        (journals.settled.clone(), 1, Edited),
        (journals.settled.clone(), 3, Edited),
        (journals.open.clone(), 2, Missing),
        (journals.flagged.clone(), 4, Truncated),
    ];
    let order = |found: &(EffectKey, u32, actonce::service::journal::Damage)| (found.0.effect, found.1);
    found.sort_by_key(order);
    expected.sort_by_key(order);
    assert_eq!(found, expected);
}

/// Two writers on two copies leave entries that are both what was hashed; an edit leaves one that is not.
async fn two_writers_are_told_apart_from_an_edit(store: StoreUnderTest) {
    let detail = async |journals: &Journals| {
        let report = actonce::service::journal::verify(journals.bed.store.as_ref()).await.unwrap();
        report.findings.iter().find(|found| found.damage == Forked).unwrap().detail
    };
    let journals = journals(store).await;
    let other = another_history(&journals.maker);
    let (_, record) = other.create("flagged");
    let (_, record) = other.dispatch(&record, "one");
    let (third, _) = other.next(&record, &done(&record));
    replace(&journals.bed, &third, &journals.flagged).await;
    assert!(detail(&journals).await.contains("two writers"));
    let journals = self::journals(store).await;
    let hash = journals.bed.bytes(&[7; 32]);
    journals.spoil(&format!("UPDATE entries SET hash = {hash}"), &journals.open, 2).await;
    assert!(!detail(&journals).await.contains("two writers"));
}
