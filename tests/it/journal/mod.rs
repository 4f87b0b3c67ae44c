//! `journal verify` (protocol §10): every damage is found and named, and nothing else is.

mod checkpoints;
mod command;
mod damage;
mod undecodable;
mod writers;

use actonce::domain::canonical::Sha256Digest;
use actonce::domain::command::{Command, Outcome, Report, ResultDocument};
use actonce::domain::ids::EffectKey;
use actonce::domain::record::Record;
use actonce::domain::time::Timestamp;
use actonce::service::journal::{Damage, verify};
use actonce::store::Committed::Applied;
use actonce::store::RevisionRow;
use serde_json::json;

use crate::store::bed::Bed;
use crate::store::effects::{Maker, contradiction, failure, owner, receipt, report};

/// A database with a few effects of every kind.
pub(crate) struct Journals {
    pub(crate) bed: Bed,
    maker: Maker,
    /// Dispatched, revisions 1 to 4: twice granted.
    pub(crate) open: EffectKey,
    /// Completed, revisions 1 to 3, with receipt and result.
    pub(crate) settled: EffectKey,
    /// Completed and contradicted, revisions 1 to 4.
    flagged: EffectKey,
}

impl Journals {
    pub(crate) async fn in_bed(bed: Bed) -> Self {
        let maker = Maker::external("tenant", bed.now().await);
        let open = write(&bed, &maker, "open", &[not_sent, granted_to_another]).await;
        let settled = write(&bed, &maker, "settled", &[done]).await;
        let flagged = write(&bed, &maker, "flagged", &[done, contradiction]).await;
        for operation in ["around 1", "around 2", "around 3"] {
            write(&bed, &Maker::external("another tenant", maker.now), operation, &[done]).await;
            write(&bed, &maker, operation, &[]).await;
        }
        Self { bed, maker, open, settled, flagged }
    }

    /// Runs a statement on the row of an effect's revision.
    pub(crate) async fn spoil(&self, statement: &str, key: &EffectKey, revision: u32) {
        let place = format!("revision = {revision} AND {}", self.bed.of(key));
        self.bed.execute(&format!("{statement} WHERE {place}")).await;
    }

    /// What is found: effect, revision, and kind of damage.
    async fn found(&self) -> Vec<(EffectKey, u32, Damage)> {
        let report = verify(self.bed.store.as_ref()).await.unwrap();
        assert_eq!(report.damaged, u64::try_from(report.findings.len()).unwrap());
        let key = |effect: &str| {
            let all = [&self.open, &self.settled, &self.flagged];
            let known = all.into_iter().find(|key| key.effect.to_string() == effect);
            known.cloned().expect("only what was damaged is found")
        };
        report.findings.iter().map(|found| (key(&found.effect), found.revision, found.damage)).collect()
    }
}

type Next = fn(&Record) -> Command;

/// Creates and dispatches an effect, and then does what is asked.
async fn write(bed: &Bed, maker: &Maker, operation: &str, then: &[Next]) -> EffectKey {
    let (row, record) = maker.create(operation);
    put(bed, &row).await;
    let (row, mut record) = maker.dispatch(&record, "one");
    put(bed, &row).await;
    for command in then {
        let (row, next) = maker.next(&record, &command(&record));
        put(bed, &row).await;
        record = next;
    }
    row.key
}

async fn put(bed: &Bed, row: &RevisionRow) {
    assert_eq!(bed.revise(row).await, Applied);
}

fn not_sent(record: &Record) -> Command {
    report(owner(record), Report::NotSent(Some(failure("refused"))))
}

fn granted_to_another(_: &Record) -> Command {
    crate::store::effects::claim("two")
}

fn done(record: &Record) -> Command {
    let (dispatch_id, fence) = owner(record);
    let text = "{\"refund\":1}";
    let result = ResultDocument { text: Some(text.into()), digest: Sha256Digest::of(text.as_bytes()), size_bytes: 12 };
    let report = Report::Succeeded { receipt: receipt(record, &json!({})), verification: None };
    let digest = Sha256Digest::of(b"done");
    Command::Outcome(Box::new(Outcome { dispatch_id, fence, report, result: Some(result), digest }))
}

/// The same history as another one would have been: an hour later.
fn another_history(maker: &Maker) -> Maker {
    Maker { now: Timestamp::from_micros(maker.now.micros() + 3_600_000_000), ..maker.clone() }
}
