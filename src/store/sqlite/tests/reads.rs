use super::*;
use crate::domain::receipt::ReceiptOutcome;
use crate::domain::record::{Dispatch, ReceiptRef, ResultRef};

async fn pages(bed: &Bed, walk: &Walk, limit: u32) -> Vec<Position> {
    let mut all = Vec::new();
    loop {
        let page = bed.store.walk(&tenant(), walk, all.last().copied(), limit).await.unwrap();
        assert!(page.len() <= usize::try_from(limit).unwrap());
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

#[tokio::test]
async fn lists_are_walked_in_order_of_creation_without_gaps_or_repeats() {
    let bed = bed().await;
    let mut expected = Vec::new();
    let mut rows = Vec::new();
    for number in 0..23 {
        // Several of one microsecond, and one before 1970.
        let row = create(&format!("operation {number}"), number / 4 - 1);
        expected.push(Position { created_at: at(number / 4 - 1), effect: row.key.effect });
        rows.push(row);
    }
    expected.sort();
    let mut foreign = create("foreign", 1);
    foreign.key = EffectKey::of(&Tenant::new("other").unwrap(), &name("foreign"));
    let mut other_run = create("other run", 3);
    (other_run.run_id, other_run.session_id) = (Some(name("run 2")), None);
    bed.commit(rows.iter().chain([&foreign]).map(revise).collect()).await;
    // Later revisions add nothing to the lists.
    let dispatched: Vec<ChangeSet> = rows[..5].iter().map(|row| revise(&dispatch(row, at(9)))).collect();
    bed.commit(dispatched).await;
    for limit in [1, 4, 100] {
        assert_eq!(pages(&bed, &Walk::All, limit).await, expected);
        assert_eq!(pages(&bed, &Walk::Run(name("run")), limit).await, expected);
        assert_eq!(pages(&bed, &Walk::Session(name("session")), limit).await, expected);
        let open = pages(&bed, &Walk::Open(State::Dispatched), limit).await;
        let mut first: Vec<Uuid> = rows[..5].iter().map(|row| row.key.effect).collect();
        let mut found: Vec<Uuid> = open.iter().map(|position| position.effect).collect();
        assert!(open.is_sorted());
        first.sort();
        found.sort();
        assert_eq!(found, first);
        assert_eq!(pages(&bed, &Walk::Open(State::IntentRecorded), limit).await.len(), 18);
    }
    bed.commit(vec![revise(&other_run)]).await;
    assert_eq!(pages(&bed, &Walk::Run(name("run 2")), 9).await.len(), 1);
    assert_eq!(pages(&bed, &Walk::Session(name("session")), 9).await, expected);
    assert_eq!(pages(&bed, &Walk::All, 9).await.len(), 24);
    assert_eq!(pages(&bed, &Walk::Contradicted, 9).await, []);
    assert_eq!(pages(&bed, &Walk::Open(State::Completed), 9).await, []);

    let run = bed.store.run_states(&tenant(), &name("run")).await.unwrap();
    assert_eq!(run, [(State::IntentRecorded, 18), (State::Dispatched, 5)]);
    assert_eq!(bed.store.run_states(&tenant(), &name("no run")).await.unwrap(), []);
    let open = bed.store.open_states().await.unwrap();
    assert_eq!(open, [(State::IntentRecorded, 20, at(0)), (State::Dispatched, 5, at(-1))]);
}

#[tokio::test]
async fn contradicted_effects_are_listed() {
    let bed = bed().await;
    for number in 0..3 {
        let mut row = create(&format!("{number}"), number);
        row.state = State::Completed;
        row.open.as_mut().unwrap().contradicted = number != 1;
        bed.revise(&row).await;
    }
    let found = pages(&bed, &Walk::Contradicted, 1).await;
    assert_eq!(found.iter().map(|position| position.created_at).collect::<Vec<_>>(), [at(0), at(2)]);
}

#[tokio::test]
async fn what_is_due_comes_oldest_first() {
    let bed = bed().await;
    let now = bed.store.now().await.unwrap();
    assert_eq!(bed.store.next_due().await.unwrap().0, None);
    let mut rows = Vec::new();
    for (operation, due) in [("a", now.plus_micros(-5)), ("b", now.plus_micros(-9)), ("c", now.plus_seconds(60))] {
        let mut row = create(operation, 1);
        row.open.as_mut().unwrap().due_at = Some(due);
        rows.push(row);
    }
    bed.commit(rows.iter().chain([&create("d", 1)]).map(revise).collect()).await;
    assert_eq!(bed.store.due(9).await.unwrap(), [rows[1].key.clone(), rows[0].key.clone()]);
    assert_eq!(bed.store.due(1).await.unwrap(), [rows[1].key.clone()]);
    let (next, time) = bed.store.next_due().await.unwrap();
    assert_eq!(next, Some(now.plus_micros(-9)));
    assert!(time >= now);

    // A key that can't be read keeps no other from being swept.
    bed.execute("UPDATE open_effects SET effect = x'00' WHERE due_us = (SELECT min(due_us) FROM open_effects)").await;
    assert_eq!(bed.store.due(9).await.unwrap(), [rows[0].key.clone()]);
}

#[tokio::test]
async fn a_record_has_its_documents_and_the_newest_lease_end() {
    let bed = bed().await;
    let row = create("a", 10);
    let now = bed.store.now().await.unwrap();
    let mut held = dispatch(&row, now.plus_seconds(60));
    let mut life: Life = serde_json::from_str(&held.life).unwrap();
    life.dispatch = Some(Dispatch {
        dispatch_id: Uuid::from_u128(1),
        attempt: 1,
        fence: 1,
        worker: name("worker"),
        claim: None,
        dispatched_at: now,
        lease_seconds: 60,
        lease_expires_at: now.plus_seconds(60),
        late: false,
    });
    held.life = serde_json::to_string(&life).unwrap();
    bed.revise(&row).await;
    bed.revise(&held).await;
    bed.commit(vec![renew(&held, now.plus_seconds(90))]).await;
    assert_eq!(bed.load(&row).await.unwrap().life.lease_end(), Some(now.plus_seconds(90)));

    // The receipt with one revision, the result with the next, a newer one without either.
    let mut receipt = next(&held, State::Verifying);
    receipt.receipt = Some(Arc::from("{\"receipt\":1}"));
    let mut result = next(&receipt, State::Completed);
    (result.receipt, result.result) = (None, Some(Arc::from("{\"result\":2}")));
    let mut last = next(&result, State::Completed);
    (last.receipt, last.result) = (None, None);
    life.state = State::Completed;
    life.revision = 5;
    life.receipt = Some(ReceiptRef {
        revision: 3,
        receipt_id: name("receipt"),
        digest: Sha256Digest::of(b"1"),
        outcome: ReceiptOutcome::Completed,
        observed_at: now,
    });
    life.result = Some(ResultRef { revision: 4, digest: Sha256Digest::of(b"2"), size_bytes: 12, truncated: false });
    last.life = serde_json::to_string(&life).unwrap();
    for row in [&receipt, &result, &last] {
        assert_eq!(bed.revise(row).await, Committed::Applied);
    }
    let record = bed.load(&row).await.unwrap();
    assert_eq!(record.receipt.as_deref(), Some("{\"receipt\":1}"));
    assert_eq!(record.result.as_deref(), Some("{\"result\":2}"));
    assert_eq!((record.life.revision, record.head), (5, last.hash));

    let journal = bed.store.journal(&row.key, 1, 3).await.unwrap();
    assert_eq!(journal.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(journal[1].entry, receipt.entry);
    assert_eq!(journal[1].prev_hash, held.hash);
}

#[tokio::test]
async fn a_bad_row_is_the_answer_of_its_own_key_alone() {
    let bed = bed().await;
    let rows: Vec<RevisionRow> = ["a", "b", "c", "d"].map(|operation| create(operation, 1)).into();
    bed.commit(rows.iter().map(revise).collect()).await;
    bed.execute("UPDATE entries SET life = '{' WHERE entry LIKE '%b 1%'").await;
    bed.execute("UPDATE entries SET intent = CAST(x'ff' AS TEXT) WHERE entry LIKE '%c 1%'").await;
    let keys: Vec<EffectKey> = rows.iter().map(|row| row.key.clone()).chain([key("none"), key("a")]).collect();
    let found = bed.store.load(&keys).await.unwrap();
    assert_eq!(found[0].as_ref().unwrap().as_ref().unwrap().key, keys[0]);
    let column = |at: usize| found[at].clone().unwrap_err().corruption().unwrap().column;
    assert_eq!((column(1), column(2)), ("life", "intent"));
    assert!(found[3].as_ref().unwrap().is_some());
    assert!(found[4].as_ref().unwrap().is_none());
    assert!(found[5].as_ref().unwrap().is_some());
    assert!(bed.store.load(&[]).await.unwrap().is_empty());
    assert!(bed.store.revisions(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn verification_reads_every_row_in_key_order() {
    let bed = bed().await;
    let rows: Vec<RevisionRow> = (0..7).map(|number| create(&format!("{number}"), number)).collect();
    bed.commit(rows.iter().map(revise).collect()).await;
    bed.commit(rows.iter().map(|row| revise(&dispatch(row, at(9)))).collect()).await;
    let mut effects: Vec<Uuid> = rows.iter().map(|row| row.key.effect).collect();
    effects.sort();

    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = bed.store.audit(after.clone(), 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.key.clone(), last.journal.revision));
        seen.extend(page.iter().map(|row| (row.key.effect, row.journal.revision)));
    }
    assert_eq!(seen, effects.iter().flat_map(|effect| [(*effect, 1), (*effect, 2)]).collect::<Vec<_>>());

    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = bed.store.open_marks(after.clone(), 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        seen.extend(page.iter().map(|mark| (mark.key.effect, mark.revision)));
    }
    assert_eq!(seen, effects.iter().map(|effect| (*effect, 2)).collect::<Vec<_>>());
}
