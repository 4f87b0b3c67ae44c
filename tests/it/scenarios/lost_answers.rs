//! Every first answer of a change gets lost after the service has given it.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::entries;
use crate::http::TOOL;
use crate::support::api::segment;
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(a_change_whose_answer_was_lost_is_answered_the_same_again);

/// Between client and service. What asks for a change is passed on, and its answer is dropped the
/// first time that these bytes come by.
struct Lossy {
    url: String,
    state: Arc<Lost>,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Lost {
    seen: Mutex<HashSet<Vec<u8>>>,
    latest: Mutex<Option<Vec<u8>>>,
}

impl Lossy {
    #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
    async fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let upstream = server.url().strip_prefix("http://").unwrap().to_owned();
        let state = Arc::new(Lost::default());
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                pass(stream, &upstream, &shared).await.unwrap();
            }
        });
        Self { url, state, serving }
    }

    /// The status and the body of the answer that was dropped last.
    fn lost(&self) -> (u16, Value) {
        let answer = self.state.latest.lock().unwrap().take().expect("an answer was dropped");
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One request, one connection.
async fn pass(mut client: TcpStream, upstream: &str, lost: &Lost) -> std::io::Result<()> {
    let mut request = Vec::new();
    let head = loop {
        if let Some(at) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if client.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let whole = head + length.parse::<usize>().unwrap();
    while request.len() < whole {
        client.read_buf(&mut request).await?;
    }
    let line = request.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut server = TcpStream::connect(upstream).await?;
    server.write_all(&request[..line]).await?;
    server.write_all(b"connection: close\r\n").await?;
    server.write_all(&request[line..]).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    if !request.starts_with(b"GET ") && lost.seen.lock().unwrap().insert(request) {
        *lost.latest.lock().unwrap() = Some(answer);
        return Ok(());
    }
    client.write_all(&answer).await?;
    client.shutdown().await
}

/// What may differ between an answer and its repeat: how long to wait from now, whether it is a repeat.
fn lasting(mut body: Value) -> Value {
    if let Some(members) = body.as_object_mut() {
        members.remove("retry_after_seconds");
        members.remove("replayed");
    }
    body
}

struct Client<'a> {
    api: &'a Api,
    proxy: &'a Lossy,
    server: &'a Server,
    repeated: BTreeMap<String, u32>,
}

impl Client<'_> {
    /// Sends it in vain, then again; the answers must be the same.
    async fn change(&mut self, method: &str, path: &str, revision: Option<u64>, body: Option<&Value>) -> Answer {
        let call = || {
            let call = self.api.call(method, path);
            let call = match revision {
                Some(revision) => call.header("if-match", &format!("\"{revision}\"")),
                None => call,
            };
            match body {
                Some(body) => call.json(body),
                None => call,
            }
        };
        let refused = call().try_send().await;
        assert!(refused.is_err(), "the first answer is dropped");
        let (status, first) = self.proxy.lost();
        let written = entries(self.server);
        let again = call().send().await;
        assert!(again.status.is_success(), "{again}; the first answer was {status} {first}");
        let created = status == 201 && again.status == 200;
        assert!(created || again.status == status, "{again}; the first answer was {status} {first}");
        let (mut first, mut second) = (lasting(first), lasting(again.json.clone()));
        if path.ends_with("/heartbeat") {
            let (early, late) = (first["lease_expires_at"].take(), second["lease_expires_at"].take());
            assert!(early.as_str().unwrap() <= late.as_str().unwrap(), "a lease never gets shorter");
        }
        assert_eq!(second, first, "{method} {path}");
        assert_eq!(entries(self.server), written, "{method} {path} wrote again");
        *self.repeated.entry(path.rsplit('/').next().unwrap().to_owned()).or_default() += 1;
        again
    }

    async fn intent(&mut self, body: &Value) -> Answer {
        self.change("POST", "/api/intents", None, Some(body)).await
    }

    async fn act(&mut self, id: &str, verb: &str, revision: Option<u64>, body: Option<&Value>) -> Answer {
        self.change("POST", &format!("/api/effects/{}/{verb}", segment(id)), revision, body).await
    }
}

async fn a_change_whose_answer_was_lost_is_answered_the_same_again(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let proxy = Lossy::before(&server).await;
    let api = Api::new(&proxy.url, "t", Some(server.token("t", "tester", "all")));
    let mut client = Client { api: &api, proxy: &proxy, server: &server, repeated: BTreeMap::new() };
    let plain = json!({ "effect": "external" });
    client.change("PUT", "/api/tools/payments.refund", None, Some(&plain)).await;
    client.change("POST", "/api/tools/payments.refund/pause", None, None).await;
    client.change("POST", "/api/tools/payments.refund/resume", None, None).await;
    let longer = json!({ "effect": "external", "lease_seconds": 90 });
    client.change("PUT", "/api/tools/payments.refund", None, Some(&longer)).await;
    assert_eq!(api.tool(TOOL).await.revision(), 2, "each registration counts once");
    let asks = json!({ "effect": "external", "authorization": { "mode": "approval", "four_eyes": false } });
    client.change("PUT", "/api/tools/approved", None, Some(&asks)).await;

    // Every way from a claim to an outcome.
    let reports = [bodies::succeeded, bodies::receipted, bodies::failed, bodies::unknown, bodies::not_sent];
    for (n, report) in reports.into_iter().enumerate() {
        let id = format!("op-{n}");
        let granted = client.intent(&bodies::claiming(&id, TOOL)).await.directive("dispatch");
        client.act(&id, "heartbeat", None, Some(&bodies::heartbeat(&granted))).await;
        let with_result = bodies::with(report(&granted), &json!({ "result": { "n": n } }));
        let body = if n < 2 { with_result } else { report(&granted) };
        client.act(&id, "outcome", None, Some(&body)).await;
    }
    client.act("op-1", "verification", None, Some(&bodies::verification())).await.state("completed");
    let again = client.act("op-4", "dispatch", None, Some(&bodies::claim())).await.directive("dispatch");
    assert_eq!(again.at("/dispatch/fence"), 2);
    client.act("op-4", "outcome", None, Some(&bodies::succeeded(&again))).await.state("completed");

    // Claims and cancellations that name the revision they saw, and those that do not.
    client.intent(&bodies::intent("later", TOOL)).await.directive("claim");
    client.act("later", "dispatch", Some(1), Some(&bodies::claim())).await.directive("dispatch");
    client.act("later", "cancel", Some(2), None).await.state("outcome_unknown");
    client.intent(&bodies::intent("never", TOOL)).await;
    client.act("never", "cancel", None, None).await.state("failed");
    client.intent(&bodies::claiming("doubt", TOOL)).await;
    client.act("doubt", "cancel", None, None).await.state("outcome_unknown");

    for (id, word, state) in [("yes", "approve", "intent_recorded"), ("no", "deny", "refused")] {
        let proposed = client.intent(&bodies::intent(id, "approved")).await.directive("authorize");
        let decision = bodies::decision(&proposed, word);
        client.act(id, "authorization", Some(proposed.revision()), Some(&decision)).await.state(state);
    }
    client.act("yes", "dispatch", None, Some(&bodies::claim())).await.directive("dispatch");
    let routes: Vec<&str> = client.repeated.keys().map(String::as_str).collect();
    let expected =
        "approved authorization cancel dispatch heartbeat intents outcome pause payments.refund resume verification";
    assert_eq!(routes.join(" "), expected);
}
