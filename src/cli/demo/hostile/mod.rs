//! A downstream that lies, lags and loses, in six manners. Two workers at each, who act whenever they are
//! told to; the service looks its doubts up by itself. The downstream counts.

mod adapter;
mod downstream;
mod manner;

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};
use serde_json::value::RawValue;

use self::downstream::HostileDownstream;
use self::manner::{Expected, Manner};
use super::api::{Answer, Api, Entry, Grant};
use super::call::{Call, Operation};
use super::failure::Failure;
use super::server::Server;
use super::table;
use super::timeline::write;
use super::worker::{Downward, Lost, Worker};
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{Name, NameFault};
use crate::domain::state::{Directive, State};

/// Longer than anything here takes.
const LEASE_SECONDS: u32 = 60;
/// How long a worker waits for the downstream before it reports that it has no answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the other worker asks.
const PAUSE: Duration = Duration::from_millis(100);
/// How long an act may take to end.
const END: Duration = Duration::from_secs(25);

const HEADS: [&str; 6] = ["downstream", "dispatches", "commits", "lookups", "absences", "how it ended"];

/// What came of one act.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    manner: Manner,
    dispatches: u64,
    commits: u64,
    lookups: u64,
    absences: u64,
    end: String,
}

/// Plays all manners at once. The error of the verdict says what does not hold.
pub(super) async fn play(server: &Server) -> Result<(), Failure> {
    let downstream = HostileDownstream::start().await?;
    let api = Api::new(&server.url, server.token.clone())?;
    introduce()?;
    let started = Instant::now();
    let rows: Vec<Row> = stream::iter(Manner::ALL)
        .map(|manner| Box::pin(act(manner, &api, &downstream)))
        .buffered(Manner::ALL.len())
        .try_collect()
        .await?;
    write(format_args!("{}\n", render(&rows)))?;
    write("lookups: questions of the service to the downstream's adapter; absences: how many of them found nothing")?;
    write(format_args!("played in {:.1} s\n", started.elapsed().as_secs_f64()))?;
    write(verdict(&rows, downstream.commits()).map_err(Failure::Broken)?)?;
    Ok(())
}

fn introduce() -> std::io::Result<()> {
    write("\nNow downstreams that are worse. Each tool has an adapter that reads the downstream's own books, and the")?;
    write("service looks every doubt up by itself. A second worker keeps asking, and acts whenever it is told to.\n")?;
    for manner in Manner::ALL {
        write(format_args!("  {:<17} {}", manner.label(), manner.story()))?;
    }
    write("")
}

/// The call of a manner: one act, in a tool of its own.
fn call(manner: Manner) -> Result<Call, NameFault> {
    let arguments = RawValue::from_string(r#"{"amount":1200,"currency":"EUR"}"#.to_owned()).unwrap_or_default();
    Ok(Call {
        run_id: Name::new("run-43")?,
        id: None,
        tool: Name::new(&manner.tool())?,
        effect: manner.class(),
        target: Name::new("order-1002")?,
        digest: Sha256Digest::of(arguments.get().as_bytes()),
        arguments,
    })
}

async fn act(manner: Manner, api: &Api, downstream: &HostileDownstream) -> Result<Row, Failure> {
    let named = |fault: NameFault| Failure::Broken(fault.to_string());
    let call = call(manner).map_err(named)?;
    let id = Name::new(&format!("run-43:{}", manner.name())).map_err(named)?;
    let operation = Operation { id, call: &call, lease_seconds: LEASE_SECONDS };
    let downward = Downward::new(&downstream.url, manner.name())?;
    let spec = manner.registration(&downstream.url, &downstream.secret.registered());
    api.put_tool(call.tool.as_str(), &spec).await?;
    let scene = Scene { api, downward, operation };
    let dispatches = scene.play().await.map_err(|failure| failure.at(&call))?;
    let ended = api.read(&scene.operation).await?;
    let journal = api.journal(&scene.operation).await?;
    let counts = downstream.counts_of(manner);
    Ok(Row {
        manner,
        dispatches,
        commits: downstream.commits_of(scene.operation.id.as_str()),
        lookups: counts.lookups,
        absences: counts.absences,
        end: end(&ended, &journal),
    })
}

/// How an act ended, in the words of the table.
fn end(ended: &Answer, journal: &[Entry]) -> String {
    let has = |kind: &str| journal.iter().flat_map(|entry| &entry.events).any(|event| event.kind == kind);
    let state = match ended.state {
        State::ManualReview => "with a person (manual_review)",
        state => state.as_str(),
    };
    let retried = has("effect.safe_to_retry") && ended.state != State::SafeToRetry;
    let before = if retried { "safe_to_retry, then " } else { "" };
    let flag = if ended.contradicted { ", flagged contradicted" } else { "" };
    format!("{before}{state}{flag}")
}

struct Scene<'a> {
    api: &'a Api,
    downward: Downward,
    operation: Operation<'a>,
}

impl Scene<'_> {
    /// Plays until the act has ended. Returns how often somebody was told to act.
    async fn play(&self) -> Result<u64, Failure> {
        let first = self.worker("agent-1");
        let answer = first.ask(&self.operation).await?;
        let grant = answer.grant().ok_or_else(|| Failure::Broken("the first worker was not told to act".to_owned()))?;
        let mut acting = pin!(first.act(&self.operation, &grant));
        let early = tokio::time::timeout(PATIENCE, &mut acting).await;
        let lost = match early {
            Ok(Ok(_)) => return Err(Failure::Broken("the downstream answered at once; it should not".to_owned())),
            Ok(Err(lost)) => Some(lost),
            Err(_) => None,
        };
        let given_up = lost.is_none();
        first.report_unknown(&self.operation, &grant, &lost.unwrap_or_else(Lost::given_up)).await?;
        let late = async { if given_up { acting.await.ok() } else { None } };
        let (late, others) = future::join(late, self.others()).await;
        if let Some(said) = late {
            // The answer comes after all. Its owner tells it, whatever became of the act meanwhile.
            match first.report_success(&self.operation, &grant, &said).await {
                Ok(_) | Err(Failure::Refused { .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        others.map(|others| others.saturating_add(1))
    }

    fn worker<'a>(&'a self, name: &'a str) -> Worker<'a> {
        Worker::start(name, self.api, &self.downward)
    }

    /// The other worker: asks until the act has ended, and acts when it is told to. Returns how often it was.
    async fn others(&self) -> Result<u64, Failure> {
        let second = self.worker("agent-2");
        let started = Instant::now();
        let mut acts = 0_u64;
        while started.elapsed() < END {
            // Who has acted and was refused doesn't try again: it watches what becomes of it.
            let answer = match acts {
                0 => second.ask(&self.operation).await?,
                _ => self.api.read(&self.operation).await?,
            };
            if matches!(answer.directive, Directive::Replay | Directive::Review | Directive::Stop) {
                break;
            }
            match answer.grant().filter(|_| acts == 0) {
                Some(grant) => {
                    acts = acts.saturating_add(1);
                    self.follow(&second, &grant).await?;
                }
                None => tokio::time::sleep(PAUSE).await,
            }
        }
        Ok(acts)
    }

    /// Acts, and reports what was heard. A downstream's error without a receipt is reported as the failure
    /// that a hasty worker takes it for.
    async fn follow(&self, worker: &Worker<'_>, grant: &Grant) -> Result<(), Failure> {
        let report = match worker.act(&self.operation, grant).await {
            Ok(said) => worker.report_success(&self.operation, grant, &said).await,
            Err(lost) if lost.is_status => worker.report_failure(&self.operation, grant, &lost).await,
            Err(lost) => worker.report_unknown(&self.operation, grant, &lost).await,
        };
        report.map(drop)
    }
}

fn render(rows: &[Row]) -> String {
    let mut lines = vec![HEADS.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        [
            row.manner.label().to_owned(),
            row.dispatches.to_string(),
            row.commits.to_string(),
            row.lookups.to_string(),
            row.absences.to_string(),
            row.end.clone(),
        ]
    }));
    table::lay_out(&lines, &[0, 5])
}

/// What the downstream counted decides, and then how each act ended.
fn verdict(rows: &[Row], all_commits: u64) -> Result<String, String> {
    let mut faults = Vec::new();
    for row in rows {
        let Expected { dispatches, absences, end } = row.manner.expected();
        let mut fault = |what: String| faults.push(format!("{}: {what}", row.manner.label()));
        if row.commits != 1 {
            fault(format!("{} commits, not 1", row.commits));
        }
        if row.dispatches != dispatches {
            fault(format!("{} dispatches, not {dispatches}", row.dispatches));
        }
        if row.lookups == 0 || row.absences < absences {
            fault(format!("{} lookups, {} of them in vain, which shows nothing", row.lookups, row.absences));
        }
        if row.end != end {
            fault(format!("ended as {:?}, not as {end:?}", row.end));
        }
    }
    let counted = rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.commits));
    if all_commits != counted {
        faults.push(format!("{} commits that belong to no operation", all_commits.abs_diff(counted)));
    }
    if faults.is_empty() {
        Ok(format!("Verdict: {} hostile downstreams, 1 commit in each. The contract held.", rows.len()))
    } else {
        Err(format!("the contract did not hold: {}", faults.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<Row> {
        let row = |manner: Manner| {
            let Expected { dispatches, absences, end } = manner.expected();
            Row { manner, dispatches, commits: 1, lookups: absences.max(1), absences, end: end.to_owned() }
        };
        Manner::ALL.into_iter().map(row).collect()
    }

    #[test]
    fn each_row_has_to_be_as_expected() {
        assert!(verdict(&good(), 6).unwrap().contains("6 hostile downstreams"));
        assert!(verdict(&good(), 7).unwrap_err().contains("belong to no operation"));
        for at in 0..6 {
            let with = |change: fn(&mut Row)| {
                let mut rows = good();
                change(&mut rows[at]);
                let commits = rows.iter().map(|row| row.commits).sum();
                verdict(&rows, commits).unwrap_err()
            };
            assert!(with(|row| row.commits = 0).contains(": 0 commits, not 1"));
            assert!(with(|row| row.commits = 2).contains(": 2 commits, not 1"));
            assert!(with(|row| row.dispatches += 1).contains("dispatches, not"));
            assert!(with(|row| row.lookups = 0).contains("shows nothing"));
            assert!(with(|row| row.end = "failed".to_owned()).contains("ended as \"failed\""));
        }
    }

    #[test]
    fn a_row_says_how_its_act_ended() {
        let table = render(&good());
        assert!(
            table.lines().any(|line| line.starts_with("never commits ") && line.ends_with("then completed")),
            "{table}"
        );
    }
}
