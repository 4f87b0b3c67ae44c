//! Profiles and bound sessions on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::sql::profiles as sql;
use super::wall::Tenants::One;
use super::wall::{Held, Scoped};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::profiles::{Adopted, Adoption, ProfileRow, ProfileStore, SessionRow};
use crate::store::rows::state_of;
use crate::store::{Corruption, Result};

fn name(row: &PgRow, index: usize, table: &'static str, column: &'static str, key: &Name) -> Result<Name> {
    let text: String = row.try_get(index)?;
    Ok(Name::new(&text).map_err(|_| Corruption { table, column, key: key.to_string() })?)
}

async fn session(connection: Scoped, tenant: &Tenant, id: &Name) -> Result<Option<SessionRow>> {
    let query = sqlx::query(sql::SESSION).bind(tenant.as_str()).bind(id.as_str());
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    Ok(Some(SessionRow {
        id: id.clone(),
        profile: name(&row, 0, "sessions", "profile_id", id)?,
        bound_at: Timestamp::from_micros(row.try_get(1)?),
        bound_by: name(&row, 2, "sessions", "bound_by", id)?,
    }))
}

async fn adoption(connection: &mut Held, tenant: &Tenant, wish: &Adoption) -> Result<Option<Adoption>> {
    let query = sqlx::query(sql::ADOPTION).bind(tenant.as_str()).bind(wish.session.as_str()).bind(wish.key.as_str());
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    Ok(Some(Adoption {
        session: wish.session.clone(),
        key: wish.key.clone(),
        previous: name(&row, 0, "adoptions", "previous_profile", &wish.key)?,
        profile: name(&row, 1, "adoptions", "profile_id", &wish.key)?,
        request: row.try_get(2)?,
        at: Timestamp::from_micros(row.try_get(3)?),
        by: name(&row, 4, "adoptions", "adopted_by", &wish.key)?,
    }))
}

#[async_trait]
impl ProfileStore for PostgresStore {
    async fn add_profile(&self, tenant: &Tenant, profile: &ProfileRow) -> Result<()> {
        sqlx::query(sql::PROFILE_ADD)
            .bind(tenant.as_str())
            .bind(profile.id.as_str())
            .bind(&profile.components)
            .bind(profile.declared_at.micros())
            .bind(profile.declared_by.as_str())
            .execute(self.scope(One(tenant)).await?)
            .await?;
        Ok(())
    }

    async fn profile(&self, tenant: &Tenant, id: &Name) -> Result<Option<ProfileRow>> {
        let query = sqlx::query(sql::PROFILE).bind(tenant.as_str()).bind(id.as_str());
        let Some(row) = query.fetch_optional(self.scope(One(tenant)).await?).await? else { return Ok(None) };
        Ok(Some(ProfileRow {
            id: id.clone(),
            components: row.try_get(0)?,
            declared_at: Timestamp::from_micros(row.try_get(1)?),
            declared_by: name(&row, 2, "profiles", "declared_by", id)?,
        }))
    }

    async fn session(&self, tenant: &Tenant, id: &Name) -> Result<Option<SessionRow>> {
        session(self.scope(One(tenant)).await?, tenant, id).await
    }

    async fn bind_session(&self, tenant: &Tenant, row: &SessionRow) -> Result<SessionRow> {
        sqlx::query(sql::SESSION_BIND)
            .bind(tenant.as_str())
            .bind(row.id.as_str())
            .bind(row.profile.as_str())
            .bind(row.bound_at.micros())
            .bind(row.bound_by.as_str())
            .execute(self.scope(One(tenant)).await?)
            .await?;
        // Whoever was first.
        let found = session(self.scope(One(tenant)).await?, tenant, &row.id).await?;
        let gone = || Corruption { table: "sessions", column: "session_id", key: row.id.to_string() };
        Ok(found.ok_or_else(gone)?)
    }

    async fn adopt(&self, tenant: &Tenant, wish: &Adoption) -> Result<Adopted> {
        let mut transaction = self.begin(One(tenant)).await?;
        let query = sqlx::query(sql::SESSION_TAKE).bind(tenant.as_str()).bind(wish.session.as_str());
        let taken = query.fetch_optional(&mut *transaction).await?;
        if let Some(known) = adoption(&mut transaction, tenant, wish).await? {
            transaction.rollback().await?;
            return Ok(Adopted::Known(known));
        }
        let Some(taken) = taken else {
            transaction.rollback().await?;
            return Ok(Adopted::Unbound);
        };
        let made = Adoption { previous: name(&taken, 0, "sessions", "profile_id", &wish.session)?, ..wish.clone() };
        let query = sqlx::query(sql::SESSION_UNRESOLVED).bind(tenant.as_str()).bind(wish.session.as_str());
        let mut unresolved = Vec::new();
        for row in query.fetch_all(&mut *transaction).await? {
            let (state, count): (i16, i64) = (row.try_get(0)?, row.try_get(1)?);
            let bad = || Corruption { table: "open_effects", column: "state", key: wish.session.to_string() };
            unresolved.push((state_of(state).ok_or_else(bad)?, u64::try_from(count).unwrap_or(0)));
        }
        if !unresolved.is_empty() {
            transaction.rollback().await?;
            return Ok(Adopted::Unresolved(unresolved));
        }
        write(&mut transaction, tenant, &made).await?;
        transaction.commit().await?;
        Ok(Adopted::Applied(made))
    }
}

async fn write(connection: &mut Held, tenant: &Tenant, made: &Adoption) -> Result<()> {
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
        .bind(&made.request)
        .bind(made.at.micros())
        .bind(made.by.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
