//! Receipt sources and the quarantine, on both stores.

use actonce::domain::ids::{Name, Tenant};
use actonce::domain::time::Timestamp;
use actonce::store::receipts::{
    QuarantineRow, QuarantineStatus, QuarantineTry, Quarantined, SourceDeleted, SourceRow, SourceWrite,
};
use actonce::support::random_id;
use futures_util::future::join_all;
use uuid::Uuid;

use super::bed::{Bed, both_manners};
use crate::support::StoreUnderTest;

both_manners!(
    a_source_is_compared_and_set,
    a_quarantine_holds_its_bound_whoever_comes_at_once,
    a_try_is_taken_once,
    decided_deliveries_are_remembered_and_bounded,
    old_deliveries_go,
);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn tenant(text: &str) -> Tenant {
    Tenant::new(text).unwrap()
}

fn source(revision: u32) -> SourceWrite {
    let row = SourceRow {
        tenant: tenant("t"),
        name: name("vendor"),
        source_id: Uuid::from_u128(7),
        revision,
        spec: format!("{{\"ü\": {revision}}}"),
        secrets: (revision == 1).then(|| "sealed".to_owned()),
        changed_at: Timestamp::from_micros(1_767_225_600_000_001),
    };
    SourceWrite { row, by: name("me") }
}

fn delivery(id: Uuid, received_us: i64) -> QuarantineRow {
    QuarantineRow {
        tenant: tenant("t"),
        id,
        source: name("vendor"),
        status: QuarantineStatus::Waiting,
        reason: "unmatched".to_owned(),
        body: Some("{\"a\": \"ü\"}".to_owned()),
        body_digest: "sha256:x".to_owned(),
        facts: "{}".to_owned(),
        operation_id: Some(name("op")),
        attempts: 0,
        next_try_at: Some(Timestamp::from_micros(received_us)),
        received_at: Timestamp::from_micros(received_us),
        expires_at: Timestamp::from_micros(9_000_000_000_000_000),
        decision: None,
    }
}

async fn a_source_is_compared_and_set(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let store = &bed.store;
    assert!(!store.write_receipt_source(&source(2)).await.unwrap(), "nothing to change");
    let won = join_all((0..6).map(|_| async { store.write_receipt_source(&source(1)).await.unwrap() })).await;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    let won = join_all((0..6).map(|_| async { store.write_receipt_source(&source(2)).await.unwrap() })).await;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    let found = store.receipt_source(&tenant("t"), &name("vendor")).await.unwrap().unwrap();
    let at = store.receipt_source_at(Uuid::from_u128(7)).await.unwrap().unwrap();
    for found in [&found, &at] {
        assert_eq!((found.revision, found.spec.as_str(), found.secrets.as_deref()), (2, "{\"ü\": 2}", None));
        assert_eq!((found.tenant.as_str(), found.changed_at), ("t", source(1).row.changed_at));
    }
    assert!(store.receipt_source(&tenant("other"), &name("vendor")).await.unwrap().is_none());
    assert!(store.receipt_source_at(Uuid::from_u128(8)).await.unwrap().is_none());
    let deleted = store.delete_receipt_source(&tenant("t"), &name("vendor"), 1).await.unwrap();
    assert_eq!(deleted, SourceDeleted::Lost);
    store.quarantine(&delivery(random_id(), 5), 9).await.unwrap();
    let deleted = store.delete_receipt_source(&tenant("t"), &name("vendor"), 2).await.unwrap();
    assert_eq!(deleted, SourceDeleted::InUse);
}

async fn a_quarantine_holds_its_bound_whoever_comes_at_once(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let store = &bed.store;
    assert_eq!(store.quarantine(&delivery(random_id(), 5), 5).await.unwrap(), Quarantined::NoSource);
    store.write_receipt_source(&source(1)).await.unwrap();
    let rows: Vec<QuarantineRow> = (0..12).map(|n| delivery(random_id(), n)).collect();
    let found = join_all(rows.iter().map(|row| async { store.quarantine(row, 5).await.unwrap() })).await;
    assert_eq!(found.iter().filter(|found| **found == Quarantined::Stored).count(), 5);
    assert_eq!(found.iter().filter(|found| **found == Quarantined::Full).count(), 7);
    let stored = store.quarantine_list(&tenant("t"), QuarantineStatus::Waiting, None, 99).await.unwrap();
    assert_eq!(stored.len(), 5);
    assert!(stored.iter().all(|row| row.body.is_none()) && stored.is_sorted_by_key(|row| row.received_at));
    let again = rows.iter().find(|row| row.id == stored[0].id).unwrap();
    assert_eq!(store.quarantine(again, 5).await.unwrap(), Quarantined::Known(QuarantineStatus::Waiting));
    let read = store.quarantined(&tenant("t"), again.id).await.unwrap().unwrap();
    assert_eq!(
        (read.body, read.received_at, read.next_try_at),
        (again.body.clone(), again.received_at, again.next_try_at)
    );
    assert!(store.quarantined(&tenant("other"), again.id).await.unwrap().is_none());
    assert!(store.quarantine_applied(&tenant("t"), again.id).await.unwrap());
    assert!(!store.quarantine_applied(&tenant("t"), again.id).await.unwrap());
}

async fn a_try_is_taken_once(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let store = &bed.store;
    store.write_receipt_source(&source(1)).await.unwrap();
    let row = delivery(random_id(), 5);
    store.quarantine(&row, 5).await.unwrap();
    let mut later = delivery(random_id(), 5);
    later.next_try_at = Some(Timestamp::from_micros(8_000_000_000_000_000));
    store.quarantine(&later, 5).await.unwrap();
    let due = store.quarantine_due(9).await.unwrap();
    assert_eq!(due.iter().map(|row| row.id).collect::<Vec<_>>(), [row.id]);
    assert_eq!(store.quarantine_next().await.unwrap().0, row.next_try_at);
    let look = QuarantineTry {
        tenant: tenant("t"),
        id: row.id,
        attempts: 0,
        reason: Some("live_dispatch"),
        operation_id: None,
        next_try_at: None,
    };
    let taken = join_all((0..6).map(|_| async { store.quarantine_try(&look).await.unwrap() })).await;
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
    let read = store.quarantined(&tenant("t"), row.id).await.unwrap().unwrap();
    assert_eq!((read.attempts, read.reason.as_str(), read.operation_id), (1, "live_dispatch", row.operation_id));
    assert!(store.quarantine_due(9).await.unwrap().is_empty());
    // A changed registration brings on what waits.
    store.write_receipt_source(&source(2)).await.unwrap();
    assert_eq!(store.quarantine_due(9).await.unwrap().len(), 2);
}

async fn decided_deliveries_are_remembered_and_bounded(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let store = &bed.store;
    store.write_receipt_source(&source(1)).await.unwrap();
    let rows: Vec<QuarantineRow> = (0..5).map(|n| delivery(random_id(), n)).collect();
    for row in &rows {
        store.quarantine(row, 9).await.unwrap();
        let decide = || store.quarantine_decide(row, QuarantineStatus::Discarded, "{}", 3);
        assert!(decide().await.unwrap());
        assert!(!decide().await.unwrap(), "once");
    }
    let kept = store.quarantine_list(&tenant("t"), QuarantineStatus::Discarded, None, 9).await.unwrap();
    assert_eq!(
        kept.iter().map(|row| row.id).collect::<Vec<_>>(),
        rows[2..].iter().map(|row| row.id).collect::<Vec<_>>()
    );
    assert_eq!(store.quarantine(&rows[4], 9).await.unwrap(), Quarantined::Known(QuarantineStatus::Discarded));
    assert!(store.quarantine_due(9).await.unwrap().is_empty());
    let deleted = store.delete_receipt_source(&tenant("t"), &name("vendor"), 1).await.unwrap();
    assert_eq!(deleted, SourceDeleted::Applied);
    assert!(store.quarantined(&tenant("t"), rows[4].id).await.unwrap().is_none());
}

async fn old_deliveries_go(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let store = &bed.store;
    store.write_receipt_source(&source(1)).await.unwrap();
    for expires_us in [1, 2, 3, 8_000_000_000_000_000] {
        let mut row = delivery(random_id(), 5);
        row.expires_at = Timestamp::from_micros(expires_us);
        store.quarantine(&row, 9).await.unwrap();
    }
    let discarded = store.quarantine_list(&tenant("t"), QuarantineStatus::Waiting, None, 1).await.unwrap();
    store.quarantine_decide(&discarded[0], QuarantineStatus::Discarded, "{}", 9).await.unwrap();
    let mut waited = 0;
    for _ in 0..3 {
        waited += store.quarantine_expire(2).await.unwrap();
    }
    let left = store.quarantine_list(&tenant("t"), QuarantineStatus::Waiting, None, 9).await.unwrap();
    let left =
        left.len() + store.quarantine_list(&tenant("t"), QuarantineStatus::Discarded, None, 9).await.unwrap().len();
    assert_eq!(left, 1);
    assert!((2..=3).contains(&waited), "{waited}: those that people decided about don't count");
}
