//! Connections: how many there may be. What becomes of one is [`connection`](super::connection)'s.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{GOODBYE, Pace, Paced, connection};
use crate::limits;

/// Pause after the system could not give a connection.
const BREATH: Duration = Duration::from_millis(200);

/// Bounds of connections.
#[derive(Clone)]
pub struct Connections {
    /// Most of them.
    pub most: usize,
    /// Longest time for the head of a request.
    pub header_timeout: Duration,
    /// Longest silence between requests.
    pub idle_timeout: Duration,
    /// TLS; where `None`, plain HTTP is spoken.
    pub tls: Option<TlsAcceptor>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Connections");
        shown.field("most", &self.most).field("header_timeout", &self.header_timeout);
        shown.field("idle_timeout", &self.idle_timeout).field("tls", &self.tls.is_some()).finish()
    }
}

impl Connections {
    /// The same, within what this process may have open.
    #[must_use]
    pub fn within(self, descriptors: Option<u64>) -> Self {
        let Some(may) = descriptors.and_then(|count| usize::try_from(count).ok()) else { return self };
        let kept = limits::DESCRIPTORS_KEPT.saturating_add(limits::SPARE_CONNECTIONS);
        let most = self.most.min(may.saturating_sub(kept).max(1));
        if most < self.most {
            tracing::warn!(configured = self.most, most, "the limit of open files bounds the connections");
        }
        Self { most, ..self }
    }
}

/// Marks requests of a connection beyond the bound: they get 503, and health its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spare;

/// Serves until stopped, then until every connection has ended. When dropped before, it takes all connections
/// with it.
///
/// # Errors
/// None at present: what fails is a connection and not the server.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Connections,
    stopping: CancellationToken,
) -> io::Result<()> {
    let (tasks, open, buffered) = (TaskTracker::new(), Arc::new(AtomicUsize::new(0)), Arc::default());
    let cut = CancellationToken::new();
    let _when_dropped = cut.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !is_of_the_peer(&error) {
                    tracing::warn!(%error, "no connection can be taken");
                    tokio::time::sleep(BREATH).await;
                }
                continue;
            }
        };
        let Some(place) = Place::take(&open, bounds.most) else {
            metrics::counter!("actonce_connections_refused_total", "how" => "closed").increment(1);
            continue;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY is refused");
        }
        let pace = Arc::new(Pace::new(bounds.header_timeout, bounds.idle_timeout, Arc::clone(&buffered)));
        let service = Paced { router: router.clone(), pace, spare: place.spare };
        let ends = (stopping.clone(), cut.clone());
        // Two kinds of tasks, so that one without TLS has no room for a handshake.
        match bounds.tls.clone() {
            None => tasks.spawn(async move {
                connection(stream, service, ends).await;
                drop(place);
            }),
            Some(tls) => tasks.spawn(async move {
                if let Some(stream) = shake_hands(&tls, stream, &service.pace, &ends).await {
                    connection(stream, service, ends).await;
                }
                drop(place);
            }),
        };
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// The client has gone already.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// A place among the connections; given back when dropped.
struct Place {
    open: Arc<AtomicUsize>,
    spare: bool,
}

impl Place {
    fn take(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let before = open.fetch_add(1, Ordering::AcqRel);
        let place = Self { open: Arc::clone(open), spare: before >= most };
        (before < most.saturating_add(limits::SPARE_CONNECTIONS)).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The TLS of a connection, within the time that the head of its first request has: hands and head share it. `None` where
/// there is none, whatever was sent; it is closed then.
async fn shake_hands(
    tls: &TlsAcceptor,
    stream: TcpStream,
    pace: &Pace,
    (stopping, cut): &(CancellationToken, CancellationToken),
) -> Option<TlsStream<TcpStream>> {
    let shaking = tls.accept(stream).into_fallible();
    let shaken = tokio::select! {
        biased;
        () = stopping.cancelled() => return None,
        () = cut.cancelled() => return None,
        shaken = tokio::time::timeout_at(pace.first_head(), shaking) => shaken,
    };
    let why = match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err((error, mut stream))) => {
            // The alert is on its way: it ends with the end of the stream, for who spoke plain HTTP as well.
            tracing::debug!(%error, "no TLS with a client");
            drop(tokio::time::timeout(GOODBYE, stream.shutdown()).await);
            "failed"
        }
        Err(_) => "timeout",
    };
    metrics::counter!("actonce_tls_handshakes_failed_total", "why" => why).increment(1);
    None
}
