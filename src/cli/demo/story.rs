//! One refund, and a downstream that commits it and then drops the connection.

use serde_json::json;
use serde_json::value::RawValue;

use super::api::{Answer, Api, Grant};
use super::call::{Call, Operation};
use super::downstream::Downstream;
use super::failure::Failure;
use super::server::Server;
use super::timeline::{Timeline, write};
use super::worker::{Downward, Lost, Worker};
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{Name, NameFault};
use crate::domain::state::{Directive, EffectClass, State};

const TOOL: &str = "payments.refund";
const OPERATION: &str = "run-42:refund:order-1001";
/// Short, because the story waits for its end.
const LEASE_SECONDS: u32 = 2;
/// Longer than the lease.
const ATTACH_SECONDS: u64 = 15;

/// How the story ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    /// What the downstream counted.
    commits: u64,
    /// Nobody else was told to act while the outcome was open.
    others_held_back: bool,
    /// The late receipt completed the effect.
    settled: bool,
    /// The one who came after got the recorded result.
    replayed: bool,
}

/// Plays the story. The error of the verdict says what does not hold.
pub(super) async fn play(server: &Server) -> Result<(), Failure> {
    let downstream = Downstream::start().await?;
    let api = Api::new(&server.url, server.token.clone())?;
    let downward = Downward::new(&downstream.url, "refunds")?;
    let call = refund().map_err(|error| Failure::Broken(error.to_string()))?;
    let id = Name::new(OPERATION).map_err(|error| Failure::Broken(error.to_string()))?;
    let operation = Operation { id, call: &call, lease_seconds: LEASE_SECONDS };
    introduce(server, &downstream)?;
    downstream.lose_answer(OPERATION);
    let stage = Stage { downstream, api, downward, operation, time: Timeline::start() };
    let ending = stage.play().await?;
    write("")?;
    write(verdict(&ending).map_err(Failure::Broken)?)?;
    Ok(())
}

/// What the downstream counted decides, and then whether everybody was told the right thing.
fn verdict(ending: &Ending) -> Result<String, String> {
    let counted = match ending.commits {
        1 => "the downstream counted exactly 1 commit",
        0 => return Err(format!("the downstream counted 0 commits of {OPERATION}, not 1: nothing happened")),
        more => return Err(format!("the downstream counted {more} commits of {OPERATION}, not 1: it happened again")),
    };
    if !ending.others_held_back {
        return Err(format!("{counted}, but another worker was told to act while the outcome was open"));
    }
    if !ending.settled {
        return Err(format!("{counted}, but the late receipt did not complete the effect"));
    }
    if !ending.replayed {
        return Err(format!("{counted}, but a worker who came later did not get the recorded result"));
    }
    Ok(format!("Verdict: {counted} of {OPERATION}. The contract held."))
}

fn refund() -> Result<Call, NameFault> {
    let arguments = RawValue::from_string(r#"{"amount":1200,"currency":"EUR"}"#.to_owned()).unwrap_or_default();
    Ok(Call {
        run_id: Name::new("run-42")?,
        id: Some(Name::new("call_9")?),
        tool: Name::new(TOOL)?,
        effect: EffectClass::External,
        target: Name::new("order-1001")?,
        digest: Sha256Digest::of(arguments.get().as_bytes()),
        arguments,
    })
}

fn introduce(server: &Server, downstream: &Downstream) -> std::io::Result<()> {
    write("A downstream commits a refund and then drops the connection. Did it happen?\n")?;
    write(format_args!(
        "  actonce     {}, the real server on {}, tenant {}",
        server.url, server.database, server.tenant
    ))?;
    write(format_args!("  payments    {}, a fake downstream: acts on every request, and counts", downstream.url))?;
    write(format_args!("  operation   {OPERATION}, tool {TOOL}, class external, lease {LEASE_SECONDS} s\n"))?;
    write("seconds  who         what")
}

struct Stage<'a> {
    downstream: Downstream,
    api: Api,
    downward: Downward,
    operation: Operation<'a>,
    time: Timeline,
}

impl Stage<'_> {
    async fn play(&self) -> Result<Ending, Failure> {
        let spec = json!({ "effect": "external", "description": "Refunds an order" });
        self.api.put_tool(TOOL, &spec).await?;
        let first = self.worker("agent-1");
        let second = self.worker("agent-2");
        self.time.line("agent-1", "states its intent and asks to act")?;
        let answer = first.ask(&self.operation).await?;
        self.answered(&first, &answer)?;
        let grant = answer.grant().ok_or_else(|| Failure::Broken("the first worker was not told to act".to_owned()))?;
        let found = self.act(&first, &grant).await?;
        if found.is_ok() {
            return Err(Failure::Broken("the downstream answered, though its answer was to be lost".to_owned()));
        }
        self.time.line("agent-1", "hangs: no heartbeat, no report")?;

        self.time.line("agent-2", "states the same intent and asks to act")?;
        let mut held_back = self.is_held_back(&second, second.ask(&self.operation).await?).await?;
        self.time
            .line("agent-2", format_args!("asks again and lets its request be held (Prefer: wait={ATTACH_SECONDS})"))?;
        held_back &= self.is_held_back(&second, second.attach(&self.operation, ATTACH_SECONDS).await?).await?;
        self.time.line("agent-1", "is started again: the same intent, but the claim id died with the old process")?;
        let restarted = self.worker("agent-1");
        held_back &= self.is_held_back(&restarted, restarted.ask(&self.operation).await?).await?;

        let settled = self.settle(&first, &grant).await?;
        let third = self.worker("agent-3");
        self.time.line("agent-3", "states the same intent and asks to act")?;
        let answer = third.ask(&self.operation).await?;
        let replayed = answer.directive == Directive::Replay && answer.result.is_some();
        held_back &= self.is_held_back(&third, answer).await?;
        self.tell_journal().await?;
        Ok(Ending { commits: self.count()?, others_held_back: held_back, settled, replayed })
    }

    fn worker<'a>(&'a self, name: &'a str) -> Worker<'a> {
        Worker::start(name, &self.api, &self.downward)
    }

    /// Acts as granted. Shows what the downstream did, which the worker does not see.
    async fn act(&self, worker: &Worker<'_>, grant: &Grant) -> Result<Result<(), Lost>, Failure> {
        self.time.line(worker.name, "POST /refunds to payments, with the idempotency key of its dispatch")?;
        let before = self.downstream.commits_of(OPERATION);
        let acted = worker.act(&self.operation, grant).await;
        let commits = self.downstream.commits_of(OPERATION);
        if commits > before {
            let receipts = self.downstream.receipts_of(OPERATION);
            let receipt = receipts.last().map_or("", String::as_str);
            let end = if acted.is_ok() { "answers" } else { "drops the connection without an answer" };
            self.time.line("payments", format_args!("commits {receipt} (commit {commits}), then {end}"))?;
        }
        if let Err(lost) = &acted {
            self.time.line(worker.name, format_args!("has no answer ({}): it may have happened or not", lost.why))?;
        }
        Ok(acted.map(drop))
    }

    /// Whether a worker was told not to act. One that is told to act does so, like any client:
    /// then the downstream counts it.
    async fn is_held_back(&self, worker: &Worker<'_>, answer: Answer) -> Result<bool, Failure> {
        self.answered(worker, &answer)?;
        match answer.grant() {
            Some(grant) => self.act(worker, &grant).await.map(|_| false),
            None => Ok(true),
        }
    }

    fn answered(&self, worker: &Worker<'_>, answer: &Answer) -> std::io::Result<()> {
        let name = worker.name;
        let told = match answer.directive {
            Directive::Dispatch => format!("{name} acts now"),
            Directive::Wait => format!("{name} must not act, somebody else may be acting"),
            Directive::Reconcile => format!("{name} must not act, nobody knows whether it happened"),
            Directive::Replay => match &answer.result {
                Some(result) => format!("{name} must not act, here is the recorded result {}", result.get()),
                None => format!("{name} must not act"),
            },
            _ => format!("{name} must not act"),
        };
        let fence = answer.grant().map(|grant| format!(", fence {}", grant.fence)).unwrap_or_default();
        let (directive, state) = (answer.directive.as_str(), answer.state.as_str());
        self.time.line("actonce", format_args!("{directive:<9} {told} [{state}{fence}]"))
    }

    /// The first worker comes to, and has kept its dispatch. It does not act again: it looks.
    async fn settle(&self, first: &Worker<'_>, grant: &Grant) -> Result<bool, Failure> {
        self.time.line("agent-1", "the old process comes to; it looks at payments: GET /refunds?key=…")?;
        let Some(said) = first.look_up(grant).await? else {
            self.time.line("payments", "has nothing under that key")?;
            return Ok(false);
        };
        self.time.line("payments", format_args!("has {} under that key", said.receipt_id))?;
        let report = format!("reads {} afresh, reports succeeded under fence {}, late", said.receipt_id, grant.fence);
        self.time.line("agent-1", report)?;
        match first.report_success(&self.operation, grant, &said).await {
            Ok(answer) => {
                let state = answer.state.as_str();
                self.time.line("actonce", format_args!("takes the receipt and the fresh read [{state}]"))?;
                Ok(answer.state == State::Completed)
            }
            Err(Failure::Refused { problem, .. }) => {
                self.time.line("actonce", format_args!("refuses: {problem}"))?;
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn tell_journal(&self) -> Result<(), Failure> {
        for entry in self.api.journal(&self.operation).await? {
            let kinds: Vec<&str> = entry.events.iter().map(|event| event.kind.trim_start_matches("effect.")).collect();
            self.time.line("actonce", format_args!("journal, revision {}: {}", entry.revision, kinds.join(", ")))?;
        }
        Ok(())
    }

    fn count(&self) -> std::io::Result<u64> {
        let commits = self.downstream.commits_of(OPERATION);
        let receipts = self.downstream.receipts_of(OPERATION).join(", ");
        let all = self.downstream.commits();
        let noun = if commits == 1 { "commit" } else { "commits" };
        self.time
            .line("payments", format_args!("counted {commits} {noun} of this operation ({receipts}), {all} in all"))?;
        Ok(commits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Ending = Ending { commits: 1, others_held_back: true, settled: true, replayed: true };

    #[test]
    fn only_exactly_one_commit_is_good() {
        let with = |commits| verdict(&Ending { commits, ..GOOD });
        assert!(with(0).unwrap_err().contains("0 commits"));
        assert!(with(1).unwrap().contains("exactly 1 commit"));
        assert!(with(2).unwrap_err().contains("2 commits"));
    }

    #[test]
    fn one_commit_by_luck_is_not_enough() {
        assert!(verdict(&Ending { others_held_back: false, ..GOOD }).is_err());
        assert!(verdict(&Ending { settled: false, ..GOOD }).is_err());
        assert!(verdict(&Ending { replayed: false, ..GOOD }).is_err());
    }
}
