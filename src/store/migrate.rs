//! Migrations.

use super::Result;
/// placeholder
pub async fn postgres(_: &sqlx::PgPool)->Result<()>{Ok(())}
/// p
pub async fn check_postgres(_: &sqlx::PgPool)->Result<()>{Ok(())}
