//! A look at a Postgres database from outside.

use sqlx::{ConnectOptions as _, Row as _};

use super::connect::{Server, for_a_pooler, parsed, past_the_pooler, recorded};
use super::sql::{self, inspect as looks};
use super::wall::{self, Manner, Purpose, Tenants, Wall, Ways};
use crate::limits;
use crate::store::inspect::{Inspection, Past, sealed_start};
use crate::store::migrate::{self, Level};
use crate::store::open::{Pooling, PostgresAddress};
use crate::store::{Result, StoreError};

/// A look must not hang, nor stand in anybody's way.
const LIMITS: [(&str, &str); 2] = [("statement_timeout", "5s"), ("lock_timeout", "2s")];
/// It sees whatever is there.
const ALL: Tenants<'static> = Tenants::All(Purpose::Inspection);

/// See [`crate::store::inspect::inspect`].
pub(in crate::store) async fn inspect(address: &PostgresAddress) -> Result<Inspection> {
    let options = parsed(&address.url, "DATABASE_URL")?.application_name("actonce doctor");
    let (working, manner) = match &address.pooling {
        Pooling::Session => (wall::declared(options.options(LIMITS)), Manner::Sessions),
        Pooling::Transaction { .. } => (for_a_pooler(options), Manner::transactions(&LIMITS)),
    };
    let mut connection = working.connect().await?;
    let past = match &address.pooling {
        Pooling::Session => None,
        Pooling::Transaction { direct: None } => Some(Past::None),
        Pooling::Transaction { direct: Some(direct) } => {
            let server = Server::of(&mut connection).await?;
            Some(
                past_the_pooler(direct, &server)
                    .await
                    .map_or_else(|error| Past::Fault(error.to_string()), |_| Past::Leads),
            )
        }
    };
    let wall = Wall::of(connection, &Ways { working, listening: None, manner });
    let found = look(&wall).await;
    wall.close().await;
    Ok(Inspection { past, ..found? })
}

async fn look(wall: &Wall) -> Result<Inspection> {
    let row = sqlx::query(looks::INSPECT_SERVER).fetch_one(wall.scope(ALL).await?).await?;
    let names = ["server_version_num", "fsync", "synchronous_commit", "full_page_writes", "standby", "read_only"];
    let mut settings = Vec::new();
    for (column, name) in names.into_iter().enumerate() {
        settings.push((name, row.try_get::<String, _>(column)?));
    }
    let now_us = Some(sqlx::query_scalar(sql::NOW).fetch_one(wall.scope(ALL).await?).await?);
    let schema = migrate::postgres_level(recorded(wall, ALL).await?.as_ref())?;
    let mut found = Inspection {
        schema,
        write_fault: None,
        settings,
        now_us,
        alias_keys: Vec::new(),
        adapters: Vec::new(),
        sealed: Vec::new(),
        past: None,
    };
    if found.schema == Level::Current {
        found.write_fault = write(wall).await.err().map(|error| reason(&error));
        read(wall, &mut found).await?;
    }
    Ok(found)
}

/// What the database says, without what a store would make of it.
fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(error) | StoreError::Rejected(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Everything that a change needs is asked for, of no row, and taken back.
async fn write(wall: &Wall) -> Result<()> {
    let mut transaction = wall.begin(ALL).await?;
    let all = [looks::INSPECT_APPEND, looks::INSPECT_REGISTER, looks::INSPECT_MOVE, looks::INSPECT_TAKE];
    for statement in all {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    transaction.rollback().await
}

async fn read(wall: &Wall, found: &mut Inspection) -> Result<()> {
    let holds: bool = sqlx::query_scalar(sql::WALL_HOLDS).fetch_one(wall.scope(ALL).await?).await?;
    found.settings.push(("wall", holds.to_string()));
    for row in sqlx::query(sql::ALIAS_KEYS).fetch_all(wall.scope(ALL).await?).await? {
        found.alias_keys.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    let tools = sqlx::query(looks::INSPECT_TOOLS).bind(i64::from(limits::DOCTOR_TOOLS));
    for row in tools.fetch_all(wall.scope(ALL).await?).await? {
        found.adapters.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    let sealed = sqlx::query(sql::seals::INSPECT_SEALED).bind(i64::from(limits::DOCTOR_SEALED));
    for row in sealed.fetch_all(wall.scope(ALL).await?).await? {
        found.sealed.extend(sealed_start(i64::from(row.try_get::<i32, _>(0)?), row.try_get(1)?, row.try_get(2)?));
    }
    Ok(())
}
