//! One connection, from its first byte to its last.
//!
//! It is at rest, or HTTP is spoken on it. At rest it is a stream and little else: the buffers and tables that HTTP
//! needs (some 23 kB) come with the first byte of a request and go a moment after the last one of an answer, since
//! most connections of most clients say nothing most of the time.
//!
//! It has three times. While a request is under way its own bounds hold (`edge`, `extract`). While the head of a
//! request arrives, all of it has to come within the header timeout, however many bytes come in between. Between
//! requests, and while nobody reads an answer, the idle timeout runs anew with every byte that goes out.

mod pace;
mod stream;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::server::Spare;
use crate::limits;
pub(super) use pace::Pace;
use pace::{Due, Flowing, UnderWay};
use stream::PacedStream;

/// How long a connection that is to end may take to do so.
pub(super) const GOODBYE: Duration = Duration::from_secs(2);

/// Speaks HTTP on a stream until one of both sides ends it.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    service: Paced,
    (stopping, cut): (CancellationToken, CancellationToken),
) {
    let pace = Arc::clone(&service.pace);
    let mut line = Line::new(stream, service);
    let (mut stop, mut cut) = (pin!(stopping.cancelled()), pin!(cut.cancelled()));
    let bell = Arc::new(Bell { rung: AtomicBool::new(true), task: AtomicWaker::new() });
    let ringing = Waker::from(Arc::clone(&bell));
    let mut alarm = pin!(tokio::time::sleep_until(pace.first_head()));
    let (mut stopped, mut leaving) = (false, None);
    poll_fn(|context| {
        bell.task.register(context.waker());
        if bell.rung.swap(false, Ordering::AcqRel) {
            let mut context = Context::from_waker(&ringing);
            if cut.as_mut().poll(&mut context).is_ready() {
                return Poll::Ready(());
            }
            if !stopped && stop.as_mut().poll(&mut context).is_ready() {
                stopped = true;
                line.end_gracefully();
            }
        }
        if line.poll(context).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let Some((until, due)) = leaving.or_else(|| pace.until()) else { return Poll::Pending };
            // In a crowd nobody keeps buffers for a moment.
            if due != Due::Rest || !pace.is_in_crowd() {
                // The alarm is moved only when it has to be: a request that comes in one piece costs no timer.
                if until < alarm.deadline() || alarm.is_elapsed() {
                    alarm.as_mut().reset(until);
                }
                ready!(alarm.as_mut().poll(context));
                if alarm.deadline() < until {
                    continue;
                }
            }
            match due {
                Due::Rest => line.rest(),
                Due::Farewell => {
                    leaving = Some((until + GOODBYE, Due::End));
                    line.end_gracefully();
                }
                Due::End => return Poll::Ready(()),
            }
            if line.poll(context).is_ready() {
                return Poll::Ready(());
            }
        }
    })
    .await;
}

/// Tells a connection that one of its ends may have come. All connections share these, and each look at them takes a
/// lock: too dear for every byte that comes.
struct Bell {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// A stream with what is spoken on it.
struct Line<S: AsyncRead + AsyncWrite + Unpin> {
    state: State<S>,
    service: Paced,
}

type Http1<S> = http1::Connection<TokioIo<PacedStream<S>>, Paced>;
type Http2<S> = http2::Connection<TokioIo<PacedStream<S>>, Paced, TokioExecutor>;

enum State<S: AsyncRead + AsyncWrite + Unpin> {
    Resting(PacedStream<S>),
    Http1(Box<Http1<S>>),
    Http2(Pin<Box<Http2<S>>>),
    Ended,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Line<S> {
    fn new(stream: S, service: Paced) -> Self {
        let pace = Arc::clone(&service.pace);
        Self { state: State::Resting(PacedStream::new(stream, pace)), service }
    }

    /// Ready when the connection has ended, whatever the reason: what fails is a connection and nothing of the service's.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let State::Resting(stream) = &mut self.state {
            match ready!(stream.poll_first(context)) {
                Ok(true) => self.speak(),
                Ok(false) | Err(_) => self.state = State::Ended,
            }
        }
        match &mut self.state {
            State::Http1(spoken) => Pin::new(&mut **spoken).poll(context).map(drop),
            State::Http2(spoken) => spoken.as_mut().poll(context).map(drop),
            State::Resting(_) | State::Ended => Poll::Ready(()),
        }
    }

    /// From rest to the protocol whose first bytes are here.
    fn speak(&mut self) {
        let State::Resting(stream) = std::mem::replace(&mut self.state, State::Ended) else { return };
        let service = self.service.clone();
        let framed = stream.is_framed();
        service.pace.speaks(framed);
        self.state = if framed {
            let head = u32::try_from(limits::HEAD_BYTES).unwrap_or(u32::MAX);
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(limits::STREAMS).max_header_list_size(head);
            State::Http2(Box::pin(builder.serve_connection(TokioIo::new(stream), service)))
        } else {
            let mut builder = http1::Builder::new();
            // The times are kept here: those of the library know no difference between a slow head and a quiet client.
            builder.header_read_timeout(None).max_buf_size(limits::HEAD_BYTES).keep_alive(!service.spare);
            State::Http1(Box::new(builder.serve_connection(TokioIo::new(stream), service)))
        };
    }

    /// Gives the buffers back. Only for a line that may rest by its [`Pace`]: no request is under way, and every answer
    /// is written.
    fn rest(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Ended) {
            State::Http1(spoken) => {
                let parts = spoken.into_parts();
                let mut stream = parts.io.into_inner();
                stream.put_back(parts.read_buf);
                self.service.pace.rests();
                State::Resting(stream)
            }
            other => other,
        };
    }

    /// After what is under way now, if anything is.
    fn end_gracefully(&mut self) {
        match &mut self.state {
            State::Http1(spoken) => Pin::new(&mut **spoken).graceful_shutdown(),
            State::Http2(spoken) => spoken.as_mut().graceful_shutdown(),
            State::Resting(_) | State::Ended => self.state = State::Ended,
        }
    }
}

/// The router, with the times of its connection.
#[derive(Clone)]
pub(super) struct Paced {
    /// Answers.
    pub(super) router: Router,
    /// The times.
    pub(super) pace: Arc<Pace>,
    /// The connection is one beyond the bound.
    pub(super) spare: bool,
}

impl hyper::service::Service<hyper::Request<Incoming>> for Paced {
    type Response = hyper::Response<Flowing>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<hyper::Response<Flowing>, Infallible>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let pace = Arc::clone(&self.pace);
        let under_way = UnderWay::begin(Arc::clone(&self.pace));
        let mut request: Request = request.map(Body::new);
        if self.spare {
            request.extensions_mut().insert(Spare);
        }
        let mut router = self.router.clone();
        async move {
            let answer: Response = tower::Service::call(&mut router, request).await?;
            let answer = answer.map(|body| Flowing::new(body, pace));
            drop(under_way);
            Ok(answer)
        }
        .boxed()
    }
}
