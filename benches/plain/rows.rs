//! One effect's rows in one statement each, as one would write them by hand: no batch, no arrays.

use actonce::domain::time::Timestamp;
use actonce::store::RevisionRow;
use actonce::store::rows::state_code;
use sqlx::PgPool;

const INTENT: &str = "WITH written AS (\
  INSERT INTO entries (tenant, effect, revision, state, created_us, run_id, session_id, intent, life, entry, prev_hash, hash) \
  VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING RETURNING effect) \
  INSERT INTO open_effects (tenant, effect, revision, state, fence, due_us, duplicate, created_us, contradicted, tool, run_id, session_id) \
  SELECT $1, effect, 1, $3, $12, $13, $14, $4, false, $15, $5, $6 FROM written RETURNING effect";
const OUTCOME: &str = "WITH closed AS (\
  DELETE FROM open_effects WHERE tenant = $1 AND effect = $2 AND revision = $3 - 1 RETURNING effect) \
  INSERT INTO entries (tenant, effect, revision, state, life, entry, receipt, result, prev_hash, hash) \
  SELECT $1, effect, $3, $4, $5, $6, $7, $8, $9, $10 FROM closed RETURNING effect";

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Writes a new effect; false if it was there.
pub(crate) async fn insert(pool: &PgPool, row: &RevisionRow) -> sqlx::Result<bool> {
    let (Some(intent), Some(open)) = (&row.intent, &row.open) else { return Ok(false) };
    let written = sqlx::query(INTENT)
        .bind(row.key.tenant.as_str())
        .bind(row.key.effect)
        .bind(state_code(row.state))
        .bind(intent.created_at.micros())
        .bind(row.run_id.as_ref().map(actonce::domain::ids::Name::as_str))
        .bind(row.session_id.as_ref().map(actonce::domain::ids::Name::as_str))
        .bind(&*intent.text)
        .bind(&row.life)
        .bind(&row.entry)
        .bind(row.prev_hash.as_slice())
        .bind(row.hash.as_slice())
        .bind(number(open.fence))
        .bind(open.due_at.map(Timestamp::micros))
        .bind(open.duplicate)
        .bind(open.tool.as_str())
        .fetch_optional(pool)
        .await?;
    Ok(written.is_some())
}

/// Writes the settling revision of an open effect; false if the revision moved.
pub(crate) async fn settle(pool: &PgPool, row: &RevisionRow) -> sqlx::Result<bool> {
    let written = sqlx::query(OUTCOME)
        .bind(row.key.tenant.as_str())
        .bind(row.key.effect)
        .bind(number(row.revision))
        .bind(state_code(row.state))
        .bind(&row.life)
        .bind(&row.entry)
        .bind(row.receipt.as_deref())
        .bind(row.result.as_deref())
        .bind(row.prev_hash.as_slice())
        .bind(row.hash.as_slice())
        .fetch_optional(pool)
        .await?;
    Ok(written.is_some())
}
