//! Streams: live, resumed without loss, ended with the service.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{all, complete, execute, names};
use crate::http::{external, granted};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores, raw};

both_stores!(
    a_stream_tells_what_happens,
    a_stream_that_broke_goes_on_without_loss,
    a_stop_ends_a_stream,
    who_does_not_read_is_cut,
);

/// Asks for a stream.
pub(super) async fn request(socket: &mut TcpStream, api: &Api, query: &str, last: Option<&str>) {
    let token = api.token.as_deref().unwrap();
    let last = last.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
    let request = format!(
        "GET /api/events{query} HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept: text/event-stream\r\nauthorization: Bearer {token}\r\n{last}\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
}

/// A stream as a browser reads it.
struct Stream {
    socket: TcpStream,
    text: String,
    read: usize,
}

impl Stream {
    async fn open(api: &Api, query: &str, last: Option<&str>) -> Self {
        let mut socket = raw::connect(&api.url).await;
        request(&mut socket, api, query, last).await;
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
        let mut bytes = vec![0; 16384];
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

    async fn until_end_of_line(&mut self) {
        while !self.text.ends_with("\n\n") && !self.text.ends_with("\n\n\r\n") {
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

async fn who_does_not_read_is_cut(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    granted(&api, "op").await;
    // More than the buffers of two sockets hold.
    let columns = "state, created_us, intent, life, entry, prev_hash, hash";
    let copies = if server.database_url().is_some() {
        format!(
            "SELECT tenant, gen_random_uuid(), 1, {columns} FROM entries, generate_series(1, 20000) WHERE revision = 1"
        )
    } else {
        format!(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
             SELECT tenant, randomblob(16), 1, {columns} FROM entries, n WHERE revision = 1"
        )
    };
    execute(&server, &format!("INSERT INTO entries (tenant, effect, revision, {columns}) {copies}")).await;
    let mut socket = raw::connect(&api.url).await;
    request(&mut socket, &api, "", None).await;
    let gauge = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()).map(|value| value.parse::<f64>().unwrap())
    };
    let mut heard = None;
    for _ in 0..400 {
        let metrics = api.read("/metrics").await.expect(200).text;
        heard = heard.or(gauge(&metrics, "actonce_event_listeners").filter(|listeners| *listeners > 0.0));
        if gauge(&metrics, "actonce_event_streams_ended_total{reason=\"slow\"}") == Some(1.0) {
            assert_eq!((heard, gauge(&metrics, "actonce_event_listeners")), (Some(1.0), Some(0.0)));
            // What the sockets held is still there, then it ends; and nothing is lost to who comes back.
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await.unwrap();
            let events = String::from_utf8_lossy(&rest).matches("\nevent: ").count();
            assert!(events > 0 && events < 60_000, "{events}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it was never cut");
}

/// 16 seconds without an event: the stream says that it is there, and where a client goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_stream_says_that_it_is_there() {
    let api = StoreUnderTest::Sqlite.tenant();
    external(&api).await;
    settle(&api, "op").await;
    // What it passes by is silence, too.
    let mut stream = Stream::open(&api, "?after=latest&events=effect.refused", None).await;
    let noise = api.clone();
    let noise = tokio::task::JoinSet::from_iter([async move {
        for number in 0..200 {
            settle(&noise, &format!("noise-{number}")).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }]);
    stream.until(": heartbeat\nid: ").await;
    stream.until_end_of_line().await;
    drop(noise);
    let cursor = stream.text.rsplit("id: ").next().unwrap().lines().next().unwrap().to_owned();
    let seen = all(&api, 200).await.len();
    let mut again = Stream::open(&api, "", Some(&cursor)).await;
    settle(&api, "next").await;
    let mut passed = 0;
    while again.next().await.1["data"]["operation_id"] != "next" {
        passed += 1;
    }
    assert!(seen > 40 && passed < 20, "{passed} of {seen}");
}

/// Who would be one too many is refused at once, and has room when another one leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_of_a_tenant_are_bounded() {
    let server = StoreUnderTest::Sqlite.server(Options::default());
    let (api, other) = (Api::of(&server, "t"), Api::of(&server, "other"));
    let mut streams = Vec::new();
    for _ in 0..actonce::limits::EVENT_LISTENERS_PER_TENANT / 50 {
        streams.extend(futures_util::future::join_all((0..50).map(|_| Stream::open(&api, "", None))).await);
    }
    let listen = |api: &Api| api.call("GET", "/api/events").header("accept", "text/event-stream");
    listen(&api).send().await.problem(503, "capacity");
    api.call("GET", "/api/events").header("prefer", "wait=5").send().await.problem(503, "capacity");
    api.read("/api/events").await.expect(200);
    Stream::open(&other, "", None).await;
    drop(streams.pop());
    for _ in 0..100 {
        let answer = api.call("GET", "/api/events?after=latest").header("prefer", "wait=1").send().await;
        if answer.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nobody is let in");
}
