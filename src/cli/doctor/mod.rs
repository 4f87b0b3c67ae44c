//! `actonce doctor`: looks at everything that a deployment stands on, says what is wrong, what it means, and what
//! to do. It changes nothing and sends no question to any adapter.

mod adapters;
mod database;
mod keys;
mod machine;
mod tls;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::{fail, print};
use crate::app::database_of;
use crate::config::{self, Config, Environment, Flags, ServeArgs};
use crate::limits;
use crate::store::inspect::inspect;

/// `actonce doctor`, with the flags, variables and file of `actonce serve`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// As one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

/// How bad it is. The exit code is that of the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// As it should be: 0.
    Ok,
    /// It works, and something will hurt: 1.
    Warn,
    /// It does not work, or what is acknowledged can be lost: 2.
    Fail,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warn => 1,
            Self::Fail => 2,
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    /// Which check found it.
    check: &'static str,
    level: Level,
    /// What was found.
    #[serde(rename = "finding")]
    found: String,
    /// What that means.
    meaning: &'static str,
    /// What to do; nothing where all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
}

/// Everything that was looked at.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, finding: impl Into<String>, meaning: &'static str) {
        self.0.push(Finding { check, level: Level::Ok, found: finding.into(), meaning, action: None });
    }

    fn warn(&mut self, check: &'static str, finding: impl Into<String>, advice: Advice) {
        self.add(check, Level::Warn, finding.into(), advice);
    }

    fn fail(&mut self, check: &'static str, finding: impl Into<String>, advice: Advice) {
        self.add(check, Level::Fail, finding.into(), advice);
    }

    fn add(&mut self, check: &'static str, level: Level, found: String, (meaning, action): Advice) {
        self.0.push(Finding { check, level, found, meaning, action: Some(action) });
    }

    fn worst(&self) -> Level {
        self.0.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }
}

/// What a finding means, and what to do.
type Advice = (&'static str, &'static str);

pub(super) async fn run(args: &DoctorArgs, flags: &Flags) -> ExitCode {
    let mut findings = Findings::default();
    match config::inspect(&args.serve, &Environment::from_process(), flags) {
        Ok(inspected) => {
            findings.ok("configuration", "it can be read and has no problems", "the service would start with it");
            Box::pin(look(&inspected.config, &mut findings)).await;
        }
        Err(error) => {
            for problem in error.problems {
                let advice = ("the service does not start", "mend this setting; `actonce config check` looks again");
                findings.fail("configuration", problem, advice);
            }
        }
    }
    let worst = findings.worst();
    let shown = if args.json { json(&findings, worst) } else { Some(text(&findings, worst)) };
    match shown {
        Some(shown) if print(&shown) == ExitCode::SUCCESS => ExitCode::from(worst.code()),
        Some(_) => ExitCode::from(2),
        None => fail("the findings can't be shown"),
    }
}

async fn look(config: &Config, findings: &mut Findings) {
    let stage = Duration::from_secs(limits::DOCTOR_STAGE_SECONDS);
    let url = match database_of(config) {
        Ok(url) => url,
        Err(error) => {
            return findings.fail("database", error.to_string(), ("the service does not start", "mend DATABASE_URL"));
        }
    };
    let before = crate::auth::wall_clock_us();
    let inspection = tokio::time::timeout(stage, Box::pin(inspect(&url))).await;
    let inspection = database::judge(&url, inspection.ok(), before, findings);
    machine::judge(&url, config, findings);
    keys::judge(config, inspection.as_ref(), findings);
    tls::judge(config, findings);
    let (key_set, reached) =
        tokio::join!(keys::key_set(config, stage), adapters::reach_all(&config.adapters, inspection.as_ref(), stage));
    findings.0.extend(key_set.0);
    findings.0.extend(reached.0);
}

fn json(findings: &Findings, worst: Level) -> Option<String> {
    serde_json::to_string_pretty(&serde_json::json!({ "level": worst, "findings": findings.0 })).ok()
}

fn text(findings: &Findings, worst: Level) -> String {
    let mut lines = Vec::new();
    for finding in &findings.0 {
        lines.push(format!("{:<4} {}: {}", finding.level.word(), finding.check, finding.found));
        if let Some(action) = finding.action {
            lines.push(format!("       means: {}", finding.meaning));
            lines.push(format!("       to do: {action}"));
        }
    }
    lines.push(format!("in all: {}", worst.word()));
    lines.join("\n")
}
