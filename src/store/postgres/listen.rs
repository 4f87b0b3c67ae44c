//! Announcements between replicas: one listening connection per process, never inside a write.

use tokio::sync::mpsc;

use super::sql;
use super::wall::{Tenants, Wall};
use crate::store::Result;

/// The channel.
const CHANNEL: &str = "actonce";

pub(super) async fn announce(wall: &Wall, message: &str) -> Result<()> {
    sqlx::query(sql::NOTIFY).bind(message).execute(wall.scope(Tenants::Nobody).await?).await?;
    Ok(())
}

pub(super) async fn listen(wall: &Wall, sink: mpsc::Sender<String>) -> Result<()> {
    // Without a session of its own nobody listens; the waiters' slow poll finds what changed.
    let Some(mut listener) = wall.listener().await? else { return Ok(()) };
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
