//! A small HTTP/1.1 client on one keep-alive connection: requests are bytes made beforehand, and
//! of an answer it reads the status, the length and what the next request needs. The generator
//! shares the machine with what it measures, so every microsecond here is taken from there.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One keep-alive connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer, borrowed from the connection.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    /// The status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: &'a [u8],
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(16 * 1024) })
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn call(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let mut head = None;
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if head.is_none() {
                head = self.buffer.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
            }
            let Some(head) = head else { continue };
            let length = content_length(&self.buffer[..head]).unwrap_or(0);
            if self.buffer.len() >= head + length {
                let status = std::str::from_utf8(&self.buffer[9..12]).ok().and_then(|t| t.parse().ok()).unwrap_or(0);
                return Ok(Answer { status, body: &self.buffer[head..head + length] });
            }
        }
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length: ";
    let at = head.windows(NAME.len()).position(|w| w.eq_ignore_ascii_case(NAME))? + NAME.len();
    let digits: Vec<u8> = head[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// The bytes of a request with a JSON body.
pub(crate) fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: load\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The text behind a member name, up to the next quote.
pub(crate) fn member<'a>(body: &'a [u8], name: &str) -> Option<&'a str> {
    let needle = format!("\"{name}\":\"");
    let at = body.windows(needle.len()).position(|w| w == needle.as_bytes())? + needle.len();
    let rest = &body[at..];
    let end = rest.iter().position(|b| *b == b'"')?;
    std::str::from_utf8(&rest[..end]).ok()
}
