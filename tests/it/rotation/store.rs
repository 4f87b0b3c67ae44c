//! The store's part: what was seen is compared, and nobody is waited for.

use std::time::Duration;

use actonce::store::seals::{Resealed, SealedKey, SealedOwner, SealedTable};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::store::bed::Bed;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(only_what_was_seen_is_replaced, pages_go_through_every_row_once);

fn at(tenant: &str, number: u128) -> SealedKey {
    SealedKey { tenant: tenant.to_owned(), owner: SealedOwner::Id(Uuid::from_u128(number)), number: 0 }
}

async fn put(bed: &Bed, tenant: &str, number: u128, sealed: &[u8]) {
    let (effect, sealed) = (bed.id(Uuid::from_u128(number)), bed.bytes(sealed));
    bed.execute(&format!("INSERT INTO retained_arguments VALUES ('{tenant}', {effect}, {sealed})")).await;
}

async fn only_what_was_seen_is_replaced(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let table = SealedTable::RetainedArguments;
    for number in 1..=3 {
        put(&bed, "a", number, &[1, 7, 0, 9]).await;
    }
    put(&bed, "b", 1, &[1, 7, 0, 9]).await;
    let row = |key, seen: &[u8]| Resealed { key, seen: seen.to_vec(), fresh: vec![1, 8, 0, 5] };
    let rows = [row(at("a", 1), &[1, 7, 0, 9]), row(at("a", 2), &[1, 7, 0, 8]), row(at("c", 3), &[1, 7, 0, 9])];
    assert_eq!(bed.store.reseal(table, &rows).await.unwrap(), 1);
    let left = bed.store.sealed(table, &SealedKey::before_all(table), Some([1, 8]), 10).await.unwrap();
    let found: Vec<_> =
        left.iter().map(|row| (row.key.tenant.as_str(), row.start.as_slice(), row.content.is_some())).collect();
    let old: &[u8] = &[1, 7, 0];
    assert_eq!(found, [("a", &[1, 8, 0][..], false), ("a", old, true), ("a", old, true), ("b", old, true)]);
    if bed.is_sqlite() {
        return;
    }
    // A change of an effect that lets its arguments go holds the row: it is neither waited for nor changed.
    let mut other = PgConnection::connect(&bed.url()).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    sqlx::query(
        "DELETE FROM retained_arguments WHERE tenant = 'a' AND effect = '00000000-0000-0000-0000-000000000002'",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    let rows = [row(at("a", 2), &[1, 7, 0, 9]), row(at("a", 3), &[1, 7, 0, 9])];
    let done = tokio::time::timeout(Duration::from_secs(5), bed.store.reseal(table, &rows)).await;
    assert_eq!(done.expect("nobody is waited for").unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(bed.store.reseal(table, &rows).await.unwrap(), 0, "what has gone does not come back");
    assert_eq!(bed.count("SELECT count(*) FROM retained_arguments").await, 3);
}

async fn pages_go_through_every_row_once(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let blob = bed.bytes(&[1, 7, 0, 9]);
    for tenant in ["a", "b"] {
        for number in 1..=5 {
            put(&bed, tenant, number, &[1, 7, 0]).await;
            bed.execute(&format!("INSERT INTO tool_secrets VALUES ('{tenant}', 'tool', {number}, {blob}, 0, NULL)"))
                .await;
            let (name, id) = (format!("source {number}"), bed.id(Uuid::from_u128(number)));
            let secrets = if number == 3 { "NULL" } else { "'AQcA'" };
            bed.execute(&format!(
                "INSERT INTO receipt_sources VALUES ('{tenant}', '{name}', {id}, 1, '{{}}', {secrets}, 0, 'me')"
            ))
            .await;
        }
    }
    for (table, expected) in
        [(SealedTable::RetainedArguments, 10), (SealedTable::ToolSecrets, 10), (SealedTable::ReceiptSources, 8)]
    {
        let (mut after, mut keys) = (SealedKey::before_all(table), Vec::new());
        loop {
            let page = bed.store.sealed(table, &after, None, 3).await.unwrap();
            assert!(page.iter().all(|row| row.content.is_none()), "nothing is read that nobody asked for");
            assert!(
                page.iter().all(|row| actonce::service::rotation::key_of(table, &row.start) == Some(7)),
                "{table:?}"
            );
            let Some(last) = page.last() else { break };
            after = last.key.clone();
            keys.extend(page.into_iter().map(|row| row.key));
        }
        assert_eq!(keys.len(), expected, "{table:?}");
        assert!(keys.is_sorted() && keys.windows(2).all(|two| two[0] != two[1]), "{table:?}");
    }
}
