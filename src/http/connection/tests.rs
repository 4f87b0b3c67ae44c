//! What a connection gives back when it is at rest, and what it must not.

use std::sync::atomic::AtomicUsize;

use axum::routing::get;
use futures_util::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::Notify;

use super::*;

const ASK: &[u8] = b"GET /now HTTP/1.1\r\nhost: a\r\n\r\n";
const LARGE: usize = 256 * 1024;

struct Sides {
    buffered: Arc<AtomicUsize>,
    line: Line<DuplexStream>,
    client: DuplexStream,
    pace: Arc<Pace>,
    /// Lets `/later` answer, and `/stream` end.
    go: Arc<Notify>,
}

/// What is awaited, if it comes.
async fn soon<T>(awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), awaited).await.expect("it does not come")
}

/// A connection and its client; so many bytes fit between them.
fn sides(room: usize) -> Sides {
    let go = Arc::new(Notify::new());
    let (later, flow) = (Arc::clone(&go), Arc::clone(&go));
    let router = Router::new()
        .route("/now", get(async || "here"))
        .route("/large", get(async || "x".repeat(LARGE)))
        .route("/later", get(async move || later.notified().await))
        .route(
            "/stream",
            get(async move || {
                let first = stream::once(async { Ok::<_, Infallible>("first") });
                let last = stream::once(async move {
                    flow.notified().await;
                    Ok("last")
                });
                Body::from_stream(futures_util::StreamExt::chain(first, last))
            }),
        );
    let buffered = Arc::default();
    let pace = Arc::new(Pace::new(Duration::from_secs(10), Duration::from_mins(1), Arc::clone(&buffered)));
    let (client, stream) = tokio::io::duplex(room);
    let line = Line::new(stream, Paced { router, pace: Arc::clone(&pace), spare: false });
    Sides { buffered, line, client, pace, go }
}

impl Sides {
    async fn poll(&mut self) {
        // Some rounds: what one side did is seen by the other in the next.
        for _ in 0..4 {
            // The streams count what a task does without a pause.
            tokio::task::yield_now().await;
            let mut context = Context::from_waker(Waker::noop());
            assert!(self.line.poll(&mut context).is_pending(), "the connection has ended");
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).await.unwrap();
        self.poll().await;
    }

    /// What is here to be read.
    fn read(&mut self) -> String {
        let mut bytes = vec![0; 2 * LARGE];
        let read = self.client.read(&mut bytes).now_or_never();
        bytes.truncate(read.map_or(0, Result::unwrap));
        String::from_utf8(bytes).unwrap()
    }

    fn due(&self) -> Option<Due> {
        self.pace.until().map(|(_, due)| due)
    }

    fn rests(&self) -> bool {
        matches!(self.line.state, State::Resting(_))
    }
}

#[tokio::test]
async fn who_was_answered_rests_and_may_ask_again_in_pieces() {
    let mut sides = sides(LARGE);
    assert!(sides.rests(), "before the first byte");
    for _ in 0..3 {
        for piece in ASK.chunks(5) {
            assert_ne!(sides.due(), Some(Due::Rest));
            sides.send(piece).await;
        }
        assert!(!sides.rests());
        assert!(sides.read().ends_with("\r\n\r\nhere"));
        assert_eq!(sides.due(), Some(Due::Rest));
        sides.line.rest();
        sides.poll().await;
        assert!(sides.rests());
        assert_eq!(sides.due(), Some(Due::Farewell), "the idle timeout");
    }
    drop(sides.client);
    let mut context = Context::from_waker(Waker::noop());
    assert!(sides.line.poll(&mut context).is_ready(), "who rests sees the other side's end");
}

#[tokio::test]
async fn a_body_that_flows_and_one_that_nobody_reads_keep_their_connection() {
    let mut sides = sides(1000);
    sides.send(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(sides.read().contains("first"));
    assert_eq!(sides.due(), Some(Due::Farewell), "its head is answered, its body goes on");
    sides.go.notify_one();
    sides.poll().await;
    assert!(sides.read().contains("last"));
    assert_eq!(sides.due(), Some(Due::Rest));

    sides.send(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut read = 0;
    // What is left then is on its way.
    while read + 2000 < LARGE {
        assert_eq!(sides.due(), Some(Due::Farewell), "{read} bytes of it are read");
        read += sides.read().len();
        sides.poll().await;
    }
    for _ in 0..4 {
        read += sides.read().len();
        sides.poll().await;
    }
    assert!(read > LARGE, "all of it");
    assert_eq!(sides.due(), Some(Due::Rest));
}

#[tokio::test]
async fn a_request_that_began_behind_another_is_answered_after_a_rest() {
    let mut sides = sides(LARGE);
    let (begin, end) = ASK.split_at(9);
    sides.send(b"GET /later HTTP/1.1\r\nhost: a\r\n\r\n").await;
    sides.send(begin).await;
    assert_eq!(sides.due(), None, "a request is under way");
    sides.go.notify_one();
    sides.poll().await;
    assert!(sides.read().starts_with("HTTP/1.1 200"));
    sides.line.rest();
    assert_eq!(sides.due(), Some(Due::End), "its head is arriving");
    sides.poll().await;
    sides.send(end).await;
    assert!(sides.read().ends_with("\r\n\r\nhere"));
}

#[tokio::test]
async fn frames_keep_their_connection() {
    let mut sides = sides(LARGE);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for piece in preface.chunks(7) {
        assert!(sides.rests(), "it may still be one or the other");
        sides.send(piece).await;
    }
    // Empty settings.
    sides.send(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    assert!(matches!(sides.line.state, State::Http2(_)));
    assert_ne!(sides.due(), Some(Due::Rest));
    sides.line.rest();
    assert!(matches!(sides.line.state, State::Http2(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn in_a_crowd_a_connection_rests_as_soon_as_it_has_answered() {
    let Sides { buffered, line, mut client, pace, go } = sides(1000);
    let State::Resting(stream) = line.state else { panic!("it rests") };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection(stream, line.service, (CancellationToken::new(), CancellationToken::new())));
    let count = || buffered.load(Ordering::Relaxed);
    let mut answer = vec![0; 2 * LARGE];
    let most = limits::CONNECTIONS_BUFFERED;
    for (others, own, due) in [(most, 0, Due::Farewell), (most - 1, 0, Due::Rest), (most, 1, Due::Farewell)] {
        buffered.store(others + own, Ordering::Relaxed);
        client.write_all(ASK).await.unwrap();
        assert!(soon(client.read(&mut answer)).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(pace.until().unwrap().1, due, "beside {others} others");
    }
    // Nothing of what is still to be written is lost for it, nor what came behind a request.
    buffered.store(most, Ordering::Relaxed);
    for _ in 0..3 {
        client
            .write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\nGET /later HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let mut read = 0;
        while read <= LARGE {
            read += soon(client.read(&mut answer)).await.unwrap();
        }
        go.notify_one();
        read = soon(client.read(&mut answer)).await.unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(count(), most, "it is none of them");
    drop(client);
    soon(tasks.join_next()).await.unwrap().unwrap();
    assert_eq!(count(), most);
}

#[tokio::test]
async fn who_goes_is_no_longer_counted_and_frames_never_are() {
    let mut one = sides(LARGE);
    one.send(ASK).await;
    assert_eq!(one.buffered.load(Ordering::Relaxed), 1);
    let buffered = Arc::clone(&one.buffered);
    drop(one);
    assert_eq!(buffered.load(Ordering::Relaxed), 0);
    let mut framed = sides(LARGE);
    framed.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(matches!(framed.line.state, State::Http2(_)));
    assert_eq!(framed.buffered.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_rests_by_itself_and_ends_when_it_is_told() {
    for told in ["stop", "cut", "stop under way", "cut under way"] {
        let Sides { line, mut client, pace, go, .. } = sides(LARGE);
        let (stopping, cut) = (CancellationToken::new(), CancellationToken::new());
        let State::Resting(stream) = line.state else { panic!("it rests") };
        let ends = (stopping.clone(), cut.clone());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(connection(stream, line.service, ends));
        let mut answer = [0; 1000];
        for _ in 0..2 {
            client.write_all(ASK).await.unwrap();
            assert!(client.read(&mut answer).await.unwrap() > 0);
            assert_eq!(pace.until().unwrap().1, Due::Rest);
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert_eq!(pace.until().unwrap().1, Due::Farewell, "it has rested by now");
        }
        assert!(tasks.try_join_next().is_none());
        let is_under_way = told.ends_with("way");
        if is_under_way {
            client.write_all(b"GET /later HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(pace.until(), None);
        }
        if told.starts_with("stop") {
            stopping.cancel();
        } else {
            cut.cancel();
        }
        if told == "stop under way" {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(tasks.try_join_next().is_none(), "what is under way is answered first");
            go.notify_one();
            let read = client.read(&mut answer).await.unwrap();
            assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
        }
        let ended = tokio::time::timeout(Duration::from_secs(1), tasks.join_next()).await;
        ended.unwrap_or_else(|_| panic!("{told}: it goes on")).unwrap().unwrap();
    }
}
