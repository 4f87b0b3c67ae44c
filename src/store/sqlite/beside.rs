//! What stands beside revisions: retained arguments, uses of grants, bound sessions. In the batch's own
//! transaction, between its look and its write, and for batches that have some alone.

use sqlx::sqlite::SqliteConnection;

use super::elapsed;
use super::sql::{approvals as grants, profiles};
use crate::domain::time::Timestamp;
use crate::store::{Beside, ChangeSet, Committed, Result, RevisionRow};

fn of(change: &ChangeSet) -> Option<(&RevisionRow, &Beside)> {
    match change {
        ChangeSet::Revise(row) => row.beside.as_deref().map(|beside| (row.as_ref(), beside)),
        ChangeSet::Renew(_) => None,
    }
}

/// Whether a batch has anything beside its revisions.
pub(super) fn is_in(batch: &[ChangeSet]) -> bool {
    batch.iter().any(|change| of(change).is_some())
}

/// Takes back what was judged to apply where a session is bound otherwise or a grant can't be used, and
/// writes what stands beside the others.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    batch: &[ChangeSet],
    outcome: &mut [Committed],
    now: Timestamp,
) -> Result<()> {
    for (change, outcome) in batch.iter().zip(outcome) {
        let Some((row, beside)) = of(change) else { continue };
        if *outcome == Committed::Applied && !may_apply(connection, row, beside, now).await? {
            *outcome = Committed::Lost;
        }
        if *outcome == Committed::Lost {
            continue;
        }
        let (tenant, effect) = (row.key.tenant.as_str(), row.key.effect);
        if let Some(grant) = beside.grant_use {
            let query = sqlx::query(grants::GRANT_USED).bind(tenant).bind(grant).bind(effect).bind(row.at.micros());
            query.execute(&mut *connection).await?;
        }
        if let Some(sealed) = &beside.retained {
            let query = sqlx::query(grants::RETAIN).bind(tenant).bind(effect).bind(sealed.as_slice());
            query.execute(&mut *connection).await?;
        }
        if let Some(change) = &beside.wait {
            elapsed::note(connection, row, change).await?;
        }
        if beside.forget {
            sqlx::query(grants::FORGET).bind(tenant).bind(effect).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// The last condition counts the use of a grant.
async fn may_apply(
    connection: &mut SqliteConnection,
    row: &RevisionRow,
    beside: &Beside,
    now: Timestamp,
) -> Result<bool> {
    let tenant = row.key.tenant.as_str();
    if let Some((session, profile)) = &beside.session {
        let query = sqlx::query_as(profiles::SESSION).bind(tenant).bind(session.as_str());
        let bound: Option<(String, i64, String)> = query.fetch_optional(&mut *connection).await?;
        if bound.is_none_or(|(bound, ..)| bound != profile.as_str()) {
            return Ok(false);
        }
    }
    match beside.grant_use {
        Some(grant) => {
            let query = sqlx::query(grants::GRANT_TAKE).bind(tenant).bind(grant).bind(now.micros());
            Ok(query.execute(connection).await?.rows_affected() == 1)
        }
        None => Ok(true),
    }
}
