//! What a commit finds again, or loses: lease ends by the database's own clock, tools by their
//! stamp (laws 3, 13).

use actonce::domain::command::Command;
use actonce::domain::record::Record;
use actonce::domain::state::{EffectClass, State};
use actonce::domain::time::Timestamp;
use actonce::store::Committed::{self, Applied, Lost};
use actonce::store::{ChangeSet, Renewal, RevisionRow, ToolWrite, ToolWritten};
use serde_json::json;

use super::bed::{Bed, both_ways, revise};
use super::effects::{Maker, TOOL, claim, expire, name, owner, registration, spec, succeeded};
use crate::support::StoreUnderTest;

both_ways!(
    silence_counts_only_when_the_database_says_that_it_is_over,
    a_renewed_lease_is_not_the_one_that_was_seen,
    a_settlement_after_silence_repeats_the_lease_too,
    a_settlement_after_silence_repeats_the_very_lease_that_was_seen,
    a_renewal_needs_the_live_lease_of_that_dispatch,
    a_renewal_never_shortens,
    renewals_and_revisions_go_together,
    of_renewal_and_expiry_only_one_is_possible,
    a_grant_needs_the_tool_as_it_was_seen,
    a_grant_that_was_decided_before_a_pause_loses,
);

fn renewal(record: &Record, until: Timestamp) -> Renewal {
    Renewal { key: record.key.clone(), revision: record.life.revision, fence: record.life.fence, until }
}

async fn renew(bed: &Bed, renewal: &Renewal) -> Committed {
    bed.commit(&[ChangeSet::Renew(renewal.clone())]).await[0]
}

/// An effect whose dispatch was granted so many seconds before the database's time now.
async fn dispatched(bed: &Bed, seconds_ago: i64) -> (Maker, Record) {
    let now = bed.now().await;
    let maker = Maker::external("tenant", now.plus_micros(-seconds_ago * 1_000_000));
    let (row, record) = maker.create("a");
    assert_eq!(bed.revise(&row).await, Applied);
    let (row, record) = maker.dispatch(&record, "one");
    assert_eq!(bed.revise(&row).await, Applied);
    (maker, record)
}

/// The expiry as a replica decides it whose clock runs that many seconds ahead.
fn expired(maker: &Maker, record: &Record, ahead_seconds: u32) -> RevisionRow {
    let ahead = Maker { now: maker.now.plus_seconds(ahead_seconds), ..maker.clone() };
    let (row, _) = ahead.next(record, &expire());
    assert_eq!((row.state, row.lease_seen), (State::OutcomeUnknown, record.life.lease_end()));
    row
}

async fn silence_counts_only_when_the_database_says_that_it_is_over(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (maker, record) = dispatched(&bed, 0).await;
    assert_eq!(
        bed.revise(&expired(&maker, &record, 3_600)).await,
        Lost,
        "a clock that runs an hour ahead decides nothing"
    );
    assert_eq!(bed.load(&record.key).await.unwrap().life.state, State::Dispatched);
    let bed = Bed::new(store).await;
    let (maker, record) = dispatched(&bed, 61).await;
    assert_eq!(bed.revise(&expired(&maker, &record, 61)).await, Applied);
}

async fn a_renewed_lease_is_not_the_one_that_was_seen(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (maker, record) = dispatched(&bed, 50).await;
    let stale = expired(&maker, &record, 3_600);
    let until = record.life.lease_end().unwrap().plus_micros(1);
    assert_eq!(renew(&bed, &renewal(&record, until)).await, Applied);
    // Past both ends: the one that the decision saw is still another one.
    bed.execute("UPDATE open_effects SET due_us = due_us - 3600000000").await;
    assert_eq!(bed.revise(&stale).await, Lost);
    let loaded = bed.load(&record.key).await.unwrap();
    assert_eq!(loaded.life.lease_end(), Some(until.plus_micros(-3_600_000_000)), "a load brings the renewed end");
    assert_eq!(bed.revise(&expired(&maker, &loaded, 3_600)).await, Applied);
}

async fn a_settlement_after_silence_repeats_the_lease_too(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (maker, record) = dispatched(&bed, 0).await;
    let ahead = Maker { now: maker.now.plus_seconds(3_600), ..maker.clone() };
    let (row, _) = ahead.next(&record, &succeeded(&record));
    assert!(row.open.is_none() && row.lease_seen.is_some(), "it takes the open row away");
    assert_eq!(bed.revise(&row).await, Lost);
    let (row, _) = maker.next(&record, &succeeded(&record));
    assert_eq!((row.lease_seen, bed.revise(&row).await), (None, Applied), "in time it does not depend on the lease");
}

async fn a_settlement_after_silence_repeats_the_very_lease_that_was_seen(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (maker, record) = dispatched(&bed, 50).await;
    let ahead = Maker { now: maker.now.plus_seconds(3_600), ..maker.clone() };
    let (stale, _) = ahead.next(&record, &succeeded(&record));
    assert!(stale.open.is_none() && stale.lease_seen == record.life.lease_end());
    let until = record.life.lease_end().unwrap().plus_micros(1);
    assert_eq!(renew(&bed, &renewal(&record, until)).await, Applied);
    // Past both ends: the one that the decision saw is still another one.
    bed.execute("UPDATE open_effects SET due_us = due_us - 3600000000").await;
    assert_eq!(bed.revise(&stale).await, Lost);
    assert_eq!(bed.rows().await, (2, 1));
    let loaded = bed.load(&record.key).await.unwrap();
    let (row, _) = ahead.next(&loaded, &succeeded(&loaded));
    assert_eq!((row.lease_seen, bed.revise(&row).await), (loaded.life.lease_end(), Applied));
}

async fn a_renewal_needs_the_live_lease_of_that_dispatch(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (maker, record) = dispatched(&bed, 0).await;
    let until = maker.now.plus_seconds(120);
    let good = renewal(&record, until);
    let mut foreign = good.clone();
    foreign.key = Maker::external("other", maker.now).key("a");
    for bad in [
        Renewal { revision: good.revision - 1, ..good.clone() },
        Renewal { revision: good.revision + 1, ..good.clone() },
        Renewal { fence: good.fence + 1, ..good.clone() },
        Renewal { fence: 0, ..good.clone() },
        Renewal { key: maker.key("absent"), ..good.clone() },
        foreign,
    ] {
        assert_eq!(renew(&bed, &bad).await, Lost);
    }
    assert_eq!(bed.load(&record.key).await.unwrap().life.lease_end(), record.life.lease_end());
    assert_eq!(renew(&bed, &good).await, Applied);
    assert_eq!(bed.rows().await, (2, 1), "a renewal is no change of the effect");
    let loaded = bed.load(&record.key).await.unwrap();
    assert_eq!((loaded.life.lease_end(), loaded.life.revision), (Some(until), 2));

    // After the end, by the database's clock, whatever the replica thinks.
    let late = Bed::new(store).await;
    let (maker, record) = dispatched(&late, 61).await;
    assert_eq!(renew(&late, &renewal(&record, maker.now.plus_seconds(3_600))).await, Lost);

    // After the outcome.
    let (row, after) = maker.next(&record, &Command::Cancel { expected_revision: None });
    let bed = late;
    let ahead = Maker { now: maker.now.plus_seconds(61), ..maker };
    assert_eq!(bed.revise(&row).await, Applied);
    assert_eq!(renew(&bed, &renewal(&after, ahead.now.plus_seconds(60))).await, Lost);
}

async fn a_renewal_never_shortens(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (_, record) = dispatched(&bed, 0).await;
    let end = record.life.lease_end().unwrap();
    for until in [end.plus_micros(-1), Timestamp::from_micros(0), end] {
        assert_eq!(renew(&bed, &renewal(&record, until)).await, Applied);
        assert_eq!(bed.load(&record.key).await.unwrap().life.lease_end(), Some(end));
    }
}

async fn renewals_and_revisions_go_together(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (maker, record) = dispatched(&bed, 0).await;
    let until = maker.now.plus_seconds(120);
    let mut stale = renewal(&record, until);
    stale.fence = 9;
    stale.key = maker.key("b");
    let batch = [
        ChangeSet::Renew(stale),
        revise(&maker.create("b").0),
        ChangeSet::Renew(renewal(&record, until)),
        revise(&maker.create("c").0),
    ];
    let done = bed.commit(&batch).await;
    assert_eq!((done[0], done[2], done[3]), (Lost, Applied, Applied));
    assert_eq!(bed.load(&record.key).await.unwrap().life.lease_end(), Some(until));
}

/// The heartbeat of a worker at the last moment, and the sweep of another replica at that moment.
async fn of_renewal_and_expiry_only_one_is_possible(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let other = bed.another().await;
    for round in 0..60 {
        let now = bed.now().await;
        // The lease ends within the next milliseconds.
        let maker = Maker::external("tenant", now.plus_micros(-60_000_000 + 3_000));
        let (row, record) = maker.create(&format!("operation {round}"));
        bed.revise(&row).await;
        let (row, record) = maker.dispatch(&record, "one");
        bed.revise(&row).await;
        let expiry = bed.batch(&[revise(&expired(&maker, &record, 3_600))]);
        let beat = [ChangeSet::Renew(renewal(&record, now.plus_seconds(60)))];
        let sweep = async {
            loop {
                // Asked before the attempt: one that begins after the end and loses has lost to the renewal.
                let is_over = bed.store.now().await.unwrap() > record.life.lease_end().unwrap();
                if bed.store.commit(&expiry).await.unwrap()[0] == Applied {
                    return true;
                }
                if is_over {
                    return false;
                }
            }
        };
        let (expired, renewed) = tokio::join!(sweep, async { other.commit(&beat).await.unwrap()[0] == Applied });
        assert!(expired != renewed, "round {round}: expired {expired}, renewed {renewed}");
    }
    other.close().await;
}

fn registered(maker: &mut Maker, stamp: i64) {
    let spec = spec(EffectClass::External, &json!({ "verification": "waived" }));
    maker.tool = actonce::domain::tool::Tool::new(name(TOOL), 1, spec, false, stamp, Timestamp::from_micros(0));
}

pub(super) async fn a_grant_needs_the_tool_as_it_was_seen(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let mut maker = Maker::external("tenant", bed.now().await);
    registered(&mut maker, 1);
    let create = |maker: &Maker, operation: &str| {
        let (row, record) = maker.create(operation);
        assert!(row.tool_stamp.is_some());
        (row, record)
    };
    assert_eq!(bed.revise(&create(&maker, "a").0).await, Lost, "nobody registered it");
    let write = registration(&maker.tenant, TOOL, &maker.tool.spec);
    assert_eq!(bed.store.write_tool(&write).await.unwrap(), ToolWritten::Applied);
    let foreign = { Maker { tenant: super::effects::tenant("other"), ..maker.clone() } };
    assert_eq!(bed.revise(&create(&foreign, "a").0).await, Lost, "another tenant's tool");
    assert_eq!(bed.rows().await, (0, 0));
    let (row, record) = create(&maker, "a");
    assert_eq!(bed.revise(&row).await, Applied);
    for stamp in [0, 2] {
        registered(&mut maker, stamp);
        assert_eq!(bed.revise(&maker.dispatch(&record, "one").0).await, Lost, "another stamp");
        assert_eq!(bed.revise(&create(&maker, "new").0).await, Lost, "another stamp");
    }
    registered(&mut maker, 1);
    let granted = maker.dispatch(&record, "one").0;
    assert_eq!(bed.revise(&granted).await, Applied);
    assert_eq!(bed.rows().await, (2, 1));

    // What is no grant does not depend on the tool.
    let (other, record) = create(&maker, "b");
    assert_eq!(bed.revise(&other).await, Applied);
    bed.execute("DELETE FROM open_effects WHERE revision = 2").await;
    bed.execute("UPDATE tools SET deleted = TRUE").await;
    assert_eq!(bed.revise(&maker.next(&record, &claim("one")).0).await, Lost, "it was deleted");
    assert_eq!(bed.revise(&create(&maker, "new").0).await, Lost, "it was deleted");
    let cancel = maker.next(&record, &Command::Cancel { expected_revision: None }).0;
    assert_eq!(bed.revise(&cancel).await, Applied);
}

async fn a_grant_that_was_decided_before_a_pause_loses(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let mut maker = Maker::external("tenant", bed.now().await);
    registered(&mut maker, 1);
    bed.store.write_tool(&registration(&maker.tenant, TOOL, &maker.tool.spec)).await.unwrap();
    let (row, record) = maker.create("a");
    bed.revise(&row).await;
    let granted = maker.dispatch(&record, "one").0;
    let pause = ToolWrite {
        expected_stamp: Some(1),
        spec: None,
        paused: true,
        ..registration(&maker.tenant, TOOL, &maker.tool.spec)
    };
    assert_eq!(bed.store.write_tool(&pause).await.unwrap(), ToolWritten::Applied);
    assert_eq!(bed.revise(&granted).await, Lost);
    assert_eq!(owner(&maker.dispatch(&record, "one").1).1, 1);
    assert_eq!(bed.load(&record.key).await.unwrap().life.fence, 0, "nobody was granted anything");
}
