//! Commits on Postgres: a batch is one statement.

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use sqlx::{PgExecutor, Row as _};
use uuid::Uuid;

use super::wall::{Tenants, Wall};
use super::{beside, single, sql};
use crate::store::rows::state_code;
use crate::store::{ChangeSet, Committed, Postponed, Renewal, Result, RevisionRow};

/// Commits a batch (see [`crate::store::Store::commit`]).
pub(super) async fn commit(wall: &Wall, batch: &[ChangeSet]) -> Result<Vec<Committed>> {
    let mut revisions = Vec::with_capacity(batch.len());
    let mut renewals = Vec::new();
    // What is lost here would fail the whole statement, or be applied in no order: a second change of
    // one effect, and a second new effect with one duplicate key.
    let mut effects = HashSet::with_capacity(batch.len());
    let mut duplicates = HashSet::new();
    let mut sent = Vec::with_capacity(batch.len());
    for change in batch {
        let is_first = effects.insert(change.key());
        sent.push(match change {
            ChangeSet::Revise(row) => {
                let guard = row.open.as_ref().filter(|_| !row.was_open).and_then(|open| open.duplicate);
                let is_sent = is_first && guard.is_none_or(|guard| duplicates.insert((row.key.tenant.as_str(), guard)));
                if is_sent {
                    revisions.push(row.as_ref());
                }
                is_sent
            }
            ChangeSet::Renew(renewal) => {
                if is_first {
                    renewals.push(renewal);
                }
                is_first
            }
        });
    }
    let whose = Tenants::of(batch.iter().map(ChangeSet::key));
    let mut applied: HashSet<Uuid> = HashSet::with_capacity(batch.len());
    if !revisions.is_empty() {
        if revisions.iter().any(|row| row.beside.is_some()) {
            beside::revise(wall, whose.clone(), &revisions, &mut applied).await?;
        } else {
            revise(wall, whose.clone(), &revisions, &mut applied).await?;
        }
    }
    let mut renewed = HashSet::new();
    if !renewals.is_empty() {
        renew(wall, whose, &renewals, &mut renewed).await?;
    }
    Ok(batch
        .iter()
        .zip(sent)
        .map(|(change, sent)| {
            let effect = change.key().effect;
            let done = sent
                && match change {
                    ChangeSet::Revise(_) => applied.contains(&effect),
                    ChangeSet::Renew(_) => renewed.contains(&effect),
                };
            if done { Committed::Applied } else { Committed::Lost }
        })
        .collect())
}

async fn revise(wall: &Wall, whose: Tenants<'_>, rows: &[&RevisionRow], applied: &mut HashSet<Uuid>) -> Result<()> {
    let writer = wall.scope_writer(whose.clone()).await?;
    let done = match rows {
        [row] if !row.was_open => single::fresh(writer, row).await?,
        [row] if row.open.is_none() && row.tool_stamp.is_none() => single::closed(writer, row).await?,
        rows if rows.iter().any(|row| is_evidence_alone(row)) => each(writer, rows).await?,
        rows => match many(writer, sql::COMMIT, rows).await {
            // Somebody made one of the new effects meanwhile: that one is lost, and nothing else.
            Err(error) if error.is_taken_key() => each(wall.scope_writer(whose).await?, rows).await?,
            done => done?,
        },
    };
    for row in done {
        applied.insert(row.try_get(0)?);
    }
    Ok(())
}

/// A revision of an effect that has settled.
const fn is_evidence_alone(row: &RevisionRow) -> bool {
    !row.was_open && row.intent.is_none()
}

/// Writes many revisions of any kind with one statement, each by itself.
pub(super) async fn each<'e>(writer: impl PgExecutor<'e>, rows: &[&RevisionRow]) -> Result<Vec<PgRow>> {
    many(writer, sql::COMMIT_EACH, rows).await
}

async fn many<'e>(writer: impl PgExecutor<'e>, statement: &'static str, rows: &[&RevisionRow]) -> Result<Vec<PgRow>> {
    let text = |pick: fn(&RevisionRow) -> Option<&str>| -> Vec<Option<&str>> { rows.iter().map(|r| pick(r)).collect() };
    let tenant: Vec<&str> = rows.iter().map(|r| r.key.tenant.as_str()).collect();
    let effect: Vec<Uuid> = rows.iter().map(|r| r.key.effect).collect();
    let revision: Vec<i32> = rows.iter().map(|r| i32::try_from(r.revision).unwrap_or(i32::MAX)).collect();
    let state: Vec<i16> = rows.iter().map(|r| state_code(r.state)).collect();
    let created: Vec<Option<i64>> = rows.iter().map(|r| r.intent.as_ref().map(|i| i.created_at.micros())).collect();
    let hashes: Vec<&[u8]> = rows.iter().map(|r| r.hash.as_slice()).collect();
    let prev_hashes: Vec<&[u8]> = rows.iter().map(|r| r.prev_hash.as_slice()).collect();
    let was_open: Vec<bool> = rows.iter().map(|r| r.was_open).collect();
    let stays_open: Vec<bool> = rows.iter().map(|r| r.open.is_some()).collect();
    let fence: Vec<i32> =
        rows.iter().map(|r| r.open.as_ref().map_or(0, |o| i32::try_from(o.fence).unwrap_or(i32::MAX))).collect();
    let due: Vec<Option<i64>> = rows
        .iter()
        .map(|r| r.open.as_ref().and_then(|o| o.due_at).map(crate::domain::time::Timestamp::micros))
        .collect();
    let duplicate: Vec<Option<Uuid>> = rows.iter().map(|r| r.open.as_ref().and_then(|o| o.duplicate)).collect();
    let open_created: Vec<Option<i64>> = rows.iter().map(|r| r.open.as_ref().map(|o| o.created_at.micros())).collect();
    let contradicted: Vec<bool> = rows.iter().map(|r| r.open.as_ref().is_some_and(|o| o.contradicted)).collect();
    let lease_seen: Vec<Option<i64>> =
        rows.iter().map(|r| r.lease_seen.map(crate::domain::time::Timestamp::micros)).collect();
    let tool_stamp: Vec<Option<i64>> = rows.iter().map(|r| r.tool_stamp.as_ref().map(|(_, stamp)| *stamp)).collect();
    let deadline: Vec<Option<i64>> = rows
        .iter()
        .map(|r| r.open.as_ref().and_then(|o| o.doubt_until).map(crate::domain::time::Timestamp::micros))
        .collect();
    Ok(sqlx::query(statement)
        .bind(tenant)
        .bind(effect)
        .bind(revision)
        .bind(state)
        .bind(created)
        .bind(text(|r| r.run_id.as_ref().map(crate::domain::ids::Name::as_str)))
        .bind(text(|r| r.session_id.as_ref().map(crate::domain::ids::Name::as_str)))
        .bind(text(|r| r.intent.as_ref().map(|intent| &*intent.text)))
        .bind(text(|r| Some(&r.life)))
        .bind(text(|r| Some(&r.entry)))
        .bind(text(|r| r.receipt.as_deref()))
        .bind(text(|r| r.result.as_deref()))
        .bind(prev_hashes)
        .bind(hashes)
        .bind(was_open)
        .bind(stays_open)
        .bind(fence)
        .bind(due)
        .bind(duplicate)
        .bind(open_created)
        .bind(contradicted)
        .bind(text(tool_of))
        .bind(lease_seen)
        .bind(tool_stamp)
        .bind(deadline)
        .bind(text(opened_by))
        .fetch_all(writer)
        .await?)
}

/// The tool: guarded by its stamp, or named in the open row.
pub(super) fn tool_of(row: &RevisionRow) -> Option<&str> {
    match (&row.tool_stamp, &row.open) {
        (Some((name, _)), _) => Some(name.as_str()),
        (None, Some(open)) => Some(open.tool.as_str()),
        (None, None) => None,
    }
}

/// Who proposed an effect whose open row is made; one that stays keeps what it says.
fn opened_by(row: &RevisionRow) -> Option<&str> {
    row.open.as_ref().filter(|_| !row.was_open).map(|open| open.proposer.as_str())
}

async fn renew(wall: &Wall, whose: Tenants<'_>, rows: &[&Renewal], renewed: &mut HashSet<Uuid>) -> Result<()> {
    let done = sqlx::query(sql::RENEW)
        .bind(rows.iter().map(|r| r.key.tenant.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.key.effect).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| i32::try_from(r.revision).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| i32::try_from(r.fence).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.until.micros()).collect::<Vec<_>>())
        .bind(i64::try_from(rows.len()).unwrap_or(i64::MAX))
        .fetch_all(wall.scope_writer(whose).await?)
        .await?;
    for row in done {
        renewed.insert(row.try_get(0)?);
    }
    Ok(())
}

/// Puts off what is due (see [`crate::store::Postponed`]).
pub(super) async fn postpone(wall: &Wall, rows: &[Postponed]) -> Result<Vec<Uuid>> {
    let done = sqlx::query(sql::POSTPONE)
        .bind(rows.iter().map(|r| r.key.tenant.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.key.effect).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| i32::try_from(r.revision).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.until.micros()).collect::<Vec<_>>())
        .bind(i64::try_from(rows.len()).unwrap_or(i64::MAX))
        .fetch_all(wall.scope(Tenants::of(rows.iter().map(|row| &row.key))).await?)
        .await?;
    done.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
