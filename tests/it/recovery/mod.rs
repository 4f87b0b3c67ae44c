//! Recovery (protocol §9): the sweep at start, plans, and their executions.

mod command;
mod crash;
mod executions;
mod plans;
mod restore;
mod size;
mod start;
mod sweep;

use actonce::domain::ids::{EffectKey, Name, Tenant};
use serde_json::{Value, json};

use crate::http::TOOL;
use crate::scenarios::sql;
use crate::support::{Answer, Api, Server, bodies};

/// A prepared effect of a session.
async fn prepared(api: &Api, operation: &str, session: &str) {
    let body = bodies::with(bodies::intent(operation, TOOL), &json!({ "session_id": session }));
    api.intent(&body).await.expect(201).state("intent_recorded");
}

/// A dispatched effect of a session; its lease is long.
async fn live(api: &Api, operation: &str, session: &str) -> Answer {
    let body = bodies::with(bodies::claiming(operation, TOOL), &json!({ "session_id": session }));
    api.intent(&body).await.expect(201).directive("dispatch")
}

/// An effect of a session whose outcome nobody knows.
async fn doubtful(api: &Api, operation: &str, session: &str) -> Answer {
    let granted = live(api, operation, session).await;
    api.outcome(operation, &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown");
    granted
}

async fn plan(api: &Api, request: &Value) -> Answer {
    api.post("/api/recovery/plans", request).await.expect(200)
}

/// A request to execute a plan.
fn execution(plan: &Answer, id: &str, decisions: Value) -> Value {
    let mut request = json!({ "plan": plan.json, "execution_id": id });
    request["decisions"] = decisions;
    request
}

async fn execute(api: &Api, request: &Value) -> Answer {
    api.post("/api/recovery/executions", request).await
}

fn repair(operation: &str) -> Value {
    json!({ "operation_id": operation, "action": "automatic_repair" })
}

/// The item of an operation in a plan.
#[track_caller]
fn item<'a>(plan: &'a Answer, operation: &str) -> &'a Value {
    let items = plan.json["items"].as_array().expect("items");
    items.iter().find(|item| item["operation_id"] == operation).unwrap_or_else(|| panic!("no {operation}: {plan}"))
}

/// The receipts as they stand in an answer, byte for byte.
fn receipts(answer: &Answer) -> &str {
    let from = answer.text.find("\"receipts\":").expect("receipts");
    let to = answer.text.find("\"pending\":").expect("pending");
    &answer.text[from..to]
}

/// The effect as the tables name it.
fn effect(server: &Server, api: &Api, operation: &str) -> String {
    let key = EffectKey::of(&Tenant::new(&api.tenant).unwrap(), &Name::new(operation).unwrap());
    match server.database_url() {
        Some(_) => format!("'{}'::uuid", key.effect),
        None => format!("x'{}'", key.effect.simple()),
    }
}

/// Another executor takes an item, until this time.
fn take(server: &Server, api: &Api, operation: &str, expires_us: i64) {
    let (tenant, effect) = (&api.tenant, effect(server, api, operation));
    let executor = if server.database_url().is_some() {
        "'00000000-0000-0000-0000-000000000007'::uuid".to_owned()
    } else {
        "x'00000000000000000000000000000007'".to_owned()
    };
    sql(server, &format!("DELETE FROM recovery_claims WHERE tenant = '{tenant}' AND effect = {effect}"));
    sql(server, &format!("INSERT INTO recovery_claims VALUES ('{tenant}', {effect}, {executor}, {expires_us})"));
}

/// Far away.
const NEVER_US: i64 = 9_000_000_000_000_000;
