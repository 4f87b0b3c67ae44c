//! Pruning (docs/retention.md): what is settled and old goes, one row stays, and nothing of it ever runs again.

mod checkpoints;
mod rerun;
mod run;
mod size;

use std::process::Output;

use actonce::store::Committed::Applied;
use actonce::store::RevisionRow;
use serde_json::Value;

use crate::store::bed::Bed;
use crate::store::effects::{Maker, succeeded};
use crate::support::blocking;
use crate::support::server::program;

pub(crate) const DAY: u32 = 86_400;

/// `actonce prune` on a database: exit code and report.
pub(crate) async fn prune(bed: &Bed, arguments: &[&str]) -> (i32, Value) {
    let output = prune_output(bed, arguments).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), report)
}

pub(crate) async fn prune_output(bed: &Bed, arguments: &[&str]) -> Output {
    let (url, arguments) = (bed.url(), arguments.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
    blocking(move || program().arg("prune").args(arguments).env("DATABASE_URL", url).output().unwrap()).await
}

async fn put(bed: &Bed, row: &RevisionRow) {
    assert_eq!(bed.revise(row).await, Applied);
}

/// A settled effect of three revisions.
pub(crate) async fn settle(bed: &Bed, maker: &Maker, operation: &str) -> actonce::domain::record::Record {
    let (row, record) = maker.create(operation);
    put(bed, &row).await;
    let (row, record) = maker.dispatch(&record, "one");
    put(bed, &row).await;
    let (row, record) = maker.next(&record, &succeeded(&record));
    put(bed, &row).await;
    record
}

pub(crate) async fn tombstones(bed: &Bed) -> i64 {
    bed.count("SELECT count(*) FROM entries WHERE revision = 1 AND entry = ''").await
}

/// Rows of pruned effects that are none of theirs: there must be none.
pub(crate) async fn orphans(bed: &Bed) -> i64 {
    bed.count(
        "SELECT count(*) FROM entries a WHERE a.revision > 1 AND NOT EXISTS (
           SELECT 1 FROM entries b WHERE b.tenant = a.tenant AND b.effect = a.effect AND b.revision = 1 AND b.entry <> '')",
    )
    .await
}
