//! Lists of effects, and runs.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use crate::auth::Scope;
use crate::domain::state::State as EffectState;
use crate::domain::time::Timestamp;
use crate::http::dto::Faults;
use crate::http::dto::effect::{EffectPageDocument, body, json_response, page};
use crate::http::extract::{Caller, PathName, Query};
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;
use crate::limits;
use crate::service::lists::EffectFilter;

/// Which page of a list.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// Items on a page, at most 200 (default 50).
    #[serde(default)]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Where the page starts: `next_cursor` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

impl Paging {
    /// The size of the page.
    ///
    /// # Errors
    /// It is beyond the limits.
    pub fn limit(&self) -> Result<u32, Problem> {
        check_limit(self.limit)
    }
}

pub(super) fn check_limit(limit: Option<u32>) -> Result<u32, Problem> {
    let limit = limit.unwrap_or(limits::PAGE_DEFAULT);
    if (1..=limits::PAGE_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(Problem::new(ProblemType::InvalidRequest, "The query has faults.")
            .fault("query:limit", "must be between 1 and 200"))
    }
}

/// What a list of effects is filtered by.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EffectQuery {
    /// The state now.
    #[serde(default)]
    #[param(inline)]
    pub state: Option<EffectState>,
    /// The tool.
    #[serde(default)]
    pub tool: Option<String>,
    /// The target.
    #[serde(default)]
    pub target: Option<String>,
    /// The run.
    #[serde(default)]
    pub run_id: Option<String>,
    /// The session.
    #[serde(default)]
    pub session_id: Option<String>,
    /// The worker of the newest dispatch.
    #[serde(default)]
    pub worker: Option<String>,
    /// Flagged as contradicted, or not.
    #[serde(default)]
    pub contradicted: Option<bool>,
    /// Last changed before this time.
    #[serde(default)]
    #[param(value_type = Option<String>, format = DateTime)]
    pub updated_before: Option<String>,
    /// Items on a page, at most 200 (default 50).
    #[serde(default)]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Where the page starts: `next_cursor` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

impl EffectQuery {
    fn filter(&self) -> Result<EffectFilter, Problem> {
        let mut faults = Faults::default();
        let updated_before = self.updated_before.as_ref().and_then(|text| {
            let time = Timestamp::parse(text);
            if time.is_none() {
                faults.add("query:updated_before", "must be an RFC 3339 date and time with an offset");
            }
            time
        });
        let filter = EffectFilter {
            state: self.state,
            tool: faults.optional("query:tool", self.tool.as_ref()),
            target: faults.optional("query:target", self.target.as_ref()),
            run_id: faults.optional("query:run_id", self.run_id.as_ref()),
            session_id: faults.optional("query:session_id", self.session_id.as_ref()),
            worker: faults.optional("query:worker", self.worker.as_ref()),
            contradicted: self.contradicted,
            updated_before,
        };
        if faults.is_empty() { Ok(filter) } else { Err(faults.problem()) }
    }
}

/// Effects of the tenant, oldest first. Reads the same rows as a single read. A page may be short
/// and still have a next one, because a request looks at a bounded number of rows.
#[utoipa::path(
    get, path = "/api/effects", tag = "effects", operation_id = "listEffects",
    security(("bearer" = ["effects:read"])),
    params(EffectQuery),
    responses(
        (status = 200, description = "A page of effects", body = EffectPageDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn list_effects(
    State(state): State<AppState>,
    caller: Caller,
    Query(query): Query<EffectQuery>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let limit = check_limit(query.limit)?;
    let found = state.service.list(principal, &query.filter()?, query.cursor.as_deref(), limit).await?;
    Ok(json_response(page(found.items.iter().map(body), found.next_cursor.as_deref()), StatusCode::OK))
}

/// A run: all its effects, with counts per state.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[schema(as = Run)]
pub struct RunDocument<'a> {
    /// The run.
    run_id: String,
    /// Effects in all.
    total: u64,
    /// Effects per state, over the whole run.
    counts: std::collections::BTreeMap<String, u64>,
    /// A page of effects.
    #[serde(flatten)]
    page: EffectPageDocument<'a>,
}

/// A run.
#[utoipa::path(
    get, path = "/api/runs/{run_id}", tag = "effects", operation_id = "readRun",
    security(("bearer" = ["effects:read"])),
    params(("run_id" = String, Path, description = "Percent-encoded"), Paging),
    responses(
        (status = 200, description = "The run", body = RunDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_run(
    State(state): State<AppState>,
    caller: Caller,
    PathName(run_id): PathName,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let limit = paging.limit()?;
    let run = state.service.run(principal, &run_id, paging.cursor.as_deref(), limit).await?;
    let total: u64 = run.counts.iter().map(|(_, count)| count).sum();
    let counts: serde_json::Map<String, serde_json::Value> =
        run.counts.iter().map(|(state, count)| (state.as_str().to_owned(), (*count).into())).collect();
    let head = serde_json::json!({ "run_id": run_id, "total": total, "counts": counts });
    let mut json = head.to_string();
    json.pop();
    json.push(',');
    json.push_str(&page(run.page.items.iter().map(body), run.page.next_cursor.as_deref())[1..]);
    Ok(json_response(json, StatusCode::OK))
}
