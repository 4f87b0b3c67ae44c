//! The `OpenAPI` 3.1 document, made from the handlers.

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi, ToResponse};

use super::problem::Problem;

macro_rules! problems {
    ($($name:ident $text:literal),* $(,)?) => {
        $(
            #[doc = $text]
            #[derive(Debug, ToResponse)]
            #[response(description = $text, content_type = "application/problem+json")]
            #[expect(dead_code, reason = "stands for the response in the document")]
            pub struct $name(#[to_schema] Problem);
        )*
    };
}

problems! {
    Problem400 "What was sent has faults, each pointed at; nothing was stored (`invalid-request`, `operation-id-required`).",
    Problem401 "No valid token (`unauthenticated`).",
    Problem403 "The token may not do this (`insufficient-scope`).",
    Problem404 "Absent, or of another tenant (`not-found`).",
    Problem409 "A conflict (`state-conflict`, `stale-fence`, `lease-lost`, `stale-request`, `approval-stale`, `profile-mismatch`, `suspected-duplicate`, `aliases-unavailable`).",
    Problem410 "The event that the cursor names is not in the journal any more (`cursor-gone`).",
    Problem412 "Another revision was found (`stale-revision`).",
    Problem413 "A limit is exceeded (`too-large`).",
    Problem415 "The body is not JSON (`unsupported-media-type`).",
    Problem422 "Same id with other content (`operation-reused`), or evidence that does not bind (`receipt-rejected`).",
    Problem428 "`If-Match` is required (`precondition-required`).",
    Problem429 "Faster than this caller may; or, of a new effect, more open ones than the tenant or the principal may have; come back after `Retry-After` (`rate-limited`, `quota-exceeded`).",
    Problem503 "At capacity, or the store is unavailable; come back after `Retry-After` (`capacity`, `store-unavailable`).",
}

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let mut http = Http::new(HttpAuthScheme::Bearer);
        http.bearer_format = Some("JWT".to_owned());
        let components = openapi.components.get_or_insert_with(Default::default);
        components.add_security_scheme("bearer", SecurityScheme::Http(http));
    }
}

/// The head of the document; paths come from the router.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "Actonce",
        description = "Act once, or stop. Record an intent before you act and the outcome after; \
            when the answer is lost, nobody acts again until the doubt is gone.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "intents", description = "Before the dispatch"),
        (name = "outcomes", description = "After the dispatch"),
        (name = "effects", description = "Reading"),
        (name = "approvals", description = "Decisions of people"),
        (name = "operators", description = "Work for people: the queue, and decisions with evidence"),
        (name = "profiles", description = "The versioned components that clients run with"),
        (name = "tools", description = "Registered kinds of operation"),
        (name = "recovery", description = "Incomplete work: the sweep at start, plans and their executions"),
        (name = "receipts", description = "Vendors' webhooks: their sources, their delivery, their quarantine"),
        (name = "events", description = "The feed of events, and subscriptions to it"),
        (name = "service", description = "The service itself"),
    ),
    components(schemas(crate::domain::fault::Fault), responses(
        Problem400, Problem401, Problem403, Problem404, Problem409, Problem410, Problem412, Problem413, Problem415, Problem422,
        Problem428, Problem429, Problem503
    )),
    modifiers(&Bearer)
)]
pub struct Document;

/// Every operation that asks for a token may answer 429: rates are looked at right after the token.
pub fn limit_rates(document: &mut utoipa::openapi::OpenApi) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            let secured = operation.security.iter().flatten();
            // An empty requirement stands for "without a token".
            let asks = secured.into_iter().any(|need| *need != utoipa::openapi::SecurityRequirement::default());
            if asks {
                let limited = utoipa::openapi::Ref::from_response_name("Problem429");
                operation.responses.responses.insert("429".to_owned(), limited.into());
            }
        }
    }
}

/// The whole document as pretty JSON with a final newline, as it is checked in.
///
/// # Errors
/// The document can't be serialized.
pub fn json() -> Result<String, serde_json::Error> {
    let mut text = super::document().to_pretty_json()?;
    text.push('\n');
    Ok(text)
}
