//! Doubts of a tool are woken page by page, by one process at a time, and those alone.

use std::sync::Arc;

use actonce::domain::command::Report;
use actonce::domain::time::Timestamp;
use actonce::store::doubts::DoubtWake;
use actonce::store::{Store, ToolWrite, ToolWritten};

use super::bed::{Bed, both_manners};
use super::effects::{Maker, failure, name, owner, registration, report, tenant};
use crate::support::StoreUnderTest;

both_manners!(doubts_are_woken_page_by_page, a_newer_note_begins_anew, of_two_that_wake_one_goes_on);

const TOOL: &str = super::effects::TOOL;

async fn wakes(store: &Arc<dyn Store>) -> Vec<DoubtWake> {
    store.doubt_wakes(10).await.unwrap()
}

/// So many doubts of `tenant`, in order of creation.
async fn doubts(bed: &Bed, maker: &Maker, number: i64) {
    for n in 0..number {
        let maker = Maker { now: maker.now.plus_micros(n / 2), ..maker.clone() };
        let (row, made) = maker.create(&format!("op-{n}"));
        bed.revise(&row).await;
        let (row, held) = maker.dispatch(&made, "worker");
        bed.revise(&row).await;
        let (row, _) = maker.next(&held, &report(owner(&held), Report::Unknown(failure("slow"))));
        bed.revise(&row).await;
    }
}

async fn register(bed: &Bed, of: &str, stamp: Option<i64>, wakes_doubts: bool) {
    let spec = Maker::external(of, Timestamp::from_micros(0)).tool.spec.clone();
    let revision = u32::try_from(stamp.unwrap_or(0) + 1).unwrap();
    let write = registration(&tenant(of), TOOL, &spec);
    let write = ToolWrite { expected_stamp: stamp, revision, wakes_doubts, ..write };
    assert_eq!(bed.store.write_tool(&write).await.unwrap(), ToolWritten::Applied);
}

/// How many are due now, over all tenants.
async fn awake(bed: &Bed) -> usize {
    bed.store.due(100).await.unwrap().len()
}

async fn doubts_are_woken_page_by_page(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let now = bed.now().await;
    doubts(&bed, &Maker::external("tenant", now), 5).await;
    doubts(&bed, &Maker::external("other", now), 2).await;
    let maker = Maker::external("tenant", now);
    let (row, made) = maker.create("dispatched");
    bed.revise(&row).await;
    bed.revise(&maker.dispatch(&made, "worker").0).await;
    register(&bed, "tenant", None, false).await;
    assert_eq!((wakes(&bed.store).await, awake(&bed).await), (vec![], 0));
    register(&bed, "tenant", Some(1), true).await;
    assert_eq!(awake(&bed).await, 0, "nothing is done with the registration itself");
    for (found, due) in [(2, 2), (2, 4), (1, 5)] {
        let [wake] = &wakes(&bed.store).await[..] else { panic!("one note") };
        assert_eq!((wake.tenant.as_str(), &wake.tool, wake.stamp), ("tenant", &name(TOOL), 2));
        assert_eq!(bed.store.wake_doubts(wake, 2).await.unwrap(), Some(found));
        assert_eq!(awake(&bed).await, due);
    }
    assert_eq!(wakes(&bed.store).await, []);
    let due = bed.store.due(100).await.unwrap();
    assert!(due.iter().all(|key| key.tenant == tenant("tenant")), "others sleep on");
    assert!(!due.contains(&maker.key("dispatched")), "and so does what is no doubt");
}

async fn a_newer_note_begins_anew(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    doubts(&bed, &Maker::external("tenant", bed.now().await), 3).await;
    register(&bed, "tenant", None, true).await;
    let first = wakes(&bed.store).await.remove(0);
    assert_eq!(bed.store.wake_doubts(&first, 2).await.unwrap(), Some(2));
    let half = wakes(&bed.store).await.remove(0);
    register(&bed, "tenant", Some(1), true).await;
    assert_eq!(bed.store.wake_doubts(&half, 2).await.unwrap(), None, "it is another note by now");
    assert_eq!(awake(&bed).await, 2, "so nothing was done");
    let second = wakes(&bed.store).await.remove(0);
    assert_eq!((second.stamp, second.after_effect), (2, None));
    assert_eq!(bed.store.wake_doubts(&second, 10).await.unwrap(), Some(3));
    assert_eq!((awake(&bed).await, wakes(&bed.store).await), (3, vec![]));
}

async fn of_two_that_wake_one_goes_on(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    doubts(&bed, &Maker::external("tenant", bed.now().await), 4).await;
    register(&bed, "tenant", None, true).await;
    let other = bed.another().await;
    let wake = wakes(&bed.store).await.remove(0);
    let both = tokio::join!(bed.store.wake_doubts(&wake, 2), other.wake_doubts(&wake, 2));
    let mut both = [both.0.unwrap(), both.1.unwrap()];
    both.sort_unstable();
    assert_eq!(both, [None, Some(2)]);
    assert_eq!(awake(&bed).await, 2);
    other.close().await;
}
