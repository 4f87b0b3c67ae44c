//! Commits: the compare-and-set, batches, the row of open effects (laws 3, 8, 12).

use actonce::domain::command::{Command, Resolve, ResolvedOutcome};
use actonce::domain::record::Record;
use actonce::domain::state::State;
use actonce::store::Committed::{Applied, Lost};
use actonce::store::{RevisionRow, StoreError};

use super::bed::{Bed, both_ways, revise};
use super::effects::{Maker, claim, contradiction, name, report, succeeded, tenant};
use crate::support::StoreUnderTest;

both_ways!(
    what_was_applied_is_read_back,
    a_lost_change_leaves_nothing_and_takes_no_other_down,
    a_revision_follows_the_one_before_it,
    a_revision_of_a_settled_effect_follows_the_newest,
    of_two_changes_of_one_effect_in_a_batch_the_first_wins,
    a_batch_of_every_kind_loses_only_what_is_there_already,
    a_batch_with_a_row_that_the_database_refuses_writes_nothing,
    a_refused_mark_takes_the_entry_with_it,
    an_effect_is_open_until_it_settles_and_again_while_contradicted,
    the_same_operation_of_two_tenants_is_two_effects,
    an_empty_batch_and_a_full_one,
    a_closed_store_says_so,
);

async fn what_was_applied_is_read_back(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, record) = maker.create("a");
    assert!(bed.load(&row.key).await.is_none());
    assert_eq!(bed.revise(&row).await, Applied);
    let (row, record) = maker.dispatch(&record, "one");
    assert_eq!(bed.revise(&row).await, Applied);
    same(&bed.load(&row.key).await.unwrap(), &record);
    let (row, record) = maker.next(&record, &succeeded(&record));
    assert_eq!(bed.revise(&row).await, Applied);
    same(&bed.load(&row.key).await.unwrap(), &record);
    assert_eq!(bed.store.revisions(&[row.key.clone(), maker.key("b")]).await.unwrap(), [3, 0]);
}

/// The record that was decided is the record that is loaded.
fn same(loaded: &Record, decided: &Record) {
    assert_eq!(loaded.key, decided.key);
    assert_eq!(loaded.intent, decided.intent);
    assert_eq!(loaded.life, decided.life);
    assert_eq!(loaded.head, decided.head);
    assert_eq!(loaded.receipt, decided.receipt);
    assert_eq!(loaded.result, decided.result);
}

async fn a_lost_change_leaves_nothing_and_takes_no_other_down(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (a, _) = maker.create("a");
    assert_eq!(bed.revise(&a).await, Applied);
    let mut rival = maker.create("a").0;
    rival.entry.push_str(" the loser's");
    rival.hash = [9; 32];
    let (b, c) = (maker.create("b").0, maker.create("c").0);
    assert_eq!(bed.commit(&[revise(&b), revise(&rival), revise(&c)]).await, [Applied, Lost, Applied]);
    assert_eq!(bed.commit(&[revise(&rival), revise(&a)]).await, [Lost, Lost]);
    assert_eq!(bed.rows().await, (3, 3));
    assert_eq!(bed.count("SELECT count(*) FROM entries WHERE entry LIKE '%loser%'").await, 0);
}

async fn a_revision_follows_the_one_before_it(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (first, record) = maker.create("a");
    let (second, record) = maker.dispatch(&record, "one");
    let (third, _) = maker.next(&record, &succeeded(&record));
    assert_eq!(bed.revise(&second).await, Lost, "there is no first");
    assert_eq!(bed.rows().await, (0, 0));
    assert_eq!(bed.revise(&first).await, Applied);
    assert_eq!(bed.revise(&third).await, Lost, "a gap");
    assert_eq!(bed.revise(&second).await, Applied);
    assert_eq!(bed.revise(&second).await, Lost, "again");
    assert_eq!(bed.revise(&third).await, Applied);
    assert_eq!(bed.rows().await, (3, 0));
}

async fn a_revision_of_a_settled_effect_follows_the_newest(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, record) = maker.create("a");
    bed.revise(&row).await;
    let (row, record) = maker.next(&record, &Command::Cancel { expected_revision: None });
    assert_eq!(bed.revise(&row).await, Applied);
    let (third, record) = maker.next(&record, &unknown_by_stranger("1"));
    let (fourth, _) = maker.next(&record, &unknown_by_stranger("2"));
    assert_eq!(bed.revise(&fourth).await, Lost, "a gap");
    assert_eq!(bed.revise(&third).await, Applied);
    assert_eq!(bed.revise(&third).await, Lost, "again");
    assert_eq!(bed.revise(&fourth).await, Applied);
    assert_eq!(bed.rows().await, (4, 0));
}

/// What is made, what is open and what has settled go in one batch, and one that somebody else made first is lost alone.
async fn a_batch_of_every_kind_loses_only_what_is_there_already(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (kept, kept_record) = maker.create("kept");
    let (closing, closing_record) = maker.create("closing");
    let (settled, settled_record) = maker.create("settled");
    let (there, _) = maker.create("there");
    for row in [&kept, &closing, &settled, &there] {
        assert_eq!(bed.revise(row).await, Applied);
    }
    let cancel = || Command::Cancel { expected_revision: None };
    let (row, settled_record) = maker.next(&settled_record, &cancel());
    assert_eq!(bed.revise(&row).await, Applied);
    let (fresh, kept, closing) =
        (maker.create("fresh").0, maker.dispatch(&kept_record, "one").0, maker.next(&closing_record, &cancel()).0);
    let (evidence, _) = maker.next(&settled_record, &unknown_by_stranger("1"));
    let without = [&there, &closing, &fresh].map(revise);
    assert_eq!(bed.commit(&without).await, [Lost, Applied, Applied]);
    let other = maker.create("other").0;
    let all = [&other, &kept, &evidence, &there, &fresh].map(revise);
    assert_eq!(bed.commit(&all).await, [Applied, Applied, Applied, Lost, Lost]);
    assert_eq!(bed.rows().await, (4 + 1 + 2 + 3, 4), "and none is half written");
}

fn unknown_by_stranger(detail: &str) -> Command {
    let unknown = actonce::domain::command::Report::Unknown(super::effects::failure(detail));
    report((uuid::Uuid::from_u128(5), 1), unknown)
}

async fn of_two_changes_of_one_effect_in_a_batch_the_first_wins(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (first, record) = maker.create("a");
    let mut rival = first.clone();
    rival.entry.push_str(" the loser's");
    assert_eq!(bed.commit(&[revise(&first), revise(&rival)]).await, [Applied, Lost]);
    // Open before the batch, and closed by the one but not by the other.
    let (granted, record) = maker.dispatch(&record, "one");
    let (rival, _) = maker.next(&bed.load(&first.key).await.unwrap(), &Command::Cancel { expected_revision: None });
    assert_eq!(bed.commit(&[revise(&granted), revise(&rival)]).await, [Applied, Lost]);
    assert_eq!(bed.load(&first.key).await.unwrap().life, record.life);
    // One that expects what the other would bring.
    let (second, open) = maker.create("b");
    let (third, _) = maker.dispatch(&open, "one");
    assert_eq!(bed.commit(&[revise(&second), revise(&third)]).await, [Applied, Lost]);
    assert_eq!(bed.rows().await, (3, 2));
    assert_eq!(bed.count("SELECT count(*) FROM entries WHERE entry LIKE '%loser%'").await, 0);
}

/// What the tables refuse: an intent that does not stand in the first revision.
pub(super) fn poisoned(maker: &Maker, operation: &str) -> RevisionRow {
    RevisionRow { revision: 2, ..maker.create(operation).0 }
}

async fn a_batch_with_a_row_that_the_database_refuses_writes_nothing(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (first, record) = maker.create("a");
    bed.revise(&first).await;
    let batch = [
        revise(&maker.create("b").0),
        revise(&maker.dispatch(&record, "one").0),
        revise(&poisoned(&maker, "c")),
        revise(&maker.create("d").0),
    ];
    let error = bed.try_commit(&batch).await.unwrap_err();
    assert!(matches!(error, StoreError::Rejected(_)) && !error.is_taken_key(), "{error}");
    assert_eq!(bed.rows().await, (1, 1));
    assert_eq!(bed.load(&first.key).await.unwrap().life.revision, 1);
    // And the next batch is as good as any.
    assert_eq!(bed.commit(&batch[..2]).await, [Applied, Applied]);
}

/// Law 8: an entry and the mark of what is open are one transaction.
async fn a_refused_mark_takes_the_entry_with_it(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (first, record) = maker.create("a");
    bed.revise(&first).await;
    let (granted, _) = maker.dispatch(&record, "one");
    let (settled, _) = maker.next(&record, &Command::Cancel { expected_revision: None });
    let changes = ["INSERT", "UPDATE", "DELETE"];
    if bed.is_sqlite() {
        for change in changes {
            let refuse = "BEGIN SELECT RAISE(ABORT, 'refused'); END";
            bed.execute(&format!("CREATE TRIGGER refuse_{change} BEFORE {change} ON open_effects {refuse}")).await;
        }
    } else {
        bed.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON open_effects
               FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await;
    }
    for row in [&maker.create("b").0, &granted, &settled] {
        bed.try_commit(&[revise(row)]).await.unwrap_err();
        assert_eq!(bed.rows().await, (1, 1), "{:?}", row.state);
    }
    if bed.is_sqlite() {
        for change in changes {
            bed.execute(&format!("DROP TRIGGER refuse_{change}")).await;
        }
    } else {
        bed.execute("DROP TRIGGER refuse ON open_effects").await;
    }
    assert_eq!(bed.revise(&granted).await, Applied);
    assert_eq!(bed.rows().await, (2, 1));
}

async fn an_effect_is_open_until_it_settles_and_again_while_contradicted(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, record) = maker.create("a");
    bed.revise(&row).await;
    let (row, record) = maker.dispatch(&record, "one");
    bed.revise(&row).await;
    assert_eq!(bed.rows().await, (2, 1));
    let (row, record) = maker.next(&record, &succeeded(&record));
    assert_eq!(bed.revise(&row).await, Applied);
    assert_eq!(bed.rows().await, (3, 0));
    let settled = record.clone();
    let (row, record) = maker.next(&record, &contradiction(&record));
    assert_eq!((row.was_open, bed.revise(&row).await), (false, Applied));
    assert_eq!(bed.count("SELECT revision FROM open_effects WHERE contradicted = TRUE").await, 4);
    // Somebody who did not see that decides on what was there before.
    let (stale, _) = maker.next(&settled, &unknown_by_stranger("1"));
    assert_eq!(bed.revise(&stale).await, Lost);
    let mut blind = maker.next(&record, &unknown_by_stranger("1")).0;
    blind.revision = 6;
    assert_eq!(bed.revise(&blind).await, Lost, "the open row names another revision");
    let resolve = Resolve {
        expected_revision: 4,
        decision_id: name("d-1"),
        outcome: ResolvedOutcome::Completed,
        reason: String::new(),
        evidence: "{\"ticket\":7}".into(),
        bulk_decision_id: None,
        digest: actonce::domain::canonical::Sha256Digest::of(b"decision"),
    };
    let (row, record) = maker.next(&record, &Command::Resolve(resolve));
    assert_eq!((row.was_open, row.open.is_some(), bed.revise(&row).await), (true, false, Applied));
    assert_eq!(bed.rows().await, (5, 0));
    let loaded = bed.load(&row.key).await.unwrap();
    assert_eq!((loaded.life.state, loaded.receipt), (State::Completed, record.receipt));
}

pub(super) async fn the_same_operation_of_two_tenants_is_two_effects(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let now = bed.now().await;
    let (ours, theirs) = (Maker::external("ours", now), Maker::external("theirs", now));
    let ((mine, record), (other, _)) = (ours.create("a"), theirs.create("a"));
    assert_ne!(mine.key.effect, other.key.effect);
    assert_eq!(bed.commit(&[revise(&mine), revise(&other)]).await, [Applied, Applied]);
    let (granted, _) = ours.dispatch(&record, "one");
    assert_eq!(bed.revise(&granted).await, Applied);
    assert_eq!(bed.load(&other.key).await.unwrap().life.state, State::IntentRecorded);
    // A foreign tenant's name with our effect's id finds nothing.
    let mut foreign = mine.key.clone();
    foreign.tenant = tenant("theirs");
    assert!(bed.load(&foreign).await.is_none());
    assert_eq!(bed.store.revisions(std::slice::from_ref(&foreign)).await.unwrap(), [0]);
    assert!(bed.store.journal(&foreign, 0, 9).await.unwrap().is_empty());
    let mut stolen = granted.clone();
    stolen.key = foreign;
    stolen.revision = 3;
    assert_eq!(bed.revise(&stolen).await, Lost);
    assert_eq!(bed.rows().await, (3, 2));
}

async fn an_empty_batch_and_a_full_one(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    assert_eq!(bed.commit(&[]).await, []);
    let made: Vec<_> = (0..actonce::limits::COMMIT_CHANGES).map(|n| maker.create(&format!("operation {n}"))).collect();
    let batch: Vec<_> = made.iter().map(|(row, _)| revise(row)).collect();
    assert!(bed.commit(&batch).await.iter().all(|done| *done == Applied));
    let granted: Vec<_> = made.iter().map(|(_, record)| revise(&maker.next(record, &claim("one")).0)).collect();
    assert!(bed.commit(&granted).await.iter().all(|done| *done == Applied));
    let keys: Vec<_> = made.iter().rev().map(|(row, _)| row.key.clone()).collect();
    let loaded = bed.store.load(&keys).await.unwrap();
    for (key, record) in keys.iter().zip(loaded) {
        let record = record.unwrap().unwrap();
        assert_eq!((&record.key, record.life.state), (key, State::Dispatched), "answers come in the order of the keys");
    }
    // The same key twice, and one that is absent.
    let absent = maker.key("absent");
    let asked = [keys[0].clone(), absent, keys[0].clone()];
    let found: Vec<bool> = bed.store.load(&asked).await.unwrap().into_iter().map(|r| r.unwrap().is_some()).collect();
    assert_eq!(found, [true, false, true]);
    assert!(bed.store.load(&[]).await.unwrap().is_empty());
    assert!(bed.store.revisions(&[]).await.unwrap().is_empty());
}

async fn a_closed_store_says_so(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    bed.store.close().await;
    let error = bed.try_commit(&[revise(&maker.create("a").0)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(bed.store.load(&[maker.key("a")]).await.is_err());
    bed.store.close().await;
}
