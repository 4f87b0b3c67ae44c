//! The service is killed in the middle of everything; what it has answered stays true.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Dice, crowd, intact};
use crate::http::TOOL;
use crate::support::downstream::{Downstream, Mode};
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(every_answer_given_before_a_kill_is_true_after_it);

const CLIENTS: usize = 32;
/// After so many answers the service is killed.
const KILLS: [u32; 3] = [1_500, 3_000, 5_000];

/// Everything that clients were told.
#[derive(Default)]
struct Told {
    answers: Mutex<BTreeMap<String, Vec<Answer>>>,
    /// Requests that were answered with a dispatch.
    grants: Mutex<Vec<(Request, Answer)>>,
    /// Keys that were sent downstream.
    acted: Mutex<HashMap<String, u32>>,
    count: AtomicU32,
}

/// A request that claims.
#[derive(Clone)]
struct Request {
    path: String,
    body: Value,
}

/// The service is gone.
struct Gone;

impl Told {
    /// Sends a change and keeps what it came to.
    async fn ask(&self, api: &Api, path: String, body: Value) -> Result<Answer, Gone> {
        let answer = api.call("POST", &path).json(&body).try_send().await.map_err(|_| Gone)?;
        self.count.fetch_add(1, Ordering::SeqCst);
        assert!(answer.status.as_u16() < 500, "{answer}");
        if answer.status.is_success()
            && let (Some(id), true) = (answer.json["operation_id"].as_str(), answer.json["state"].is_string())
        {
            self.answers.lock().unwrap().entry(id.to_owned()).or_default().push(answer.clone());
        }
        if answer.json["directive"] == "dispatch" {
            self.grants.lock().unwrap().push((Request { path, body }, answer.clone()));
        }
        Ok(answer)
    }
}

/// What a client does under one operation id. Its neighbour does the same under the same id.
async fn live(told: &Told, api: &Api, downstream: &Downstream, id: &str, dice: &mut Dice) -> Result<(), Gone> {
    let path = |verb: &str| format!("/api/effects/{id}/{verb}");
    let mut owner = if dice.roll(4) == 0 {
        told.ask(api, "/api/intents".to_owned(), bodies::intent(id, TOOL)).await?;
        if dice.roll(3) == 0 {
            told.ask(api, path("cancel"), json!({})).await?;
        }
        told.ask(api, path("dispatch"), bodies::claim()).await?
    } else {
        told.ask(api, "/api/intents".to_owned(), bodies::claiming(id, TOOL)).await?
    };
    for _ in 0..3 {
        if owner.json["directive"] != "dispatch" {
            return Ok(());
        }
        if dice.roll(2) == 0 {
            told.ask(api, path("heartbeat"), bodies::heartbeat(&owner)).await?;
        }
        if dice.roll(6) == 0 {
            told.ask(api, path("outcome"), bodies::not_sent(&owner)).await?;
            owner = told.ask(api, path("dispatch"), bodies::claim()).await?;
            continue;
        }
        let key = owner.str("/dispatch/idempotency_key").to_owned();
        *told.acted.lock().unwrap().entry(key.clone()).or_default() += 1;
        downstream.act(&key).await.unwrap();
        let report = match dice.roll(6) {
            0 => bodies::receipted(&owner),
            1 => bodies::failed(&owner),
            2 => bodies::unknown(&owner),
            _ => bodies::with(bodies::succeeded(&owner), &json!({ "result": { "b": 1.0, "id": id, "ü": [null] } })),
        };
        if dice.roll(8) == 0 {
            told.ask(api, path("cancel"), json!({})).await?;
        }
        let reported = told.ask(api, path("outcome"), report).await?;
        if reported.json["state"] == "verifying" && dice.roll(3) > 0 {
            told.ask(api, path("verification"), bodies::verification()).await?;
        }
        return Ok(());
    }
    Ok(())
}

/// The recorded documents, byte for byte.
#[derive(Deserialize)]
struct Recorded<'a> {
    #[serde(borrow, default)]
    receipt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

fn recorded(answer: &Answer) -> (Option<&str>, Option<&str>) {
    let Recorded { receipt, result } = serde_json::from_str(&answer.text).unwrap();
    (receipt.map(RawValue::get), result.map(RawValue::get))
}

fn fence(answer: &Answer) -> u64 {
    answer.json["dispatch"]["fence"].as_u64().unwrap_or(0)
}

/// An answer from before the kill against what is there after it.
fn still_true(before: &Answer, now: &Answer) {
    assert!(now.revision() >= before.revision(), "lost: {before}\nnow {now}");
    assert!(fence(now) >= fence(before), "lost: {before}\nnow {now}");
    for member in ["tool", "target", "effect", "arguments_digest", "created_at"] {
        assert_eq!(now.json[member], before.json[member], "{member}: {before}\nnow {now}");
    }
    if now.revision() == before.revision() {
        assert_eq!(now.json["state"], before.json["state"], "{before}\nnow {now}");
    }
    let settled = ["completed", "failed", "refused"].contains(&before.str("/state"));
    let (was, is) = (recorded(before), recorded(now));
    if settled {
        assert_eq!(now.json["state"], before.json["state"], "{before}\nnow {now}");
        assert_eq!(now.json.get("executed"), before.json.get("executed"), "{before}\nnow {now}");
        assert_eq!(is, was, "{before}\nnow {now}");
    }
    assert!(was.0.is_none() || is.0 == was.0, "another receipt: {before}\nnow {now}");
}

/// Holds everything that was told against the service as it is now.
async fn check(told: &Told, server: &Server, api: &Api, downstream: &Downstream) {
    let answers = told.answers.lock().unwrap().clone();
    let reads = answers.iter().map(|(id, before)| async move {
        let now = api.get(id).await.expect(200);
        for before in before {
            still_true(before, &now);
        }
        (id.clone(), now)
    });
    let now: HashMap<String, Answer> = crowd(32, reads).await.into_iter().collect();
    let grants = told.grants.lock().unwrap().clone();
    let mut owners = HashMap::new();
    for (_, granted) in &grants {
        let (dispatch_id, fence) = granted.dispatch();
        let owner = owners.entry((granted.str("/operation_id").to_owned(), fence)).or_insert(dispatch_id.clone());
        assert_eq!(*owner, dispatch_id, "two dispatches under one fence: {granted}");
    }
    let repeats = grants.iter().map(|(request, granted)| {
        let now = &now[granted.str("/operation_id")];
        async move {
            // The lease of 600 s has not run out: only a report, a cancellation or a newer claim ends it.
            let live = now.json["state"] == "dispatched" && fence(now) == fence(granted);
            let again = api.call("POST", &request.path).json(&request.body).send().await.expect(200);
            assert_eq!(again.revision(), now.revision(), "a repeat writes nothing: {again}");
            if live {
                let mut dispatch = again.clone().directive("dispatch").json["dispatch"].clone();
                dispatch["lease_expires_at"] = granted.json["dispatch"]["lease_expires_at"].clone();
                assert_eq!(dispatch, granted.json["dispatch"], "{again}");
            } else {
                assert_ne!(again.json["directive"], "dispatch", "{granted}\nnow {again}");
            }
            u32::from(live)
        }
    });
    let live: u32 = crowd(32, repeats).await.iter().sum();
    let acted = told.acted.lock().unwrap().clone();
    for (key, times) in &acted {
        assert_eq!((*times, downstream.commits(key)), (1, 1), "{key}");
    }
    let report = intact(server);
    let told_of = u64::try_from(now.len()).unwrap();
    assert!(report["effects"].as_u64() >= Some(told_of), "{report:#}");
    eprintln!(
        "{} answers about {told_of} effects, {} grants, {live} live",
        told.count.load(Ordering::SeqCst),
        grants.len()
    );
}

async fn every_answer_given_before_a_kill_is_true_after_it(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let mut api = Api::of(&server, "t");
    let spec = json!({ "effect": "external", "lease_seconds": 600, "verify_deadline_seconds": 3600 });
    api.put_tool(TOOL, &spec).await.expect(201);
    let downstream = Downstream::start(Mode::Normal).await;
    let told = Told::default();
    for (round, kill_at) in KILLS.into_iter().enumerate() {
        let (all, api_now, downstream) = (&told, &api, &downstream);
        let clients = (0..CLIENTS).map(|number| async move {
            let mut dice = Dice::new(u64::try_from(round * CLIENTS + number + 1).unwrap());
            for n in 0.. {
                let id = format!("op-{round}-{}-{n}", number / 2);
                if live(all, api_now, downstream, &id, &mut dice).await.is_err() {
                    return;
                }
            }
        });
        let killer = async {
            while told.count.load(Ordering::SeqCst) < kill_at {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            server.kill9();
        };
        tokio::join!(futures_util::future::join_all(clients), killer);
        server.restart();
        api = api.at(&server);
        check(&told, &server, &api, downstream).await;
    }
    let states: std::collections::BTreeSet<_> =
        told.answers.lock().unwrap().values().flatten().map(|answer| answer.str("/state").to_owned()).collect();
    assert!(states.len() >= 6, "the operations were mixed: {states:?}");
}
