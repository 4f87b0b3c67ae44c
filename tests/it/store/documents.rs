//! Every byte comes back as it went in: large documents, odd Unicode, microseconds.

use std::sync::Arc;

use actonce::domain::canonical::Sha256Digest;
use actonce::domain::command::{Command, Outcome, Report, ResultDocument};
use actonce::domain::ids::EffectKey;
use actonce::domain::time::Timestamp;
use actonce::limits;
use actonce::store::Committed::Applied;
use actonce::store::Walk;
use serde_json::{Value, json};

use super::bed::{Bed, both_ways, revise};
use super::effects::{Maker, name, owner, receipt, tenant};
use crate::support::StoreUnderTest;

both_ways!(
    the_largest_receipt_and_result_are_kept_byte_for_byte,
    odd_names_are_kept_and_found,
    odd_documents_are_kept_as_they_were_written,
    times_are_kept_to_the_microsecond,
    many_large_documents_in_one_batch_do_not_mix,
);

/// Line and paragraph separators, a byte order mark, beyond the BMP, right to left with its marks,
/// a combining character, a non-character, quotes, escapes, and what looks like a parameter.
const ODD: &str =
    "\u{2028}\u{2029}\u{feff}𝄞😀\u{10ffff}\u{202e}שלום\u{202c}e\u{301}\u{fffe}\u{7f}\\\"'`$1 ?1 :a {} %s -- /*";

fn names() -> Vec<String> {
    let mut names: Vec<String> =
        ["123", "1e5", "null", "true", "\\u0041", "{}", "[1]", "a\"b'c", "'; DROP TABLE entries; --", "a/../b"]
            .map(str::to_owned)
            .to_vec();
    names.push(format!("x{}x", ODD.replace(['\u{2028}', '\u{2029}', '\u{7f}'], "")));
    names.push("é".to_owned());
    names.push("e\u{301}".to_owned());
    names.push("ﬃ Ⅳ ①".to_owned());
    names.push("é".repeat(60));
    names
}

fn with_result(record: &actonce::domain::record::Record, receipt_changes: &Value, result: &str) -> Command {
    let (dispatch_id, fence) = owner(record);
    let report = Report::Succeeded { receipt: receipt(record, receipt_changes), verification: None };
    let document = ResultDocument {
        text: Some(Arc::from(result)),
        digest: Sha256Digest::of(result.as_bytes()),
        size_bytes: u64::try_from(result.len()).unwrap(),
    };
    let digest = Sha256Digest::of(b"report");
    Command::Outcome(Box::new(Outcome { dispatch_id, fence, report, result: Some(document), digest }))
}

async fn the_largest_receipt_and_result_are_kept_byte_for_byte(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, record) = maker.create("a");
    bed.revise(&row).await;
    let (row, record) = maker.dispatch(&record, "one");
    bed.revise(&row).await;
    let rest = receipt(&record, &json!({"structured": {"a": ""}})).text.len();
    let filler = format!("{ODD}\u{1}").repeat(limits::RECEIPT_BYTES / 100);
    // JSON escapes some of it: cut to what fits to the byte.
    let mut filler: String = serde_json::to_string(&filler).unwrap();
    filler = serde_json::from_str(&format!("{}\"", cut(&filler, limits::RECEIPT_BYTES - rest - 10))).unwrap();
    let pad = limits::RECEIPT_BYTES - receipt(&record, &json!({"structured": {"a": &filler}})).text.len();
    let changes = json!({"structured": {"a": filler + &"x".repeat(pad)}});
    assert_eq!(receipt(&record, &changes).text.len(), limits::RECEIPT_BYTES);
    let result = format!("\"{}\"", "é".repeat((limits::RESULT_BYTES - 2) / 2));
    assert_eq!(result.len(), limits::RESULT_BYTES);
    let (row, decided) = maker.next(&record, &with_result(&record, &changes, &result));
    assert_eq!(bed.revise(&row).await, Applied);
    let loaded = bed.load(&row.key).await.unwrap();
    assert_eq!(loaded.result.as_deref(), Some(result.as_str()));
    assert_eq!(loaded.receipt.as_deref(), Some(&*receipt(&record, &changes).text));
    assert_eq!(loaded.life, decided.life);
    let audited = bed.store.audit(None, 9).await.unwrap();
    assert_eq!(audited[2].receipt.as_deref(), loaded.receipt.as_deref());
    assert_eq!(audited[2].result.as_deref(), loaded.result.as_deref());
}

/// The start of a JSON string, cut before an escape or a character that would be torn.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let tail = text[..end].rfind('\\').filter(|at| end - at < 8);
    &text[..tail.unwrap_or(end)]
}

async fn odd_names_are_kept_and_found(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let now = bed.now().await;
    for odd in names() {
        let maker = Maker::external(&odd, now);
        let mut proposal = maker.proposal(&odd);
        (proposal.target, proposal.run_id, proposal.session_id) = (name(&odd), Some(name(&odd)), Some(name(&odd)));
        let (row, record) = maker.first(&proposal);
        assert_eq!(bed.revise(&row).await, Applied, "{odd:?}");
        let granted = maker.dispatch(&record, &odd).0;
        assert_eq!(bed.revise(&granted).await, Applied);
        let loaded = bed.load(&row.key).await.unwrap();
        assert_eq!(loaded.intent.operation_id.as_str(), odd);
        assert_eq!(loaded.life.dispatch.unwrap().worker.as_str(), odd);
        for walk in [Walk::All, Walk::Run(name(&odd)), Walk::Session(name(&odd))] {
            let found = bed.store.walk(&tenant(&odd), &walk, None, 9).await.unwrap();
            assert_eq!(found.len(), 1, "{odd:?} {walk:?}");
        }
        assert_eq!(bed.store.run_states(&tenant(&odd), &name(&odd)).await.unwrap().len(), 1);
    }
    let marks = bed.store.open_marks(None, 99).await.unwrap();
    let mut found: Vec<String> = marks.iter().map(|mark| mark.key.tenant.as_str().to_owned()).collect();
    let mut expected = names();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let due = bed.store.due(99).await.unwrap();
    assert!(due.is_empty());
}

async fn odd_documents_are_kept_as_they_were_written(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let (row, record) = maker.create("a");
    bed.revise(&row).await;
    let (row, record) = maker.dispatch(&record, "one");
    bed.revise(&row).await;
    let escaped = r#"{ "b" : 1.0, "a" : 1E3, "é" : "\u00e9\u2028\ud834\udd1e", "n": 12345678901234567890.0 }"#;
    let (row, _) = maker.next(&record, &with_result(&record, &json!({"message": ODD}), escaped));
    assert_eq!(bed.revise(&row).await, Applied);
    let loaded = bed.load(&row.key).await.unwrap();
    assert_eq!(loaded.result.as_deref(), Some(escaped), "neither order, numbers nor escapes are touched");
    let stored: Value = serde_json::from_str(loaded.receipt.as_deref().unwrap()).unwrap();
    assert_eq!(stored["message"], ODD);
    let journal = bed.store.journal(&row.key, 2, 1).await.unwrap();
    assert_eq!(journal[0].entry, row.entry);

    // An empty text is no absent one.
    let mut empty = maker.create("b").0;
    (empty.receipt, empty.result) = (Some(Arc::from("")), Some(Arc::from("null")));
    assert_eq!(bed.revise(&empty).await, Applied);
    let audited = bed.store.audit(None, 9).await.unwrap();
    let stored = audited.iter().find(|row| row.key == empty.key).unwrap();
    assert_eq!((stored.receipt.as_deref(), stored.result.as_deref()), (Some(""), Some("null")));
}

async fn times_are_kept_to_the_microsecond(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    for micros in [1, 999_999, 1_767_225_600_000_001, 4_102_444_799_999_999, 253_402_300_799_999_999] {
        let at = Timestamp::from_micros(micros);
        let maker = Maker::external("tenant", at);
        let (row, record) = maker.create(&format!("operation {micros}"));
        bed.revise(&row).await;
        let (row, record) = maker.dispatch(&record, "one");
        bed.revise(&row).await;
        let loaded = bed.load(&row.key).await.unwrap();
        assert_eq!((loaded.intent.created_at, loaded.life.updated_at), (at, at));
        assert_eq!(loaded.life.lease_end(), record.life.lease_end());
        let walked = bed.store.walk(&maker.tenant, &Walk::All, None, 99).await.unwrap();
        assert!(walked.iter().any(|position| position.created_at == at));
    }
    let times: Vec<Timestamp> = bed
        .store
        .walk(&tenant("tenant"), &Walk::All, None, 99)
        .await
        .unwrap()
        .iter()
        .map(|position| position.created_at)
        .collect();
    assert!(times.is_sorted() && times.len() == 5);
    let (before, after) = (bed.now().await, bed.now().await);
    assert!(after >= before, "the database's time does not run backwards");
}

async fn many_large_documents_in_one_batch_do_not_mix(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    let mut rows = Vec::new();
    for number in 0..12_u8 {
        let mut row = maker.create(&format!("operation {number}")).0;
        let text = |bytes: usize| -> Arc<str> { Arc::from(format!("{number}{ODD}").repeat(bytes / ODD.len())) };
        row.receipt = (number % 3 != 0).then(|| text(400_000));
        row.result = (number % 4 != 1).then(|| text(200_000));
        row.hash = [number; 32];
        rows.push(row);
    }
    let batch: Vec<_> = rows.iter().map(revise).collect();
    assert!(bed.commit(&batch).await.iter().all(|done| *done == Applied));
    let stored = bed.store.audit(None, 99).await.unwrap();
    for row in rows {
        let key: &EffectKey = &row.key;
        let found = stored.iter().find(|stored| stored.key == *key).unwrap();
        assert!(found.receipt.as_deref() == row.receipt.as_deref());
        assert!(found.result.as_deref() == row.result.as_deref());
        assert_eq!(found.journal.hash, row.hash);
        assert_eq!(found.intent.as_deref(), row.intent.as_ref().map(|intent| &*intent.text));
    }
}
