//! What the database says.

use super::Findings;
use crate::store::inspect::{Inspection, Past};
use crate::store::migrate::{LATEST, Level};
use crate::store::open::DatabaseUrl;
use crate::store::{Backend, Result, StoreError};

/// A clock that is off by more than this is worth a look.
const SUSPICIOUS_US: i64 = 1_000_000;
/// By more than this, tokens are refused or outlive themselves: the leeway of tokens where none is configured.
const HARMFUL_US: i64 = 5_000_000;

/// Judges what was found; gives it back where there is something.
pub(super) fn judge(
    url: &DatabaseUrl,
    found: Option<Result<Inspection>>,
    before_us: i64,
    findings: &mut Findings,
) -> Option<Inspection> {
    if let DatabaseUrl::Sqlite(path) = url
        && !path.exists()
    {
        let advice =
            ("this is a new deployment, or the wrong place", "nothing, if it is new: the first start makes it");
        findings.warn("database", format!("there is no file {} yet", path.display()), advice);
        return None;
    }
    let inspection = match found {
        Some(Ok(inspection)) => inspection,
        Some(Err(error @ StoreError::Schema(_))) => {
            findings.ok("database", "it answers", "it can be reached with this configuration");
            let advice = ("the service refuses to start on it", "use the program that fits it, or another database");
            findings.fail("schema", error.to_string(), advice);
            return None;
        }
        Some(Err(error)) => {
            let advice =
                ("nothing can be recorded, and so nothing granted", "see that it runs and that DATABASE_URL is right");
            findings.fail("database", error.to_string(), advice);
            return None;
        }
        None => {
            let advice = ("nothing can be recorded in time", "see that it runs and is not overloaded");
            findings.fail("database", "it does not answer in time", advice);
            return None;
        }
    };
    findings.ok("database", format!("{} answers", url.backend().as_str()), "it can be reached with this configuration");
    schema(inspection.schema, findings);
    match &inspection.write_fault {
        Some(fault) => {
            let advice = (
                "nothing can be recorded, and so nothing granted",
                "connect to the primary, give the role all rights on the tables, or end what holds the lock",
            );
            findings.fail("write", format!("a write was refused: {fault}"), advice);
        }
        None if inspection.schema == Level::Current => {
            findings.ok("write", "a write was tried and taken back", "changes can be recorded");
        }
        None => {}
    }
    match url.backend() {
        Backend::Postgres => postgres(&inspection, findings),
        Backend::Sqlite => sqlite(&inspection, findings),
    }
    clock(url.backend(), &inspection, before_us, findings);
    Some(inspection)
}

fn schema(level: Level, findings: &mut Findings) {
    match level {
        Level::Current => findings.ok("schema", format!("migration {LATEST}"), "it is the one of this program"),
        Level::Behind(newest) => {
            let advice = (
                "this program has newer migrations",
                "nothing: the next start migrates under a lock; `actonce migrate` does it beforehand",
            );
            findings.warn("schema", format!("migration {newest} of {LATEST}"), advice);
        }
        Level::Empty => {
            let advice = ("nothing was ever recorded in it", "nothing, if it is new: the first start makes the tables");
            findings.warn("schema", "the database is empty", advice);
        }
    }
}

fn setting<'a>(inspection: &'a Inspection, name: &str) -> &'a str {
    let found = inspection.settings.iter().find(|(found, _)| *found == name);
    found.map_or("", |(_, value)| value.as_str())
}

fn postgres(inspection: &Inspection, findings: &mut Findings) {
    let value = |name| setting(inspection, name);
    if value("server_version_num").parse::<u32>().unwrap_or(0) < 140_000 {
        let advice = ("the service does not start", "use Postgres 14 or newer");
        findings.fail("database", format!("server_version_num is {}", value("server_version_num")), advice);
    }
    let lost = "what was acknowledged can be lost when the machine goes down, and then be done twice";
    if value("fsync") == "on" {
        findings.ok("durability", "fsync is on", "a commit is on disk before it is acknowledged");
    } else {
        findings.fail("durability", "fsync is off", (lost, "set fsync = on and restart the server"));
    }
    match value("synchronous_commit") {
        "off" => {
            let advice =
                ("the service overrules it on its own connections", "set it to on, so that other tools see the same");
            findings.warn("durability", "synchronous_commit is off", advice);
        }
        kept => findings.ok("durability", format!("synchronous_commit is {kept}"), "the service keeps it"),
    }
    if value("full_page_writes") != "on" {
        let advice = ("a page that was half written in a crash can't be repaired", "set full_page_writes = on");
        findings.warn("durability", "full_page_writes is off", advice);
    }
    match value("wall") {
        "true" => findings.ok("wall", "row-level security holds this role", "a tenant's rows are hidden twice"),
        "false" => {
            let advice = (
                "a statement that forgot its tenant would see every tenant's rows",
                "connect with a role that is no superuser and has no BYPASSRLS",
            );
            findings.warn("wall", "row-level security does not hold this role", advice);
        }
        _ => {}
    }
    if let Some(past) = &inspection.past {
        pooling(past, findings);
    }
    if value("standby") == "true" {
        let advice = ("decisions need the primary", "connect to the primary");
        findings.fail("write", "the server is a standby", advice);
    }
}

fn pooling(past: &Past, findings: &mut Findings) {
    let check = "pooling";
    match past {
        Past::Leads => {
            let found = "transactions through a pooler, and an address past it";
            findings.ok(check, found, "every use sets itself, and replicas hear one another");
        }
        Past::None => {
            let advice = (
                "replicas do not hear one another, so that waits see changes of others late, and no start migrates",
                "set DATABASE_DIRECT_URL to the server's own address",
            );
            findings.warn(check, "transactions through a pooler, and no address past it", advice);
        }
        Past::Fault(fault) => {
            findings.fail(check, fault.as_str(), ("the service does not start", "mend DATABASE_DIRECT_URL"));
        }
    }
}

fn sqlite(inspection: &Inspection, findings: &mut Findings) {
    match setting(inspection, "journal_mode") {
        "wal" => findings.ok("durability", "the journal mode is wal", "readers never wait for the writer"),
        _ if inspection.schema == Level::Empty => {}
        mode => {
            let advice = (
                "somebody has changed it: the service always turns the write-ahead log on",
                "nothing: the next start turns it on; see who else writes to the file",
            );
            findings.warn("durability", format!("the journal mode is {mode}"), advice);
        }
    }
    if setting(inspection, "synchronous") == "2" {
        findings.ok("durability", "synchronous is FULL", "a commit is on disk before it is acknowledged");
    } else {
        let advice =
            ("what was acknowledged can be lost when the machine goes down", "report this: the service sets it");
        findings.fail("durability", "synchronous is not FULL", advice);
    }
}

fn clock(backend: Backend, inspection: &Inspection, before_us: i64, findings: &mut Findings) {
    let Some(now_us) = inspection.now_us else { return };
    // Somewhere between the question and the answer.
    let after_us = crate::auth::wall_clock_us();
    let offset =
        if now_us < before_us { now_us.saturating_sub(before_us) } else { now_us.saturating_sub(after_us).max(0) };
    // On SQLite it is the latest time given out, which is past at rest.
    let offset = if backend == Backend::Sqlite { offset.max(0) } else { offset };
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "for people")]
    let seconds = offset as f64 / 1e6;
    let finding = format!(
        "the database is {:.1} s {} this machine",
        seconds.abs(),
        if offset < 0 { "behind" } else { "ahead of" }
    );
    let advice = (
        "leases and deadlines follow the database alone; tokens follow this machine, and are refused or outlive themselves",
        "let both keep their time by NTP; a SQLite file from the future waits until its time is reached",
    );
    if offset.saturating_abs() > HARMFUL_US {
        findings.fail("clock", finding, advice);
    } else if offset.saturating_abs() > SUSPICIOUS_US {
        findings.warn("clock", finding, advice);
    } else {
        findings.ok("clock", finding, "times of tokens and of leases agree");
    }
}
