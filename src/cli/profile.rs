//! `actonce profile compare`: in which classes two profiles differ, and nothing more.

use std::fs::File;
use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{fail, print};
use crate::config::Secret;
use crate::domain::canonical::Sha256Digest;
use crate::domain::profile::Profile;
use crate::limits;

/// What is said when two profiles differ.
const DIFFERENT: u8 = 3;

/// What to do with profiles.
#[derive(Debug, Subcommand)]
pub(super) enum ProfileCommand {
    /// Compare two profiles: exit 0 when they are equal, 3 with the classes that differ when not, 2 when they can't
    /// be compared.
    Compare(CompareArgs),
}

/// `actonce profile compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// A JSON file with components, or the id of a declared profile (`sha256:…`).
    first: String,
    /// Another one.
    second: String,
    /// The service that is asked about ids.
    #[arg(long, env = "ACTONCE_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A token with the scope `effects:read`, for ids.
    #[arg(long, env = "ACTONCE_TOKEN", hide_env_values = true)]
    token: Option<Secret<String>>,
}

pub(super) async fn run(command: &ProfileCommand) -> ExitCode {
    let ProfileCommand::Compare(args) = command;
    let (first, second) = match (profile(args, &args.first).await, profile(args, &args.second).await) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => return fail(&error),
    };
    let differences = first.differences(&second);
    let is_equal = differences.is_empty();
    let report = serde_json::json!({ "equal": is_equal, "differences": differences });
    let printed = print(&serde_json::to_string_pretty(&report).unwrap_or_default());
    if is_equal { printed } else { ExitCode::from(DIFFERENT) }
}

async fn profile(args: &CompareArgs, source: &str) -> Result<Profile, String> {
    let document = if Sha256Digest::parse(source).is_some() { fetch(args, source).await } else { read(source) }?;
    let components = match document {
        Value::Object(mut members) => members.remove("components").unwrap_or_default(),
        other => other,
    };
    let components =
        serde_json::from_value(components).map_err(|_| format!("{source} is no list of components of a profile"))?;
    Profile::new(components).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(|fault| format!("{} {}", fault.pointer, fault.reason)).collect();
        format!("{source} is no profile: {}", faults.join("; "))
    })
}

fn read(path: &str) -> Result<Value, String> {
    let mut text = String::new();
    let limit = u64::try_from(limits::BODY_BYTES).unwrap_or(u64::MAX);
    let file = File::open(path).map_err(|error| format!("can't read {path}: {error}"))?;
    file.take(limit).read_to_string(&mut text).map_err(|error| format!("can't read {path}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{path} is no JSON: line {}", error.line()))
}

async fn fetch(args: &CompareArgs, id: &str) -> Result<Value, String> {
    let token = args.token.as_ref().ok_or("give --token, or ACTONCE_TOKEN, to ask about a profile id")?;
    let client = reqwest::Client::builder().timeout(Duration::from_secs(20)).no_proxy().build();
    let client = client.map_err(|error| format!("no client: {error}"))?;
    let url = format!("{}/api/profiles/{}", args.url.trim_end_matches('/'), utf8_percent_encode(id, NON_ALPHANUMERIC));
    let response =
        client.get(url).bearer_auth(token.expose()).send().await.map_err(|_| format!("{}: no answer", args.url))?;
    if !response.status().is_success() {
        return Err(format!("{id}: the service answers {}", response.status()));
    }
    response.json().await.map_err(|_| format!("{id}: the answer is no JSON"))
}
