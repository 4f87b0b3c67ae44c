//! Batches with something beside a revision: retained arguments, uses of grants, bound sessions. One
//! transaction of several statements, for those batches alone.

use std::collections::{BTreeSet, HashMap, HashSet};

use sqlx::Row as _;
use uuid::Uuid;

use super::commit::each;
use super::elapsed;
use super::sql::{approvals as grants, profiles};
use super::wall::{Held, Tenants, Wall};
use crate::store::{Result, RevisionRow};

/// Commits revisions with what is beside them. Locks are taken in one order: sessions, grants, effects.
pub(super) async fn revise(
    wall: &Wall,
    whose: Tenants<'_>,
    rows: &[&RevisionRow],
    applied: &mut HashSet<Uuid>,
) -> Result<()> {
    let mut transaction = wall.begin_writer(whose).await?;
    let ready = hold_sessions(&mut transaction, rows).await?;
    let (ready, taken) = take_grants(&mut transaction, ready).await?;
    let mut done = HashSet::with_capacity(ready.len());
    if !ready.is_empty() {
        for row in each(&mut *transaction, &ready).await? {
            done.insert(row.try_get::<Uuid, _>(0)?);
        }
    }
    for (row, grant) in taken {
        let (tenant, effect) = (row.key.tenant.as_str(), row.key.effect);
        let query = if done.contains(&effect) {
            sqlx::query(grants::GRANT_USED).bind(tenant).bind(grant).bind(effect).bind(row.at.micros())
        } else {
            sqlx::query(grants::GRANT_RETURN).bind(tenant).bind(grant)
        };
        query.execute(&mut *transaction).await?;
    }
    for row in ready.iter().filter(|row| done.contains(&row.key.effect)) {
        if let Some(change) = row.beside.as_ref().and_then(|beside| beside.wait.as_ref()) {
            elapsed::note(&mut transaction, row, change).await?;
        }
    }
    arguments(&mut transaction, ready.into_iter().filter(|row| done.contains(&row.key.effect))).await?;
    transaction.commit().await?;
    applied.extend(done);
    Ok(())
}

/// The rows whose sessions are bound as they expect. They stay bound until the transaction ends.
async fn hold_sessions<'a>(connection: &mut Held, rows: &[&'a RevisionRow]) -> Result<Vec<&'a RevisionRow>> {
    let wanted = |row: &'a RevisionRow| {
        let session = row.beside.as_ref().and_then(|beside| beside.session.as_ref());
        session.map(|(session, profile)| ((row.key.tenant.as_str(), session.as_str()), profile.as_str()))
    };
    let sessions: BTreeSet<(&str, &str)> = rows.iter().filter_map(|row| wanted(row)).map(|(key, _)| key).collect();
    if sessions.is_empty() {
        return Ok(rows.to_vec());
    }
    let (tenants, ids): (Vec<&str>, Vec<&str>) = sessions.into_iter().unzip();
    let found = sqlx::query(profiles::SESSIONS_HOLD).bind(tenants).bind(ids).fetch_all(connection).await?;
    let mut bound: HashMap<(String, String), String> = HashMap::with_capacity(found.len());
    for row in &found {
        bound.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
    }
    let holds = |row: &&&'a RevisionRow| {
        wanted(row).is_none_or(|((tenant, session), profile)| {
            bound.get(&(tenant.to_owned(), session.to_owned())).is_some_and(|bound| bound == profile)
        })
    };
    Ok(rows.iter().filter(holds).copied().collect())
}

type Taken<'a> = Vec<(&'a RevisionRow, Uuid)>;

/// The rows whose grants may still be used, each use counted.
async fn take_grants<'a>(
    connection: &mut Held,
    rows: Vec<&'a RevisionRow>,
) -> Result<(Vec<&'a RevisionRow>, Taken<'a>)> {
    let use_of = |row: &RevisionRow| row.beside.as_ref().and_then(|beside| beside.grant_use);
    let mut uses: Taken<'a> = rows.iter().filter_map(|row| use_of(row).map(|grant| (*row, grant))).collect();
    uses.sort_by_key(|(row, grant)| (row.key.tenant.as_str(), *grant));
    let (mut taken, mut refused) = (Vec::with_capacity(uses.len()), HashSet::new());
    for (row, grant) in uses {
        let query = sqlx::query(grants::GRANT_TAKE).bind(row.key.tenant.as_str()).bind(grant);
        if query.execute(&mut *connection).await?.rows_affected() == 1 {
            taken.push((row, grant));
        } else {
            refused.insert(&row.key);
        }
    }
    Ok((rows.into_iter().filter(|row| !refused.contains(&row.key)).collect(), taken))
}

/// Keeps the arguments of new effects, and lets those of settled ones go.
async fn arguments<'a>(connection: &mut Held, rows: impl Iterator<Item = &'a RevisionRow>) -> Result<()> {
    let (mut kept, mut gone) = ((Vec::new(), Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for row in rows {
        let Some(beside) = &row.beside else { continue };
        if let Some(sealed) = &beside.retained {
            kept.0.push(row.key.tenant.as_str());
            kept.1.push(row.key.effect);
            kept.2.push(sealed.as_slice());
        }
        if beside.forget {
            gone.0.push(row.key.tenant.as_str());
            gone.1.push(row.key.effect);
        }
    }
    if !kept.0.is_empty() {
        let query = sqlx::query(grants::RETAIN).bind(kept.0).bind(kept.1).bind(kept.2);
        query.execute(&mut *connection).await?;
    }
    if !gone.0.is_empty() {
        sqlx::query(grants::FORGET).bind(gone.0).bind(gone.1).execute(connection).await?;
    }
    Ok(())
}
