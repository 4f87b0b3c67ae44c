//! Grants from their rows.

use crate::domain::grant::{GrantTerms, LiveGrant};
use crate::store::{Corruption, GrantRow};

/// The terms of a grant.
///
/// # Errors
/// They can't be read back.
pub fn terms_of(row: &GrantRow) -> Result<GrantTerms, Corruption> {
    serde_json::from_str(&row.terms).map_err(|_| Corruption {
        table: "grants",
        column: "terms",
        key: row.id.to_string(),
    })
}

/// A grant as decisions look at it.
///
/// # Errors
/// Its terms can't be read back.
pub fn live_grant(row: &GrantRow) -> Result<LiveGrant, Corruption> {
    Ok(LiveGrant { id: row.id, terms: terms_of(row)?, expires_at: row.expires_at })
}
