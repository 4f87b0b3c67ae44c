//! The contract over HTTP (protocol §4, §5, §11, §12).

mod adapters;
mod approval_queue;
mod approvals;
mod auth;
mod batches;
mod bulk;
mod bypass;
mod cancel;
mod claims;
mod connections;
mod conventions;
mod dry_run;
mod duplicates;
mod evidence;
mod front;
mod grants;
mod intents;
mod issuer;
mod late;
mod leases;
mod lists;
mod mended;
mod outcomes;
mod profiles;
mod queue;
mod queue_ends;
mod quotas;
mod quotas_of_principals;
mod rates;
mod reads;
pub(crate) mod receipts;
mod replicas;
mod resolutions;
mod restart;
mod results;
mod retained;
mod tls;
mod tokens;
mod tools;
mod waits;

use serde_json::{Value, json};

use crate::support::api::{Answer, Api};
use crate::support::bodies;

/// The tool that most tests use, with nothing declared but its class.
pub(crate) const TOOL: &str = "payments.refund";

/// Registers [`TOOL`] as `external`.
pub(crate) async fn external(api: &Api) {
    tool(api, json!({ "effect": "external" })).await;
}

/// Registers [`TOOL`] as given.
pub(crate) async fn tool(api: &Api, spec: Value) {
    api.put_tool(TOOL, &spec).await.expect(201);
}

/// A declared profile of one tool and one policy; the tool has this version.
pub(crate) async fn profile(api: &Api, version: &str) -> String {
    let component = |class: &str, name: &str, version: &str| json!({ "class": class, "name": name, "behavior_version": version, "implementation_version": "1" });
    let components = json!([component("tool", TOOL, version), component("policy", "limits", "1")]);
    let answer = api.call("PUT", "/api/profiles").json(&json!({ "components": components })).send().await.expect(200);
    answer.str("/profile_id").to_owned()
}

/// A kind of report, such as `bodies::succeeded`.
pub(crate) type Report = fn(&Answer) -> Value;

/// A report by its function, for tables of several kinds.
pub(crate) fn report(make: Report) -> Report {
    make
}

/// A new effect of [`TOOL`] whose dispatch is ours.
pub(crate) async fn granted(api: &Api, operation_id: &str) -> Answer {
    api.intent(&bodies::claiming(operation_id, TOOL)).await.expect(201).directive("dispatch")
}

/// A new effect of [`TOOL`] whose dispatch is ours for the shortest lease.
pub(crate) async fn granted_briefly(api: &Api, operation_id: &str) -> Answer {
    let body = bodies::set(bodies::claiming(operation_id, TOOL), "/claim/lease_seconds", json!(1));
    api.intent(&body).await.expect(201).directive("dispatch")
}

/// A new effect of [`TOOL`] that is with a person, at revision 3: it was reported as not sent, and then
/// its receipt came. Returns the grant.
pub(crate) async fn in_review(api: &Api, operation_id: &str) -> Answer {
    let granted = granted(api, operation_id).await;
    api.outcome(operation_id, &bodies::not_sent(&granted)).await.expect(200).state("safe_to_retry");
    api.outcome(operation_id, &bodies::succeeded(&granted)).await.problem(409, "state-conflict");
    assert_eq!(api.get(operation_id).await.state("manual_review").revision(), 3);
    granted
}

/// Waits until an effect is not `wait` any more: its lease ran out, or its owner reported.
pub(crate) async fn until_decided(api: &Api, operation_id: &str) -> Answer {
    let path = format!("/api/effects/{}", crate::support::api::segment(operation_id));
    let answer = api.call("GET", &path).header("prefer", "wait=30").send().await.expect(200);
    assert_ne!(answer.json["directive"], "wait", "{answer}");
    answer
}
