//! Problem documents (RFC 9457). Every refusal of this service is one.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::fault::Fault;

/// The stable problem types of protocol §11, with their status. Each has a page under `docs/errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemType {
    /// Faults in what was sent.
    InvalidRequest,
    /// No operation id and nothing to derive one from.
    OperationIdRequired,
    /// No valid token.
    Unauthenticated,
    /// The token may not do this.
    InsufficientScope,
    /// Absent or foreign.
    NotFound,
    /// The path is known, the method is not.
    MethodNotAllowed,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The state does not allow it.
    StateConflict,
    /// An old fence.
    StaleFence,
    /// The lease is gone.
    LeaseLost,
    /// Superseded.
    StaleRequest,
    /// The proposal changed.
    ApprovalStale,
    /// Another profile on the same session.
    ProfileMismatch,
    /// The same act under another operation id.
    SuspectedDuplicate,
    /// Another revision was found.
    StaleRevision,
    /// `If-Match` is needed.
    PreconditionRequired,
    /// Aliases are asked for, and no keyring is configured.
    AliasesUnavailable,
    /// The place that a cursor of the feed names is gone.
    CursorGone,
    /// Over a limit.
    TooLarge,
    /// Not JSON.
    UnsupportedMediaType,
    /// Same id, other content.
    OperationReused,
    /// The receipt does not bind or satisfy.
    ReceiptRejected,
    /// Too many requests.
    RateLimited,
    /// More open effects than the tenant, or the principal, may have.
    QuotaExceeded,
    /// A bound of this process is full.
    Capacity,
    /// The database can't answer.
    StoreUnavailable,
    /// A fault of this service.
    InternalError,
}

impl ProblemType {
    /// All types.
    pub const ALL: [Self; 27] = [
        Self::InvalidRequest,
        Self::OperationIdRequired,
        Self::Unauthenticated,
        Self::InsufficientScope,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::StateConflict,
        Self::StaleFence,
        Self::LeaseLost,
        Self::StaleRequest,
        Self::ApprovalStale,
        Self::ProfileMismatch,
        Self::SuspectedDuplicate,
        Self::StaleRevision,
        Self::PreconditionRequired,
        Self::AliasesUnavailable,
        Self::CursorGone,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::OperationReused,
        Self::ReceiptRejected,
        Self::RateLimited,
        Self::QuotaExceeded,
        Self::Capacity,
        Self::StoreUnavailable,
        Self::InternalError,
    ];

    /// Slug, status and title.
    const fn row(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidRequest => ("invalid-request", 400, "The request is not valid"),
            Self::OperationIdRequired => ("operation-id-required", 400, "An operation id is required"),
            Self::Unauthenticated => ("unauthenticated", 401, "A valid token is required"),
            Self::InsufficientScope => ("insufficient-scope", 403, "The token may not do this"),
            Self::NotFound => ("not-found", 404, "There is nothing here"),
            Self::MethodNotAllowed => ("method-not-allowed", 405, "This method is not offered here"),
            Self::RequestTimeout => ("request-timeout", 408, "The request did not arrive in time"),
            Self::StateConflict => ("state-conflict", 409, "The state does not allow this"),
            Self::StaleFence => ("stale-fence", 409, "Another dispatch owns this effect"),
            Self::LeaseLost => ("lease-lost", 409, "The lease is gone: stop acting"),
            Self::StaleRequest => ("stale-request", 409, "A newer request replaced this one"),
            Self::ApprovalStale => ("approval-stale", 409, "The approval is not for what is there now"),
            Self::ProfileMismatch => ("profile-mismatch", 409, "The session has another profile"),
            Self::SuspectedDuplicate => ("suspected-duplicate", 409, "The same act is unresolved under another id"),
            Self::StaleRevision => ("stale-revision", 412, "Another revision was found"),
            Self::PreconditionRequired => ("precondition-required", 428, "A precondition is required"),
            Self::AliasesUnavailable => ("aliases-unavailable", 409, "No alias keyring is configured"),
            Self::CursorGone => ("cursor-gone", 410, "This place of the feed is gone"),
            Self::TooLarge => ("too-large", 413, "A limit is exceeded"),
            Self::UnsupportedMediaType => ("unsupported-media-type", 415, "The body must be JSON"),
            Self::OperationReused => ("operation-reused", 422, "This operation id stands for another operation"),
            Self::ReceiptRejected => ("receipt-rejected", 422, "The evidence does not bind to this effect"),
            Self::RateLimited => ("rate-limited", 429, "Too many requests"),
            Self::QuotaExceeded => ("quota-exceeded", 429, "Too many open effects"),
            Self::Capacity => ("capacity", 503, "The service is at capacity"),
            Self::StoreUnavailable => ("store-unavailable", 503, "The store is unavailable"),
            Self::InternalError => ("internal-error", 500, "Something went wrong in the service"),
        }
    }

    /// The stable name.
    #[must_use]
    pub const fn slug(self) -> &'static str {
        self.row().0
    }

    /// The status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The status as a number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.row().1
    }

    /// The title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().2
    }
}

/// A problem document.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// `/docs/errors/{slug}`: stable, and a page of this service.
    #[serde(rename = "type")]
    #[schema(rename = "type")]
    type_uri: String,
    /// The type in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// This case in words. Never what was sent.
    detail: String,
    /// Where the faults are, if the request has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<Fault>,
    /// What was found, and other members of the type.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    extra: Map<String, Value>,
    #[serde(skip)]
    kind: Option<ProblemType>,
}

impl Problem {
    /// A problem.
    #[must_use]
    pub fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        Self {
            type_uri: format!("/docs/errors/{}", kind.slug()),
            title: kind.title(),
            status: kind.code(),
            detail: detail.into(),
            faults: Vec::new(),
            extra: Map::new(),
            kind: Some(kind),
        }
    }

    /// The same with faults.
    #[must_use]
    pub fn faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults = faults;
        self
    }

    /// The same with one fault.
    #[must_use]
    pub fn fault(self, pointer: &str, reason: &str) -> Self {
        self.faults(vec![Fault::new(pointer, reason)])
    }

    /// The same with a member more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    /// The type.
    #[must_use]
    pub fn kind(&self) -> ProblemType {
        self.kind.unwrap_or(ProblemType::InternalError)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = self.kind();
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = kind.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.extra.get("retry_after_seconds").and_then(Value::as_u64) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if kind == ProblemType::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
