//! Streams: live, resumed without loss, ended with the service.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{all, complete, names};
use crate::http::{external, granted};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores, raw};

both_stores!(a_stream_tells_what_happens, a_stream_that_broke_goes_on_without_loss, a_stop_ends_a_stream);

/// A stream as a browser reads it.
struct Stream {
    socket: TcpStream,
    text: String,
    read: usize,
}

impl Stream {
    async fn open(api: &Api, query: &str, last: Option<&str>) -> Self {
        let mut socket = raw::connect(&api.url).await;
        let token = api.token.as_deref().unwrap();
        let last = last.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        let request = format!(
            "GET /api/events{query} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nauthorization: Bearer {token}\r\n{last}\r\n"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut stream = Self { socket, text: String::new(), read: 0 };
        stream.until("retry: 1000\n\n").await;
        assert!(
            stream.text.starts_with("HTTP/1.1 200") && stream.text.contains("text/event-stream"),
            "{}",
            stream.text
        );
        stream
    }

    async fn more(&mut self) -> bool {
        let mut bytes = [0; 16384];
        let reading = self.socket.read(&mut bytes);
        let length = tokio::time::timeout(Duration::from_secs(20), reading).await.expect("a piece in time").unwrap();
        self.text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        length > 0
    }

    async fn until(&mut self, end: &str) {
        while !self.text.contains(end) {
            assert!(self.more().await, "it ended: {}", self.text);
        }
    }

    /// The next event: its id for a reconnection, and its document.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((id, rest)) = self.text[self.read..].split_once("\nevent: ")
                && let Some((event, _)) = rest.split_once("\n\n")
            {
                let id = id.rsplit("id: ").next().unwrap().to_owned();
                let (name, data) = event.split_once("\ndata: ").unwrap();
                // Chunked transfer may put its line ends between pieces, never into an event.
                let data: Value = serde_json::from_str(data).unwrap();
                assert_eq!(data["type"], name);
                self.read = self.text.len() - rest.split_once("\n\n").unwrap().1.len();
                return (id, data);
            }
            assert!(self.more().await, "it ended: {}", self.text);
        }
    }
}

async fn settle(api: &Api, operation: &str) {
    let granted = granted(api, operation).await;
    api.outcome(operation, &bodies::succeeded(&granted)).await.expect(200);
}

async fn a_stream_tells_what_happens(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    settle(&api, "before").await;
    let before = complete(&api, &["before"]).await;
    let mut whole = Stream::open(&api, "", None).await;
    let mut live = Stream::open(&api, "?after=latest", None).await;
    let mut filtered = Stream::open(&api, "?events=effect.completed&after=latest", None).await;
    for event in &before {
        assert_eq!(whole.next().await.1, *event);
    }
    settle(&api, "then").await;
    let after = complete(&api, &["before", "then"]).await.split_off(before.len());
    for event in &after {
        assert_eq!(whole.next().await.1, *event);
        assert_eq!(live.next().await.1, *event);
    }
    assert_eq!(names(&[filtered.next().await.1]), ["effect.completed"]);
}

async fn a_stream_that_broke_goes_on_without_loss(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let writer = async {
        for number in 0..12 {
            settle(&api, &format!("op-{number}")).await;
        }
    };
    let reader = async {
        let (mut seen, mut last) = (Vec::new(), None::<String>);
        let mut stream = Stream::open(&api, "", None).await;
        while seen.iter().filter(|event: &&Value| event["type"] == "effect.completed").count() < 12 {
            let (id, event) = stream.next().await;
            seen.push(event);
            // Every few events the connection breaks.
            if seen.len() % 5 == 0 {
                last = Some(id);
                stream = Stream::open(&api, "", last.as_deref()).await;
            }
        }
        assert!(last.is_some());
        seen
    };
    let ((), seen) = tokio::join!(writer, reader);
    let all = all(&api, 200).await;
    assert_eq!(seen, all);
}

async fn a_stop_ends_a_stream(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    let mut stream = Stream::open(&api, "", None).await;
    let stop = crate::support::blocking(move || {
        assert!(server.stop().success());
    });
    let end = async { while stream.more().await {} };
    tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(stop, end) }).await.expect("it ends in time");
}
