//! What a tenant and its principals have open, as their quotas count it.

use actonce::domain::ids::Name;
use actonce::store::Committed::Applied;
use actonce::store::{Beside, RevisionRow};

use super::bed::{Bed, both_ways, revise};
use super::effects::{Maker, contradiction, name, succeeded, tenant};
use crate::support::StoreUnderTest;

both_ways!(open_rows_say_who_proposed_until_they_settle, a_count_looks_at_so_many_rows_and_answers_so_many_principals,);

fn proposed_by(mut row: RevisionRow, who: &str) -> RevisionRow {
    row.open.as_mut().unwrap().proposer = name(who);
    row
}

fn counts(counts: &[(&str, u64)]) -> Vec<(Name, u64)> {
    counts.iter().map(|(who, count)| (name(who), *count)).collect()
}

async fn counted(bed: &Bed, of: &str) -> Vec<(Name, u64)> {
    let mut found = bed.store.count_open_by_principal(&tenant(of), 1_000, 1_000).await.unwrap();
    found.sort();
    found
}

async fn open_rows_say_who_proposed_until_they_settle(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (a, record_a) = maker.create("a");
    let (b, _) = maker.create("b");
    let (c, record_c) = maker.create("c");
    // One of them with something beside it.
    let b = RevisionRow { beside: Some(Box::new(Beside { retained: Some(vec![1]), ..Beside::default() })), ..b };
    for row in [a, proposed_by(b, "\u{e4}ndere \u{1f980} 'x'"), proposed_by(c, "other")] {
        assert_eq!(bed.revise(&row).await, Applied);
    }
    assert_eq!(bed.revise(&Maker::external("tenant 2", maker.now).create("a").0).await, Applied);
    assert_eq!(counted(&bed, "tenant").await, counts(&[("agent", 1), ("other", 1), ("\u{e4}ndere \u{1f980} 'x'", 1)]));
    assert_eq!(counted(&bed, "tenant 2").await, counts(&[("agent", 1)]));
    assert_eq!(counted(&bed, "nobody's").await, []);

    // A later revision, whatever it says, leaves who proposed.
    let (a, record_a) = maker.dispatch(&record_a, "one");
    assert_eq!(bed.revise(&proposed_by(a, "the owner")).await, Applied);
    let (c, record_c) = maker.dispatch(&record_c, "one");
    assert_eq!(bed.revise(&c).await, Applied);
    assert_eq!(counted(&bed, "tenant").await, counts(&[("agent", 1), ("other", 1), ("\u{e4}ndere \u{1f980} 'x'", 1)]));

    // What settled does not count, nor does it where it is contradicted.
    let (a, record_a) = maker.next(&record_a, &succeeded(&record_a));
    let (c, _) = maker.next(&record_c, &succeeded(&record_c));
    assert_eq!((bed.revise(&a).await, bed.revise(&c).await), (Applied, Applied));
    let (a, _) = maker.next(&record_a, &contradiction(&record_a));
    assert_eq!(bed.revise(&a).await, Applied);
    assert_eq!(bed.count("SELECT count(*) FROM open_effects WHERE contradicted").await, 1);
    assert_eq!(counted(&bed, "tenant").await, counts(&[("\u{e4}ndere \u{1f980} 'x'", 1)]));
}

async fn a_count_looks_at_so_many_rows_and_answers_so_many_principals(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let who = |number: usize| ["a", "a", "b", "a", "b", "c"][number % 6];
    let rows = (0..24).map(|number| proposed_by(maker.create(&format!("operation {number}")).0, who(number)));
    bed.commit(&rows.map(|row| revise(&row)).collect::<Vec<_>>()).await;
    let of = tenant("tenant");
    let all = bed.store.count_open_by_principal(&of, 100, 100).await.unwrap();
    assert_eq!(all, counts(&[("a", 12), ("b", 8), ("c", 4)]), "the most first");
    assert_eq!(bed.store.count_open_by_principal(&of, 100, 2).await.unwrap(), counts(&[("a", 12), ("b", 8)]));
    let some = bed.store.count_open_by_principal(&of, 10, 100).await.unwrap();
    assert_eq!(some.iter().map(|(_, count)| count).sum::<u64>(), 10);
    // Rows of an older version name nobody.
    bed.execute("UPDATE open_effects SET proposed_by = NULL WHERE proposed_by = 'a'").await;
    assert_eq!(bed.store.count_open_by_principal(&of, 100, 100).await.unwrap(), counts(&[("b", 8), ("c", 4)]));
    assert_eq!(bed.store.count_open(&of, 100).await.unwrap(), 24);
}
