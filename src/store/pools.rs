//! How much of the connections is in use, for metrics.

/// One pool of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// Its name.
    pub pool: &'static str,
    /// Connections that work.
    pub in_use: u32,
    /// Connections that wait for work.
    pub idle: u32,
    /// The most there may be.
    pub limit: u32,
}

impl PoolUse {
    pub(super) fn of<DB: sqlx::Database>(name: &'static str, pool: &sqlx::Pool<DB>) -> Self {
        let idle = u32::try_from(pool.num_idle()).unwrap_or(u32::MAX);
        let limit = pool.options().get_max_connections();
        Self { pool: name, in_use: pool.size().saturating_sub(idle), idle, limit }
    }
}

/// Tells about connections. Asks the database nothing.
pub trait PoolStore {
    /// All pools.
    fn pools(&self) -> Vec<PoolUse>;
}
