//! Law 11: of fifty planted secrets, arguments and results, none is in what the service tells about itself.

use std::fmt::Write as _;

use actonce::service::proof::Signed;
use serde_json::{Value, json};

use super::{look_up, open, register};
use crate::support::adapter::{FakeAdapter, Reply, answers, secret};
use crate::support::api::{Answer, segment};
use crate::support::collector::Collector;
use crate::support::server::Server;
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(nothing_that_was_planted_is_told);

const TOOL: &str = super::TOOL;

/// Texts that stand nowhere else, handed out one by one.
struct Plants(Vec<String>);

impl Plants {
    fn next(&mut self, what: &str) -> String {
        let text = crate::support::unique(&format!("planted-{what}"));
        self.0.push(text.clone());
        text
    }

    fn value(&mut self, what: &str) -> Value {
        json!({ "text": self.next(what), "list": [self.next(what)], self.next(what): 1 })
    }
}

/// A place where something could be told, and its bytes.
struct Sink {
    name: &'static str,
    bytes: Vec<u8>,
    /// What has to stand there, or the scan of it shows nothing.
    witness: &'static str,
}

fn sink(name: &'static str, bytes: impl Into<Vec<u8>>, witness: &'static str) -> Sink {
    Sink { name, bytes: bytes.into(), witness }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn note(problems: &mut String, answer: &Answer) {
    if !answer.status.is_success() {
        writeln!(problems, "{} {:?}", answer.text, answer.headers).unwrap();
    }
}

/// Requests with planted content that are taken.
async fn taken(api: &Api, plants: &mut Plants, adapter: &FakeAdapter) {
    for number in 0..3 {
        let id = format!("taken-{number}");
        let body = bodies::with(bodies::claiming(&id, TOOL), &json!({ "arguments": plants.value("argument") }));
        let granted = api.intent(&body).await.expect(201);
        let mut unknown = bodies::unknown(&granted);
        unknown["failure_evidence"]["detail"] = json!(format!("password={}", plants.next("detail")));
        api.outcome(&id, &unknown).await.expect(200);
        let mut report = bodies::with(bodies::succeeded(&granted), &json!({ "result": plants.value("result") }));
        report["receipt"]["message"] = json!(plants.next("message"));
        report["receipt"]["structured"] = plants.value("structured");
        report["receipt"]["artifacts"] = json!([{ "text": plants.next("artifact") }]);
        api.outcome(&id, &report).await;
    }
    let rejected = bodies::with(answers::absent(), &json!({ "extra": plants.next("answer") }));
    adapter.set(Reply::Json(rejected));
    look_up(api, "asked", "").await;
    adapter.set(Reply::Text(plants.next("broken answer")));
    look_up(api, "asked again", "").await;
    adapter.set(Reply::Json(answers::other("multiple")));
    look_up(api, "in review", "").await;
}

/// Requests with planted content that are refused.
async fn refused(api: &Api, plants: &mut Plants) -> String {
    let mut problems = String::new();
    let known = bodies::with(bodies::intent("taken-0", TOOL), &json!({ "arguments": plants.value("other argument") }));
    note(&mut problems, &api.intent(&known).await);
    let wrong = bodies::with(bodies::intent("wrong", TOOL), &json!({ "target": { "x": plants.next("target") } }));
    note(&mut problems, &api.intent(&wrong).await);
    let broken = format!("{{\"arguments\": \"{}", plants.next("broken body"));
    note(&mut problems, &api.call("POST", "/api/intents").text(&broken).send().await);
    let nul = bodies::with(bodies::intent("nul", TOOL), &json!({ "target": format!("{}\0", plants.next("nul")) }));
    note(&mut problems, &api.intent(&nul).await);
    let token = plants.next("token");
    for scheme in ["Bearer", "bearer", "Basic"] {
        let call =
            api.with_token(None).call("GET", "/api/effects").header("authorization", &format!("{scheme} {token}"));
        note(&mut problems, &call.send().await);
    }
    let trace = plants.next("trace");
    let call = api.call("GET", "/api/effects/absent").header("traceparent", &trace).header("tracestate", &trace);
    note(&mut problems, &call.header("baggage", &trace).send().await);
    for header in ["idempotency-key", "prefer", "if-match"] {
        let call = api.call("POST", "/api/effects/taken-0/cancel").header(header, &plants.next("header"));
        note(&mut problems, &call.send().await);
    }
    let path = format!("/api/effects/{}?secret={}", segment(&plants.next("path")), plants.next("query"));
    note(&mut problems, &api.read(&path).await);
    let spec = json!({ "effect": "external", "adapter": { "url": "https://example.org/", "secret": plants.next("secret"),
        "lookup": true } });
    note(&mut problems, &api.put_tool("refused", &spec).await);
    problems
}

/// THE LIST of everything that tells. What comes to tell something (a feed, messages, a report) is one line
/// more here: its name, how it is read, and a word that has to stand in it.
async fn told(
    server: &Server,
    api: &Api,
    collector: &Collector,
    endpoint: &FakeAdapter,
    problems: String,
) -> Vec<Sink> {
    let timings = read(api, "timing ring", "/api/timing/recent", "/api/intents").await;
    collector.until(|span| span.name == "GET /api/timing/recent").await;
    // When they came, the feed has come as far.
    let messages = messages(endpoint).await;
    vec![
        sink("messages", messages, "effect.outcome_unknown"),
        read(api, "feed", "/api/events?limit=200", "effect.outcome_unknown").await,
        sink("log", server.log(), "request_id"),
        sink("spans", collector.bytes().concat(), "/api/intents"),
        sink("problems", problems, "/docs/errors/operation-reused"),
        sink("journal", journals(api).await, "effect.outcome_unknown"),
        sink("evidence", evidence(api).await, "effect.outcome_unknown"),
        timings,
        read(api, "metrics", "/metrics", "actonce_directives_total").await,
        read(api, "operator's queue", "/api/queue", "in review").await,
        read(api, "recovery", "/api/recovery/startup", "sweep_count").await,
        post(api, "recovery plan", "/api/recovery/plans", "tool_effect_outcome_unknown").await,
        read(api, "inspection", "/api/effects/asked/inspection", "expected_revision").await,
        read(api, "tool", "/api/tools/payments.refund", "adapter").await,
    ]
}

async fn read(api: &Api, name: &'static str, path: &str, witness: &'static str) -> Sink {
    sink(name, api.read(path).await.expect(200).text, witness)
}

async fn post(api: &Api, name: &'static str, path: &str, witness: &'static str) -> Sink {
    sink(name, api.post(path, &json!({})).await.expect(200).text, witness)
}

/// What a subscriber was sent, headers too, once it heard of the last effect.
async fn messages(endpoint: &FakeAdapter) -> Vec<u8> {
    for _ in 0..600 {
        let received = endpoint.received();
        if received.iter().any(|message| contains(&message.body, "in review")) {
            let all = received.iter().flat_map(|one| [format!("{:?}", one.headers).into_bytes(), one.body.clone()]);
            return all.collect::<Vec<_>>().concat();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{} messages came, and not the one that is waited for", endpoint.calls());
}

/// Effects that content was planted around.
const EFFECTS: [&str; 4] = ["taken-0", "asked", "asked again", "in review"];

async fn journals(api: &Api) -> String {
    let mut text = String::new();
    for id in EFFECTS {
        writeln!(text, "{}", json!(api.journal(id).await)).unwrap();
    }
    text
}

/// What is signed, as it reads once it is unpacked, and as it is sent.
async fn evidence(api: &Api) -> Vec<u8> {
    let mut bytes = Vec::new();
    for id in EFFECTS {
        let answer = api.read(&format!("/api/effects/{}/evidence", segment(id))).await.expect(200);
        let signed: Signed = serde_json::from_value(answer.json).unwrap();
        bytes.extend(answer.text.into_bytes());
        bytes.extend(signed.unchecked_payload().unwrap());
    }
    bytes
}

async fn nothing_that_was_planted_is_told(store: StoreUnderTest) {
    let mut plants = Plants(Vec::new());
    let collector = Collector::start().await;
    let adapter = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let options = collector.options(open()).env("ACTONCE_LOG", "trace").env("ACTONCE_LOG_FORMAT", "json");
    let server = store.server(options);
    let api = Api::of(&server, "t");
    register(&api, &adapter).await;
    let endpoint = FakeAdapter::always(Reply::status("200 OK")).await;
    let subscription = json!({ "url": endpoint.url(), "secret": secret(7) });
    api.post("/api/subscriptions", &subscription).await.expect(201);
    // The secrets that the calls of adapter and subscriber are signed with.
    for number in [1, 7] {
        plants.0.push(secret(number));
        plants.0.push(secret(number).trim_start_matches("whsec_").to_owned());
    }
    plants.0.push(api.token.clone().unwrap());
    taken(&api, &mut plants, &adapter).await;
    let problems = refused(&api, &mut plants).await;
    assert!(plants.0.len() >= 50, "{} are planted", plants.0.len());
    for sink in told(&server, &api, &collector, &endpoint, problems).await {
        assert!(contains(&sink.bytes, sink.witness), "the scan of {} shows nothing", sink.name);
        for plant in &plants.0 {
            assert!(!contains(&sink.bytes, plant), "{plant} is in the {}", sink.name);
        }
    }
}
