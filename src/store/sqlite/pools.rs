//! Pools on SQLite.

use super::SqliteStore;
use crate::store::{PoolStore, PoolUse};

impl PoolStore for SqliteStore {
    fn pools(&self) -> Vec<PoolUse> {
        let in_use = u32::from(self.writer.is_lent());
        let writer = PoolUse { pool: "writer", in_use, idle: 1 - in_use, limit: 1 };
        vec![PoolUse::of("readers", &self.readers), writer]
    }
}
