//! The order of the feed on Postgres, where transactions commit in any order.

use std::time::Duration;

use actonce::domain::ids::Tenant;
use actonce::store::feed::{FeedMark, FeedRow};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

use crate::store::bed::Bed;
use crate::store::effects::Maker;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(entries_from_before_the_feed_come_first, a_feed_is_read_on_from_any_entry);

async fn feed(bed: &Bed, from: &FeedMark) -> Vec<FeedRow> {
    let page = bed.store.feed(&Tenant::new("tenant").unwrap(), from, 100).await.unwrap();
    assert!(!page.more);
    // On SQLite others' rows are passed by, and nothing of them is shown.
    page.rows.into_iter().filter(|row| row.content.is_some()).collect()
}

/// The feed when it has come to this length: a transaction of another test, in another database of the same
/// cluster, holds it back too.
async fn feed_of(bed: &Bed, from: &FeedMark, length: usize) -> Vec<FeedRow> {
    for _ in 0..600 {
        let rows = feed(bed, from).await;
        if rows.len() >= length {
            return rows;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the feed stays behind");
}

fn effects(rows: &[FeedRow]) -> Vec<Uuid> {
    rows.iter().map(|row| row.mark.effect).collect()
}

/// A transaction that has written an entry and is not yet committed.
async fn open_transaction(url: &str, effect: Uuid) -> PgConnection {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let insert = format!(
        "BEGIN; INSERT INTO entries (tenant, effect, revision, state, created_us, intent, life, entry, prev_hash, hash)
         SELECT tenant, '{effect}', revision, state, created_us, intent, life, entry, prev_hash, hash FROM entries LIMIT 1"
    );
    sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut connection).await.unwrap();
    connection
}

async fn end(mut connection: PgConnection, how: &'static str) {
    sqlx::raw_sql(AssertSqlSafe(how)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_is_never_passed_by() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let bed = Bed::new(StoreUnderTest::Postgres).await;
    let maker = Maker::external("tenant", bed.now().await);
    let seed = maker.create("seed").0;
    bed.revise(&seed).await;
    let seen = feed_of(&bed, &FeedMark::START, 1).await;
    assert_eq!(effects(&seen), [seed.key.effect]);

    // The first takes its number, the second takes a higher one and commits at once; so does the store's own.
    let (first, second) = (Uuid::from_u128(0xf1), Uuid::from_u128(0xf2));
    let early = open_transaction(&bed.url(), first).await;
    let late = open_transaction(&bed.url(), second).await;
    end(late, "COMMIT").await;
    let own = maker.create("own").0;
    bed.revise(&own).await;
    assert_eq!(bed.count("SELECT count(*) FROM entries").await, 3, "both are committed");
    let between = feed(&bed, &seen[0].mark).await;
    assert_eq!(effects(&between), [seed.key.effect], "what the first may yet precede is not shown");
    let moved = bed.store.feed_moved(&[(Tenant::new("tenant").unwrap(), seen[0].mark.number)]).await.unwrap();
    assert_eq!(moved, [false]);

    end(early, "COMMIT").await;
    let after = feed_of(&bed, &seen[0].mark, 4).await;
    assert_eq!(effects(&after), [seed.key.effect, first, second, own.key.effect]);
    assert!(after.is_sorted_by_key(|row| row.mark));
    let moved = bed.store.feed_moved(&[(Tenant::new("tenant").unwrap(), seen[0].mark.number)]).await.unwrap();
    assert_eq!(moved, [true]);

    // One that gives up holds nothing back for longer than it lasts.
    let early = open_transaction(&bed.url(), Uuid::from_u128(0xf3)).await;
    let last = maker.create("last").0;
    bed.revise(&last).await;
    assert_eq!(feed(&bed, &after[3].mark).await.len(), 1);
    end(early, "ROLLBACK").await;
    assert_eq!(effects(&feed_of(&bed, &after[3].mark, 2).await), [own.key.effect, last.key.effect]);
}

/// A dump that is restored into a cluster which counts lower: old numbers are higher than new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restore_new_entries_still_come_last() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let bed = Bed::new(StoreUnderTest::Postgres).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (old, new, newer) = (maker.create("old").0, maker.create("new").0, maker.create("newer").0);
    bed.revise(&old).await;
    bed.execute("UPDATE entries SET moved = moved + 1000000000").await;
    // Two replicas start on what was restored.
    let (one, two) = tokio::join!(bed.another(), bed.another());
    let seen = feed_of(&bed, &FeedMark::START, 1).await;
    assert_eq!(effects(&seen), [old.key.effect]);
    bed.revise(&new).await;
    let after = feed_of(&bed, &seen[0].mark, 2).await;
    assert_eq!(effects(&after), [old.key.effect, new.key.effect]);
    // Starting again changes nothing.
    let three = bed.another().await;
    bed.revise(&newer).await;
    assert_eq!(effects(&feed_of(&bed, &after[1].mark, 2).await), [new.key.effect, newer.key.effect]);
    for store in [one, two, three] {
        store.close().await;
    }
}

async fn entries_from_before_the_feed_come_first(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (old, new) = (maker.create("old").0, maker.create("new").0);
    bed.revise(&old).await;
    if !bed.is_sqlite() {
        bed.execute("UPDATE entries SET moved = 0").await;
    }
    bed.revise(&new).await;
    assert_eq!(effects(&feed_of(&bed, &FeedMark::START, 2).await), [old.key.effect, new.key.effect]);
}

async fn a_feed_is_read_on_from_any_entry(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let stranger = Maker::external("stranger", bed.now().await);
    for batch in 0..4 {
        let rows: Vec<_> = (0..5).map(|n| maker.create(&format!("{batch}-{n}")).0).collect();
        let foreign = stranger.create(&format!("{batch}")).0;
        let mut changes: Vec<_> = rows.iter().map(crate::store::bed::revise).collect();
        changes.insert(2, crate::store::bed::revise(&foreign));
        bed.commit(&changes).await;
    }
    let all = feed_of(&bed, &FeedMark::START, 20).await;
    assert_eq!(all.len(), 20);
    assert!(all.is_sorted_by_key(|row| row.mark));
    for (number, row) in all.iter().enumerate() {
        let rest = feed(&bed, &row.mark).await;
        assert_eq!(effects(&rest), effects(&all[number..]));
    }
    let end = bed.store.feed_end(&Tenant::new("tenant").unwrap()).await.unwrap().unwrap();
    assert_eq!(end.mark, all[19].mark);
    let nobodys = bed.store.feed_end(&Tenant::new("nobody").unwrap()).await.unwrap();
    assert!(nobodys.is_none_or(|row| bed.is_sqlite() && row.content.is_none()));
}
