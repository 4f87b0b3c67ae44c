//! The registry of alias keys on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;

use super::wall::Tenants;
use super::{PostgresStore, sql};
use crate::store::Result;
use crate::store::aliases::{AliasKeyMark, AliasKeyStore, KeysRegistered, refused};

#[async_trait]
impl AliasKeyStore for PostgresStore {
    async fn register_alias_keys(&self, keys: &[AliasKeyMark]) -> Result<KeysRegistered> {
        let mut transaction = self.begin(Tenants::Nobody).await?;
        // Replicas that start at once take turns.
        sqlx::query(sql::ALIAS_KEYS_LOCK).execute(&mut *transaction).await?;
        let rows = sqlx::query(sql::ALIAS_KEYS).fetch_all(&mut *transaction).await?;
        let mut known = Vec::with_capacity(rows.len());
        for row in &rows {
            known.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        }
        if let Some(refused) = refused(keys, &known) {
            transaction.rollback().await?;
            return Ok(refused);
        }
        let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let fingerprints: Vec<&[u8]> = keys.iter().map(|key| key.fingerprint.as_slice()).collect();
        sqlx::query(sql::ALIAS_KEYS_ADD).bind(&ids).bind(fingerprints).execute(&mut *transaction).await?;
        sqlx::query(sql::ALIAS_KEYS_RETIRE).bind(&ids).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(KeysRegistered::Applied)
    }
}
