//! The transition table (protocol §3, §4, §6), walked whole: every state, command, class, reporter
//! and time. A combination that no row lists fails, and so does one that two rows list.

use std::collections::BTreeSet;

use super::commands::{Asked, COMMANDS, REPORTS, Who, asked, asked_by};
use super::scene::{Scene, events};
use super::starts::{Kind, STARTS, When, start};
use crate::domain::decide::{Change, Decision, directive};
use crate::domain::refusal::Refusal;

const TABLE: &str = include_str!("table.txt");

/// One line of the table.
struct Row {
    line: usize,
    starts: Vec<String>,
    commands: Vec<String>,
    kinds: String,
    who: Vec<String>,
    when: Vec<String>,
    becomes: String,
    answer: String,
    events: String,
}

/// One combination.
#[derive(Clone, Copy)]
struct Case {
    start: &'static str,
    command: &'static str,
    kind: Kind,
    who: Option<Who>,
    when: When,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { start, command, kind, who, when } = self;
        let (kind, who, when) = (kind.letter(), who.map_or("-", Who::word), when.word());
        write!(f, "{start} | {command} | {kind} | {who} | {when}")
    }
}

fn rows() -> Vec<Row> {
    let words = |column: &str| column.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    TABLE
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            let columns: Vec<&str> = line.split('|').map(str::trim).collect();
            let [starts, commands, kinds, who, when, becomes, answer, events] = columns[..] else {
                panic!("line {} of the table has {} columns", index + 1, columns.len())
            };
            let [starts, commands, who, when] = [starts, commands, who, when].map(words);
            let known = starts.iter().all(|word| STARTS.contains(&word.as_str()))
                && commands.iter().all(|word| [&COMMANDS[..], &REPORTS].concat().contains(&word.as_str()));
            assert!(known, "line {} of the table has an unknown word", index + 1);
            let [kinds, becomes, answer, events] = [kinds, becomes, answer, events].map(str::to_owned);
            Row { line: index + 1, starts, commands, kinds, who, when, becomes, answer, events }
        })
        .collect()
}

impl Row {
    fn lists(&self, case: &Case) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|item| item == word);
        let who = match case.who {
            None => has(&self.who, "-"),
            Some(who) => {
                let other = who != Who::Owner && has(&self.who, "other");
                has(&self.who, "*") || other || has(&self.who, who.word())
            }
        };
        has(&self.starts, case.start)
            && has(&self.commands, case.command)
            && (self.kinds == "*" || self.kinds.contains(case.kind.letter()))
            && who
            && (has(&self.when, "*") || has(&self.when, case.when.word()))
    }
}

/// The one row that lists a case, followed to the state that it refers to.
fn expected(rows: &[Row], case: Case, used: &mut BTreeSet<usize>) -> Result<String, String> {
    let found: Vec<&Row> = rows.iter().filter(|row| row.lists(&case)).collect();
    let [row] = found[..] else {
        let lines: Vec<usize> = found.iter().map(|row| row.line).collect();
        return Err(format!("{case}: listed by {} rows {lines:?}", found.len()));
    };
    used.insert(row.line);
    if let Some(other) = row.becomes.strip_prefix("as ") {
        let other = STARTS.into_iter().find(|start| *start == other).ok_or(format!("line {}", row.line))?;
        return expected(rows, Case { start: other, when: When::Fresh, ..case }, used);
    }
    // What a doubt asks of the caller depends on the class alone.
    let doubt = if "ni".contains(case.kind.letter()) { "claim" } else { "reconcile" };
    let Row { becomes, answer, events, .. } = row;
    Ok(format!("{becomes} | {} | {events}", answer.replace("doubt", doubt)))
}

fn all_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for start in STARTS {
        for kind in Kind::ALL {
            for when in When::ALL {
                for command in REPORTS {
                    cases.extend(Who::ALL.map(|who| Case { start, command, kind, who: Some(who), when }));
                }
                cases.extend(COMMANDS.map(|command| Case { start, command, kind, who: None, when }));
            }
        }
    }
    cases
}

/// A decision in the words of the table.
fn shown(decision: &Decision, after: &Scene) -> String {
    let flag = if after.life().contradicted { "^" } else { "" };
    let becomes = match &decision.change {
        None => "=".to_owned(),
        Some(Change::Renew { .. }) => "renewed".to_owned(),
        Some(Change::Revise(_)) => format!("{}{flag}", after.state().as_str()),
    };
    let plus = |kept: &bool| if *kept { "+" } else { "" };
    let answer = match &decision.answer {
        Ok(answer) => {
            let word = directive(after.record(), &after.context(), answer.owns_dispatch).as_str();
            format!("{word}{}", if answer.replayed { "*" } else { "" })
        }
        Err(Refusal::StateConflict { evidence_recorded, .. }) => format!("!state-conflict{}", plus(evidence_recorded)),
        Err(Refusal::StaleFence { evidence_recorded, .. }) => format!("!stale-fence{}", plus(evidence_recorded)),
        Err(Refusal::LeaseLost) => "!lease-lost".to_owned(),
        Err(Refusal::StaleRequest) => "!stale-request".to_owned(),
        Err(Refusal::OperationReused(parts)) => format!("!operation-reused {}", parts.join(" ")),
        Err(refusal) => format!("{refusal:?}"),
    };
    format!("{becomes} | {answer} | {}", events(decision).join(" "))
}

fn actual(case: Case) -> Option<String> {
    let mut scene = start(case.start, case.kind)?;
    scene.at(case.when);
    let question = match case.who {
        Some(who) => asked_by(&scene, case.command, who),
        None => asked(&scene, case.command),
    };
    let before = scene.clone();
    let decision = match question {
        Asked::Command(command) => scene.apply(&command),
        Asked::Proposal(proposal) => scene.propose(&proposal),
    };
    let wrong = if found_is_true(&decision, &before, &scene) { "" } else { " | and names what was not found" };
    Some(format!("{}{wrong}", shown(&decision, &scene)))
}

/// Whether what a refusal names as found was found.
fn found_is_true(decision: &Decision, before: &Scene, after: &Scene) -> bool {
    match &decision.answer {
        Err(Refusal::StateConflict { state, .. }) => decision.change.is_none() || *state == after.state(),
        Err(Refusal::StaleFence { newest, .. }) => *newest == before.life().fence,
        _ => true,
    }
}

#[test]
fn every_state_command_class_reporter_and_time_is_decided_as_the_table_says() {
    let (rows, cases) = (rows(), all_cases());
    let (mut used, mut wrong) = (BTreeSet::new(), Vec::new());
    let mut decided = 0;
    for case in cases {
        let Some(actual) = actual(case) else { continue };
        decided += 1;
        match expected(&rows, case, &mut used) {
            Err(unlisted) => wrong.push(unlisted),
            Ok(expected) if expected == actual => {}
            Ok(expected) => wrong.push(format!("{case}\n  expected {expected}\n  actual   {actual}")),
        }
    }
    let unused: Vec<usize> = rows.iter().map(|row| row.line).filter(|line| !used.contains(line)).collect();
    assert!(wrong.is_empty(), "{} of {decided} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unused.is_empty(), "rows that list nothing: {unused:?}");
}

/// A sweep only says what time has decided: with or without one, a command comes to the same.
#[test]
fn a_sweep_between_deadline_and_command_changes_no_answer() {
    // These name the revision that was read, which a sweep has moved on, or need the state of then.
    let named = ["admit", "admit.same", "resolve.completed", "resolve.failed", "resolve.retry", "resolve.unknown"];
    for case in all_cases() {
        if case.when != When::Due || named.contains(&case.command) {
            continue;
        }
        let (Some(due), Some(swept)) = (actual(case), actual(Case { when: When::Swept, ..case })) else { continue };
        let answer = |shown: &str| shown.split(" | ").nth(1).unwrap().trim_end_matches('*').to_owned();
        assert_eq!(answer(&due), answer(&swept), "{case}");
    }
}
