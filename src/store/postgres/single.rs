//! A change that is alone in its batch: the same conditions without the arrays.

use sqlx::postgres::PgRow;

use super::commit::tool_of;
use super::sql;
use super::wall::Scoped;
use crate::domain::ids::Name;
use crate::store::rows::state_code;
use crate::store::{Result, RevisionRow};

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A new effect, or evidence on a settled one.
pub(super) async fn fresh(writer: Scoped, row: &RevisionRow) -> Result<Vec<PgRow>> {
    let open = row.open.as_ref();
    Ok(sqlx::query(sql::COMMIT_FRESH)
        .bind(row.key.tenant.as_str())
        .bind(row.key.effect)
        .bind(number(row.revision))
        .bind(state_code(row.state))
        .bind(row.intent.as_ref().map(|intent| intent.created_at.micros()))
        .bind(row.run_id.as_ref().map(Name::as_str))
        .bind(row.session_id.as_ref().map(Name::as_str))
        .bind(row.intent.as_ref().map(|intent| &*intent.text))
        .bind(&row.life)
        .bind(&row.entry)
        .bind(row.receipt.as_deref())
        .bind(row.result.as_deref())
        .bind(row.prev_hash.as_slice())
        .bind(row.hash.as_slice())
        .bind(row.tool_stamp.as_ref().map(|(_, stamp)| *stamp))
        .bind(tool_of(row))
        .bind(open.and_then(|open| open.duplicate))
        .bind(open.map_or(0, |open| number(open.fence)))
        .bind(open.and_then(|open| open.due_at).map(crate::domain::time::Timestamp::micros))
        .bind(open.map(|open| open.created_at.micros()))
        .bind(open.is_some_and(|open| open.contradicted))
        .bind(open.is_some())
        .bind(open.map(|open| open.proposer.as_str()))
        .fetch_all(writer)
        .await?)
}

/// An open effect that settles.
pub(super) async fn closed(writer: Scoped, row: &RevisionRow) -> Result<Vec<PgRow>> {
    Ok(sqlx::query(sql::COMMIT_CLOSED)
        .bind(row.key.tenant.as_str())
        .bind(row.key.effect)
        .bind(number(row.revision))
        .bind(state_code(row.state))
        .bind(&row.life)
        .bind(&row.entry)
        .bind(row.receipt.as_deref())
        .bind(row.result.as_deref())
        .bind(row.prev_hash.as_slice())
        .bind(row.hash.as_slice())
        .bind(row.lease_seen.map(crate::domain::time::Timestamp::micros))
        .fetch_all(writer)
        .await?)
}
