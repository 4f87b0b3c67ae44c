//! The registry of alias keys on SQLite.

use async_trait::async_trait;
use sqlx::{Connection as _, Row as _};

use super::{SqliteStore, sql};
use crate::store::Result;
use crate::store::aliases::{AliasKeyMark, AliasKeyStore, KeysRegistered, refused};

#[async_trait]
impl AliasKeyStore for SqliteStore {
    async fn register_alias_keys(&self, keys: &[AliasKeyMark]) -> Result<KeysRegistered> {
        let mut lent = self.writer.lend().await?;
        let mut transaction = lent.connection.begin_with(sql::BEGIN).await?;
        let rows = sqlx::query(sql::ALIAS_KEYS).fetch_all(&mut *transaction).await?;
        let mut known = Vec::with_capacity(rows.len());
        for row in &rows {
            known.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        }
        if let Some(refused) = refused(keys, &known) {
            transaction.rollback().await?;
            lent.give_back();
            return Ok(refused);
        }
        for key in keys {
            let fingerprint = key.fingerprint.as_slice();
            sqlx::query(sql::ALIAS_KEY_ADD).bind(&key.id).bind(fingerprint).execute(&mut *transaction).await?;
        }
        let now = self.clock.now().micros();
        for (id, _, retired) in known {
            if !retired && !keys.iter().any(|key| key.id == id) {
                sqlx::query(sql::ALIAS_KEY_RETIRE).bind(id).bind(now).execute(&mut *transaction).await?;
            }
        }
        transaction.commit().await?;
        lent.give_back();
        Ok(KeysRegistered::Applied)
    }
}
