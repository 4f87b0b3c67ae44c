//! Tools: a compare-and-set on their stamp, revisions that stay, walls.

use actonce::domain::state::{EffectClass, State};
use actonce::domain::time::Timestamp;
use actonce::store::Committed::Applied;
use actonce::store::rows::state_code;
use actonce::store::{ToolRow, ToolWrite, ToolWritten};
use serde_json::json;

use super::bed::{Bed, both_manners};
use super::effects::{Maker, TOOL, name, registration, spec, tenant};
use crate::support::StoreUnderTest;

both_manners!(
    a_tool_changes_from_stamp_to_stamp,
    a_lost_change_of_a_tool_leaves_no_revision,
    a_change_is_of_one_tenant_s_tool,
    revisions_stay_as_they_were_registered,
    a_tool_in_use_stays,
    a_deleted_tool_comes_back_under_the_next_revision,
    tools_are_listed_by_name_and_tenant,
);

fn write(expected_stamp: Option<i64>, revision: u32, spec: Option<&str>) -> ToolWrite {
    ToolWrite {
        expected_stamp,
        revision,
        spec: spec.map(str::to_owned),
        at: Timestamp::from_micros(1_767_225_600_000_001),
        ..registration(&tenant("tenant"), TOOL, &self::spec(EffectClass::External, &json!({})))
    }
}

async fn put(bed: &Bed, write: &ToolWrite) -> ToolWritten {
    bed.store.write_tool(write).await.unwrap()
}

async fn stored(bed: &Bed) -> Option<ToolRow> {
    bed.store.tool(&tenant("tenant"), &name(TOOL)).await.unwrap()
}

async fn a_tool_changes_from_stamp_to_stamp(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    assert!(stored(&bed).await.is_none());
    assert_eq!(put(&bed, &write(Some(1), 1, Some("{}"))).await, ToolWritten::Lost);
    assert_eq!(put(&bed, &write(None, 1, Some("{\"b\": 1.0}"))).await, ToolWritten::Applied);
    assert_eq!(put(&bed, &write(None, 1, Some("{}"))).await, ToolWritten::Lost);
    let row = stored(&bed).await.unwrap();
    assert_eq!((row.revision, row.stamp, row.paused, row.deleted), (1, 1, false, false));
    assert_eq!((row.spec.as_str(), row.registered_at.micros()), ("{\"b\": 1.0}", 1_767_225_600_000_001));
    let pause = ToolWrite { paused: true, ..write(Some(1), 1, None) };
    assert_eq!(put(&bed, &pause).await, ToolWritten::Applied);
    assert_eq!(put(&bed, &pause).await, ToolWritten::Lost, "again");
    let row = stored(&bed).await.unwrap();
    assert_eq!((row.revision, row.stamp, row.paused, row.spec.as_str()), (1, 2, true, "{\"b\": 1.0}"));
    assert_eq!(put(&bed, &write(Some(2), 2, Some("{\"b\": 2}"))).await, ToolWritten::Applied);
    let row = stored(&bed).await.unwrap();
    assert_eq!((row.revision, row.stamp, row.paused, row.spec.as_str()), (2, 3, false, "{\"b\": 2}"));
}

async fn a_lost_change_of_a_tool_leaves_no_revision(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    put(&bed, &write(None, 1, Some("{}"))).await;
    for expected in [None, Some(0), Some(2)] {
        assert_eq!(put(&bed, &write(expected, 2, Some("{\"lost\":true}"))).await, ToolWritten::Lost);
    }
    assert_eq!(bed.count("SELECT count(*) FROM tool_revisions").await, 1);
    assert_eq!(stored(&bed).await.unwrap().stamp, 1);
}

pub(super) async fn a_change_is_of_one_tenant_s_tool(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    put(&bed, &write(None, 1, Some("{}"))).await;
    // The same name at the same stamp.
    let theirs = ToolWrite { tenant: tenant("other"), ..write(None, 1, Some("{}")) };
    assert_eq!(put(&bed, &theirs).await, ToolWritten::Applied);
    let pause = ToolWrite { paused: true, ..write(Some(1), 1, None) };
    assert_eq!(put(&bed, &pause).await, ToolWritten::Applied);
    let row = bed.store.tool(&tenant("other"), &name(TOOL)).await.unwrap().unwrap();
    assert_eq!((row.stamp, row.paused), (1, false));
    assert_eq!(stored(&bed).await.map(|row| (row.stamp, row.paused)), Some((2, true)));
}

pub(super) async fn revisions_stay_as_they_were_registered(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    for revision in 1..=3_u32 {
        let stamp = i64::from(revision) - 1;
        let change = write((stamp > 0).then_some(stamp), revision, Some(&format!("{{\"r\":{revision}}}")));
        assert_eq!(put(&bed, &change).await, ToolWritten::Applied);
    }
    for revision in 1..=3_u32 {
        let row = bed.store.tool_revision(&tenant("tenant"), &name(TOOL), revision).await.unwrap().unwrap();
        assert_eq!((row.revision, row.stamp, row.spec), (revision, 3, format!("{{\"r\":{revision}}}")));
    }
    assert!(bed.store.tool_revision(&tenant("tenant"), &name(TOOL), 4).await.unwrap().is_none());
    assert!(bed.store.tool_revision(&tenant("other"), &name(TOOL), 1).await.unwrap().is_none());
    assert!(bed.store.tool_revision(&tenant("tenant"), &name("other"), 1).await.unwrap().is_none());
}

pub(super) async fn a_tool_in_use_stays(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    put(&bed, &write(None, 1, Some("{}"))).await;
    let foreign = Maker::external("other", bed.now().await).create("a").0;
    assert_eq!(bed.revise(&foreign).await, Applied);
    let delete = ToolWrite { deleted: true, ..write(Some(1), 1, None) };
    assert_eq!(put(&bed, &delete).await, ToolWritten::Applied, "another tenant uses a tool of its own");
    assert_eq!(put(&bed, &write(Some(2), 2, Some("{}"))).await, ToolWritten::Applied);
    let delete = ToolWrite { deleted: true, ..write(Some(3), 2, None) };
    let row = Maker::external("tenant", bed.now().await).create("a").0;
    assert_eq!(bed.revise(&row).await, Applied);
    for state in State::ALL {
        bed.execute(&format!("UPDATE open_effects SET state = {}", state_code(state))).await;
        if !state.is_terminal() {
            assert_eq!(put(&bed, &delete).await, ToolWritten::InUse, "{state:?}");
            let row = stored(&bed).await.unwrap();
            assert_eq!((row.deleted, row.stamp), (false, 3));
        }
    }
    // Settled, and open only because it is contradicted.
    assert_eq!(put(&bed, &delete).await, ToolWritten::Applied);
    assert!(stored(&bed).await.unwrap().deleted);
}

async fn a_deleted_tool_comes_back_under_the_next_revision(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    put(&bed, &write(None, 1, Some("{\"r\":1}"))).await;
    put(&bed, &ToolWrite { deleted: true, ..write(Some(1), 1, None) }).await;
    assert!(bed.store.tools(&tenant("tenant"), None, 9).await.unwrap().is_empty());
    assert!(stored(&bed).await.unwrap().deleted);
    assert_eq!(put(&bed, &write(None, 1, Some("{}"))).await, ToolWritten::Lost, "it was there before");
    assert_eq!(put(&bed, &write(Some(2), 2, Some("{\"r\":2}"))).await, ToolWritten::Applied);
    let row = stored(&bed).await.unwrap();
    assert_eq!((row.deleted, row.revision, row.stamp, row.spec.as_str()), (false, 2, 3, "{\"r\":2}"));
    let old = bed.store.tool_revision(&tenant("tenant"), &name(TOOL), 1).await.unwrap().unwrap();
    assert_eq!(old.spec, "{\"r\":1}");
}

pub(super) async fn tools_are_listed_by_name_and_tenant(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let mut names = ["b", "a", "ä", "B", "a b", "𝄞", "é", "e\u{301}", "\u{e000}"].map(str::to_owned).to_vec();
    for tool in &names {
        put(&bed, &ToolWrite { name: name(tool), ..write(None, 1, Some("{}")) }).await;
    }
    put(&bed, &ToolWrite { tenant: tenant("other"), name: name("zz"), ..write(None, 1, Some("{}")) }).await;
    names.sort();
    let mut found: Vec<String> = Vec::new();
    loop {
        let after = found.last().map(|last| name(last));
        let page = bed.store.tools(&tenant("tenant"), after.as_ref(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page.iter().map(|row| row.name.as_str().to_owned()));
    }
    assert_eq!(found, names, "by bytes, whatever the locale");
}
