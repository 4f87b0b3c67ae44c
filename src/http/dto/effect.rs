//! The effect as answered (protocol §5), and lists of them.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use crate::domain::receipt::{Receipt, Verification};
use crate::domain::record::{Dispatch, FailureEvidence, ResolvedOutcome, ReviewReason};
use crate::domain::state::{Directive, EffectClass, State};
use crate::domain::text;
use crate::domain::time::Timestamp;
use crate::engine::Decided;
use crate::service::keys::marker;
use crate::telemetry::phase::Phase;
use crate::telemetry::{meters, probe};

/// One permitted attempt to act.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DispatchView<'a> {
    /// Its id.
    dispatch_id: uuid::Uuid,
    /// 1 for the first.
    attempt: u32,
    /// Grows with every dispatch.
    fence: u32,
    /// Who acts.
    worker: &'a str,
    /// When it was granted.
    #[schema(value_type = String, format = DateTime)]
    dispatched_at: Timestamp,
    /// When the lease ends unless renewed.
    #[schema(value_type = String, format = DateTime)]
    lease_expires_at: Timestamp,
    /// Whether the outcome came after the lease.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    /// Send this downstream. Shown to the owner of the dispatch alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    /// Embed this in what you create, so that a lookup can find it. Shown to the owner alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    marker: Option<String>,
}

/// What an approver decides about.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ApprovalView<'a> {
    /// To be repeated with the decision.
    proposal_digest: &'a str,
    /// Approvals needed.
    approvals_needed: u32,
    /// Approvals so far.
    approvals: usize,
    /// When it is refused by itself.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// The unresolved effect that this one seems to repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_for: Option<&'a str>,
}

/// An operator's last decision. Its reason and evidence stand in the list of resolutions.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ResolutionSummary)]
pub struct ResolutionSummaryView<'a> {
    /// The operator's name for it.
    decision_id: &'a str,
    /// What was decided.
    outcome: ResolvedOutcome,
    /// Who decided.
    by: &'a str,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Digest of the whole decision.
    decision_digest: &'a str,
}

/// An effect.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct EffectView<'a> {
    /// What to do now.
    directive: Directive,
    /// The operation.
    operation_id: &'a str,
    /// The tool.
    tool: &'a str,
    /// The tool revision it was made under; 0 for an ad-hoc tool.
    tool_revision: u32,
    /// The effect class.
    effect: EffectClass,
    /// What is acted on.
    target: &'a str,
    /// The state.
    state: State,
    /// The revision; also the `ETag`.
    revision: u32,
    /// Dispatches so far.
    attempt: u32,
    /// Digest of the arguments.
    arguments_digest: &'a str,
    /// How it was made.
    digest_algorithm: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_id: Option<&'a str>,
    /// When the intent was recorded.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When this revision was made.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    /// Whether the answer was recorded before this request.
    replayed: bool,
    /// The newest dispatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatch: Option<DispatchView<'a>>,
    /// When to ask again, for `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
    /// Whether claims of the tool are held.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    paused: bool,
    /// For `failed`: whether the downstream was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    executed: Option<bool>,
    /// How the last attempt went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_evidence: Option<&'a FailureEvidence>,
    /// The accepted verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<&'a Verification>,
    /// When the state is left by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Timestamp>,
    /// Since when the outcome is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    unknown_since: Option<Timestamp>,
    /// Why a person has to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    review_reason: Option<ReviewReason>,
    /// Evidence excludes the outcome.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    contradicted: bool,
    /// Late reports that were stored as evidence.
    #[serde(skip_serializing_if = "is_zero")]
    late_reports: usize,
    /// An operator's last decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<ResolutionSummaryView<'a>>,
    /// The approval, where one is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalView<'a>>,
    /// Digest of the accepted receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_digest: Option<&'a str>,
    /// Digest of the recorded result.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_digest: Option<&'a str>,
    /// Whether the result was too large to keep.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    result_truncated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn view(decided: &Decided) -> EffectView<'_> {
    let (intent, life) = (&decided.record.intent, &decided.record.life);
    let directive = decided.directive();
    let owned = directive == Directive::Dispatch;
    let now = decided.context.now;
    EffectView {
        directive,
        operation_id: intent.operation_id.as_str(),
        tool: intent.tool.as_str(),
        tool_revision: intent.tool_revision,
        effect: intent.class,
        target: intent.target.as_str(),
        state: life.state,
        revision: life.revision,
        attempt: life.attempt,
        arguments_digest: intent.arguments_digest.as_str(),
        digest_algorithm: &intent.digest_algorithm,
        run_id: intent.run_id.as_ref().map(crate::domain::ids::Name::as_str),
        session_id: intent.session_id.as_ref().map(crate::domain::ids::Name::as_str),
        call_id: intent.call_id.as_ref().map(crate::domain::ids::Name::as_str),
        profile_id: intent.profile_id.as_ref().map(crate::domain::ids::Name::as_str),
        created_at: intent.created_at,
        updated_at: life.updated_at,
        replayed: decided.answer.replayed,
        dispatch: life
            .dispatch
            .as_ref()
            .map(|dispatch| dispatch_view(dispatch, owned.then_some(&*intent.idempotency_key))),
        retry_after_seconds: match directive {
            Directive::Wait => Some(life.lease_end().map_or(1, |end| end.seconds_from(now)).min(5)),
            Directive::Authorize => Some(5),
            _ => None,
        },
        paused: directive == Directive::Stop && !life.state.is_terminal(),
        executed: life.executed,
        failure_evidence: life.failure.as_ref(),
        verification: life.verification.as_ref(),
        deadline_at: life.deadline_at,
        unknown_since: life.unknown_since,
        review_reason: life.review,
        contradicted: life.contradicted,
        late_reports: life.reports.iter().filter(|mark| mark.evidence_only).count(),
        resolution: life.resolution.as_ref().map(|made| ResolutionSummaryView {
            decision_id: made.decision_id.as_str(),
            outcome: made.outcome,
            by: made.principal.as_str(),
            at: made.at,
            decision_digest: made.digest.as_str(),
        }),
        approval: life.approval.as_ref().filter(|_| directive == Directive::Authorize).map(|approval| ApprovalView {
            proposal_digest: approval.proposal_digest.as_str(),
            approvals_needed: approval.needed,
            approvals: approval.approvals(),
            expires_at: approval.expires_at,
            held_for: approval.held_for.as_ref().map(crate::domain::ids::Name::as_str),
        }),
        receipt_digest: life.receipt.as_ref().map(|receipt| receipt.digest.as_str()),
        result_digest: life.result.as_ref().map(|result| result.digest.as_str()),
        result_truncated: life.result.as_ref().is_some_and(|result| result.truncated),
    }
}

fn dispatch_view<'a>(dispatch: &'a Dispatch, key: Option<&'a str>) -> DispatchView<'a> {
    DispatchView {
        dispatch_id: dispatch.dispatch_id,
        attempt: dispatch.attempt,
        fence: dispatch.fence,
        worker: dispatch.worker.as_str(),
        dispatched_at: dispatch.dispatched_at,
        lease_expires_at: dispatch.lease_expires_at,
        late: dispatch.late,
        idempotency_key: key,
        marker: key.map(marker),
    }
}

/// The JSON of an effect. Receipt and result are appended as the bytes that were recorded (law 9),
/// never parsed and written again.
#[must_use]
pub fn body(decided: &Decided) -> String {
    let documents = [&decided.record.receipt, &decided.record.result].into_iter().flatten().map(|text| text.len());
    let mut json = text::json(&view(decided), documents.sum::<usize>().saturating_add(1536)).unwrap_or_default();
    for (name, text) in [("receipt", &decided.record.receipt), ("result", &decided.record.result)] {
        if let Some(text) = text
            && json.pop().is_some()
        {
            json.push_str(",\"");
            json.push_str(name);
            json.push_str("\":");
            json.push_str(text);
            json.push('}');
        }
    }
    json
}

/// An effect as a response, with its `ETag`.
#[must_use]
pub fn respond(decided: &Decided, status: StatusCode) -> Response {
    let mut response = probe::timed(Phase::Response, || json_response(body(decided), status));
    response.headers_mut().insert(header::ETAG, etag(decided.record.life.revision));
    meters::directed(decided.directive());
    response
}

/// The entity tag of a revision.
#[must_use]
pub fn etag(revision: u32) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{revision}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

/// A JSON response.
#[must_use]
pub fn json_response(body: String, status: StatusCode) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A document as a response.
#[must_use]
pub fn document(document: &impl Serialize, status: StatusCode) -> Response {
    probe::timed(Phase::Response, || json_response(serde_json::to_string(document).unwrap_or_default(), status))
}

/// A document of a revision as a response, with its `ETag`.
#[must_use]
pub fn tagged(body: &impl Serialize, revision: u32, status: StatusCode) -> Response {
    let mut response = document(body, status);
    response.headers_mut().insert(header::ETAG, etag(revision));
    response
}

/// `{"items": […], "next_cursor": …}` around items that are JSON already.
#[must_use]
pub fn page(items: impl Iterator<Item = String>, next_cursor: Option<&str>) -> String {
    let items: Vec<String> = items.collect();
    let cursor = serde_json::to_string(&next_cursor).unwrap_or_else(|_| "null".to_owned());
    format!("{{\"items\":[{}],\"next_cursor\":{cursor}}}", items.join(","))
}

/// Answers a heartbeat.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct HeartbeatView {
    /// When the lease ends now.
    #[schema(value_type = String, format = DateTime)]
    pub lease_expires_at: Timestamp,
    /// The fence that holds it.
    pub fence: u32,
    /// The revision.
    pub revision: u32,
}

/// An effect with its recorded documents: how [`body`] is documented.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Effect)]
pub struct EffectDocument<'a> {
    /// The effect.
    #[serde(flatten)]
    effect: EffectView<'a>,
    /// The accepted receipt, byte for byte as recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
    /// The recorded result, byte for byte as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    result: Option<Value>,
}

/// Documentation of a page of effects.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = EffectPage)]
pub struct EffectPageDocument<'a> {
    /// The effects, oldest first.
    items: Vec<EffectDocument<'a>>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}

impl IntoResponse for HeartbeatView {
    fn into_response(self) -> Response {
        json_response(serde_json::to_string(&self).unwrap_or_default(), StatusCode::OK)
    }
}
