//! Slow, silent and many clients, on real sockets: each is let go within its bound, and nobody else notices.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http::{TOOL, external, granted};
use crate::support::{Api, Options, Server, StoreUnderTest, raw};

/// A second for a head, two for silence.
fn strict() -> Server {
    let options =
        Options::default().env("ACTONCE_HEADER_TIMEOUT_SECONDS", "1").env("ACTONCE_IDLE_TIMEOUT_SECONDS", "3");
    StoreUnderTest::Sqlite.server(options)
}

/// How long a connection lives while this is done to it every 100 ms.
async fn life(stream: &mut TcpStream, drip: &[u8]) -> Duration {
    let begun = Instant::now();
    let mut byte = [0; 1024];
    while begun.elapsed() < Duration::from_secs(20) {
        if !drip.is_empty() && stream.write_all(drip).await.is_err() {
            return begun.elapsed();
        }
        let read = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut byte)).await;
        if let Ok(Ok(0) | Err(_)) = read {
            return begun.elapsed();
        }
    }
    panic!("the connection never ends");
}

/// One answer of a connection that is kept.
async fn answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut chunk)).await.unwrap().unwrap();
        assert!(read > 0, "closed after {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&chunk[..read]);
        let so_far = String::from_utf8_lossy(&text).into_owned();
        let Some((head, body)) = so_far.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return so_far;
        }
    }
}

const LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_drips_or_never_comes_is_cut_off() {
    let server = strict();
    let one = Duration::from_millis(900)..Duration::from_secs(3);
    let mut silent = raw::connect(&server.url()).await;
    let lived = life(&mut silent, b"").await;
    assert!(one.contains(&lived), "silent: {lived:?}");
    let mut slow = raw::connect(&server.url()).await;
    slow.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n").await.unwrap();
    let lived = life(&mut slow, b"x-a: b\r\n").await;
    assert!(one.contains(&lived), "slow: {lived:?}");
    // The second request of a connection is no better.
    let mut second = raw::connect(&server.url()).await;
    second.write_all(LIVEZ).await.unwrap();
    assert!(answer(&mut second).await.starts_with("HTTP/1.1 200"));
    let lived = life(&mut second, b"G").await;
    assert!(one.contains(&lived), "second: {lived:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_connection_is_kept_for_the_idle_time_and_no_longer() {
    let server = strict();
    let mut stream = raw::connect(&server.url()).await;
    for _ in 0..2 {
        stream.write_all(LIVEZ).await.unwrap();
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
        // Longer than a head may take.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    stream.write_all(LIVEZ).await.unwrap();
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    let lived = life(&mut stream, b"").await;
    assert!((Duration::from_millis(2_800)..Duration::from_secs(6)).contains(&lived), "{lived:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_under_way_is_not_cut_off() {
    let server = strict();
    let api = Api::of(&server, "t");
    external(&api).await;
    granted(&api, "op").await;
    let begun = Instant::now();
    let waited = api.call("GET", "/api/effects/op").header("prefer", "wait=5").send().await.expect(200);
    waited.directive("wait");
    assert!(begun.elapsed() >= Duration::from_secs(5), "longer than silence may be: {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_let_go() {
    let server = strict();
    let mut stream = raw::connect(&server.url()).await;
    // More than the buffers on the way take.
    let wanted = 60;
    stream.write_all(&b"GET /api/openapi.json HTTP/1.1\r\nhost: a\r\n\r\n".repeat(wanted)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(7)).await;
    let mut all = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await;
    drop(reading.expect("the end comes"));
    let whole = all.windows(15).filter(|window| window == b"HTTP/1.1 200 OK").count();
    assert!((1..wanted).contains(&whole), "{whole} of {wanted} answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_are_bounded_in_number_and_size() {
    let url = StoreUnderTest::Sqlite.shared().url();
    let request = |headers: usize, bytes: usize| {
        let headers: Vec<String> =
            (0..headers).map(|number| format!("x-{number}: {}\r\n", "a".repeat(bytes))).collect();
        let headers = headers.concat();
        format!("GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n")
    };
    for (headers, bytes, status) in [(98, 1, 200), (99, 1, 431), (1, 50_000, 200), (1, 70_000, 431), (10, 10_000, 431)]
    {
        let mut stream = raw::connect(&url).await;
        // It may be answered before it was sent.
        drop(stream.write_all(request(headers, bytes).as_bytes()).await);
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"), "{headers} of {bytes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_bound_are_answered_and_those_beyond_these_closed() {
    let most = 5;
    let options = Options::default().env("ACTONCE_MAX_CONNECTIONS", &most.to_string());
    let server = StoreUnderTest::Sqlite.server(options);
    let mut held = Vec::new();
    for _ in 0..most {
        let mut stream = raw::connect(&server.url()).await;
        stream.write_all(LIVEZ).await.unwrap();
        answer(&mut stream).await;
        held.push(stream);
    }
    let refused = raw::exchange(&server.url(), b"GET /api/effects HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("/docs/errors/capacity"), "{refused}");
    assert!(refused.contains("retry-after: 1") && refused.contains("connection: close"), "{refused}");
    for path in ["/livez", "/readyz", "/metrics"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let health = raw::exchange(&server.url(), request.as_bytes()).await;
        assert!(health.starts_with("HTTP/1.1 200"), "{path}: {health}");
    }
    // A crowd: memory is held for a bounded part of it.
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(raw::connect(&server.url()).await);
    }
    let mut closed = 0;
    for stream in &mut crowd {
        let mut byte = [0; 1];
        let read = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut byte)).await;
        closed += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert!(closed >= 200 - actonce::limits::SPARE_CONNECTIONS, "{closed} of 200 were closed");
    drop((crowd, held));
    let begun = Instant::now();
    let api = Api::of(&server, "t");
    while api.list("limit=1").await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "places are never given back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whether_the_process_runs_is_told_when_all_places_are_taken() {
    let server = StoreUnderTest::Sqlite.server(Options::default().env("ACTONCE_MAX_IN_FLIGHT", "1"));
    let api = Api::of(&server, "t");
    external(&api).await;
    granted(&api, "op").await;
    let waiting = api.clone();
    let waits = async move { waiting.call("GET", "/api/effects/op").header("prefer", "wait=3").send().await };
    let (waited, ()) = tokio::join!(waits, async {
        let begun = Instant::now();
        while api.list("limit=1").await.status == 200 {
            assert!(begun.elapsed() < Duration::from_secs(2), "the place is never taken");
        }
        for _ in 0..20 {
            api.with_token(None).read("/livez").await.expect(200);
        }
        api.list("limit=1").await.problem(503, "capacity");
    });
    waited.expect(200).directive("wait");
    api.list("limit=1").await.expect(200);
}

/// Frames between requests are no head of one, and a client that only says hello is let go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_for_http_2() {
    let server = strict();
    let client = reqwest::Client::builder().http2_prior_knowledge().no_proxy().build().unwrap();
    for _ in 0..2 {
        let response = client.get(format!("{}/livez", server.url())).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, reqwest::Version::HTTP_2));
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    let mut stream = raw::connect(&server.url()).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // PING frames go on and on.
    let lived = life(&mut stream, b"\0\0\x08\x06\0\0\0\0\0abcdefgh").await;
    assert!((Duration::from_millis(900)..Duration::from_secs(3)).contains(&lived), "{lived:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_drips_is_timed_out() {
    let api = StoreUnderTest::Sqlite.tenant();
    let mut stream = raw::connect(&api.url).await;
    let head = format!(
        "POST /api/intents HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 100000\r\nconnection: close\r\n\r\n",
        api.token.as_deref().unwrap()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reads, mut writes) = stream.split();
    let dripping = async {
        while writes.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let mut answer = vec![0; 12];
    let begun = Instant::now();
    tokio::select! {
        read = reads.read_exact(&mut answer) => drop(read.unwrap()),
        () = dripping => panic!("closed without an answer"),
    }
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 408");
    assert!(begun.elapsed() < Duration::from_secs(14), "{:?}", begun.elapsed());
    assert_eq!(api.list("limit=1").await.json["items"], json!([]), "nothing of {TOOL} was stored");
}
