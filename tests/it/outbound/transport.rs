//! The walls around outgoing calls: addresses, names that change, redirects, deadlines, sizes.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use actonce::config::{AdapterPolicy, Network};
use actonce::domain::adapter::NoAnswer;
use actonce::outbound::client::{Lookup, Outbound, OutboundRequest, OutboundResponse};
use async_trait::async_trait;
use http::Method;

use super::open_policy;
use crate::support::adapter::{FakeAdapter, Reply, answers};

fn request(url: &str) -> OutboundRequest {
    OutboundRequest {
        method: Method::POST,
        url: url.to_owned(),
        headers: Vec::new(),
        body: b"{}".to_vec(),
        timeout: Duration::from_secs(2),
        max_bytes: 1024,
    }
}

async fn send(policy: AdapterPolicy, url: &str) -> Result<OutboundResponse, NoAnswer> {
    Outbound::new(policy).unwrap().send(request(url)).await
}

/// Answers of a name server, one for each time that it is asked; the last one for ever.
#[derive(Debug, Default)]
struct Names {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    fn of(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self { answers: Mutex::new(answers.iter().map(parse).collect()), asked: Mutex::default() })
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[async_trait]
impl Lookup for Names {
    async fn lookup(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(host.to_owned());
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        next.ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

/// A name server that says nothing.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl Lookup for Silent {
    async fn lookup(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
        std::future::pending().await
    }
}

fn only(network: &str) -> AdapterPolicy {
    AdapterPolicy { allow_http: true, allow_networks: vec![Network::parse(network).unwrap()] }
}

#[tokio::test]
async fn a_name_that_changes_its_address_reaches_nothing_new() {
    // The application's adapter, and beside it something that must not be reached, on the same port.
    let adapter = FakeAdapter::at(SocketAddr::from(([127, 0, 0, 2], 0)), |_| Reply::Json(answers::absent())).await;
    let port = adapter.address.port();
    let inner = FakeAdapter::at(SocketAddr::from(([127, 0, 0, 1], port)), |_| Reply::Json(answers::absent())).await;
    let names = Names::of(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let outbound = Outbound::with_lookup(only("127.0.0.2/32"), Arc::<Names>::clone(&names)).unwrap();
    let url = format!("http://adapter.example:{port}/");
    assert_eq!(outbound.send(request(&url)).await.unwrap().status, 200);
    assert_eq!(names.asked(), 1, "the address that was checked is the one that was called");
    for _ in 0..3 {
        assert_eq!(outbound.send(request(&url)).await.unwrap_err(), NoAnswer::Forbidden);
    }
    assert_eq!((adapter.calls(), inner.calls(), names.asked()), (1, 0, 4));
}

#[tokio::test]
async fn one_forbidden_address_among_good_ones_spoils_the_name() {
    let adapter = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let url = format!("http://adapter.example:{}/", adapter.address.port());
    for list in [
        &["127.0.0.1", "10.0.0.1"][..],
        &["10.0.0.1", "127.0.0.1"],
        &["127.0.0.1", "::1"],
        &["::ffff:10.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["169.254.169.254"],
    ] {
        let outbound = Outbound::with_lookup(open_policy(), Names::of(&[list])).unwrap();
        assert_eq!(outbound.send(request(&url)).await.unwrap_err(), NoAnswer::Forbidden, "{list:?}");
    }
    let outbound = Outbound::with_lookup(open_policy(), Names::of(&[])).unwrap();
    assert_eq!(outbound.send(request(&url)).await.unwrap_err(), NoAnswer::Unreachable, "an unknown name");
    assert_eq!(adapter.calls(), 0);
}

#[tokio::test]
async fn this_machine_is_not_called_unless_it_is_allowed() {
    let adapter = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let port = adapter.address.port();
    let closed = AdapterPolicy { allow_http: true, allow_networks: Vec::new() };
    let forms = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0177.0.0.1",
        "0x7f.1",
        "127.0.0.1.",
        "0",
        "localhost",
        "LocalHost.",
        "a.localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "user@127.0.0.1",
        "@127.0.0.1",
        "①②⑦.0.0.1",
    ];
    for host in forms {
        let url = format!("http://{host}:{port}/");
        assert_eq!(send(closed.clone(), &url).await.unwrap_err(), NoAnswer::Forbidden, "{host}");
    }
    assert_eq!(adapter.calls(), 0);
    for host in ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "127.0.0.1."] {
        let answer = send(open_policy(), &format!("http://{host}:{port}/")).await;
        assert_eq!(answer.unwrap().status, 200, "{host}: the test would see a call");
    }
    let secure = AdapterPolicy { allow_http: false, ..open_policy() };
    assert_eq!(send(secure, &adapter.url()).await.unwrap_err(), NoAnswer::Forbidden, "plain HTTP");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let inner = FakeAdapter::always(Reply::Json(answers::absent())).await;
    for line in
        ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        for place in [inner.url(), "http://169.254.169.254/latest/meta-data/".to_owned(), "/elsewhere".to_owned()] {
            let adapter = FakeAdapter::always(Reply::status(&format!("{line}\r\nlocation: {place}"))).await;
            assert_eq!(send(open_policy(), &adapter.url()).await.unwrap_err(), NoAnswer::Forbidden, "{line} {place}");
            assert_eq!(adapter.calls(), 1);
        }
    }
    assert_eq!(inner.calls(), 0);
}

#[tokio::test]
async fn the_deadline_covers_everything() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let not_accepting = format!("http://{}/", silent.local_addr().unwrap());
    let hanging = FakeAdapter::always(Reply::Hang).await;
    let dripping = FakeAdapter::always(Reply::Drip(Duration::from_millis(20))).await;
    let late = FakeAdapter::always(Reply::Late(Duration::from_secs(20), answers::absent())).await;
    let urls = [not_accepting, hanging.url(), dripping.url(), late.url()];
    let short = |url: &str| OutboundRequest { timeout: Duration::from_millis(400), ..request(url) };
    for url in urls {
        let begun = Instant::now();
        let answer = Outbound::new(open_policy()).unwrap().send(short(&url)).await;
        assert_eq!(answer.unwrap_err(), NoAnswer::Timeout, "{url}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{url}: {:?}", begun.elapsed());
    }
    let outbound = Outbound::with_lookup(open_policy(), Arc::new(Silent)).unwrap();
    let begun = Instant::now();
    assert_eq!(outbound.send(short("http://adapter.example/")).await.unwrap_err(), NoAnswer::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(5));
    // A TLS handshake with somebody who never says a word.
    let secure = format!("https://127.0.0.1:{}/", hanging.address.port());
    let begun = Instant::now();
    let answer = Outbound::new(open_policy()).unwrap().send(short(&secure)).await;
    assert!(matches!(answer, Err(NoAnswer::Timeout | NoAnswer::Unreachable)), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_body_is_read_up_to_its_bound() {
    let length = |bytes: usize| Reply::Text("x".repeat(bytes));
    let adapter = FakeAdapter::always(length(1024)).await;
    let outbound = Outbound::new(open_policy()).unwrap();
    assert_eq!(outbound.send(request(&adapter.url())).await.unwrap().body.len(), 1024);
    adapter.set(length(1025));
    assert_eq!(outbound.send(request(&adapter.url())).await.unwrap_err(), NoAnswer::Contract("size"));
    // One that says nothing of its length and never ends.
    let mut endless = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
    endless.resize(4 * 1024 * 1024, b' ');
    adapter.set(Reply::Raw(endless));
    assert_eq!(outbound.send(request(&adapter.url())).await.unwrap_err(), NoAnswer::Contract("size"));
}

#[tokio::test]
async fn a_connection_that_breaks_is_no_answer() {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let outbound = Outbound::new(open_policy()).unwrap();
    let cut = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"outcome\"".to_vec();
    let chunk = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"out\r\n".to_vec();
    for reply in [Reply::Close, Reply::Raw(cut), Reply::Raw(chunk), Reply::Raw(b"nonsense\r\n\r\n".to_vec())] {
        adapter.set(reply.clone());
        let before = adapter.calls();
        assert_eq!(outbound.send(request(&adapter.url())).await.unwrap_err(), NoAnswer::Unreachable, "{reply:?}");
        assert_eq!(adapter.calls(), before + 1, "it is asked once: {reply:?}");
    }
    let gone = adapter.url();
    drop(adapter);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(outbound.send(request(&gone)).await.unwrap_err(), NoAnswer::Unreachable);
}

#[tokio::test]
async fn connections_are_not_kept() {
    // It would answer more than one request on a connection, if it were asked to.
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let outbound = Outbound::new(open_policy()).unwrap();
    for _ in 0..3 {
        let serve = async {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = [0; 4096];
            let _ = stream.read(&mut seen).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            // The client hangs up, although nobody asked it to.
            let ended = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut seen)).await;
            assert_eq!(ended.expect("the connection is not kept").unwrap_or(0), 0);
        };
        let (answer, ()) = tokio::join!(outbound.send(request(&url)), serve);
        assert_eq!(answer.unwrap().status, 200);
    }
}
