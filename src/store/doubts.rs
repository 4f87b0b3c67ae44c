//! Waking doubts that are already open, when the registration of their tool changes so that the service asks
//! about them by itself. Noted with the registration, done page by page, on one replica or several.

use async_trait::async_trait;
use uuid::Uuid;

use super::Result;
use crate::domain::ids::{Name, Tenant};

/// A tool whose doubts are to be woken, and up to where that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubtWake {
    /// Whose.
    pub tenant: Tenant,
    /// The tool.
    pub tool: Name,
    /// The tool's stamp when it was asked for.
    pub stamp: i64,
    /// Doubts of effects created then or before, with an id not after `after_effect`, are awake.
    pub after_us: i64,
    /// See `after_us`; `None` at the beginning.
    pub after_effect: Option<Uuid>,
}

/// The store's part of it.
#[async_trait]
pub trait DoubtStore: Send + Sync {
    /// What is to be done, in the order of keys.
    async fn doubt_wakes(&self, limit: u32) -> Result<Vec<DoubtWake>>;

    /// Makes the next doubts of a tool due now, so that a sweep looks at them, and notes how far it came, in
    /// one transaction; at the end the note goes. Answers how many were looked at; nothing happens, and it is
    /// `None`, if the note is another one by now.
    async fn wake_doubts(&self, wake: &DoubtWake, limit: u32) -> Result<Option<usize>>;
}
