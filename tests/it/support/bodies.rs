//! Valid bodies, to be changed by the tests.

use serde_json::{Value, json};

use super::api::Answer;
use super::{time, unique};

/// The target of [`intent`].
pub(crate) const TARGET: &str = "order-1001";

/// An intent without a claim.
pub(crate) fn intent(operation_id: &str, tool: &str) -> Value {
    json!({ "operation_id": operation_id, "tool": tool, "target": TARGET, "arguments": { "operation": operation_id } })
}

/// An intent with a claim under a new claim id.
pub(crate) fn claiming(operation_id: &str, tool: &str) -> Value {
    with(intent(operation_id, tool), &json!({ "claim": claim() }))
}

/// A claim under a new claim id.
pub(crate) fn claim() -> Value {
    json!({ "worker": "worker-1", "claim_id": unique("claim") })
}

/// The members of `more` in place of those of `body`.
pub(crate) fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// The body with another value at a JSON pointer; objects on the way are made.
pub(crate) fn set(mut body: Value, pointer: &str, value: Value) -> Value {
    let mut place = &mut body;
    for step in pointer.split('/').skip(1) {
        place = match step.parse::<usize>() {
            Ok(index) if place.is_array() => &mut place[index],
            _ => &mut place[step],
        };
    }
    *place = value;
    body
}

/// The body without a member.
pub(crate) fn without(mut body: Value, name: &str) -> Value {
    body.as_object_mut().expect("an object").remove(name).expect("the member is there");
    body
}

/// A receipt that binds to an effect of [`intent`].
pub(crate) fn receipt(operation_id: &str) -> Value {
    json!({
        "receipt_id": "re_77", "schema": "generic", "schema_version": 1, "operation_id": operation_id,
        "target": TARGET, "outcome": "completed", "observed_at": time::now(), "source": "client",
    })
}

/// A fresh read that confirms [`receipt`].
pub(crate) fn verification() -> Value {
    json!({ "verified": true, "observed_at": time::now(), "source": "GET /refunds/re_77", "target": TARGET })
}

/// A report by the owner of the dispatch in `granted`, without evidence.
pub(crate) fn report(granted: &Answer, outcome: &str) -> Value {
    let (dispatch_id, fence) = granted.dispatch();
    json!({ "dispatch_id": dispatch_id, "fence": fence, "outcome": outcome })
}

/// A report of success with receipt and verification.
pub(crate) fn succeeded(granted: &Answer) -> Value {
    let receipt = receipt(granted.str("/operation_id"));
    with(report(granted, "succeeded"), &json!({ "receipt": receipt, "verification": verification() }))
}

/// A report of success whose verification is still to come.
pub(crate) fn receipted(granted: &Answer) -> Value {
    without(succeeded(granted), "verification")
}

/// A report that the downstream refused, with a terminal receipt.
pub(crate) fn failed(granted: &Answer) -> Value {
    let receipt = with(receipt(granted.str("/operation_id")), &json!({ "outcome": "failed" }));
    with(report(granted, "failed"), &json!({ "receipt": receipt }))
}

/// A report that nobody knows.
pub(crate) fn unknown(granted: &Answer) -> Value {
    let evidence = json!({ "classification": "timeout", "phase": "in_flight", "detail": "no answer" });
    with(report(granted, "unknown"), &json!({ "failure_evidence": evidence }))
}

/// A report that nothing was sent.
pub(crate) fn not_sent(granted: &Answer) -> Value {
    let evidence = json!({ "classification": "exception", "phase": "before_send", "detail": "" });
    with(report(granted, "not_sent"), &json!({ "failure_evidence": evidence }))
}

/// A heartbeat.
pub(crate) fn heartbeat(granted: &Answer) -> Value {
    let (dispatch_id, fence) = granted.dispatch();
    json!({ "dispatch_id": dispatch_id, "fence": fence })
}

/// An operator's decision.
pub(crate) fn resolution(decision_id: &str, outcome: &str) -> Value {
    let evidence = json!({ "ticket": "OPS-7", "seen": "the refund list of the provider" });
    json!({ "decision_id": decision_id, "outcome": outcome, "reason": "looked at it", "evidence": evidence })
}

/// An approval or a denial of the proposal in `answer`.
pub(crate) fn decision(answer: &Answer, decision: &str) -> Value {
    let digest = answer.str("/approval/proposal_digest");
    json!({ "decision": decision, "proposal_digest": digest, "reason": "because" })
}
