//! A row that can't be read back is the answer of its own key alone.

use actonce::domain::ids::EffectKey;
use actonce::store::Committed::Applied;
use actonce::store::Corruption;

use super::bed::{Bed, revise};
use super::effects::{Maker, TOOL, name, registration, succeeded};
use crate::support::{StoreUnderTest, both_stores};

both_stores!(a_spoilt_row_hides_itself_alone, a_spoilt_tool_says_so, a_corruption_shows_no_content);

/// Settled effects `a` to `h`, each with a receipt.
async fn effects(bed: &Bed) -> Vec<EffectKey> {
    let maker = Maker::external("tenant", bed.now().await);
    let mut keys = Vec::new();
    for operation in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        let (first, record) = maker.create(operation);
        let (second, record) = maker.dispatch(&record, "one");
        let (third, _) = maker.next(&record, &succeeded(&record));
        for row in [&first, &second, &third] {
            assert_eq!(bed.commit(&[revise(row)]).await, [Applied]);
        }
        keys.push(first.key);
    }
    keys
}

async fn load(bed: &Bed, keys: &[EffectKey]) -> Vec<Result<u32, Corruption>> {
    let loaded = bed.store.load(keys).await.unwrap();
    let revision = |record: Option<actonce::domain::record::Record>| record.map_or(0, |record| record.life.revision);
    loaded.into_iter().map(|found| found.map(revision).map_err(|fault| fault.corruption().unwrap())).collect()
}

async fn a_spoilt_row_hides_itself_alone(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let keys = effects(&bed).await;
    let short = bed.bytes(&[1, 2, 3]);
    let spoil = [
        ("life", "UPDATE entries SET life = '{\"state\":\"completed\"' WHERE revision = 3 AND ".to_owned()),
        ("life", "UPDATE entries SET life = '{}' WHERE revision = 3 AND ".to_owned()),
        ("intent", "UPDATE entries SET intent = 'hunter2' WHERE revision = 1 AND ".to_owned()),
        ("hash", format!("UPDATE entries SET hash = {short} WHERE revision = 3 AND ")),
        ("receipt", "UPDATE entries SET receipt = NULL WHERE revision = 3 AND ".to_owned()),
        ("intent", "DELETE FROM entries WHERE revision = 1 AND ".to_owned()),
        ("revision", "UPDATE entries SET revision = 9 WHERE revision = 3 AND ".to_owned()),
    ];
    for ((_, statement), key) in spoil.iter().zip(&keys) {
        bed.execute(&format!("{statement}{}", bed.of(key))).await;
    }
    // The intent of another effect.
    bed.execute(&format!(
        "UPDATE entries SET intent = (SELECT intent FROM entries WHERE revision = 1 AND {}) WHERE revision = 1 AND {}",
        bed.of(&keys[8]),
        bed.of(&keys[7])
    ))
    .await;
    let found = load(&bed, &keys).await;
    let columns: Vec<&str> = found.iter().map(|found| found.as_ref().map_or_else(|c| c.column, |_| "")).collect();
    let mut expected: Vec<&str> = spoil.iter().map(|(column, _)| *column).collect();
    expected.extend(["effect", ""]);
    assert_eq!(columns, expected);
    assert_eq!(*found[8].as_ref().unwrap(), 3);
    for corruption in found.into_iter().filter_map(Result::err) {
        assert_eq!(corruption.table, "entries");
    }
}

async fn a_spoilt_tool_says_so(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    bed.store.write_tool(&registration(&maker.tenant, TOOL, &maker.tool.spec)).await.unwrap();
    bed.store.write_tool(&registration(&maker.tenant, "other", &maker.tool.spec)).await.unwrap();
    bed.execute(&format!("UPDATE tool_revisions SET spec = 'hunter2' WHERE name = '{TOOL}'")).await;
    let row = bed.store.tool(&maker.tenant, &name(TOOL)).await.unwrap().unwrap();
    let corruption = actonce::engine::tools::tool_of(row).unwrap_err();
    assert_eq!((corruption.table, corruption.column), ("tool_revisions", "spec"));
    assert!(!corruption.to_string().contains("hunter2"));
    let row = bed.store.tool(&maker.tenant, &name("other")).await.unwrap().unwrap();
    assert!(actonce::engine::tools::tool_of(row).is_ok());
}

async fn a_corruption_shows_no_content(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let keys = effects(&bed).await;
    bed.execute(&format!("UPDATE entries SET life = '\"hunter2\"' WHERE revision = 3 AND {}", bed.of(&keys[0]))).await;
    let corruption = load(&bed, &keys[..1]).await.remove(0).unwrap_err();
    assert_eq!(corruption.to_string(), format!("corrupt row in entries.life, key {}", keys[0].effect));
    assert!(!format!("{corruption:?}").contains("tenant"), "the key stands there without its tenant");
}
