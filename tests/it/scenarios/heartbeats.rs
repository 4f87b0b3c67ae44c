//! Thousands of leases at once, each kept alive by its owner.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::intact;
use crate::http::TOOL;
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores, raw};

both_stores!(two_thousand_leases_stay_alive_while_others_begin);

const LEASES: usize = 2_000;
const CONNECTIONS: usize = 64;
const LEASE: Duration = Duration::from_secs(5);
const BEAT: Duration = Duration::from_secs(2);
const FOR: Duration = Duration::from_secs(12);
/// On a machine that can't keep so many, no more are taken after this time.
const TAKE_FOR: Duration = Duration::from_secs(15);

/// A connection that is kept and costs the test next to nothing.
struct Line {
    stream: TcpStream,
    token: String,
}

impl Line {
    async fn to(api: &Api) -> Self {
        Self { stream: raw::connect(&api.url).await, token: api.token.clone().unwrap() }
    }

    async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let (body, token) = (body.to_string(), &self.token);
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let (head, length) = loop {
            assert!(self.stream.read_buf(&mut answer).await.unwrap() > 0, "the connection is kept");
            if let Some(at) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&answer[..at]).to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
                break (at + 4, length.expect("a length").parse::<usize>().unwrap());
            }
        };
        while answer.len() < head + length {
            self.stream.read_buf(&mut answer).await.unwrap();
        }
        let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
        (status, serde_json::from_slice(&answer[head..]).unwrap())
    }
}

/// A lease and when its owner last asked for more time.
struct Lease {
    path: String,
    beat: Value,
    asked: Instant,
}

/// What one connection came to.
#[derive(Default)]
struct Kept {
    taken: usize,
    alive: usize,
    beats: u32,
    starved: usize,
}

/// Takes leases and keeps them alive until told to end.
async fn keep(api: &Api, number: usize, there: &AtomicUsize, end: &AtomicBool) -> Kept {
    let started = Instant::now();
    let mut line = Line::to(api).await;
    let mut leases: Vec<Lease> = Vec::new();
    let mut kept = Kept::default();
    let mine = LEASES / CONNECTIONS + usize::from(number < LEASES % CONNECTIONS);
    let mut takes = true;
    while !end.load(Ordering::SeqCst) {
        if takes && (kept.taken == mine || started.elapsed() > TAKE_FOR) {
            takes = false;
            there.fetch_add(1, Ordering::SeqCst);
        }
        let oldest = (0..leases.len()).min_by_key(|n| leases[*n].asked);
        match oldest.map(|n| (n, leases[n].asked)) {
            Some((n, asked)) if asked.elapsed() >= BEAT => {
                let sent = Instant::now();
                let (status, answer) = line.post(&leases[n].path, &leases[n].beat).await;
                if status == 200 {
                    leases[n].asked = sent;
                    kept.beats += 1;
                } else {
                    // Where the machine kept the owner itself from asking in time, it is no false expiry.
                    let since = asked.elapsed();
                    assert!(since >= LEASE, "a lease was lost {since:?} after it was asked for: {status} {answer}");
                    leases.swap_remove(n);
                    kept.starved += 1;
                }
            }
            _ if takes => {
                let id = format!("op-{number}-{}", kept.taken);
                let body = bodies::set(bodies::claiming(&id, TOOL), "/claim/lease_seconds", json!(LEASE.as_secs()));
                let asked = Instant::now();
                let (status, answer) = line.post("/api/intents", &body).await;
                assert_eq!((status, &answer["directive"]), (201, &json!("dispatch")), "{answer}");
                let dispatch = &answer["dispatch"];
                let beat = json!({ "dispatch_id": dispatch["dispatch_id"], "fence": dispatch["fence"] });
                leases.push(Lease { path: format!("/api/effects/{id}/heartbeat"), beat, asked });
                kept.taken += 1;
            }
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    kept.alive = leases.len();
    kept
}

async fn two_thousand_leases_stay_alive_while_others_begin(store: StoreUnderTest) {
    // One at a time: each needs the whole machine.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = TURN.lock().await;
    let server = store.server(Options::default());
    let api = &Api::of(&server, "t");
    api.put_tool(TOOL, &json!({ "effect": "external" })).await.expect(201);
    let (there, end) = (&AtomicUsize::new(0), &AtomicBool::new(false));
    let owners = futures_util::future::join_all((0..CONNECTIONS).map(|number| keep(api, number, there, end)));
    let others = async {
        let mut line = Line::to(api).await;
        let (mut others, mut since) = (0_u64, None);
        while since.is_none_or(|since: Instant| since.elapsed() < FOR) {
            let body = bodies::intent(&format!("other-{others}"), TOOL);
            let (status, answer) = line.post("/api/intents", &body).await;
            assert_eq!(status, 201, "{answer}");
            others += 1;
            if since.is_none() && there.load(Ordering::SeqCst) == CONNECTIONS {
                since = Some(Instant::now());
            }
        }
        end.store(true, Ordering::SeqCst);
        others
    };
    let (kept, others) = tokio::join!(owners, others);
    let sum = |pick: fn(&Kept) -> usize| -> usize { kept.iter().map(pick).sum() };
    let (taken, alive, starved) = (sum(|kept| kept.taken), sum(|kept| kept.alive), sum(|kept| kept.starved));
    let beats: u32 = kept.iter().map(|kept| kept.beats).sum();
    eprintln!("{taken} leases, {alive} alive, {starved} starved by the machine, {beats} beats, {others} others");
    // At once, before the leases end that nobody renews any more.
    server.kill9();
    assert_eq!(alive + starved, taken);
    assert!(alive > 100, "this machine is too slow to say anything");
    assert!(usize::try_from(beats).unwrap() > 2 * alive, "the leases were renewed more than once");
    let report = intact(&server);
    let effects = u64::try_from(taken).unwrap() + others;
    assert_eq!(report["effects"], effects);
    let written = report["entries"].as_u64().unwrap();
    let expired = u64::try_from(starved).unwrap();
    assert_eq!(written, effects + expired, "a heartbeat writes no entry, and no live lease expires");
}
