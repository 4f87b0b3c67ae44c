//! A connection's bytes, and what its [`Pace`] learns from them.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pace::Pace;

/// The first bytes of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Most bytes that are read at rest.
const FIRST: usize = 4096;

/// A connection's bytes.
pub(super) struct PacedStream<S> {
    stream: S,
    pace: Arc<Pace>,
    /// What came while the connection was at rest, as far as HTTP has not seen it.
    first: BytesMut,
}

impl<S> PacedStream<S> {
    pub(super) fn new(stream: S, pace: Arc<Pace>) -> Self {
        Self { stream, pace, first: BytesMut::new() }
    }

    /// Whether what came first are the first bytes of HTTP/2.
    pub(super) fn is_framed(&self) -> bool {
        self.first.starts_with(PREFACE)
    }

    /// The beginning of a request that was read behind another one.
    pub(super) fn put_back(&mut self, read: Bytes) {
        if !read.is_empty() {
            self.first = read.into();
            self.pace.came_in();
        }
    }
}

impl<S: AsyncRead + Unpin> PacedStream<S> {
    /// Waits for the first bytes, as many as tell HTTP/2 from HTTP/1.1. `false`: the other side has ended instead.
    pub(super) fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while PREFACE.starts_with(&self.first) && self.first.len() < PREFACE.len() {
            // A whole request, mostly: it is asked for once.
            let mut room = [MaybeUninit::uninit(); FIRST];
            let mut bytes = ReadBuf::uninit(&mut room);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut bytes))?;
            if bytes.filled().is_empty() {
                return Poll::Ready(Ok(false));
            }
            self.first.extend_from_slice(bytes.filled());
            self.pace.came_in();
        }
        Poll::Ready(Ok(true))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let most = self.first.len().min(bytes.remaining());
            bytes.put_slice(&self.first.split_to(most));
            if self.first.is_empty() {
                // What is left of it, empty as it is, would keep the room of all that was read.
                self.first = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = bytes.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, bytes))?;
        if bytes.filled().len() > before {
            self.pace.came_in();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Unpin> PacedStream<S> {
    /// Notes what became of a try to write.
    fn tried(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.pace.set_stuck(written.is_pending());
        if matches!(written, Poll::Ready(Ok(_))) {
            self.pace.went_out();
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.tried(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.tried(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // With TLS bytes wait here that were taken already.
        self.pace.set_stuck(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.pace.set_stuck(shut.is_pending());
        shut
    }
}
