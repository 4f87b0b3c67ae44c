//! `actonce recovery`: plans and their executions, over HTTP like any other client.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{fail, print};
use crate::domain::recovery::Action;
use crate::domain::recovery::plan::Plan;
use crate::limits;

/// Longest time for an answer: an execution works on up to 1,000 items.
const ANSWER: Duration = Duration::from_mins(2);

/// What to do about incomplete work. Exit codes: 0 all done, 1 something is blocked or the plan is not
/// accepted, 2 wrong use, files, or no answer.
#[derive(Debug, Subcommand)]
pub(super) enum RecoveryCommand {
    /// Make a plan: it reads, and stores nothing.
    Plan(PlanArgs),
    /// Execute a plan: exit 0 when all was done, 1 when something is blocked or the plan is not accepted, 2 else.
    Execute(ExecuteArgs),
}

/// Where the service is, and who asks. The token itself is no argument: command lines can be read by all.
#[derive(Debug, Args)]
pub(super) struct Service {
    /// URL of the service, base path included
    #[arg(long, env = "ACTONCE_URL", default_value = "http://127.0.0.1:8080", value_name = "URL")]
    url: String,
    /// File with the token. `ACTONCE_TOKEN` holds the token itself
    #[arg(long, env = "ACTONCE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// `actonce recovery plan`.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    service: Service,
    /// A session whose incomplete work is planned for; may be repeated
    #[arg(long = "session", value_name = "ID")]
    sessions: Vec<String>,
    /// A state, such as `intent_recorded`; may be repeated [default: all that are not final]
    #[arg(long = "state", value_name = "STATE", conflicts_with = "sessions")]
    states: Vec<String>,
    /// Only what nobody has touched for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    inactive_for_seconds: u32,
    /// Most items of the plan
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
    /// `next_cursor` of the plan before
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Where the plan is written [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `actonce recovery execute`.
#[derive(Debug, Args)]
pub(super) struct ExecuteArgs {
    #[command(flatten)]
    service: Service,
    /// The plan, as it was written
    plan: PathBuf,
    /// Your name for this execution; the same on every retry
    #[arg(long, value_name = "ID")]
    execution_id: String,
    /// Decisions: a JSON array of `operation_id`, `action` and `message` [default: `automatic_repair` where it is allowed]
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
}

/// Why there is no answer to work with.
enum Trouble {
    /// Wrong use, files, or no answer.
    Use(String),
    /// The service does not accept the plan.
    Refused(String),
}

#[derive(Deserialize)]
struct Problem {
    title: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    faults: Vec<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    pointer: String,
    reason: String,
}

#[derive(Deserialize)]
struct Executed {
    completed: bool,
    receipts: Vec<Receipt>,
}

#[derive(Deserialize)]
struct Receipt {
    outcome: String,
}

pub(super) async fn run(command: &RecoveryCommand) -> ExitCode {
    let done = match command {
        RecoveryCommand::Plan(args) => plan(args).await,
        RecoveryCommand::Execute(args) => execute(args).await,
    };
    match done {
        Ok(code) => code,
        Err(Trouble::Use(message)) => fail(&message),
        Err(Trouble::Refused(message)) => {
            fail(&message);
            ExitCode::FAILURE
        }
    }
}

async fn plan(args: &PlanArgs) -> Result<ExitCode, Trouble> {
    let mut body = json!({ "inactive_for_seconds": args.inactive_for_seconds });
    let mut add = |name: &str, value: Value| body.as_object_mut().map(|body| body.insert(name.to_owned(), value));
    if !args.sessions.is_empty() {
        add("session_ids", json!(args.sessions));
    }
    if !args.states.is_empty() {
        add("states", json!(args.states));
    }
    if let Some(limit) = args.limit {
        add("limit", json!(limit));
    }
    if let Some(cursor) = &args.cursor {
        add("cursor", json!(cursor));
    }
    let text = args.service.post("plans", body.to_string()).await?;
    match &args.output {
        None => Ok(print(&text)),
        Some(path) => {
            let written = tokio::fs::write(path, format!("{text}\n")).await;
            written.map_err(|error| Trouble::Use(format!("{}: {error}", path.display())))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn execute(args: &ExecuteArgs) -> Result<ExitCode, Trouble> {
    // Sent as it stands in the file: what was edited is found by the service.
    let plan: Box<RawValue> = read_json(&args.plan).await?;
    let decisions: Box<RawValue> = match &args.decisions {
        Some(path) => read_json(path).await?,
        None => match repairs(plan.get(), &args.plan)? {
            Some(decisions) => decisions,
            None => return Ok(print("{\"completed\":true,\"receipts\":[]}")),
        },
    };
    let execution_id = Value::from(args.execution_id.as_str());
    let body = format!("{{\"plan\":{plan},\"execution_id\":{execution_id},\"decisions\":{decisions}}}");
    let text = args.service.post("executions", body).await?;
    let executed: Executed = serde_json::from_str(&text)
        .map_err(|_| Trouble::Use("the service answers something else than an execution".to_owned()))?;
    let printed = print(&text);
    let blocked = !executed.completed || executed.receipts.iter().any(|receipt| receipt.outcome == "blocked");
    Ok(if blocked { ExitCode::FAILURE } else { printed })
}

/// The decisions that need no person; `None` where there are none.
fn repairs(plan: &str, path: &Path) -> Result<Option<Box<RawValue>>, Trouble> {
    let unfit = |error: serde_json::Error| Trouble::Use(format!("{} is not a plan: {error}", path.display()));
    let plan: Plan = serde_json::from_str(plan).map_err(unfit)?;
    let repairs: Vec<Value> = plan
        .items
        .iter()
        .filter(|item| item.allowed_actions.contains(&Action::AutomaticRepair))
        .filter_map(|item| item.operation_id.as_ref())
        .map(|operation| json!({ "operation_id": operation, "action": Action::AutomaticRepair }))
        .collect();
    if repairs.is_empty() { Ok(None) } else { serde_json::value::to_raw_value(&repairs).map(Some).map_err(unfit) }
}

async fn read_json(path: &Path) -> Result<Box<RawValue>, Trouble> {
    let trouble = |error: &dyn std::fmt::Display| Trouble::Use(format!("{}: {error}", path.display()));
    let size = tokio::fs::metadata(path).await.map_err(|error| trouble(&error))?.len();
    if usize::try_from(size).map_or(true, |size| size > limits::RECOVERY_EXECUTION_BODY_BYTES) {
        return Err(trouble(&"is too large"));
    }
    let text = tokio::fs::read_to_string(path).await.map_err(|error| trouble(&error))?;
    serde_json::from_str(&text).map_err(|error| trouble(&error))
}

impl Service {
    async fn token(&self) -> Result<String, Trouble> {
        let from_file = match &self.token_file {
            Some(path) => {
                let text = tokio::fs::read_to_string(path).await;
                Some(text.map_err(|error| Trouble::Use(format!("{}: {error}", path.display())))?)
            }
            None => None,
        };
        let token = from_file.or_else(|| std::env::var("ACTONCE_TOKEN").ok()).unwrap_or_default();
        let token = token.trim();
        if token.is_empty() {
            return Err(Trouble::Use("no token: set ACTONCE_TOKEN, or give --token-file".to_owned()));
        }
        Ok(token.to_owned())
    }

    async fn post(&self, what: &str, body: String) -> Result<String, Trouble> {
        let token = self.token().await?;
        let client = reqwest::Client::builder().timeout(ANSWER).no_proxy().build();
        let client = client.map_err(|error| Trouble::Use(format!("no client: {error}")))?;
        let url = format!("{}/api/recovery/{what}", self.url.trim_end_matches('/'));
        let request = client.post(url).bearer_auth(token).header("content-type", "application/json").body(body);
        let response = request.send().await.map_err(|error| no_answer(&error))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| no_answer(&error))?;
        if status.is_success() { Ok(text) } else { Err(refusal(status, &text)) }
    }
}

/// The first cause says more than `error sending request`.
fn no_answer(error: &(dyn std::error::Error + 'static)) -> Trouble {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Trouble::Use(format!("no answer: {cause}"))
}

fn refusal(status: StatusCode, text: &str) -> Trouble {
    let Ok(problem) = serde_json::from_str::<Problem>(text) else {
        return Trouble::Use(format!("the service answers {status}"));
    };
    let faults: Vec<String> =
        problem.faults.iter().map(|fault| format!("\n  {} {}", fault.pointer, fault.reason)).collect();
    let message = format!("{status}: {}. {}{}", problem.title, problem.detail, faults.concat());
    let about_the_plan = problem.faults.iter().any(|fault| fault.pointer.starts_with("/plan"));
    if about_the_plan || status == StatusCode::CONFLICT { Trouble::Refused(message) } else { Trouble::Use(message) }
}
