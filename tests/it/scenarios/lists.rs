//! Lists say what single reads say, after every single write.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Dice;
use crate::http::TOOL;
use crate::support::{Answer, Api, StoreUnderTest, bodies, both_stores};

both_stores!(after_every_write_lists_and_single_reads_agree);

const STATES: [&str; 10] = [
    "proposed",
    "intent_recorded",
    "dispatched",
    "verifying",
    "completed",
    "failed",
    "refused",
    "outcome_unknown",
    "safe_to_retry",
    "manual_review",
];

/// What a single read says, by operation id, as it stands in a list.
type Truth = BTreeMap<String, Value>;

async fn read(api: &Api, truth: &mut Truth, id: &str) {
    let mut alone = api.get(id).await.expect(200).json;
    alone.as_object_mut().unwrap().remove("replayed");
    truth.insert(id.to_owned(), alone);
}

async fn agrees(api: &Api, truth: &Truth, query: &str, fits: impl Fn(&Value) -> bool) {
    let listed = api.pages(&format!("/api/effects?limit=7&{query}")).await;
    let mut found = Truth::new();
    for mut item in listed {
        item.as_object_mut().unwrap().remove("replayed");
        let id = item["operation_id"].as_str().unwrap().to_owned();
        assert!(found.insert(id.clone(), item).is_none(), "{query} lists {id} twice");
    }
    let expected: Truth = truth.iter().filter(|(_, item)| fits(item)).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{query}");
    assert_eq!(found, expected, "{query}");
}

/// One write at random. Whether it is allowed is for the service to say.
async fn write(api: &Api, dice: &mut Dice, id: &str, owners: &mut BTreeMap<String, Answer>) {
    let claim =
        json!({ "worker": format!("worker-{}", dice.roll(3)), "claim_id": format!("claim-{}", dice.roll(1 << 40)) });
    let tool = if id.ends_with('0') { "approved" } else { TOOL };
    let run = format!("run-{}", id.len() + usize::from(id.ends_with(['1', '4', '7'])));
    let body = bodies::with(bodies::intent(id, tool), &json!({ "run_id": run }));
    let owner = owners.get(id).cloned();
    let answer = match (dice.roll(8), owner) {
        (0, _) => api.intent(&bodies::with(body, &json!({ "claim": claim }))).await,
        (1, _) => api.intent(&body).await,
        (2, _) => api.cancel(id).await,
        (3, Some(owner)) => api.outcome(id, &bodies::succeeded(&owner)).await,
        (4, Some(owner)) => api.outcome(id, &bodies::receipted(&owner)).await,
        (5, Some(owner)) => api.outcome(id, &bodies::not_sent(&owner)).await,
        (6, Some(owner)) => {
            let make = [bodies::unknown, bodies::failed][usize::from(dice.roll(2) == 0)];
            api.outcome(id, &make(&owner)).await
        }
        (7, Some(_)) => api.verify(id, &bodies::verification()).await,
        _ => {
            let read = api.get(id).await;
            if read.json["state"] == "proposed" {
                let word = if dice.roll(4) == 0 { "deny" } else { "approve" };
                api.authorize(id, read.revision(), &bodies::decision(&read, word)).await
            } else {
                api.dispatch(id, &claim).await
            }
        }
    };
    assert!(answer.status.as_u16() < 500, "{answer}");
    if answer.json["directive"] == "dispatch" {
        owners.insert(id.to_owned(), answer);
    }
}

async fn after_every_write_lists_and_single_reads_agree(store: StoreUnderTest) {
    let api = store.tenant();
    let long = json!({ "effect": "external", "lease_seconds": 3600, "on_suspected_duplicate": "allow" });
    api.put_tool(TOOL, &long).await.expect(201);
    let asks = json!({ "mode": "approval", "four_eyes": false });
    api.put_tool("approved", &bodies::with(long, &json!({ "authorization": asks }))).await.expect(201);
    let (mut truth, mut owners, mut dice) = (Truth::new(), BTreeMap::new(), Dice::new(9));
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..200 {
        let id = format!("op-{}", dice.roll(40));
        let before = truth.get(&id).map(|item| item["state"].as_str().unwrap().to_owned());
        write(&api, &mut dice, &id, &mut owners).await;
        if api.get(&id).await.status == 404 {
            continue;
        }
        read(&api, &mut truth, &id).await;
        let now = truth[&id]["state"].as_str().unwrap().to_owned();
        for state in before.iter().chain([&now]) {
            seen.insert(state.clone());
            agrees(&api, &truth, &format!("state={state}"), |item| item["state"] == state.as_str()).await;
        }
        let run = truth[&id]["run_id"].as_str().unwrap().to_owned();
        agrees(&api, &truth, &format!("run_id={run}"), |item| item["run_id"] == run.as_str()).await;
        if let Some(worker) = truth[&id]["dispatch"]["worker"].as_str() {
            let (query, worker) = (format!("worker={worker}"), worker.to_owned());
            agrees(&api, &truth, &query, |item| item["dispatch"]["worker"] == worker.as_str()).await;
        }
        if number % 50 == 49 {
            let ids: Vec<String> = truth.keys().cloned().collect();
            for id in ids {
                read(&api, &mut truth, &id).await;
            }
            for state in STATES {
                agrees(&api, &truth, &format!("state={state}"), |item| item["state"] == state).await;
            }
            agrees(&api, &truth, "contradicted=true", |item| item["contradicted"] == true).await;
        }
    }
    assert!(seen.len() >= 7, "the writes went through most states: {seen:?}");
}
