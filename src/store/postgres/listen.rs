//! Announcements between replicas: one listening connection per process, never inside a write.

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::mpsc;

use super::sql;
use crate::store::Result;

/// The channel.
const CHANNEL: &str = "actonce";

pub(super) async fn announce(pool: &PgPool, message: &str) -> Result<()> {
    sqlx::query(sql::NOTIFY).bind(message).execute(pool).await?;
    Ok(())
}

pub(super) async fn listen(pool: &PgPool, sink: mpsc::Sender<String>) -> Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    loop {
        // `None`: the connection broke and was made again; whatever was announced meanwhile is
        // found by the waiters' slow poll.
        let Some(notice) = listener.try_recv().await? else { continue };
        if sink.send(notice.payload().to_owned()).await.is_err() {
            return Ok(());
        }
    }
}
