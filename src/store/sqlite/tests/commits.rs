use Committed::{Applied, Lost};

use super::*;

#[tokio::test]
async fn what_was_applied_is_read_back() {
    let bed = bed().await;
    let row = create("a", 10);
    assert!(bed.load(&row).await.is_none());
    assert_eq!(bed.revise(&row).await, Applied);

    let record = bed.load(&row).await.unwrap();
    assert_eq!(record.key, row.key);
    assert_eq!(record.intent.operation_id, name("a"));
    assert_eq!((record.life.revision, record.life.state), (1, State::IntentRecorded));
    assert_eq!(record.head, row.hash);
    let open = bed.store.open_marks(None, 10).await.unwrap();
    assert_eq!((open[0].key.clone(), open[0].revision, open.len()), (row.key.clone(), 1, 1));
    assert_eq!(bed.store.commit(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn of_two_creators_one_wins_and_nothing_of_the_other_is_stored() {
    let bed = bed().await;
    let first = create("a", 10);
    let mut second = create("a", 20);
    second.entry = "the loser".to_owned();
    second.hash = [9; 32];
    let (one, two) = (vec![revise(&first)], vec![revise(&second)]);
    let (one, two) = tokio::join!(bed.store.commit(&one), bed.store.commit(&two));
    let mut outcomes = [one.unwrap()[0], two.unwrap()[0]];
    outcomes.sort_by_key(|outcome| *outcome == Lost);
    assert_eq!(outcomes, [Applied, Lost]);
    assert_eq!(bed.count("SELECT count(*) FROM entries").await, 1);

    // In one batch the first wins.
    let (third, mut fourth) = (create("b", 10), create("b", 20));
    fourth.entry = "the loser".to_owned();
    assert_eq!(bed.commit(vec![revise(&third), revise(&fourth)]).await, [Applied, Lost]);
    assert_eq!(bed.count("SELECT count(*) FROM entries WHERE entry = 'the loser'").await, 0);
    assert_eq!(bed.count("SELECT count(*) FROM open_effects").await, 2);
}

#[tokio::test]
async fn a_lost_change_takes_no_other_down_and_a_lost_batch_writes_nothing() {
    let bed = bed().await;
    let row = create("a", 10);
    assert_eq!(bed.revise(&row).await, Applied);
    let clock = bed.count("SELECT latest_us FROM clock").await;
    assert_eq!(bed.commit(vec![revise(&row), revise(&row)]).await, [Lost, Lost]);
    assert_eq!(bed.count("SELECT latest_us FROM clock").await, clock);
    let (b, c) = (create("b", 10), create("c", 10));
    assert_eq!(bed.commit(vec![revise(&b), revise(&row), revise(&c)]).await, [Applied, Lost, Applied]);
    assert_eq!(bed.store.revisions(&[b.key, key("none"), c.key]).await.unwrap(), [1, 0, 1]);
}

#[tokio::test]
async fn a_revision_follows_the_newest_and_the_open_row() {
    let bed = bed().await;
    let first = create("a", 10);
    let second = dispatch(&first, at(50));
    let third = next(&second, State::OutcomeUnknown);
    assert_eq!(bed.revise(&second).await, Lost, "no revision 1");
    assert_eq!(bed.revise(&first).await, Applied);
    assert_eq!(bed.revise(&third).await, Lost, "a gap");
    assert_eq!(bed.revise(&second).await, Applied);
    assert_eq!(bed.revise(&second).await, Lost, "a repeat");

    let settled = next(&second, State::Completed);
    assert_eq!(bed.commit(vec![revise(&settled), revise(&third)]).await, [Applied, Lost]);
    assert_eq!(bed.count("SELECT count(*) FROM open_effects").await, 0);
    assert_eq!(bed.load(&first).await.unwrap().life.state, State::Completed);

    // A late report on a settled effect: no open row before, one after.
    let mut late = next(&settled, State::Completed);
    let mut open = first.open.clone().unwrap();
    open.contradicted = true;
    late.open = Some(open);
    let mut blind = late.clone();
    blind.was_open = true;
    assert_eq!(bed.revise(&blind).await, Lost, "there is no open row");
    assert_eq!(bed.revise(&late).await, Applied);
    assert_eq!(bed.count("SELECT contradicted FROM open_effects").await, 1);
    assert_eq!(bed.store.revisions(&[first.key]).await.unwrap(), [4]);
}

#[tokio::test]
async fn a_lease_that_was_seen_must_be_that_one_and_over() {
    let bed = bed().await;
    let row = create("a", 10);
    let now = bed.store.now().await.unwrap();
    let (past, future) = (now.plus_micros(-1), now.plus_seconds(60));
    let mut held = dispatch(&row, future);
    assert_eq!(bed.revise(&row).await, Applied);
    assert_eq!(bed.revise(&held).await, Applied);

    let mut expired = next(&held, State::OutcomeUnknown);
    expired.lease_seen = Some(past);
    assert_eq!(bed.revise(&expired).await, Lost, "another end");
    expired.lease_seen = Some(future);
    assert_eq!(bed.revise(&expired).await, Lost, "not over");

    held = next(&held, State::Dispatched);
    held.open = held.open.map(|open| OpenRow { due_at: Some(past), ..open });
    assert_eq!(bed.revise(&held).await, Applied);
    let mut expired = next(&held, State::OutcomeUnknown);
    expired.lease_seen = Some(past);
    assert_eq!(bed.revise(&expired).await, Applied);
}

#[tokio::test]
async fn a_renewal_needs_the_live_lease_and_never_shortens_it() {
    let bed = bed().await;
    let row = create("a", 10);
    let now = bed.store.now().await.unwrap();
    let held = dispatch(&row, now.plus_seconds(60));
    bed.revise(&row).await;
    assert_eq!(bed.commit(vec![renew(&row, now.plus_seconds(90))]).await, [Lost], "not dispatched");
    bed.revise(&held).await;
    let due = "SELECT due_us FROM open_effects";

    assert_eq!(bed.commit(vec![renew(&held, now.plus_seconds(90))]).await, [Applied]);
    assert_eq!(bed.count(due).await, now.plus_seconds(90).micros());
    assert_eq!(bed.commit(vec![renew(&held, now)]).await, [Applied]);
    assert_eq!(bed.count(due).await, now.plus_seconds(90).micros());

    let (mut fence, mut revision) = (held.clone(), held.clone());
    fence.open.as_mut().unwrap().fence = 2;
    revision.revision = 3;
    assert_eq!(bed.commit(vec![renew(&fence, now.plus_seconds(99))]).await, [Lost]);
    assert_eq!(bed.commit(vec![renew(&revision, now.plus_seconds(99))]).await, [Lost]);
    let stranger = create("b", 10);
    let batch = vec![renew(&stranger, now.plus_seconds(99)), renew(&held, now.plus_seconds(99)), revise(&stranger)];
    assert_eq!(bed.commit(batch).await, [Lost, Applied, Applied]);

    let mut over = next(&held, State::Dispatched);
    over.open = over.open.map(|open| OpenRow { due_at: Some(now), ..open });
    assert_eq!(bed.revise(&over).await, Applied);
    assert_eq!(bed.commit(vec![renew(&over, now.plus_seconds(60))]).await, [Lost], "over");
}

#[tokio::test]
async fn the_same_act_is_open_once() {
    let bed = bed().await;
    let duplicate = Uuid::from_u128(7);
    let first = with_duplicate(create("a", 10), duplicate);
    let second = with_duplicate(create("b", 20), duplicate);
    assert_eq!(bed.commit(vec![revise(&first), revise(&second)]).await, [Applied, Lost]);
    assert_eq!(bed.revise(&second).await, Lost);
    assert_eq!(bed.store.twin(&tenant(), duplicate).await.unwrap(), Some(first.key.clone()));

    // The holder itself goes on; another tenant has its own.
    let held = dispatch(&first, at(50));
    assert_eq!(bed.revise(&held).await, Applied);
    let mut foreign = with_duplicate(create("b", 20), duplicate);
    foreign.key = EffectKey::of(&Tenant::new("other").unwrap(), &name("b"));
    assert_eq!(bed.revise(&foreign).await, Applied);

    // Closed in the same batch it still counts as present.
    let settled = next(&held, State::Completed);
    assert_eq!(bed.commit(vec![revise(&settled), revise(&second)]).await, [Applied, Lost]);
    assert_eq!(bed.store.twin(&tenant(), duplicate).await.unwrap(), None);
    assert_eq!(bed.revise(&second).await, Applied);
}

#[tokio::test]
async fn long_documents_are_kept_byte_for_byte() {
    let bed = bed().await;
    let odd = "\u{1}\u{7f}\u{2028}\u{feff}\u{fffd}\u{10ffff}e\u{301}𝄞\"\\'\r\n\t $.a[0] ?1 -- {}";
    let long = |length: usize| -> Arc<str> { Arc::from(odd.repeat(length / odd.len())) };
    let mut rows = Vec::new();
    for number in 0_u8..6 {
        let mut row = create(&format!("operation {number}"), 10);
        row.receipt = Some(long(512 * 1024));
        row.result = Some(long(256 * 1024));
        row.entry = long(9_000 + usize::from(number)).to_string();
        row.hash = [number; 32];
        rows.push(row);
    }
    rows[2].result = Some(Arc::from(""));
    let changes: Vec<ChangeSet> = rows.iter().map(revise).collect();
    assert_eq!(bed.commit(changes).await, [Applied; 6]);
    for row in &rows {
        let all = bed.store.audit(None, 100).await.unwrap();
        let stored = all.iter().find(|stored| stored.key == row.key).unwrap();
        assert!(stored.receipt.as_deref() == row.receipt.as_deref());
        assert!(stored.result.as_deref() == row.result.as_deref());
        assert!(stored.journal.entry == row.entry);
        assert_eq!(stored.intent.as_deref(), row.intent.as_ref().map(|intent| &*intent.text));
        assert_eq!(stored.life, row.life);
        assert_eq!(stored.journal.hash, row.hash);
        assert_eq!(stored.journal.prev_hash, row.prev_hash);
    }
}

#[tokio::test]
async fn names_are_kept_as_they_are() {
    let bed = bed().await;
    for odd in ["a\"b\\c'd/$.e[0]", "x\u{2028}𝄞e\u{301}\u{fffd}", "123", "1e5", "null", "true", "\\u0041", "{}"] {
        let mut row = create(odd, 1);
        row.key = EffectKey::of(&Tenant::new(odd).unwrap(), &name(odd));
        (row.run_id, row.session_id) = (Some(name(odd)), Some(name(odd)));
        row.open.as_mut().unwrap().tool = name(odd);
        row.open.as_mut().unwrap().proposer = name(odd);
        assert_eq!(bed.revise(&row).await, Applied);
        assert_eq!(bed.revise(&row).await, Lost);
        assert_eq!(
            bed.store.load(std::slice::from_ref(&row.key)).await.unwrap()[0].as_ref().unwrap().as_ref().unwrap().key,
            row.key
        );
        for walk in [Walk::All, Walk::Run(name(odd)), Walk::Session(name(odd))] {
            assert_eq!(bed.store.walk(&row.key.tenant, &walk, None, 9).await.unwrap().len(), 1);
        }
        let columns = "SELECT tenant, tool, run_id, session_id, proposed_by FROM open_effects WHERE effect = ?1";
        let columns = sqlx::query(columns).bind(row.key.effect).fetch_one(&bed.store.readers).await.unwrap();
        let found: [String; 5] = std::array::from_fn(|column| sqlx::Row::get(&columns, column));
        assert_eq!(found, [odd; 5]);
        let settled = next(&row, State::Completed);
        assert_eq!(bed.revise(&settled).await, Applied);
    }
    assert_eq!(bed.count("SELECT count(*) FROM open_effects").await, 0);
}

#[tokio::test]
async fn two_processes_on_one_file_exclude_each_other() {
    let bed = bed().await;
    let other = SqliteStore::connect(&bed.path, true).await.unwrap();
    let mut applied = 0;
    for number in 0..20 {
        let (mine, theirs) = (create(&format!("{number}"), 1), create(&format!("{number}"), 2));
        let (mine, theirs) = (vec![revise(&mine)], vec![revise(&theirs)]);
        let (mine, theirs) = tokio::join!(bed.store.commit(&mine), other.commit(&theirs));
        applied += [mine.unwrap()[0], theirs.unwrap()[0]].iter().filter(|outcome| **outcome == Applied).count();
    }
    assert_eq!(applied, 20);
    other.close().await;
}

#[tokio::test]
async fn failures_of_the_file_are_unavailability_and_write_nothing() {
    let bed = bed().await;
    let unavailable = |result: Result<Vec<Committed>>| matches!(result, Err(StoreError::Unavailable(_)));

    // After a failure the connection is not used again, so each of these lasts for one commit.
    bed.execute("PRAGMA query_only = ON").await;
    assert!(unavailable(bed.store.commit(&[revise(&create("a", 1))]).await), "read-only");

    let pages = bed.count("PRAGMA page_count").await;
    bed.execute(sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {}", pages + 1))).await;
    let mut large = create("b", 1);
    large.result = Some(Arc::from("x".repeat(200_000)));
    assert!(unavailable(bed.store.commit(&[revise(&large)]).await), "full");

    bed.execute("PRAGMA busy_timeout = 20").await;
    let other = SqliteStore::connect(&bed.path, true).await.unwrap();
    let mut lent = other.writer.lend().await.unwrap();
    sqlx::query(sql::BEGIN).execute(&mut lent.connection).await.unwrap();
    assert!(unavailable(bed.store.commit(&[revise(&create("c", 1))]).await), "locked");
    drop(lent);
    other.close().await;

    // A row that the table can't take is refused, and takes its batch along.
    let mut wrong = create("d", 1);
    wrong.revision = 2;
    let refused = bed.store.commit(&[revise(&create("e", 1)), revise(&wrong)]).await;
    assert!(matches!(refused, Err(StoreError::Rejected(_))));

    assert_eq!(bed.count("SELECT count(*) FROM entries").await, 0);
    assert_eq!(bed.revise(&large).await, Applied, "and it goes on");
}

#[tokio::test]
async fn a_cancelled_commit_is_written_whole_or_not_at_all_and_frees_the_file() {
    let bed = bed().await;
    for number in 0..40 {
        let (one, two) = (create(&format!("{number} a"), 1), create(&format!("{number} b"), 1));
        let batch = [revise(&one), revise(&two)];
        let patience = std::time::Duration::from_micros(number * 100);
        let cancelled = tokio::time::timeout(patience, bed.store.commit(&batch)).await.is_err();
        let found = bed.commit(batch.to_vec()).await;
        assert_eq!(found[0], found[1]);
        if !cancelled {
            assert_eq!(found[0], Lost);
        }
    }
    assert_eq!(bed.count("SELECT count(*) FROM entries").await, 80);
}

#[tokio::test]
async fn a_closed_store_is_unavailable() {
    let bed = bed().await;
    bed.store.close().await;
    for _ in 0..2 {
        let result = bed.store.commit(&[revise(&create("a", 1))]).await;
        assert!(matches!(result, Err(StoreError::Unavailable(_))));
    }
    assert!(bed.store.due(1).await.is_err());
}
