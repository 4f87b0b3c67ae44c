//! The recipes that are shipped: each is registered as it stands, asked over real HTTP, and dry-run over
//! the API, with answers in the forms that such systems document.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actonce::config::Secret;
use actonce::domain::adapter::{AdapterAnswer, NoAnswer, Question};
use actonce::domain::canonical::{ALGORITHM, Sha256Digest};
use actonce::domain::ids::{EffectKey, Name, Tenant};
use actonce::domain::receipt::{CheckedReceipt, Receipt};
use actonce::domain::record::{Intent, Life, Record};
use actonce::domain::time::Timestamp;
use actonce::domain::tool::{Tool, ToolSpec};
use actonce::outbound::declarative::{Fetch, FetchRequest, FetchResponse, Secrets, ask};
use actonce::service::places::Places;
use actonce::service::ports::AdapterCall;
use async_trait::async_trait;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, Response};
use serde_json::{Value, json};

use crate::support::{StoreUnderTest, both_stores};

both_stores!(recipes_are_registered_and_dry_run_as_they_stand);

const RECIPES: [&str; 3] = ["payments-refund", "code-host-comment", "object-store-put"];
const ASKED_AT: &str = "2026-01-01T12:00:00.000000Z";

fn json_file(directory: &str, name: &str) -> Value {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).join(format!("{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cases of a recipe, their bodies as they are sent.
fn cases(fixtures: &Value) -> Vec<Value> {
    let mut cases = fixtures["cases"].as_array().unwrap().clone();
    for case in &mut cases {
        if let Some(times) = case["repeat_body"].as_u64() {
            let item = case["answer"]["body"][0].clone();
            case["answer"]["body"] = (0..times).map(|_| item.clone()).collect();
        }
    }
    cases
}

#[test]
fn every_recipe_that_is_shipped_is_tested_and_has_no_faults() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/recipes");
    let mut shipped: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    shipped.sort();
    let mut tested = RECIPES.map(str::to_owned);
    tested.sort();
    assert_eq!(shipped, tested);
    for name in RECIPES {
        let spec: ToolSpec = serde_json::from_value(json_file("examples/recipes", name)).unwrap();
        assert_eq!(spec.faults(), [], "{name}");
    }
}

/// A downstream that answers each request with the same answer and keeps what it was asked.
struct Downstream {
    origin: String,
    asked: Arc<Mutex<Vec<Request<()>>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Downstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
async fn downstream(answer: Value, delay: Duration) -> Downstream {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<Request<()>>>> = Arc::default();
    let kept = Arc::clone(&asked);
    let router = axum::Router::new().fallback(move |request: Request<Body>| {
        let (parts, _) = request.into_parts();
        kept.lock().unwrap().push(Request::from_parts(parts, ()));
        let response = respond(&answer);
        async move {
            tokio::time::sleep(delay).await;
            response
        }
    });
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Downstream { origin, asked, serving }
}

fn respond(answer: &Value) -> Response<Body> {
    let body = answer.get("body").map(Value::to_string).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = u16::try_from(answer["status"].as_u64().unwrap()).unwrap().try_into().unwrap();
    for (name, value) in answer["headers"].as_object().into_iter().flatten() {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        response.headers_mut().insert(name, HeaderValue::from_str(value.as_str().unwrap()).unwrap());
    }
    response
}

/// A plain client in place of the guarded one.
struct Plain(reqwest::Client);

impl Plain {
    fn new() -> Self {
        Self(reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap())
    }
}

#[async_trait]
impl Fetch for Plain {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, NoAnswer> {
        let mut builder = self.0.request(request.method, request.url).timeout(request.timeout).body(request.body);
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        let response = builder.send().await.map_err(|_| NoAnswer::Unreachable)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.map_err(|_| NoAnswer::Unreachable)?.to_vec();
        Ok(FetchResponse { status, headers, body, asked_at: Timestamp::parse(ASKED_AT).unwrap() })
    }
}

struct Vault;

impl Secrets for Vault {
    fn get(&self, tenant: &Tenant, host: &str, name: &str) -> Option<Secret<String>> {
        assert_eq!((tenant.as_str(), host), ("tenant", "127.0.0.1"));
        (name != "absent").then(|| Secret::new(format!("test-{name}")))
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn question(case: &Value) -> Question {
    match case["question"].as_str().unwrap() {
        "lookup" => Question::Lookup,
        "verify" => Question::Verify,
        other => panic!("{other}"),
    }
}

/// The call that the service would make, of a recipe whose host is that of the downstream.
fn call(recipe: &Value, effect: &Value, case: &Value, origin: &str) -> AdapterCall {
    let mut recipe = recipe.clone();
    for inquiry in recipe["adapter"]["request"].as_object_mut().unwrap().values_mut() {
        let url = inquiry["url"].as_str().unwrap().to_owned();
        let path = url.splitn(4, '/').nth(3).unwrap();
        inquiry["url"] = json!(format!("{origin}/{path}"));
    }
    let spec: ToolSpec = serde_json::from_value(recipe).unwrap();
    assert_eq!(spec.faults(), []);
    let at = Timestamp::parse("2026-01-01T09:59:00Z").unwrap();
    let (tenant, operation_id) = (Tenant::new("tenant").unwrap(), name(effect["operation_id"].as_str().unwrap()));
    let intent = Intent {
        operation_id: operation_id.clone(),
        tool: name("tool"),
        tool_revision: 1,
        class: spec.effect,
        target: name(effect["target"].as_str().unwrap()),
        arguments_digest: Sha256Digest::of(b"{}"),
        digest_algorithm: ALGORITHM.into(),
        identity: None,
        run_id: None,
        session_id: None,
        call_id: None,
        profile_id: None,
        proposer: name("tester"),
        created_at: at,
        idempotency_key: effect["idempotency_key"].as_str().unwrap().into(),
    };
    let tool = Tool::new(name("tool"), 1, spec, false, 1, at);
    let receipt = case["receipt_id"].as_str().map(|id| sample_receipt(&tool, &intent, id));
    let record = Record {
        key: EffectKey::of(&tenant, &operation_id),
        intent: Arc::new(intent),
        life: Life::new(at),
        head: [0; 32],
        receipt: None,
        result: None,
    };
    let (question, timeout) = (question(case), Duration::from_secs(5));
    let place = Places::default().take(&tenant, &tool.name).unwrap();
    let (call_id, record) = ("call-1".to_owned(), Arc::new(record));
    AdapterCall { question, call_id, tenant, tool, record, receipt, timeout, place }
}

fn sample_receipt(tool: &Tool, intent: &Intent, id: &str) -> CheckedReceipt {
    let receipt = json!({
        "receipt_id": id, "schema": tool.spec.receipt.schema, "schema_version": 1, "operation_id": intent.operation_id,
        "target": intent.target, "outcome": "completed", "observed_at": "2026-01-01T10:00:00Z", "source": "client",
    });
    serde_json::from_value::<Receipt>(receipt).unwrap().check().unwrap()
}

fn assert_found(answer: Result<AdapterAnswer, NoAnswer>, case: &Value, about: &str) {
    let expect = &case["expect"];
    let answer = match answer {
        Ok(answer) => answer,
        Err(reason) => {
            assert_eq!(expect["no_answer"].as_str(), Some(reason.as_str()), "{about}: {reason:?}");
            return;
        }
    };
    assert_eq!(expect["verdict"].as_str(), Some(answer.verdict.as_str()), "{about}");
    assert_eq!(answer.authoritative, expect["consistency"] == "authoritative", "{about}");
    if let Some(members) = expect["receipt"].as_object() {
        let receipt = answer.receipt.as_ref().unwrap_or_else(|| panic!("{about}: no receipt"));
        let stored: Value = serde_json::from_str(&receipt.text).unwrap();
        for (name, value) in members {
            assert_eq!(&stored[name], value, "{about}: {name}");
        }
        assert_eq!(stored["observed_at"], ASKED_AT, "{about}");
    }
    let settles = ["completed", "failed"].contains(&answer.verdict.as_str());
    assert_eq!(answer.receipt.is_some(), settles, "{about}: a receipt exactly for completed and failed");
    let verified = answer.verification.map(|verification| verification.verified);
    assert_eq!(verified, expect["verified"].as_bool(), "{about}");
}

#[tokio::test]
async fn recipes_understand_what_such_systems_answer() {
    let client = Plain::new();
    for recipe_name in RECIPES {
        let (recipe, fixtures) =
            (json_file("examples/recipes", recipe_name), json_file("tests/data/recipes", recipe_name));
        for case in cases(&fixtures) {
            let about = format!("{recipe_name}: {}", case["name"]);
            let downstream = downstream(case["answer"].clone(), Duration::ZERO).await;
            let call = call(&recipe, &fixtures["effect"], &case, &downstream.origin);
            assert_found(ask(&client, &Vault, &call).await, &case, &about);
            let asked = std::mem::take(&mut *downstream.asked.lock().unwrap());
            let [request] = asked.as_slice() else { panic!("{about}: {} requests", asked.len()) };
            let expected = &fixtures["requests"][case["question"].as_str().unwrap()];
            assert_eq!(request.method().as_str(), expected["method"], "{about}");
            assert_eq!(request.uri().path(), expected["path"], "{about}");
            assert_eq!(request.uri().query().unwrap_or_default(), expected["query"], "{about}");
            assert_eq!(request.headers()["authorization"].to_str().unwrap(), expected["authorization"], "{about}");
        }
    }
}

/// Silence, a broken connection and a missing secret are no answers, and each says what it is.
#[tokio::test]
async fn what_does_not_answer_says_nothing() {
    let client = Plain::new();
    let (recipe, fixtures) = (json_file("examples/recipes", RECIPES[0]), json_file("tests/data/recipes", RECIPES[0]));
    let case = &fixtures["cases"][0];
    let slow = downstream(case["answer"].clone(), Duration::from_secs(30)).await;
    let mut asked = call(&recipe, &fixtures["effect"], case, &slow.origin);
    asked.timeout = Duration::from_millis(100);
    let found = ask(&client, &Vault, &asked).await.map(drop);
    assert!(matches!(found, Err(NoAnswer::Timeout | NoAnswer::Unreachable)), "{found:?}");
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let asked = call(&recipe, &fixtures["effect"], case, &origin);
    assert_eq!(ask(&client, &Vault, &asked).await.map(drop), Err(NoAnswer::Unreachable));
    let answering = downstream(case["answer"].clone(), Duration::ZERO).await;
    let mut secretless = recipe.clone();
    secretless["adapter"]["request"]["lookup"]["headers"]["authorization"] = json!("Bearer {{secret.absent}}");
    let asked = call(&secretless, &fixtures["effect"], case, &answering.origin);
    assert_eq!(ask(&client, &Vault, &asked).await.map(drop), Err(NoAnswer::NoSecret));
    assert!(answering.asked.lock().unwrap().is_empty(), "nothing is asked without the secret");
}

/// Rules that would loop for hours end with their deadline, and the thread that ran them ends soon too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_end() {
    let client = Plain::new();
    let (mut recipe, fixtures) =
        (json_file("examples/recipes", RECIPES[0]), json_file("tests/data/recipes", RECIPES[0]));
    let list = vec![0; 60_000];
    let downstream = downstream(json!({ "status": 200, "body": list }), Duration::ZERO).await;
    let endless = "body.all(a, body.all(b, body.all(c, a == b))) || true";
    recipe["adapter"]["request"]["lookup"]["rules"] = json!([{ "when": endless, "verdict": "pending" }]);
    let asked = call(&recipe, &fixtures["effect"], &fixtures["cases"][0], &downstream.origin);
    let found = ask(&client, &Vault, &asked).await.map(drop);
    assert_eq!(found, Err(NoAnswer::Contract("the rules took too long")));
}

async fn recipes_are_registered_and_dry_run_as_they_stand(store: StoreUnderTest) {
    let api = store.tenant();
    for recipe_name in RECIPES {
        let (recipe, fixtures) =
            (json_file("examples/recipes", recipe_name), json_file("tests/data/recipes", recipe_name));
        let put = api.put_tool(recipe_name, &recipe).await.expect(201);
        assert_eq!(put.at("/adapter/request"), &recipe["adapter"]["request"], "comes back as sent");
        for case in cases(&fixtures) {
            let about = format!("{recipe_name}: {}", case["name"]);
            let mut body =
                json!({ "question": case["question"], "effect": fixtures["effect"], "answer": case["answer"] });
            if let Some(id) = case["receipt_id"].as_str() {
                body["receipt"] = json!({
                    "receipt_id": id, "schema": recipe["receipt"]["schema"], "schema_version": 1, "outcome": "completed",
                    "operation_id": fixtures["effect"]["operation_id"], "target": fixtures["effect"]["target"],
                    "observed_at": "2026-01-01T10:00:00Z", "source": "client",
                });
            }
            let found = api.post(&format!("/api/tools/{recipe_name}/adapter/dry-run"), &body).await.expect(200);
            let expect = &case["expect"];
            assert_eq!(found.at("/verdict"), &expect["verdict"], "{about}: {found}");
            assert_eq!(
                found.json.pointer("/no_answer/reason").unwrap_or(&Value::Null),
                &expect["no_answer"],
                "{about}"
            );
            for (name, value) in expect["receipt"].as_object().into_iter().flatten() {
                assert_eq!(found.at(&format!("/receipt/{name}")), value, "{about}");
            }
            let verified = found.json.pointer("/verification/verified").unwrap_or(&Value::Null);
            assert_eq!(verified, &expect["verified"], "{about}");
            assert_eq!(found.at("/request/headers/authorization"), "Bearer [hidden]", "{about}");
        }
    }
}

/// What the documentation shows is a registration without faults.
#[test]
fn the_documented_example_has_no_faults() {
    let text = include_str!("../../docs/declarative-adapters.md");
    let blocks: Vec<&str> = text.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let specs: BTreeMap<usize, ToolSpec> = blocks
        .iter()
        .enumerate()
        .filter(|(_, block)| block.contains("\"effect\": \"external\""))
        .map(|(index, block)| (index, serde_json::from_str(block).unwrap()))
        .collect();
    assert!(!specs.is_empty());
    for (index, spec) in specs {
        assert_eq!(spec.faults(), [], "block {index}");
    }
}
