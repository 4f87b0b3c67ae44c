//! Profiles and bound sessions in a file.

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};

use super::record::column;
use super::sql::profiles as sql;
use super::{SqliteStore, sql as statements};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::profiles::{Adopted, Adoption, ProfileRow, ProfileStore, SessionRow};
use crate::store::rows::state_of;
use crate::store::{Corruption, Result};

fn name(row: &SqliteRow, table: &'static str, of: &'static str, key: &Name) -> Result<Name> {
    let text: &str = column(row, table, of, key)?;
    Ok(Name::new(text).map_err(|_| Corruption { table, column: of, key: key.to_string() })?)
}

fn session_row(row: &SqliteRow, id: &Name) -> Result<SessionRow> {
    Ok(SessionRow {
        id: id.clone(),
        profile: name(row, "sessions", "profile_id", id)?,
        bound_at: Timestamp::from_micros(column(row, "sessions", "bound_us", id)?),
        bound_by: name(row, "sessions", "bound_by", id)?,
    })
}

async fn session(connection: &mut SqliteConnection, tenant: &Tenant, id: &Name) -> Result<Option<SessionRow>> {
    let query = sqlx::query(sql::SESSION).bind(tenant.as_str()).bind(id.as_str());
    query.fetch_optional(connection).await?.map(|row| session_row(&row, id)).transpose()
}

async fn adoption(connection: &mut SqliteConnection, tenant: &Tenant, wish: &Adoption) -> Result<Option<Adoption>> {
    let query = sqlx::query(sql::ADOPTION).bind(tenant.as_str()).bind(wish.session.as_str()).bind(wish.key.as_str());
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    Ok(Some(Adoption {
        session: wish.session.clone(),
        key: wish.key.clone(),
        previous: name(&row, "adoptions", "previous_profile", &wish.key)?,
        profile: name(&row, "adoptions", "profile_id", &wish.key)?,
        request: column(&row, "adoptions", "request", &wish.key)?,
        at: Timestamp::from_micros(column(&row, "adoptions", "adopted_us", &wish.key)?),
        by: name(&row, "adoptions", "adopted_by", &wish.key)?,
    }))
}

#[async_trait]
impl ProfileStore for SqliteStore {
    async fn add_profile(&self, tenant: &Tenant, profile: &ProfileRow) -> Result<()> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(statements::BEGIN).await?;
        sqlx::query(sql::PROFILE_ADD)
            .bind(tenant.as_str())
            .bind(profile.id.as_str())
            .bind(profile.components.as_str())
            .bind(profile.declared_at.micros())
            .bind(profile.declared_by.as_str())
            .execute(&mut *tx)
            .await?;
        sqlx::query(statements::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(())
    }

    async fn profile(&self, tenant: &Tenant, id: &Name) -> Result<Option<ProfileRow>> {
        let query = sqlx::query(sql::PROFILE).bind(tenant.as_str()).bind(id.as_str());
        let Some(row) = query.fetch_optional(&self.readers).await? else { return Ok(None) };
        Ok(Some(ProfileRow {
            id: id.clone(),
            components: column(&row, "profiles", "components", id)?,
            declared_at: Timestamp::from_micros(column(&row, "profiles", "declared_us", id)?),
            declared_by: name(&row, "profiles", "declared_by", id)?,
        }))
    }

    async fn session(&self, tenant: &Tenant, id: &Name) -> Result<Option<SessionRow>> {
        let mut connection = self.readers.acquire().await?;
        session(&mut connection, tenant, id).await
    }

    async fn bind_session(&self, tenant: &Tenant, row: &SessionRow) -> Result<SessionRow> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(statements::BEGIN).await?;
        sqlx::query(sql::SESSION_BIND)
            .bind(tenant.as_str())
            .bind(row.id.as_str())
            .bind(row.profile.as_str())
            .bind(row.bound_at.micros())
            .bind(row.bound_by.as_str())
            .execute(&mut *tx)
            .await?;
        let found = session(&mut tx, tenant, &row.id).await?;
        sqlx::query(statements::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        let gone = || Corruption { table: "sessions", column: "session_id", key: row.id.to_string() };
        Ok(found.ok_or_else(gone)?)
    }

    async fn adopt(&self, tenant: &Tenant, wish: &Adoption) -> Result<Adopted> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(statements::BEGIN).await?;
        let adopted = decide(&mut tx, tenant, wish).await?;
        if let Adopted::Applied(made) = &adopted {
            write(&mut tx, tenant, made).await?;
            sqlx::query(statements::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        lent.give_back();
        Ok(adopted)
    }
}

/// What an adoption finds. The transaction has the file for itself.
async fn decide(connection: &mut SqliteConnection, tenant: &Tenant, wish: &Adoption) -> Result<Adopted> {
    if let Some(known) = adoption(connection, tenant, wish).await? {
        return Ok(Adopted::Known(known));
    }
    let Some(bound) = session(connection, tenant, &wish.session).await? else { return Ok(Adopted::Unbound) };
    let query = sqlx::query(sql::SESSION_UNRESOLVED).bind(tenant.as_str()).bind(wish.session.as_str());
    let mut unresolved = Vec::new();
    for row in query.fetch_all(connection).await? {
        let (state, count): (i16, i64) = (row.try_get("state")?, row.try_get("effects")?);
        let bad = || Corruption { table: "open_effects", column: "state", key: wish.session.to_string() };
        unresolved.push((state_of(state).ok_or_else(bad)?, u64::try_from(count).unwrap_or(0)));
    }
    if unresolved.is_empty() {
        Ok(Adopted::Applied(Adoption { previous: bound.profile, ..wish.clone() }))
    } else {
        Ok(Adopted::Unresolved(unresolved))
    }
}

async fn write(connection: &mut SqliteConnection, tenant: &Tenant, made: &Adoption) -> Result<()> {
    sqlx::query(sql::SESSION_MOVE)
        .bind(tenant.as_str())
        .bind(made.session.as_str())
        .bind(made.profile.as_str())
        .bind(made.at.micros())
        .bind(made.by.as_str())
        .execute(&mut *connection)
        .await?;
    sqlx::query(sql::ADOPTION_ADD)
        .bind(tenant.as_str())
        .bind(made.session.as_str())
        .bind(made.key.as_str())
        .bind(made.previous.as_str())
        .bind(made.profile.as_str())
        .bind(made.request.as_str())
        .bind(made.at.micros())
        .bind(made.by.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
