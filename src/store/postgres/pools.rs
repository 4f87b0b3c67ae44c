//! Pools on Postgres.

use super::PostgresStore;
use crate::store::{PoolStore, PoolUse};

impl PoolStore for PostgresStore {
    fn pools(&self) -> Vec<PoolUse> {
        self.wall.pools()
    }
}
