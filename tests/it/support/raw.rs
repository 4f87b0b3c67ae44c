//! Requests byte by byte, for what a well-behaved client never sends.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Sends bytes to the server at `url` and reads until it closes the connection.
pub(crate) async fn exchange(url: &str, request: &[u8]) -> String {
    let mut stream = connect(url).await;
    stream.write_all(request).await.unwrap();
    rest(&mut stream).await
}

/// A connection to the server at `url`.
pub(crate) async fn connect(url: &str) -> TcpStream {
    let address = url.strip_prefix("http://").expect("plain HTTP");
    TcpStream::connect(address).await.unwrap()
}

/// Everything until the server closes the connection.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("an answer in time").unwrap();
    String::from_utf8(answer).unwrap()
}
