//! Connections: how many, and how slow they may be. What is on a connection is the router's.
//!
//! A connection has three times. While a request is under way its own bounds hold (`edge`, `extract`). While the
//! head of a request arrives, all of it has to come within the header timeout, however many bytes come in between.
//! Between requests, and while nobody reads an answer, the idle timeout runs anew with every byte that goes out.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits;

/// How long a connection that is to end may take to do so.
const GOODBYE: Duration = Duration::from_secs(2);
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
    let (tasks, open) = (TaskTracker::new(), Arc::new(AtomicUsize::new(0)));
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
        let pace = Arc::new(Pace::new(&bounds));
        let (router, stopping, cut, tls) = (router.clone(), stopping.clone(), cut.clone(), bounds.tls.clone());
        tasks.spawn(async move {
            let ends = (stopping, cut);
            match tls {
                None => connection(stream, router, pace, place, ends).await,
                Some(tls) => {
                    if let Some(stream) = shake_hands(&tls, stream, &pace, &ends).await {
                        connection(stream, router, pace, place, ends).await;
                    }
                }
            }
        });
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
        shaken = tokio::time::timeout_at(pace.started + pace.header_timeout, shaking) => shaken,
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

async fn connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    router: Router,
    pace: Arc<Pace>,
    place: Place,
    (stopping, cut): (CancellationToken, CancellationToken),
) {
    let io = TokioIo::new(PacedStream { stream, pace: Arc::clone(&pace), looked: false });
    let service = Paced { router, pace: Arc::clone(&pace), spare: place.spare };
    let builder = builder(place.spare);
    let mut serving = pin!(builder.serve_connection(io, service));
    let (mut stop, mut cut) = (pin!(stopping.cancelled()), pin!(cut.cancelled()));
    let mut alarm = pin!(tokio::time::sleep_until(pace.started + pace.header_timeout));
    let (mut stopped, mut leaving) = (false, None);
    poll_fn(|context| {
        if !stopped && stop.as_mut().poll(context).is_ready() {
            stopped = true;
            serving.as_mut().graceful_shutdown();
        }
        if serving.as_mut().poll(context).is_ready() || cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let Some(until) = leaving.or_else(|| pace.until()) else { return Poll::Pending };
            // The alarm is moved only when it has to be: a request that comes in one piece costs no timer.
            if until < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(until);
            }
            ready!(alarm.as_mut().poll(context));
            if alarm.deadline() < until {
                continue;
            }
            if leaving.is_some() || pace.is_in_head() {
                return Poll::Ready(());
            }
            leaving = Some(until + GOODBYE);
            serving.as_mut().graceful_shutdown();
            if serving.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
        }
    })
    .await;
}

fn builder(spare: bool) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // The times are kept here: those of the library know no difference between a slow head and a quiet client.
    builder.http1().header_read_timeout(None).max_buf_size(limits::HEAD_BYTES).keep_alive(!spare);
    let head = u32::try_from(limits::HEAD_BYTES).unwrap_or(u32::MAX);
    builder.http2().max_concurrent_streams(limits::STREAMS).max_header_list_size(head);
    builder
}

/// The times of one connection. Everything is relaxed: one task drives a connection, and what it misses of another
/// it sees when it is woken.
struct Pace {
    started: Instant,
    header_timeout: Duration,
    idle_timeout: Duration,
    /// Requests under way.
    busy: AtomicUsize,
    /// The head of a request is arriving, or the first is awaited.
    head: AtomicBool,
    /// When that began, or when something last went out, in milliseconds since the start.
    since: AtomicU64,
    /// Frames may come between requests.
    framed: AtomicBool,
}

impl Pace {
    fn new(bounds: &Connections) -> Self {
        Self {
            started: Instant::now(),
            header_timeout: bounds.header_timeout,
            idle_timeout: bounds.idle_timeout,
            busy: AtomicUsize::new(0),
            head: AtomicBool::new(true),
            since: AtomicU64::new(0),
            framed: AtomicBool::new(false),
        }
    }

    fn mark(&self) {
        let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.since.store(passed, Ordering::Relaxed);
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    fn is_in_head(&self) -> bool {
        self.head.load(Ordering::Relaxed)
    }

    fn came_in(&self) {
        if !self.is_busy() && !self.is_in_head() && !self.framed.load(Ordering::Relaxed) {
            self.mark();
            self.head.store(true, Ordering::Relaxed);
        }
    }

    fn went_out(&self) {
        if !self.is_busy() && !self.is_in_head() {
            self.mark();
        }
    }

    fn begins(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.head.store(false, Ordering::Relaxed);
    }

    fn ends(&self) {
        self.mark();
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// When the connection is to end; `None` while a request is under way.
    fn until(&self) -> Option<Instant> {
        let bound = if self.is_in_head() { self.header_timeout } else { self.idle_timeout };
        let since = self.started + Duration::from_millis(self.since.load(Ordering::Relaxed));
        (!self.is_busy()).then_some(since + bound)
    }
}

/// A request under way; it has ended when this is dropped, however it ended.
struct UnderWay(Arc<Pace>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// The router, with the times of its connection.
struct Paced {
    router: Router,
    pace: Arc<Pace>,
    spare: bool,
}

impl hyper::service::Service<hyper::Request<Incoming>> for Paced {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        self.pace.begins();
        let under_way = UnderWay(Arc::clone(&self.pace));
        let mut request: Request = request.map(Body::new);
        if self.spare {
            request.extensions_mut().insert(Spare);
        }
        let mut router = self.router.clone();
        async move {
            let answer = tower::Service::call(&mut router, request).await;
            drop(under_way);
            answer
        }
        .boxed()
    }
}

/// A connection's bytes.
struct PacedStream<S> {
    stream: S,
    pace: Arc<Pace>,
    /// The first bytes were seen: they tell HTTP/2 from HTTP/1.1.
    looked: bool,
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = bytes.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, bytes))?;
        let new = bytes.filled().get(before..).unwrap_or_default();
        if !new.is_empty() {
            if !self.looked {
                self.looked = true;
                self.pace.framed.store(new.starts_with(b"PRI"), Ordering::Relaxed);
            }
            self.pace.came_in();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.pace.went_out();
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, bytes))?;
        self.pace.went_out();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
